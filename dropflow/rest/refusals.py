"""How a request is refused: JSON for programs, a small page for people, DALiuGE's shape for its clients."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import quote

import msgspec

from dropflow.errors import ClockSkewError, DropflowError
from dropflow.rest.failures import status_of, to_body
from dropflow.rest.refusal_page import refusal_page, wants_page

__all__ = ["Refusal", "refusal"]


_MORE: Mapping[int, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        HTTPStatus.UNAUTHORIZED: (("WWW-Authenticate", "Bearer"),),
        HTTPStatus.SERVICE_UNAVAILABLE: (("Retry-After", "5"),),
    }
)
"""Headers that belong to a status."""


class Refusal(msgspec.Struct, frozen=True):
    """An answer that refuses: its status, media type, headers and body."""

    status: int
    content_type: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def refusal(
    error: DropflowError, headers: Mapping[str, str], *, target: str, original: bool = False, login: bool = False
) -> Refusal:
    """The answer that tells `error` to whoever asked.

    Parameters
    ----------
    error : DropflowError
        What is wrong.
    headers : mapping
        ``Accept`` decides between JSON and a page.
    target : str
        What was asked for, to come back to after the login.
    original : bool
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
            return Refusal(303, "text/plain", (("Location", f"/login?next={quote(target, safe='')}"),), b"")
        return Refusal(status, "text/html; charset=utf-8", more, refusal_page(error).encode(errors="replace"))
    body: dict[str, object] = {"ok": False, "error": to_body(error)}
    if original:
        body |= {"type": "DaliugeException", "args": [str(error)]}
    return Refusal(status, "application/json", more, _encoded(body))


def _encoded(body: dict[str, object]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        # Half a surrogate pair, out of somebody's file name.
        text = str(msgspec.to_builtins(body["error"])).encode(errors="replace").decode()
        return msgspec.json.encode({"ok": False, "error": {"code": "DF000", "kind": "DropflowError", "text": text}})
