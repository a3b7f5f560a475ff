"""Routes, the requests that their handlers get, their answers, and limits on requests.

`dropflow.api.bottle_app` makes an application from a table of routes.
"""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO
from urllib.parse import parse_qsl

import msgspec

from dropflow.api.auth import Proof
from dropflow.errors import DropflowError, HttpError

FORM = "application/x-www-form-urlencoded"
LONGEST_FORM_BYTES = 1024 * 1024
"""Bytes of a form without a file: values of parameters, and the answers of a user."""
_MOST_FIELDS = 1000
"""Fields of a form without a file."""


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
        Errors that the handler raises besides refusals of the request itself, for the OpenAPI document.
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

        The result must be iterated or closed, which `dropflow.api.bottle_app` does.

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
