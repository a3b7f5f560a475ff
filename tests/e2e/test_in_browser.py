"""The first steps of a new user in a real browser: from one address to the results, with real managers.

The browser opens one printed address. Translator, master and nodes are reached from it, by any name of this host.
"""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser import needs_chromium, open_browser
from tests.processes import Running, run

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]

ROOT = Path(__file__).resolve().parents[2]
GRAPH = ROOT / "examples" / "nested-scatter-gather.graph"
EAGLE_FIELDS = {
    "algo": "metis",
    "lg_name": "posted.graph",
    "test": "false",
    "num_islands": "0",
    "num_par": "1",
    "par_label": "Partition",
    "max_load_imb": "100",
    "max_cpu": "8",
    "num_parallel_task_streams": "1",
    "rmode": "0",
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two nodes with an island, a master and a translator."""
    with Running(tmp_path_factory.mktemp("up"), "up", "--nodes", 2, "--port", 0) as running:
        yield running


@pytest.fixture(scope="module")
def eagle() -> Iterator[str]:
    """The address of another site, where a page posts forms."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b'<!doctype html><title>EAGLE</title><link rel="icon" href="data:,">')

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser."""
    with open_browser() as browser:
        yield browser


@pytest.fixture
def window(chromium: Any) -> Iterator[Any]:
    """Return a page of a browser without cookies."""
    context = chromium.new_context()
    context.set_default_timeout(30_000)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(window: Any, up: Running) -> Any:
    """Return a page that has opened the one printed address."""
    (address,) = re.findall(r"open in a browser: +(\S+)", up.errors)
    window.goto(address)
    window.wait_for_url(f"{up.ready['master']}/")
    return window


def default_address(up: Running) -> str:
    """Return the translator's address as EAGLE has it: by the name localhost."""
    return str(up.ready["translator"]).replace("127.0.0.1", "localhost")


def posted(page: Any, eagle: str, up: Running, graph: str, **fields: str) -> Any:
    """Make EAGLE's post, a form into a new tab from another site, and return that tab."""
    page.goto(eagle)
    page.evaluate(
        """([action, fields]) => {
          const form = document.createElement("form");
          Object.assign(form, { method: "post", action, target: "_blank" });
          for (const [name, value] of Object.entries(fields)) {
            const field = document.createElement("input");
            Object.assign(field, { type: "hidden", name, value });
            form.append(field);
          }
          document.body.append(form);
          window.post = () => form.submit();
        }""",
        [f"{default_address(up)}/gen_pgt", EAGLE_FIELDS | {"json_data": graph} | fields],
    )
    with page.expect_popup() as popup:
        page.evaluate("post()")
    return popup.value


def finished(page: Any, up: Running, session: str) -> None:
    """Wait until the session's page shows FINISHED, without reloading it."""
    page.wait_for_url(f"{up.ready['master']}/sessions/{session}")
    page.get_by_text(re.compile("^finished$", re.IGNORECASE)).first.wait_for()


def test_an_uploaded_graph_runs_and_is_followed(page: Any, up: Running, tmp_path: Path) -> None:
    """One sign-in is enough to upload, translate and deploy a graph, watch its session, and download a result."""
    page.get_by_role("link", name="Translate").click()
    page.wait_for_url(f"{up.ready['translator']}/")
    page.get_by_label("A file from EAGLE").set_input_files(str(GRAPH))
    page.get_by_role("button", name="Translate").click()
    page.get_by_label("Session").fill("uploaded")
    page.get_by_role("button", name="Deploy and watch").click()
    finished(page, up, "uploaded")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download files/sums.txt").click()
    download.value.save_as(tmp_path / "sums.txt")

    (written,) = up.home.rglob("sessions/uploaded/files/sums.txt")
    assert (tmp_path / "sums.txt").read_bytes() == written.read_bytes()


def test_a_graph_is_submitted_from_the_page_of_a_manager(page: Any, up: Running) -> None:
    """A file that is chosen on the manager's page is previewed by the translator, and runs."""
    page.get_by_role("link", name="Submit", exact=True).click()
    page.get_by_label("Drop a file here").set_input_files(str(GRAPH))
    page.get_by_role("button", name="Check and preview").click()
    page.wait_for_url(f"{up.ready['translator']}/translations/*?manager=*")
    page.get_by_label("Session").fill("from-page")
    page.get_by_role("button", name="Deploy and watch").click()

    finished(page, up, "from-page")


def test_a_graph_that_eagle_posts_runs(page: Any, eagle: str, up: Running) -> None:
    """EAGLE posts to its default address; the user, signed in at the master, deploys without another sign-in."""
    tab = posted(page, eagle, up, GRAPH.read_text(encoding="utf-8"))
    tab.wait_for_url(f"{default_address(up)}/translations/*")
    tab.get_by_label("Session").fill("posted")
    tab.get_by_role("button", name="Deploy and watch").click()

    finished(tab, up, "posted")


def test_a_new_browser_signs_in_once_on_the_way(window: Any, eagle: str, up: Running) -> None:
    """A browser without a sign-in sees the translation; "Deploy" leads over the master's login and then deploys."""
    tab = posted(window, eagle, up, GRAPH.read_text(encoding="utf-8"), num_par="2")
    tab.get_by_label("Session").fill("on-the-way")
    tab.get_by_role("button", name="Deploy and watch").click()
    tab.wait_for_url(f"{up.ready['master']}/login?**")
    tab.get_by_label("Token").fill(up.ready["token"])
    tab.get_by_role("button", name="Log in").click()

    finished(tab, up, "on-the-way")


def test_every_manager_is_reached_and_may_be_used(page: Any, up: Running) -> None:
    """From the first page links lead to island and nodes, where a session can be deleted without a token."""
    run(up.home, "submit", GRAPH, "--session", "on-node", "--wait")
    assert page.get_by_role("link", name="Cluster").count() == 0
    page.get_by_role("link", name="node-1").first.click()
    page.wait_for_url(f"{up.ready['nodes'][0]}/")
    page.get_by_role("link", name="Cluster").click()
    page.wait_for_url(f"{up.ready['master']}/")
    page.get_by_role("link", name="island").first.click()
    page.wait_for_url(f"{up.ready['island']}/")
    page.goto(f"{up.ready['island']}/sessions/on-node/delete")
    page.get_by_role("button", name="Delete the session").click()
    page.wait_for_url(f"{up.ready['island']}/sessions")

    assert page.get_by_role("link", name="on-node").count() == 0


def test_names_of_this_host_are_one_door(page: Any, up: Running) -> None:
    """A browser that is signed in at 127.0.0.1 opens the pages of managers at localhost, too."""
    for server in (up.ready["nodes"][1], up.ready["island"]):
        named = server.replace("127.0.0.1", "localhost")
        page.goto(f"{named}/sessions")
        page.wait_for_url(f"{named}/sessions")
        page.get_by_role("heading", name="Sessions").first.wait_for()


def test_open_signs_a_new_browser_in(window: Any, up: Running) -> None:
    """The printed address opens the page of a session once; opened again, the browser is signed in already."""
    run(up.home, "submit", GRAPH, "--session", "elsewhere", "--wait")
    address = run(up.home, "open", "elsewhere").stdout.strip()
    for _ in range(2):
        window.goto("about:blank")
        window.goto(address)
        finished(window, up, "elsewhere")
    stranger = window.context.browser.new_context().new_page()
    stranger.goto(address)
    stranger.get_by_role("alert").get_by_text("was used before").wait_for()
    stranger.context.close()


def test_a_session_of_the_command_line_is_on_the_page(page: Any, up: Running) -> None:
    """A session that is submitted with a command appears on the open list of sessions without a reload."""
    page.goto(f"{up.ready['master']}/sessions")
    done = run(up.home, "submit", GRAPH, "--session", "appears", "--wait")
    page.get_by_role("link", name="appears").first.wait_for()

    assert done.returncode == 0, done.stderr
