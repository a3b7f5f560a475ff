"""The timeline of a session, in a browser and without JavaScript."""

import re
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from dropflow.graph.physical import PhysicalGraph
from dropflow.times.octets import RUNNING, TimesSection
from dropflow.times.statistics import TimesStatistics
from tests.browser import needs_chromium
from tests.fake_manager import FakeManager
from tests.managers.web.reading import ask
from tests.regular_graphs import fan
from tests.times.made_times import executed, sections_of

_GAPS = """async () => {
  const { Attempts, sections } = await import("/static/attempts.js");
  const attempts = new Attempts();
  const octets = async (path) => [...sections(await (await fetch(`/api/v1/sessions/s/${path}`)).arrayBuffer())];
  for (const section of await octets("times")) attempts.add(section);
  for (const section of await octets("times/analysis")) attempts.analyse(section);
  return attempts.lanes().map((lane) => {
    const sums = [attempts.nodes[lane.node].name, lane.name, lane.spans.length, 0, 0, 0, 0];
    let free = 0;
    for (const span of lane.spans) {
      const ends = attempts.gap(span, free);
      for (let piece = 0; piece < 3; piece += 1) sums[4 + piece] += ends[piece + 1] - ends[piece];
      sums[3] += attempts.end[span] - attempts.begin[span];
      free = attempts.end[span];
    }
    return sums;
  });
}"""


_BEGUN_BEFORE_THE_ANSWER = """async (seconds) => {
  const { Attempts, sections } = await import("/static/attempts.js");
  const attempts = new Attempts();
  const answer = await fetch("/api/v1/sessions/s/times");
  for (const section of sections(await answer.arrayBuffer())) attempts.add(section);
  const known = attempts.answered[0] - attempts.origin;
  attempts.clocks[0] += 10;
  return attempts.until({ begin: known - seconds }, 0) - known;
}"""
_FRAMES = """() => new Promise((resolve) => {
  const canvas = document.querySelector("canvas");
  const ends = [];
  const watch = new MutationObserver(() => {
    const end = Number(canvas.dataset.to);
    if (end !== ends.at(-1)) ends.push(end);
    if (ends.length < 12) return;
    watch.disconnect();
    resolve(ends);
  });
  watch.observe(canvas, { attributes: true, attributeFilter: ["data-to"] });
})"""


def _manager(drops: int = 80) -> tuple[FakeManager, list[TimesSection]]:
    """Return a manager with a session that runs, and what its nodes record until it ends."""
    manager = FakeManager(role="island", nodes=("n0", "n1"))
    graph = _planned(fan(drops))
    manager.add(graph, "s")
    manager.advance("s", {1: "WRITING"})
    return manager, sections_of(executed(graph, 3))


def _half(sections: list[TimesSection]) -> list[TimesSection]:
    """Return the first half of the attempts of each node, and another one that runs."""
    sections_ = []
    for section in sections:
        records, after = np.split(section.records, [len(section.records) // 2])
        now = float(max(records["ready"] + records["waited"] + records["queued"] + records["ran"]))
        running = np.array([(after["drop"][0], 1, records["worker"][0], now)], RUNNING)
        known = {"running": running, "now": now + 60}
        sections_.append(msgspec.structs.replace(section, total=len(records), records=records, **known))
    return sections_


def _planned(graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph with a plan: each application has half a second, one after the other."""
    begin = np.where(graph.template == 1, np.arange(graph.drops) / 2, np.nan).astype(np.float32)
    return replace(graph, planned=(begin, begin + np.float32(0.5)))


@pytest.mark.slow
def test_the_page_is_complete_without_javascript(serve: Any) -> None:
    """It has the times of logical nodes, the critical path and the workers, and says which node did not answer."""
    manager, sections = _manager()
    silent = msgspec.structs.replace(sections[1], missing="it did not answer", records=sections[1].records[:0])
    manager.set_times("s", [sections[0], silent])
    url = serve(manager)
    text = ask(url, "/sessions/s/timeline").text

    for words in ("Times by logical node", "Critical path", "Workers", "Node n1 did not answer"):
        assert words in text
    twin = msgspec.json.decode(ask(url, "/sessions/s/timeline.json").body)
    assert twin["times"]["attempts"] == len(sections[0].records)
    assert "had ended by" in ask(url, "/sessions/s/timeline?time=1").text
    assert ask(url, "/sessions/none/timeline").status == 404


def test_a_trace_and_a_picture_are_downloaded(serve: Any) -> None:
    """Both have every attempt of all nodes."""
    manager, sections = _manager()
    manager.set_times("s", sections)
    url, count = serve(manager), sum(len(section.records) for section in sections)
    trace = ask(url, "/sessions/s/timeline/trace.json")

    assert sum(event["ph"] == "X" for event in msgspec.json.decode(trace.body)["traceEvents"]) == count
    assert 's-trace.json"' in trace.headers["content-disposition"]
    assert ask(url, "/sessions/s/timeline/picture.svg").text.count("<rect") == count


def _check_growth(page: Any) -> None:
    """Assert that the end of the timeline moves from frame to frame, and that there are fewer requests than frames."""
    paths: list[str] = []
    page.on("request", lambda request: paths.append(request.url))
    for _ in range(3):  # a late answer of a busy machine sets it back
        paths.clear()
        frames = page.evaluate(_FRAMES)
        if frames == sorted(set(frames)):
            break
    assert frames == sorted(set(frames))
    assert sum("/times" in url for url in paths) < len(frames)


def _check_running(page: Any, expect: Any) -> None:
    """Assert that what runs grows by as much as it had run, and that a lane where nothing runs has the reason."""
    assert page.evaluate(_BEGUN_BEFORE_THE_ANSWER, 0.001) == pytest.approx(0.001)
    assert page.evaluate(_BEGUN_BEFORE_THE_ANSWER, 60) == pytest.approx(10, rel=0.5)
    _check_growth(page)
    canvas, reason = page.locator("canvas"), "n2: its workers are busy with session other"
    expect(page.get_by_text(f"{reason}.")).to_be_visible()
    canvas.hover(position={"x": 300, "y": canvas.bounding_box()["height"] - 15})
    expect(page.locator(".timeline-panel")).to_have_text(f"nothing runs on {reason}")


@pytest.mark.slow
@pytest.mark.browser
@needs_chromium
def test_the_timeline_of_a_session_that_is_over_is_asked_for_again(serve: Any, look: Any) -> None:
    """A connection that breaks before the first answer is tried again, as the page says."""
    expect = pytest.importorskip("playwright.sync_api").expect
    manager, sections = _manager()
    manager.set_times("s", sections)
    manager.complete("s")
    window = look(serve(manager))
    window.allow_console_messages("net::ERR_")
    page = window.page
    page.route("**/sessions/s/times", lambda route: route.abort(), times=1)

    page.goto("/sessions/s/timeline")
    expect(page.locator("#timeline")).to_have_attribute("data-ready", "yes", timeout=60_000)
    expect(page.locator("#live")).to_have_text("over")


@pytest.mark.slow
@pytest.mark.browser
@needs_chromium
def test_the_timeline_of_another_session_of_the_same_name_is_drawn_anew(serve: Any, look: Any) -> None:
    """When a session is deleted and run again, nothing of the one before stays: neither its attempts nor the choice."""
    expect = pytest.importorskip("playwright.sync_api").expect
    expect.set_options(timeout=120_000)
    manager, sections = _manager()
    manager.set_times("s", sections)
    page = look(serve(manager)).page
    page.goto("/sessions/s/timeline")
    root, panel = page.locator("#timeline"), page.locator(".timeline-panel")
    expect(root).to_have_attribute("data-attempts", str(sum(len(section.records) for section in sections)))
    page.locator("canvas").focus()
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    expect(panel).to_contain_text("Committed")

    manager.set_times("s", _half(sections))
    expect(root).to_have_attribute("data-attempts", str(sum(len(section.records) for section in _half(sections))))
    expect(panel).to_contain_text("Point at an attempt")
    expect(page.locator("#live")).to_have_text("live")


@pytest.mark.slow
@pytest.mark.browser
@needs_chromium
def test_the_timeline_is_drawn_followed_and_explained(serve: Any, look: Any) -> None:
    """It grows while the session runs, zooms and moves by keys, and explains attempts, gaps and areas.

    Attempts that run grow without requests, by as much as they are known to have run: one that had just begun may have
    ended. Each lane has how much later than planned it ended; the plan can be hidden. What the page computes of each
    worker agrees with the statistics of the manager. A node where nothing runs has a lane, with the reason.
    """
    expect = pytest.importorskip("playwright.sync_api").expect
    expect.set_options(timeout=120_000)  # a busy machine is slow
    manager, sections = _manager()
    count = sum(len(section.records) for section in sections)
    waiting = TimesSection(node="n2", records=sections[0].records[:0], busy_with=("other",))
    manager.set_times("s", [*_half(sections), waiting])
    page = look(serve(manager)).page
    page.goto("/sessions/s/timeline")
    root, canvas, panel = page.locator("#timeline"), page.locator("canvas"), page.locator(".timeline-panel")
    expect(root).to_have_attribute("data-attempts", str(sum(len(section.records) for section in _half(sections))))
    expect(canvas).to_have_attribute("data-running", "2")
    _check_running(page, expect)
    expect(page.get_by_text("when it was planned")).to_be_visible()

    manager.set_times("s", sections)
    manager.complete("s")
    expect(root).to_have_attribute("data-attempts", str(count))
    expect(page.locator("#live")).to_have_text("over")
    expect(page.locator("[data-part=heading]")).to_contain_text(f"{count} attempts")

    expect(canvas).to_have_attribute("data-running", "0")
    canvas.focus()
    page.keyboard.press("p")
    expect(page.get_by_role("checkbox", name="Plan")).not_to_be_checked()
    expect(page.get_by_text("when it was planned")).to_have_count(0)
    end = float(canvas.get_attribute("data-to"))
    page.keyboard.press("w")
    expect(canvas).not_to_have_attribute("data-to", f"{end:.9g}")
    page.keyboard.press("0")
    page.keyboard.press("ArrowRight")
    expect(panel).to_contain_text("Slack")
    expect(panel).to_contain_text(re.compile(r"All on worker \d.* (later|earlier) than planned"))
    page.keyboard.press("ArrowDown")
    expect(panel).to_contain_text("worker 2")
    page.keyboard.press("Escape")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 110, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 12, steps=4)
    page.mouse.up()
    expect(panel).to_contain_text(f"{count} attempts in")
    page.locator("[aria-label='Slowest attempts'] a").first.click()
    page.keyboard.press("Escape")
    expect(panel).to_contain_text("Point at an attempt")
    with page.expect_download() as download:
        page.get_by_role("button", name="PNG").click()
    assert download.value.suggested_filename == "s-timeline.png"

    statistics: TimesStatistics = manager.times_statistics("s")
    told = [
        (lane.node, lane.lane, lane.attempts, lane.busy, lane.data, lane.message, lane.worker)
        for lane in statistics.lanes
    ]
    for computed, expected in zip(page.evaluate(_GAPS), told, strict=True):
        assert computed[:3] == list(expected[:3])
        assert computed[3:] == pytest.approx(list(expected[3:]), abs=1e-5)
