"""The client, through a real server in front of a fake manager, returns what the manager returns."""

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
from dropflow.api.auth import AccessRules
from dropflow.api.bottle_app import make_app
from dropflow.api.client import Client
from dropflow.api.drop_records import DropQuery
from dropflow.api.error_body import from_body, status_of, to_body
from dropflow.api.http_client import ClientRequest, HttpTransport
from dropflow.api.requests import SubmitQuery
from dropflow.api.routes import Limits, Response, Route, StreamSlots
from dropflow.api.serving import RestServer
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
from dropflow.failure import Problem, Severity
from dropflow.graph.codec import dump
from dropflow.graph.daliuge_write import write_pg
from managers.deployment import Deployment, Place
from managers.routes.handlers import api_v1_routes
from tests.fake_manager import FakeManager, manager_with_sessions
from tests.http_server import serve
from tests.regular_graphs import fan
from tests.virtual_clock import VirtualClock

SECRET = b"s" * 40
TOKEN = "a-token"


@pytest.fixture
def manager() -> FakeManager:
    """An island with two nodes and four sessions."""
    return manager_with_sessions(name="island-1", role="island", nodes=("n1", "n2"))


@pytest.fixture
def server(manager: FakeManager) -> Iterator[RestServer]:
    """The manager behind a server."""
    streams = StreamSlots(8)
    with serve(
        api_v1_routes(manager, streams), access=AccessRules(token=TOKEN, secret=SECRET), streams=streams
    ) as found:
        yield found


@pytest.fixture
def client(server: RestServer) -> Iterator[Client]:
    """A client with the token."""
    with Client(server.url, token=TOKEN, timeout=60) as found:
        yield found


CALLS: dict[str, Callable[[Any], object]] = {
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


@pytest.mark.parametrize("call", CALLS)
def test_calls_return_what_the_manager_returns(client: Client, manager: FakeManager, call: str) -> None:
    """Every record arrives as the manager returned it."""
    assert CALLS[call](client) == CALLS[call](manager)


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
    """A download has the name, type, size and bytes of the manager's."""
    ours, theirs = download(manager), download(client)

    assert (theirs.name, theirs.content_type, theirs.size) == (ours.name, ours.content_type, ours.size)
    assert b"".join(theirs.chunks) == b"".join(ours.chunks)


@pytest.mark.parametrize("form", ["graph", "dfg", "json", "gz"])
def test_graphs_are_submitted_in_any_form(client: Client, form: str) -> None:
    """A graph, a .dfg file, DALiuGE's JSON and a gzip file of that are accepted and downloaded again."""
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
    """The manager gets the bytes of the graph, and after an undo the session does not exist."""
    data = b"".join(dump(replace(fan(20), places=("n1",))))
    deployment = Deployment(
        session="s", epoch=7, graph="fan", drops=21, created=1.0, places=(Place("n1", "a", 1),), dfg=data
    )
    client.prepare(deployment, seconds=30)
    client.start("s", 7)

    assert bytes(manager.prepared["s", 7].dfg) == data
    assert client.session("s").drops == 21
    client.undo("s", 7, "a node failed")
    assert manager.undone == [("s", 7, "a node failed")]
    with pytest.raises(NotFoundError, match="no session 's'"):
        client.session("s")


def test_sessions_are_cancelled_and_deleted(client: Client, manager: FakeManager) -> None:
    """A cancelled session has the reason as its text; a deleted one is not listed."""
    assert client.cancel("running", "enough").text == "enough"
    client.delete("running")

    assert "running" not in {session.session for session in manager.sessions()}


def test_children_are_added_and_removed(client: Client) -> None:
    """Removing a child twice is a NotFoundError."""
    client.add_child("http://127.0.0.1:9")
    client.remove_child("http://127.0.0.1:9")

    assert client.children() == ()
    with pytest.raises(NotFoundError, match="is not a child"):
        client.remove_child("http://127.0.0.1:9")


@pytest.mark.slow
def test_watching_waits_for_a_change(client: Client, manager: FakeManager) -> None:
    """A long poll ends when the session changes, and when its time is over."""
    version = client.session("running").version
    assert client.watch("running", version=version, seconds=0.2).version == version
    poke = threading.Timer(0.1, manager.advance, ("running", {8: "COMPLETED"}))
    poke.start()

    assert client.watch("running", version=version, seconds=30).version == version + 1
    poke.join()


@pytest.mark.slow
def test_events_end_with_the_session(client: Client, manager: FakeManager) -> None:
    """The first update is the present state, the last one the end."""
    updates = client.events("running")
    first = next(updates)
    manager.advance("running", {8: "COMPLETED"})
    manager.complete("running")
    *_, last = updates

    assert first.status == "RUNNING"
    assert msgspec.structs.replace(last, rate=0, seconds=0) == msgspec.structs.replace(
        manager.session("running"), rate=0, seconds=0
    )


def test_an_event_stream_that_breaks_off_is_an_error(client: Client, server: RestServer) -> None:
    """A stream that ends before its session is a LinkError."""
    updates = client.events("running")
    next(updates)
    server.close()

    with pytest.raises(LinkError, match="ended early"):
        list(updates)


def _classes(root: type[DropflowError]) -> list[type[DropflowError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _classes(child))]


_TREE = {kind.__name__: kind for kind in _classes(DropflowError) if kind.__module__ == errors.__name__}


@pytest.mark.parametrize("name", sorted(set(_TREE) - {"HttpError"}))
def test_errors_cross_the_wire_as_their_class(client: Client, manager: FakeManager, name: str) -> None:
    """Every error class arrives as itself, with its text, place and hint."""
    manager.refuse("info", _TREE[name]("what", where="there", hint="do this"))
    with pytest.raises(DropflowError, match="what") as found:
        client.info()

    assert type(found.value) is _TREE[name]
    assert (found.value.text, found.value.where, found.value.hint) == ("what", "there", "do this")


@pytest.mark.parametrize("name", sorted(set(_TREE) - {"HttpError"}))
def test_every_error_has_a_status(name: str) -> None:
    """Wrong requests have a 4xx status, all other errors 5xx."""
    status = status_of(_TREE[name]("what"))

    assert 400 <= status < 600
    assert (status < 500) == (issubclass(_TREE[name], UsageError | ClockSkewError))


def test_problems_cross_the_wire() -> None:
    """The problems of a BadGraphError are in the body of the answer."""
    problem = Problem(code="PG001", severity=Severity.ERROR, where="/3", text="bad", hint="mend it")
    body = json.loads(msgspec.json.encode({"error": to_body(BadGraphError("PG001 bad", problems=(problem,)))}))
    found = from_body(422, body)

    assert isinstance(found, BadGraphError)
    assert found.problems == (problem,)


@pytest.mark.parametrize("body", [None, [], {}, {"error": 1}, {"error": {"code": 1}}, {"error": {"code": "DF999"}}])
def test_an_answer_of_a_proxy_is_an_http_error(body: object) -> None:
    """A body without an error of a manager becomes an HttpError with the status of the answer."""
    found = from_body(502, body)

    assert isinstance(found, HttpError)
    assert found.status == 502


def test_refusals_of_the_routes(client: Client) -> None:
    """Unknown names, bad graphs and conflicts are raised as their classes."""
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
    with pytest.raises(HttpError, match=r"'session' cannot be '\.\./escape'"):
        client.submit(fan(20), SubmitQuery(session="../escape"))


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", ".", "a?b", "a#b", "ü ñ", "x" * 900, "%2F", "\u202e"])
def test_names_are_quoted_in_paths(client: Client, name: str) -> None:
    """Sessions and drops are looked up by exactly the name that was given."""
    with pytest.raises(NotFoundError, match=re.escape(repr(name))):
        client.session(name)
    with pytest.raises(NotFoundError, match=re.escape(repr(name))):
        client.drop("running", name)


def test_graphs_beyond_the_limit_are_refused(manager: FakeManager) -> None:
    """The number of drops is limited, even in a small body."""
    streams = StreamSlots(2)
    with (
        serve(api_v1_routes(manager, streams, limits=Limits(drops=10)), streams=streams) as server,
        Client(server.url) as client,
        pytest.raises(HttpError, match="too many drops") as found,
    ):
        client.submit(fan(20))

    assert found.value.status == 413


def test_managers_are_admitted_by_signature(server: RestServer) -> None:
    """Requests signed with the cluster key are accepted, also those with bodies; another key is refused."""
    with Client(server.url, secret=SECRET) as client:
        assert client.info().name == "island-1"
        assert client.submit(fan(2000), SubmitQuery(session="signed")).session == "signed"
        assert client.drop("signed", "fan_a_0-0").name == "app"
    with Client(server.url, secret=b"x" * 40) as other, pytest.raises(HttpError, match="signature is wrong"):
        other.info()


def test_the_client_adapts_to_the_clock_of_the_manager(server: RestServer) -> None:
    """The first request learns the time of the manager, and all kinds of requests are signed with that time."""
    with Client(server.url, secret=SECRET, clock=VirtualClock(1.0)) as client:
        assert client.submit(fan(2000), SubmitQuery(session="late")).session == "late"
        assert client.drop("late", "fan_a_0-0").name == "app"
    with Client(server.url, secret=SECRET, clock=VirtualClock(4e9)) as client:
        assert client.graph("late").drops == 2001
    with (
        Client(server.url, secret=b"x" * 40, clock=VirtualClock(1.0)) as other,
        pytest.raises(HttpError, match="signature is wrong"),
    ):
        other.info()


def test_readiness_needs_no_token(server: RestServer) -> None:
    """It is False if no server listens."""
    with Client(server.url) as client:
        assert client.ready()
        with pytest.raises(HttpError, match="a token is needed"):
            client.info()
        server.close()
        assert not client.ready()


def test_a_port_without_a_server_is_a_link_error() -> None:
    """The error names the address and has a hint."""
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
@pytest.mark.parametrize("most", [None, 10_000])
def test_a_server_that_is_not_a_manager_is_an_error(
    answer: bytes, error: type[DropflowError], most: int | None
) -> None:
    """Other protocols, pages and broken answers raise an error that names the address; the same with a limit."""
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
            Client(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=60, most=most) as client,
            pytest.raises(error, match=r"http://127\.0\.0\.1:"),
        ):
            client.info()
        talking.join()


def test_a_redirect_is_no_answer() -> None:
    """Of a proxy that asks to sign in, say: a log or a content that is downloaded is not taken to be empty."""
    away = Response(status=302, body=b"", headers=(("Location", "https://sso.example/?\u00e9"),))
    route = Route(method="GET", path="/api/v1/<rest:path>", handler=lambda _: away, summary="Elsewhere.", public=True)
    with serve([route]) as server, Client(server.url) as client:
        for ask in (client.info, lambda: client.log("s", "d")):
            with pytest.raises(ProtocolError, match=r"it redirects to 'https://sso\.example/") as found:
                ask()
            assert found.value.where == server.url


@pytest.mark.slow
def test_a_silent_server_is_a_link_error() -> None:
    """A server that accepts and never answers raises a LinkError after the timeout."""
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as listening,
        Client(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=0.2) as client,
        pytest.raises(LinkError, match="in time"),
    ):
        client.info()


def test_a_connection_that_was_closed_is_opened_again(manager: FakeManager) -> None:
    """After a restart of the server on the same port, the next request succeeds."""
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
    """A download that ends early raises a LinkError."""

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
def test_bad_manager_urls_are_refused(url: str) -> None:
    """A URL that is not a manager's is refused when the client is created."""
    with pytest.raises(UsageError, match=r"manager|URL"):
        Client(url)


def test_large_bodies_are_compressed_for_other_hosts_only() -> None:
    """On loopback, compression costs more time than it saves."""
    body = [bytes(200_000)]
    for host, packed in (("http://192.0.2.1:1", True), ("http://127.0.0.1:1", False)):
        sent, headers = HttpTransport(host, token=None, secret=None, timeout=1)._packed(
            ClientRequest("POST", "/", body=body)
        )
        assert ("Content-Encoding" in headers) is packed
        assert int(headers["Content-Length"]) == sum(map(len, sent))


@pytest.mark.slow
def test_threads_share_a_bounded_pool_of_connections(manager: FakeManager) -> None:
    """All threads of a client share connections, and the client keeps at most eight idle ones."""
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


def test_a_refusal_while_the_body_is_sent_is_raised(server: RestServer) -> None:
    """The server does not read a body that it refuses; the client raises the refusal and not a broken connection."""
    transport = HttpTransport(server.url, token="wrong", secret=None, timeout=60)
    for _ in range(3):
        with pytest.raises(HttpError, match="the token is wrong") as refused:
            transport.ask(ClientRequest("POST", "/api/v1/sessions", body=[bytes(1_000_000)] * 50))
        assert (refused.value.status, "--token" in refused.value.hint) == (401, True)
    transport.close()


@pytest.mark.parametrize("host", ["a..b", f"{'x' * 70}.org"])
def test_a_name_that_no_host_can_have_is_refused(host: str) -> None:
    """The error has the address; it is no error of dropflow itself."""
    with pytest.raises(UsageError, match="not a manager URL") as caught:
        Client(f"http://{host}:8000")

    assert host in caught.value.where


@pytest.mark.parametrize("token", ["a\u20ac", "token\n", "to\rken"])
def test_a_token_that_no_header_can_have_is_refused(token: str) -> None:
    """It was copied with something else; it is no error of dropflow itself."""
    with pytest.raises(UsageError, match="the token has a line break"):
        Client("http://localhost:8002", token=token)
