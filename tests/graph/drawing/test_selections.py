"""Drops that are shown apart."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dropflow.graph.order import (
    critical,
    downstream,
    matching,
    of_template,
    taken_along,
    upstream,
    waiting_chain,
    waits_for,
)
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import DropState
from dropflow.testing.drawing import chain, fan
from tests.graph.drawing.test_draw import layered


def reached(graph: PhysicalGraph, drop: int, may_pass: list[bool], *, backward: bool = False) -> set[int]:
    """Return what is reached from a drop over drops that may be passed, one step at a time."""
    edges = graph.predecessors if backward else graph.successors
    seen, left = {drop}, [drop]
    while left:
        here = left.pop()
        for near in edges.neighbour[edges.ptr[here] : edges.ptr[here + 1]].tolist():
            if may_pass[near] and near not in seen:
                seen.add(near)
                left.append(near)
    return seen


@given(graph=layered(), data=st.data())
def test_what_is_reached_is_what_a_walk_finds(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Upstream, downstream, and over drops in some states only."""
    drop = data.draw(st.integers(0, graph.drops - 1))
    states = np.array(
        data.draw(st.lists(st.integers(0, 7), min_size=graph.drops, max_size=graph.drops)), dtype=np.uint8
    )
    all_of_them = [True] * graph.drops
    is_error = (states == DropState.ERROR).tolist()
    is_open = (states <= DropState.WRITING).tolist()

    assert set(downstream(graph, drop).tolist()) == reached(graph, drop, all_of_them)
    assert set(upstream(graph, drop).tolist()) == reached(graph, drop, all_of_them, backward=True)
    assert set(taken_along(graph, drop, states).tolist()) == reached(graph, drop, is_error)
    assert set(waits_for(graph, drop, states).tolist()) == reached(graph, drop, is_open, backward=True)


@given(graph=layered(), data=st.data())
def test_a_waiting_chain_ends_where_nothing_is_waited_for(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Each drop of it but the first is an open input of the one before, and the last one has no open input."""
    states = np.array(
        data.draw(st.lists(st.integers(0, 7), min_size=graph.drops, max_size=graph.drops)), dtype=np.uint8
    )
    found = waiting_chain(graph, data.draw(st.integers(0, graph.drops - 1)), states).tolist()
    ptr, neighbour = graph.predecessors.ptr, graph.predecessors.neighbour
    open_inputs = [
        {near for near in neighbour[ptr[drop] : ptr[drop + 1]].tolist() if states[near] <= DropState.WRITING}
        for drop in found
    ]

    assert all(after in near for after, near in zip(found[1:], open_inputs, strict=False))
    assert open_inputs[-1] == set()


def test_drops_are_found_by_text_and_by_logical_node() -> None:
    """Text is in the id or in the name of the logical node; case does not matter."""
    graph = fan(6)

    assert matching(graph, "ROOT").tolist() == [0]
    assert matching(graph, "a_0-1").tolist() == [2]
    assert matching(graph, "nothing").tolist() == []
    assert of_template(graph, "d").tolist() == [4, 5, 6]


def test_the_critical_path_is_in_its_order() -> None:
    """From first to last."""
    assert critical(chain(6)).tolist() == [0, 1, 2, 3, 4]
