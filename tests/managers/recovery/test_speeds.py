"""How fast members are, from what their attempts took."""

import pytest

from dropflow.graph.physical import PhysicalGraph
from dropflow.testing.drawing import draw, row
from managers.recovery.replan import Durations, measure


def _template(graph: PhysicalGraph, name: str) -> int:
    return int(graph.template[row(graph, name)])


def test_without_measurements_weights_and_workers_count() -> None:
    """Applications take as long as the graph gives, and data nothing."""
    graph = draw("a -> B, a -> C", B={"weight": 3.0}, C={"weight": 5.0})
    found = measure(graph, [4, 0], [{}, {}])
    assert [found.seconds[_template(graph, name)] for name in "aBC"] == [0.0, 3.0, 5.0]
    assert found.capacities == [4.0, 1.0]


def test_one_template_on_several_members_shows_their_speeds() -> None:
    """Whatever the weight is: a member that takes four times as long has a quarter of the speed."""
    graph = draw("a -> B", B={"weight": 7.0})
    template = _template(graph, "B")
    found = measure(graph, [1, 2, 1], [{template: (1000, 4000.0)}, {template: (1000, 1000.0)}, {}])
    slow, fast, unknown = found.capacities
    assert fast / slow == pytest.approx(8.0, rel=0.02)
    assert unknown == 1.0


def test_templates_that_ran_on_one_member_each_are_compared_by_their_weights() -> None:
    """A member whose attempts take longer than their weights suggest is slow."""
    graph = draw("a -> B, a -> C", B={"weight": 1.0}, C={"weight": 10.0})
    durations: list[Durations] = [{_template(graph, "B"): (50, 100.0)}, {_template(graph, "C"): (50, 250.0)}]
    slow, fast = measure(graph, [1, 1], durations).capacities
    assert fast / slow == pytest.approx(4.0, rel=0.1)


def test_a_template_that_is_heavier_than_its_weight_does_not_make_its_members_slow() -> None:
    """What runs on several members counts as measured, so that those who have run more of it are not slower."""
    graph = draw("a -> B, a -> C")
    light, heavy = _template(graph, "B"), _template(graph, "C")
    durations: list[Durations] = [
        {light: (100, 100.0), heavy: (10, 1000.0)},
        {light: (100, 100.0), heavy: (100, 10000.0)},
    ]
    one, other = measure(graph, [1, 1], durations).capacities
    assert one / other == pytest.approx(1.0, rel=0.1)
