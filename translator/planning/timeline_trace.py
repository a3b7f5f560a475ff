"""Writes simulated runs as traces for Perfetto (https://ui.perfetto.dev)."""

import heapq
from collections.abc import Iterator

import msgspec
import numpy as np

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from translator.planning.graph_work import GraphWork
from translator.planning.machines import Machines
from translator.planning.simulation import Timeline

__all__ = ["perfetto_trace", "processors_of"]


def perfetto_trace(graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline) -> Iterator[bytes]:
    """Yield a trace of the JSON format of Chrome, in pieces: applications on the processors of nodes, and moves.

    Nodes are processes and processors are threads. A move is on the node that receives it.
    """
    encode = msgspec.json.encode
    names = oids(graph, range(graph.drops))
    yield b'{"displayTimeUnit":"ms","traceEvents":['
    separator = b""
    for number, node in enumerate(machines.nodes):
        event = {"ph": "M", "name": "process_name", "pid": number, "args": {"name": node.name}}
        yield separator + encode(event)
        separator = b",\n"
    lanes = processors_of(graph, work, machines, run)
    for app in work.apps.tolist():
        event = _span(names[app], run.start[app], run.end[app], int(graph.part[app]), lanes[app])
        yield separator + encode(event | {"cat": "application"})
    events = run.events
    for move in range(len(events.volume)):
        row = work.drops + move
        span = _span(names[int(events.move_drop[move])], run.start[row], run.end[row], int(events.move_to[move]), -1)
        source = machines.nodes[int(events.move_from[move])].name
        yield separator + encode(span | {"cat": "move", "args": {"bytes": float(events.volume[move]), "from": source}})
    yield b"]}\n"


def _span(name: str, start: float, end: float, node: int, lane: int) -> dict[str, object]:
    microseconds = 1e6
    duration = (float(end) - float(start)) * microseconds
    return {"ph": "X", "name": name, "ts": float(start) * microseconds, "dur": duration, "pid": node, "tid": lane + 2}


def processors_of(graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline) -> dict[int, int]:
    """Return a processor for each application: the lowest that is free at its start."""
    apps = work.apps
    order = apps[np.lexsort((run.end[apps], run.start[apps]))]
    free = [list(range(node.cores)) for node in machines.nodes]
    busy: list[list[tuple[float, int]]] = [[] for _ in machines.nodes]
    found = {}
    for app in order.tolist():
        node, start = int(graph.part[app]), float(run.start[app])
        while busy[node] and busy[node][0][0] <= start:
            heapq.heappush(free[node], heapq.heappop(busy[node])[1])
        need = min(int(work.cpus[app]), len(free[node]))
        taken = [heapq.heappop(free[node]) for _ in range(need)]
        found[app] = taken[0] if taken else 0
        for lane in taken:
            heapq.heappush(busy[node], (float(run.end[app]), lane))
    return found
