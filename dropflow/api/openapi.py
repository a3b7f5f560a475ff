"""The OpenAPI 3.1 document of a route table."""

import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO
from urllib.parse import parse_qsl

import msgspec

from dropflow.api.auth import Proof
from dropflow.api.error_body import ErrorBody, status_of_class
from dropflow.api.logs import LogPage, LogQuery
from dropflow.clock import SystemClock
from dropflow.errors import DropflowError, HttpError

# Routes, the requests that their handlers get, their answers, and limits on requests.
#
# `dropflow.api.server` makes an application from a table of routes.


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the cost of one request, and of all requests together.

    Attributes
    ----------
    body : int
        Bytes of a request's body, after decompression.
    graph : int
        The same for a body that is a graph.
    depth : int
        Levels to which lists and objects in JSON may be nested.
    drops : int
        Drops of a graph that is submitted.
    streams : int
        Server-sent event streams and long polls open at a time.
    together : int
        Bytes of the bodies of all requests that run, as sent and unpacked. Half of it is for requests without a
        credential. The server in front may hold as much again of received bytes.
    """

    body: int = 16 * 1024 * 1024
    graph: int = 1024 * 1024 * 1024
    depth: int = 200
    drops: int = 20_000_000
    streams: int = 256
    together: int = 2 * 1024 * 1024 * 1024


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, checked and decoded.

    Attributes
    ----------
    path : dict
        Variables of the route's path.
    query, body : Any
        Structs of the types that the route names; `body` is bytes when the route names none.
    headers : mapping
        Request headers, with every word of their names capitalised.
    target : str
        Path and query as they were sent.
    proof : Proof
        The credential of the request.
    user : str
        The user whose key signed it; empty for all other credentials.
    is_gone : callable
        Returns whether the client has closed the connection: for handlers that wait.
    """

    path: Mapping[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]
    target: str = "/"
    proof: Proof = Proof.NONE
    user: str = ""
    is_gone: Callable[[], bool] = bool


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is not a struct in the envelope: a page, a download, a stream, or the JSON of DALiuGE."""

    body: bytes | str | BinaryIO | Iterator[bytes] | Any = b""
    content_type: str = "application/json"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the route table.

    Attributes
    ----------
    path : str
        As in OpenAPI, with variables in braces: ``/api/v1/sessions/{session}``. A variable may hold any character,
        slashes too, if the caller quotes them.
    handler : callable
        Takes a `Request`; returns a struct, which is put into the envelope, or a `Response`.
    query, body, answer : type or None
        Structs of the query string, the JSON body and the answer.
    limit : int
        Bytes of the body, decompressed; 0 for the server's own limit.
    json : bool
        The body is JSON that the handler decodes: it is passed as bytes, after a check of its depth.
    public : bool
        Needs no token.
    cross_site : bool
        Forms on pages of other sites may post here.
    form : bool
        A form of our own pages posts here and changes something, ``application/x-www-form-urlencoded``. With the
        cookie it must send the page key (`dropflow.api.auth`); a browser without the key is asked for the
        token.
    reads : bool
        The form changes nothing: the read key is enough, too.
    users : bool
        The key of a user is enough, also if the method is not a safe one.
    daliuge : bool
        One of DALiuGE's paths: errors have its fields (``type``, ``args``) too.
    takes, gives : str
        Media types of a body and of an answer that are not JSON, for the OpenAPI document.
    errors : tuple of types
        What the handler raises besides refusals of the request itself, for the OpenAPI document.
    """

    method: str
    path: str
    handler: Callable[[Request], object]
    summary: str
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    status: int = 200
    limit: int = 0
    json: bool = False
    public: bool = False
    cross_site: bool = False
    form: bool = False
    reads: bool = False
    users: bool = False
    daliuge: bool = False
    takes: str = ""
    gives: str = ""
    errors: tuple[type[DropflowError], ...] = ()
    tag: str = "api"


# A limit on the event streams and long polls that are open at a time.


class StreamSlots:
    """A limit on open event streams and long polls, and the signal that ends them all.

    Each holds a thread of the server. A request that finds no free slot is refused.
    """

    def __init__(self, limit: int) -> None:
        # Counts free slots for the threads of the server, which are refused rather than made to wait.
        self._free = threading.BoundedSemaphore(limit)
        self.closing = threading.Event()

    @contextmanager
    def slot(self) -> Generator[None]:
        """Hold a slot while a long poll waits.

        Raises
        ------
        HttpError
            503 when too many streams are open.
        """
        self._acquire()
        try:
            yield
        finally:
            self._free.release()

    def hold(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Return `chunks`, which hold a slot until they end or the client closes the connection.

        The result must be iterated or closed, which `dropflow.api.server` does.

        Raises
        ------
        HttpError
            503 when too many streams are open.
        """
        self._acquire()
        held = self._held(chunks)
        next(held)
        return held

    def _acquire(self) -> None:
        if not self._free.acquire(blocking=False):
            raise HttpError(
                503, "too many long polls and event streams are open", hint="ask again later, or poll less often"
            )

    def _held(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        try:
            yield b""  # taken by `hold`: a generator that has not started would not release its slot when closed
            for chunk in chunks:
                if self.closing.is_set():
                    return
                yield chunk
        finally:
            self._free.release()


# The fields of a small posted form, ``application/x-www-form-urlencoded``.

FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 100


def posted_fields(body: bytes, content_type: str) -> tuple[tuple[str, str], ...]:
    """Return names and values in the order in which they were sent; nothing for a body of another type.

    Raises
    ------
    HttpError
        400 for a form that is not text, or has too many fields.
    """
    if content_type.partition(";")[0].strip().lower() != FORM:
        return ()
    try:
        return tuple(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except (UnicodeDecodeError, ValueError) as error:
        raise HttpError(400, f"the form cannot be read: {error}") from error


_VARIABLE = re.compile(r"\{(\w+)\}")
_BYTES = {"type": "string", "format": "binary"}
_REF = "#/components/schemas/{name}"


class ErrorEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with an error."""

    ok: bool
    error: ErrorBody


def openapi_document(routes: Sequence[Route], *, title: str, version: str) -> dict[str, Any]:
    """Return the description of `routes`.

    Returns
    -------
    dict
        An OpenAPI 3.1 document, JSON-like. The schemas come from the same structs that check the requests.
    """
    used = [kind for route in routes for kind in (route.query, route.body, route.answer) if kind is not None]
    types: list[type] = [*dict.fromkeys(used), ErrorEnvelope]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "license": {"name": "BSD-3-Clause"}},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "signature": {
                    "type": "http",
                    "scheme": "Dropflow",
                    "description": "HMAC-SHA256 with the cluster key, for managers: see dropflow.api.signing.",
                },
            },
        },
        "security": [{"token": []}, {"signature": []}],
    }


def _operation(route: Route, schemas: dict[type, Any], components: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary}
    if route.answer is not None:
        envelope = {"type": "object", "properties": {"ok": {"const": True}}, "required": ["ok"]}
        answer["content"] = {"application/json": {"schema": {"allOf": [envelope, schemas[route.answer]]}}}
    elif route.gives:
        answer["content"] = {route.gives: {"schema": _BYTES}}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', route.path)}".rstrip("_"),
        "tags": [route.tag],
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in _VARIABLE.findall(route.path)
            ),
            *_query_parameters(route, components),
        ],
        "responses": {str(route.status): answer, **_error_responses(route, schemas[ErrorEnvelope])},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas[route.body]}}}
    elif route.takes:
        operation["requestBody"] = {"required": True, "content": {route.takes: {"schema": _BYTES}}}
    if route.public:
        operation["security"] = []
    return operation


def _error_responses(route: Route, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a response for each status of the route's errors, and the default one."""
    kinds: dict[str, list[str]] = {}
    for error in route.errors:
        kinds.setdefault(str(status_of_class(error)), []).append(error.__name__)
    texts = {status: ", ".join(names) for status, names in sorted(kinds.items())}
    texts["default"] = "Refused: what is wrong, where, and what to do."
    content = {"application/json": {"schema": schema}}
    return {status: {"description": text, "content": content} for status, text in texts.items()}


def _query_parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = components[route.query.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": kind}
        for name, kind in schema["properties"].items()
    ]


# Waits for new lines of a log, for a request that asks for those after a cursor.

_PACE = 0.3
"""Seconds between two looks at the files of a log."""
_LAST_LINES = 0.6
"""Seconds after the end in which the last lines come."""


def page_with_lines(
    read: Callable[[LogQuery], LogPage],
    query: LogQuery,
    streams: StreamSlots,
    is_gone: Callable[[], bool],
    has_ended: Callable[[], bool] = lambda: False,
) -> LogPage:
    """Return a page of a log, once it has a line or the seconds of the query are over.

    Parameters
    ----------
    read : callable
        Returns a page without waiting.
    streams : StreamSlots
        Limits the requests that wait.
    is_gone : callable
        Whether the client has closed its connection.
    has_ended : callable
        Whether nothing more is written.

    Raises
    ------
    HttpError
        503: too many requests wait.
    """
    # Children do not wait: each level of managers would add its own time.
    once = msgspec.structs.replace(query, seconds=0.0)
    page = read(once)
    if not query.seconds or not query.is_forward or page.lines:
        return page
    with streams.slot():
        clock = SystemClock()
        end = clock.monotonic() + query.seconds
        # The time that the children take to answer counts too: the client waits no longer than it asked for.
        is_over = False
        while not page.lines and clock.monotonic() < end and not is_gone():
            if not is_over and has_ended():
                is_over, end = True, min(end, clock.monotonic() + _LAST_LINES)
            if streams.closing.wait(_PACE):
                break
            # What was searched already is not searched again.
            page = read(msgspec.structs.replace(once, after=page.newer or query.after))
        return page
