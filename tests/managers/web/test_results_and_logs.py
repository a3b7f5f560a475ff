"""Results and logs in a real browser."""

import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from dropflow.api.logs import LogLine
from dropflow.api.requests import ResultList
from dropflow.testing.fake_manager import manager_with_sessions
from tests.browser import needs_chromium

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)  # a busy machine is slow
pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]

_LINES = 100_000


def _lines(first: int, count: int, *, text: str = "line") -> list[LogLine]:
    return [
        LogLine(
            time=1_800_000_000.0 + number,
            node="ab"[number % 2],
            drop=f"fan_a_0-{number % 20}",
            name="calibrate",
            level="WARNING" if number % 1_000 == 7 else "OUTPUT",
            text=f"{text} {number}",
            at=0,
        )
        for number in range(first, first + count)
    ]


def test_the_log_is_followed_searched_and_read_back(serve: Any, look: Any, tmp_path: Path) -> None:
    """At 100,000 lines: new lines appear, filters apply as they are typed, and older lines come on demand.

    The filters are in the address, and what matches is downloaded.
    """
    manager = manager_with_sessions(role="island", nodes=("a", "b"))
    manager.print_lines("running", _lines(0, _LINES))
    page = look(serve(manager)).page
    page.goto("/sessions/running")
    page.get_by_role("link", name="Log", exact=True).click()
    log = page.get_by_role("log", name="Lines")
    rows = log.locator(".log-line")
    expect(rows).to_have_count(200)
    expect(rows.last).to_contain_text(f"line {_LINES - 1}")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")

    manager.print_lines("running", _lines(_LINES, 3, text="<b>new</b>"))
    expect(rows).to_have_count(203)
    expect(rows.last).to_contain_text(f"<b>new</b> {_LINES + 2}")
    expect(rows.last).to_be_in_viewport()

    page.get_by_role("link", name="Older lines").click()
    expect(rows).to_have_count(703)
    expect(rows.first).to_contain_text(f"line {_LINES - 700}")

    page.get_by_label("Level").select_option("WARNING")
    expect(rows).to_have_count(100)
    assert "level=WARNING" in page.url
    expect(page.get_by_text("This is the beginning of the log.")).to_be_visible()
    page.get_by_label("Text", exact=True).fill("LINE 5007")
    expect(rows).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    download.value.save_as(tmp_path / "log")
    assert (tmp_path / "log").read_text() == ("2027-01-15T09:23:27.000 WARNING b fan_a_0-7: line 5007\n")

    page.get_by_label("Text", exact=True).fill("nowhere")
    expect(page.get_by_text("No line matches.")).to_be_visible()
    manager.print_lines("running", _lines(0, 8, text="somewhere, nowhere"))
    expect(rows).to_have_count(1)
    page.reload()
    expect(rows).to_have_count(1)
    expect(page.get_by_label("Text", exact=True)).to_have_value("nowhere")

    manager.complete("running")
    expect(page.locator("#live")).to_have_text("over", timeout=60_000)


def test_results_are_downloaded_as_one_file(serve: Any, look: Any, tmp_path: Path) -> None:
    """By a button, also those with a text only. If something is missing, the browser calls the download failed."""
    manager = manager_with_sessions()
    manager.write("finished", 22, b"another")
    results = manager.results("finished").results
    page = look(serve(manager)).page
    page.goto("/sessions/finished/results")

    def names() -> list[str]:
        with page.expect_download() as download:
            page.get_by_role("button", name="Download as tar").click()
        download.value.save_as(tmp_path / "all.tar")
        with tarfile.open(tmp_path / "all.tar") as tar:
            return tar.getnames()

    assert sorted(names()) == sorted(result.path for result in results)
    page.get_by_label("Text in path, id or name").fill(results[0].path.upper())
    expect(page.get_by_role("region", name="Results").locator("tbody tr")).to_have_count(1)
    assert names() == [results[0].path]

    manager.results = lambda _: ResultList(results=results, missing=("far",))  # type: ignore[assignment, method-assign]
    with page.expect_download() as broken:
        page.get_by_role("button", name="as zip").click()
    assert broken.value.failure() is not None


def test_filters_that_are_changed_before_the_script_runs_apply(serve: Any, look: Any) -> None:
    """On a slow link, a page can be used before its scripts are there. What was chosen then counts when they are."""
    manager = manager_with_sessions()
    manager.print_lines("finished", _lines(0, 20))
    page = look(serve(manager)).page
    held: list[Any] = []

    def hold(route: Any) -> None:  # the method of a list is refused as a handler
        held.append(route)

    page.route("**/log.js*", hold)

    page.goto("/sessions/finished/log", wait_until="commit")
    page.get_by_label("Level").select_option("ERROR")
    for route in held:
        route.continue_()

    expect(page.locator("#none")).to_be_visible()
    expect(page).to_have_url(re.compile("level=ERROR"))


def test_the_log_works_without_scripts_and_on_a_phone(serve: Any, look: Any) -> None:
    """The last lines, links to older ones and filters are in the page itself, and nothing is wider than the screen."""
    manager = manager_with_sessions()
    manager.print_lines("finished", _lines(0, 450))
    url = serve(manager)
    page = look(url, java_script_enabled=False, viewport={"width": 390, "height": 844}).page
    page.goto("/sessions/finished/log")
    rows = page.locator(".log-line")

    expect(rows).to_have_count(200)
    page.get_by_role("link", name="Older lines").click()
    expect(rows.first).to_contain_text("line 50")
    page.get_by_label("Text", exact=True).fill("line 44")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(11)

    scripted = look(url, viewport={"width": 390, "height": 844}).page
    scripted.goto("/sessions/finished/log")
    expect(scripted.locator(".log-line").last).to_contain_text("line 449")
    assert scripted.evaluate("document.documentElement.scrollWidth") <= 390
