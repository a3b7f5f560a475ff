"""Archives, downloads and states of sessions as streams over HTTP."""

import http.client
import io
import tarfile
import threading
from base64 import b64decode
from collections.abc import Iterator
from threading import Event as Signal
from threading import Thread
from typing import Any

import msgspec
import numpy as np
import pytest

from dropflow.api import logs
from dropflow.api.client import Client
from dropflow.api.event_stream import read_events
from dropflow.api.logs import LogLine, LogPage, LogQuery, LogTextQuery
from dropflow.api.requests import RUNNING, ArchiveQuery, ResultList
from dropflow.api.routes import StreamSlots
from dropflow.api.serving import RestServer
from dropflow.errors import GoneError, LinkError, NotFoundError
from dropflow.states import DropState
from managers import state_hub
from managers.routes.daliuge import daliuge_routes
from managers.routes.handlers import api_v1_routes
from managers.routes.session_events import state_events
from managers.state_hub import StateHub
from tests.fake_manager import FakeManager, manager_with_sessions
from tests.http_server import ask, serve
from tests.virtual_clock import VirtualClock


@pytest.fixture
def manager() -> FakeManager:
    """An island with four sessions."""
    return manager_with_sessions(role="island", nodes=("n1", "n2"))


@pytest.fixture
def client(manager: FakeManager) -> Iterator[Client]:
    """A client of the manager."""
    streams = StreamSlots(4)
    with serve(api_v1_routes(manager, streams), streams=streams) as server, Client(server.url) as client_:
        yield client_


def _read_into(received: list[bytes], chunks: Iterator[bytes]) -> None:
    for chunk in chunks:
        received.append(chunk)  # noqa: PERF402 - what came before an error counts


def test_an_archive_arrives_whole(manager: FakeManager, client: Client) -> None:
    """A program gets the bytes of all results, in the format that it asks for."""
    download = client.archive("finished", ArchiveQuery(format="tar"))
    with tarfile.open(fileobj=io.BytesIO(b"".join(download.chunks))) as tar:
        names = set(tar.getnames())

    assert download.name == "finished.tar"
    assert names == {result.path for result in manager.results("finished").results}
    with pytest.raises(NotFoundError, match="no result of session 'finished' matches"):
        client.archive("finished", ArchiveQuery(text="nothing"))


@pytest.mark.parametrize("missing", ["node", "content"])
def test_an_archive_that_is_not_whole_is_a_broken_answer(manager: FakeManager, client: Client, missing: str) -> None:
    """The connection is cut off after what names the missing results, so no client takes it for the whole."""
    results = manager.results("finished").results
    if missing == "node":
        manager.results = lambda _: ResultList(results=results, missing=("far",))  # type: ignore[assignment, method-assign]
    else:
        manager.results = lambda _: ResultList(results=results)  # type: ignore[assignment, method-assign]
        manager.advance("finished", {results[0].drop: "EXPIRED"})
    received: list[bytes] = []
    with pytest.raises(LinkError, match="the connection broke"):
        _read_into(received, client.archive("finished").chunks)

    assert b"MISSING.txt" in b"".join(received)
    assert (b"node far: it did not answer" if missing == "node" else b"was released") in b"".join(received)


def test_a_log_is_downloaded_as_text(manager: FakeManager, client: Client) -> None:
    """All lines that match, the oldest first; it is an error if the session is unknown."""
    lines = [
        LogLine(time=float(number), node="n1", drop="d", name="", level="INFO", text=f"line {number}", at=0)
        for number in range(12_000)
    ]
    manager.print_lines("finished", lines)
    text = b"".join(client.session_log_text("finished", LogTextQuery(text="99")).chunks).decode()

    assert text.splitlines()[0] == "1970-01-01T00:01:39.000 INFO    n1 d: line 99"
    assert text.count("\n") == sum("99" in line.text for line in lines)
    with pytest.raises(NotFoundError, match="no session"):
        client.session_log_text("unknown")


@pytest.mark.slow
def test_a_request_waits_for_the_next_line(manager: FakeManager, client: Client) -> None:
    """It is answered when there is a line that matches, and without one after its time."""
    end = client.session_log("running").newer
    assert client.session_log("running", LogQuery(after=end, seconds=0.1)).lines == ()

    lines: list[str] = []

    def wait() -> None:
        page = client.session_log("running", LogQuery(after=end, seconds=60.0, text="second"))
        lines.extend(line.text for line in page.lines)

    thread = threading.Thread(target=wait)
    thread.start()
    for text in ("first", "the second"):
        line = LogLine(time=1.0, node="n1", drop="d", name="", level="INFO", text=text, at=0)
        manager.print_lines("running", [line])
    thread.join(60.0)
    assert lines == ["the second"]


def test_an_error_of_the_first_content_is_an_answer(manager: FakeManager, client: Client) -> None:
    """Nothing was sent yet, so the client gets the error itself."""
    manager.refuse("results", GoneError("the files cannot be read"))
    with pytest.raises(GoneError, match="the files cannot be read"):
        client.archive("finished")


@pytest.mark.slow
def test_a_request_waits_no_longer_than_it_asks_for(
    manager: FakeManager, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if each look for new lines takes long, because nodes are busy."""
    clock, session_log, calls = VirtualClock(), manager.session_log, list[LogQuery]()

    def slow(session: str, query: LogQuery) -> LogPage:
        calls.append(query)
        clock.advance(1.0)
        return session_log(session, query)

    monkeypatch.setattr(logs, "SystemClock", lambda: clock)
    manager.session_log = slow  # type: ignore[assignment, method-assign]
    client.session_log("running", LogQuery(after="node-1:5", seconds=2.0))

    assert len(calls) == 3


# Contents of drops over HTTP, whole and in parts.


_CONTENT = bytes(range(250)) * 1000


@pytest.fixture
def server() -> Iterator[RestServer]:
    """An island with a session that has a result."""
    manager, streams = manager_with_sessions(role="island", nodes=("n1", "n2")), StreamSlots(4)
    manager.write("finished", 1, _CONTENT)
    with serve([*api_v1_routes(manager, streams), *daliuge_routes(manager)], streams=streams) as server_:
        yield server_


@pytest.fixture
def paths(server: RestServer) -> tuple[str, str]:
    """The two paths of the content."""
    with Client(server.url) as client:
        oid = next(drop.oid for drop in client.drops("finished").drops if drop.drop == 1)
    return f"/api/v1/sessions/finished/drops/{oid}/data", f"/sessions/finished/graph/drop/data/{oid}"


def test_a_download_continues_where_it_stopped(server: RestServer, paths: tuple[str, str]) -> None:
    """As browsers and curl ask: with its ETag the rest of a content comes, with the ETag of another one all of it."""
    for path in paths:
        download = ask(server.url, "GET", path)
        etag = download.headers["Etag"]
        rest = ask(server.url, "GET", path, headers={"Range": "bytes=1000-", "If-Range": etag})
        other = ask(server.url, "GET", path, headers={"Range": "bytes=1000-", "If-Range": '"other"'})
        last = ask(server.url, "GET", path, headers={"Range": "bytes=-3"})

        assert (download.status, download.body, download.headers["Accept-Ranges"]) == (200, _CONTENT, "bytes")
        assert (rest.status, rest.body, rest.headers["Etag"]) == (206, _CONTENT[1000:], etag)
        assert rest.headers["Content-Range"] == f"bytes 1000-{len(_CONTENT) - 1}/{len(_CONTENT)}"
        assert rest.headers["Content-Length"] == str(len(rest.body))
        assert (other.status, other.body) == (200, _CONTENT)
        assert (last.status, last.body) == (206, _CONTENT[-3:])


def test_a_range_after_the_end_has_a_status_of_its_own(server: RestServer, paths: tuple[str, str]) -> None:
    """The answer has the size, so that a client knows whether it has all of it."""
    refused, daliuge = (ask(server.url, "GET", path, headers={"Range": "bytes=250000-"}) for path in paths)

    assert (refused.status, daliuge.status) == (416, 416)
    assert refused.headers["Content-Range"] == "bytes */250000"
    assert refused.json["error"]["text"] == "the content has 250,000 bytes, and the range begins at byte 250,000"


def test_head_tells_the_size_and_sends_nothing(server: RestServer, paths: tuple[str, str]) -> None:
    """The connection can be used again after it."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    for path in paths:
        for method, body in (("HEAD", b""), ("GET", _CONTENT)):
            connection.request(method, path)
            answer = connection.getresponse()

            assert (answer.status, answer.read(), answer.getheader("Content-Length")) == (200, body, str(len(_CONTENT)))
            assert answer.getheader("ETag")
    connection.close()


# The states of drops as server-sent events.


def events_of(hub: StateHub, session: str, last: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield name, id and data of the events of a session."""
    for event in read_events(state_events(hub, session, Signal(), last=last) or iter(())):
        yield event.name, event.id, msgspec.json.decode(event.data)


def changes(data: dict[str, Any]) -> dict[int, int]:
    """Return the states in a change, by drop."""
    drops = np.frombuffer(b64decode(data["drops"]), dtype="<u4").tolist()
    return dict(zip(drops, b64decode(data["states"]), strict=True))


@pytest.mark.slow
def test_all_states_come_first_then_changes_then_the_end() -> None:
    """A change has only the drops that have changed."""
    manager = manager_with_sessions()
    events = events_of(StateHub(manager), "running")
    name, _, data = next(events)
    assert name == "whole"
    states = b64decode(data["states"])
    assert len(states) == 41
    assert (states[0], states[6], states[40]) == (DropState.COMPLETED, RUNNING, DropState.INITIALIZED)

    manager.advance("running", {6: "COMPLETED"})
    name, _, data = next(events)
    assert (name, changes(data)) == ("change", {6: DropState.COMPLETED})
    manager.complete("running")
    assert next(events)[0] == "change"
    assert [name for name, _, _ in events] == ["end"]


@pytest.mark.slow
def test_a_client_that_reconnects_gets_what_it_has_missed() -> None:
    """With the id of its last event; with an unknown one it gets all states. After the end there is nothing."""
    manager = manager_with_sessions()
    hub = StateHub(manager)
    events = events_of(hub, "running")
    _, first, _ = next(events)
    manager.advance("running", {6: "COMPLETED"})
    next(events)
    manager.advance("running", {7: "COMPLETED"})
    next(events)

    again = events_of(hub, "running", last=first)
    assert [changes(data) for _, _, data in (next(again), next(again))] == [{6: 2}, {7: 2}]
    assert next(events_of(hub, "running", last="other.3"))[0] == "whole"
    assert next(events_of(hub, "running", last=f"{first.partition('.')[0]}.{'9' * 5000}"))[0] == "whole"
    ended = list(events_of(hub, "finished"))
    assert state_events(hub, "finished", Signal(), last=ended[-1][1]) is None


def test_a_session_that_was_over_and_goes_on_is_followed() -> None:
    """After a retry its states are the new ones, although they were read before it."""
    manager = manager_with_sessions()
    hub = StateHub(manager)
    assert np.count_nonzero(hub.states("failed") == DropState.ERROR) == 4
    manager.retry("failed")

    assert np.count_nonzero(hub.states("failed") == DropState.ERROR) == 0


@pytest.mark.slow
def test_all_watchers_together_ask_the_manager_once() -> None:
    """Ten clients get the same octets from one request for each change."""

    class CountingManager(FakeManager):
        asked = 0

        def states(self, session: str, *, since: str = "") -> Any:
            self.asked += 1
            return super().states(session, since=since)

    manager = manager_with_sessions()
    manager.__class__ = CountingManager
    hub, closing = StateHub(manager), Signal()
    events: list[list[bytes]] = [[] for _ in range(10)]

    def watch(into: list[bytes]) -> None:
        into += state_events(hub, "running", closing) or ()

    threads = [Thread(target=watch, args=(into,)) for into in events]
    for thread in threads:
        thread.start()
    manager.complete("running")
    for thread in threads:
        thread.join(timeout=60)

    assert {into[-1] for into in events} == {events[0][-1]}
    assert manager.asked <= 2


def test_a_watcher_that_waits_too_long_for_another_one_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one that streams of events report, and go on after."""
    asked, goes_on = Signal(), Signal()

    class SlowManager(FakeManager):
        def states(self, session: str, *, since: str = "") -> Any:
            asked.set()
            goes_on.wait(60)
            return super().states(session, since=since)

    manager = manager_with_sessions()
    manager.__class__ = SlowManager
    monkeypatch.setattr(state_hub, "_OTHER_READ_SECONDS", 0.0)
    hub = StateHub(manager)
    first = Thread(target=hub.states, args=("running",))
    first.start()
    asked.wait(60)
    with pytest.raises(LinkError, match="did not come in 0 s"):
        hub.states("running")
    goes_on.set()
    first.join(60)


@pytest.mark.slow
def test_trouble_is_an_event_and_a_deleted_session_ends_the_stream() -> None:
    """Events go on after an error; a deletion is the last event."""
    manager = manager_with_sessions()
    events = events_of(StateHub(manager), "running")
    next(events)
    manager.refuse("watch", LinkError("nothing listens there"))
    name, _, data = next(events)
    assert (name, data["text"]) == ("trouble", "nothing listens there")

    manager.allow("watch")
    manager.delete("running")
    assert [name for name, _, _ in events] == ["gone"]


def test_an_unknown_session_is_refused() -> None:
    """Before the stream begins."""
    with pytest.raises(NotFoundError, match="there is no session 'other'"):
        state_events(StateHub(manager_with_sessions()), "other", Signal())
