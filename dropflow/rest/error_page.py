"""An error as an HTML page, for browsers; programs get the same error as JSON."""

import bottle

from dropflow.errors import DropflowError
from dropflow.rest.error_body import status_of

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
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{title}} · dropflow</title>
<link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/dropflow.css">
</head>
<body>
<main>
<div class="card">
<h1>{{title}}</h1>
<p><bdi>{{text}}</bdi></p>
% if where:
<p class="muted">Where: <bdi>{{where}}</bdi></p>
% end
% if hint:
<p class="muted">What to do: <bdi>{{hint}}</bdi></p>
% end
% if status == 401:
<p><a class="button primary" href="/login">Log in</a></p>
% else:
<p><a class="button" href="/">To the first page</a></p>
% end
<p class="muted small">{{code}}, status {{status}}</p>
</div>
</main>
</body>
</html>
"""


def wants_page(accept: str) -> bool:
    """Return whether a request with this ``Accept`` header comes from the navigation of a browser.

    Only navigation names HTML; scripts and programs accept anything.
    """
    return "text/html" in accept.lower()


def error_page(error: DropflowError) -> str:
    """Return an error as an HTML page, with a link to the login if the token is missing."""
    status = status_of(error)
    title = _TITLES.get(status, "The server could not answer")
    page: str = bottle.SimpleTemplate(_PAGE).render(
        title=title, text=error.text, where=error.where, hint=error.hint, status=status, code=error.code
    )
    return page
