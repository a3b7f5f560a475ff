"""The client against a real server in front of a manager in memory: the same answers as without HTTP."""

import gzip
import io
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from dropflow import errors
from dropflow.errors import (
    BadFileError,
    BadGraphError,
    ClockSkewError,
    ConflictError,
    DropflowError,
    HttpError,
    LinkError,
    NotFoundError,
    ProtocolError,
    UsageError,
)
from dropflow.graph.codec import dump
from dropflow.graph.interchange import write_pg
from dropflow.graph.slice_codec import dump_slice
from dropflow.graph.slices import slice_by_place
from dropflow.problems import Problem, Severity
from dropflow.rest.auth import AccessRules
from dropflow.rest.client import Client
from dropflow.rest.error_body import from_body, status_of, to_body
from dropflow.rest.kit import Limits, Response, Route, StreamSlots, make_app
from dropflow.rest.schema import DropQuery, SubmitQuery
from dropflow.rest.server import RestServer
from dropflow.rest.transport import ClientRequest, HttpTransport
from dropflow.testing.clock import VirtualClock
from dropflow.testing.fake_manager import FakeManager, manager_with_sessions
from dropflow.testing.serving import serve
from dropflow.testing.shapes import fan
from managers.deployment import Deployment, Place
from managers.routes.api_v1 import api_v1_routes

SECRET = b"s" * 40
TOKEN = "a-token"  # noqa: S105 - guards nothing


@pytest.fixture
def manager() -> FakeManager:
    """An island with two nodes and four sessions."""
    return manager_with_sessions(name="island-1", role="island", nodes=("n1", "n2"))


@pytest.fixture
def server(manager: FakeManager) -> Iterator[RestServer]:
    """The manager, served for real."""
    streams = StreamSlots(8)
    with serve(
        api_v1_routes(manager, streams), access=AccessRules(token=TOKEN, secret=SECRET), streams=streams
    ) as found:
        yield found


@pytest.fixture
def client(server: RestServer) -> Iterator[Client]:
    """A client with the token."""
    with Client(server.url, token=TOKEN, timeout=20) as found:
        yield found


QUESTIONS: dict[str, Callable[[Any], object]] = {
    "info": lambda manager: manager.info(),
    "nodes": lambda manager: manager.nodes(),
    "children": lambda manager: (manager.add_child("http://127.0.0.1:9"), manager.children()),
    "sessions": lambda manager: manager.sessions(),
    "session": lambda manager: manager.session("failed"),
    "watch": lambda manager: manager.watch("failed", version=99, seconds=10),
    "drops": lambda manager: manager.drops("failed", DropQuery(state="ERROR", text="APP", offset=1, limit=5)),
    "drop": lambda manager: manager.drop("failed", "fan_a_0-0"),
    "failures": lambda manager: manager.failures("failed"),
    "results": lambda manager: manager.results("finished"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_the_managers_own(client: Client, manager: FakeManager, question: str) -> None:
    """Every record comes over the wire as it was."""
    assert QUESTIONS[question](client) == QUESTIONS[question](manager)


@pytest.mark.parametrize(
    "download",
    [
        lambda manager: manager.log("failed", "fan_a_0-0"),
        lambda manager: manager.data("finished", "fan_d_0-0"),
        lambda manager: manager.journal("running"),
    ],
    ids=["log", "data", "journal"],
)
def test_downloads_are_whole(client: Client, manager: FakeManager, download: Callable[[Any], Any]) -> None:
    """Name, type, size and every byte."""
    ours, theirs = download(manager), download(client)

    assert (theirs.name, theirs.content_type, theirs.size) == (ours.name, ours.content_type, ours.size)
    assert b"".join(theirs.chunks) == b"".join(ours.chunks)


@pytest.mark.parametrize("form", ["graph", "dfg", "json", "gz"])
def test_graphs_are_submitted_in_any_form(client: Client, form: str) -> None:
    """As a graph, a .dfg file, DALiuGE's JSON or a gzip file of it; and come back."""
    graph = fan(200)
    text = io.BytesIO()
    write_pg(graph, text)
    forms = {
        "graph": graph,
        "dfg": b"".join(dump(graph)),
        "json": text.getvalue(),
        "gz": gzip.compress(text.getvalue()),
    }
    info = client.submit(forms[form], SubmitQuery(session="mine"))
    back = client.graph("mine")

    assert (info.session, info.drops) == ("mine", graph.drops)
    assert np.array_equal(back.successors.neighbour, graph.successors.neighbour)


def test_a_deployment_is_prepared_started_and_undone(client: Client, manager: FakeManager) -> None:
    """Its slices arrive byte by byte, and an undo takes it back."""
    (piece,) = slice_by_place(replace(fan(20), places=("n1",))).values()
    data = b"".join(dump_slice(piece))
    deployment = Deployment(
        session="s", epoch=7, graph="fan", drops=21, created=1.0, places=(Place("n1", "a", 1),), slices={"n1": data}
    )
    client.prepare(deployment, seconds=30)
    client.start("s", 7)

    assert bytes(manager.prepared["s", 7].slices["n1"]) == data
    assert client.session("s").drops == 21
    client.undo("s", 7, "a node failed")
    assert manager.undone == [("s", 7, "a node failed")]
    with pytest.raises(NotFoundError, match="no session 's'"):
        client.session("s")


def test_sessions_are_cancelled_and_deleted(client: Client, manager: FakeManager) -> None:
    """With the reason."""
    assert client.cancel("running", "enough").text == "enough"
    client.delete("running")

    assert "running" not in {session.session for session in manager.sessions()}


def test_children_are_forgotten(client: Client) -> None:
    """And only those that there are."""
    client.add_child("http://127.0.0.1:9")
    client.remove_child("http://127.0.0.1:9")

    assert client.children() == ()
    with pytest.raises(NotFoundError, match="is not a child"):
        client.remove_child("http://127.0.0.1:9")


def test_watching_waits_for_news(client: Client, manager: FakeManager) -> None:
    """A long poll ends when something happened, and when its time is over."""
    version = client.session("running").version
    assert client.watch("running", version=version, seconds=0.2).version == version
    poke = threading.Timer(0.1, manager.advance, ("running", {8: "COMPLETED"}))
    poke.start()

    assert client.watch("running", version=version, seconds=30).version == version + 1
    poke.join()


def test_events_end_with_the_session(client: Client, manager: FakeManager) -> None:
    """The first update is the present state, the last one the end."""
    pictures = client.events("running")
    first = next(pictures)
    manager.advance("running", {8: "COMPLETED"})
    manager.complete("running")
    *_, last = pictures

    assert first.status == "RUNNING"
    assert msgspec.structs.replace(last, rate=0, seconds=0) == msgspec.structs.replace(
        manager.session("running"), rate=0, seconds=0
    )


def test_an_event_stream_that_breaks_off_is_an_error(client: Client, server: RestServer) -> None:
    """A server that closes in the middle of a session has not told its end."""
    pictures = client.events("running")
    next(pictures)
    server.close()

    with pytest.raises(LinkError, match="ended early"):
        list(pictures)


# Errors.


def _classes(root: type[DropflowError]) -> list[type[DropflowError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _classes(child))]


_TREE = {kind.__name__: kind for kind in _classes(DropflowError) if kind.__module__ == errors.__name__}


@pytest.mark.parametrize("name", sorted(set(_TREE) - {"HttpError"}))
def test_errors_cross_the_wire_as_their_class(client: Client, manager: FakeManager, name: str) -> None:
    """Every class of the tree comes back as itself, with its text, place and hint."""
    manager.refuse("info", _TREE[name]("what", where="there", hint="do this"))
    with pytest.raises(DropflowError, match="what") as found:
        client.info()

    assert type(found.value) is _TREE[name]
    assert (found.value.text, found.value.where, found.value.hint) == ("what", "there", "do this")


@pytest.mark.parametrize("name", sorted(set(_TREE) - {"HttpError"}))
def test_every_error_has_a_status(name: str) -> None:
    """4xx for what was asked wrongly, 5xx for the rest."""
    status = status_of(_TREE[name]("what"))

    assert 400 <= status < 600
    assert (status < 500) == (issubclass(_TREE[name], UsageError | ClockSkewError))


def test_problems_cross_the_wire() -> None:
    """All findings of a graph that cannot be used come along."""
    problem = Problem(code="PG001", severity=Severity.ERROR, where="/3", text="bad", hint="mend it")
    body = json.loads(msgspec.json.encode({"error": to_body(BadGraphError("PG001 bad", problems=(problem,)))}))
    found = from_body(422, body)

    assert isinstance(found, BadGraphError)
    assert found.problems == (problem,)


@pytest.mark.parametrize("body", [None, [], {}, {"error": 1}, {"error": {"code": 1}}, {"error": {"code": "DF999"}}])
def test_answers_of_strangers_are_errors_too(body: object) -> None:
    """A proxy's page becomes an error with its status."""
    found = from_body(502, body)

    assert isinstance(found, HttpError)
    assert found.status == 502


def test_refusals_of_the_routes(client: Client) -> None:
    """What is wrong with a name, a graph or a conflict is told by its class."""
    with pytest.raises(NotFoundError, match="no session 'nope'"):
        client.session("nope")
    with pytest.raises(BadFileError, match="not a physical graph"):
        client.submit(b"nonsense")
    with pytest.raises(BadGraphError, match="no drops"):
        client.submit(b"[]")
    with pytest.raises(BadFileError, match="cut off"):
        client.submit(b"".join(dump(fan(20)))[:-9])
    with pytest.raises(ConflictError, match="'running'"):
        client.submit(fan(20), SubmitQuery(session="running"))
    with pytest.raises(HttpError, match="cannot be used"):
        client.submit(fan(20), SubmitQuery(session="../escape"))


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", ".", "a?b", "a#b", "ü ñ", "x" * 900, "%2F", "\u202e"])
def test_no_name_escapes(client: Client, name: str) -> None:
    """Sessions and drops of any name are looked up as they are, and not found."""
    with pytest.raises(NotFoundError, match=re.escape(repr(name))):
        client.session(name)
    with pytest.raises(NotFoundError, match=re.escape(repr(name))):
        client.drop("running", name)


def test_graphs_beyond_the_limit_are_refused(manager: FakeManager) -> None:
    """The number of drops is bounded, whatever the size of the body."""
    streams = StreamSlots(2)
    with (
        serve(api_v1_routes(manager, streams, limits=Limits(drops=10)), streams=streams) as server,
        Client(server.url) as client,
        pytest.raises(HttpError, match="too many drops") as found,
    ):
        client.submit(fan(20))

    assert found.value.status == 413


# Authentication.


def test_managers_enter_by_signature(server: RestServer) -> None:
    """The cluster key is as good as the token, for bodies too; another key is not."""
    with Client(server.url, secret=SECRET) as client:
        assert client.info().name == "island-1"
        assert client.submit(fan(2000), SubmitQuery(session="signed")).session == "signed"
        assert client.drop("signed", "fan_a_0-0").name == "app"
    with Client(server.url, secret=b"x" * 40) as stranger, pytest.raises(HttpError, match="signature is wrong"):
        stranger.info()


def test_clocks_that_differ_keep_nobody_out(server: RestServer) -> None:
    """The first request learns the time of the manager, whatever it is; all kinds of requests are signed by that."""
    with Client(server.url, secret=SECRET, clock=VirtualClock(1.0)) as client:
        assert client.submit(fan(2000), SubmitQuery(session="late")).session == "late"
        assert client.drop("late", "fan_a_0-0").name == "app"
    with Client(server.url, secret=SECRET, clock=VirtualClock(4e9)) as client:
        assert client.graph("late").drops == 2001
    with (
        Client(server.url, secret=b"x" * 40, clock=VirtualClock(1.0)) as stranger,
        pytest.raises(HttpError, match="signature is wrong"),
    ):
        stranger.info()


def test_readiness_needs_no_token(server: RestServer) -> None:
    """It is False if no server listens."""
    with Client(server.url) as client:
        assert client.ready()
        with pytest.raises(HttpError, match="a token is needed"):
            client.info()
        server.close()
        assert not client.ready()


# A hostile world.


def test_nobody_there_is_a_link_error() -> None:
    """It names the address and what to do."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(LinkError, match="nothing listens there") as found:
        client.info()

    assert str(port) in found.value.where
    assert found.value.hint


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", LinkError),
        (b"SSH-2.0-OpenSSH_9.2\r\n", LinkError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", LinkError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html/>", ProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", ProtocolError),
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 7\r\n\r\n<html/>", HttpError),
    ],
    ids=["silence", "ssh", "cut off", "a page", "another JSON", "a proxy"],
)
def test_what_is_no_manager_is_told(answer: bytes, error: type[DropflowError]) -> None:
    """Whatever listens there, the client raises an error of ours."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def talk() -> None:
            with suppress(OSError):
                wire, _ = listening.accept()
                wire.recv(65536)
                wire.sendall(answer)
                wire.close()

        talking = threading.Thread(target=talk)
        talking.start()
        with (
            Client(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=20) as client,
            pytest.raises(error, match=r"http://127\.0\.0\.1:"),
        ):
            client.info()
        talking.join()


def test_silence_ends_in_time() -> None:
    """A server that accepts and never answers is a LinkError, not a hang."""
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as listening,
        Client(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=0.2) as client,
        pytest.raises(LinkError, match="in time"),
    ):
        client.info()


def test_a_connection_that_died_between_requests_is_made_anew(manager: FakeManager) -> None:
    """A restarted server on the same port is reached without an error."""
    routes = api_v1_routes(manager, StreamSlots(2))
    with serve(routes) as first, Client(first.url) as client:
        client.info()
        first.close()
        streams = StreamSlots(2)
        second = RestServer(
            make_app(routes, AccessRules(token=None), Limits()), streams=streams, stream_limit=2, port=first.port
        )
        second.start()
        assert client.info() == manager.info()
        second.close()


def test_a_download_that_is_cut_off_is_an_error() -> None:
    """Half a file is never taken for a whole one."""

    def chunks() -> Iterator[bytes]:
        yield b"x" * 10
        raise RuntimeError

    def handler(_: object) -> Response:
        return Response(body=chunks(), content_type="text/plain", headers=(("Content-Length", "20"),))

    route = Route(
        method="GET", path="/api/v1/sessions/{session}/journal", handler=handler, summary="breaks in the middle"
    )
    with serve([route]) as server, Client(server.url) as client:
        found = client.journal("s")
        with pytest.raises(LinkError, match="broke"):
            list(found.chunks)


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://x", "http://", "http://x:99999", "http://u:p@x", "http://x?y"]
)
def test_addresses_that_cannot_be_used_are_refused(url: str) -> None:
    """Before anything is sent."""
    with pytest.raises(UsageError, match=r"manager|URL"):
        Client(url)


def test_large_bodies_are_packed_for_other_hosts_only() -> None:
    """On loopback packing costs more than it saves."""
    body = [bytes(200_000)]
    for host, packed in (("http://192.0.2.1:1", True), ("http://127.0.0.1:1", False)):
        sent, headers = HttpTransport(host, token=None, secret=None, timeout=1)._packed(
            ClientRequest("POST", "/", body=body)
        )
        assert ("Content-Encoding" in headers) is packed
        assert int(headers["Content-Length"]) == sum(map(len, sent))


def test_threads_that_come_and_go_leave_no_connections(manager: FakeManager) -> None:
    """Connections are shared by all threads of a client, and those beyond a few are closed after use."""
    with (
        serve(api_v1_routes(manager, StreamSlots(2)), limits=Limits(streams=20)) as server,
        Client(server.url) as client,
    ):
        for _ in range(3):
            threads = [threading.Thread(target=client.info) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert 1 <= len(client._transport._free) <= 8
        client.close()
        assert client._transport._free == []
        assert client.info() == manager.info()


def test_a_refusal_before_the_body_was_sent_is_told(server: RestServer) -> None:
    """The server reads no more of a body that it refuses; the caller learns why, not that the connection broke."""
    transport = HttpTransport(server.url, token="wrong", secret=None, timeout=20)  # noqa: S106 - guards nothing
    for _ in range(3):
        with pytest.raises(HttpError, match="the token is wrong") as refused:
            transport.ask(ClientRequest("POST", "/api/v1/sessions", body=[bytes(1_000_000)] * 50))
        assert refused.value.status == 401
    transport.close()
