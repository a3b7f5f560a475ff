"""Simulated runs as pictures, and as traces for Perfetto (https://ui.perfetto.dev)."""

import heapq
from collections.abc import Iterator

import numpy as np

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from dropflow.times.measured_run import chrome_trace, span
from dropflow.times.timeline_files import Bars, TimelinePicture, picture_of
from translator.plan.judge import Timeline
from translator.plan.machines import Machines
from translator.plan.task_graph import GraphWork


def timeline_picture(graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline) -> TimelinePicture:
    """Return a picture of a run: a row for each processor, and a box for each application."""
    lanes, apps = _processors_of(graph, work, machines, run), work.apps
    part = graph.part[apps]
    cores = np.array([node.cores for node in machines.nodes])
    bars = Bars(
        node=part,
        lane=np.array([lanes[app] for app in apps.tolist()], dtype=np.int64),
        template=graph.template[apps],
        start=run.start[apps],
        end=run.end[apps],
        need=np.minimum(work.cpus[apps], cores[part]),
    )
    title = f"{graph.name}: {run.completion:.6g} s on {len(machines.nodes)} nodes"
    nodes = [(node.name, node.cores, "") for node in machines.nodes]
    names = [template.name for template in graph.templates]
    return picture_of(title, nodes, bars, names, run.completion)


def perfetto_trace(graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline) -> Iterator[bytes]:
    """Return a trace of the JSON format of Chrome, in pieces: applications on the processors of nodes, and moves.

    Nodes are processes and processors are threads. A move is on the node that receives it.
    """
    return chrome_trace([node.name for node in machines.nodes], _spans(graph, work, machines, run))


def _spans(graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline) -> Iterator[dict[str, object]]:
    names = oids(graph, range(graph.drops))
    lanes = _processors_of(graph, work, machines, run)
    for app in work.apps.tolist():
        event = span(names[app], run.start[app], run.end[app], int(graph.part[app]), lanes[app])
        yield event | {"cat": "application"}
    events = run.events
    for move in range(len(events.volume)):
        row = work.drops + move
        event = span(names[int(events.move_drop[move])], run.start[row], run.end[row], int(events.move_to[move]), -1)
        source = machines.nodes[int(events.move_from[move])].name
        yield event | {"cat": "move", "args": {"bytes": float(events.volume[move]), "from": source}}


def _processors_of(graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline) -> dict[int, int]:
    """Return a processor for each application: the lowest that is free at its start."""
    apps = work.apps
    order = apps[np.lexsort((run.end[apps], run.start[apps]))]
    free = [list(range(node.cores)) for node in machines.nodes]
    busy: list[list[tuple[float, int]]] = [[] for _ in machines.nodes]
    processors = {}
    for app in order.tolist():
        node, start = int(graph.part[app]), float(run.start[app])
        while busy[node] and busy[node][0][0] <= start:
            heapq.heappush(free[node], heapq.heappop(busy[node])[1])
        need = min(int(work.cpus[app]), len(free[node]))
        taken = [heapq.heappop(free[node]) for _ in range(need)]
        processors[app] = taken[0] if taken else 0
        for lane in taken:
            heapq.heappush(busy[node], (float(run.end[app]), lane))
    return processors
