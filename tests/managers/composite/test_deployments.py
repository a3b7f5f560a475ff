"""A deployment is made on all nodes or on none."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.node_records import Load, NodeInfo
from dropflow.api.requests import SubmitQuery
from dropflow.errors import (
    BadGraphError,
    ConflictError,
    GoneError,
    HttpError,
    LinkError,
    NotFoundError,
    StorageError,
    WorldError,
)
from dropflow.failure import Problem, Severity
from dropflow.graph.codec import digest, parse
from dropflow.graph.physical import PhysicalGraph
from managers.composite import connections
from managers.composite.deployments import merge_errors
from managers.composite.routines import ComputePlan, PlanDeployment
from managers.deployment import Deployment
from managers.machine_calls import Unanswered
from managers.planning import plan_deployment
from tests.fake_manager import FakeManager
from tests.managers.composite.world import World, lose, until
from tests.regular_graphs import fan
from tests.strategies import graphs
from tests.virtual_clock import VirtualClock

_SUBMIT = SubmitQuery(session="s")
_NODES = tuple(NodeInfo(name=f"n{number}", links=f"tcp://h:{number}", incarnation=number) for number in range(1, 4))


def _parts(parts: int) -> PhysicalGraph:
    graph = fan(40)
    return replace(graph, part=(graph.instance % parts).astype("int32"))


@given(graphs(), st.data())
def test_a_deployment_has_the_whole_graph(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Its graph is the one that was planned; its members are the nodes with drops, then those on standby."""
    part = data.draw(st.lists(st.integers(0, 4), min_size=graph.drops, max_size=graph.drops))
    parted = replace(graph, part=(graph.part + part).astype("int32"))

    deployment = plan_deployment(parted, _SUBMIT, _NODES, clock=VirtualClock())

    whole_graph = parse(deployment.dfg)
    assert deployment.drops == graph.drops
    assert digest(whole_graph) == digest(replace(parted, places=whole_graph.places))
    used = tuple(sorted({whole_graph.places[part] for part in parted.part.tolist()}))
    standby = tuple(node.name for node in _NODES if node.name not in used)
    assert tuple(place.node for place in deployment.places) == deployment.nodes == used + standby
    assert all(place.address == f"tcp://h:{place.incarnation}" for place in deployment.places)


def test_a_later_deployment_is_newer() -> None:
    """The epoch grows with time, which distinguishes deployments of one name."""
    clock = VirtualClock()
    first = plan_deployment(fan(4), _SUBMIT, _NODES, clock=clock)
    clock.advance(0.001)

    assert plan_deployment(fan(4), _SUBMIT, _NODES, clock=clock).epoch > first.epoch


def test_a_later_deployment_is_newer_with_any_clock() -> None:
    """A new epoch is greater than every known one, even if the clock went back or another is fast."""
    ahead = plan_deployment(fan(4), _SUBMIT, _NODES, clock=VirtualClock(1_900_000_000.0))

    assert plan_deployment(fan(4), _SUBMIT, _NODES, clock=VirtualClock(), after=ahead.epoch).epoch > ahead.epoch


def test_a_plan_that_cannot_be_computed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the computation raises is the answer, so that no client waits for it without end."""
    plan = ComputePlan(7, PlanDeployment(fan(4), _SUBMIT, _NODES, after=0))

    def raise_error(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(connections, "plan_deployment", raise_error)
    answer = connections.answer_plan(plan, VirtualClock())

    assert isinstance(answer, Unanswered)
    assert answer.id == 7
    assert isinstance(answer.error, MemoryError)


@pytest.mark.slow
def test_a_node_that_fails_is_not_waited_for_by_the_others(world: World) -> None:
    """When one node cannot prepare, all are undone soon, without waiting for those that still try."""
    node = world.hanging("n1")
    world.node("n2").refuse("prepare", StorageError("the disk is full"))
    island = world.composite("n1", "n2", deploy_seconds=600.0)
    node.hang("prepare")

    with pytest.raises(StorageError, match="could not prepare session 's': the disk is full"):
        island.submit(_parts(2), _SUBMIT)
    assert "undo" in node.calls


def test_nothing_starts_when_one_node_cannot_prepare(world: World) -> None:
    """All nodes are undone; the error has the class of the cause and names the node, the reason and the remedy."""
    one, two, three = (world.node(name) for name in ("n1", "n2", "n3"))
    island = world.composite("n1", "n2", "n3")
    two.refuse("prepare", StorageError("the disk is full", hint="make room"))

    with pytest.raises(StorageError, match="n2 could not prepare session 's': the disk is full") as refused:
        island.submit(_parts(3), _SUBMIT)

    assert refused.value.hint == "make room; to leave the node out: dropflow drain n2"
    assert refused.value.where == "n2"
    assert all(len(node.undone) == 1 for node in (one, two, three))
    assert not any(node.sessions() or node.prepared for node in (one, two, three))
    with pytest.raises(NotFoundError, match="session 's' was not started: n2: node n2 could not prepare"):
        island.session("s")


def test_a_node_whose_disk_is_full_gets_no_part(world: World) -> None:
    """It answers, and a new session runs on the other node alone."""
    world.node("n1")
    full = NodeInfo(name="n2", url="http://n2:8000", load=Load(disk=1 << 40, disk_free=1 << 20))
    world.node("n2").set_node(full)

    assert world.composite("n1", "n2").submit(_parts(2), _SUBMIT).nodes == ("n1",)


@pytest.mark.slow
def test_many_nodes_prepare_a_session_at_once(world: World) -> None:
    """None of them waits until others have pulled their images."""
    names = [f"n{number}" for number in range(40)]
    all_begun = threading.Barrier(len(names))
    for name in names:
        node = world.node(name)

        def prepare(deployment: Deployment, *, seconds: float, node: FakeManager = node) -> None:
            all_begun.wait(60)
            FakeManager.prepare(node, deployment, seconds=seconds)

        node.prepare = prepare  # type: ignore[method-assign]

    graph = fan(2 * len(names))
    island = world.composite(*names)
    assert len(island.submit(replace(graph, part=graph.instance.astype("int32")), _SUBMIT).nodes) == len(names)


def test_started_nodes_are_undone_when_one_cannot_start(world: World) -> None:
    """A failure in the second step also undoes the nodes that have started."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    two.refuse("start", WorldError("no worker could be started"))

    with pytest.raises(WorldError, match="n2 could not start session 's'"):
        island.submit(_parts(2), _SUBMIT)

    assert not one.sessions()
    assert one.undone[0][2].startswith("n2: node n2 could not start")


@pytest.mark.slow
def test_a_node_that_hangs_is_undone_when_it_answers(world: World) -> None:
    """The deadline is kept, the others are undone, and the late node is undone as soon as it answers."""
    node = world.node("n1")
    two = world.hanging("n2")
    island = world.composite("n1", "n2", deploy_seconds=0.2)
    two.hang("prepare")

    with pytest.raises(LinkError, match=r"n2 could not prepare session 's': no answer within 0\.2 s"):
        island.submit(_parts(2), _SUBMIT)

    assert not node.sessions()
    until(lambda: bool(two.manager.undone))


def test_a_session_that_was_started_is_returned_although_its_nodes_do_not_answer(world: World) -> None:
    """The caller gets the name and epoch of what runs, and not an error, after which it would submit it again."""
    node = world.node("n1")
    island = world.composite("n1")
    node.refuse("session", LinkError("the connection was closed"))

    session = island.submit(_parts(1), SubmitQuery())

    assert (session.status, session.unknown, session.whole) == ("UNKNOWN", ("n1",), 41)
    assert "could not be looked up since: session" in session.text
    assert [(info.session, info.epoch) for info in node.sessions()] == [(session.session, session.epoch)]


def test_a_node_that_dies_between_the_steps_is_named(world: World) -> None:
    """A node is lost after it prepared: the others are undone, and the hint names the nodes that may keep a part."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    two.refuse("start", LinkError("nothing listens there"))
    two.refuse("undo", LinkError("nothing listens there"))
    one.refuse("undo", StorageError("cannot be removed"))

    with pytest.raises(LinkError, match="n2 could not start session 's': nothing listens there") as refused:
        island.submit(_parts(2), _SUBMIT)

    assert "could not be undone on n1 (cannot be removed)" in refused.value.hint


def test_several_failures_are_all_named() -> None:
    """The error has the class of the failure that a retry does not solve, and names all nodes."""
    problem = Problem(code="X1", severity=Severity.ERROR, where="/", text="bad")
    errors = {
        "n1": LinkError("it does not answer"),
        "n2": BadGraphError("unknown component", problems=(problem,), where="graph", hint="install it"),
        "n3": StorageError("full"),
    }

    error = merge_errors(errors, "could not prepare")

    assert isinstance(error, BadGraphError)
    assert error.problems == (problem,)
    assert (error.where, error.hint) == ("n2: graph", "install it")
    assert "n1: it does not answer; n3: full" in error.text


def test_a_problem_of_all_nodes_is_named_once() -> None:
    """Nodes that refuse a graph for the same reason are listed by name; their findings are merged, each once."""
    shared = Problem(code="X1", severity=Severity.ERROR, where="/", text="bad")
    own = Problem(code="X2", severity=Severity.ERROR, where="/", text="missing on n3")
    errors = {
        name: BadGraphError("X1 bad", problems=(shared, own) if name == "n3" else (shared,))
        for name in ("n1", "n2", "n3")
    }
    error = merge_errors(errors, "could not prepare")

    assert isinstance(error, BadGraphError)
    assert error.problems == (shared, own)
    assert error.text == "n1 could not prepare: X1 bad; the same at n2, n3"


def test_the_http_status_of_a_child_is_not_passed_on() -> None:
    """A 401 of a node is not returned to the caller, whose token is valid."""
    assert isinstance(merge_errors({"n1": HttpError(401, "a token is needed")}, "could not prepare"), WorldError)


def test_each_node_gets_the_whole_graph_through_its_island(world: World) -> None:
    """The bytes of the graph are the same on all nodes, and each node is told that it alone is to prepare."""
    nodes = [world.node(name) for name in ("n1", "n2", "n3")]
    world.composite("n1", "n2", name="east")
    world.composite("n3", name="west")
    master = world.composite("east", "west", role="master", name="master-1")
    master.submit(_parts(3), _SUBMIT)

    deployments = [deployment for node in nodes for deployment in node.prepared.values()]
    assert [deployment.nodes for deployment in deployments] == [("n1",), ("n2",), ("n3",)]
    assert all(deployment.dfg is deployments[0].dfg for deployment in deployments)
    assert parse(deployments[0].dfg).places == ("n1", "n2", "n3")


def test_a_master_passes_the_graph_on_and_its_islands_undo(world: World) -> None:
    """A failure two levels below undoes the nodes of all islands, and names the node and its island."""
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


def test_a_restarted_island_starts_a_prepared_deployment(world: World) -> None:
    """An island that is restarted between the two steps asks all its nodes."""
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


def test_a_deployment_that_was_not_prepared_cannot_be_started(world: World) -> None:
    """Starting it is an error; undoing it is not."""
    world.node("n1")
    island = world.composite("n1")

    with pytest.raises(NotFoundError, match="was not prepared"):
        island.start("s", 1)
    island.undo("s", 1, "to be sure")


def test_a_node_that_lost_its_prepared_session_fails_the_deployment(world: World) -> None:
    """If a node that was prepared does not find the session, the island fails the deployment."""
    node = world.node("n1")
    world.node("n2")
    island = world.composite("n1", "n2")
    deployment = _deployment("n1", "n2")
    island.prepare(deployment, seconds=30)
    node.prepared.clear()

    with pytest.raises(NotFoundError, match="n1 could not start session 's'"):
        island.start("s", deployment.epoch)


def test_deployments_for_unknown_nodes_are_refused(world: World) -> None:
    """A node that is to prepare and is not below is an error that names it, before any node prepares."""
    node = world.node("n1")
    island = world.composite("n1")

    with pytest.raises(LinkError, match="n9 cannot be reached: it is unknown"):
        island.prepare(_deployment("n1", "n9"), seconds=30)
    assert not node.prepared


def test_of_two_simultaneous_deployments_of_one_name_one_is_undone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conflict that only the nodes notice undoes the second deployment and leaves the first alone."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    prepare = one.prepare

    def prepare_second(deployment: Deployment, *, seconds: float) -> None:
        one.add(fan(4), "s")  # by another island, just now
        prepare(deployment, seconds=seconds)

    monkeypatch.setattr(one, "prepare", prepare_second)
    with pytest.raises(ConflictError, match="n1 could not prepare"):
        island.submit(_parts(2), _SUBMIT)

    assert [info.session for info in one.sessions()] == ["s"]
    assert not two.sessions()


def test_a_name_that_is_being_deployed_is_refused_at_once(world: World) -> None:
    """The first deployment continues: without that, each of the two may be refused by another node."""
    one, two = world.hanging("n1"), world.node("n2")
    island = world.composite("n1", "n2", deploy_seconds=60.0)
    one.hang("prepare")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(island.submit, _parts(2), _SUBMIT)
        until(lambda: "prepare" in one.calls)
        with pytest.raises(ConflictError, match="a session 's' is being submitted already"):
            island.submit(_parts(2), _SUBMIT)
        one.release()
        info = first.result(60)

    assert (info.session, set(info.nodes)) == ("s", {"n1", "n2"})
    assert not two.undone


def test_sessions_that_are_submitted_in_the_same_millisecond_have_different_names(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a session without a given name is made from the time, and gets a number if it is in use."""
    monkeypatch.setattr("managers.planning.dated_session_name", lambda *_: "fan-now")
    node = world.hanging("n1")
    island = world.composite("n1", deploy_seconds=60.0)
    node.hang("prepare")
    with ThreadPoolExecutor(3) as pool:
        submits = [pool.submit(island.submit, _parts(1), SubmitQuery()) for _ in range(3)]
        until(lambda: node.calls.count("prepare") == 3)
        node.release()
        names = [submit.result(60).session for submit in submits]

    assert sorted(names) == ["fan-now", "fan-now-2", "fan-now-3"]


def test_a_session_that_is_being_deployed_is_cancelled(world: World) -> None:
    """While a node prepares, a cancel is answered; then nothing is started, and the deployment is undone everywhere."""
    slow, other = world.hanging("n1"), world.node("n2")
    island = world.composite("n1", "n2", deploy_seconds=1000.0)
    slow.hang("prepare")
    errors: list[Exception] = []

    def submit() -> None:
        try:
            island.submit(_parts(2), _SUBMIT)
        except GoneError as error:
            errors.append(error)

    submitting = threading.Thread(target=submit)
    submitting.start()
    until(lambda: "prepare" in slow.calls and bool(other.prepared))
    info = island.cancel("s", "enough")
    slow.release()
    submitting.join(60)

    assert (info.status, info.text) == ("CANCELLED", "cancelled: enough")
    assert [error.args[0] for error in errors] == ["session 's' was cancelled: enough while it was deployed"]
    assert other.prepared == slow.manager.prepared == {}
    assert island.sessions() == ()


# Deleting sessions, also on nodes that do not answer.


@pytest.mark.slow
def test_a_session_is_deleted_on_nodes_that_answer_again(world: World) -> None:
    """A session is deleted although a node is lost; on that node when it is back. It is hidden until then."""
    island, _, two = world.session_of_two()
    lose(world, island, "n2")

    island.delete("s")

    with pytest.raises(NotFoundError, match="'s' was deleted"):
        island.session("s")
    assert [info.session for info in two.sessions()] == ["s"]
    two.allow("info")
    until(lambda: not two.sessions())
    assert not island.sessions()


def test_deleting_names_the_node_that_did_not_answer(world: World) -> None:
    """A node that did not answer is named, also by a master; the session is deleted there when it answers."""
    island, one, two = world.session_of_two()
    one.refuse("delete", LinkError("session 's' is deleted, but n7 did not answer"))
    two.refuse("delete", LinkError("it does not answer in time"))
    two.refuse("info", LinkError("it does not answer in time"))

    with pytest.raises(LinkError, match="'s' is deleted, but n7 did not answer; n2 did not answer"):
        island.delete("s")

    one.allow("delete")
    two.allow("delete")
    two.allow("info")
    until(lambda: not one.sessions() and not two.sessions())
