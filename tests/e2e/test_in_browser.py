"""The first steps of a new user in a real browser: from one address to the results, with real managers.

The browser opens one printed address. Translator, master and nodes are reached from it, by any name of this host.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from click.testing import CliRunner

from dropflow.cli.main import commands
from tests.browser import accessibility_findings, needs_chromium
from tests.e2e.observation import observation
from tests.examples.radio import GRAPH as RADIO_GRAPH
from tests.examples.radio import check_files, needs_tools
from tests.processes import Running, run
from tests.translator.web.served import EAGLE

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=120_000)  # a busy machine is slow
pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]

ROOT = Path(__file__).resolve().parents[2]
GRAPH = ROOT / "examples" / "nested-scatter-gather.graph"
EAGLE_SITE = ROOT.parent / "shared" / "eagle" / "site"
EAGLE_FIELDS = {**EAGLE, "lg_name": "posted.graph"}


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

    yield from served(Handler)


@pytest.fixture(scope="module")
def real_eagle() -> Iterator[str]:
    """The address of EAGLE itself."""

    class Site(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Log nothing."""

    yield from served(partial(Site, directory=str(EAGLE_SITE)))


def served(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve a site, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def window(chromium: Any) -> Iterator[Any]:
    """Return a page of a browser without cookies."""
    context = chromium.new_context()
    context.set_default_timeout(120_000)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(window: Any, up: Running) -> Any:
    """Return a page that has opened the one printed address."""
    sign_in(window, up)
    return window


def sign_in(window: Any, up: Running) -> None:
    """Open the one printed address."""
    (address,) = re.findall(r"open in a browser: +(\S+)", up.errors)
    window.goto(address)
    window.wait_for_url(f"{up.ready['master']}/")


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
    expect(page).to_have_url(f"{up.ready['master']}/sessions/{session}")
    page.get_by_text(re.compile("^finished$", re.IGNORECASE)).first.wait_for()


def test_an_uploaded_graph_runs_and_is_followed(page: Any, up: Running, tmp_path: Path) -> None:
    """One sign-in is enough to upload, translate and deploy a graph, watch its session, and download a result."""
    page.get_by_role("link", name="Submit", exact=True).click()
    page.wait_for_url(f"{up.ready['translator']}/?manager=*")
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


needs_eagle = pytest.mark.skipif(
    not EAGLE_SITE.is_dir(), reason="EAGLE is absent: its site is looked for in ../shared/eagle/site"
)
COUNT_ISSUES = """() => {
  window.told = [];
  Setting.setValue(Setting.SHOW_FILE_LOADING_ERRORS, true);
  for (const list of [eagle.loadingErrors, eagle.loadingWarnings])
    list.subscribe((all) => window.told.push(...all.map((one) => (one.issue ?? one).message)));
}"""
GRAPH_ISSUES = (
    "() => [...told, ...eagle.graphErrors().map((x) => x.message), ...eagle.graphWarnings().map((x) => x.message)]"
)


def open_eagle(page: Any, address: str) -> None:
    """Open the editor, without what it loads from other sites."""
    page.route("https://**", lambda route: route.abort())
    page.set_viewport_size({"width": 1600, "height": 1000})  # in a narrow window its menus cover its buttons
    page.goto(f"{address}?tutorial=none")
    page.wait_for_function("() => window.eagle?.getEagleIsReady && eagle.getEagleIsReady() !== 'hidden'")


@needs_eagle
def test_eagle_counts_no_errors_and_warnings(window: Any, real_eagle: str, tmp_path: Path) -> None:
    """By its own count, the examples and palettes have none, but for the edge to the GroupBy of the corner turn.

    Palettes that are built from functions and from comments of users have none, either.
    """
    open_eagle(window, real_eagle)
    window.evaluate(COUNT_ISSUES)
    counted = {}
    graphs = sorted((ROOT / "examples").rglob("*.graph"))
    for path in graphs:
        window.evaluate("() => { told.length = 0; }")
        window.set_input_files("#graphFileToLoad", str(path))
        window.wait_for_function("(name) => eagle.logicalGraph().fileInfo().name === name", arg=path.name)
        counted[path.name] = window.evaluate(GRAPH_ISSUES)
    expected: dict[str, list[Any]] = {path.name: [] for path in graphs}
    expected["corner-turn.graph"] = [ANY]
    assert counted == expected
    window.evaluate("() => { told.length = 0; }")
    built = [tmp_path / "functions.palette", tmp_path / "comments.palette"]
    for code, target in zip(("fringes.py", "described.c"), built, strict=True):
        CliRunner().invoke(commands, ["palette", "build", str(ROOT / "tests" / "palettes" / code), "-o", str(target)])
    for path in [*sorted((ROOT / "palettes").glob("*.palette")), *built]:
        window.set_input_files("#paletteFileToLoad", str(path))
        window.wait_for_function(
            "(name) => eagle.palettes().some((one) => one.fileInfo().name === name)", arg=path.name
        )
    assert window.evaluate("() => told") == []


def deployed_from_eagle(page: Any, address: str, up: Running, graph: Path, session: str) -> Any:
    """Load a graph into EAGLE, translate it with its button, and deploy it; return the tab of the session."""
    open_eagle(page, address)
    page.evaluate("(url) => Setting.setValue(Setting.TRANSLATOR_URL, url)", f"{default_address(up)}/gen_pgt")
    page.set_input_files("#graphFileToLoad", str(graph))
    page.wait_for_function("() => eagle.logicalGraph().getNumNodes() > 0")
    assert page.evaluate("() => [...eagle.graphErrors(), ...eagle.graphWarnings()].map((one) => one.message)") == []
    with page.context.expect_page() as opened:
        # Without the icon font of another site, the text of an icon lies over the button.
        page.locator(".navTranslateBtn").first.dispatch_event("click")
    tab = opened.value
    tab.get_by_label("Session").fill(session)
    tab.get_by_role("button", name="Deploy and watch").click()
    return tab


@needs_eagle
def test_a_graph_goes_from_eagle_to_its_end(page: Any, real_eagle: str, up: Running) -> None:
    """EAGLE loads a graph without a finding of its own, and its Translate button leads to a tab that deploys it."""
    tab = deployed_from_eagle(page, real_eagle, up, ROOT / "examples" / "hello.graph", "from-eagle")
    finished(tab, up, "from-eagle")


@needs_eagle
@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_the_radio_pipeline_goes_from_eagle_to_its_picture(window: Any, real_eagle: str, tmp_path: Path) -> None:
    """Four nodes run what EAGLE has translated; the page of the session leads to the picture and to the sources."""
    needs_tools()
    # Programs of the pipeline keep all processors busy.
    with Running(tmp_path, "up", "--nodes", 4, "--port", 0, "--workers", 1, "--lost-after", 120) as up:
        sign_in(window, up)
        tab = deployed_from_eagle(window, real_eagle, up, RADIO_GRAPH, "radio")
        expect(tab).to_have_url(f"{up.ready['master']}/sessions/radio")
        tab.get_by_text(re.compile("^finished$", re.IGNORECASE)).first.wait_for(timeout=900_000)
        tab.get_by_role("link", name="Results", exact=True).click()
        tab.get_by_role("row", name=re.compile("sky.png")).get_by_role("link").first.click()
        picture = tab.locator("img.preview")
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
        fetched = run(up.home, "fetch", "radio", "-o", tmp_path / "out")

    assert fetched.returncode == 0, fetched.stderr
    check_files(tmp_path / "out" / "files")


def test_a_users_day(window: Any, eagle: str, up: Running, tmp_path: Path) -> None:
    """From EAGLE's post to the picture and back, in a browser that is new: each step is a function below."""
    gate, flat = tmp_path / "gate", tmp_path / "flat"
    errors: list[str] = []
    window.context.on("console", lambda told: errors.append(told.text) if told.type in ("error", "warning") else None)
    window.context.on("weberror", lambda error: errors.append(str(error.error)))
    tab = posted(window, eagle, up, observation(gate, flat), lg_name="observation.graph")

    mend_problems(tab, exposures="3")
    preview_plan(tab, drops="14")
    tab.get_by_label("Session").fill("day")
    tab.get_by_text("Options", exact=True).click()
    tab.get_by_label("Nodes with a copy of each result").fill("2")
    assert accessibility_findings(tab) == []
    tab.get_by_role("button", name="Deploy and watch").click()
    tab.wait_for_url(f"{up.ready['master']}/login?**")
    tab.get_by_label("Token").fill(up.ready["token"])
    tab.get_by_role("button", name="Log in").click()
    tab.wait_for_url(f"{up.ready['master']}/sessions/day")

    watch_graph_and_timeline(tab, open_gate=gate.touch)
    find_cause(tab)
    flat.write_text("2.0")
    tab.get_by_role("button", name="Try again…").click()
    tab.get_by_role("button", name="Try it again").click()
    finished(tab, up, "day")
    look_at_products(tab, tmp_path)

    clone_with_other_values(tab, up)
    assert errors == []


def mend_problems(tab: Any, *, exposures: str) -> None:
    """The page of the translator names the one parameter without a value, and its form gives it one."""
    tab.get_by_role("heading", name="This graph is a template").wait_for()
    findings = tab.locator("#problems li.note")
    expect(findings).to_have_count(1)
    expect(findings).to_contain_text("the parameter 'exposures' has no value")
    tab.get_by_role("spinbutton", name="exposures").fill(exposures)
    tab.get_by_role("button", name="Translate again").click()
    tab.get_by_text("Translated", exact=True).wait_for()


def preview_plan(tab: Any, *, drops: str) -> None:
    """Size, graph and partition are shown before anything runs."""
    expect(tab.get_by_label("Summary").locator("dd").first).to_have_text(drops)
    tab.get_by_role("link", name="Show the graph").click()
    expect(tab.locator("#graph")).to_have_attribute("data-ready", "yes")
    tab.go_back()
    tab.get_by_role("spinbutton", name="Parts").fill("2")
    tab.get_by_role("button", name="Translate again").click()
    tab.get_by_text("2 parts by metis").first.wait_for()


def watch_graph_and_timeline(tab: Any, *, open_gate: Callable[[], object]) -> None:
    """Both follow the session without a reload, until an application has failed."""
    timeline = tab.context.new_page()
    timeline.goto(f"{tab.url}/timeline")
    attempts = timeline.locator("#timeline")
    expect(attempts).to_have_attribute("data-attempts", "2")  # those before the exposures
    tab.get_by_role("link", name="Graph", exact=True).click()
    legend = tab.locator("#graph-legend li")
    expect(legend.filter(has_text="running")).to_contain_text(re.compile("[1-9]"))
    open_gate()
    expect(legend.filter(has_text="in error")).to_contain_text("2")
    expect(attempts).to_have_attribute("data-attempts", "6")
    timeline.close()
    tab.go_back()


def find_cause(tab: Any) -> None:
    """The page of the session names the cause; the page of its drop has the reason, and the log what it printed."""
    expect(tab.locator("#status")).to_have_text("failed")
    cause = tab.locator("[data-part=failures] article")
    expect(cause).to_have_count(1)
    expect(cause).to_contain_text("1 failed, took 1 along")
    tab.get_by_role("link", name="Log", exact=True).first.click()
    tab.get_by_label("Level").select_option("ERROR")
    line = tab.locator(".log-line")
    expect(line.first).to_contain_text("No such file or directory")
    line.get_by_role("link", name="Calibrate").first.click()
    expect(tab.get_by_role("heading", name="Failure")).to_be_visible()
    expect(tab.locator("article")).to_contain_text("1 failed, took 1 along")
    expect(tab.locator("pre").last).to_contain_text("calibrating with")
    tab.get_by_role("link", name="Search and filter").click()
    tab.get_by_role("searchbox", name="Text").fill("no such FILE")
    expect(line.first).to_contain_text("No such file or directory")
    expect(line.filter(has_not_text="No such file")).to_have_count(0)
    tab.get_by_role("link", name=re.compile("Calibrate")).first.click()


def look_at_products(tab: Any, folder: Path) -> None:
    """The picture is drawn, and it and the report of the session are downloaded."""
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Report", exact=True).click()
    download.value.save_as(folder / "report.html")
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download files/sky.npy").click()
    download.value.save_as(folder / "sky.npy")
    tab.get_by_role("region", name="Results", exact=True).get_by_role("link", name="Calibrate data").click()
    picture = tab.locator("img.preview")
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 24
    expect(tab.get_by_text("24 × 24", exact=True)).to_be_visible()
    tab.go_back()

    assert np.load(folder / "sky.npy").mean() == pytest.approx(5.0, abs=0.5)
    assert "sky.npy" in (folder / "report.html").read_text(encoding="utf-8")


def clone_with_other_values(tab: Any, up: Running) -> None:
    """The forms have the values and options of the session; what is changed there is changed in the clone."""
    tab.get_by_role("link", name="Clone…").click()
    expect(tab.get_by_role("spinbutton", name="exposures")).to_have_value("3")
    assert accessibility_findings(tab) == []
    expect(tab.get_by_label("Nodes with a copy of each result")).to_have_value("2")
    expect(tab.get_by_label("Algorithm")).to_have_value("metis")
    tab.get_by_role("spinbutton", name="exposures").fill("2")
    tab.get_by_label("Session").fill("day-2")
    tab.get_by_text("Nodes that come later take a share").uncheck()
    tab.get_by_role("button", name="Deploy and watch").click()
    finished(tab, up, "day-2")
    tab.get_by_role("link", name="Clone…").click()
    expect(tab.get_by_role("spinbutton", name="exposures")).to_have_value("2")
    expect(tab.get_by_label("Nodes with a copy of each result")).to_have_value("2")
    expect(tab.get_by_label("Nodes that come later take a share")).not_to_be_checked()


def test_every_manager_is_reached_and_may_be_used(page: Any, up: Running) -> None:
    """From the first page links lead to island and nodes, where a session can be deleted without a token.

    They lead to the log of each of them and of the translator, too, which strangers cannot read.
    """
    run(up.home, "submit", GRAPH, "--name", "on-node", "--wait")
    assert page.get_by_role("link", name="Cluster").count() == 0
    page.get_by_role("link", name="node-1").first.click()
    page.wait_for_url(f"{up.ready['nodes'][0]}/")
    page.get_by_role("link", name="Cluster").click()
    page.wait_for_url(f"{up.ready['master']}/")
    page.get_by_role("link", name="island").first.click()
    page.wait_for_url(f"{up.ready['island']}/")
    page.goto(f"{up.ready['island']}/sessions/on-node")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete the session").click()
    page.wait_for_url(f"{up.ready['island']}/sessions")

    assert page.get_by_role("link", name="on-node").count() == 0
    read_logs(page, up)


def read_logs(page: Any, up: Running) -> None:
    """The logs of island, node and translator are read in the browser; `dropflow log` has the same lines."""
    lines = page.locator(".log-line")
    for region, name in (("Children", "island"), ("Nodes", "node-2")):
        page.goto(f"{up.ready['master']}/")
        row = page.get_by_role("region", name=region).locator("tr", has_text=name)
        row.get_by_role("link", name="log", exact=True).click()
        page.wait_for_url(f"**/nodes/{name}/log")
        expect(lines.first).to_contain_text("answers at")
        printed = run(up.home, "log", "--manager", name, "--level", "info", "--search", "ANSWERS at")
        assert lines.first.locator("code").inner_text() in printed.stdout, printed
    page.get_by_role("link", name="Translate").click()
    page.get_by_role("link", name="Log", exact=True).click()
    page.wait_for_url(f"{up.ready['translator']}/nodes/translator/log")
    expect(lines.first).to_contain_text("answers at")
    assert accessibility_findings(page) == []
    printed = run(up.home, "log", "--manager", "translator", "--to", up.ready["translator"])
    assert lines.first.locator("code").inner_text() in printed.stdout, printed
    stranger = page.context.browser.new_context()
    for server, name in ((up.ready["master"], "island"), (up.ready["translator"], "translator")):
        assert stranger.request.get(f"{server}/api/v1/nodes/{name}/log").status == 401
    stranger.close()


def test_names_of_this_host_are_one_door(page: Any, up: Running) -> None:
    """A browser that is signed in at 127.0.0.1 opens the pages of managers at localhost, too."""
    for server in (up.ready["nodes"][1], up.ready["island"]):
        named = server.replace("127.0.0.1", "localhost")
        page.goto(f"{named}/sessions")
        page.wait_for_url(f"{named}/sessions")
        page.get_by_role("heading", name="Sessions").first.wait_for()


def test_open_signs_a_new_browser_in(window: Any, up: Running) -> None:
    """The printed address opens the page of a session once; opened again, the browser is signed in already."""
    run(up.home, "submit", GRAPH, "--name", "elsewhere", "--wait")
    address = run(up.home, "open", "elsewhere").stdout.strip()
    for _ in range(2):
        window.goto("about:blank")
        window.goto(address)
        finished(window, up, "elsewhere")
    stranger = window.context.browser.new_context().new_page()
    stranger.goto(address)
    stranger.get_by_role("alert").get_by_text("was used before").wait_for()
    stranger.context.close()


def _with_times(folder: Path) -> Path:
    """Return the graph with a declared time for each application."""
    document = json.loads(GRAPH.read_text(encoding="utf-8"))
    for node in document["nodeDataArray"]:
        for field in node["fields"]:
            if field["name"] == "execution_time":
                field["value"] = 0.25
    path = folder / GRAPH.name
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_a_session_of_the_command_line_is_on_the_page(page: Any, up: Running, tmp_path: Path) -> None:
    """A session that is submitted with a command appears on the open list of sessions without a reload.

    Its graph declares times, so that its timeline has the plan under what was executed.
    """
    page.goto(f"{up.ready['master']}/sessions")
    done = run(up.home, "submit", _with_times(tmp_path), "--name", "appears", "--wait")
    page.get_by_role("link", name="appears").first.wait_for()
    page.goto(f"{up.ready['master']}/sessions/appears/timeline")
    expect(page.get_by_label("Plan", exact=True)).to_be_checked()
    late = page.get_by_role("region", name="Workers", exact=True)
    expect(late.get_by_role("columnheader", name="Late")).to_be_visible()
    expect(late.get_by_role("row").nth(1).get_by_role("cell").last).to_have_text(re.compile("[0-9] m?s"))

    assert done.returncode == 0, done.stderr
