"""Login: from the URL that a server prints to a cookie and a page key in the browser."""

import json
from collections.abc import Iterator
from http.cookies import SimpleCookie
from urllib.parse import urlencode

import pytest

from dropflow.api.auth import AccessRules, page_key
from dropflow.api.openapi import FORM, Request, Route
from dropflow.api.rest_server import RestServer
from dropflow.testing.faults import ReceivedResponse, ask, serve
from dropflow.web.sign_in import login_routes

TOKEN = "a-token"  # noqa: S105 - a token of the tests


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
    assert b"data-forget" in reply.body  # key.js deletes the page key


def test_without_a_token_every_login_succeeds() -> None:
    """The login answers with the page and sets no cookie."""
    access = AccessRules(token=None)
    with serve(login_routes(access), access=access) as server:
        reply = _login(server, token="", next="/page")

    assert (reply.status, reply.json) == (200, {"ok": True, "key": "", "next": "/page"})
    assert "Set-Cookie" not in reply.headers
