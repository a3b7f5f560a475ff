"""What a request without a credential may use: connections, time, bytes that are read, memory."""

import gzip
import http.client
import random
import select
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.auth import AccessRules, cookie_value
from dropflow.api.bottle_app import make_app
from dropflow.api.request_bodies import Budget
from dropflow.api.routes import Limits, Request, Response, Route
from dropflow.api.serving import RestServer
from dropflow.api.waitress_server import ConnectionLimits, ConnectionState, WaitressServer, is_overdue, surplus
from dropflow.errors import HttpError
from tests.http_server import ask, serve
from tests.virtual_clock import VirtualClock

TOKEN = "a-token"
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
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def _sent(server: RestServer, *lines: str, body: bytes = b"", host: str = "localhost") -> bytes:
    """Return all that the server answers to these lines and body, until it closes the connection."""
    with _connected(server) as connection:
        connection.sendall("\r\n".join([lines[0], f"Host: {host}", *lines[1:], "", ""]).encode("latin-1") + body)
        return _received(connection)


def _received(connection: socket.socket) -> bytes:
    """Return all bytes until the end, or until a server that did not read all of a body resets the connection."""
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
    "unknown path, with a token": (["POST /nothing HTTP/1.1", BEARER, HUGE], 404),
    "unknown path, no token": (["POST /nothing HTTP/1.1", HUGE], 401),
    "wrong method, with a token": (["PUT /thing HTTP/1.1", BEARER, HUGE], 405),
    "too large": (["POST /thing HTTP/1.1", BEARER, HUGE], 413),
    "too large, public": (["POST /public HTTP/1.1", HUGE], 413),
    "too large for a form": (["POST /form HTTP/1.1", BEARER, "Content-Length: 100000"], 413),
    "body of a GET": (["GET /thing HTTP/1.1", BEARER, HUGE], 413),
    "length and chunked": (["POST /thing HTTP/1.1", HUGE, CHUNKED], 401),
    "bytes in headers": (["POST /thing HTTP/1.1", "Origin: \xff", "Cookie: \xfe", HUGE], 403),
}


@pytest.mark.slow
@pytest.mark.parametrize(("lines", "status"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_needs_only_the_head(server: RestServer, lines: list[str], status: int) -> None:
    """The server answers once, without "100 Continue" and without the body, and closes the connection."""
    answer = _sent(server, *lines)

    assert answer.startswith(b"HTTP/1."), answer
    assert int(answer.split()[1]) == status
    assert answer.count(b"HTTP/1.") == 1
    assert b"\nConnection: close\r\n" in answer


@pytest.mark.slow
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
def test_malformed_heads_are_refused(
    server: RestServer, caplog: pytest.LogCaptureFixture, lines: list[str], status: int
) -> None:
    """They are refused with a status, and nothing is logged."""
    answer = _sent(server, *lines, *(["Connection: close"] if status == 415 else []), body=b"x")

    assert int(answer.split()[1]) == status
    assert caplog.records == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", [HUGE, CHUNKED])
def test_a_body_without_a_token_is_not_read(server: RestServer, kind: str) -> None:
    """The server reads no more than the socket buffers hold, and the refusal arrives."""
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


@pytest.mark.slow
def test_the_body_of_a_refused_request_is_not_parsed(server: RestServer) -> None:
    """A body that looks like a request is not answered."""
    inner = f"GET /thing HTTP/1.1\r\nHost: localhost\r\n{BEARER}\r\n\r\n".encode()
    for lines in (["POST /thing HTTP/1.1", HUGE], ["POST /thing HTTP/1.1", CHUNKED]):
        for body in (inner, b"0\r\n\r\n" + inner, inner * 3):
            assert _sent(server, *lines, body=body).count(b"HTTP/1.1 ") == 1


@pytest.mark.slow
def test_requests_before_a_refused_one_are_answered(server: RestServer) -> None:
    """Pipelined requests are answered in order, up to the refused one."""
    first = f"GET /thing HTTP/1.1\r\nHost: localhost\r\n{BEARER}\r\n\r\n"
    second = f"POST /thing HTTP/1.1\r\nHost: localhost\r\n{HUGE}\r\n\r\n"
    with _connected(server) as connection:
        connection.sendall((first + second).encode())
        answer = _received(connection)

    assert [part.split()[0] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"401"]


@pytest.mark.slow
def test_a_small_refused_body_keeps_the_connection(server: RestServer) -> None:
    """After a refused request with a small body the connection is used again."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for _ in range(3):
        connection.request("POST", "/thing", bytes(1000))
        kept = connection.sock
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, connection.sock) == (401, kept)
    connection.close()


@pytest.mark.slow
def test_expect_100_continue_is_answered(server: RestServer) -> None:
    """The server sends "100 Continue" for a request that it accepts, and then reads the body."""
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


NOISE = random.Random(1).randbytes(MEGABYTE // 16)


def _chunks(size: int, number: int) -> bytes:
    return (f"{size:x}\r\n".encode() + bytes(size) + b"\r\n") * number


ENDED = {
    "grows too large": (_chunks(MEGABYTE, 9), 413),
    "is as large as allowed": (_chunks(MEGABYTE, 8) + b"0\r\n\r\n", 200),
    "has a long line": (b"1;" + b"x" * 9000, 400),
    "has a long trailer": (b"0\r\n" + b"X: y\r\n" * 9000, 400),
    "is not chunked": (b"what is this\r\n", 400),
}


@pytest.mark.slow
@pytest.mark.parametrize(("body", "status"), ENDED.values(), ids=ENDED)
def test_a_chunked_body_is_limited_while_it_arrives(server: RestServer, body: bytes, status: int) -> None:
    """Its data, chunk headers and trailer are limited."""
    answer = _sent(server, "POST /public HTTP/1.1", CHUNKED, "Connection: close", body=body)

    assert int(answer.split()[1]) == status


class _Held:
    """Handlers of a public route and one that needs the token. They wait until the test ends them."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.end = threading.Event()

    def routes(self) -> list[Route]:
        def hold(_: Request) -> None:
            self.begun.release()
            assert self.end.wait(60)

        return [
            Route(method="POST", path=f"/{name}", handler=hold, summary="x", public=name == "public")
            for name in ("public", "private")
        ]


@pytest.mark.slow
def test_decompressed_bodies_share_a_budget() -> None:
    """Small requests that decompress to too much get 503; requests with the token have a reserve."""
    held = _Held()
    limits = Limits(body=4 * MEGABYTE, together=16 * MEGABYTE, streams=8)
    bomb = gzip.compress(NOISE + bytes(3 * MEGABYTE))
    packed = {"Content-Encoding": "gzip"}
    known = packed | {"Authorization": f"Bearer {TOKEN}"}
    found: list[int] = []
    with serve(held.routes(), access=AccessRules(token=TOKEN), limits=limits) as server:

        def post(path: str, headers: dict[str, str]) -> threading.Thread:
            def send() -> None:
                found.append(ask(server.url, "POST", path, headers=headers, body=bomb).status)

            thread = threading.Thread(target=send)
            thread.start()
            held.begun.acquire(timeout=60)
            return thread

        threads = [post("/public", packed) for _ in range(2)]
        refused = [ask(server.url, "POST", "/public", headers=packed, body=bomb) for _ in range(10)]
        threads += [post("/private", known) for _ in range(2)]
        also_refused = ask(server.url, "POST", "/private", headers=known, body=bomb)
        held.end.set()
        for thread in threads:
            thread.join()
        again = ask(server.url, "POST", "/public", headers=packed, body=bomb)

    assert {(reply.status, reply.headers["Retry-After"]) for reply in refused} == {(503, "5")}
    assert also_refused.status == 503
    assert found == [200] * 4
    assert again.status == 200


@pytest.mark.slow
def test_a_body_may_not_unpack_to_many_times_its_size() -> None:
    """More than 200 times its size is refused; a small body may have any ratio."""
    packed = {"Content-Encoding": "gzip", "Authorization": f"Bearer {TOKEN}"}
    dense, small = gzip.compress(bytes(7 * MEGABYTE)), gzip.compress(bytes(MEGABYTE // 2))
    usual = gzip.compress(NOISE + bytes(6 * MEGABYTE))
    route = Route(method="POST", path="/private", handler=lambda _: None, summary="x")
    with serve([route], access=AccessRules(token=TOKEN), limits=Limits(body=8 * MEGABYTE)) as server:
        found = [ask(server.url, "POST", "/private", headers=packed, body=body) for body in (dense, small, usual)]

    assert [reply.status for reply in found] == [413, 200, 200]
    assert f"larger than {200 * len(dense)} bytes" in found[0].json["error"]["text"]


@pytest.mark.slow
def test_the_memory_of_a_large_request_is_given_back_at_once() -> None:
    """What a handler leaves behind in a reference cycle does not wait for the garbage collector."""

    class Loop:
        def __init__(self) -> None:
            self.own = self

    left: list[weakref.ref[Loop]] = []

    def handle(_: Request) -> None:
        loop = Loop()
        left.append(weakref.ref(loop))
        raise HttpError(400, "refused")

    route = Route(method="POST", path="/x", handler=handle, summary="x", public=True)
    with serve([route], limits=Limits(body=40 * MEGABYTE, together=200 * MEGABYTE)) as server:
        assert ask(server.url, "POST", "/x", body=bytes(33 * MEGABYTE)).status == 400

    assert [one() for one in left] == [None]


@pytest.mark.slow
def test_bodies_share_a_budget_while_they_are_received() -> None:
    """An upload that exceeds the budget is refused while others are unfinished."""
    limits = Limits(body=4 * MEGABYTE, together=8 * MEGABYTE, streams=4)
    head = f"POST /public HTTP/1.1\r\nHost: localhost\r\nContent-Length: {3 * MEGABYTE}\r\n\r\n".encode()
    with serve(ROUTES, access=AccessRules(token=TOKEN), limits=limits) as server, ExitStack() as stack:
        both = [stack.enter_context(_connected(server)) for _ in range(2)]
        for each in both:
            with suppress(ConnectionResetError, BrokenPipeError):  # the server may refuse it while it is being sent
                each.sendall(head + bytes(3 * MEGABYTE - 1))
        (refused,), _, _ = select.select(both, [], [], 20)
        answer = refused.recv(65536)
        (other,) = [each for each in both if each is not refused]
        other.sendall(b"x")
        assert other.recv(65536).startswith(b"HTTP/1.1 200")
        # The server gives the room back after the answer, so the next upload may still be refused.
        while not _upload(server, head + bytes(3 * MEGABYTE)).startswith(b"HTTP/1.1 200"):
            pass

    assert answer.startswith(b"HTTP/1.1 503")
    assert b"\nRetry-After: 5" in answer


def _upload(server: RestServer, request: bytes) -> bytes:
    """Return the first bytes of the answer to a request on a connection of its own; none if the connection is reset."""
    with _connected(server) as connection, suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(request)
        return connection.recv(65536)
    return b""


@pytest.mark.slow
def test_a_budget_is_return() -> None:
    """Requests without a token get half of it; what does not fit is refused as a whole."""
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


class _SteppedServer:
    """A server whose loop the test steps, on a virtual clock."""

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
        """Return a connection that the server has accepted, with these bytes sent."""
        connection = self._stack.enter_context(closing(socket.create_connection(("127.0.0.1", self.port), timeout=60)))
        connection.sendall(sent)
        self.serving.step(timeout=1)
        self.serving.step(timeout=0)
        return connection

    def is_open(self, connection: socket.socket) -> bool:
        """Return whether the server has the connection."""
        name = connection.getsockname()
        return any(channel.addr == name for channel in self.serving.active_channels.values())

    def wait(self, seconds: float) -> None:
        """Advance the clock and step the loop."""
        self.clock.advance(seconds)
        self.serving.step(timeout=0)

    def _end(self) -> None:
        self.serving.stop_listening()
        self.serving.abandon()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Close what a test opens."""
    with ExitStack() as found:
        yield found


@pytest.mark.slow
def test_the_oldest_idle_connections_are_closed(stack: ExitStack) -> None:
    """A new connection is served, whatever the number of idle ones from its address."""
    server = _SteppedServer(stack, ConnectionLimits(most=100, per_address=8))
    idle = []
    for _ in range(30):
        idle.append(server.connect())
        server.clock.advance(0.1)
    connection = server.connect(b"GET /thing HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while not server.serving.is_busy() and not _arrived(connection):
        server.serving.step(timeout=1)
    while not _arrived(connection):
        server.serving.step(timeout=1)

    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    assert [server.is_open(each) for each in idle] == [False] * 23 + [True] * 7
    assert idle[0].recv(1) == b""


def test_a_connection_that_cannot_be_accepted_is_tried_again_after_a_second(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process without a free descriptor does not fill its log, nor use a processor, while a client waits."""
    server = _SteppedServer(stack, ConnectionLimits())

    def accept(_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as lacking:
        lacking.setattr("waitress.wasyncore.dispatcher.accept", accept)
        connection = server.connect()
        for _ in range(20):
            server.serving.step(timeout=0)
    assert len(caplog.records) == 1
    server.wait(1.0)

    assert server.is_open(connection)


@pytest.mark.slow
def test_a_head_has_a_time_limit(stack: ExitStack) -> None:
    """A head that arrives byte by byte has the same limit as none."""
    server = _SteppedServer(stack, ConnectionLimits(head=15))
    silent, slow = server.connect(), server.connect(b"GET /thing HTTP/1.1\r\n")
    for _ in range(14):
        slow.sendall(b"X")
        server.serving.step(timeout=1)
        server.wait(1)
    assert server.is_open(silent)
    assert server.is_open(slow)
    server.wait(2)

    assert not server.is_open(silent)
    assert not server.is_open(slow)


@pytest.mark.slow
def test_a_running_request_has_no_time_limit(stack: ExitStack) -> None:
    """An answer may take any time; the connection is kept for a while after it."""
    begun, end = threading.Event(), threading.Event()

    def hold(_: Request) -> None:
        begun.set()
        assert end.wait(60)

    server = _SteppedServer(stack, ConnectionLimits(), hold)
    connection = server.connect(b"GET /thing HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert begun.wait(60)
    server.wait(100_000)
    assert server.is_open(connection)
    end.set()
    while not _arrived(connection):
        server.serving.step(timeout=1)
    while server.serving.is_busy():
        server.serving.step(timeout=1)
    server.wait(100)
    assert server.is_open(connection)
    server.wait(30)

    assert not server.is_open(connection)


@pytest.mark.slow
def test_an_answer_that_is_not_read_is_abandoned(stack: ExitStack) -> None:
    """The connection and the source of the answer are closed."""
    ended = threading.Event()

    def endless(_: Request) -> Response:
        def chunks() -> Iterator[bytes]:
            try:
                while True:
                    yield bytes(MEGABYTE)
            finally:
                ended.set()

        return Response(body=chunks())

    server = _SteppedServer(stack, ConnectionLimits(still=60), endless)
    connection = server.connect(b"GET /thing HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while not ended.is_set():
        server.wait(61)

    assert not server.is_open(connection)


def _arrived(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(20)


# Which connections are closed because they are too slow or too many.


LIMITS = ConnectionLimits(most=6, per_address=4, head=15, body=300, still=60, kept=120)
TIMES = {
    # what the connection does           seconds that are allowed
    "waits with its first request": ({"stage": "first"}, 15),
    "sends a head byte by byte": ({"stage": "head", "moved": 1e6}, 15),
    "waits with its next request": ({"stage": "next"}, 120),
    "sends no more of its body": ({"stage": "body"}, 60),
    "sends a body byte by byte": ({"stage": "body", "moved": 1e6}, 300),
    "sends a body with a credential": ({"stage": "body", "moved": 1e6, "is_known": True}, None),
    "is answered": ({"is_running": True}, None),
    "does not read its answer": ({"is_running": True, "has_output": True}, 60),
    "reads its answer slowly": ({"is_running": True, "has_output": True, "moved": 1e6}, None),
}


@pytest.mark.parametrize(("fields", "seconds"), TIMES.values(), ids=TIMES)
def test_each_stage_has_its_time_limit(fields: dict[str, object], seconds: float | None) -> None:
    """A connection is closed after the time limit of its stage; computing an answer has no limit."""
    connection = ConnectionState(address="a", **fields)  # type: ignore[arg-type]
    ages = [age for age in (1, 14, 16, 59, 61, 119, 121, 299, 301, 10**6) if is_overdue(connection, age, LIMITS)]

    assert ages == [age for age in (1, 14, 16, 59, 61, 119, 121, 299, 301, 10**6) if seconds and age > seconds]


def test_the_oldest_idle_connection_is_closed() -> None:
    """Among those of one address, those with a credential come last and those with a running request never."""
    connections = [
        ConnectionState(address="a", is_known=True, since=1),
        ConnectionState(address="a", is_running=True, since=2),
        ConnectionState(address="a", since=4),
        ConnectionState(address="a", since=3),
        ConnectionState(address="a", since=9),
    ]

    assert set(surplus(connections, LIMITS)) == {3}
    assert set(surplus([*connections, ConnectionState(address="a", since=10)], LIMITS)) == {2, 3}
    assert set(surplus([*connections[:2], *connections[:3]], LIMITS)) == {0}


def test_a_busy_address_does_not_exclude_others() -> None:
    """The newest connections of the busy address are closed; one of another address is kept."""
    busy = [ConnectionState(address="a", is_running=True, since=number) for number in range(6)]

    assert set(surplus(busy, LIMITS)) == {4, 5}
    assert set(surplus([*busy, ConnectionState(address="b", since=9)], LIMITS)) == {4, 5}


_CONNECTIONS = st.lists(
    st.builds(
        ConnectionState,
        address=st.sampled_from("abc"),
        is_known=st.booleans(),
        is_running=st.booleans(),
        since=st.integers(0, 9).map(float),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(_CONNECTIONS)
def test_the_limits_hold_and_no_more_is_closed(connections: list[ConnectionState]) -> None:
    """The limits in total and per address hold, and no more connections are closed than necessary."""
    chosen = surplus(connections, LIMITS)
    left = [connection for place, connection in enumerate(connections) if place not in chosen]
    fit = {address: min(4, sum(connection.address == address for connection in connections)) for address in "abc"}

    assert len(left) == min(6, sum(fit.values()))
    assert all(sum(connection.address == address for connection in left) <= 4 for address in "abc")


_RACE = """
import sys, threading
import msgspec
from dropflow.api.serving import prepare_records

sys.setswitchinterval(1e-5)
records = []
for _ in range(40):
    inner = msgspec.defstruct("Inner", [(f"a{k}", int, 0) for k in range(20)])
    record = msgspec.defstruct("Record", [(f"f{k}", list[inner] | None, None) for k in range(20)])
    records.append((record, msgspec.msgpack.encode(record([inner()]))))
prepare_records()
for record, data in records:
    ready = threading.Barrier(4)
    def decode():
        ready.wait()
        msgspec.msgpack.decode(data, type=record)
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.slow
def test_records_are_prepared_before_threads_decode_them() -> None:
    """Without that, the process ends with a segmentation fault within the first ten records."""
    done = subprocess.run([sys.executable, "-c", _RACE], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
