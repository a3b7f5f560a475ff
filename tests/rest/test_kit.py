"""Routes, requests and answers."""

import gzip
import http.client
import json
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadGraphError, ConflictError, HttpError, UsageError, WorldError
from dropflow.problems import Problem, Severity
from dropflow.rest.auth import AccessRules
from dropflow.rest.kit import Limits, Request, Response, RestApp, Route, StreamSlots, make_app
from dropflow.rest.server import RestServer
from dropflow.testing.serving import ReceivedResponse, ask, serve

LIMIT = 10_000
DEPTH = 20


class Number(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For queries, bodies and answers."""

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
    Route(method="GET", path="/null", handler=lambda _: None, summary="nothing to tell"),
    Route(method="POST", path="/small", handler=lambda call: Response(body=call.body), summary="little", limit=10),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RestServer]:
    """All routes above, behind small limits."""
    with serve(ROUTES, limits=Limits(body=LIMIT, depth=DEPTH, streams=4)) as found:
        yield found


def _post(server: RestServer, body: bytes, encoding: str = "", path: str = "/echo") -> ReceivedResponse:
    headers = {"Content-Encoding": encoding} if encoding else {}
    return ask(server.url, "POST", path, headers=headers, body=body)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zlib", "x-gzip"])
@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_bodies_come_compressed(server: RestServer, encoding: str, pack: object) -> None:
    """Both kinds of stream are taken under any of their names: DALiuGE's client sends zlib as gzip."""
    assert _post(server, pack(b"content"), encoding).body == b"content"  # type: ignore[operator]


def test_gzip_files_of_several_members_are_whole(server: RestServer) -> None:
    """As gzip itself reads them."""
    assert _post(server, gzip.compress(b"a") + gzip.compress(b"b"), "gzip").body == b"ab"


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_bombs_are_refused(server: RestServer, pack: object) -> None:
    """A body that unpacks to more than the limit is refused with 413, alone and in many members."""
    bomb = pack(bytes(LIMIT + 1))  # type: ignore[operator]

    assert len(bomb) < 100
    assert _post(server, bomb, "gzip").status == 413
    assert _post(server, gzip.compress(bytes(LIMIT // 2)) * 3, "gzip").status == 413


def test_limits_of_bodies(server: RestServer) -> None:
    """The largest body is taken, one byte more is not; a route may have a limit of its own."""
    assert _post(server, bytes(LIMIT)).status == 200
    assert _post(server, bytes(LIMIT + 1)).status == 413
    assert _post(server, bytes(10), path="/small").status == 200
    assert _post(server, bytes(11), path="/small").status == 413


def test_damaged_and_foreign_encodings_are_refused(server: RestServer) -> None:
    """Each with the status that says what is wrong."""
    assert _post(server, b"no stream", "gzip").status == 400
    assert _post(server, gzip.compress(b"content")[:-4], "gzip").status == 400
    assert _post(server, b"content", "br").status == 415


def test_chunked_bodies_are_read(server: RestServer) -> None:
    """To their end, within the same limit."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("POST", "/echo", body=iter([b"abc"] * 5), encode_chunked=True)
    assert connection.getresponse().read() == b"abc" * 5
    connection.request("POST", "/echo", body=iter([bytes(1000)] * 11), encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


@given(st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable()))
def test_names_in_paths_may_hold_anything(server: RestServer, name: str) -> None:
    """Slashes, dots, question marks and all scripts arrive as they were quoted."""
    segment = quote(name, safe="") if name not in (".", "..") else name.replace(".", "%2E")
    reply = ask(server.url, "GET", f"/name/{segment}/end")

    assert (reply.status, reply.body.decode()) == (200, name)


def test_a_path_that_is_no_text_is_refused(server: RestServer) -> None:
    """Bytes that are not UTF-8 name nothing."""
    assert ask(server.url, "GET", "/name/%ff%fe/end").status == 400


def test_queries_and_bodies_are_checked(server: RestServer) -> None:
    """What does not fit the struct is refused with 400 and the place."""
    assert ask(server.url, "GET", "/query?value=3").json == {"ok": True, "value": 3, "deep": []}
    for target in ("/query?value=x", "/query?other=1"):
        assert ask(server.url, "GET", target).json["error"]["code"] == "DF300"
    assert _post(server, b'{"value": 4}', path="/json").status == 201
    for body in (b'{"value": "x"}', b"{", b'{"a": 1}', b"\xff", b"[]"):
        reply = _post(server, body, path="/json")
        assert (reply.status, reply.json["ok"]) == (400, False)


def _nested(levels: int) -> bytes:
    """A body for ``/json`` that is nested so many levels deep."""
    return b'{"deep": ' + b"[" * (levels - 1) + b'"[[[["' + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress], ids=["plain", "gzip", "zlib"])
def test_json_has_a_limit_of_depth(server: RestServer, pack: object) -> None:
    """The deepest body is taken, one level more is not, packed or not; brackets in strings do not count."""
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


def test_depth_is_looked_at_where_a_handler_reads_json_itself(server: RestServer) -> None:
    """A route may say so; bytes of other routes may be anything."""
    deep = b"[" * (DEPTH + 1)

    assert _post(server, deep, path="/raw").status == 400
    assert _post(server, deep[1:], path="/raw").body == deep[1:]
    assert _post(server, deep).body == deep


def test_hostile_depth_breaks_nothing(server: RestServer) -> None:
    """Nesting that no parser survives is refused before one sees it, and the server goes on."""
    assert _post(server, b"[" * LIMIT, path="/json").status == 400
    assert ask(server.url, "GET", "/query").status == 200


def test_wrong_methods_are_told_the_right_ones(server: RestServer) -> None:
    """405 names them, and so does OPTIONS."""
    refused, options = ask(server.url, "DELETE", "/query"), ask(server.url, "OPTIONS", "/query")

    assert (refused.status, options.status) == (405, 204)
    assert "GET" in refused.headers["Allow"]
    assert options.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_head_is_get_without_the_body(server: RestServer) -> None:
    """The same status and length."""
    get, head = ask(server.url, "GET", "/query"), ask(server.url, "HEAD", "/query")

    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", get.headers["Content-Length"])


def test_every_answer_has_the_security_headers(server: RestServer) -> None:
    """Answers, refusals and pages that do not exist."""
    for target in ("/query", "/query?value=x", "/nothing"):
        headers = ask(server.url, "GET", target).headers
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_pages_of_allowed_sites_may_read_answers() -> None:
    """Only they: CORS headers are for origins on the list."""
    access = AccessRules(token=None, origins=frozenset({"https://eagle.example"}))
    with serve(ROUTES, access=access) as server:
        allowed = ask(server.url, "GET", "/query", headers={"Origin": "https://eagle.example"})
        preflight = ask(server.url, "OPTIONS", "/json", headers={"Origin": "https://eagle.example"})
        other = ask(server.url, "GET", "/query", headers={"Origin": "https://evil.example"})

    assert allowed.headers["Access-Control-Allow-Origin"] == "https://eagle.example"
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    assert "Access-Control-Allow-Origin" not in other.headers


def test_an_error_has_one_shape_with_everything_in_it() -> None:
    """Status by class; code, kind, text, where, hint and problems in the body."""
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
    """The client gets a reference, the log has the rest."""
    with serve([_fail(ZeroDivisionError("secret detail"))]) as server:
        reply = ask(server.url, "GET", "/fail")

    assert reply.status == 500
    assert b"secret detail" not in reply.body
    reference = reply.json["error"]["text"].split("reference ")[1].rstrip(")")
    assert reference in caplog.text
    assert "secret detail" in caplog.text


def test_half_a_surrogate_pair_in_an_error_is_answered() -> None:
    """A file name out of another world does not break the answer."""
    with serve([_fail(ConflictError("file \udcff is there"))]) as server:
        reply = ask(server.url, "GET", "/fail")

    assert reply.status == 409
    assert "file" in reply.json["error"]["text"]


def test_people_get_a_page_and_programs_get_json() -> None:
    """Browsers get errors as a page, in which foreign text is escaped."""
    with serve([_fail(ConflictError("<script>alert(1)</script>"))]) as server:
        page = ask(server.url, "GET", "/fail", headers={"Accept": "text/html"})
        data = ask(server.url, "GET", "/fail")

    assert page.headers["Content-Type"].startswith("text/html")
    assert b"<script>" not in page.body
    assert json.loads(data.body)["error"]["code"] == "DF108"


def test_a_download_that_fails_at_its_beginning_is_refused_properly(server: RestServer) -> None:
    """The class of the error is known until the first byte was sent."""
    assert ask(server.url, "GET", "/broken").status == 409


def test_a_download_that_fails_in_the_middle_is_cut_off(server: RestServer) -> None:
    """The client sees that it is not whole."""
    with pytest.raises(http.client.IncompleteRead, match="10 more expected"):
        ask(server.url, "GET", "/cut")


def test_there_may_be_nothing_to_tell(server: RestServer) -> None:
    """Then the envelope is all."""
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
    wire = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    wire.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return wire


def test_streams_are_bounded_and_given_back() -> None:
    """One too many is refused with 503; a client that goes away makes room."""
    streams, begun = StreamSlots(1), threading.Event()
    with serve([_endless(streams, begun)], streams=streams) as server:
        with _open(server) as wire:
            assert wire.recv(10)
            assert ask(server.url, "GET", "/stream").status == 503
        assert _is_free(streams)


def _is_free(streams: StreamSlots) -> bool:
    """Whether there is room for a stream, within ten seconds."""
    for _ in range(1000):
        try:
            with streams.slot():
                return True
        except HttpError:
            threading.Event().wait(0.01)
    return False


def test_a_stream_that_is_asked_for_by_head_is_given_back() -> None:
    """It never runs, and holds no place."""
    streams, begun = StreamSlots(1), threading.Event()
    with serve([_endless(streams, begun)], streams=streams) as server:
        assert ask(server.url, "HEAD", "/stream").status == 200
        assert _is_free(streams)


def test_closing_ends_streams_and_frees_the_port() -> None:
    """Open streams end, and new connections are refused."""
    streams, begun = StreamSlots(2), threading.Event()
    with serve([_endless(streams, begun)], streams=streams) as server:
        wire = _open(server)
        assert begun.wait(10)
        server.close()
        while wire.recv(65536):
            pass
        wire.close()
        with pytest.raises(ConnectionRefusedError, match="refused"):
            ask(server.url, "GET", "/query")
        server.close()


def test_a_handler_that_never_ends_does_not_hold_up_the_end() -> None:
    """The server leaves it to itself."""
    begun, end = threading.Event(), threading.Event()

    def handler(_: Request) -> object:
        begun.set()
        end.wait(60)
        return None

    with serve([Route(method="GET", path="/stream", handler=handler, summary="waits")]) as server:
        wire = _open(server)
        assert begun.wait(10)
        server.close()
        assert wire.recv(100) == b""
        wire.close()
    end.set()


def test_requests_over_open_connections_are_refused_politely_while_closing() -> None:
    """A client that was connected before gets 503 and the reason, not a broken connection."""
    streams, begun, end = StreamSlots(2), threading.Event(), threading.Event()

    def handler(_: Request) -> object:
        begun.set()
        end.wait(60)
        return None

    routes = [*ROUTES, Route(method="GET", path="/stream", handler=handler, summary="holds the server open")]
    with serve(routes, streams=streams) as server, closing(_open(server)):
        assert begun.wait(10)
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
            connection.request("GET", "/query")
            connection.getresponse().read()
            ending = threading.Thread(target=server.close)
            ending.start()
            assert streams.closing.wait(10)
            connection.request("GET", "/query")
            response = connection.getresponse()
            told = response.read()
        end.set()
        ending.join()

    assert (response.status, json.loads(told)["error"]["text"]) == (503, "the server is closing")


def _nothing() -> RestApp:
    return make_app([], AccessRules(token=None), Limits())


def test_a_server_that_never_started_frees_its_port() -> None:
    """Closing is enough."""
    streams = StreamSlots(1)
    server = RestServer(_nothing(), streams=streams, stream_limit=1)
    server.close()

    with socket.socket() as other:
        other.bind(("127.0.0.1", server.port))


def test_only_loopback_may_be_open_to_all() -> None:
    """A server without a token refuses to listen where other hosts reach it; one on a taken port says so."""
    with pytest.raises(UsageError, match="only listen on loopback"):
        RestServer(_nothing(), streams=StreamSlots(1), stream_limit=1, host="192.0.2.1", open_to_all=True)
    with serve(ROUTES) as server, pytest.raises(WorldError, match="cannot listen"):
        RestServer(_nothing(), streams=StreamSlots(1), stream_limit=1, port=server.port)
