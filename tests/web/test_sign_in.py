"""Login: from the URL that a server prints to a cookie and a page key in the browser."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from http.cookies import SimpleCookie
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec
import pytest

import managers.web
from dropflow.api.auth import AccessRules, cookie_name, cookie_value, page_key, read_key
from dropflow.api.routes import FORM, Request, Route
from dropflow.api.serving import RestServer
from dropflow.errors import HttpError, LinkError
from dropflow.web.frame import STATIC
from dropflow.web.known_servers import KnownServers, ServerAddress, front_door, same_server, split_target
from dropflow.web.sign_in import login_routes
from dropflow.web.tickets import LONGEST, Permission, Tickets, request_ticket, ticket_reply
from tests.http_server import ReceivedResponse, ask, serve
from tests.virtual_clock import VirtualClock

TOKEN = "a-token"


def _page(_: Request) -> None:
    """Return nothing."""


@pytest.fixture
def server() -> Iterator[RestServer]:
    """A server with a page that needs the token, and the login."""
    access = AccessRules(token=TOKEN)
    page = Route(method="GET", path="/page", handler=_page, summary="a page")
    with serve([page, *login_routes(access)], access=access) as found:
        yield found


def _login(server: RestServer, **fields: str) -> ReceivedResponse:
    return ask(server.url, "POST", "/login", body=json.dumps(fields).encode())


def test_the_login_answers_with_a_cookie(server: RestServer) -> None:
    """The cookie is HttpOnly and SameSite=Lax and opens pages; neither cookie nor page key contains the token."""
    reply = _login(server, token=TOKEN, next="/page")
    cookie = SimpleCookie(reply.headers["Set-Cookie"])
    ((name, morsel),) = cookie.items()

    assert (reply.status, reply.json) == (200, {"ok": True, "key": page_key(TOKEN), "next": "/page"})
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Lax", "")
    assert TOKEN not in reply.headers["Set-Cookie"] + page_key(TOKEN)
    assert page_key(TOKEN) not in reply.headers["Set-Cookie"]
    assert ask(server.url, "GET", "/page", headers={"Cookie": f"{name}={morsel.value}"}).status == 200


def test_the_form_works_without_a_script(server: RestServer) -> None:
    """A form that a browser posts is answered with a redirect to the page."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": server.url}
    reply = ask(server.url, "POST", "/login", headers=headers, body=f"token=+{TOKEN}+&next=%2Fpage".encode())

    assert (reply.status, reply.headers["Location"]) == (303, "./page")


@pytest.mark.parametrize("body", [b'{"token": "wrong"}', b'{"token": ""}'])
def test_a_wrong_token_is_refused(server: RestServer, body: bytes) -> None:
    """The answer has status 401 and no cookie."""
    reply = ask(server.url, "POST", "/login", body=body)

    assert reply.status == 401
    assert "Set-Cookie" not in reply.headers


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"token": 1}', b"\xff", b"x" * 70_000])
def test_malformed_logins_are_refused(server: RestServer, body: bytes) -> None:
    """Bodies that are not a login, or too large, are refused."""
    assert ask(server.url, "POST", "/login", body=body).status in (400, 413)


def test_another_site_cannot_log_a_browser_in(server: RestServer) -> None:
    """A login with the origin of another site is refused."""
    headers = {"Origin": "https://evil.example"}

    assert ask(server.url, "POST", "/login", headers=headers, body=b'{"token": "a-token"}').status == 403


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "",
        "/../page",
        "/%2e%2E/page",
        "/a\r\nX: y",
        "/ü",
    ],
)
def test_a_login_redirects_to_its_own_server_only(server: RestServer, target: str) -> None:
    """Other targets are replaced by the first page."""
    form = urlencode({"token": TOKEN, "next": target}).encode()
    posted = ask(server.url, "POST", "/login", headers={"Content-Type": FORM}, body=form)

    assert _login(server, token=TOKEN, next=target).json["next"] == "/"
    assert posted.headers["Location"] == "./"


def test_browsers_without_a_token_are_redirected_to_the_login(server: RestServer) -> None:
    """The login page has the address of the page; clients that do not accept HTML get 401."""
    reply = ask(server.url, "GET", "/page?x=1", headers={"Accept": "text/html"})
    page = ask(server.url, "GET", "/login?next=%2Fpage%3Fx%3D1")

    assert (reply.status, reply.headers["Location"]) == (303, "./login?next=%2Fpage%3Fx%3D1")
    assert b'value="/page?x=1"' in page.body
    assert ask(server.url, "GET", "/page").status == 401


def test_the_login_page_needs_no_other_server(server: RestServer) -> None:
    """Page, script and style need no token and no other server, and the target is escaped."""
    page = ask(server.url, "GET", '/login?next=/"><script>')
    script, style = ask(server.url, "GET", "/login.js"), ask(server.url, "GET", "/login.css")

    assert (page.status, script.status, style.status) == (200, 200, 200)
    assert b'"><script>' not in page.body
    assert b"http://" not in page.body + script.body + style.body
    assert b"https://" not in page.body + script.body + style.body


def test_logout_removes_cookie_and_page_key(server: RestServer) -> None:
    """Logging out needs a POST of the same origin."""
    assert ask(server.url, "GET", "/logout").status in (401, 405)
    assert ask(server.url, "POST", "/logout", headers={"Origin": "https://evil.example"}).status == 403
    reply = ask(server.url, "POST", "/logout")

    assert reply.status == 200
    assert "Max-Age=0" in reply.headers["Set-Cookie"]
    assert b"data-forget" in reply.body  # page_key.js deletes the page key


def test_without_a_token_every_login_succeeds() -> None:
    """The login answers with the page and sets no cookie."""
    access = AccessRules(token=None)
    with serve(login_routes(access), access=access) as server:
        reply = _login(server, token="", next="/page")

    assert (reply.status, reply.json) == (200, {"ok": True, "key": "", "next": "/page"})
    assert "Set-Cookie" not in reply.headers


# The style sheets: each colour is given once, for light and for dark.


SHEETS = (
    STATIC / "dropflow.css",
    Path(managers.web.__file__).with_name("static") / "content.css",
    Path(managers.web.__file__).with_name("static") / "timeline.css",
)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: path.name)
def test_each_colour_is_given_once(sheet: Path) -> None:
    """No variable is defined twice, and each colour has a light and a dark value, which differ."""
    text = sheet.read_text(encoding="utf-8")
    names = re.findall(r"^\s*(--[\w-]+):", text, re.MULTILINE)
    pairs = re.findall(
        r"^\s*--[\w-]+: light-dark\((#[0-9a-f]{6}|rgb\([^)]*\)), (#[0-9a-f]{6}|rgb\([^)]*\))\);", text, re.MULTILINE
    )

    assert len(names) == len(set(names))
    assert pairs or not names, "a sheet may use the colours of another one only"
    assert all(light != dark for light, dark in pairs)
    assert not re.search(r"^\s*--[\w-]+: (#|rgb)", text, re.MULTILINE)
    assert "prefers-color-scheme" not in text


# Tickets: one manager of a cluster signs a browser in at another one, once and for a short time.


MASTER_TOKEN, NODE_TOKEN = "master-token", "node-token"
SECRET = b"s" * 40


class Pair(NamedTuple):
    """A master and a node of one cluster, with different tokens, and the clock of the node."""

    master: RestServer
    node: RestServer
    clock: VirtualClock


PAGE = Route(method="GET", path="/page", handler=_page, summary="a page")
CHANGE = Route(method="POST", path="/change", handler=_page, summary="a change", form=True)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Return two servers; the clock of the node is years away from that of the master."""
    clock, known = VirtualClock(1_000_000_000.0), []
    with ExitStack() as stack:
        own = AccessRules(token=NODE_TOKEN, secret=SECRET)
        node_servers = KnownServers(neighbours=lambda: [ServerAddress("master", "master", known[0].url)])
        routes = [PAGE, CHANGE, *login_routes(own, node_servers, clock=clock)]
        node = stack.enter_context(serve(routes, access=own, clock=clock))
        servers = KnownServers(
            own=lambda: known[0].url,
            below=lambda: [ServerAddress("node", "node", node.url)],
            ticket=partial(request_ticket, secret=SECRET),
        )
        access = AccessRules(token=MASTER_TOKEN, secret=SECRET)
        master = stack.enter_context(serve([PAGE, *login_routes(access, servers)], access=access))
        known.append(master)
        yield Pair(master, node, clock)


def _hop(master: RestServer, target: str, *, key: str = page_key(MASTER_TOKEN), **more: str) -> ReceivedResponse:
    cookie = f"{cookie_name(urlsplit(master.url).netloc)}={cookie_value(MASTER_TOKEN)}"
    headers = {"Cookie": cookie, "Content-Type": FORM, "Origin": master.url} | more
    return ask(master.url, "POST", "/hop", headers=headers, body=urlencode({"to": target, "key": key}).encode())


def test_a_hop_signs_a_browser_in_at_another_manager(pair: Pair) -> None:
    """The redirect has a ticket in its fragment, which the node exchanges for its own cookie and page key."""
    reply = _hop(pair.master, f"{pair.node.url}/page?a=1")
    there = urlsplit(reply.headers["Location"])
    given = {name: values[0] for name, values in parse_qs(there.fragment).items()}
    signed_in = _login(pair.node, **given)

    assert (reply.status, f"http://{there.netloc}", there.path, there.query) == (303, pair.node.url, "/login", "")
    assert signed_in.json == {"ok": True, "key": page_key(NODE_TOKEN), "next": "/page?a=1"}
    assert "Set-Cookie" in signed_in.headers


def test_clocks_that_differ_do_not_matter(pair: Pair) -> None:
    """The manager that made a ticket judges its age: clocks that differ by years do not keep a browser out."""
    ticket = request_ticket(pair.node.url, secret=SECRET)

    assert _login(pair.node, ticket=ticket).status == 200


def test_a_ticket_is_valid_once(pair: Pair) -> None:
    """A replay is refused; a browser that is logged in goes on to the page, and gets no key."""
    ticket = request_ticket(pair.node.url, secret=SECRET)
    _login(pair.node, ticket=ticket)
    cookie = {"Cookie": f"{cookie_name(urlsplit(pair.node.url).netloc)}={cookie_value(NODE_TOKEN)}"}
    body = json.dumps({"ticket": ticket, "next": "/page"}).encode()
    again = ask(pair.node.url, "POST", "/login", headers=cookie, body=body)

    assert _login(pair.node, ticket=ticket).status == 401
    assert again.json == {"ok": True, "key": "", "next": "/page"}


def test_a_ticket_may_only_permit_reading(pair: Pair) -> None:
    """The browser gets the cookie, with which it reads, and the read key, with which it changes nothing."""
    reply = ticket_reply(pair.node.url, secret=SECRET, read_only=True)
    signed_in = _login(pair.node, ticket=reply.ticket, next="/page")
    cookie = {"Cookie": signed_in.headers["Set-Cookie"].partition(";")[0]}

    form = cookie | {"Content-Type": FORM}

    assert signed_in.json == {"ok": True, "key": read_key(NODE_TOKEN), "next": "/page"}
    assert ask(pair.node.url, "GET", "/page", headers=cookie).status == 200
    assert ask(pair.node.url, "POST", "/hop", headers=form, body=b"to=/").status == 403
    changes = urlencode({"key": read_key(NODE_TOKEN)}).encode()
    assert ask(pair.node.url, "POST", "/change", headers=form, body=changes).status == 403


def test_a_browser_that_may_only_read_may_only_read_elsewhere(pair: Pair) -> None:
    """It is not asked for the token when it goes on to another manager, and has no page key there either."""
    reply = _hop(pair.master, f"{pair.node.url}/page", key=read_key(MASTER_TOKEN))
    fragment = parse_qs(urlsplit(reply.headers["Location"]).fragment)
    signed_in = _login(pair.node, **{name: values[0] for name, values in fragment.items()})

    assert reply.status == 303
    assert signed_in.json == {"ok": True, "key": read_key(NODE_TOKEN), "next": "/page"}
    assert _hop(pair.master, f"{pair.node.url}/page", key=read_key(NODE_TOKEN)).status == 403


def test_a_server_is_found_at_its_public_address() -> None:
    """With a port in it, the address is that of each server; without one, only that of the own server."""
    own, other = "http://127.0.0.1:8002", "http://127.0.0.1:8001"
    servers = KnownServers(
        own=lambda: own,
        below=lambda: [ServerAddress("island", "island", other)],
        public_url="https://hub.example.org/ada/{port}",
    )
    target = "https://hub.example.org/ada/8001/sessions?text=a"
    found = servers.find(target)
    alone = msgspec.structs.replace(servers, public_url="https://hub.example.org/dropflow")

    assert found is not None
    assert (found[0].url, *found[1:]) == (other, "https://hub.example.org/ada/8001", "/sessions?text=a")
    assert servers.find("https://hub.example.org/ada/80011/sessions") is None
    assert servers.find("https://hub.example.org/eve/8001/") is None
    assert servers.find(f"{other}/nodes") == (found[0], "https://hub.example.org/ada/8001", "/nodes")
    assert (alone.browser_url(own), alone.browser_url(other)) == ("https://hub.example.org/dropflow", other)


def test_a_ticket_ends(pair: Pair) -> None:
    """A ticket that was not used for a minute is refused."""
    ticket = request_ticket(pair.node.url, secret=SECRET)
    pair.clock.advance(61.0)

    assert _login(pair.node, ticket=ticket).status == 401


def test_a_ticket_is_of_no_use_elsewhere(pair: Pair) -> None:
    """Only the server that made it accepts a ticket, although all of them have the same key."""
    assert _login(pair.master, ticket=request_ticket(pair.node.url, secret=SECRET)).status == 401


def test_only_secrets_get_a_ticket(pair: Pair) -> None:
    """The token and a signature do; another key, the cookie and no credential do not; nor does a very long time."""
    cookie = {"Cookie": f"{cookie_name(urlsplit(pair.node.url).netloc)}={cookie_value(NODE_TOKEN)}"}
    bearer = {"Authorization": f"Bearer {NODE_TOKEN}"}

    assert request_ticket(pair.node.url, token=NODE_TOKEN)
    with pytest.raises(HttpError, match="signature is wrong"):
        request_ticket(pair.node.url, secret=b"x" * 40)
    assert ask(pair.node.url, "POST", "/api/v1/tickets", headers=cookie).status == 403
    assert ask(pair.node.url, "POST", "/api/v1/tickets").status == 401
    too_long = json.dumps({"seconds": LONGEST + 1}).encode()
    assert ask(pair.node.url, "POST", "/api/v1/tickets", headers=bearer, body=too_long).status == 400


def test_the_cookie_alone_gets_no_ticket(pair: Pair) -> None:
    """Servers on other ports of the host get the cookie: without the page key there is no ticket, only the question."""
    reply = _hop(pair.master, f"{pair.node.url}/", key="", Accept="text/html")

    assert (reply.status, "Location" in reply.headers) == (403, False)
    assert b"ticket" not in reply.body
    assert _hop(pair.master, f"{pair.node.url}/", Origin="https://evil.example").status == 403


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example",
        "/page",
        "",
        "javascript:alert(1)",
        "http://127.0.0.1:9/",
        "http://user@{node}/",
        "http://{node}@evil.example/",
        "http://{node}.evil.example/",
        "http://{node}\\@evil.example/",
        "https://{node}/",
        "http://[::1",
    ],
)
def test_a_hop_leads_to_servers_of_the_cluster_only(pair: Pair, target: str) -> None:
    """Other addresses are refused, with a page and with a form: there is no open redirect."""
    given = target.format(node=urlsplit(pair.node.url).netloc)
    bearer = {"Authorization": f"Bearer {MASTER_TOKEN}"}
    asked = ask(pair.master.url, "GET", f"/hop?to={quote(given, safe='')}", headers=bearer)

    assert (_hop(pair.master, given).status, asked.status) == (403, 403)


def test_the_page_of_a_hop_posts_itself(pair: Pair) -> None:
    """The address in the form is escaped, and the page asks for the login first."""
    target = f"{pair.node.url}/page?x=%22&y=1"
    bearer = {"Authorization": f"Bearer {MASTER_TOKEN}"}
    page = ask(pair.master.url, "GET", f"/hop?to={quote(target, safe='')}", headers=bearer)
    stranger = ask(pair.master.url, "GET", f"/hop?to={quote(target, safe='')}", headers={"Accept": "text/html"})

    assert re.search(rb'<input type="hidden" name="to" value="[^"<>]*&amp;y=1">', page.body)
    assert stranger.headers["Location"].startswith("./login?next=%2Fhop%3Fto%3D")


def test_a_server_names_its_front_door(pair: Pair) -> None:
    """The login page of a node names the master, where the browser may be signed in; that of the master names none."""
    node, master = (ask(server.url, "GET", "/login").body for server in (pair.node, pair.master))

    assert f'data-door="{pair.master.url}"'.encode() in node
    assert b'data-door=""' in master


def test_a_manager_without_a_token_is_opened_directly() -> None:
    """A server that needs no credential gives an empty ticket."""
    with serve(login_routes(AccessRules(token=None))) as server:
        assert request_ticket(server.url) == ""


def test_a_manager_that_is_gone_is_reported(pair: Pair) -> None:
    """A hop to a server that does not answer is an error page with its address."""
    pair.node.close()
    reply = _hop(pair.master, f"{pair.node.url}/")

    assert (reply.status, reply.json["error"]["text"].startswith(pair.node.url)) == (503, True)
    with pytest.raises(LinkError, match=r"127\.0\.0\.1"):
        request_ticket(pair.node.url, secret=SECRET)


def test_tickets_are_bounded() -> None:
    """A caller that asks for tickets without end gets 503, until old ones have ended."""
    clock = VirtualClock()
    tickets = Tickets(clock=clock)
    for _ in range(1000):
        tickets.issue(60.0)
    with pytest.raises(HttpError, match="too many tickets"):
        tickets.issue()
    clock.advance(61.0)

    assert tickets.redeem(tickets.issue()) is Permission.CHANGE


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://127.0.0.1:8002", "http://localhost:8002", True),
        ("http://127.0.0.1:8002", "http://[::1]:8002", True),
        ("http://127.0.0.1:8002", "http://LOCALHOST:8002/x", True),
        ("http://127.0.0.1:8002", "http://127.0.0.1:8001", False),
        ("http://127.0.0.1", "http://127.0.0.1:80", True),
        ("http://127.0.0.1:8002", "https://127.0.0.1:8002", False),
        ("http://10.0.0.1:8002", "http://localhost:8002", False),
    ],
)
def test_names_of_this_host_are_one_host(one: str, other: str, same: bool) -> None:  # noqa: FBT001
    """`localhost`, its addresses and the host's own name are the same server."""
    assert same_server(one, other) is same


def test_the_topmost_manager_is_the_front_door() -> None:
    """The master comes first, then an island, then a node; a translator is no front door."""
    found = [ServerAddress(role, role, f"http://{role}:1") for role in ("translator", "node", "island", "master")]

    assert [front_door(found[:count]) for count in range(5)] == [
        "",
        "",
        "http://node:1",
        "http://island:1",
        "http://master:1",
    ]
    assert [front_door(found, above=role) for role in ("master", "island", "translator")] == [
        "",
        "http://master:1",
        "http://master:1",
    ]
    assert split_target("http://a:1") == ("http://a:1", "/")
