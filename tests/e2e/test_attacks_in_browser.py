"""Attacks of a page on another port of this host, which tries to run graphs as the user who is logged in.

The user has logged in at the translator and at the master, in Chromium. Its server gets the cookies of both,
because browsers send them to every port of a host.
"""

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest

from dropflow.api.client import Client
from tests.browser import needs_chromium
from tests.processes import Running

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]

ROOT = Path(__file__).resolve().parents[2]
GRAPH = (ROOT / "examples" / "hello.graph").read_text(encoding="utf-8")
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A node with an island, a master and a translator."""
    with Running(tmp_path_factory.mktemp("up"), "up", "--nodes", 1, "--port", 0) as running:
        yield running


class Attacker:
    """A server on another port of this host, which keeps the cookies that browsers send it."""

    def __init__(self) -> None:
        self.cookies: set[str] = set()
        attacker = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                attacker.cookies.add(self.headers.get("Cookie", ""))
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(b'<!doctype html><title>attack</title><link rel="icon" href="data:,">')

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def ask(self, url: str, method: str, path: str, body: str = "", **headers: str) -> http.client.HTTPResponse:
        """Ask a server of the victim directly, without a browser."""
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def attacker() -> Iterator[Attacker]:
    """The other server of this host."""
    server = Attacker()
    yield server
    server.close()


@pytest.fixture
def victim(chromium: Any, up: Running) -> Iterator[Any]:
    """A browser that is logged in at the translator and at the master, and has a page for the attacker."""
    context = chromium.new_context()
    context.set_default_timeout(120_000)
    page = context.new_page()
    for name in ("translator", "master"):
        page.goto(f"{up.ready[name]}/login#{up.ready['token']}")
        page.wait_for_url(f"{up.ready[name]}/")
    yield page
    context.close()


def _translated(attacker: Attacker, up: Running) -> str:
    """Return the id of a translation that the attacker requested, for which no token is needed."""
    form = urlencode({"json_data": GRAPH, "lg_name": "attack.graph", "num_par": "1"})
    reply = attacker.ask(up.ready["translator"], "POST", "/gen_pgt", form, Content_Type=FORM)
    identity = str(reply.getheader("Location")).rpartition("/")[2]
    with Client(up.ready["master"], token=up.ready["token"]):
        wait = f"/api/v1/translations/{identity}?seconds=60"
        token = f"Bearer {up.ready['token']}"
        assert attacker.ask(up.ready["translator"], "GET", wait, Authorization=token).status == 200
    return identity


def _nothing_runs(up: Running) -> bool:
    with Client(up.ready["master"], token=up.ready["token"]) as master:
        return master.sessions() == ()


_ATTACKS = """
async ([translator, master, identity, graph]) => {
  const deploy = `${translator}/translations/${identity}/deploy`;
  const gen = `${translator}/gen_pg?pgt_id=${identity}&dlg_mgr_deploy=1&dlg_mgr_url=${encodeURIComponent(master)}`;
  const form = new URLSearchParams({ manager: master, spread: "yes" });
  const quiet = { mode: "no-cors", credentials: "include" };
  const tried = [
    fetch(gen, quiet),
    fetch(gen, { ...quiet, method: "POST", body: form }),
    fetch(gen, { credentials: "include" }),
    fetch(deploy, { ...quiet, method: "POST", body: form }),
    fetch(deploy, { method: "POST", credentials: "include", body: form }),
    fetch(`${master}/api/v1/sessions`, { ...quiet, method: "POST", body: graph }),
    fetch(`${master}/api/sessions`, { ...quiet, method: "POST", body: JSON.stringify({ sessionId: "x" }) }),
    fetch(`${master}/api/v1/sessions`, { credentials: "include" }).then((answer) => answer.text()),
    fetch(`${master}/api/stop`, { ...quiet, method: "POST" }),
  ];
  for (const tag of ["img", "script", "iframe", "embed"]) {
    const element = document.createElement(tag);
    tried.push(new Promise((done) => {
      element.onload = element.onerror = () => done("");
      element.src = gen;
      document.body.append(element);
      if (tag === "embed") done("");
    }));
  }
  const outcomes = await Promise.allSettled(tried);
  return outcomes.map((outcome) => typeof outcome.value === "string" ? outcome.value : "");
}
"""


def test_a_page_on_another_port_runs_nothing(victim: Any, attacker: Attacker, up: Running) -> None:
    """Scripts, pictures, frames, forms and pages in tabs start no session and read nothing."""
    identity, manager = _translated(attacker, up), up.ready["master"]
    victim.goto(attacker.url)
    answers = victim.evaluate(_ATTACKS, [up.ready["translator"], manager, identity, GRAPH])
    deploy = f"{up.ready['translator']}/translations/{identity}/deploy"
    gen = f"{up.ready['translator']}/gen_pg?pgt_id={identity}&dlg_mgr_deploy=1&dlg_mgr_url={quote(manager, safe='')}"
    for method, action in (("get", gen), ("post", gen), ("post", deploy), ("post", f"{manager}/api/v1/sessions")):
        victim.goto(attacker.url)
        fields = (
            ""
            if method == "post"
            else "".join(
                f'<input name="{name}" value="{value}">'
                for name, value in (("pgt_id", identity), ("dlg_mgr_deploy", "1"), ("dlg_mgr_url", manager))
            )
        )
        victim.set_content(
            f'<form method="{method}" action="{action}">{fields}<input name="manager" value="{manager}">'
        )
        with victim.expect_navigation():
            victim.evaluate("document.forms[0].submit()")
    victim.goto(gen)  # as a link, with all cookies

    assert set(answers) == {""}
    assert victim.get_by_role("button", name="Deploy and watch").is_visible()
    assert _nothing_runs(up)


def test_the_server_behind_the_page_has_the_cookie_and_runs_nothing(
    victim: Any, attacker: Attacker, up: Running
) -> None:
    """Requests of the server itself, with any headers, do not have the page key and are refused."""
    identity, manager = _translated(attacker, up), up.ready["master"]
    victim.goto(attacker.url)
    (cookie,) = attacker.cookies
    form = urlencode({"manager": manager, "spread": "yes"})
    gen = f"/gen_pg?pgt_id={identity}&dlg_mgr_deploy=1&dlg_mgr_url={quote(manager, safe='')}"
    found = []
    for url, method, path, body in (
        (up.ready["translator"], "GET", gen, ""),
        (up.ready["translator"], "POST", gen, ""),
        (up.ready["translator"], "POST", f"/translations/{identity}/deploy", form),
        (up.ready["translator"], "POST", f"/api/v1/translations/{identity}/deploy", json.dumps({"manager": manager})),
        (manager, "POST", "/api/v1/sessions?session=x", GRAPH),
        (manager, "POST", "/api/sessions", '{"sessionId": "x"}'),
        (manager, "POST", "/api/stop", ""),
    ):
        own = {"Cookie": cookie, "Origin": url, "Sec_Fetch_Site": "same-origin", "Content_Type": FORM}
        found.append(attacker.ask(url, method, path, body, **own).status)

    assert "dropflow" in cookie
    assert found == [405, 403, 403, 403, 403, 403, 403]
    assert _nothing_runs(up)


def test_links_on_other_sites_open_the_page_or_the_login(victim: Any, attacker: Attacker, up: Running) -> None:
    """A link on another port or site opens the page for a user who is logged in, and else the login."""
    context = victim.context
    stranger = context.browser.new_context()
    named = attacker.url.replace("127.0.0.1", "localhost")  # another site to the browser
    for start in (attacker.url, named):
        for goal in (f"{up.ready['master']}/sessions", f"{up.ready['translator']}/translations"):
            for window in (context.new_page(), stranger.new_page()):
                window.goto(start)
                window.set_content(f'<a href="{goal}">there</a>')
                window.get_by_role("link", name="there").click()
                if window.context is context:
                    window.wait_for_url(goal)
                    window.get_by_role("heading", level=1).wait_for()
                else:
                    window.wait_for_url("**/login?**")
                    window.get_by_label("Token").wait_for()
    stranger.close()


def test_eagle_posts_to_its_default_address(victim: Any, attacker: Attacker, up: Running) -> None:
    """A form on a page of another site translates without a token; a GET of its address shows the upload form."""
    named = attacker.url.replace("127.0.0.1", "localhost")
    stranger = victim.context.browser.new_context()
    for window in (victim, stranger.new_page()):
        window.goto(named)
        window.set_content(
            f'<form method="post" action="{up.ready["translator"]}/gen_pgt" target="_blank">'
            '<textarea name="json_data"></textarea><input name="lg_name" value="eagle.graph">'
            f'<button>Translate</button></form><a href="{up.ready["translator"]}/gen_pgt">translator</a>'
        )
        window.locator("textarea").fill(GRAPH)
        with window.expect_popup() as popup:
            window.get_by_role("button", name="Translate").click()
        popup.value.get_by_role("button", name="Deploy and watch").wait_for()
        window.get_by_role("link", name="translator").click()
        window.wait_for_url(f"{up.ready['translator']}/")
    stranger.close()

    assert _nothing_runs(up)


def test_the_user_can_still_deploy_and_cancel(victim: Any, up: Running) -> None:
    """The buttons of dropflow's pages work at the translator and at the master without another login."""
    victim.goto(f"{up.ready['translator']}/")
    victim.get_by_label("A file from EAGLE").set_input_files(str(ROOT / "examples" / "hello.graph"))
    victim.get_by_role("button", name="Translate").click()
    victim.get_by_label("Session").fill("mine")
    victim.get_by_role("button", name="Deploy and watch").click()
    victim.wait_for_url(f"{up.ready['master']}/sessions/mine")
    victim.get_by_role("button", name="Delete…").click()
    victim.get_by_role("button", name="Delete the session").click()
    victim.wait_for_url(f"{up.ready['master']}/sessions")

    assert _nothing_runs(up)
