"""Answers for people: a page, and the way to another one."""

from collections.abc import Sequence

from dropflow.rest.kit import Response

__all__ = ["page_answer", "redirect"]

# Browsers tell the origin of a form only to sites that they may tell the referrer; without it the guard refuses.
_REFERRER = ("Referrer-Policy", "same-origin")


def page_answer(page: str, *, managers: Sequence[str] = (), status: int = 200) -> Response:
    """A page of HTML, whose forms may lead on to `managers`: browsers check where a posted form redirects to."""
    goals = " ".join(("'self'", *managers))
    policy = f"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action {goals}; object-src 'none'"
    return Response(
        body=page,
        content_type="text/html; charset=utf-8",
        status=status,
        headers=(_REFERRER, ("Content-Security-Policy", policy)),
    )


def redirect(address: str) -> Response:
    """Go on at `address`, with GET whatever this request was (303)."""
    return Response(status=303, content_type="text/html; charset=utf-8", headers=(_REFERRER, ("Location", address)))
