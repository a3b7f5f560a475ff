"""From the URL that a server prints to a cookie and a page key in the browser."""

import json
from collections.abc import Iterator
from http.cookies import SimpleCookie
from urllib.parse import urlencode

import pytest

from dropflow.rest.auth import AccessRules, page_key
from dropflow.rest.kit import Request, Route
from dropflow.rest.login import login_routes
from dropflow.rest.posted_form import FORM
from dropflow.rest.server import RestServer
from dropflow.testing.serving import ReceivedResponse, ask, serve

TOKEN = "a-token"  # noqa: S105 - guards nothing


def _page(_: Request) -> None:
    """Nothing to tell."""


@pytest.fixture
def server() -> Iterator[RestServer]:
    """A page behind a token, and the way in."""
    access = AccessRules(token=TOKEN)
    page = Route(method="GET", path="/page", handler=_page, summary="a page")
    with serve([page, *login_routes(access)], access=access) as found:
        yield found


def _login(server: RestServer, **fields: str) -> ReceivedResponse:
    return ask(server.url, "POST", "/login", body=json.dumps(fields).encode())


def test_the_token_becomes_a_cookie_that_lets_in(server: RestServer) -> None:
    """HttpOnly and SameSite=Lax, since links of other sites may lead in; neither cookie nor key tells the token."""
    reply = _login(server, token=TOKEN, next="/page")
    cookie = SimpleCookie(reply.headers["Set-Cookie"])
    ((name, morsel),) = cookie.items()

    assert (reply.status, reply.json) == (200, {"ok": True, "key": page_key(TOKEN), "next": "/page"})
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Lax", "/")
    assert TOKEN not in reply.headers["Set-Cookie"] + page_key(TOKEN)
    assert page_key(TOKEN) not in reply.headers["Set-Cookie"]
    assert ask(server.url, "GET", "/page", headers={"Cookie": f"{name}={morsel.value}"}).status == 200


def test_the_form_works_without_a_script(server: RestServer) -> None:
    """As a browser posts it."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": server.url}
    reply = ask(server.url, "POST", "/login", headers=headers, body=f"token=+{TOKEN}+&next=%2Fpage".encode())

    assert (reply.status, reply.headers["Location"]) == (303, "/page")


@pytest.mark.parametrize("body", [b'{"token": "wrong"}', b'{"token": ""}'])
def test_a_wrong_token_is_refused(server: RestServer, body: bytes) -> None:
    """Without a cookie."""
    reply = ask(server.url, "POST", "/login", body=body)

    assert reply.status == 401
    assert "Set-Cookie" not in reply.headers


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"token": 1}', b"\xff", b"x" * 70_000])
def test_what_is_no_login_is_refused(server: RestServer, body: bytes) -> None:
    """Whatever it is, and however large."""
    assert ask(server.url, "POST", "/login", body=body).status in (400, 413)


def test_another_site_cannot_log_a_browser_in(server: RestServer) -> None:
    """Login is same-origin too."""
    headers = {"Origin": "https://evil.example"}

    assert ask(server.url, "POST", "/login", headers=headers, body=b'{"token": "a-token"}').status == 403


@pytest.mark.parametrize(
    "target",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "", "/a\r\nX: y", "/ü"],
)
def test_a_login_leads_nowhere_else(server: RestServer, target: str) -> None:
    """Only to a page of this server."""
    form = urlencode({"token": TOKEN, "next": target}).encode()
    posted = ask(server.url, "POST", "/login", headers={"Content-Type": FORM}, body=form)

    assert _login(server, token=TOKEN, next=target).json["next"] == "/"
    assert posted.headers["Location"] == "/"


def test_people_without_a_token_are_sent_to_the_login(server: RestServer) -> None:
    """And come back to where they wanted; programs are refused."""
    reply = ask(server.url, "GET", "/page?x=1", headers={"Accept": "text/html"})
    page = ask(server.url, "GET", reply.headers["Location"])

    assert (reply.status, reply.headers["Location"]) == (303, "/login?next=%2Fpage%3Fx%3D1")
    assert b'value="/page?x=1"' in page.body
    assert ask(server.url, "GET", "/page").status == 401


def test_the_login_page_brings_all_that_it_needs(server: RestServer) -> None:
    """Without a token, from this server only, and with nothing of the caller's as markup."""
    page = ask(server.url, "GET", '/login?next=/"><script>')
    script, style = ask(server.url, "GET", "/login.js"), ask(server.url, "GET", "/login.css")

    assert (page.status, script.status, style.status) == (200, 200, 200)
    assert b'"><script>' not in page.body
    assert b"http://" not in page.body + script.body + style.body
    assert b"https://" not in page.body + script.body + style.body


def test_logout_takes_the_cookie_back(server: RestServer) -> None:
    """Logging out removes the page key, too; pages of other sites cannot log a user out."""
    assert ask(server.url, "GET", "/logout").status in (401, 405)
    assert ask(server.url, "POST", "/logout", headers={"Origin": "https://evil.example"}).status == 403
    reply = ask(server.url, "POST", "/logout")

    assert reply.status == 303
    assert "Max-Age=0" in reply.headers["Set-Cookie"]
    assert reply.headers["Clear-Site-Data"] == '"storage"'


def test_a_server_without_a_token_has_nothing_to_ask() -> None:
    """The login leads on at once."""
    access = AccessRules(token=None)
    with serve(login_routes(access), access=access) as server:
        reply = _login(server, token="", next="/page")

    assert (reply.status, reply.json) == (200, {"ok": True, "key": "", "next": "/page"})
    assert "Set-Cookie" not in reply.headers
