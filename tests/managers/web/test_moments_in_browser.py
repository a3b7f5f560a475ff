"""Earlier moments of a session, and its report, in a real browser."""

import re
from pathlib import Path
from typing import Any

import pytest

from dropflow.rest.session_moment import MomentQuery, SessionMoment
from dropflow.testing.fake_manager import FakeManager
from dropflow.testing.shapes import fan
from tests.browser import accessibility_findings, needs_chromium
from tests.times.made_times import executed, sections_of

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]

_SLIDE = "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }"


def _manager() -> FakeManager:
    manager = FakeManager(role="island", nodes=("n0", "n1"))
    graph = fan(80)
    manager.add(graph, "s")
    manager.complete("s")
    manager.set_times("s", sections_of(executed(graph, 3)))
    return manager


def _middle(manager: FakeManager) -> SessionMoment:
    whole = manager.moment("s", MomentQuery())
    return manager.moment("s", MomentQuery(time=whole.began + 0.5 * (whole.ended - whole.began)))


def test_a_slider_shows_the_session_at_any_moment(serve: Any, look: Any, tmp_path: Path) -> None:
    """Numbers, bars, tables and graph are those of the moment, and of now again; the report opens from the disk."""
    manager = _manager()
    page = look(serve(manager)).page
    middle = _middle(manager)
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
    expect(completed).to_contain_text("81")
    slider.evaluate(_SLIDE, "500")
    expect(completed).to_contain_text(str(middle.counts.completed))
    expect(page.get_by_text("as it was")).to_be_visible()
    assert accessibility_findings(page) == []
    page.get_by_role("button", name="Now").click()
    expect(completed).to_contain_text("81")

    page.goto((tmp_path / "report.html").as_uri())
    expect(page.get_by_role("heading", level=1)).to_have_text("s")
    expect(page.get_by_role("region", name="Picture of the timeline").locator("rect").first).to_be_visible()
    assert accessibility_findings(page) == []
