"""The contents of drops in a real browser."""

import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropflow.api.drop_records import DropQuery
from dropflow.api.logs import LogLine
from dropflow.api.requests import ResultList
from tests.browser import accessibility_findings, needs_chromium
from tests.fake_manager import FakeManager, manager_with_sessions
from tests.preview.made_files import fits, npy, png
from tests.regular_graphs import fan

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]


expect = pytest.importorskip("playwright.sync_api").expect
_Y, _X = np.mgrid[:300, :400]
_SKY = np.random.default_rng(1).normal(0, 0.02, (300, 400)) + np.exp(-((_X - 150) ** 2 + (_Y - 120) ** 2) / 900)
_SKY[:40, :60] = np.nan
_CUBE = np.stack([_SKY[:64, 100:164].astype(np.float32) + plane for plane in range(3)])
_WAVE = np.sin(np.linspace(0, 40, 100_000)) * np.linspace(1, 0, 100_000)
_CSV = "time,flux,source\n" + "".join(f"{at},{at * 0.5},J{at:04}\n" for at in range(300))
_DRAWN = """async () => {
  const image = document.querySelector("#data img");
  await image.decode();
  return [image.naturalWidth, image.naturalHeight];
}"""
CONTENTS = {
    "picture": png((_X % 256).astype(np.uint8)),
    "fits": fits(
        np.zeros(0, np.uint8), _SKY.astype(np.float32), _CUBE, cards=[("BUNIT", "JY/BEAM"), ("OBJECT", "M 31")]
    ),
    "cube": npy(_CUBE),
    "line": npy(_WAVE),
    "csv": _CSV.encode(),
    "json": b'[{"name": "a", "beam": [1, 2]}, {"name": "b", "ok": true}]',
    "code": b"#!/usr/bin/env python\n# Doubles a number.\ndef double(x):\n    return 2 * x\n",
    "text": b"one\ntwo <script>alert(1)</script>\n",
    "page": b"<!doctype html><script>document.title = 'run'</script>",
    "damaged": npy(_CUBE)[:-9],
    "pickled": npy(np.array([{}], dtype=object)),
}
"""Contents of the first data drops of a session, by what they are."""


def manager_with_contents() -> FakeManager:
    """Return a manager with a session whose data drops have `CONTENTS`."""
    manager = FakeManager()
    graph = fan(40)
    manager.add(graph, "s")
    for row, content in zip(range(21, 41), CONTENTS.values(), strict=False):
        manager.write("s", row, content)
    manager.complete("s")
    return manager


def test_a_picture_is_zoomed_and_tells_its_values(serve: Any, look: Any) -> None:
    """The value under the pointer is shown; buttons, keys and wheel zoom and move; the address has what is shown."""
    manager = manager_with_contents()
    page = look(serve(manager)).page
    drops = {row.drop: row.oid for row in manager.drops("s", DropQuery(limit=1000)).drops}
    page.goto(f"/sessions/s/drops/{drops[21 + list(CONTENTS).index('cube')]}")
    viewer, frame = page.locator("#viewer"), page.locator("#viewer .frame")
    nearer = viewer.get_by_role("button", name="+")
    expect(nearer).to_be_visible()
    box = frame.bounding_box()
    assert box is not None
    frame.hover(position={"x": box["width"] * 0.5 + 1, "y": box["height"] * 0.5 + 1})
    expect(viewer.locator("output")).to_have_text(f"Value {_CUBE[0, 32, 32]:.9g}   Index 0, 32, 32")
    nearer.click()
    expect(page).to_have_url(re.compile(r"left=10&top=10&right=54&bottom=54"))
    viewer.focus()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(r"left=16&top=10&right=59&bottom=54"))
    page.locator("#data").get_by_role("slider").fill("2")
    expect(page).to_have_url(re.compile(r"plane=2&"))
    page.evaluate("import('/static/refresh.js').then((module) => module.refresh())")  # as pages of what runs do
    expect(nearer).to_have_count(1)
    expect(page.locator("#data").get_by_role("slider")).to_have_count(1)
    viewer.press("-")
    expect(page).to_have_url(re.compile(r"left=0&top=0&right=64&bottom=64"))
    viewer.press("+")
    expect(page).to_have_url(re.compile(r"left=10&top=10&right=54&bottom=54"))
    part = _CUBE[2, 10:54, 10:54]
    expect(page.locator("#data dd").nth(2)).to_have_text(f"{part.min():.6g}")
    page.reload()
    expect(page.locator("#data dd").nth(2)).to_have_text(f"{part.min():.6g}")
    expect(nearer).to_be_visible()
    after = frame.bounding_box()
    assert after is not None
    assert after["width"] == pytest.approx(box["width"], rel=0.05)
    page.keyboard.down("Control")
    frame.hover(position={"x": 5, "y": 5})
    page.mouse.wheel(0, 4000)
    page.keyboard.up("Control")
    expect(page).to_have_url(re.compile(r"left=0&top=0&right=64&bottom=64"))
    assert accessibility_findings(page) == []


def test_contents_are_shown_as_what_they_are(serve: Any, look: Any) -> None:
    """Pictures, arrays, tables, text and code; controls work; content is never a document; axe-core finds nothing."""
    manager = manager_with_contents()
    page = look(serve(manager), viewport={"width": 390, "height": 844}).page
    names = {row.drop: row.oid for row in manager.drops("s", DropQuery(limit=1000)).drops}
    addresses = {name: f"/sessions/s/drops/{names[21 + at]}" for at, name in enumerate(CONTENTS)}
    content = page.locator("#data")

    def drawn() -> list[int]:
        size: list[int] = page.evaluate(_DRAWN)
        return size

    page.goto(addresses["picture"])
    assert drawn() == [400, 300]
    page.goto(addresses["fits"])
    assert drawn() == [400, 300]
    expect(content).to_contain_text("JY/BEAM")
    content.get_by_label("Part").select_option("2")
    content.get_by_label("Brightness").select_option("asinh")
    content.get_by_label("Colours").select_option("colour")
    content.get_by_role("button", name="Show").click()
    expect(content.get_by_role("spinbutton")).to_have_value("0")
    assert drawn() == [64, 64]
    content.get_by_role("spinbutton").fill("2")
    content.get_by_role("button", name="Show").click()
    expect(content.locator("dd").nth(4)).to_contain_text("1.9")  # the least value of plane 2
    assert accessibility_findings(page) == []
    page.goto(addresses["line"])
    expect(content.get_by_role("img")).to_be_visible()
    assert accessibility_findings(page) == []
    page.goto(addresses["csv"])
    expect(content.get_by_role("columnheader")).to_have_text(["time", "flux", "source"])
    expect(content).to_contain_text("These are the first 200 of 300 rows.")
    page.goto(addresses["json"])
    expect(content.get_by_role("cell", name="[1, 2]")).to_be_visible()
    page.goto(addresses["code"])
    expect(content.locator(".line")).to_have_count(4)
    assert accessibility_findings(page) == []
    page.goto(addresses["page"])
    expect(content).to_contain_text("document.title = 'run'")
    assert "run" not in page.title()
    for name, words in (("damaged", "the file has"), ("pickled", "only Python's pickle reads")):
        page.goto(addresses[name])
        expect(content).to_contain_text(words)
    answer = page.request.get(addresses["page"].replace("/drops/", "/pictures/"))
    assert answer.status == 400
    answer = page.request.get(addresses["fits"].replace("/drops/", "/pictures/"))
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"


# Results and logs in a real browser.


expect.set_options(timeout=120_000)  # a busy machine is slow
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

    page.get_by_role("link", name="Older lines").dblclick()
    expect(rows).to_have_count(703)
    assert len(set(texts := rows.all_text_contents())) == len(texts)
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


def test_a_search_of_the_log_survives_an_outage_and_another_tab(serve: Any, look: Any) -> None:
    """What matches is shown although the manager does not answer at first, or the reader looks elsewhere meanwhile."""
    manager = manager_with_sessions(role="island", nodes=("a", "b"))
    manager.print_lines("running", _lines(0, 2000))
    window = look(serve(manager))
    window.allow_console_messages("net::ERR_")
    page, held = window.page, list[Any]()
    page.goto("/sessions/running/log")
    rows = page.locator(".log-line")
    expect(rows).to_have_count(200)
    page.route("**/log?*level=WARNING*", lambda route: route.abort(), times=1)
    page.get_by_label("Level").select_option("WARNING")
    expect(rows).to_have_count(2)
    expect(page.locator("#live")).to_have_text("live")

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/log?text=17&*", hold, times=1)
    with page.expect_request("**/log?text=17&*"):
        page.get_by_label("Text", exact=True).fill("17")
    for is_hidden in ("true", "false"):
        page.evaluate(f"Object.defineProperty(document, 'hidden', {{ value: {is_hidden}, configurable: true }})")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    held[0].continue_()
    expect(rows).to_have_count(0)
    expect(page.get_by_text("No line matches.")).to_be_visible()


def test_the_log_of_a_deleted_session_is_not_asked_for_again(serve: Any, look: Any) -> None:
    """The page has what it has, and tells that the session was deleted, also after a search."""
    window = look(serve(manager_with_sessions()))
    window.allow_console_messages("404 (Not Found)")
    page, asked = window.page, list[str]()

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        route.fulfill(status=404, json={})

    page.clock.install()
    page.route("**/api/v1/sessions/running/log?*", refuse)
    page.goto("/sessions/running/log")
    for count in (1, 2):
        expect(page.locator("#live")).to_have_text("this was deleted")
        page.clock.run_for(10_000)
        assert len(asked) == count
        page.get_by_label("Level").select_option("WARNING")
        page.clock.run_for(1_000)
        expect(page.locator("#lines")).not_to_have_attribute("aria-busy", "true")


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


# Lists, keys, commands and colours of the pages, in a real browser.


PHONE = {"width": 390, "height": 800}


def _large() -> FakeManager:
    manager = manager_with_sessions()
    manager.add(fan(500), "large")
    for at in range(1, 8):
        manager.fail("large", at, f"no value {at}")
    return manager


def _first(page: Any, region: str) -> str:
    text: str = page.get_by_role("region", name=region, exact=True).locator("tbody tr").first.inner_text()
    return text


def test_filters_apply_as_typed_and_lists_are_sorted(serve: Any, look: Any) -> None:
    """The list follows the form and its address has the filter; headers sort it, also after a filter."""
    page = look(serve(_large())).page
    page.goto("/sessions/large")
    page.get_by_role("searchbox", name="Text in id or name").press_sequentially("fan_a")
    expect(page.get_by_text("of 250 drops")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/sessions/large\?text=fan_a$"))
    page.get_by_role("region", name="Drops", exact=True).get_by_role("link", name="Row").click()
    expect(page).to_have_url(re.compile(r"text=fan_a&sort=row#drops$"))
    page.get_by_role("region", name="Drops", exact=True).get_by_role("link", name="Row").click()
    header = page.get_by_role("region", name="Drops", exact=True).get_by_role("columnheader", name="Row")
    expect(header).to_have_attribute("aria-sort", "descending")
    assert "fan_a_0-249" in _first(page, "Drops")
    page.get_by_role("combobox", name="State").select_option(label="in error")
    expect(page).to_have_url(re.compile(r"sort=-row&text=fan_a&state=ERROR#drops$"))
    expect(page.get_by_text("of 7 drops")).to_be_visible()
    assert "fan_a_0-6" in _first(page, "Drops")


def test_whole_tables_are_sorted_in_place(serve: Any, look: Any) -> None:
    """The order stays when the page is updated; numbers are compared with their units."""
    manager = _large()
    page = look(serve(manager)).page
    page.goto("/sessions/large")
    nodes = page.get_by_role("region", name="Logical nodes")
    nodes.get_by_role("button", name="In error").click()
    expect(nodes.get_by_role("columnheader", name="In error")).to_have_attribute("aria-sort", "descending")
    assert _first(page, "Logical nodes").startswith("app")
    nodes.get_by_role("button", name="Name").click()
    before = nodes.locator("tbody th a").all_inner_texts()
    assert before == sorted(before)
    manager.advance("large", {20: "COMPLETED"})
    expect(page.locator("[data-figure=settled]")).to_have_text("8")
    assert nodes.locator("tbody th a").all_inner_texts() == before
    numbers = page.evaluate(
        """async () => {
          const { parsed } = await import("/static/tables.js");
          return ["1,234", "3 min 05 s", "1.2 GB", "12.3 µs", "250 ms", "2 h 07 min", "40 %", "5 / 1,000"].map(parsed);
        }"""
    )
    assert numbers == pytest.approx([1234, 185, 1.2e9, 12.3e-6, 0.25, 7620, 40, 1000])
    names = ["fan_a_0-1", "0-10", "1-2"]
    assert names == page.evaluate(
        "async (names) => names.map((await import('/static/tables.js')).parsed)",
        names,
    )


def test_all_columns_are_reached_on_a_phone(serve: Any, look: Any) -> None:
    """A button shows what a narrow window leaves out; the page does not become wider, and axe finds nothing."""
    page = look(serve(_large()), viewport=PHONE).page
    for address, region, column in (
        ("/sessions/large", "Drops", "Attempt"),
        ("/sessions", "Sessions", "Begun"),
        ("/nodes", "Nodes", "Disk"),
    ):
        page.goto(address)
        table = page.get_by_role("region", name=region, exact=True)
        expect(table.get_by_role("columnheader", name=column)).to_have_count(0)
        button = table.locator("xpath=preceding-sibling::button[1]")
        expect(button).to_have_text("All columns")
        button.click()
        expect(table.get_by_role("columnheader", name=column)).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
        assert accessibility_findings(page) == [], address


def test_keys_go_through_rows_and_commands_find_pages(serve: Any, look: Any) -> None:
    """J and k choose rows, / searches, ? shows the keys, Ctrl+K finds sessions; axe finds nothing in the dialogs."""
    page = look(serve(_large())).page
    page.goto("/sessions")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("tbody tr").first.locator("a").first).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    assert accessibility_findings(page) == []
    # The keys come before the event that takes the closed dialog out of the page.
    keys = "dispatchEvent(new KeyboardEvent('keydown', {key: 'k', ctrlKey: true}))"
    page.evaluate(f"document.querySelector('dialog').close(); {keys}")
    page.get_by_role("combobox", name="Find a page").fill("large")
    expect(page.get_by_role("option", name="large")).to_have_attribute("aria-selected", "true")
    assert accessibility_findings(page) == []
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/sessions/large$"))


def test_dark_and_light_are_chosen_and_remembered(serve: Any, look: Any) -> None:
    """The choice holds for the next page, and on it before anything is drawn; it is the same dark as the system's."""
    url = serve(_large())
    page = look(url, color_scheme="light").page
    page.goto("/")
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Colours: as the system").click()
    page.get_by_role("button", name="Colours: light").click()
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
    page.goto("/sessions/large")
    dark = page.evaluate(paper)
    system = look(url, color_scheme="dark").page
    system.goto("/")

    assert dark != light
    assert system.evaluate(paper) == dark
    assert accessibility_findings(page) == []
