"""An error as an HTML page, for browsers; programs get the same error as JSON. Relative addresses in all pages."""

import re
from collections.abc import Sequence

import bottle

from dropflow.api.error_body import status_of
from dropflow.errors import DropflowError

# A page with nothing but a card, without the navigation of a server: a form to confirm something, or an error. The card
# is HTML already; everything that `{{...}}` shows is escaped.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{title}} · dropflow</title>
<link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/dropflow.css">
% if script:
<script src="/static/{{script}}"></script>
% end
</head>
<body>
<main>
{{!card}}</main>
</body>
</html>
"""
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
# No "form-action": browsers also check where a posted form redirects to, which may be a manager on another host.
CONFIRM_POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'"
"""The content security policy of the page."""
_ASKED = ("key", "token")
# Everything that `{{...}}` shows is escaped.
_FORM = """<form class="card" method="post" action="{{action}}" data-key>
<h1>Please confirm</h1>
% if wrong:
<p role="alert">That token was not accepted.</p>
% end
<p>Nothing has been changed yet. This browser is logged in to read; to change something, this page needs the token
once.</p>
% for name, value in fields:
<input type="hidden" name="{{name}}" value="{{value}}">
% end
<p><label>Token <input name="token" type="password" autocomplete="off" required autofocus></label></p>
<p class="muted">Or run <code>dropflow open</code> where you started dropflow: it prints an address that signs this
browser in, and then no page asks again. The token is at the end of the address that the server printed,
<code>/login#TOKEN</code>.</p>
<p class="actions"><button class="primary">Confirm</button></p>
</form>
"""
# Text between tags and values of attributes have no quotation marks of their own: templates escape them.
_ADDRESS = re.compile(
    r'(?<=\s)((?:href|src|action|formaction|data-(?:api|base|events|moment|page|picture|preview|session|twin))=")/(?!/)'
)


def card_page(title: str, card: str, *, target: str, script: str = "", **values: object) -> str:
    """Return a page of HTML.

    Parameters
    ----------
    title : str
        Its title.
    card : str
        Template of the card.
    target : str
        Path and query of the request that it answers, to which its addresses are made relative.
    script : str
        File name of its script, if it has one.
    **values
        Values of the placeholders of the template.
    """
    shown = bottle.SimpleTemplate(card).render(**values)
    page: str = bottle.SimpleTemplate(_PAGE).render(title=title, card=shown, script=script)
    return relative_page(page, target)


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


# The page that asks for the token before a form changes something, if the browser has only the cookie.
#
# It repeats the form with all its fields. Its script (``page_key.js``) exchanges the token for the page key, which the
# browser keeps, so that it is not asked again. Without a script, the form is posted with the token.


def confirm_page(target: str, fields: Sequence[tuple[str, str]]) -> str:
    """Return a page of HTML that asks for the token, and posts `fields` to `target` again.

    Parameters
    ----------
    target : str
        Path and query that the form was posted to.
    fields : sequence of (str, str)
        The posted form. A token in it was wrong.
    """
    kept = [(name, value) for name, value in fields if name not in _ASKED]
    wrong = any(name == "token" for name, _ in fields)
    return card_page(
        "Please confirm", _FORM, target=target, script="page_key.js", action=target, fields=kept, wrong=wrong
    )


# Makes the addresses in an answer relative, so that a server works below any path of a proxy.
#
# Handlers and templates name addresses from the root of the server: ``/sessions``. A proxy may serve that root below a
# path that the server does not know, such as ``/user/ada/proxy/8002/``. So an answer to ``/sessions/one`` names
# ``../sessions`` instead, which is right below every path, if the proxy removes its own from requests.


def relative_address(address: str, target: str) -> str:
    """Return an address on this server relative to the request for `target`, and another address as it is."""
    if not address.startswith("/") or address.startswith("//"):
        return address
    return _root(target) + address[1:]


def relative_page(page: str, target: str) -> str:
    """Return a page of HTML, the answer to a request for `target`, with all its addresses on this server relative."""
    return _ADDRESS.sub(rf"\g<1>{_root(target)}", page)


def _root(target: str) -> str:
    depth = target.partition("?")[0].count("/") - 1
    return "../" * depth or "./"
