"""Machines from what managers report."""

import math

import pytest

from dropflow.api.records import Load, NodeInfo
from translator.plan.live_machines import live_machines


def node(name: str, host: str = "", **load: float) -> NodeInfo:
    """Return a node manager that is alive, with two cores unless its load has others."""
    return NodeInfo(name=name, host=host or name, load=Load(**{"cores": 2, "workers": 2, **load}))  # type: ignore[arg-type]


@pytest.mark.parametrize(("use", "speed"), [(0, 1), (3, 1), (50, 1 / 1.5), (100, 0.5), (250, 0.5)])
def test_busy_processors_are_shared(use: float, speed: float) -> None:
    """A program beside those of the node takes its share; noise of a few per cent does not count."""
    (found,) = live_machines([node("a", processor=use)]).nodes

    assert (found.cores, found.speed) == (2, pytest.approx(speed))


def test_nodes_on_one_host_share_it() -> None:
    """Two nodes of two workers each on two processors: each is half as fast, and has half of the free memory."""
    one, two, alone = live_machines(
        [
            node("a", "h", memory=1000, memory_free=600),
            node("b", "h", memory=1000, memory_free=500, processor=100),
            node("c", memory=1000, memory_free=700),
        ]
    ).nodes

    assert (one.speed, one.memory) == (two.speed, two.memory) == (pytest.approx(0.5 / 1.5), 250.0)
    assert (alone.speed, alone.memory) == (1.0, 700.0)


def test_a_node_of_an_older_version_has_one_core() -> None:
    """Without figures, a node counts as one idle core with all the memory that is asked for."""
    (found,) = live_machines([NodeInfo(name="a")]).nodes

    assert (found.cores, found.speed, found.memory) == (1, 1.0, math.inf)


def test_nodes_that_are_not_alive_are_left_out_with_a_reason() -> None:
    """Suspect, lost and draining nodes are told by name; the others are sorted by name."""
    found = live_machines(
        [
            node("c"),
            NodeInfo(name="b", state="suspect", text="silent for 6 s"),
            node("a"),
            NodeInfo(name="d", state="draining"),
        ]
    )

    assert found.names == ("a", "c")
    assert found.left_out == ("node b is suspect: silent for 6 s", "node d is draining")


def test_islands_are_those_of_the_master() -> None:
    """A node keeps its island."""
    found = live_machines([NodeInfo(name="a", island="x"), NodeInfo(name="b", island="y")])

    assert found.machines(2).islands == ("x", "y")
