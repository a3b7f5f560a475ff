"""What a request may cost before it is known who sends it: connections, time, bytes that are read, memory."""

import gzip
import http.client
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from dropflow.errors import HttpError
from dropflow.rest.auth import AccessRules, cookie_value
from dropflow.rest.budget import Budget
from dropflow.rest.connection_limits import ConnectionLimits
from dropflow.rest.kit import Limits, Request, Response, Route, make_app
from dropflow.rest.server import RestServer
from dropflow.rest.waitress_server import WaitressServer
from dropflow.testing.clock import VirtualClock
from dropflow.testing.serving import ask, serve

pytestmark = pytest.mark.slow

TOKEN = "a-token"  # noqa: S105 - guards nothing
BEARER = f"Authorization: Bearer {TOKEN}"
MEGABYTE = 2**20
LIMIT = 8 * MEGABYTE


def _echo(call: Request) -> Response:
    return Response(body=str(len(call.body)).encode())


ROUTES = [
    Route(method="POST", path="/thing", handler=_echo, summary="x"),
    Route(method="GET", path="/thing", handler=_echo, summary="x"),
    Route(method="POST", path="/public", handler=_echo, summary="x", public=True),
    Route(method="POST", path="/form", handler=_echo, summary="x", form=True, limit=1000),
]


@pytest.fixture
def server() -> Iterator[RestServer]:
    """A server with a token, which takes bodies of 8 MB."""
    with serve(ROUTES, access=AccessRules(token=TOKEN), limits=Limits(body=LIMIT, streams=4)) as found:
        yield found


def _connected(server: RestServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def _sent(server: RestServer, *lines: str, body: bytes = b"", host: str = "localhost") -> bytes:
    """All that the server answers to these lines and body, until it closes the connection."""
    with _connected(server) as connection:
        connection.sendall("\r\n".join([lines[0], f"Host: {host}", *lines[1:], "", ""]).encode("latin-1") + body)
        return _received(connection)


def _received(connection: socket.socket) -> bytes:
    """What comes until the end; a server that leaves part of a body unread may reset the connection after that."""
    found = b""
    with suppress(ConnectionResetError):
        while data := connection.recv(65536):
            found += data
    return found


HUGE = "Content-Length: 1000000000"
CHUNKED = "Transfer-Encoding: chunked"
REFUSED = {
    "no token": (["POST /thing HTTP/1.1", HUGE], 401),
    "no token, chunked": (["POST /thing HTTP/1.1", CHUNKED], 401),
    "no token, HTTP/1.0": (["POST /thing HTTP/1.0", HUGE], 401),
    "no token, kept": (["POST /thing HTTP/1.0", "Connection: keep-alive", HUGE], 401),
    "no token, expecting": (["POST /thing HTTP/1.1", "Expect: 100-continue", HUGE], 401),
    "expecting, small": (["POST /thing HTTP/1.1", "Expect: 100-continue", "Content-Length: 10"], 401),
    "wrong token": (["POST /thing HTTP/1.1", "Authorization: Bearer x", HUGE], 401),
    "token twice": (["POST /thing HTTP/1.1", BEARER, BEARER, HUGE], 401),
    "cookie alone": (["POST /thing HTTP/1.1", f"Cookie: dropflow={cookie_value(TOKEN)}", HUGE], 403),
    "another site": (["POST /public HTTP/1.1", "Origin: http://evil.example", HUGE], 403),
    "two hosts": (["POST /public HTTP/1.1", "Host: evil.example", HUGE], 421),
    "another URL": (["POST http://evil.example/public HTTP/1.1", BEARER, HUGE], 400),
    "unknown path, known caller": (["POST /nothing HTTP/1.1", BEARER, HUGE], 404),
    "unknown path, stranger": (["POST /nothing HTTP/1.1", HUGE], 401),
    "wrong method, known caller": (["PUT /thing HTTP/1.1", BEARER, HUGE], 405),
    "too large": (["POST /thing HTTP/1.1", BEARER, HUGE], 413),
    "too large, public": (["POST /public HTTP/1.1", HUGE], 413),
    "too large for a form": (["POST /form HTTP/1.1", BEARER, "Content-Length: 100000"], 413),
    "body of a GET": (["GET /thing HTTP/1.1", BEARER, HUGE], 413),
    "length and chunked": (["POST /thing HTTP/1.1", HUGE, CHUNKED], 401),
    "bytes in headers": (["POST /thing HTTP/1.1", "Origin: \xff", "Cookie: \xfe", HUGE], 403),
}


@pytest.mark.parametrize(("lines", "status"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_needs_the_head_alone(server: RestServer, lines: list[str], status: int) -> None:
    """No byte of the body is sent, and the answer comes, once, without a "100 Continue"; the connection ends."""
    answer = _sent(server, *lines)

    assert answer.startswith(b"HTTP/1."), answer
    assert int(answer.split()[1]) == status
    assert answer.count(b"HTTP/1.") == 1
    assert b"\nConnection: close\r\n" in answer


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["GET http://[::1/ HTTP/1.1"], 400),
        (["GET /thing"], 401),
        (["POST /public HTTP/1.1", "Content-Encoding: \xff", "Content-Length: 1"], 415),
        (["POST /public HTTP/1.1", "Content-Length: 5, 5"], 400),
        (["GET /%ff HTTP/1.1", BEARER], 400),
        (["GET /thing HTTP/1.1", "X: " + "x" * 65536], 431),
    ],
)
def test_odd_heads_are_refused(
    server: RestServer, caplog: pytest.LogCaptureFixture, lines: list[str], status: int
) -> None:
    """In words, and without an error in the log."""
    answer = _sent(server, *lines, *(["Connection: close"] if status == 415 else []), body=b"x")

    assert int(answer.split()[1]) == status
    assert caplog.records == []


@pytest.mark.parametrize("kind", [HUGE, CHUNKED])
def test_the_body_of_a_stranger_is_not_read(server: RestServer, kind: str) -> None:
    """Of a gigabyte no more is taken than the buffers of two sockets hold; the refusal arrives all the same."""
    piece = b"f0000\r\n" + bytes(0xF0000) + b"\r\n"
    sent = 0
    with _connected(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MEGABYTE)
        connection.sendall(f"POST /thing HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n".encode())
        try:
            while sent < 1000 * MEGABYTE:
                sent += connection.send(piece)
        except OSError:
            pass
        answer = connection.recv(65536)

    assert sent < 64 * MEGABYTE
    assert answer.startswith(b"HTTP/1.1 401")


def test_what_follows_a_refused_head_is_no_request(server: RestServer) -> None:
    """A body that looks like a request is not answered, wherever the pieces end."""
    inner = f"GET /thing HTTP/1.1\r\nHost: localhost\r\n{BEARER}\r\n\r\n".encode()
    for lines in (["POST /thing HTTP/1.1", HUGE], ["POST /thing HTTP/1.1", CHUNKED]):
        for body in (inner, b"0\r\n\r\n" + inner, inner * 3):
            assert _sent(server, *lines, body=body).count(b"HTTP/1.1 ") == 1


def test_requests_before_a_refused_one_are_answered(server: RestServer) -> None:
    """In their order, over one connection."""
    first = f"GET /thing HTTP/1.1\r\nHost: localhost\r\n{BEARER}\r\n\r\n"
    second = f"POST /thing HTTP/1.1\r\nHost: localhost\r\n{HUGE}\r\n\r\n"
    with _connected(server) as connection:
        connection.sendall((first + second).encode())
        answer = _received(connection)

    assert [part.split()[0] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"401"]


def test_a_small_refused_body_keeps_the_connection(server: RestServer) -> None:
    """A form without a login costs no new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    for _ in range(3):
        connection.request("POST", "/thing", bytes(1000))
        kept = connection.sock
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, connection.sock) == (401, kept)
    connection.close()


def test_a_body_that_is_welcome_is_asked_for(server: RestServer) -> None:
    """The server says "100 Continue" to who expects it, and then takes the body."""
    head = f"POST /thing HTTP/1.1\r\nHost: localhost\r\n{BEARER}\r\nConnection: close\r\nExpect: 100-continue\r\n"
    for size in (100_000, 10, 0):
        with _connected(server) as connection:
            connection.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode())
            if size:
                assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(bytes(size))
            answer = _received(connection)
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(f"\r\n{size}".encode())


def _chunks(size: int, number: int) -> bytes:
    return (f"{size:x}\r\n".encode() + bytes(size) + b"\r\n") * number


ENDED = {
    "grows too large": (_chunks(MEGABYTE, 9), 413),
    "is as large as allowed": (_chunks(MEGABYTE, 8) + b"0\r\n\r\n", 200),
    "has a long line": (b"1;" + b"x" * 9000, 400),
    "has a long trailer": (b"0\r\n" + b"X: y\r\n" * 9000, 400),
    "is not chunked": (b"what is this\r\n", 400),
}


@pytest.mark.parametrize(("body", "status"), ENDED.values(), ids=ENDED)
def test_a_chunked_body_is_bounded_while_it_comes(server: RestServer, body: bytes, status: int) -> None:
    """Its length is not known before; the parts between the chunks are bounded too."""
    answer = _sent(server, "POST /public HTTP/1.1", CHUNKED, "Connection: close", body=body)

    assert int(answer.split()[1]) == status


# Memory.


class _Held:
    """A public route and a guarded one whose requests wait until they are let go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.end = threading.Event()

    def routes(self) -> list[Route]:
        def hold(_: Request) -> None:
            self.begun.release()
            assert self.end.wait(60)

        return [
            Route(method="POST", path=f"/{name}", handler=hold, summary="x", public=name == "public")
            for name in ("public", "guarded")
        ]


def test_bodies_share_a_budget_once_they_are_unpacked() -> None:
    """Small requests that unpack to much are put off with 503; those with a token find room."""
    held = _Held()
    limits = Limits(body=4 * MEGABYTE, together=16 * MEGABYTE, streams=8)
    bomb, packed = gzip.compress(bytes(3 * MEGABYTE)), {"Content-Encoding": "gzip"}
    known = packed | {"Authorization": f"Bearer {TOKEN}"}
    found: list[int] = []
    with serve(held.routes(), access=AccessRules(token=TOKEN), limits=limits) as server:

        def post(path: str, headers: dict[str, str]) -> threading.Thread:
            def send() -> None:
                found.append(ask(server.url, "POST", path, headers=headers, body=bomb).status)

            thread = threading.Thread(target=send)
            thread.start()
            held.begun.acquire(timeout=20)
            return thread

        threads = [post("/public", packed) for _ in range(2)]
        refused = [ask(server.url, "POST", "/public", headers=packed, body=bomb) for _ in range(10)]
        threads += [post("/guarded", known) for _ in range(2)]
        also_refused = ask(server.url, "POST", "/guarded", headers=known, body=bomb)
        held.end.set()
        for thread in threads:
            thread.join()
        again = ask(server.url, "POST", "/public", headers=packed, body=bomb)

    assert {(reply.status, reply.headers["Retry-After"]) for reply in refused} == {(503, "5")}
    assert also_refused.status == 503
    assert found == [200] * 4
    assert again.status == 200


def test_bodies_share_a_budget_while_they_are_received() -> None:
    """Uploads that are never finished do not pile up: the one that would be too much is refused."""
    limits = Limits(body=4 * MEGABYTE, together=8 * MEGABYTE, streams=4)
    head = f"POST /public HTTP/1.1\r\nHost: localhost\r\nContent-Length: {3 * MEGABYTE}\r\n\r\n".encode()
    with serve(ROUTES, access=AccessRules(token=TOKEN), limits=limits) as server, ExitStack() as stack:
        both = [stack.enter_context(_connected(server)) for _ in range(2)]
        for each in both:
            with suppress(ConnectionResetError, BrokenPipeError):  # it may be refused while it is being sent
                each.sendall(head + bytes(3 * MEGABYTE - 1))
        (refused,), _, _ = select.select(both, [], [], 20)
        told = refused.recv(65536)
        (other,) = [each for each in both if each is not refused]
        other.sendall(b"x")
        assert other.recv(65536).startswith(b"HTTP/1.1 200")
        # The server gives the room back after the answer, so the next upload may still be refused.
        while not _upload(server, head + bytes(3 * MEGABYTE)).startswith(b"HTTP/1.1 200"):
            pass

    assert told.startswith(b"HTTP/1.1 503")
    assert b"\nRetry-After: 5" in told


def _upload(server: RestServer, request: bytes) -> bytes:
    """Return the first bytes of the answer to a request on a connection of its own; none if that is reset."""
    with _connected(server) as connection, suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(request)
        return connection.recv(65536)
    return b""


def test_a_budget_gives_back_what_was_taken() -> None:
    """Strangers have half of it; what does not fit is not taken at all."""
    budget = Budget(100)
    with budget.account(stranger=True) as stranger, budget.account(stranger=False) as known:
        stranger.take(50)
        with pytest.raises(HttpError, match="the bodies of other requests"):
            stranger.take(1)
        known.take(50)
        with pytest.raises(HttpError, match="the bodies of other requests"):
            known.take(1)
        known.take(-20)
        known.take(20)
        assert budget.taken == 100
    assert budget.taken == 0


# Connections.


class _Turned:
    """A server whose loop the test turns, on a clock that the test moves."""

    def __init__(
        self, stack: ExitStack, limits: ConnectionLimits, handler: Callable[[Request], object] = _echo
    ) -> None:
        self.clock = VirtualClock()
        route = Route(method="GET", path="/thing", handler=handler, summary="x", public=True)
        app = make_app([route], AccessRules(token=TOKEN), Limits())
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.serving = WaitressServer.on(
            listening, app, check_head=app.check_head, most=2, limits=limits, clock=self.clock
        )
        self._stack = stack
        stack.callback(self._end)

    def connect(self, sent: bytes = b"") -> socket.socket:
        """A connection that the server has accepted, and bytes over it."""
        connection = self._stack.enter_context(closing(socket.create_connection(("127.0.0.1", self.port), timeout=20)))
        connection.sendall(sent)
        self.serving.step(timeout=1)
        self.serving.step(timeout=0)
        return connection

    def is_open(self, connection: socket.socket) -> bool:
        """Whether the server still has it."""
        name = connection.getsockname()
        return any(channel.addr == name for channel in self.serving.active_channels.values())

    def wait(self, seconds: float) -> None:
        """Let time go by."""
        self.clock.advance(seconds)
        self.serving.step(timeout=0)

    def _end(self) -> None:
        self.serving.stop_listening()
        self.serving.abandon()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what a test opens."""
    with ExitStack() as found:
        yield found


def test_idle_connections_beyond_the_bound_are_closed_oldest_first(stack: ExitStack) -> None:
    """However many come from one address, the newest is served."""
    turned = _Turned(stack, ConnectionLimits(most=100, per_address=8))
    idle = []
    for _ in range(30):
        idle.append(turned.connect())
        turned.clock.advance(0.1)
    connection = turned.connect(b"GET /thing HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while not turned.serving.is_busy() and not _arrived(connection):
        turned.serving.step(timeout=1)
    while not _arrived(connection):
        turned.serving.step(timeout=1)

    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    assert [turned.is_open(each) for each in idle] == [False] * 23 + [True] * 7
    assert idle[0].recv(1) == b""


def test_a_head_has_a_time_limit(stack: ExitStack) -> None:
    """Also one that comes byte by byte, which never stands still."""
    turned = _Turned(stack, ConnectionLimits(head=15))
    silent, slow = turned.connect(), turned.connect(b"GET /thing HTTP/1.1\r\n")
    for _ in range(14):
        slow.sendall(b"X")
        turned.serving.step(timeout=1)
        turned.wait(1)
    assert turned.is_open(silent)
    assert turned.is_open(slow)
    turned.wait(2)

    assert not turned.is_open(silent)
    assert not turned.is_open(slow)


def test_a_request_that_runs_has_none(stack: ExitStack) -> None:
    """An answer takes as long as it takes; the connection is kept for a while after it."""
    begun, end = threading.Event(), threading.Event()

    def hold(_: Request) -> None:
        begun.set()
        assert end.wait(60)

    turned = _Turned(stack, ConnectionLimits(), hold)
    connection = turned.connect(b"GET /thing HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert begun.wait(20)
    turned.wait(100_000)
    assert turned.is_open(connection)
    end.set()
    while not _arrived(connection):
        turned.serving.step(timeout=1)
    while turned.serving.is_busy():
        turned.serving.step(timeout=1)
    turned.wait(100)
    assert turned.is_open(connection)
    turned.wait(30)

    assert not turned.is_open(connection)


def test_an_answer_that_is_not_read_is_not_kept_for_ever(stack: ExitStack) -> None:
    """Its thread is free again, and what it makes the answer from is closed."""
    ended = threading.Event()

    def endless(_: Request) -> Response:
        def chunks() -> Iterator[bytes]:
            try:
                while True:
                    yield bytes(MEGABYTE)
            finally:
                ended.set()

        return Response(body=chunks())

    turned = _Turned(stack, ConnectionLimits(still=60), endless)
    connection = turned.connect(b"GET /thing HTTP/1.1\r\nHost: localhost\r\n\r\n")
    channel = next(iter(turned.serving.active_channels.values()))
    while channel.total_outbufs_len < 2 * MEGABYTE:
        turned.serving.step(timeout=0.1)
    for _ in range(50):
        turned.serving.step(timeout=0)
    turned.wait(61)

    assert not turned.is_open(connection)
    assert ended.wait(20)


def _arrived(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(20)
