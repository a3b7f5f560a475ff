"""Passes a signed-in browser on to another server of the cluster, with a ticket (ADR 0020).

``GET /hop?to=URL`` is a page with a form that posts itself. The post must have the page key, because the ticket gives
the page key of the other server: a server of another user of this host, which gets our cookie, cannot get a ticket.
With the read key, the ticket permits reading only.
"""

from functools import partial
from urllib.parse import urlsplit

import msgspec

from dropflow.errors import DropflowError, HttpError, LinkError
from dropflow.rest.pages.page_layout import redirect
from dropflow.rest.pages.places import Places, login_url
from dropflow.rest.pages.tickets import TICKET, TicketReply, Tickets
from dropflow.rest.server.auth import AccessRules, Proof
from dropflow.rest.server.card_page import card_page
from dropflow.rest.server.confirm_page import CONFIRM_POLICY
from dropflow.rest.server.posted_form import FORM, posted_fields
from dropflow.rest.server.route import Request, Response, Route

__all__ = ["hop_routes"]

_LIMIT = 16 * 1024

# Everything that `{{...}}` shows is escaped.
_FORM = """<form class="card" method="post" action="/hop" data-key data-auto>
<h1>Going on to <bdi>{{host}}</bdi></h1>
<p class="muted">Another manager of this cluster. You are signed in there too.</p>
<input type="hidden" name="to" value="{{goal}}">
<p class="actions"><button class="primary">Go on</button> <a class="button" href="/">Stay here</a></p>
</form>
"""


class _HopQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The address to open."""

    to: str = ""


def hop_routes(access: AccessRules, tickets: Tickets, places: Places) -> list[Route]:
    """Return the routes that make tickets, and that pass browsers on."""

    def make(call: Request) -> TicketReply:
        seconds = call.body.seconds
        ticket = "" if access.token is None else tickets.issue(seconds, read_only=call.body.read_only)
        own = places.own()
        return TicketReply(ticket=ticket, seconds=seconds, url=places.browser_url(own) if places.public_url else "")

    def ask(call: Request) -> Response:
        _, base, _ = _found(places, call.query.to)
        host = urlsplit(base).netloc
        page = card_page("Going on", _FORM, target=call.target, script="key.js", host=host, goal=call.query.to)
        headers = (("Content-Security-Policy", CONFIRM_POLICY), ("Referrer-Policy", "same-origin"))
        return Response(body=page, content_type="text/html; charset=utf-8", headers=headers)

    def hop(call: Request) -> Response:
        fields = dict(posted_fields(call.body, call.headers.get("Content-Type", "")))
        url, base, path = _found(places, fields.get("to", ""))
        # A program proves itself by its token or signature, a browser by the key in its form.
        may_change = call.proof is not Proof.COOKIE or access.is_own_form(fields)
        try:
            ticket = places.ticket(url, read_only=not may_change)
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
            limit=_LIMIT,
            summary="Go on to it, signed in.",
            tag="login",
        ),
        Route(
            method=TICKET.method,
            path=TICKET.path,
            handler=make,
            body=TICKET.body,
            answer=TicketReply,
            limit=_LIMIT,
            summary=TICKET.summary,
            tag=TICKET.tag,
        ),
    ]


def _found(places: Places, target: str) -> tuple[str, str, str]:
    found = places.find(target)
    if found is None:
        raise HttpError(
            403,
            f"{target[:200]!r} is not a server of this cluster",
            hint="open a link of these pages, or start this manager again with --translator and its address",
        )
    place, base, path = found
    return place.url, base, path
