"""Writes simulated runs: as a trace for Perfetto (https://ui.perfetto.dev), and as a picture (SVG)."""

import heapq
from collections.abc import Iterator
from xml.sax.saxutils import escape

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from translator.planning.graph_work import GraphWork
from translator.planning.machines import Machines
from translator.planning.simulation import Timeline

__all__ = ["perfetto_trace", "timeline_svg"]

_MOST_BOXES = 4_000
"""Pictures of more applications show how many processors of each node are busy."""
_WIDTH, _LANE, _LEFT, _TOP = 1000, 14, 120, 30
_SAMPLES = 500
_COLOURS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#e15759",
    "#76b7b2",
    "#edc948",
    "#b07aa1",
    "#9c755f",
    "#ff9da7",
    "#86bcb6",
)


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
    lanes = _lanes(work, machines, graph, run)
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


def _lanes(work: GraphWork, machines: Machines, graph: PhysicalGraph, run: Timeline) -> dict[int, int]:
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


def timeline_svg(graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline) -> Iterator[str]:
    """Yield a picture of a run in pieces: a row for each processor, and a box for each application.

    Pictures of very many applications show the number of busy processors of each node instead.
    """
    is_large = len(work.apps) > _MOST_BOXES
    heights = [_LANE * (2 if is_large else min(node.cores, 64)) + 8 for node in machines.nodes]
    tops = np.concatenate([[0], np.cumsum(heights)]) + _TOP
    scale = _WIDTH / run.completion if run.completion > 0 else 0.0
    width, height = _LEFT + _WIDTH + 20, int(tops[-1]) + 30
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
    yield f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">\n'
    yield f'<text x="{_LEFT}" y="18">{escape(graph.name)}: {run.completion:.6g} s on {len(heights)} nodes</text>\n'
    for number, node in enumerate(machines.nodes):
        top = tops[number]
        yield f'<text x="4" y="{top + 11}">{escape(node.name)}</text>\n'
        yield f'<line x1="{_LEFT}" y1="{top - 3}" x2="{width - 20}" y2="{top - 3}" stroke="#ccc"/>\n'
    if is_large:
        yield from _busy_areas(graph, work, machines, run, tops)
    else:
        lanes = _lanes(work, machines, graph, run)
        for app in work.apps.tolist():
            start, end = float(run.start[app]), float(run.end[app])
            top = tops[graph.part[app]] + _LANE * min(lanes[app], 63)
            name = graph.templates[graph.template[app]].name
            colour = _COLOURS[int(graph.template[app]) % len(_COLOURS)]
            yield f'<rect x="{_LEFT + start * scale:.2f}" y="{top}" width="{max((end - start) * scale, 0.5):.2f}" '
            yield f'height="{_LANE - 2}" fill="{colour}">'
            yield f"<title>{escape(name)}: {start:.6g} to {end:.6g} s</title></rect>\n"
    yield "</svg>\n"


def _busy_areas(
    graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline, tops: npt.NDArray[np.int64]
) -> Iterator[str]:
    times = np.linspace(0.0, run.completion, _SAMPLES)
    scale = _WIDTH / run.completion if run.completion > 0 else 0.0
    for number, node in enumerate(machines.nodes):
        here = work.apps[graph.part[work.apps] == number]
        need = np.minimum(work.cpus[here], node.cores)
        begun, ended = np.argsort(run.start[here]), np.argsort(run.end[here])
        up, down = np.append(0, np.cumsum(need[begun])), np.append(0, np.cumsum(need[ended]))
        busy = up[np.searchsorted(run.start[here][begun], times, side="right")]
        busy = busy - down[np.searchsorted(run.end[here][ended], times, side="right")]
        bottom, height = float(tops[number]) + 2 * _LANE, 2.0 * _LANE
        points = " ".join(
            f"{_LEFT + time * scale:.1f},{bottom - height * count / node.cores:.1f}"
            for time, count in zip(times.tolist(), busy.tolist(), strict=True)
        )
        yield f'<polygon points="{_LEFT},{bottom} {points} {_LEFT + _WIDTH},{bottom}" fill="{_COLOURS[0]}"/>\n'
