"""A deployment is everywhere or nowhere."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import (
    BadGraphError,
    ConflictError,
    HttpError,
    LinkError,
    NotFoundError,
    StorageError,
    WorldError,
)
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slice_codec import parse_slice
from dropflow.graph.slices import join
from dropflow.problems import Problem, Severity
from dropflow.rest.schema import NodeInfo, SubmitQuery
from dropflow.testing.clock import VirtualClock
from dropflow.testing.shapes import fan
from dropflow.testing.strategies import graphs
from managers.composite.deployment_plan import plan_deployment
from managers.composite.deployments import merge_errors
from managers.deployment import Deployment
from tests.managers.composite.world import World, until

_SUBMIT = SubmitQuery(session="s")
_NODES = tuple(NodeInfo(name=f"n{number}", links=f"tcp://h:{number}", incarnation=number) for number in range(1, 4))


def _parts(parts: int) -> PhysicalGraph:
    graph = fan(40)
    return replace(graph, part=(graph.instance % parts).astype("int32"))


@given(graphs(), st.data())
def test_the_slices_of_a_deployment_are_the_graph(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Every drop is on one node, every place is told with its address and life, and nothing is lost on the way."""
    part = data.draw(st.lists(st.integers(0, 4), min_size=graph.drops, max_size=graph.drops))
    parted = replace(graph, part=graph.part + part)

    found = plan_deployment(parted, _SUBMIT, _NODES, clock=VirtualClock())

    whole = join([parse_slice(piece) for piece in found.slices.values()])
    assert whole.drops == found.drops == graph.drops
    assert whole.successors.neighbour.tolist() == graph.successors.neighbour.tolist()
    assert {place.node for place in found.places} == set(found.slices)
    assert all(place.address == f"tcp://h:{place.incarnation}" for place in found.places)


def test_a_later_deployment_is_newer() -> None:
    """The epoch grows with time, so that what is left of an earlier deployment is told apart."""
    clock = VirtualClock()
    first = plan_deployment(fan(4), _SUBMIT, _NODES, clock=clock)
    clock.advance(0.001)

    assert plan_deployment(fan(4), _SUBMIT, _NODES, clock=clock).epoch > first.epoch


def test_a_later_deployment_is_newer_whatever_the_clock_says() -> None:
    """Clocks go back, and those of other hosts are fast: an epoch that is known is exceeded all the same."""
    ahead = plan_deployment(fan(4), _SUBMIT, _NODES, clock=VirtualClock(1_900_000_000.0))

    assert plan_deployment(fan(4), _SUBMIT, _NODES, clock=VirtualClock(), after=ahead.epoch).epoch > ahead.epoch


def test_a_node_that_fails_is_not_waited_for_by_the_others(world: World) -> None:
    """When one cannot prepare, all are undone soon after: that another still tries costs no time."""
    one = world.hanging("n1")
    world.node("n2").refuse("prepare", StorageError("the disk is full"))
    island = world.composite("n1", "n2", deploy_seconds=600.0)
    one.hang("prepare")

    with pytest.raises(StorageError, match="could not prepare session 's': the disk is full"):
        island.submit(_parts(2), _SUBMIT)
    assert "undo" in one.calls


def test_nothing_starts_when_one_node_cannot_prepare(world: World) -> None:
    """The others are undone, the node that failed too; the error is of the cause's class and says who, why, what."""
    one, two, three = (world.node(name) for name in ("n1", "n2", "n3"))
    island = world.composite("n1", "n2", "n3")
    two.refuse("prepare", StorageError("the disk is full", hint="make room"))

    with pytest.raises(StorageError, match="n2 could not prepare session 's': the disk is full") as refused:
        island.submit(_parts(3), _SUBMIT)

    assert (refused.value.hint, refused.value.where) == ("make room", "n2")
    assert all(len(node.undone) == 1 for node in (one, two, three))
    assert not any(node.sessions() or node.prepared for node in (one, two, three))
    with pytest.raises(NotFoundError, match="no session 's'"):
        island.session("s")


def test_what_started_is_stopped_when_one_node_cannot_start(world: World) -> None:
    """A failure in the second step undoes nodes that run already."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    two.refuse("start", WorldError("no worker could be started"))

    with pytest.raises(WorldError, match="n2 could not start session 's'"):
        island.submit(_parts(2), _SUBMIT)

    assert not one.sessions()
    assert one.undone[0][2].startswith("n2: n2 could not start")


def test_a_node_that_hangs_is_undone_when_it_wakes(world: World) -> None:
    """The deadline is kept, the others are undone, and the late one is told as soon as it listens."""
    one = world.node("n1")
    two = world.hanging("n2")
    island = world.composite("n1", "n2", deploy_seconds=0.2)
    two.hang("prepare")

    with pytest.raises(LinkError, match=r"n2 could not prepare session 's': no answer within 0\.2 s"):
        island.submit(_parts(2), _SUBMIT)

    assert not one.sessions()
    until(lambda: bool(two.manager.undone))


def test_a_node_that_dies_between_the_steps_is_named(world: World) -> None:
    """It prepared and is gone; what started elsewhere is undone, and the hint says where something may be left."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    two.refuse("start", LinkError("nothing listens there"))
    two.refuse("undo", LinkError("nothing listens there"))
    one.refuse("undo", StorageError("cannot be removed"))

    with pytest.raises(LinkError, match="n2 could not start session 's': nothing listens there") as refused:
        island.submit(_parts(2), _SUBMIT)

    assert "could not be undone on n1 (cannot be removed)" in refused.value.hint


def test_several_failures_are_all_named() -> None:
    """The class is that of a failure that trying again does not help; all nodes are in the text."""
    problem = Problem(code="X1", severity=Severity.ERROR, where="/", text="bad")
    errors = {
        "n1": LinkError("it does not answer"),
        "n2": BadGraphError("unknown component", problems=(problem,), where="graph", hint="install it"),
        "n3": StorageError("full"),
    }

    found = merge_errors(errors, "could not prepare")

    assert isinstance(found, BadGraphError)
    assert found.problems == (problem,)
    assert (found.where, found.hint) == ("n2: graph", "install it")
    assert "n1: it does not answer; n3: full" in found.text


def test_the_http_status_of_a_child_is_not_passed_on() -> None:
    """That a node refuses our key is not that our caller lacks a token."""
    assert isinstance(merge_errors({"n1": HttpError(401, "a token is needed")}, "could not prepare"), WorldError)


def test_a_master_passes_slices_on_and_its_islands_undo(world: World) -> None:
    """A failure two storeys down undoes the nodes of all islands, and names the node and its island."""
    nodes = [world.node(name) for name in ("n1", "n2", "n3")]
    world.composite("n1", "n2", name="east")
    world.composite("n3", name="west")
    master = world.composite("east", "west", role="master", name="master-1")
    nodes[1].refuse("prepare", StorageError("the disk is full"))

    with pytest.raises(StorageError, match=r"east could not prepare.*n2 could not prepare.*the disk is full"):
        master.submit(_parts(3), _SUBMIT)

    assert all(node.undone for node in nodes)
    assert not any(node.prepared for node in nodes)


def _deployment(*nodes: str) -> Deployment:
    places = tuple(NodeInfo(name=name, links="tcp://h:1", incarnation=1) for name in nodes)
    return plan_deployment(_parts(len(nodes)), _SUBMIT, places, clock=VirtualClock())


def test_an_island_that_forgot_what_it_prepared_still_starts_it(world: World) -> None:
    """Between the two steps an island may be started again: it asks all its nodes."""
    one, two = world.node("n1"), world.node("n2")
    world.node("n3")
    deployment = _deployment("n1", "n2")
    first = world.composite("n1", "n2", "n3")
    first.prepare(deployment, seconds=30)
    first.close()

    second = world.composite("n1", "n2", "n3")
    second.start("s", deployment.epoch)

    assert one.sessions()
    assert two.sessions()
    second.undo("s", deployment.epoch, "enough")
    assert not one.sessions()


def test_what_was_never_prepared_cannot_be_started(world: World) -> None:
    """Starting it is an error; undoing it is none."""
    world.node("n1")
    island = world.composite("n1")

    with pytest.raises(NotFoundError, match="was not prepared"):
        island.start("s", 1)
    island.undo("s", 1, "to be sure")


def test_a_node_that_forgot_what_it_prepared_is_noticed(world: World) -> None:
    """An island that knows whom it prepared does not take a node's NotFound for an answer."""
    one = world.node("n1")
    world.node("n2")
    island = world.composite("n1", "n2")
    deployment = _deployment("n1", "n2")
    island.prepare(deployment, seconds=30)
    one.prepared.clear()

    with pytest.raises(NotFoundError, match="n1 could not start session 's'"):
        island.start("s", deployment.epoch)


def test_slices_for_strangers_are_refused(world: World) -> None:
    """A slice for a node that is not below is an error that names it, before any child prepares."""
    one = world.node("n1")
    island = world.composite("n1")

    with pytest.raises(LinkError, match="n9 cannot be reached: it is not known here"):
        island.prepare(_deployment("n1", "n9"), seconds=30)
    assert not one.prepared


def test_the_same_name_twice_at_once_leaves_one_session(world: World) -> None:
    """A conflict that only the nodes notice undoes the second deployment and leaves the first alone."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    one.add(fan(4), "s")
    one.refuse("session", NotFoundError("not yet"))

    with pytest.raises(ConflictError, match="n1 could not prepare"):
        island.submit(_parts(2), _SUBMIT)

    assert [info.session for info in one.sessions()] == ["s"]
    assert not two.sessions()
