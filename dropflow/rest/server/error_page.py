"""An error as an HTML page, for browsers; programs get the same error as JSON."""

from dropflow.errors import DropflowError
from dropflow.rest.error_body import status_of
from dropflow.rest.server.card_page import card_page

__all__ = ["error_page", "wants_page"]

_TITLES = {
    400: "This request cannot be used",
    401: "Please log in",
    403: "Not allowed from there",
    404: "There is no such page",
    405: "Another method is needed",
    409: "Not possible in its state",
    413: "Too large",
    421: "Wrong host name",
    422: "This graph cannot be used",
    503: "Not available now",
}

# Everything that `{{...}}` shows is escaped.
_CARD = """<div class="card">
<h1>{{heading}}</h1>
<p><bdi>{{text}}</bdi></p>
% if where:
<p class="muted">Where: <bdi>{{where}}</bdi></p>
% end
% if hint:
<p class="muted">What to do: <bdi>{{hint}}</bdi></p>
% end
% if is_awaited:
<p class="muted">If it is to begin, wait: this page comes as soon as it is there.</p>
% end
% if status == 401:
<p><a class="button primary" href="/login">Log in</a></p>
% else:
<p><a class="button" href="/">To the first page</a></p>
% end
<p class="muted small">{{code}}, status {{status}}</p>
</div>
"""


def wants_page(accept: str) -> bool:
    """Return whether a request with this ``Accept`` header comes from the navigation of a browser.

    Only navigation names HTML; scripts and programs accept anything.
    """
    return "text/html" in accept.lower()


def error_page(error: DropflowError, target: str, *, is_awaited: bool = False) -> str:
    """Return an error of the request for `target` as an HTML page, with a link to the login if the token is missing.

    One that `is_awaited` is asked for again by the browser until it is there.
    """
    status = status_of(error)
    title = _TITLES.get(status, "The server could not answer")
    return card_page(
        title,
        _CARD,
        target=target,
        heading=title,
        text=error.text,
        where=error.where,
        hint=error.hint,
        status=status,
        code=error.code,
        is_awaited=is_awaited,
    )
