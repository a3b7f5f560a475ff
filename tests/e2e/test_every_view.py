"""Every view of a cluster in a real browser, with sessions of 100, 10,000 and 100,000 drops on real managers.

What a view costs is bounded by its work and not by seconds: bytes, requests, elements and memory. At 100,000 drops they
are those at 10,000, but for the columns of the graph and of the timeline, which have some bytes for each drop.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Window, accessibility_findings, needs_chromium, open_window
from tests.e2e.survey import DROPS_PER_FIELD, survey
from tests.processes import Running, run

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=120_000)  # a busy machine is slow
pytestmark = [pytest.mark.exhaustive, pytest.mark.browser, needs_chromium, pytest.mark.timeout(600)]

SMALL, MIDDLE, LARGE = 20, 2_000, 20_000
"""Fields of the three sessions: 105, 10,005 and 100,005 drops."""
HEAP = 75e6
"""Bytes that a view may take beyond what the views before left; the largest takes 16 MB."""
PHONE, SCREEN = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
COLUMNS = 40
"""Bytes for each drop that the graph, the timeline and their analysis may have in all."""
PAGE = 250_000
"""Bytes of a view without columns of drops: page, scripts, styles and data."""

_WORK = """() => {
  const entries = [...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")];
  return {
    requests: entries.length,
    bytes: entries.reduce((sum, entry) => sum + entry.encodedBodySize, 0),
    elements: document.querySelectorAll("*").length,
  };
}"""


@dataclass(frozen=True)
class Work:
    """What one view took."""

    requests: int
    bytes: int
    elements: int
    heap: float


Walk = dict[str, Work]


class Visitor:
    """Walks through views in one window, and notes what each takes and what is wrong with it."""

    def __init__(self, window: Window, base: str) -> None:
        self.window, self.page, self.base = window, window.page, base
        self._session = window.page.context.new_cdp_session(window.page)
        self.work: Walk = {}
        self.findings: dict[str, list[str]] = {}

    def see(self, view: str, path: str, ready: str, use: Callable[[Any], None] | None = None, *, axe: bool) -> None:
        """Open a page, wait until it shows what it is for, use it, and look at it on a screen and on a phone."""
        if path:
            self.page.goto("about:blank")  # an address that differs in its end only would not be loaded
            self._session.send("HeapProfiler.collectGarbage")  # of the views before
            self.page.goto(path if "://" in path else f"{self.base}{path}")
        expect(self.page.locator(ready).first).to_be_visible()
        if use is not None:
            use(self.page)
        heap = self._session.send("Runtime.getHeapUsage")
        self.work[view] = Work(heap=heap["usedSize"] + heap.get("backingStorageSize", 0), **self.page.evaluate(_WORK))
        wrong = accessibility_findings(self.page) if axe else []
        self.page.set_viewport_size(PHONE)
        width = self.page.evaluate("document.documentElement.scrollWidth")
        wrong += [f"{width} pixels wide on a phone"] if width > PHONE["width"] else []
        self.page.set_viewport_size(SCREEN)
        if wrong:
            self.findings[view] = wrong


@dataclass(frozen=True)
class Cluster:
    """A cluster with the three sessions; the large one waits for its gate."""

    up: Running
    gate: Path
    graphs: dict[int, Path]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes with an island, a master and a translator."""
    home = tmp_path_factory.mktemp("views")
    open_gate = home / "open"
    open_gate.touch()
    with Running(home, "up", "--nodes", 2, "--port", 0, "--lost-after", 120) as up:
        graphs = {}
        for fields in (SMALL, MIDDLE, LARGE):
            gate = home / "gate" if fields == LARGE else open_gate
            graphs[fields] = home / f"survey-{fields}.graph"
            graphs[fields].write_text(survey(gate, fields), encoding="utf-8")
            done = run(home, "submit", graphs[fields], "--name", f"s{fields}")
            assert done.returncode == 0, done.stderr
        yield Cluster(up, home / "gate", graphs)
        (home / "gate").touch()


def _use_graph(page: Any) -> None:
    """Zoom, close a construct, search, select what depends on a drop, and choose a logical node."""
    canvas = page.locator("#graph canvas")
    canvas.focus()
    for key in ("+", "+", "-", "f"):
        page.keyboard.press(key)
    # The list is in the order of the graph until the states of the drops have come: then errors are first.
    expect(page.locator("#graph-boxes button").first).to_contain_text("error")
    page.locator("#graph-boxes button").first.click()
    page.get_by_role("button", name="Close Fields").click()
    page.locator("#graph-text").fill("Mean data")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Upstream").click()
    expect(page.locator(".graph-note")).to_contain_text("what Mean data depends on")
    page.get_by_text("Logical graph", exact=True).click()
    page.locator("#graph-logical [role=button]", has_text="Observe").first.press("Enter")
    expect(page.locator(".graph-note")).to_contain_text("drops")
    page.get_by_role("combobox", name="Boxes").select_option("template")
    expect(canvas).to_have_attribute("data-boxes", "10")


def _use_timeline(page: Any) -> None:
    """Zoom, move, and choose an attempt."""
    canvas = page.locator("#timeline canvas")
    canvas.focus()
    for key in ("w", "w", "d", "a", "s", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.locator(".timeline-panel")).to_contain_text("Slack")


def _filter_drops(page: Any) -> None:
    """Filter the list as typed, and sort it by a column."""
    page.get_by_role("searchbox", name="Text in id or name").fill("0-17")
    page.get_by_role("combobox", name="State").select_option(label="completed")
    expect(page.get_by_role("region", name="Drops", exact=True).locator("tbody .state").first).to_have_text("completed")
    page.get_by_role("region", name="Drops", exact=True).get_by_role("link", name="State").click()
    header = page.get_by_role("region", name="Drops", exact=True).get_by_role("columnheader", name="State")
    expect(header).to_have_attribute("aria-sort", "ascending")


def _walk_session(visitor: Visitor, fields: int, *, axe: bool) -> None:
    """Look at every view of a session that does not need its end."""
    name = f"/sessions/s{fields}"
    page = visitor.page
    visitor.see("session", name, "text=the correlator does not answer", axe=axe)
    failed = page.locator("[data-part=failures] article h3 a").first.evaluate("link => link.pathname")
    visitor.see("drops in error", f"{name}?state=ERROR&sort=-row", "#drops tbody .state.error", _filter_drops, axe=axe)
    visitor.see("graph", f"{name}/graph", "#graph[data-ready=yes] canvas[data-distance]", _use_graph, axe=axe)
    visitor.see("timeline", f"{name}/timeline", "#timeline[data-ready=yes]", _use_timeline, axe=axe)
    visitor.see("log", f"{name}/log", ".log-line", axe=axe)
    visitor.see("errors in the log", f"{name}/log?level=ERROR&text=correlator", ".log-line", axe=False)
    visitor.see("causes", f"{name}/causes", "article.note.error", axe=axe)
    if fields > SMALL:
        visitor.see("causes, later", f"{name}/causes?offset={fields // 20}", "article.note.error", axe=False)
    visitor.see("failed drop", failed, "#failure-title", axe=axe)
    visitor.see("many inputs", f"{name}?text=Mean&sort=name", "#drops tbody tr", axe=False)
    page.locator("#drops tbody tr", has_text="Mean").first.locator("th a").click()
    visitor.see("drop with many inputs", "", "[aria-label='Table of inputs']", axe=axe)
    visitor.see("moment", f"{name}?time=1", "#drops", axe=False)
    visitor.see("clone", f"{name}/clone", "#launch", axe=axe)
    action = "Cancel…" if fields == LARGE else "Try again…"
    page.goto(f"{visitor.base}{name}")
    page.get_by_role("button", name=action).click()
    visitor.see("action", "", "form:popover-open", axe=axe)


def _walk_results(visitor: Visitor, fields: int) -> None:
    """Look at what there is once a session is over."""
    name = f"/sessions/s{fields}"
    visitor.see("end", name, "#status:text('finished'), #status:text('failed')", axe=False)
    visitor.see("results", f"{name}/results", "text=mean.npy", axe=fields == LARGE)
    visitor.page.get_by_role("region", name="Results").get_by_role("link").filter(has_text="Mean").first.click()
    visitor.see("content", "", "img.preview", axe=fields == LARGE)


def _walk_translator(visitor: Visitor, cluster: Cluster, fields: int) -> None:
    """Upload the graph that the session ran, and look at its plan before deployment."""
    page = visitor.page
    page.goto(f"{cluster.up.ready['translator']}/")
    page.get_by_label("A file from EAGLE").set_input_files(str(cluster.graphs[fields]))
    page.get_by_role("button", name="Translate", exact=True).click()
    page.get_by_role("spinbutton", name="Parts").fill("4")
    page.get_by_role("button", name="Translate again").click()
    visitor.see("translation", "", "text=4 parts by auto", axe=fields == LARGE)
    page.get_by_role("link", name="Show the graph").click()
    visitor.see("graph before deployment", "", "#graph[data-ready=yes] canvas[data-distance]", axe=fields == LARGE)


def _walk_cluster(visitor: Visitor) -> None:
    """Look at the pages that belong to no session."""
    visitor.see("overview", "/", "text=s20", axe=False)
    visitor.see("nodes", "/nodes", "tbody tr", axe=False)
    visitor.see("node", "/nodes/node-1", "svg", axe=True)
    visitor.see("log of a manager", "/nodes/node-1/log", ".log-line", axe=True)
    visitor.see("sessions", "/sessions", "tbody tr", axe=False)
    visitor.see("submit", "/submit", "input[type=file]", axe=False)


def _excess(walks: dict[int, Walk]) -> list[str]:
    """Return what costs more than it may."""
    found = []
    for fields, walk in walks.items():
        for view, work in walk.items():
            drops = DROPS_PER_FIELD * fields + 5
            has_columns = view in ("graph", "timeline", "graph before deployment")
            most = PAGE + (COLUMNS * drops if has_columns else 0)
            found += [f"{view}, {fields} fields: {work}"] if work.bytes > most or work.heap > HEAP else []
    for view, work in walks[LARGE].items():
        usual = walks[MIDDLE].get(view)
        # Pages that are renewed while a session runs ask a few times more.
        if usual and (work.elements > 1.2 * usual.elements + 60 or work.requests > usual.requests + 12):
            found.append(f"{view}: {usual} became {work}")
    return found


def test_every_view_at_every_size(cluster: Cluster, chromium: Any) -> None:
    """All views show their content at 100, 10,000 and 100,000 drops, live and at the end, at bounded cost.

    There is no request to another server, no message on the console, nothing that scrolls aside on a phone, and
    axe-core finds nothing at 100,000 drops.
    """
    up = cluster.up
    servers = [str(up.ready[one]) for one in ("translator", "island")] + [str(one) for one in up.ready["nodes"]]
    walks: dict[int, Walk] = {}
    findings: dict[str, Any] = {}
    with open_window(chromium, str(up.ready["master"]), *servers, viewport=SCREEN) as window:
        window.page.context.set_default_timeout(120_000)
        window.page.goto(f"{up.ready['master']}/login#{up.ready['token']}")
        window.page.wait_for_url(f"{up.ready['master']}/")
        general = Visitor(window, str(up.ready["master"]))
        _walk_cluster(general)
        findings["cluster"] = general.findings
        for fields in (SMALL, MIDDLE, LARGE):
            visitor = Visitor(window, str(up.ready["master"]))
            if fields == LARGE:
                live = window.page.context.new_page()
                live.goto(f"{up.ready['master']}/sessions/s{fields}")
                expect(live.locator("[data-figure=settled]")).to_have_text(f"{DROPS_PER_FIELD * fields + 3:,}")
            _walk_session(visitor, fields, axe=fields == LARGE)
            if fields == LARGE:
                cluster.gate.touch()
                expect(live.locator("#status")).to_have_text("finished")
                live.close()
            _walk_results(visitor, fields)
            _walk_translator(visitor, cluster, fields)
            walks[fields], findings[str(fields)] = visitor.work, visitor.findings

    assert {place: found for place, found in findings.items() if found} == {}
    assert _excess(walks) == []
