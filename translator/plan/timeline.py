"""Draws simulated runs: a row for each processor and a box for each application."""

from collections.abc import Iterator

import numpy as np

from dropflow.graph.physical import PhysicalGraph
from dropflow.times.timeline_files import (
    COLOURS,
    LANE,
    LEFT,
    MOST_BOXES,
    MOST_LANES,
    WIDTH,
    Box,
    Row,
    TimelinePicture,
    busy_area,
    tops_of,
)
from translator.plan.judge import Timeline
from translator.plan.machines import Machines
from translator.plan.task_graph import GraphWork
from translator.plan.timeline_trace import processors_of

__all__ = [
    "timeline_picture",
]


def timeline_picture(graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline) -> TimelinePicture:
    """Return a picture of a run: a row for each processor, and a box for each application.

    Pictures of very many applications show the number of busy processors of each node instead.
    """
    is_large = len(work.apps) > MOST_BOXES
    tops = tops_of([node.cores for node in machines.nodes], is_large=is_large)
    return TimelinePicture(
        title=f"{graph.name}: {run.completion:.6g} s on {len(machines.nodes)} nodes",
        width=LEFT + WIDTH + 20,
        height=int(tops[-1]) + 30,
        rows=tuple(Row(node.name, top) for node, top in zip(machines.nodes, tops, strict=False)),
        boxes=() if is_large else tuple(_boxes(graph, work, machines, run, tops)),
        areas=tuple(_busy_areas(graph, work, machines, run, tops)) if is_large else (),
    )


def _boxes(
    graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline, tops: list[float]
) -> Iterator[Box]:
    lanes = processors_of(graph, work, machines, run)
    scale = WIDTH / run.completion if run.completion > 0 else 0.0
    for app in work.apps.tolist():
        start, end = float(run.start[app]), float(run.end[app])
        yield Box(
            left=LEFT + start * scale,
            top=tops[graph.part[app]] + LANE * min(lanes[app], MOST_LANES - 1),
            width=max((end - start) * scale, 0.5),
            colour=COLOURS[int(graph.template[app]) % len(COLOURS)],
            text=f"{graph.templates[graph.template[app]].name}: {start:.6g} to {end:.6g} s",
        )


def _busy_areas(
    graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline, tops: list[float]
) -> Iterator[tuple[tuple[float, float], ...]]:
    for number, node in enumerate(machines.nodes):
        here = work.apps[graph.part[work.apps] == number]
        yield busy_area(
            run.start[here],
            run.end[here],
            np.minimum(work.cpus[here], node.cores),
            length=run.completion,
            most=node.cores,
            top=tops[number],
        )
