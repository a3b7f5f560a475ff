"""Lists, keys, commands and colours of the pages, in a real browser."""

import re
from typing import Any

import pytest

from dropflow.testing.drawing import fan
from dropflow.testing.fake_manager import FakeManager, manager_with_sessions
from tests.browser import accessibility_findings, needs_chromium

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]

PHONE = {"width": 390, "height": 800}


def _large() -> FakeManager:
    manager = manager_with_sessions()
    manager.add(fan(500), "large")
    for at in range(1, 8):
        manager.fail("large", at, f"no value {at}")
    return manager


def _first(page: Any, region: str) -> str:
    found: str = page.get_by_role("region", name=region, exact=True).locator("tbody tr").first.inner_text()
    return found


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
    assert page.evaluate("import('/static/tables.js').then(({ parsed }) => parsed('fan_a_0-1'))") == "fan_a_0-1"


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
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
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
