"""Graphs with hostile names, parts, nodes and priorities, drawn at random."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph

__all__ = ["HOSTILE", "graphs"]

HOSTILE = st.text(
    st.one_of(
        st.sampled_from("\"\\&<>',;=\n\r\t\x00\x01 ]-{}|é\ufffe\U0001f600"), st.characters(exclude_categories=["Cs"])
    ),
    max_size=12,
)


@st.composite
def graphs(draw: st.DrawFn) -> PhysicalGraph:
    """Draw a graph of applications with an input and an output each, some of them streams."""
    builder = GraphBuilder(draw(HOSTILE) or "g")
    parts = draw(st.integers(1, 3))
    count = draw(st.integers(1, 3))
    for number in range(count):
        for kind in ("in", "app", "out"):
            add = builder.app if kind == "app" else builder.data
            fields = {"component": draw(HOSTILE), "weight": draw(st.floats(0, 1e12))}
            add(f"{kind}{number}", part=draw(st.integers(0, parts - 1)), **fields)
        ports = {"source_port": draw(HOSTILE), "target_port": draw(HOSTILE)}
        builder.connect(f"in{number}", f"app{number}", streaming=draw(st.booleans()), **ports)
        builder.connect(f"app{number}", f"out{number}")
    graph = builder.build()
    graph = replace(graph, templates=tuple(replaced(one, name=draw(HOSTILE)) for one in graph.templates))
    if draw(st.booleans()):
        graph = replace(graph, priority=np.arange(graph.drops, dtype=np.int32))
    if draw(st.booleans()):
        graph = replace(graph, places=tuple(draw(HOSTILE) for _ in range(graph.parts)))
    if draw(st.booleans()):
        names = draw(st.lists(HOSTILE, min_size=graph.drops, max_size=graph.drops))
        graph = replace(graph, oids=tuple(names))
    return graph
