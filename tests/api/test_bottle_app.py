"""Routes, requests and answers."""

import gzip
import http.client
import json
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from urllib.parse import quote

import bottle
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api import request_bodies
from dropflow.api.auth import AccessRules
from dropflow.api.bottle_app import RestApp, make_app
from dropflow.api.error_pages import relative_page
from dropflow.api.routes import Limits, Request, Response, Route, StreamSlots
from dropflow.api.serving import RestServer
from dropflow.errors import BadGraphError, ConflictError, HttpError, UsageError
from dropflow.failure import Problem, Severity
from tests.http_server import ReceivedResponse, ask, serve

LIMIT = 10_000
DEPTH = 20


class Number(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record for queries, bodies and answers."""

    value: int = 0
    deep: list[object] = []


def _fail(error: BaseException) -> Route:
    def handler(_: Request) -> object:
        raise error

    return Route(method="GET", path="/fail", handler=handler, summary="fails")


def _broken(_: Request) -> Response:
    def chunks() -> Iterator[bytes]:
        raise ConflictError("not before it began")
        yield b""

    return Response(body=chunks())


def _cut(_: Request) -> Response:
    def chunks() -> Iterator[bytes]:
        yield b"x" * 10
        raise RuntimeError("in the middle")

    return Response(body=chunks(), headers=(("Content-Length", "20"),))


ROUTES = [
    Route(method="POST", path="/echo", handler=lambda call: Response(body=call.body), summary="bytes"),
    Route(method="POST", path="/raw", handler=lambda call: Response(body=call.body), summary="raw JSON", json=True),
    Route(method="GET", path="/query", handler=lambda call: call.query, summary="query", query=Number, answer=Number),
    Route(method="POST", path="/json", handler=lambda call: call.body, summary="body", body=Number, status=201),
    Route(method="GET", path="/name/{name}/end", handler=lambda call: Response(body=call.path["name"]), summary="name"),
    Route(method="GET", path="/broken", handler=_broken, summary="fails at its beginning"),
    Route(method="GET", path="/cut", handler=_cut, summary="fails in the middle"),
    Route(method="GET", path="/null", handler=lambda _: None, summary="no answer"),
    Route(method="POST", path="/small", handler=lambda call: Response(body=call.body), summary="little", limit=10),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RestServer]:
    """A server with all routes above and small limits."""
    with serve(ROUTES, limits=Limits(body=LIMIT, depth=DEPTH, streams=4)) as found:
        yield found


def _post(server: RestServer, body: bytes, encoding: str = "", path: str = "/echo") -> ReceivedResponse:
    headers = {"Content-Encoding": encoding} if encoding else {}
    return ask(server.url, "POST", path, headers=headers, body=body)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zlib", "x-gzip"])
@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_compressed_bodies_are_read(server: RestServer, encoding: str, pack: object) -> None:
    """Streams of zlib and gzip are read under either name, because DALiuGE's client sends zlib as gzip."""
    assert _post(server, pack(b"content"), encoding).body == b"content"  # type: ignore[operator]


def test_gzip_files_of_several_members_are_read(server: RestServer) -> None:
    """All members are decompressed, as gzip does."""
    assert _post(server, gzip.compress(b"a") + gzip.compress(b"b"), "gzip").body == b"ab"


def test_what_follows_a_member_is_not_copied_for_each(server: RestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of many empty members, which any user may send, takes a time in proportion to its length."""
    fed: list[int] = []

    class Unpack:
        def __init__(self, **given: int) -> None:
            self._inner = zlib.decompressobj(**given)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def decompress(self, data: bytes, most: int) -> bytes:
            fed.append(len(data))
            return self._inner.decompress(data, most)

    known = {"decompressobj": Unpack, "error": zlib.error, "MAX_WBITS": zlib.MAX_WBITS}
    monkeypatch.setattr(request_bodies, "zlib", SimpleNamespace(**known))
    monkeypatch.setattr(request_bodies, "_FED_BYTES", 64)
    body = gzip.compress(b"") * 400 + gzip.compress(b"end")

    assert _post(server, body, "gzip").body == b"end"
    assert _post(server, gzip.compress(bytes(range(256)) * 30), "gzip").body == bytes(range(256)) * 30
    assert max(fed) <= 64


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_bodies_that_decompress_to_too_much_are_refused(server: RestServer, pack: object) -> None:
    """The limit holds for the decompressed body, of one member and of many, with 413."""
    bomb = pack(bytes(LIMIT + 1))  # type: ignore[operator]

    assert len(bomb) < 100
    assert _post(server, bomb, "gzip").status == 413
    assert _post(server, gzip.compress(bytes(LIMIT // 2)) * 3, "gzip").status == 413


def test_limits_of_bodies(server: RestServer) -> None:
    """A body of the limit is accepted, one byte more is not; a route may have its own limit."""
    assert _post(server, bytes(LIMIT)).status == 200
    assert _post(server, bytes(LIMIT + 1)).status == 413
    assert _post(server, bytes(10), path="/small").status == 200
    assert _post(server, bytes(11), path="/small").status == 413


def test_damaged_and_unknown_encodings_are_refused(server: RestServer) -> None:
    """A damaged body and an unknown encoding have different statuses."""
    assert _post(server, b"no stream", "gzip").status == 400
    assert _post(server, gzip.compress(b"content")[:-4], "gzip").status == 400
    assert _post(server, b"content", "br").status == 415


def test_chunked_bodies_are_read(server: RestServer) -> None:
    """A chunked body is read to its end, within the same limit."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/echo", body=iter([b"abc"] * 5), encode_chunked=True)
    assert connection.getresponse().read() == b"abc" * 5
    connection.request("POST", "/echo", body=iter([bytes(1000)] * 11), encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.slow
@given(st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable()))
def test_names_in_paths_may_have_any_characters(server: RestServer, name: str) -> None:
    """Quoted slashes, dots, question marks and all scripts arrive unchanged."""
    segment = quote(name, safe="") if name not in (".", "..") else name.replace(".", "%2E")
    reply = ask(server.url, "GET", f"/name/{segment}/end")

    assert (reply.status, reply.body.decode()) == (200, name)


def test_a_path_that_is_not_utf_8_is_refused(server: RestServer) -> None:
    """A path whose bytes are not UTF-8 has no route."""
    assert ask(server.url, "GET", "/name/%ff%fe/end").status == 400


def test_queries_and_bodies_are_checked(server: RestServer) -> None:
    """A value that does not match the struct is refused with 400 and its place."""
    assert ask(server.url, "GET", "/query?value=3").json == {"ok": True, "value": 3, "deep": []}
    for target in ("/query?value=x", "/query?other=1"):
        assert ask(server.url, "GET", target).json["error"]["code"] == "DF300"
    assert _post(server, b'{"value": 4}', path="/json").status == 201
    for body in (b'{"value": "x"}', b"{", b'{"a": 1}', b"\xff", b"[]"):
        reply = _post(server, body, path="/json")
        assert (reply.status, reply.json["ok"]) == (400, False)


def _nested(levels: int) -> bytes:
    """Return a body for ``/json`` with this many levels of nesting."""
    return b'{"deep": ' + b"[" * (levels - 1) + b'"[[[["' + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress], ids=["plain", "gzip", "zlib"])
def test_the_depth_of_json_is_limited(server: RestServer, pack: object) -> None:
    """The limit is accepted, one level more is not, compressed or not; brackets in strings do not count."""
    encoding = "" if pack is bytes else "gzip"
    taken, refused = (
        _post(server, pack(_nested(levels)), encoding, path="/json")  # type: ignore[operator]
        for levels in (DEPTH, DEPTH + 1)
    )

    assert taken.status == 201
    assert (refused.status, refused.json["error"]["code"]) == (400, "DF300")
    assert f"{DEPTH + 1} levels deep" in refused.json["error"]["text"]
    assert f"takes {DEPTH}" in refused.json["error"]["text"]
    assert refused.json["error"]["hint"]


def test_a_route_can_have_its_json_checked(server: RestServer) -> None:
    """The depth is checked if the route says that its body is JSON, and otherwise not."""
    deep = b"[" * (DEPTH + 1)

    assert _post(server, deep, path="/raw").status == 400
    assert _post(server, deep[1:], path="/raw").body == deep[1:]
    assert _post(server, deep).body == deep


def test_extreme_depth_is_refused(server: RestServer) -> None:
    """The server refuses it before a parser reads it, and answers the next request."""
    assert _post(server, b"[" * LIMIT, path="/json").status == 400
    assert ask(server.url, "GET", "/query").status == 200


def test_a_wrong_method_is_answered_with_the_right_ones(server: RestServer) -> None:
    """405 and the answer to OPTIONS name the methods."""
    refused, options = ask(server.url, "DELETE", "/query"), ask(server.url, "OPTIONS", "/query")

    assert (refused.status, options.status) == (405, 204)
    assert "GET" in refused.headers["Allow"]
    assert options.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_head_is_get_without_the_body(server: RestServer) -> None:
    """HEAD has the status and length of GET."""
    get, head = ask(server.url, "GET", "/query"), ask(server.url, "HEAD", "/query")

    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", get.headers["Content-Length"])


def test_every_answer_has_the_security_headers(server: RestServer) -> None:
    """Answers, refusals and unknown paths have them."""
    for target in ("/query", "/query?value=x", "/nothing"):
        headers = ask(server.url, "GET", target).headers
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_pages_of_allowed_sites_may_read_answers() -> None:
    """CORS headers are sent to the origins on the list, and to no other."""
    access = AccessRules(token=None, origins=frozenset({"https://eagle.example"}))
    with serve(ROUTES, access=access) as server:
        allowed = ask(server.url, "GET", "/query", headers={"Origin": "https://eagle.example"})
        preflight = ask(server.url, "OPTIONS", "/json", headers={"Origin": "https://eagle.example"})
        other = ask(server.url, "GET", "/query", headers={"Origin": "https://evil.example"})

    assert allowed.headers["Access-Control-Allow-Origin"] == "https://eagle.example"
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    assert "Access-Control-Allow-Origin" not in other.headers


def test_the_body_of_an_error() -> None:
    """The class determines the status; the body has code, kind, text, where, hint and problems."""
    problem = Problem(code="LG001", severity=Severity.ERROR, where="/nodes/1", text="bad", hint="mend it")
    error = BadGraphError("LG001 bad", problems=(problem,), where="g.graph", hint="mend it")
    with serve([_fail(error)]) as server:
        reply = ask(server.url, "GET", "/fail")

    assert reply.status == 422
    assert reply.json["ok"] is False
    assert reply.json["error"] | {"problems": 0} == {
        "code": "DF101",
        "kind": "BadGraphError",
        "text": "LG001 bad",
        "where": "g.graph",
        "hint": "mend it",
        "problems": 0,
    }
    assert reply.json["error"]["problems"][0]["where"] == "/nodes/1"


def test_a_bug_is_answered_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The answer has a reference, and the log has the traceback under it."""
    with serve([_fail(ZeroDivisionError("secret detail"))]) as server:
        reply = ask(server.url, "GET", "/fail")

    assert reply.status == 500
    assert b"secret detail" not in reply.body
    reference = reply.json["error"]["text"].split("reference ")[1].rstrip(")")
    assert reference in caplog.text
    assert "secret detail" in caplog.text


def test_a_lone_surrogate_in_an_error_is_answered() -> None:
    """An error with a file name that is not UTF-8 keeps its code, and a question mark is in its text."""
    with serve([_fail(ConflictError("file \udcff is there", where="/\udcff"))]) as server:
        reply = ask(server.url, "GET", "/fail")

    assert reply.status == 409
    error = reply.json["error"]
    assert (error["code"], error["text"], error["where"]) == (ConflictError.code, "file ? is there", "/?")


@pytest.mark.parametrize("name", ["href", "src", "action", "formaction", "data-api", "data-picture", "data-preview"])
def test_addresses_in_pages_are_relative(name: str) -> None:
    """Links, forms, their buttons, and what scripts ask for: a proxy may serve them all below a path of its own."""
    page = f'<p {name}="/sessions/s?a=/b" title="/"> {name}="//host/"'

    assert relative_page(page, "/sessions/s/drops/d?x=/y") == page.replace('"/sess', '"../../../sess')


def test_browsers_get_errors_as_pages() -> None:
    """Clients that accept HTML get a page, in which the text is escaped; others get JSON."""
    with serve([_fail(ConflictError("<script>alert(1)</script>"))]) as server:
        page = ask(server.url, "GET", "/fail", headers={"Accept": "text/html"})
        data = ask(server.url, "GET", "/fail")

    assert page.headers["Content-Type"].startswith("text/html")
    assert b"<script>" not in page.body
    assert json.loads(data.body)["error"]["code"] == "DF108"


def test_a_download_that_fails_before_its_first_byte_has_a_status(server: RestServer) -> None:
    """The status is that of the error."""
    assert ask(server.url, "GET", "/broken").status == 409


def test_a_download_that_fails_in_the_middle_is_cut_off(server: RestServer) -> None:
    """The client receives fewer bytes than announced."""
    with pytest.raises(http.client.IncompleteRead, match="10 more expected"):
        ask(server.url, "GET", "/cut")


def test_an_answer_of_none_is_ok(server: RestServer) -> None:
    """A handler that returns None is answered with the envelope alone."""
    assert ask(server.url, "GET", "/null").json == {"ok": True}


# Streams and closing.


def _endless(streams: StreamSlots, begun: threading.Event) -> Route:
    def chunks() -> Iterator[bytes]:
        while True:
            begun.set()
            yield b"data: x\n\n"
            streams.closing.wait(0.05)

    def handler(_: Request) -> Response:
        return Response(body=streams.hold(chunks()), content_type="text/event-stream")

    return Route(method="GET", path="/stream", handler=handler, summary="endless")


def _open(server: RestServer) -> socket.socket:
    wire = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    wire.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return wire


def test_the_number_of_streams_is_limited() -> None:
    """One too many is refused with 503; when a client disconnects, its slot is free."""
    streams, begun = StreamSlots(1), threading.Event()
    with serve([_endless(streams, begun)], streams=streams) as server:
        with _open(server) as wire:
            assert wire.recv(10)
            assert ask(server.url, "GET", "/stream").status == 503
        assert _is_free(streams)


def _is_free(streams: StreamSlots) -> bool:
    """Return whether a slot becomes free within a minute."""
    for _ in range(6000):
        try:
            with streams.slot():
                return True
        except HttpError:
            threading.Event().wait(0.01)
    return False


def test_head_of_a_stream_takes_no_slot() -> None:
    """The stream does not run."""
    streams, begun = StreamSlots(1), threading.Event()
    with serve([_endless(streams, begun)], streams=streams) as server:
        assert ask(server.url, "HEAD", "/stream").status == 200
        assert _is_free(streams)


def test_closing_ends_streams_and_frees_the_port() -> None:
    """Open streams end, and new connections are refused."""
    streams, begun = StreamSlots(2), threading.Event()
    with serve([_endless(streams, begun)], streams=streams) as server:
        wire = _open(server)
        assert begun.wait(60)
        server.close()
        while wire.recv(65536):
            pass
        wire.close()
        with pytest.raises(ConnectionRefusedError, match="refused"):
            ask(server.url, "GET", "/query")
        server.close()


@pytest.mark.slow
def test_closing_does_not_wait_for_handlers() -> None:
    """The server closes although a handler does not return."""
    begun, end = threading.Event(), threading.Event()

    def handler(_: Request) -> object:
        begun.set()
        end.wait(60)
        return None

    with serve([Route(method="GET", path="/stream", handler=handler, summary="waits")]) as server:
        wire = _open(server)
        assert begun.wait(60)
        server.close()
        assert wire.recv(100) == b""
        wire.close()
    end.set()


def test_requests_on_open_connections_are_refused_while_closing() -> None:
    """A client with an open connection gets 503 and the reason, not a broken connection."""
    streams, begun, end = StreamSlots(2), threading.Event(), threading.Event()

    def handler(_: Request) -> object:
        begun.set()
        end.wait(60)
        return None

    routes = [*ROUTES, Route(method="GET", path="/stream", handler=handler, summary="holds the server open")]
    with serve(routes, streams=streams) as server, closing(_open(server)):
        assert begun.wait(60)
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
            connection.request("GET", "/query")
            connection.getresponse().read()
            ending = threading.Thread(target=server.close)
            ending.start()
            assert streams.closing.wait(60)
            connection.request("GET", "/query")
            response = connection.getresponse()
            body = response.read()
        end.set()
        ending.join()

    assert (response.status, json.loads(body)["error"]["text"]) == (503, "the server is closing")


@pytest.mark.slow
def test_patterns_of_routes_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all of them anew for each route, as bottle does: a manager has hundreds, and starts 0.3 s later then."""
    compiled: list[str] = []
    compiles = bottle.Router._compile
    monkeypatch.setattr(
        bottle.Router, "_compile", lambda router, method: compiled.append(method) or compiles(router, method)
    )
    routes = [
        Route(method="GET", path=f"/{number}/{{name}}", handler=lambda _: None, summary="") for number in range(300)
    ]
    make_app(routes, AccessRules(token=None), Limits())

    assert sorted(compiled) == ["GET", "OPTIONS"]


def _nothing() -> RestApp:
    return make_app([], AccessRules(token=None), Limits())


def test_a_server_that_never_started_frees_its_port() -> None:
    """Closing it is enough."""
    streams = StreamSlots(1)
    server = RestServer(_nothing(), streams=streams, stream_limit=1)
    server.close()

    with socket.socket() as other:
        other.bind(("127.0.0.1", server.port))


def test_addresses_that_cannot_be_served_are_refused() -> None:
    """Without a token a server listens on loopback only; a port in use is an error."""
    with pytest.raises(UsageError, match="only listen on loopback"):
        RestServer(_nothing(), streams=StreamSlots(1), stream_limit=1, host="192.0.2.1", open_to_all=True)
    with serve(ROUTES) as server, pytest.raises(ConflictError, match="cannot listen"):
        RestServer(_nothing(), streams=StreamSlots(1), stream_limit=1, port=server.port)


def test_a_request_is_answered_although_a_thread_could_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host may have no room for threads for a moment: the next one that starts takes what waits."""
    start, refusals = threading.Thread.start, iter([RuntimeError("can't start new thread")])

    def refused_once(thread: threading.Thread) -> None:
        if thread.name.startswith("waitress") and (error := next(refusals, None)) is not None:
            raise error
        start(thread)

    with serve(ROUTES) as server, closing(socket.create_connection(("127.0.0.1", server.port), timeout=60)) as first:
        monkeypatch.setattr(threading.Thread, "start", refused_once)
        first.sendall(b"GET /null HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert ask(server.url, "GET", "/null").status == 200
        assert first.recv(100).startswith(b"HTTP/1.0 200 OK")
