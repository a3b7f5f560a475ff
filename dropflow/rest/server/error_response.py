"""Answers to requests that fail: JSON for programs, a page for browsers, DALiuGE's fields for its clients."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import quote

import msgspec

from dropflow.errors import ClockSkewError, DropflowError, HttpError, RangeError
from dropflow.rest.error_body import status_of, to_body
from dropflow.rest.server.error_page import error_page, wants_page

__all__ = ["ErrorResponse", "error_response"]


_MORE: Mapping[int, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        HTTPStatus.UNAUTHORIZED: (("WWW-Authenticate", "Bearer"),),
        HTTPStatus.SERVICE_UNAVAILABLE: (("Retry-After", "5"),),
    }
)
"""Headers that belong to a status."""
_AWAITED = "/sessions/"
"""Pages below this path may come: who has opened one before its session exists gets it when it does."""
_EVERY = 3


class ErrorResponse(msgspec.Struct, frozen=True):
    """Status, media type, headers and body of an answer with an error."""

    status: int
    content_type: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def error_response(
    error: DropflowError, headers: Mapping[str, str], *, target: str, daliuge: bool = False, login: bool = False
) -> ErrorResponse:
    """Return the answer for an error.

    Parameters
    ----------
    error : DropflowError
        What is wrong.
    headers : mapping
        ``Accept`` decides between JSON and a page.
    target : str
        Path and query of the request, to return to after the login.
    daliuge : bool
        Whether DALiuGE's fields are in the body too.
    login : bool
        Whether the server has a login page, to which browsers without a token are redirected.
    """
    status = status_of(error)
    more = _MORE.get(status, ())
    if isinstance(error, ClockSkewError | HttpError) and error.challenge:
        more = (("WWW-Authenticate", error.challenge),)
    if isinstance(error, RangeError):
        more = (("Content-Range", f"bytes */{error.size}"),)
    if wants_page(headers.get("Accept", "")) and not target.startswith("/api/"):
        if status == HTTPStatus.UNAUTHORIZED and login and "Authorization" not in headers:
            return ErrorResponse(303, "text/plain", (("Location", f"/login?next={quote(target, safe='')}"),), b"")
        is_awaited = status == HTTPStatus.NOT_FOUND and target.startswith(_AWAITED)
        if is_awaited:
            more += (("Refresh", str(_EVERY)),)
        page = error_page(error, target, is_awaited=is_awaited)
        return ErrorResponse(status, "text/html; charset=utf-8", more, page.encode(errors="replace"))
    body: dict[str, object] = {"ok": False, "error": to_body(error)}
    if daliuge:
        body |= {"type": "DaliugeException", "args": [str(error)]}
    return ErrorResponse(status, "application/json", more, _encoded(body))


def _encoded(body: dict[str, object]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        # Half of a surrogate pair, from the name of a file.
        text = str(msgspec.to_builtins(body["error"])).encode(errors="replace").decode()
        return msgspec.json.encode({"ok": False, "error": {"code": "DF000", "kind": "DropflowError", "text": text}})
