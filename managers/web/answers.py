"""Answers for people: a page, and the way to another one."""

import gzip

from dropflow.rest.kit import Request, Response

__all__ = ["page_answer", "redirect"]

_HTML = "text/html; charset=utf-8"
_WORTH_PACKING = 2048

# Browsers tell the origin of a form only to sites that they may tell the referrer; without it the guard refuses.
_HEADERS: tuple[tuple[str, str], ...] = (("Referrer-Policy", "same-origin"),)


def page_answer(page: str, call: Request) -> Response:
    """A page of HTML, packed where the browser takes that: a page of many rows shrinks to a tenth.

    Half a surrogate pair, out of somebody's file name, becomes a question mark.
    """
    body, headers = page.encode(errors="replace"), (*_HEADERS, ("Vary", "Accept-Encoding"))
    if len(body) > _WORTH_PACKING and "gzip" in call.headers.get("Accept-Encoding", ""):
        body, headers = gzip.compress(body, compresslevel=1, mtime=0), (*headers, ("Content-Encoding", "gzip"))
    return Response(body=body, content_type=_HTML, headers=headers)


def redirect(address: str) -> Response:
    """Go on at `address`, with GET whatever this request was (303)."""
    return Response(status=303, content_type=_HTML, headers=(*_HEADERS, ("Location", address)))
