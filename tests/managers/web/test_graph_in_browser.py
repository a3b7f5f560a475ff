"""The picture of the graph of a session in a real browser."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dropflow.api.session_records import MomentQuery, SessionMoment
from dropflow.graph.build import GraphBuilder
from dropflow.times.octets import NodeReceipts, PeerReceipts
from tests.browser import accessibility_findings, needs_chromium
from tests.fake_manager import FakeManager, manager_with_sessions
from tests.regular_graphs import chain, fan
from tests.times.made_times import executed, sections_of

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]


expect = pytest.importorskip("playwright.sync_api").expect


def opened(page: Any, session: str, more: str = "") -> Any:
    """Open the graph of a session, and return its canvas once it is drawn."""
    page.goto("about:blank")  # an address that differs in its end only would not be loaded
    page.goto(f"/sessions/{session}/graph{more}")
    expect(page.locator("#graph[data-ready=yes]")).to_have_count(1)
    canvas = page.locator("#graph canvas")
    expect(canvas).to_have_attribute("data-distance", re.compile("far|middle|near"))
    return canvas


def boxes(page: Any) -> list[str]:
    """Return the labels in the list of boxes."""
    texts: list[str] = page.locator("#graph-boxes li bdi").all_inner_texts()
    return texts


def total(page: Any, word: str) -> Any:
    """Return the number beside a state in the legend."""
    return page.locator("#graph-legend li", has_text=word).locator("b")


def test_the_graph_of_a_session(serve: Any, look: Any) -> None:
    """It is live, is zoomed by keys, leads to a drop and to what its failure took along, and is found by text."""
    manager = manager_with_sessions()
    page = look(serve(manager)).page
    page.goto("/sessions/running")
    page.get_by_role("link", name="Graph", exact=True).click()
    canvas = opened(page, "running")
    expect(page.locator("#graph .live")).to_have_text("live")
    expect(canvas).to_have_attribute("data-boxes", "21")
    expect(page.locator("#graph-boxes li").first).to_contain_text("fan 5")  # which is active

    # Live: numbers in the legend and in the list, and failures come first.
    expect(total(page, "completed")).to_have_text("7")
    manager.advance("running", {6: "COMPLETED"})
    expect(total(page, "completed")).to_have_text("8")
    manager.fail("running", 12, "the disk is full", also=(32,))
    expect(total(page, "error")).to_have_text("2")
    expect(page.locator("#graph-boxes li").first).to_contain_text("fan 11")

    # Far away, by keys; near again by f, since so few drops have room.
    canvas.focus()
    for _ in range(6):
        page.keyboard.press("-")
    expect(canvas).to_have_attribute("data-distance", "middle")
    page.keyboard.press("f")
    expect(canvas).to_have_attribute("data-distance", "near")

    # Search, the drop that is found, and its page.
    page.keyboard.press("/")
    page.keyboard.type("a_0-11")
    page.keyboard.press("Enter")
    panel = page.get_by_role("region", name="Chosen")
    expect(panel.get_by_role("heading", level=2)).to_have_text("app 11")
    expect(panel).to_contain_text("the disk is full")
    panel.get_by_role("button", name="What this failure took along").click()
    expect(page.locator(".graph-note")).to_have_text("Shown: what the failure of app 11 took along, 2 drops.Show all")
    assert boxes(page) == ["fan 11"]
    panel.get_by_role("button", name="data 11").click()
    expect(panel.get_by_role("heading", level=2)).to_have_text("data 11")
    address = page.url
    page.get_by_role("link", name="Open its page").click()
    expect(page).to_have_url(re.compile(r"/sessions/running/drops/fan_d_0-11$"))

    # The address has what was chosen.
    opened(page, "running", "#" + address.partition("#")[2])
    expect(panel.get_by_role("heading", level=2)).to_have_text("data 11")
    expect(page.locator(".graph-note")).to_contain_text("took along")
    page.get_by_role("button", name="Show all").click()

    # Other boxes, a closed construct, the end of the session.
    page.get_by_role("combobox", name="Boxes").select_option("template")
    expect(canvas).to_have_attribute("data-boxes", "3")
    page.get_by_role("combobox", name="Boxes").select_option("construct")
    expect(canvas).to_have_attribute("data-boxes", "21")
    page.locator("#graph-boxes button").first.click()
    page.get_by_role("button", name="Close fan").click()
    expect(canvas).to_have_attribute("data-boxes", "2")
    manager.complete("running")
    expect(page.locator("#graph .live")).to_have_text("over")


def test_a_node_of_the_logical_graph_shows_its_drops(serve: Any, look: Any) -> None:
    """With a key or a click; and the node of the drop that is chosen is marked. Numbers of its states are live."""
    manager = manager_with_sessions()
    page = look(serve(manager)).page
    opened(page, "running", "#drop=32")
    page.get_by_text("Logical graph", exact=True).click()
    node = page.locator("#graph-logical [role=button]", has_text="data")
    expect(node).to_have_class(re.compile("chosen"))
    expect(node).to_have_attribute("aria-label", "data: 20 drops, 1 completed, 19 waiting")

    manager.fail("running", 12, "the disk is full", also=(32,))
    expect(node).to_have_attribute("aria-label", "data: 20 drops, 1 completed, 1 in error, 18 waiting")
    node.press("Enter")
    expect(page.locator(".graph-note")).to_have_text("Shown: 20 drops.Show all")
    page.locator("#graph-logical [role=button]", has_text="root").click()
    expect(page.locator(".graph-note")).to_have_text("Shown: 1 drop.Show all")


def test_edges_that_a_busy_manager_refuses_are_asked_for_again(serve: Any, look: Any) -> None:
    """With a later frame that shows single drops."""
    window = look(serve(manager_with_sessions()))
    window.allow_console_messages("503")
    page = window.page
    page.route("**/graph/edges", lambda route: route.fulfill(status=503, body="{}"), times=1)
    canvas = opened(page, "running", "#drop=5")
    expect(page.locator(".graph-note")).to_contain_text("the server answered 503")

    with page.expect_response(lambda answer: answer.url.endswith("/graph/edges") and answer.ok):
        page.evaluate("new Promise((done) => setTimeout(done, 2100))")
        canvas.press("ArrowLeft")


_CROSSED = """async (by) => {
  const { fetchColumns } = await import("/static/graph_columns.js");
  const { Model } = await import("/static/graph_model.js");
  const { head, columns } = await fetchColumns(`graph/drawing?by=${by}&aspect=1.7`);
  const model = new Model({ ...head, isPlan: true }, columns);
  const { x, y, width, height, pairSource, pairTarget } = columns;
  const camera = { scale: 1, toScreen: (u, v) => [u, v] };
  const found = [];
  for (let pair = 0; pair < pairSource.length; pair += 1) {
    const [source, target] = [pairSource[pair], pairTarget[pair]];
    const level = (at, box) => [[at, at, y[box] + height[box] / 2]];
    const ends = [level(x[source] + width[source], source), level(x[target], target)];
    const points = [];
    let here = [0, 0];
    const to = (...point) => points.push((here = point));
    const bend = (a, b, c, d, e, f) => {
      const [u, v] = here;
      for (let t = 0.05; t <= 1.001; t += 0.05) {
        const [p, q, r, s] = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t ** 3];
        to(p * u + q * a + r * c + s * e, p * v + q * b + r * d + s * f);
      }
    };
    const line = (u, v) => bend(...here, u, v, u, v);
    const path = { moveTo: to, lineTo: line, bezierCurveTo: bend, arcTo: (u, v) => line(u, v) };
    model.ways.add(path, camera, source, target, ...ends);
    for (const [u, v] of points) {
      for (let box = 0; box < model.boxes; box += 1) {
        if (box === source || box === target) continue;
        const isIn = u > x[box] && u < x[box] + width[box] && v > y[box] && v < y[box] + height[box];
        if (isIn) found.push([source, target, box]);
      }
    }
  }
  return { pairs: pairSource.length, crossed: found.slice(0, 5) };
}"""


def test_edges_go_around_boxes(serve: Any, look: Any) -> None:
    """Forward over several columns, back to an earlier one, and from one line of boxes to another."""
    manager = FakeManager()
    wide = GraphBuilder("wide").app("a").data("d").connect("a", "d")
    for at in range(18):
        wide.app(f"f{at}").connect("d", f"f{at}").data(f"o{at}").connect(f"f{at}", f"o{at}")
    wide.app("last").connect("d", "last").connect("o3", "last").connect("o12", "last")
    manager.add(wide.build(), "wide")
    manager.add(chain(200), "long")
    page = look(serve(manager)).page
    for session, by, pairs in (("wide", "construct", 40), ("long", "construct", 99), ("long", "template", 2)):
        opened(page, session)
        assert page.evaluate(_CROSSED, by) == {"pairs": pairs, "crossed": []}


_CORNERS = """async () => {
  const { leadBack, turnInside, turnOf } = await import("/static/graph_lines.js");
  const camera = { scale: 1, toScreen: (x, y) => [x, y] };
  const model = { head: { lines: [[0, 100], [260, 360], [520, 620]], cell: [176, 44] } };
  const corners = (turn, ...ends) => {
    const found = [];
    leadBack({ moveTo() {}, lineTo() {}, arcTo: (x, y) => found.push([x, y]) }, camera, turn, ...ends);
    return found;
  };
  return {
    next: corners(turnOf(model, 50, 300), 900, 50, 0, 300),
    nested: corners(turnOf(model, 10, 300), 900, 10, 0, 300),
    later: corners(turnOf(model, 50, 560), 900, 50, 300, 560),
    same: turnOf(model, 20, 80),
    inside: corners(turnInside(model, { x: 600, y: 22 }, { x: 66, y: 66 }), 666, 22, 0, 66),
    ahead: turnInside(model, { x: 0, y: 22 }, { x: 66, y: 66 }),
  };
}"""


def test_graphs_of_any_size_are_drawn_and_accessible(serve: Any, look: Any) -> None:
    """At 100 and 10,000 drops, on a screen and on a phone: axe-core finds nothing, and nothing scrolls aside.

    Edges to another line of boxes lead through the space between the lines, and past those between, on their left.
    The test fails as well if there is a message on the console or a request to another host.
    """
    manager = FakeManager()
    for drops in (100, 10_000):
        manager.add(fan(drops), f"fan-{drops}")
        manager.fail(f"fan-{drops}", 3, "no value", also=(drops // 2 + 3,))
    url = serve(manager)
    for width, scheme in ((1440, "light"), (390, "dark")):
        page = look(url, viewport={"width": width, "height": 844}, color_scheme=scheme).page
        for drops in (100, 10_000):
            opened(page, f"fan-{drops}")
            expect(total(page, "error")).to_have_text("2")
            page.locator("#graph-boxes button").first.click()

            assert page.locator("#graph canvas").bounding_box()["height"] > 200
            assert accessibility_findings(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width

    corners = page.evaluate(_CORNERS)
    assert corners["next"] == [[922, 50], [922, 180], [-22, 180], [-22, 300]]
    assert corners["nested"][1][0] > 922
    assert 180 < corners["nested"][1][1] < 260
    assert corners["later"] == [[922, 50], [922, 180], [-44, 180], [-44, 440], [278, 440], [278, 560]]
    assert corners["inside"] == [[688, 22], [688, 44], [-22, 44], [-22, 66]]
    assert (corners["same"], corners["ahead"]) == (None, None)


# Earlier moments of a session, and its report, in a real browser.


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
    for section in sections:
        section.records["attempt"][section.records["drop"] == _FAILED] = -1
        section.records["written"] = section.records["drop"] * 1000
    manager.set_times("s", [msgspec.structs.replace(section, received=received[section.node]) for section in sections])
    return manager


def _middle(manager: FakeManager) -> SessionMoment:
    moment = manager.moment("s", MomentQuery())
    return manager.moment("s", MomentQuery(time=moment.began + 0.5 * (moment.ended - moment.began)))


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
