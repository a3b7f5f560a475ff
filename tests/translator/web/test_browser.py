"""The translator in a real browser: from EAGLE's page to the session, on a phone, and without scripts."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import make_server

import pytest

from dropflow.api.auth import cookie_name, cookie_value
from tests.browser import accessibility_findings, needs_chromium, open_window
from tests.drawn_graphs import data, draw, function
from tests.nightly import nightly
from tests.translator.templates import template
from tests.translator.web.served import EAGLE, TOKEN, Served

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

_EXPECTED = ("the server responded with a status of 40", "Autofocus processing was blocked")
"""What the browser logs for refused requests, which these tests cause on purpose, and when a field of the page before
was focused."""

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]


@pytest.fixture
def browse(chromium: Any, served: Served, eagle: str) -> Iterator[Callable[..., Any]]:
    """Opens pages; none may log an error, or load anything from other servers than translator, manager and EAGLE."""
    with ExitStack() as stack:

        def open_page(**settings: Any) -> Any:
            window = stack.enter_context(open_window(chromium, served.url, served.manager_url, eagle, **settings))
            window.allow_console_messages(*_EXPECTED)
            return window.page

        yield open_page


@pytest.fixture
def eagle(served: Served, hello: Path) -> Iterator[str]:
    """The URL of a page of another site that posts a graph into a new tab, as EAGLE does."""
    fields = {**EAGLE, "lg_name": "hello.graph", "json_data": hello.read_text()}
    inputs = "".join(
        f'<textarea name="{name}">{value.replace("&", "&amp;").replace("<", "&lt;")}</textarea>'
        for name, value in fields.items()
    )
    document = (
        f'<!DOCTYPE html><title>EAGLE</title><link rel="icon" href="data:,"><form method="post" target="_blank" '
        f'action="{served.url}/gen_pgt">{inputs}<button>Translate</button></form>'
    ).encode()

    def application(_: object, start: Callable[..., Any]) -> list[bytes]:
        start("200 OK", [("Content-Type", "text/html; charset=utf-8")])
        return [document]

    server = make_server("127.0.0.1", 0, application)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    # localhost is another site than 127.0.0.1, where the translator is.
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def _log_in(page: Any, served: Served, *, scripts: bool = True) -> None:
    """Log in with the URL that the server prints, or without scripts with the form of the login page."""
    page.goto(f"{served.url}/login#{TOKEN}")
    if not scripts:
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{served.url}/")


def test_from_eagle_to_the_session_without_scripts(served: Served, eagle: str, browse: Callable[..., Any]) -> None:
    """EAGLE's form opens the page in a new tab; its form deploys, and leads to the manager's page of the session.

    Without scripts the browser cannot keep the page key, so the person is asked for the token.
    """
    page = browse(java_script_enabled=False)
    _log_in(page, served, scripts=False)
    page.goto(eagle)
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Translate").click()
    tab = popup.value
    tab.get_by_text("Translated", exact=True).wait_for()

    assert tab.url.startswith(f"{served.url}/translations/")
    tab.get_by_label("Session").fill("from-eagle")
    tab.get_by_role("button", name="Deploy and watch").click()
    tab.get_by_label("Token").fill(TOKEN)
    tab.get_by_role("button", name="Confirm").click()
    tab.wait_for_url(f"{served.manager_url}/sessions/from-eagle")
    assert "the page /sessions/from-eagle" in tab.content()


def test_a_cookie_of_another_server_needs_the_token_once(
    served: Served, hello: Path, browse: Callable[..., Any]
) -> None:
    """The page key is kept after that, so that the next form does not need the token."""
    page = browse()
    name, value = cookie_name(urlsplit(served.url).netloc), cookie_value(TOKEN)
    page.context.add_cookies([{"name": name, "value": value, "url": served.url, "sameSite": "Lax"}])
    for session in ("first", "second"):
        page.goto(f"{served.url}/translations/{served.translate(hello)['id']}")
        page.get_by_label("Session").fill(session)
        page.get_by_role("button", name="Deploy and watch").click()
        if session == "first":
            page.get_by_label("Token").fill("wrong")
            page.get_by_role("button", name="Confirm").click()
            page.get_by_text("That token was not accepted").wait_for()
            page.get_by_label("Token").fill(TOKEN)
            page.get_by_role("button", name="Confirm").click()
        page.wait_for_url(f"{served.manager_url}/sessions/{session}")

    assert {each.session for each in served.manager.sessions()} == {"first", "second"}


def test_a_browser_without_a_cookie_is_redirected_to_the_login(
    served: Served, nested: Path, browse: Callable[..., Any]
) -> None:
    """After the login it gets the translation."""
    identity = served.translate(nested)["id"]
    page = browse()
    page.goto(f"{served.url}/translations/{identity}")
    page.get_by_role("button", name="Deploy and watch").click()
    page.wait_for_url("**/login?**")
    page.locator("input[type=password], input[name=token]").first.fill(TOKEN)
    page.get_by_role("button").first.click()
    page.wait_for_url(f"**/translations/{identity}")

    assert page.get_by_role("button", name="Deploy and watch").is_visible()


def test_a_file_is_uploaded_and_partitioned_again(served: Served, nested: Path, browse: Callable[..., Any]) -> None:
    """The forms of the pages are found by their labels."""
    page = browse()
    page.goto(served.url)
    page.locator("input[type=file]").set_input_files(nested)
    page.get_by_role("button", name="Translate").click()
    page.get_by_role("spinbutton", name="Parts").fill("3")
    page.get_by_label("Algorithm").select_option("blocks")
    page.get_by_role("button", name="Translate again").click()

    page.get_by_text("3 parts by blocks").first.wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Physical graph, .dfg").click()
    assert download.value.suggested_filename == "nested-scatter-gather.dfg"


def test_the_graph_is_shown_before_deployment(served: Served, nested: Path, browse: Callable[..., Any]) -> None:
    """Its parts have colours, its drops are found, and axe-core finds nothing, on a screen and on a phone."""
    identity = served.translate(nested, parts="3")["id"]
    for width, scheme in ((1280, "light"), (390, "dark")):
        page = browse(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.goto(f"{served.url}/translations/{identity}")
        page.get_by_role("link", name="Show the graph").click()
        page.locator("#graph[data-ready=yes]").wait_for()

        assert page.locator("#graph-legend li").all_inner_texts() == ["part 0", "part 1", "part 2"]
        page.get_by_role("combobox", name="Boxes").select_option("part")
        page.locator("#graph canvas[data-boxes='3']").wait_for()
        page.locator("#graph-text").fill("Make table")
        page.keyboard.press("Enter")
        panel = page.get_by_role("region", name="Chosen")
        panel.get_by_role("heading", name="Make table").wait_for()
        panel.get_by_role("button", name="Downstream").click()
        page.get_by_text("Shown: what depends on Make table").wait_for()
        assert accessibility_findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [360, *nightly(390), 1280])
def test_pages_fit_a_phone_and_have_labels(
    served: Served, nested: Path, browse: Callable[..., Any], width: int
) -> None:
    """No page scrolls sideways, and every field has a label."""
    good = served.translate(nested, name="a-long-name-without-any-place-to-break-it" * 4, parts="8")["id"]
    bad = served.translate(b'{"nodeDataArray": [{"id": "1", "category": "N"}], "linkDataArray": 1}')["id"]
    page = browse(viewport={"width": width, "height": 800})
    _log_in(page, served)
    for path in ("/", "/translations", f"/translations/{good}", f"/translations/{bad}"):
        page.goto(served.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        fields = "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
        unnamed = f"{fields}.filter(field => !field.labels.length).length"
        assert page.evaluate(unnamed) == 0, path
        assert page.locator("h1").count() == 1


def test_code_is_edited_and_what_would_run_is_shown(served: Served, tmp_path: Path, browse: Callable[..., Any]) -> None:
    """The form that runs a graph has the code of its functions; what would run comes before anything is started."""
    nodes = [function("Greet", "def Greet(input=0):\n    return 'hello'"), data("text")]
    page = browse()
    _log_in(page, served)
    page.goto(served.url)
    page.locator("input[type=file]").set_input_files(draw(tmp_path / "greet.graph", nodes, "Greet > text"))
    page.get_by_role("button", name="Translate").click()
    page.get_by_text("Code and values of nodes").click()
    code = page.locator("textarea[name$=func_code]").first
    code.fill(code.input_value() + "\n# edited")
    page.get_by_role("button", name="Show what would run").click()
    table = page.get_by_role("region", name="What would run")
    table.wait_for()

    assert table.locator("tbody th").all_inner_texts() == ["Greet"]
    assert "# edited" in page.locator("textarea[name$=func_code]").first.input_value()
    assert served.manager.sessions() == ()
    page.get_by_role("button", name="Deploy and watch").click()
    page.wait_for_url(f"{served.manager_url}/sessions/*")
    assert len(served.manager.sessions()) == 1


def test_a_template_is_filled_compared_and_deployed_without_scripts(served: Served, browse: Callable[..., Any]) -> None:
    """A person uploads a template, gives its number, compares the plans, chooses one, and deploys it."""
    page = browse(java_script_enabled=False)
    _log_in(page, served, scripts=False)
    page.goto(served.url)
    source = {"name": "t.graph", "mimeType": "application/json", "buffer": json.dumps(template()).encode()}
    page.locator("input[type=file]").set_input_files(source)
    page.get_by_role("button", name="Translate", exact=True).click()
    page.get_by_text("This graph is a template").wait_for()
    page.get_by_label("n Integer, 1 to 64").fill("4")
    page.get_by_role("spinbutton", name="Parts", exact=True).fill("2")
    page.get_by_role("button", name="Compare all plans").click()
    page.get_by_role("button", name="Choose heft").click()
    page.get_by_text("2 parts by heft").first.wait_for()
    page.get_by_label("n Integer, 1 to 64").fill("5")  # it is translated again before it runs
    page.get_by_role("button", name="Deploy and watch").click()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Confirm").click()
    page.wait_for_url(f"{served.manager_url}/sessions/*")

    assert [session.drops for session in served.manager.sessions()] == [13]
