"""Archives of results and logs of sessions, over HTTP."""

import io
import tarfile
import threading
from collections.abc import Iterator

import pytest

from dropflow.api import openapi
from dropflow.api.client import Client
from dropflow.api.logs import LogLine, LogPage, LogQuery, LogTextQuery
from dropflow.api.openapi import StreamSlots
from dropflow.api.requests import ArchiveQuery, ResultList
from dropflow.errors import GoneError, LinkError, NotFoundError
from dropflow.testing.fake_manager import FakeManager, VirtualClock, manager_with_sessions
from dropflow.testing.faults import serve
from managers.routes.handlers import api_v1_routes


@pytest.fixture
def manager() -> FakeManager:
    """An island with four sessions."""
    return manager_with_sessions(role="island", nodes=("n1", "n2"))


@pytest.fixture
def client(manager: FakeManager) -> Iterator[Client]:
    """A client of the manager."""
    streams = StreamSlots(4)
    with serve(api_v1_routes(manager, streams), streams=streams) as server, Client(server.url) as found:
        yield found


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


def test_a_request_waits_for_the_next_line(manager: FakeManager, client: Client) -> None:
    """It is answered when there is a line that matches, and without one after its time."""
    end = client.session_log("running").newer
    assert client.session_log("running", LogQuery(after=end, seconds=0.1)).lines == ()

    found: list[str] = []

    def wait() -> None:
        page = client.session_log("running", LogQuery(after=end, seconds=60.0, text="second"))
        found.extend(line.text for line in page.lines)

    thread = threading.Thread(target=wait)
    thread.start()
    for text in ("first", "the second"):
        line = LogLine(time=1.0, node="n1", drop="d", name="", level="INFO", text=text, at=0)
        manager.print_lines("running", [line])
    thread.join(60.0)
    assert found == ["the second"]


def test_an_error_of_the_first_content_is_an_answer(manager: FakeManager, client: Client) -> None:
    """Nothing was sent yet, so the client gets the error itself."""
    manager.refuse("results", GoneError("the files cannot be read"))
    with pytest.raises(GoneError, match="the files cannot be read"):
        client.archive("finished")


def test_a_request_waits_no_longer_than_it_asks_for(
    manager: FakeManager, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if each look for new lines takes long, because nodes are busy."""
    clock, whole, calls = VirtualClock(), manager.session_log, list[LogQuery]()

    def slow(session: str, query: LogQuery) -> LogPage:
        calls.append(query)
        clock.advance(1.0)
        return whole(session, query)

    monkeypatch.setattr(openapi, "SystemClock", lambda: clock)
    manager.session_log = slow  # type: ignore[assignment, method-assign]
    client.session_log("running", LogQuery(after="node-1:5", seconds=2.0))

    assert len(calls) == 3
