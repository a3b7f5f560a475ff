"""How often a session publishes its statistics."""

import pytest

from dropflow.engine.core import Core
from dropflow.engine.session import StatisticsPublisher
from dropflow.engine.statistics import Attempts, Statistics
from dropflow.testing.drawing import fan
from dropflow.testing.fake_manager import VirtualClock


@pytest.mark.parametrize(("nodes", "published"), [(2, 5), (500, 4), (100_000, 2)])
def test_statistics_of_many_nodes_are_published_less_often(nodes: int, published: int) -> None:
    """Five times a second for small graphs, once a second for those with thousands of logical nodes; always last."""
    clock, found, core = VirtualClock(), list[Statistics](), Core(fan(2))
    publisher = StatisticsPublisher(clock, found.append, nodes)
    for _ in range(65):
        publisher.update(core, 0.0, Attempts)
        clock.advance(1 / 64)
    assert len(found) == published

    publisher.note_change()
    publisher.update(core, 0.0, Attempts, is_last=True)

    assert publisher.deadline == float("inf")
    assert found[-1].seconds == pytest.approx(clock.monotonic())
