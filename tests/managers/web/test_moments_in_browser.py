"""Earlier moments of a session, and its report, in a real browser."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dropflow.api.records import MomentQuery, SessionMoment
from dropflow.testing.drawing import fan
from dropflow.testing.fake_manager import FakeManager
from dropflow.times.octets import NodeReceipts, PeerReceipts
from tests.browser import accessibility_findings, needs_chromium
from tests.times.made_times import executed, sections_of

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]

_SLIDE = "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }"


_FAILED = 30
"""An application that fails after the middle of the session."""


_RESULTS = (42, 78)
"""Data that are complete before the middle, and after it."""


def _manager() -> FakeManager:
    manager = FakeManager(role="island", nodes=("n0", "n1"))
    graph = fan(80)
    manager.add(graph, "s")
    manager.fail("s", _FAILED, "out of cheese", also=(_FAILED + 40,))
    for drop in _RESULTS:
        manager.write("s", drop, b"content")
    manager.complete("s")
    received = {
        "n0": NodeReceipts(),
        "n1": NodeReceipts(received=(PeerReceipts(node="n0", contents=3, size=3_000_000),)),
    }
    sections = sections_of(executed(graph, 3))
    for one in sections:
        one.records["attempt"][one.records["drop"] == _FAILED] = -1
        one.records["written"] = one.records["drop"] * 1000
    manager.set_times("s", [msgspec.structs.replace(one, received=received[one.node]) for one in sections])
    return manager


def _middle(manager: FakeManager) -> SessionMoment:
    whole = manager.moment("s", MomentQuery())
    return manager.moment("s", MomentQuery(time=whole.began + 0.5 * (whole.ended - whole.began)))


def _check_moment_of_address(page: Any, completed: Any, then: str) -> None:
    """Assert that the graph shows its moment after it is loaded again, and now without one in its address."""
    page.reload()
    expect(completed).to_contain_text(then)
    expect(page.get_by_text("as it was", exact=True)).to_be_visible()
    page.get_by_role("button", name="Now").click()
    expect(completed).to_contain_text("79")
    expect(page).to_have_url(re.compile(r"/graph$"))


def test_a_slider_shows_the_session_at_any_moment(serve: Any, look: Any, tmp_path: Path) -> None:
    """Numbers, bars, tables and graph are those of the moment, and of now again; the report opens from the disk."""
    manager = _manager()
    page = look(serve(manager)).page
    middle = _middle(manager)
    page.goto("/sessions/s/timeline")
    moved = page.get_by_role("region", name="Bytes moved between nodes")
    expect(moved.get_by_role("row").nth(1)).to_contain_text("3.0 MB")
    page.goto("/sessions/s")
    settled, slider = page.locator("[data-figure=settled]"), page.get_by_role("slider")
    expect(settled).to_have_text("81")
    slider.evaluate(_SLIDE, "500")
    expect(settled).to_have_text(str(middle.settled))
    expect(page.locator("[data-figure=running]")).to_have_text(str(middle.running))
    expect(page.locator("[data-figure=waiting]")).to_have_text(str(middle.queued))
    app = next(node for node in middle.logical if node.name == "app")
    expect(page.locator(f"#logical [data-key='{app.key}'] td[data-group=completed]")).to_have_text(
        str(app.counts.completed)
    )
    assert 0 < middle.settled < 81
    drops, total = page.get_by_role("region", name="Drops", exact=True), page.get_by_label("Pages of drops")
    expect(page.locator("#drops")).to_contain_text("as they were at")
    page.locator(f"#logical [data-key='{app.key}'] td[data-group=completed] a").click()
    expect(page.locator("#scrub")).to_have_attribute("data-shown", "true")
    expect(settled).to_have_text(str(middle.settled))
    expect(total).to_contain_text(f"of {app.counts.completed} drops")
    expect(drops.locator(".state").first).to_have_text("completed")
    page.get_by_role("combobox", name="State").select_option(label="active")
    expect(total).to_contain_text(f"of {app.counts.running + app.counts.queued} drops")
    assert accessibility_findings(page) == []
    page.get_by_role("button", name="Now").click()
    expect(settled).to_have_text("81")
    expect(page).to_have_url(re.compile(r"/sessions/s\?[^#]*state=[A-Z]+(#drops)?$"))
    expect(page.get_by_text("No drop matches.")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Report", exact=True).click()
    download.value.save_as(tmp_path / "report.html")

    page.goto("/sessions/s/graph")
    completed = page.locator("#graph-legend li").first
    expect(completed).to_contain_text("79")
    slider.evaluate(_SLIDE, "500")
    expect(completed).to_contain_text(str(middle.counts.completed))
    expect(page.get_by_text("as it was", exact=True)).to_be_visible()
    assert accessibility_findings(page) == []
    _check_moment_of_address(page, completed, str(middle.counts.completed))

    page.goto((tmp_path / "report.html").as_uri())
    expect(page.get_by_role("heading", level=1)).to_have_text("s")
    expect(page.get_by_role("region", name="Picture of the timeline").locator("rect").first).to_be_visible()
    expect(moved.get_by_role("row", name="Received")).to_contain_text("3.0 MB")
    assert accessibility_findings(page) == []


def test_failures_and_results_follow_the_slider_and_times_the_moment(serve: Any, look: Any) -> None:
    """They are those that had happened by then; the bytes between nodes, which have no times, are left out."""
    page = look(serve(_manager())).page
    page.goto("/sessions/s")
    slider, times = page.get_by_role("slider"), page.locator("[data-part=times]")
    tab = page.get_by_role("link", name="Timeline", exact=True)
    failures, moved = page.locator("[data-part=failures]"), page.get_by_role("region", name="Bytes moved between nodes")
    results, drops = page.locator("[data-part=results] tbody tr"), page.get_by_role("region", name="Drops", exact=True)
    expect(failures).to_contain_text("out of cheese")
    expect(results).to_have_count(2)
    slider.evaluate(_SLIDE, "500")
    expect(failures).to_be_empty()
    expect(results).to_have_count(1)
    expect(drops.locator("tr", has_text="fan_d_0-1").first).to_contain_text("2.0 kB")
    tab.click()
    expect(times).to_contain_text("attempts that had ended by")
    expect(moved).to_be_hidden()
    ended = times.locator("table").first.locator("tbody td:nth-child(2)").all_inner_texts()
    assert 0 < sum(int(text) for text in ended) < 44
    page.go_back()
    slider.evaluate(_SLIDE, "800")
    expect(failures).to_contain_text("by then: 2 drops in error: 1 failed, 1 taken along")
    expect(failures).to_contain_text("1 failed, took 1 along")
    assert accessibility_findings(page) == []
    page.get_by_role("button", name="Now").click()
    expect(results).to_have_count(2)
    expect(failures).not_to_contain_text("by then")
    tab.click()
    expect(times).not_to_contain_text("had ended by")
    expect(moved).to_be_visible()
    page.goto("/sessions/s/graph#drop=30")
    expect(page.locator("#graph-panel")).to_contain_text("out of cheese")
    slider.evaluate(_SLIDE, "500")
    expect(page.locator("#graph-panel")).to_contain_text("As it was.")
    expect(page.locator("#graph-panel")).not_to_contain_text("out of cheese")
