"""How a request is refused: JSON for programs, a small page for people, DALiuGE's shape for its clients."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import quote

import msgspec

from dropflow.errors import ClockSkewError, DropflowError
from dropflow.rest.error_body import status_of, to_body
from dropflow.rest.error_page import error_page, wants_page

__all__ = ["ErrorResponse", "error_response"]


_MORE: Mapping[int, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        HTTPStatus.UNAUTHORIZED: (("WWW-Authenticate", "Bearer"),),
        HTTPStatus.SERVICE_UNAVAILABLE: (("Retry-After", "5"),),
    }
)
"""Headers that belong to a status."""


class ErrorResponse(msgspec.Struct, frozen=True):
    """An answer that refuses: its status, media type, headers and body."""

    status: int
    content_type: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def error_response(
    error: DropflowError, headers: Mapping[str, str], *, target: str, daliuge: bool = False, login: bool = False
) -> ErrorResponse:
    """The answer that tells `error` to whoever asked.

    Parameters
    ----------
    error : DropflowError
        What is wrong.
    headers : mapping
        ``Accept`` decides between JSON and a page.
    target : str
        What was asked for, to come back to after the login.
    daliuge : bool
        Whether DALiuGE's fields are in the body too.
    login : bool
        Whether the server has a login page, which is where people without a token are sent.
    """
    status = status_of(error)
    more = _MORE.get(status, ())
    if isinstance(error, ClockSkewError) and error.challenge:
        more = (("WWW-Authenticate", error.challenge),)
    if wants_page(headers.get("Accept", "")) and not target.startswith("/api/"):
        if status == HTTPStatus.UNAUTHORIZED and login and "Authorization" not in headers:
            return ErrorResponse(303, "text/plain", (("Location", f"/login?next={quote(target, safe='')}"),), b"")
        return ErrorResponse(status, "text/html; charset=utf-8", more, error_page(error).encode(errors="replace"))
    body: dict[str, object] = {"ok": False, "error": to_body(error)}
    if daliuge:
        body |= {"type": "DaliugeException", "args": [str(error)]}
    return ErrorResponse(status, "application/json", more, _encoded(body))


def _encoded(body: dict[str, object]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        # Half a surrogate pair, out of somebody's file name.
        text = str(msgspec.to_builtins(body["error"])).encode(errors="replace").decode()
        return msgspec.json.encode({"ok": False, "error": {"code": "DF000", "kind": "DropflowError", "text": text}})
