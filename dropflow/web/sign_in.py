"""The login of browsers: a URL with the token or a ticket in its fragment is exchanged for a cookie and a page key.

A fragment (``/login#TOKEN``) never leaves the browser: no log, no proxy and no other site sees it. The script of the
page posts it once, to this server, and gets a cookie for reading and the page key for changes. The token cannot be
computed from either. Without a script, the token can be pasted into the form of the page, which sets the cookie only.

A ticket (``/login#ticket=TICKET&next=/sessions``) is used up by it. Other managers of the cluster pass a browser on
with one, and ``dropflow open`` prints one (`dropflow.web.tickets`). A server that is not the front door of its
cluster sends browsers there to sign in, from where they come back with a ticket.

The cookie is HttpOnly and SameSite=Lax. With Strict, a link in a mail or on another manager would lead to the login.
Lax sends the cookie when an address is opened in a tab, which only reads.
"""

import hmac
from functools import partial
from importlib import resources
from urllib.parse import unquote, urlsplit

import msgspec

from dropflow.api.auth import AccessRules, Proof, cookie_name, cookie_value, page_key, read_key
from dropflow.api.error_pages import CONFIRM_POLICY, card_page, relative_page
from dropflow.api.routes import FORM, Request, Response, Route, posted_fields
from dropflow.clock import Clock
from dropflow.errors import DropflowError, HttpError, LinkError
from dropflow.web.frame import redirect
from dropflow.web.known_servers import KnownServers, login_url
from dropflow.web.tickets import TICKET, Permission, TicketReply, Tickets

_HOP_BYTES = 16 * 1024
"""Bytes of the body of a request to go on to another server."""

# Everything that `{{...}}` shows is escaped.
_FORM = """<form class="card" method="post" action="/hop" data-key data-auto>
<h1>Going on to <bdi>{{host}}</bdi></h1>
<p class="muted">Another manager of this cluster. You are signed in there too.</p>
<input type="hidden" name="to" value="{{goal}}">
<p class="actions"><button class="primary">Go on</button> <a class="button" href="/">Stay here</a></p>
</form>
"""
_LOGIN_BYTES = 64 * 1024
"""Bytes of the body of a login."""
# Without a path: browsers then use that of the login, also below another path of a proxy.
_COOKIE = "HttpOnly; SameSite=Lax"
_HTML = "text/html; charset=utf-8"
_SIGNED_OUT = """<div class="card" data-forget>
<h1>Signed out</h1>
<p><a class="button primary" href="/login">Sign in again</a></p>
</div>
"""

# Passes a signed-in browser on to another server of the cluster, with a ticket (ADR 0020).
#
# ``GET /hop?to=URL`` is a page with a form that posts itself. The post must have the page key, because the ticket gives
# the page key of the other server: a server of another user of this host, which gets our cookie, cannot get a ticket.
# With the read key, the ticket permits reading only.


class _HopQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The address to open."""

    to: str = ""


def hop_routes(access: AccessRules, tickets: Tickets, servers: KnownServers) -> list[Route]:
    """Return the routes that make tickets, and that pass browsers on."""

    def make(call: Request) -> TicketReply:
        seconds = call.body.seconds
        # A browser with the right to change something is treated as the administrator's.
        read_only = call.body.read_only or call.proof is Proof.USER
        ticket = "" if access.token is None else tickets.issue(seconds, read_only=read_only)
        own = servers.own()
        return TicketReply(ticket=ticket, seconds=seconds, url=servers.browser_url(own) if servers.public_url else "")

    def ask(call: Request) -> Response:
        _, base, _ = _found(servers, call.query.to)
        host = urlsplit(base).netloc
        page = card_page("Going on", _FORM, target=call.target, script="page_key.js", host=host, goal=call.query.to)
        headers = (("Content-Security-Policy", CONFIRM_POLICY), ("Referrer-Policy", "same-origin"))
        return Response(body=page, content_type="text/html; charset=utf-8", headers=headers)

    def hop(call: Request) -> Response:
        fields = dict(posted_fields(call.body, call.headers.get("Content-Type", "")))
        url, base, path = _found(servers, fields.get("to", ""))
        # A program proves itself by its token or signature, a browser by the key in its form.
        may_change = call.proof is not Proof.COOKIE or access.is_own_form(fields)
        try:
            ticket = servers.ticket(url, read_only=not may_change)
        except LinkError as error:
            raise HttpError(503, f"{base} does not answer: {error.text}", hint="go back, or try again") from error
        except DropflowError:
            return redirect(base + path)  # it has another key: it asks for its own token
        return redirect(login_url(base, ticket, path))

    page = partial(Route, method="GET", path="/hop", gives="text/html", tag="login", query=_HopQuery)
    return [
        page(handler=ask, summary="Ask to go on to another server of the cluster."),
        Route(
            method="POST",
            path="/hop",
            handler=hop,
            form=True,
            reads=True,
            takes=FORM,
            limit=_HOP_BYTES,
            summary="Go on to it, signed in.",
            tag="login",
        ),
        Route(
            method=TICKET.method,
            path=TICKET.path,
            handler=make,
            body=TICKET.body,
            users=True,
            answer=TicketReply,
            limit=_HOP_BYTES,
            summary=TICKET.summary,
            tag="login",
        ),
    ]


def _found(servers: KnownServers, target: str) -> tuple[str, str, str]:
    address = servers.find(target)
    if address is None:
        raise HttpError(
            403,
            f"{target[:200]!r} is not a server of this cluster",
            hint="open a link of these pages, or start this manager again with --translator and its address",
        )
    server, base, path = address
    return server.url, base, path


class LoginQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The page to open after the login."""

    next: str = "/"


class _Login(msgspec.Struct, frozen=True, kw_only=True):
    token: str = ""
    ticket: str = ""
    next: str = "/"


class _LoggedIn(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the script of the page: the page key, and the address to open.

    The key is the read key if the ticket permits reading only, and empty if the ticket was used before and the browser
    is logged in already.
    """

    key: str
    next: str
    ok: bool = True


def login_routes(
    access: AccessRules, servers: KnownServers | None = None, *, clock: Clock | None = None
) -> list[Route]:
    """Return the routes ``/login``, ``/logout`` and ``/hop`` of a server, and the one that makes tickets.

    Parameters
    ----------
    access : AccessRules
        The rules for which requests may enter.
    servers : KnownServers, optional
        The other servers of the cluster; none unless given.
    clock : Clock, optional
        For the time of tickets.
    """
    known, tickets = servers or KnownServers(), Tickets(clock=clock)

    def page(call: Request) -> Response:
        fields = {"next": _inside(call.query.next), "door": _attribute(known.browser_url(known.door()))}
        text = relative_page(_text("login.html"), call.target)
        for name, value in fields.items():
            text = text.replace("{{" + name + "}}", value)
        # Browsers send the origin of a form only to sites that may get the referrer; without it the form is refused.
        return Response(body=text, content_type=_HTML, headers=(("Referrer-Policy", "same-origin"),))

    def script(_: Request) -> Response:
        return Response(body=_text("login.js"), content_type="text/javascript; charset=utf-8")

    def style(_: Request) -> Response:
        return Response(body=_text("login.css"), content_type="text/css; charset=utf-8")

    def login(call: Request) -> Response:
        asked = _asked(call)
        permission = Permission.CHANGE
        if asked.ticket and access.token is not None:
            permission = tickets.redeem(asked.ticket)
            if permission is Permission.NONE:
                return _used_ticket(call, asked.next)
        elif access.token is not None and not hmac.compare_digest(asked.token.encode(), access.token.encode()):
            raise HttpError(
                401, "the token is wrong", hint="copy the whole URL that the server printed, or run 'dropflow open'"
            )
        return _go_on(call, asked.next, access, permission)

    def logout(call: Request) -> Response:
        gone = f"{cookie_name(call.headers.get('Host', ''))}=; {_COOKIE}; Max-Age=0"
        # A script deletes the page key: Clear-Site-Data would delete what all applications of a proxy have stored.
        page = card_page("Signed out", _SIGNED_OUT, target=call.target, script="page_key.js")
        return Response(body=page, content_type=_HTML, headers=(("Set-Cookie", gone),))

    route = partial(Route, public=True, limit=_LOGIN_BYTES, gives="text/html", tag="login")
    post = partial(route, method="POST", json=True)
    return [
        route(method="GET", path="/login", handler=page, summary="The page that takes a token", query=LoginQuery),
        route(method="GET", path="/login.js", handler=script, summary="Its script"),
        route(method="GET", path="/login.css", handler=style, summary="Its style"),
        post(path="/login", handler=login, summary="Exchange the token or a ticket for a cookie"),
        post(path="/logout", handler=logout, summary="Delete the cookie"),
        *hop_routes(access, tickets, known),
    ]


def _used_ticket(call: Request, target: str) -> Response:
    """Return the answer to a ticket that is not valid: an address that is opened twice leads to the page all the same.

    The browser must be logged in, and gets no page key.
    """
    if call.proof is Proof.COOKIE and not _is_form(call):
        return Response(body=_LoggedIn(key="", next=_path(target)))
    raise HttpError(
        401, "this address was used before, or is too old", hint="'dropflow open' prints a fresh one at any time"
    )


def _is_form(call: Request) -> bool:
    return call.headers.get("Content-Type", "").partition(";")[0].strip().lower() == FORM


def _asked(call: Request) -> _Login:
    if _is_form(call):
        fields = dict(posted_fields(call.body, FORM))
        return _Login(token=fields.get("token", "").strip(), next=fields.get("next", "/"))
    try:
        return msgspec.json.decode(call.body, type=_Login)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpError(400, f"the body cannot be used: {error}", hint='send {"token": "..."}') from error


def _go_on(call: Request, target: str, access: AccessRules, permission: Permission) -> Response:
    token, goal = access.token, _path(target)
    name = cookie_name(call.headers.get("Host", ""))
    cookies = () if token is None else (("Set-Cookie", f"{name}={cookie_value(token)}; {_COOKIE}"),)
    if _is_form(call):
        return redirect(goal, headers=cookies)
    # The key is in an answer to a script of our own origin only: other origins can neither post here nor read it.
    make = read_key if permission is Permission.READ else page_key
    key = "" if token is None else make(token)
    return Response(body=_LoggedIn(key=key, next=goal), headers=cookies)


def _path(target: str) -> str:
    """Return `target` if it is a page of this server, else the start page, so that a login never leads elsewhere."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return "/"
    inside = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    plain = target.isascii() and target.isprintable() and "\\" not in target
    # A proxy may serve this server below a path: the page must not be above it.
    climbs = any(unquote(piece) == ".." for piece in parts.path.split("/"))
    return target if inside and plain and not climbs else "/"


def _inside(target: str) -> str:
    """Return a path as the value of an attribute in HTML."""
    return _attribute(_path(target))


def _attribute(text: str) -> str:
    """Return `text` as the value of an attribute in HTML."""
    escaped = text
    for character, entity in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        escaped = escaped.replace(character, entity)
    return escaped


def _text(name: str) -> str:
    return resources.files("dropflow.web").joinpath("static", name).read_text(encoding="utf-8")
