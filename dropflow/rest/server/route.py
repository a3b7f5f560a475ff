"""Routes, the requests that their handlers get, their answers, and limits on requests.

`dropflow.rest.server.bottle_app` makes an application from a table of routes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import msgspec

from dropflow.errors import DropflowError
from dropflow.rest.server.auth import Proof

__all__ = ["Limits", "Request", "Response", "Route"]


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
    is_gone : callable
        Returns whether the client has closed the connection: for handlers that wait.
    """

    path: Mapping[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]
    target: str = "/"
    proof: Proof = Proof.NONE
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
        cookie it must send the page key (`dropflow.rest.server.auth`); a browser without the key is asked for the
        token.
    reads : bool
        The form changes nothing: the read key is enough, too.
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
    daliuge: bool = False
    takes: str = ""
    gives: str = ""
    errors: tuple[type[DropflowError], ...] = ()
    tag: str = "api"
