"""Computations on managers that answer late, or not at all."""

import io
import os
import re
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import dask
import msgspec
import pytest
from dask._task_spec import convert_legacy_graph

from dropflow.api.client import Client
from dropflow.api.drop_records import ResultInfo
from dropflow.api.patience import PatientClient
from dropflow.api.requests import ResultList, ResultsQuery
from dropflow.api.routes import StreamSlots
from dropflow.api.session_records import SessionDetail
from dropflow.builder.results import SubmittedGraph
from dropflow.dask import Scheduler, chunk_sources, remote
from dropflow.dask.persist import ChunkPlace
from dropflow.dask.remote import shown
from dropflow.dask.translate import TranslatedGraph, translate
from dropflow.errors import AppError, BadParameterError, DropflowError, LinkError, NotFoundError
from dropflow.graph.notebook import HtmlView
from managers.routes.handlers import api_v1_routes
from tests.fake_manager import FakeManager
from tests.http_server import serve
from tests.regular_graphs import fan
from tests.virtual_clock import VirtualClock

pytest.importorskip("dask", reason="needs the extra 'dask'")
AWAY = LinkError("nothing listens there")


class LateManager(FakeManager):
    """A manager with a session of one result, whose node answers only when `answers` is set."""

    def __init__(self) -> None:
        super().__init__(role="node", nodes=("n1",))
        self.add(fan(4), "dask-1")
        self.answers = True
        self.silent: tuple[str, ...] = ("n2",)

    def results(self, session: str, query: ResultsQuery = ResultsQuery()) -> ResultList:  # noqa: B008
        """List the result, if its node answers."""
        if not self.answers:
            return ResultList(results=(), missing=self.silent)
        return ResultList(results=(ResultInfo(drop=self.row, oid="x", name="x", node="n2", path="x", size=1),))

    row = 0


@pytest.fixture
def manager() -> LateManager:
    """The manager of a test."""
    return LateManager()


class Connections:
    """Connections to a manager; each one after the first takes half a minute and calls `next`."""

    def __init__(self, url: str) -> None:
        self.clock = VirtualClock()
        self.next: Callable[[], object] = lambda: None
        self.count = 0
        self._url = url

    def connect(self) -> Client:
        """Return a connection."""
        if self.count:
            self.clock.advance(30)
            self.next()
        self.count += 1
        return Client(self._url)


@pytest.fixture
def connections(manager: LateManager) -> Iterator[Connections]:
    """Those to the manager."""
    with serve(api_v1_routes(manager, StreamSlots(2))) as server:
        yield Connections(server.url)


@pytest.fixture
def client(connections: Connections) -> Iterator[PatientClient]:
    """A client that asks for a minute."""
    made = PatientClient(connections.connect, seconds=60, clock=connections.clock, pause=0)
    yield made
    made.close()


@pytest.fixture
def tasks() -> TranslatedGraph:
    """A graph with one result."""
    graph: dict[Hashable, Any] = {"x": (abs, -1)}
    return translate(convert_legacy_graph(graph), ["x"], {}, runs_constants=True)


def _wait(client: PatientClient) -> str:
    session = SubmittedGraph(client.client, "dask-1", fan(4))
    return remote.await_end(client, session, progress=False).status


def test_a_session_goes_on_while_its_manager_is_away(
    client: PatientClient, connections: Connections, manager: LateManager
) -> None:
    """One answer that does not come is no end: the manager is asked again over a new connection."""
    manager.refuse("session", AWAY)

    def back() -> None:
        manager.complete("dask-1")
        manager.allow("session")

    connections.next = back

    assert _wait(client) == "FINISHED"
    assert connections.count == 2


def test_each_absence_may_take_the_whole_time(
    client: PatientClient, connections: Connections, manager: LateManager
) -> None:
    """An answer ends an absence; the next one is measured from its own beginning."""
    connections.next = lambda: manager.allow("session")
    for _ in range(5):
        manager.refuse("session", AWAY)
        client.ask(lambda manager: manager.session("dask-1"))

    assert connections.clock.monotonic() == 150


def test_a_manager_that_stays_away(client: PatientClient, manager: LateManager) -> None:
    """After the patience of the client, the error has it and the cause."""
    manager.refuse("session", AWAY)

    with pytest.raises(LinkError, match="no answer for 60 s: nothing listens there"):
        _wait(client)


def test_a_session_that_stays_unknown(
    client: PatientClient, connections: Connections, manager: LateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node is lost and does not come back: after the patience of the client, the error tells what to do."""
    monkeypatch.setattr(client, "_changed", lambda session, _: _unknown(session))

    def _unknown(session: str) -> SessionDetail:
        connections.clock.advance(20)
        return msgspec.structs.replace(manager.session(session), status="UNKNOWN", text="n2 does not answer")

    with pytest.raises(LinkError, match="dask-1 has been UNKNOWN for 60 s: n2 does not answer") as caught:
        _wait(client)

    assert "start the nodes" in caught.value.hint
    assert connections.clock.monotonic() == 80


@pytest.mark.parametrize("refusal", [NotFoundError("no such session"), AppError("it raised")])
def test_refusals_are_final(
    client: PatientClient, connections: Connections, manager: LateManager, refusal: DropflowError
) -> None:
    """Asking again would not help."""
    manager.refuse("session", refusal)

    with pytest.raises(type(refusal), match=refusal.text):
        _wait(client)

    assert connections.count == 1


def _fetched(client: Client, session: str, nodes: Mapping[int, str]) -> dict[int, Any]:
    del client, session
    return {row: f"from {node}" for row, node in nodes.items()}


class LateContents:
    """Fetches nothing the first time."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, client: Client, session: str, nodes: Mapping[int, str]) -> dict[int, Any]:
        """Return values, but the first time."""
        self.calls.append(session)
        if len(self.calls) == 1:
            raise AWAY
        return _fetched(client, session, nodes)


def test_values_of_a_late_node(
    client: PatientClient,
    connections: Connections,
    manager: LateManager,
    tasks: TranslatedGraph,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are not missing: the node is asked again, for the list of results and for contents."""
    found: list[object] = []

    def late(client: Client, session: str, nodes: Mapping[int, str]) -> dict[int, Any]:
        found.append(session)
        if len(found) == 1:
            raise AWAY
        return _fetched(client, session, nodes)

    monkeypatch.setattr(remote, "fetched", late)
    manager.row, manager.answers = tasks.results["x"], False
    connections.next = lambda: setattr(manager, "answers", True)

    assert remote.read_values(client, "dask-1", tasks) == {"x": "from n2"}
    assert connections.count == 3


@pytest.mark.slow
def test_persisted_chunks_of_a_late_manager(
    connections: Connections, manager: LateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked for again over a new connection, also if the manager answers neither contents nor places."""
    monkeypatch.setattr(chunk_sources, "fetched", late := LateContents())
    manager.refuse("results", AWAY)
    connections.next = lambda: manager.allow("results")
    source = chunk_sources.ManagerChunks("http://unused", patience=60)
    monkeypatch.setattr(source, "connect", connections.connect)

    assert source.read("dask-1", {0: ChunkPlace("x", "n2", "x", 1, 0)}) == {0: "from n2"}
    assert connections.count == len(late.calls) == 2


def test_values_of_a_node_that_stays_away(client: PatientClient, manager: LateManager, tasks: TranslatedGraph) -> None:
    """The error names the node."""
    manager.answers = False

    with pytest.raises(
        LinkError, match=r"no answer for 60 s: the session dask-1 has 1 value on nodes that do not answer: n2"
    ):
        remote.read_values(client, "dask-1", tasks)


def test_values_that_are_lost(
    client: PatientClient, connections: Connections, manager: LateManager, tasks: TranslatedGraph
) -> None:
    """If all nodes answer and none has a value, it is not there."""
    manager.answers, manager.silent = False, ()

    with pytest.raises(AppError, match="the session dask-1 lacks 1 value, such as that of 'x'"):
        remote.read_values(client, "dask-1", tasks)

    assert connections.count == 1


@pytest.mark.parametrize("value", [-1, "long", True, float("nan")])
def test_a_patience_that_is_no_time(value: object) -> None:
    """It is refused before anything is submitted."""
    with (
        dask.config.set({"dropflow.patience": value}),
        pytest.raises(BadParameterError, match=r"dropflow\.patience of dask's configuration is"),
    ):
        Scheduler(to="http://localhost:1")


# The progress of computations on managers: on a terminal, in a notebook, and nowhere else.


@pytest.fixture
def session_progress_manager() -> FakeManager:
    """A node with a session that has begun."""
    found = FakeManager(role="node", nodes=("n1",))
    found.add(fan(4), "dask-1")
    found.advance("dask-1", {0: "COMPLETED", 1: "COMPLETED"})
    return found


@pytest.fixture
def session(session_progress_manager: FakeManager) -> Iterator[SubmittedGraph]:
    """The session, as a client sees it."""
    with serve(api_v1_routes(session_progress_manager, StreamSlots(2))) as server, Client(server.url) as client:
        yield SubmittedGraph(client, "dask-1", fan(4))


def test_a_terminal_shows_bars(session: SubmittedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real terminal each logical node has a bar, and the last line counts drops; in the end, all is cleared."""
    ours, theirs = os.openpty()
    output = bytearray()

    def read() -> None:
        while True:
            try:
                block = os.read(ours, 4096)
            except OSError:  # Linux raises it when the other end is closed
                return
            if not block:
                return
            output.extend(block)

    reader = threading.Thread(target=read)
    reader.start()
    with monkeypatch.context() as patch, os.fdopen(theirs, "w") as terminal:
        patch.setattr(sys, "stderr", terminal)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", "100")
        with shown(session, is_shown=True) as show:
            show(session.detail())
    reader.join(60)
    os.close(ours)

    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode())
    detail = session.detail()
    assert f"{detail.settled} of {detail.drops} drops" in plain
    assert "━" in plain
    assert all(node.name in plain for node in detail.logical if node.is_app)
    assert "\x1b[2K" in output.decode()  # cleared


@pytest.mark.parametrize("shows", ["yes", "no"])
def test_elsewhere_nothing_is_written(session: SubmittedGraph, monkeypatch: pytest.MonkeyPatch, shows: str) -> None:
    """A file, or a terminal without `progress`, gets no bars."""
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: shows == "no")
    monkeypatch.setattr(sys, "stderr", stream)

    with shown(session, is_shown=shows == "yes") as show:
        show(session.detail())

    assert stream.getvalue() == ""


def test_a_notebook_shows_the_session_live(
    session: SubmittedGraph, session_progress_manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its state, the numbers of drops and a link, as HTML and as text; each change replaces the display."""
    views: list[HtmlView] = []

    def display(view: HtmlView, *, display_id: bool) -> Any:
        assert display_id
        views.append(view)
        return SimpleNamespace(update=views.append)

    ipython, part = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    part.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", part)

    with shown(session, is_shown=True) as show:
        show(session.detail())
        session_progress_manager.complete("dask-1")
        show(session.detail())

    first, last = (view._repr_mimebundle_() for view in views)
    assert "RUNNING" in first["text/html"]
    assert "2 COMPLETED" in first["text/html"]
    assert "FINISHED" in last["text/html"]
    assert f"{session.client.url}/sessions/dask-1" in last["text/html"]
    assert "dask-1" in last["text/plain"]


def test_ipython_without_a_notebook_is_a_terminal(session: SubmittedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shell has no kernel, and cannot update what it has shown."""
    ipython = ModuleType("IPython")
    ipython.get_ipython = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr(sys, "stderr", io.StringIO())

    with shown(session, is_shown=True) as show:
        show(session.detail())
