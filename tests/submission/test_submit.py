"""Graphs that are submitted: how they are placed on nodes, and that one session is started."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dropflow.api.client import Client
from dropflow.api.node_records import Load, NodeInfo
from dropflow.api.patience import PatientClient
from dropflow.api.requests import SubmitQuery
from dropflow.api.routes import StreamSlots
from dropflow.api.session_records import SessionInfo
from dropflow.errors import BadGraphError, ConflictError, DropflowError, HttpError, LinkError, StorageError, UsageError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.submission.submit import PlacementOptions, fit, submit_once
from managers.routes.handlers import api_v1_routes
from tests.fake_manager import FakeManager
from tests.http_server import serve
from tests.regular_graphs import fan
from tests.virtual_clock import VirtualClock
from translator.options import PartitionOptions
from translator.plan.machines import live_machines
from translator.plan.registry import partition

NODES = ("a", "b", "c")


def fitted(graph: PhysicalGraph, **options: Any) -> PhysicalGraph:
    """The graph as it is deployed."""
    nodes = live_machines([NodeInfo(name=name, load=Load(cores=1, workers=1)) for name in NODES])
    return fit(graph, nodes, PlacementOptions(**options))


def test_a_graph_without_parts_gets_one_per_node() -> None:
    """Each node gets one part."""
    assert fitted(fan(30)).places == NODES


def test_a_graph_smaller_than_the_cluster_uses_fewer_nodes() -> None:
    """There are no empty parts."""
    small = fitted(fan(0))

    assert small.parts == len(small.places) < len(NODES)


@pytest.mark.slow
def test_a_placed_graph_stays_on_its_nodes() -> None:
    """The nodes that a graph names do not change, even if the manager does not know them."""
    placed = replace(partition(fan(30), PartitionOptions(parts=2)), places=("x", "y"))

    assert fitted(placed) is placed


@pytest.mark.slow
def test_a_placed_graph_can_be_placed_again() -> None:
    """With --anew the parts stay and get other nodes; with --parts the parts are new, too."""
    placed = replace(partition(fan(30), PartitionOptions(parts=2)), places=("x", "y"))
    anew = fitted(placed, anew=True)

    assert anew.places == NODES[:2]
    assert np.array_equal(anew.part, placed.part)
    assert fitted(placed, parts=3).places == NODES


def test_a_partitioned_graph_keeps_its_parts() -> None:
    """The parts of an earlier command are placed unchanged."""
    cut = partition(fan(30), PartitionOptions(parts=2, algorithm="blocks"))

    assert np.array_equal(fitted(cut).part, cut.part)


@pytest.mark.slow
def test_more_parts_than_nodes_are_placed_by_the_manager() -> None:
    """The graph is sent without places."""
    many = fitted(fan(30), parts=7)

    assert (many.parts, many.places) == (7, ())


def test_random_parts_and_an_algorithm_exclude_each_other() -> None:
    """It is bad input to give both."""
    with pytest.raises(UsageError, match="--random makes no plan"):
        fitted(fan(30), random=1, planning=PartitionOptions(algorithm="blocks"))


def test_a_busy_node_gets_less() -> None:
    """The plan counts with the load of the nodes: one whose processors are busy gets fewer applications."""
    busy = {"a": 0.0, "b": 100.0, "c": 0.0}
    nodes = live_machines(
        [NodeInfo(name=name, load=Load(cores=1, workers=1, processor=use)) for name, use in busy.items()]
    )
    graph = fan(50)
    made = fit(graph, nodes, PlacementOptions())
    apps = np.bincount(made.part[graph.kinds[graph.template] == Kind.APP], minlength=3)

    assert made.places == NODES
    assert apps[1] < 0.7 * min(apps[0], apps[2])


@pytest.mark.slow
def test_fewer_parts_than_nodes_go_to_those_with_most_to_give() -> None:
    """Two parts on three nodes leave the busy one out."""
    nodes = live_machines(
        [NodeInfo(name=name, load=Load(cores=1, workers=1, processor=100.0 * (name == "a"))) for name in NODES]
    )

    assert fit(fan(30), nodes, PlacementOptions(parts=2)).places == ("b", "c")


# Submissions whose answer is late or lost: one session is started, and it is the right one.


LATE = LinkError("no answer in time")


class LateManager(FakeManager):
    """A manager that does with a submission what `before` and `after` do; each may raise an error."""

    def __init__(self) -> None:
        super().__init__(role="node", nodes=("n1",))
        self.queries: list[SubmitQuery] = []
        self.before: Callable[[SubmitQuery], None] = _nothing
        self.after: Callable[[SubmitQuery], None] = _nothing

    def submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Add a session."""
        self.queries.append(options)
        self.before(options)
        info = super().submit(graph, options)
        self.after(options)
        return info


def _nothing(_: SubmitQuery) -> None:
    pass


def _first(error: DropflowError, submission_manager: LateManager) -> Callable[[SubmitQuery], None]:
    """Return what raises an error for the first submission."""

    def act(_: SubmitQuery) -> None:
        if len(submission_manager.queries) == 1:
            raise error

    return act


@pytest.fixture
def submission_manager() -> LateManager:
    """The manager of a test."""
    return LateManager()


@pytest.fixture
def submission_client(submission_manager: LateManager) -> Iterator[PatientClient]:
    """A client that asks for a minute; each new connection takes half of one."""
    clock = VirtualClock()

    def connect() -> Client:
        clock.advance(30)
        return Client(server.url)

    with serve(api_v1_routes(submission_manager, StreamSlots(2))) as server:
        made = PatientClient(connect, seconds=60, clock=clock, pause=0)
        yield made
        made.close()


@pytest.mark.parametrize("name", ["mine", ""])
def test_a_lost_answer(submission_client: PatientClient, submission_manager: LateManager, name: str) -> None:
    """The session runs: it is found, and the graph is not sent a second time."""
    submission_manager.after = _first(LATE, submission_manager)

    info = submit_once(submission_client, fan(4), SubmitQuery(session=name))

    assert [session.session for session in submission_manager.sessions()] == [info.session]
    assert info.session == name or info.session.startswith("fan-")
    assert len(submission_manager.queries) == 1


def test_a_lost_request(submission_client: PatientClient, submission_manager: LateManager) -> None:
    """The manager has not got it, or could not deploy it: it is sent again."""
    submission_manager.before = _first(LATE, submission_manager)

    assert submit_once(submission_client, fan(4), SubmitQuery(session="mine")).session == "mine"
    assert len(submission_manager.queries) == 2


def test_a_deployment_that_takes_long(submission_client: PatientClient, submission_manager: LateManager) -> None:
    """While it goes on, the manager refuses another one of that name: the client waits for its own one."""

    def deploy(query: SubmitQuery) -> None:
        if len(submission_manager.queries) == 1:
            raise LATE
        submission_manager.add(fan(4), "mine", request_id=submission_manager.queries[0].request_id)
        raise ConflictError(f"session {query.session!r} is being deployed already")

    submission_manager.before = deploy

    assert submit_once(submission_client, fan(4), SubmitQuery(session="mine")).session == "mine"
    assert len(submission_manager.queries) == 2


@pytest.mark.parametrize("is_late", [True, False])
def test_the_session_of_another_client(
    submission_client: PatientClient,
    submission_manager: LateManager,
    is_late: bool,  # noqa: FBT001
) -> None:
    """It has the name, and is not taken for the own one."""
    submission_manager.add(fan(4), "mine", request_id="of another client")
    if is_late:
        submission_manager.before = _first(LATE, submission_manager)

    with pytest.raises(ConflictError, match="there is a session 'mine' already"):
        submit_once(submission_client, fan(4), SubmitQuery(session="mine"))


def test_a_name_that_nobody_has_asked_for(submission_client: PatientClient, submission_manager: LateManager) -> None:
    """If another session has the name that was made here, the next one is tried."""
    submission_manager.before = lambda query: (
        submission_manager.add(fan(4), query.session) if len(submission_manager.queries) == 1 else None
    )

    info = submit_once(submission_client, fan(4), SubmitQuery())

    first, second = submission_manager.queries
    assert info.session == second.session == f"{first.session}-2"
    assert first.request_id != second.request_id


@pytest.mark.parametrize("error", [BadGraphError("no drops"), HttpError(413, "the body is too large")])
def test_refusals_are_final(
    submission_client: PatientClient, submission_manager: LateManager, error: DropflowError
) -> None:
    """Sending the graph again would not help."""
    submission_manager.before = _first(error, submission_manager)

    with pytest.raises(type(error), match=error.text):
        submit_once(submission_client, fan(4), SubmitQuery())
    assert len(submission_manager.queries) == 1


@pytest.mark.parametrize("error", [LATE, HttpError(504, "the server behind this proxy is late")])
def test_a_manager_that_stays_away(
    submission_client: PatientClient, submission_manager: LateManager, error: DropflowError
) -> None:
    """After the patience of the client, the error has the cause."""

    def fail(_: SubmitQuery) -> None:
        raise error

    submission_manager.before = fail

    with pytest.raises(LinkError, match=f"no answer for 60 s: {error.text}"):
        submit_once(submission_client, fan(4), SubmitQuery())


def test_a_node_without_space_is_told_at_once(
    submission_client: PatientClient, submission_manager: LateManager
) -> None:
    """The error is that of the node, not that there was no answer."""
    asked = []

    def fail(query: SubmitQuery) -> None:
        asked.append(query)
        raise StorageError("node n4 could not prepare session 's': the disk is full")

    submission_manager.before = fail

    with pytest.raises(StorageError, match="node n4 could not prepare session 's': the disk is full"):
        submit_once(submission_client, fan(4), SubmitQuery())
    assert len(asked) == 1
