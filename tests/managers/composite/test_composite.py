"""Islands and masters over managers in memory: their children, and sessions that are the sum of their parts."""

import pytest

from dropflow.api.records import SubmitQuery
from dropflow.errors import (
    ConflictError,
    InternalError,
    LinkError,
    RestartedError,
    UsageError,
)
from dropflow.testing.drawing import fan
from managers.deployment import Deployment
from managers.keys import ClusterKey
from tests.managers.composite.world import SUBMIT, World, parts, until


def test_an_island_describes_itself_and_its_nodes(world: World) -> None:
    """Role, children and nodes are there as soon as the island is."""
    for name in ("n2", "n1"):
        world.node(name)
    key = ClusterKey(b"p" * 40, b"s" * 40)
    island = world.composite("n1", "n2", key=key)

    assert (island.info().role, island.info().name, island.info().key) == ("island", "island-1", key.fingerprint)
    assert [(child.name, child.role, child.state) for child in island.children()] == [
        ("n1", "node", "alive"),
        ("n2", "node", "alive"),
    ]
    assert [node.name for node in island.nodes()] == ["n1", "n2"]


def test_a_session_is_the_sum_of_its_parts(world: World) -> None:
    """A graph is partitioned by node, runs on all nodes, and is reported as one session."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")

    info = island.submit(parts(2), SUBMIT)

    assert (info.session, info.status, info.drops, info.nodes) == ("s", "RUNNING", 41, ("n1", "n2"))
    assert [detail.session for detail in island.sessions()] == ["s"]
    one.complete("s")
    assert island.session("s").status == "RUNNING"
    two.complete("s")
    assert island.session("s").status == "FINISHED"
    assert sum(node.drops for node in island.session("s").logical) == 41


def test_a_session_without_a_name_gets_one(world: World) -> None:
    """The name is made from that of the graph and the time."""
    world.node("n1")
    island = world.composite("n1")

    assert island.submit(fan(10), SubmitQuery()).session.startswith("fan-2027")


def test_a_name_that_is_taken_is_refused(world: World) -> None:
    """A name is refused if any node below has a session of this name."""
    world.node("n1")
    world.node("n2").add(fan(4), "s")
    island = world.composite("n1", "n2")

    with pytest.raises(ConflictError, match="there is a session 's' already"):
        island.submit(fan(10), SUBMIT)


def test_cancel_reaches_all_nodes(world: World) -> None:
    """The session is cancelled on all nodes, and reported as cancelled."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(parts(2), SUBMIT)

    assert island.cancel("s", "enough").status == "CANCELLED"
    assert {one.session("s").text, two.session("s").text} == {"enough"}


def test_an_error_of_one_node_is_not_hidden_by_the_others(world: World) -> None:
    """The refusal of one node is reported, even if the other nodes answer that they do not have the drop."""
    one = world.node("n1")
    world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(parts(2), SUBMIT)
    one.refuse("cancel", InternalError("broken"))

    with pytest.raises(InternalError, match="broken"):
        island.cancel("s")


def test_children_are_added_and_removed(world: World) -> None:
    """A child may be added before it answers and more than once, and removed; an invalid child is refused."""
    world.node("n1")
    island = world.composite("n1")
    world.node("n2").refuse("info", LinkError("nothing listens there"))

    child = island.add_child("http://N2:8000/")

    assert (child.state, child.text) == ("suspect", "nothing listens there")
    assert island.add_child("http://n2:8000").url == child.url
    world.managers["http://n2:8000"].allow("info")
    until(lambda: [child.state for child in island.children()] == ["alive", "alive"])
    island.remove_child("http://n2:8000")
    assert [child.name for child in island.children()] == ["n1"]
    with pytest.raises(UsageError, match="not a manager URL"):
        island.add_child("n2")


@pytest.mark.slow
def test_rings_of_managers_cannot_be_made(world: World) -> None:
    """A master is no child of an island, nor an island of another or itself."""
    world.node("n1")
    island = world.composite("n1")
    world.composite("island-1", role="master", name="master-1")

    for url in ("http://master-1:8000", "http://island-1:8000"):
        with pytest.raises(UsageError, match="cannot be a child of an island"):
            island.add_child(url)
    assert [child.name for child in island.children()] == ["n1"]


def test_a_manager_with_two_addresses_counts_once(world: World) -> None:
    """A node with two addresses is recognised, and its drops are counted once."""
    node = world.node("n1")
    world.managers["http://alias:8000"] = node
    island = world.composite("n1", "alias")
    until(lambda: [child.name for child in island.children()] == ["n1", "n1"])

    assert island.submit(fan(40), SUBMIT).drops == 41
    assert any("is the same manager as" in child.text for child in island.children())


def test_a_master_of_islands_answers_as_one_island_would(world: World) -> None:
    """With two levels, the graph goes to the nodes of both islands, and is one session."""
    for name in ("n1", "n2", "n3"):
        world.node(name)
    world.composite("n1", "n2", name="east")
    west = world.composite("n3", name="west")
    master = world.composite("east", "west", role="master", name="master-1")

    info = master.submit(parts(3), SUBMIT)

    assert (info.drops, info.nodes) == (41, ("n1", "n2", "n3"))
    assert [(node.name, node.island) for node in master.nodes()] == [("n1", "east"), ("n2", "east"), ("n3", "west")]
    assert master.graph("s").drops == 41
    for name in ("n1", "n2", "n3"):
        world.managers[f"http://{name}:8000"].complete("s")
    until(lambda: master.session("s").status == "FINISHED")
    assert west.session("s").drops < 41


def test_a_graph_is_planned_again_after_a_node_was_restarted(world: World) -> None:
    """A node refuses a deployment for its earlier process; the graph is planned for the new one, and runs."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    prepare, refused = two.prepare, []

    def once(deployment: Deployment, *, seconds: float) -> None:
        if not refused:
            refused.append(deployment.epoch)
            raise RestartedError("node n2 was started again")
        prepare(deployment, seconds=seconds)

    two.prepare = once  # type: ignore[method-assign]

    assert island.submit(parts(2), SUBMIT).nodes == ("n1", "n2")
    assert island.session("s").epoch > refused[0]


def test_closing_an_island_does_not_end_its_sessions(world: World) -> None:
    """When an island stops, its nodes and sessions go on."""
    one = world.node("n1")
    island = world.composite("n1")
    island.submit(fan(4), SUBMIT)

    island.close()
    island.close()

    assert one.session("s").status == "RUNNING"
    assert not one.closed
