"""The first steps of a new user in a real browser: from EAGLE's post to the results, with real managers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import needs_chromium, open_browser
from tests.processes import Running, run

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]

ROOT = Path(__file__).resolve().parents[2]
GRAPH = ROOT / "examples" / "nested-scatter-gather.graph"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two nodes with an island, a master and a translator."""
    with Running(tmp_path_factory.mktemp("up"), "up", "--nodes", 2, "--port", 0) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser."""
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(chromium: Any, up: Running) -> Iterator[Any]:
    """Return a page that has opened the printed address of the translator only."""
    context = chromium.new_context()
    context.set_default_timeout(30_000)
    opened = context.new_page()
    opened.goto(f"{up.ready['translator']}/login#{up.ready['token']}")
    opened.wait_for_url(f"{up.ready['translator']}/")
    yield opened
    context.close()


def finished(page: Any, up: Running, session: str) -> None:
    """Wait until the session's page shows FINISHED, without reloading it."""
    page.wait_for_url(f"{up.ready['master']}/sessions/{session}")
    page.get_by_text(re.compile("^finished$", re.IGNORECASE)).first.wait_for()


def test_an_uploaded_graph_runs_and_is_followed(page: Any, up: Running, tmp_path: Path) -> None:
    """One login is enough to upload, translate and deploy a graph, watch its session, and download a result."""
    page.goto(f"{up.ready['translator']}/")
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


def test_a_graph_that_eagle_posts_runs(page: Any, up: Running, tmp_path: Path) -> None:
    """EAGLE posts a form from another site; the user deploys from the page of the translation."""
    eagle = tmp_path / "eagle.html"
    eagle.write_text(
        f"""<!doctype html><form method="post" action="{up.ready["translator"]}/gen_pgt" target="_self">
        <textarea name="json_data"></textarea><input name="lg_name" value="posted.graph">
        <input name="algo" value="metis"><input name="num_par" value="2"><input name="num_islands" value="0">
        <button>Translate</button></form>""",
        encoding="utf-8",
    )
    page.goto(eagle.as_uri())
    page.locator("textarea").fill(GRAPH.read_text(encoding="utf-8"))
    page.get_by_role("button", name="Translate").click()
    page.get_by_label("Session").fill("posted")
    page.get_by_role("button", name="Deploy and watch").click()

    finished(page, up, "posted")


def test_a_session_of_the_command_line_is_on_the_page(page: Any, up: Running) -> None:
    """A session that is submitted with a command appears on the open list of sessions without a reload."""
    page.goto(f"{up.ready['master']}/sessions")
    done = run(up.home, "submit", GRAPH, "--session", "elsewhere", "--wait")
    page.get_by_role("link", name="elsewhere").first.wait_for()

    assert done.returncode == 0, done.stderr
