"""Graphs over many simulated nodes."""

from dataclasses import replace

import numpy as np

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph


def fan(width: int, parts: int = 6) -> PhysicalGraph:
    """Return a graph whose drops are on all nodes in turn, so that most edges are between two nodes."""
    builder = GraphBuilder("fan").app("root").data("start").app("join").data("end")
    builder.connect("root", "start").connect("join", "end")
    for number in range(width):
        first, second, third, fourth = (f"{letter}{number}" for letter in "abcd")
        builder.app(first).data(second).app(third).data(fourth)
        builder.connect("start", first).connect(first, second).connect(second, third)
        builder.connect(third, fourth).connect(fourth, "join")
    graph = builder.build()
    part = np.arange(graph.drops, dtype=np.int32) % parts
    return replace(graph, part=part, places=tuple(f"#{number}" for number in range(parts)))


def rows(count: int, parts: int) -> PhysicalGraph:
    """Return independent rows of two applications, in blocks on the first nodes."""
    builder = GraphBuilder("rows")
    part = []
    for number in range(count):
        builder.app(f"a{number}").data(f"b{number}").app(f"c{number}").data(f"d{number}")
        builder.connect(f"a{number}", f"b{number}").connect(f"b{number}", f"c{number}")
        builder.connect(f"c{number}", f"d{number}")
        part += [number * parts // count] * 4
    places = tuple(f"#{number}" for number in range(parts))
    return replace(builder.build(), part=np.array(part, dtype=np.int32), places=places)
