"""A bottle application from a table of routes.

Each `Route` says what it takes and what it answers, as msgspec structs; from the same table come the application, the
checks of every request and the OpenAPI document (`dropflow.rest.openapi`). Answers have one envelope,
``{"ok": true, ...}``, and errors one shape, ``{"ok": false, "error": {...}}`` (`dropflow.rest.failures`).
"""

import logging
import secrets
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import bottle
import msgspec

from dropflow.errors import DropflowError, InternalError
from dropflow.rest.auth import Guard
from dropflow.rest.failures import HttpError, status_of, to_body
from dropflow.rest.refusal_page import refusal_page, wants_page

__all__ = ["Answer", "Call", "Limits", "Route", "Streams", "make_app"]

_LOG = logging.getLogger("dropflow.rest")
_JSON = "application/json"
_GUARDED = ("Host", "Origin", "Sec-Fetch-Site", "Authorization", "Cookie")
_SECURITY_HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one request, or all clients together, may cost.

    Attributes
    ----------
    body : int
        Bytes of a request's body, after decompression.
    streams : int
        Server-sent event streams open at a time.
    """

    body: int = 256 * 1024 * 1024
    streams: int = 256


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request, checked and decoded.

    Attributes
    ----------
    path : dict
        Variables of the route's path.
    query, body : Any
        Structs of the types that the route names; `body` is bytes when the route names none.
    headers : mapping
        Request headers.
    """

    path: Mapping[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is not a struct in the envelope: a page, a download, a stream, or one of DALiuGE's shapes."""

    body: bytes | str | BinaryIO | Iterator[bytes] | Any = b""
    content_type: str = _JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the route table.

    Attributes
    ----------
    path : str
        As in OpenAPI, with variables in braces: ``/api/v1/sessions/{session}``.
    handler : callable
        Takes a `Call`; answers a struct (put into the envelope) or an `Answer`.
    query, body, answer : type or None
        Structs of the query string, the JSON body and the answer.
    public : bool
        Needs no token.
    cross_site : bool
        Pages of other sites may post here.
    original : bool
        One of DALiuGE's paths: errors carry its shape (``type``, ``args``) too.
    """

    method: str
    path: str
    handler: Callable[[Call], object]
    summary: str
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    status: int = 200
    public: bool = False
    cross_site: bool = False
    original: bool = False
    tag: str = "api"


class Streams:
    """How many server-sent event streams are open, and the signal that ends them all.

    A stream holds a thread of the server, so their number is bounded; who finds none free polls instead.
    """

    def __init__(self, limit: int) -> None:
        self._free = threading.BoundedSemaphore(limit)
        self.closing = threading.Event()

    def hold(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """`chunks`, counted as an open stream until they end or the client goes away.

        Raises
        ------
        HttpError
            503 when too many streams are open.
        """
        if not self._free.acquire(blocking=False):
            raise HttpError(503, "too many event streams are open", hint="poll with ?since=SEQUENCE instead")
        return self._held(chunks)

    def _held(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        try:
            for chunk in chunks:
                if self.closing.is_set():
                    return
                yield chunk
        finally:
            self._free.release()


def make_app(routes: Sequence[Route], guard: Guard, limits: Limits) -> bottle.Bottle:
    """The application that serves `routes` behind `guard`.

    Returns
    -------
    bottle.Bottle
        A WSGI application. Whatever happens inside a handler, the client gets an answer in one of the two shapes.
    """
    app = bottle.Bottle(catchall=True)
    for route in routes:
        app.route(_bottle_path(route.path), method=route.method, callback=_callback(route, guard, limits))

    def outside(error: bottle.HTTPError) -> bytes | str:
        # What bottle itself refuses: unknown pages and methods. Guarded too, so that strangers cannot map the server.
        refusal = HttpError(error.status_code, f"{bottle.request.method} {bottle.request.path} is not served here")
        try:
            guard.check(_headers())
        except HttpError as stranger:
            refusal = stranger
        return _refuse(refusal, original=False)

    app.default_error_handler = outside
    return app


def _bottle_path(path: str) -> str:
    return path.replace("{", "<").replace("}", ">")


def _headers() -> dict[str, str]:
    return {name: value for name in _GUARDED if (value := bottle.request.get_header(name)) is not None}


def _callback(route: Route, guard: Guard, limits: Limits) -> Callable[..., object]:
    def serve(**path: str) -> object:
        try:
            guard.check(_headers(), public=route.public, cross_site=route.cross_site)
            call = Call(
                path={name: bottle.touni(value) for name, value in path.items()},
                query=_query(route),
                body=_body(route, limits),
                headers=dict(bottle.request.headers),
            )
            return _respond(route, route.handler(call))
        except DropflowError as error:
            return _refuse(error, original=route.original)
        except Exception:  # noqa: BLE001 - the last door: whatever happens, the client gets an answer
            reference = secrets.token_hex(4)
            _LOG.exception("request %s %s failed, reference %s", route.method, route.path, reference)
            return _refuse(
                InternalError(
                    f"the server failed on this request (reference {reference})",
                    hint="its log has the details; please report them",
                ),
                original=route.original,
            )

    return serve


def _query(route: Route) -> Any:
    if route.query is None:
        return None
    given = {name: bottle.request.query.getunicode(name) for name in bottle.request.query}
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise HttpError(400, f"the query cannot be used: {error}") from error


def _body(route: Route, limits: Limits) -> Any:
    if route.method in ("GET", "HEAD", "DELETE", "OPTIONS") and route.body is None:
        return b""
    data = read_body(limits.body)
    if route.body is None:
        return data
    try:
        return msgspec.json.decode(data or b"{}", type=route.body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise HttpError(400, f"the body cannot be used: {error}") from error


def read_body(limit: int) -> bytes:
    """The body of the current request, decompressed.

    Both gzip and zlib streams are taken under either name of the encoding: DALiuGE's client sends zlib as ``gzip``.

    Raises
    ------
    HttpError
        413 above `limit` bytes (before or after decompression), 400 for a damaged stream, 415 for another encoding.
    """
    stream: BinaryIO = bottle.request.environ["wsgi.input"]
    if (bottle.request.content_length or 0) > limit:
        raise HttpError(413, f"the body is larger than {limit} bytes")
    data = stream.read(limit + 1)
    encoding = bottle.request.get_header("Content-Encoding", "identity").lower()
    if encoding in ("gzip", "deflate", "zlib"):
        unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # 32: tell gzip from zlib by the header
        try:
            data = unpack.decompress(data, limit + 1)
        except zlib.error as error:
            raise HttpError(400, f"the body is no {encoding} stream: {error}") from error
        if not unpack.eof and len(data) <= limit:
            raise HttpError(400, "the compressed body ends too early")
    elif encoding != "identity":
        raise HttpError(415, f"content encoding {encoding!r} is not understood", hint="send gzip, zlib or nothing")
    if len(data) > limit:
        raise HttpError(413, f"the body is larger than {limit} bytes")
    return data


def _respond(route: Route, answer: object) -> object:
    if not isinstance(answer, Answer):
        fields = msgspec.to_builtins(answer) if answer is not None else {}
        answer = Answer(body=msgspec.json.encode({"ok": True} | fields), status=route.status)
    _head(answer.status, answer.content_type, answer.headers)
    body = answer.body
    if isinstance(body, bytes | str) or hasattr(body, "read") or isinstance(body, Iterator):
        return body
    return msgspec.json.encode(body)


def _refuse(error: DropflowError, *, original: bool) -> bytes | str:
    status = status_of(error)
    headers = (("WWW-Authenticate", "Bearer"),) if status == 401 else ()  # noqa: PLR2004 - an HTTP status
    if wants_page(bottle.request.get_header("Accept", "")):
        _head(status, "text/html; charset=utf-8", headers)
        return refusal_page(error)
    _head(status, _JSON, headers)
    body: dict[str, object] = {"ok": False, "error": to_body(error)}
    if original:
        body |= {"type": type(error).__name__, "args": [str(error)]}
    return msgspec.json.encode(body)


def _head(status: int, content_type: str, headers: Sequence[tuple[str, str]]) -> None:
    response = bottle.response
    response.status = status
    response.content_type = content_type
    for name, value in (*_SECURITY_HEADERS, *headers):
        response.set_header(name, value)
