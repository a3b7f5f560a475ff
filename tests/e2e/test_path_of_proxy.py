"""A manager and a translator below paths of a proxy, in a real browser: every address of every page is below them."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from dropflow.api.serving import RestServer
from dropflow.web.known_servers import KnownServers, ServerAddress, login_url, public_address
from dropflow.web.tickets import request_ticket, ticket_reply
from managers.manager_server import Service, make_access_rules
from managers.node.manager import NodeManager
from tests.browser import needs_chromium, open_browser, open_window
from tests.path_proxy import PathProxy, path_proxy
from translator.web.routes import STREAMS, make_translator

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=120_000)  # a busy machine is slow

GRAPH = Path(__file__).resolve().parents[2] / "examples" / "nested-scatter-gather.graph"
TOKEN, SECRET = "a-token", b"s" * 40


class Servers(NamedTuple):
    """A node manager and a translator, as the proxy serves them."""

    proxy: PathProxy
    manager: str
    translator: str
    manager_here: str


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """A node manager and a translator behind a proxy that refuses all paths but theirs."""
    with path_proxy() as proxy, ExitStack() as stack:
        translators: list[ServerAddress] = []
        node = stack.enter_context(closing(NodeManager("node", root=tmp_path / "node", runner="threads")))
        service = Service(node, token=TOKEN, secret=SECRET, neighbours=lambda: translators, public_url=proxy.public_url)
        stack.callback(service.close)
        service.start()
        node.set_url(service.url)
        access = make_access_rules("127.0.0.1", token=TOKEN, secret=SECRET, public_url=proxy.public_url)
        app, streams, translations = make_translator(
            tmp_path / "translator",
            managers=[service.url],
            access=access,
            secret=SECRET,
            servers=KnownServers(
                own=lambda: server.url,
                neighbours=lambda: [ServerAddress("node", "node", service.url)],
                ticket=partial(request_ticket, secret=SECRET),
                public_url=proxy.public_url,
            ),
        )
        stack.callback(translations.close)
        server = RestServer(app, streams=streams, stream_limit=STREAMS)
        stack.callback(server.close)
        server.start()
        translators.append(ServerAddress("translator", "translator", server.url))
        manager, translator = (public_address(proxy.public_url, url) for url in (service.url, server.url))
        yield Servers(proxy, manager, translator, service.url)


@pytest.mark.slow
@pytest.mark.browser
@needs_chromium
def test_pages_work_below_a_path_of_a_proxy(servers: Servers, tmp_path: Path) -> None:
    """After one sign-in a graph is submitted, watched and downloaded, and nothing outside of the paths is asked."""
    reply = ticket_reply(servers.manager_here, token=TOKEN)
    assert reply.url == servers.manager
    with open_browser() as browser, open_window(browser, servers.manager) as window:
        page = window.page
        page.goto(login_url(reply.url, reply.ticket, "/submit"))
        page.get_by_label("A file from EAGLE").set_input_files(str(GRAPH))
        page.get_by_role("button", name="Translate", exact=True).click()
        page.wait_for_url(f"{servers.translator}/translations/*?manager=*")
        for button in ("Compare all plans", "Show what would run"):
            page.get_by_role("button", name=button).click()
            page.get_by_role("heading", name={"Compare all plans": "Plans"}.get(button, "What would run")).wait_for()
        page.get_by_label("Session").fill("below")
        page.get_by_role("button", name="Deploy and watch").click()
        page.wait_for_url(f"{servers.manager}/sessions/below")
        page.get_by_text(re.compile("^finished$", re.IGNORECASE)).first.wait_for()
        look_around(page, servers, tmp_path)
        page.get_by_role("link", name="Clone…").click()
        page.get_by_role("button", name="Deploy and watch").click()
        page.wait_for_url(re.compile(f"^{servers.manager}/sessions/(?!below)[^/]+$"))
        cookies = page.context.cookies()

    assert {cookie["path"] for cookie in cookies} == {
        urlsplit(url).path for url in (servers.manager, servers.translator)
    }
    assert servers.proxy.refused == []


def look_around(page: Any, servers: Servers, folder: Path) -> None:
    """Open the graph, the timeline, the log and the list of sessions, and download results."""
    page.get_by_role("link", name="Graph", exact=True).click()
    expect(page.locator("#graph")).to_have_attribute("data-ready", "yes")
    page.go_back()
    page.get_by_role("link", name="Timeline", exact=True).first.click()
    expect(page.locator("#timeline")).to_have_attribute("data-ready", "yes")
    page.go_back()
    page.get_by_role("link", name="Log", exact=True).first.click()
    page.get_by_label("Level").select_option("ERROR")
    page.get_by_text("No line matches.").wait_for()
    page.go_back()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download files/sums.txt").click()
    download.value.save_as(folder / "sums.txt")
    assert (folder / "sums.txt").read_text().strip()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Find a page").fill("below")
    page.get_by_role("option", name="below").first.click()
    page.wait_for_url(f"{servers.manager}/sessions/below")
