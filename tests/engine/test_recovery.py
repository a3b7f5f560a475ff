"""What must run again: enough, and no more, compared with a simulation of every smaller choice."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.engine.content_table import kept_drops
from dropflow.engine.recovery import must_run_again
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import DropState
from dropflow.testing.drawing import chain, draw, row
from dropflow.testing.strategies import graphs

N, C, E, S = DropState.INITIALIZED, DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED


def reset_of(graph: PhysicalGraph, states: bytes, available: set[int], parts: set[tuple[int, int]]) -> set[int]:
    """Return the drops that must run again, as a set."""
    column = np.zeros(graph.drops, dtype=np.bool_)
    column[list(available)] = True
    found = must_run_again(graph, states, column, kept=kept_drops(graph), parts=parts)
    return set(np.flatnonzero(found).tolist())


def is_sufficient(
    graph: PhysicalGraph, states: bytes, available: set[int], parts: set[tuple[int, int]], reset: set[int]
) -> bool:
    """Return whether all drops settle with all results there if only these and the unsettled drops run, one by one."""
    before = graph.predecessors
    settled = {drop for drop in range(graph.drops) if states[drop] in (C, E, S)} - reset
    completes = {drop for drop in range(graph.drops) if states[drop] not in (E, S)}
    contents, written = available & settled, set(parts)
    progress = True
    while progress:
        progress = False
        for drop in set(range(graph.drops)) - settled:
            inputs = set(before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist())
            if not inputs <= settled:
                continue
            is_app = graph.templates[graph.template[drop]].kind is Kind.APP
            has = contents if is_app else {other for other in inputs if (other, drop) in written}
            if not inputs & completes <= has:
                continue
            settled.add(drop)
            progress = True
            if is_app:
                written |= {(drop, other) for other in range(graph.drops)}
            else:
                contents.add(drop)
    results = {drop for drop, flag in enumerate(kept_drops(graph)) if flag} & completes
    return len(settled) == graph.drops and results <= contents


@st.composite
def situations(draw: st.DrawFn, most: int) -> tuple[PhysicalGraph, bytes, set[int], set[tuple[int, int]]]:
    """Draw a graph, states that can occur in it, available contents, and available parts of unsettled drops."""
    graph = draw(graphs(most=most))
    before = graph.predecessors
    states: list[DropState] = []
    for drop in range(graph.drops):  # rows are in topological order
        inputs = [states[other] for other in before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()]
        choices = [C, C, C, E, S, N] if N not in inputs else [N]
        states.append(draw(st.sampled_from(choices)))
    available = {drop for drop in range(graph.drops) if states[drop] is C and draw(st.booleans())}
    pairs = [
        (other, drop)
        for drop in range(graph.drops)
        for other in before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()
        if states[other] is C and states[drop] is N
    ]
    parts = set(draw(st.lists(st.sampled_from(pairs), max_size=3))) if pairs else set()
    return graph, bytes(states), available, parts


@settings(max_examples=150, deadline=None)
@given(situations(most=14))
def test_what_runs_again_is_sufficient(situation: tuple[PhysicalGraph, bytes, set[int], set[tuple[int, int]]]) -> None:
    """If only the reset and the unsettled drops run, every drop settles and every result is there."""
    graph, states, available, parts = situation
    reset = reset_of(graph, states, available, parts)

    assert all(states[drop] == C for drop in reset)
    assert not reset & available & {drop for drop in range(graph.drops) if graph.templates[drop].kind is Kind.DATA}
    assert is_sufficient(graph, states, available, parts, reset)


@settings(max_examples=150, deadline=None)
@given(situations(most=9))
def test_what_runs_again_is_minimal(situation: tuple[PhysicalGraph, bytes, set[int], set[tuple[int, int]]]) -> None:
    """No proper subset of the reset drops is sufficient."""
    graph, states, available, parts = situation
    reset = reset_of(graph, states, available, parts)

    for size in range(len(reset)):
        for fewer in combinations(sorted(reset), size):
            assert not is_sufficient(graph, states, available, parts, set(fewer)), fewer


def test_nothing_runs_again_if_nothing_is_lost() -> None:
    """With all contents available nothing is reset, and what is lost but not needed is not reset either."""
    graph = draw("a -> B -> c -> D -> e")
    a, b, c, e = (row(graph, name) for name in "aBce")
    states = bytearray([N] * graph.drops)
    states[a] = states[b] = states[c] = C

    assert reset_of(graph, states, {a, c}, set()) == set()
    assert reset_of(graph, states, {c}, set()) == set()
    assert reset_of(graph, states, {a}, set()) == {b, c}
    assert reset_of(graph, states, set(), set()) == {a, b, c}
    assert reset_of(graph, bytes([C] * graph.drops), {a, c}, set()) == {e, row(graph, "D")}


def test_a_producer_of_a_shared_drop_writes_its_part_again() -> None:
    """The parts of a drop that is not complete are lost with the process, unless they are said to be available."""
    graph = draw("A -> x, B -> x")
    states = bytearray([N] * graph.drops)
    states[row(graph, "A")] = C

    assert reset_of(graph, states, set(), set()) == {row(graph, "A")}
    assert reset_of(graph, states, set(), {(row(graph, "A"), row(graph, "x"))}) == set()


@pytest.mark.parametrize("length", [10, 100_000])
def test_a_lost_chain_runs_again_from_its_last_content(length: int) -> None:
    """A chain of any length whose contents are lost runs again as a whole, without recursion."""
    graph = chain(2 * length)
    states = bytes([C] * (graph.drops - 1) + [N])

    assert len(reset_of(graph, states, set(), set())) == graph.drops - 1
