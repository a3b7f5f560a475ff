"""What a waiting drop waits for, down to the root."""

import numpy as np

from dropflow.cli.explain import chain_lines
from dropflow.states import DropState
from dropflow.testing.drawing import draw, row


def test_a_chain_ends_at_a_drop_that_waits_for_no_other() -> None:
    """Each drop between is named with its state, and the root has the reasons why it is not settled."""
    graph = draw("A -> x -> B -> y -> C")
    states = np.zeros(graph.drops, dtype=np.uint8)
    states[row(graph, "A")] = DropState.WRITING
    lines = chain_lines(graph, row(graph, "C"), states, lambda drop: (f"reason of {drop}",))

    assert [line.split()[0] for line in lines[1:-1]] == ["y", "B", "x", "A"]
    assert lines[-2].endswith("is WRITING")
    assert lines[-1] == f"  it is not settled: reason of {row(graph, 'A')}"


def test_a_drop_that_waits_for_no_other_has_no_chain() -> None:
    """Nor has one that is settled."""
    graph = draw("A -> x -> B")
    states = np.zeros(graph.drops, dtype=np.uint8)

    assert chain_lines(graph, row(graph, "A"), states, lambda _: ()) == ()
    states[row(graph, "B")] = DropState.ERROR
    assert chain_lines(graph, row(graph, "B"), states, lambda _: ()) == ()


def test_a_long_chain_is_shortened_in_the_middle() -> None:
    """Its beginning and its end are shown, and how many are left out."""
    graph = draw(" -> ".join(f"A{at} -> x{at}" for at in range(20)))
    states = np.zeros(graph.drops, dtype=np.uint8)
    lines = chain_lines(graph, row(graph, "x19"), states, lambda _: (), silent=("n1",))

    assert len(lines) == 12
    assert lines[7] == "  and so on, over 30 more drops"
    assert lines[-1].startswith("  n1 did not answer")
