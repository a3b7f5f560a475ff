"""Answers for people: a page, and the way to another one."""

from dropflow.rest.kit import Answer

__all__ = ["page_answer", "redirect"]

# Browsers tell the origin of a form only to sites that they may tell the referrer; without it the guard refuses.
_HEADERS = (("Referrer-Policy", "same-origin"),)


def page_answer(page: str) -> Answer:
    """A page of HTML; half a surrogate pair, out of somebody's file name, becomes a question mark."""
    return Answer(body=page.encode(errors="replace"), content_type="text/html; charset=utf-8", headers=_HEADERS)


def redirect(address: str) -> Answer:
    """Go on at `address`, with GET whatever this request was (303)."""
    return Answer(status=303, content_type="text/html; charset=utf-8", headers=(*_HEADERS, ("Location", address)))
