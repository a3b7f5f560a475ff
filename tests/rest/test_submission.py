"""Submissions whose answer is late or lost: one session is started, and it is the right one."""

from collections.abc import Callable, Iterator

import pytest

from dropflow.api.client import Client
from dropflow.api.openapi import StreamSlots
from dropflow.api.patience import PatientClient
from dropflow.api.records import SessionInfo, SubmitQuery
from dropflow.api.submission import submit_once
from dropflow.errors import BadGraphError, ConflictError, DropflowError, HttpError, LinkError
from dropflow.graph.physical import PhysicalGraph
from dropflow.testing.drawing import fan
from dropflow.testing.fake_manager import FakeManager, VirtualClock
from dropflow.testing.faults import serve
from managers.routes.handlers import api_v1_routes

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


def _first(error: DropflowError, manager: LateManager) -> Callable[[SubmitQuery], None]:
    """Return what raises an error for the first submission."""

    def act(_: SubmitQuery) -> None:
        if len(manager.queries) == 1:
            raise error

    return act


@pytest.fixture
def manager() -> LateManager:
    """The manager of a test."""
    return LateManager()


@pytest.fixture
def client(manager: LateManager) -> Iterator[PatientClient]:
    """A client that asks for a minute; each new connection takes half of one."""
    clock = VirtualClock()

    def connect() -> Client:
        clock.advance(30)
        return Client(server.url)

    with serve(api_v1_routes(manager, StreamSlots(2))) as server:
        made = PatientClient(connect, seconds=60, clock=clock, pause=0)
        yield made
        made.close()


@pytest.mark.parametrize("name", ["mine", ""])
def test_a_lost_answer(client: PatientClient, manager: LateManager, name: str) -> None:
    """The session runs: it is found, and the graph is not sent a second time."""
    manager.after = _first(LATE, manager)

    info = submit_once(client, fan(4), SubmitQuery(session=name))

    assert [one.session for one in manager.sessions()] == [info.session]
    assert info.session == name or info.session.startswith("fan-")
    assert len(manager.queries) == 1


def test_a_lost_request(client: PatientClient, manager: LateManager) -> None:
    """The manager has not got it, or could not deploy it: it is sent again."""
    manager.before = _first(LATE, manager)

    assert submit_once(client, fan(4), SubmitQuery(session="mine")).session == "mine"
    assert len(manager.queries) == 2


def test_a_deployment_that_takes_long(client: PatientClient, manager: LateManager) -> None:
    """While it goes on, the manager refuses another one of that name: the client waits for its own one."""

    def deploy(query: SubmitQuery) -> None:
        if len(manager.queries) == 1:
            raise LATE
        manager.add(fan(4), "mine", request_id=manager.queries[0].request_id)
        raise ConflictError(f"session {query.session!r} is being deployed already")

    manager.before = deploy

    assert submit_once(client, fan(4), SubmitQuery(session="mine")).session == "mine"
    assert len(manager.queries) == 2


@pytest.mark.parametrize("is_late", [True, False])
def test_the_session_of_another_client(client: PatientClient, manager: LateManager, is_late: bool) -> None:  # noqa: FBT001
    """It has the name, and is not taken for the own one."""
    manager.add(fan(4), "mine", request_id="of another client")
    if is_late:
        manager.before = _first(LATE, manager)

    with pytest.raises(ConflictError, match="there is a session 'mine' already"):
        submit_once(client, fan(4), SubmitQuery(session="mine"))


def test_a_name_that_nobody_has_asked_for(client: PatientClient, manager: LateManager) -> None:
    """If another session has the name that was made here, the next one is tried."""
    manager.before = lambda query: manager.add(fan(4), query.session) if len(manager.queries) == 1 else None

    info = submit_once(client, fan(4), SubmitQuery())

    first, second = manager.queries
    assert info.session == second.session == f"{first.session}-2"
    assert first.request_id != second.request_id


@pytest.mark.parametrize("error", [BadGraphError("no drops"), HttpError(413, "the body is too large")])
def test_refusals_are_final(client: PatientClient, manager: LateManager, error: DropflowError) -> None:
    """Sending the graph again would not help."""
    manager.before = _first(error, manager)

    with pytest.raises(type(error), match=error.text):
        submit_once(client, fan(4), SubmitQuery())
    assert len(manager.queries) == 1


@pytest.mark.parametrize("error", [LATE, HttpError(504, "the server behind this proxy is late")])
def test_a_manager_that_stays_away(client: PatientClient, manager: LateManager, error: DropflowError) -> None:
    """After the patience of the client, the error has the cause."""

    def fail(_: SubmitQuery) -> None:
        raise error

    manager.before = fail

    with pytest.raises(LinkError, match=f"no answer for 60 s: {error.text}"):
        submit_once(client, fan(4), SubmitQuery())
