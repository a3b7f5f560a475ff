"""Which application follows which in a chain that runs as one unit: the rule, case by case."""

import numpy as np
import pytest

from dropflow.graph.physical import PhysicalGraph, follower_column, is_fused, without_fusion
from dropflow.graph.templates import Kind
from dropflow.testing.drawing import draw, row


def pairs(graph: PhysicalGraph, **options: object) -> set[str]:
    """Return the pairs of applications, such as ``"A B"``, where one follows the other; all may be in one chain."""
    column = follower_column(graph, [1] * len(graph.templates), **options)  # type: ignore[arg-type]
    if column is None:
        return set()
    names = [graph.templates[one].name for one in graph.template]
    return {f"{names[drop]} {names[then]}" for drop, then in enumerate(column.tolist()) if then >= 0}


@pytest.mark.parametrize(
    ("drawing", "fields", "expected"),
    [
        ("A -> x -> B", {}, {"A B"}),
        ("r -> A -> x -> B -> y -> C -> z", {}, {"A B", "B C"}),
        ("r -> A, s -> A, A -> x -> B, B -> y, B -> z", {}, {"A B"}),  # what is before and after a chain may branch
        ("A -> x -> B, A -> y", {}, set()),  # A has two outputs
        ("A -> x -> B, x -> C", {}, set()),  # x has two consumers
        ("A -> x -> B, C -> x", {}, set()),  # x has two producers
        ("A -> x -> B, y -> B", {}, set()),  # B has two inputs
        ("A -> x -> B", {"x": {"persist": True}}, set()),  # x is a result
        ("A -> x -> B", {"B": {"error_threshold": 100.0}}, set()),  # B runs if A fails
        ("A -> x -> B", {"B": {"error_threshold": 99.0}}, {"A B"}),
        ("A -> x -> B", {"A": {"tries": 3}, "B": {"tries": 2}}, {"A B"}),  # each is tried again by itself
    ],
)
def test_the_rule(drawing: str, fields: dict[str, dict[str, object]], expected: set[str]) -> None:
    """An application follows another one if one output, read by it alone, is its only input."""
    assert pairs(draw(drawing, **fields)) == expected


def test_a_chain_is_in_one_place() -> None:
    """Applications on two nodes, or with their data on another one, are in no chain."""
    graph = draw("A -> x -> B -> y -> C")
    for drop, expected in (("x", {"B C"}), ("B", set()), ("C", {"A B"})):
        place = np.zeros(graph.drops, dtype=np.int32)
        place[row(graph, drop)] = 1
        assert pairs(graph, place=place) == expected


def test_templates_of_different_groups_are_in_no_chain() -> None:
    """Applications that run in threads do not follow those that run in processes; 0 is in no chain."""
    graph = draw("A -> x -> B -> y -> C -> z -> D")
    groups = [{"A": 1, "B": 1, "C": 2, "D": 0}.get(one.name, 1) for one in graph.templates]
    column = follower_column(graph, groups)
    assert column is not None
    assert np.flatnonzero(column >= 0).tolist() == [row(graph, "A")]
    assert follower_column(graph, [int(one.kind is Kind.APP) for one in graph.templates]) is None


def test_a_graph_can_ask_for_no_chains() -> None:
    """The note of `without_fusion` keeps every application apart."""
    graph = draw("A -> x -> B")
    assert is_fused(graph)
    assert not is_fused(without_fusion(graph))
    assert pairs(without_fusion(graph)) == set()
