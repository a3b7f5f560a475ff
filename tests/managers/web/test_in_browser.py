"""The pages of a manager in a real browser."""

import re
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import pytest

from dropflow.api.drop_records import DropQuery
from dropflow.api.node_records import NodeInfo
from dropflow.graph.build import GraphBuilder
from tests.browser import accessibility_findings, needs_chromium
from tests.fake_manager import FakeManager, manager_with_sessions
from tests.regular_graphs import fan
from tests.times.made_times import executed, sections_of

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]

PAGES = (
    "/",
    "/nodes",
    "/sessions",
    "/sessions/failed",
    "/sessions/running",
    "/sessions/failed/drops/fan_a_0-0",
    "/sessions/finished/drops/fan_d_0-0",
    "/sessions/running/graph",
    "/sessions/running/results",
)
HOSTILE = "<script>alert('x')</script>\"'&\n\u202e" + "W" * 9_000
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cfc0f01f0005000201ff5f5b6d9c0000000049454e44ae426082"
)


def rows(page: Any, region: str) -> list[str]:
    """Return the first column of the table in this region."""
    names: list[str] = page.get_by_role("region", name=region, exact=True).locator("tbody th").all_inner_texts()
    return [text.split("\n")[0] for text in names]


def test_overview_shows_the_manager_its_nodes_and_its_sessions(serve: Any, look: Any) -> None:
    """The first page names every node and the latest sessions, and links to them."""
    page = look(serve(manager_with_sessions(name="east", role="island", nodes=("a", "b")))).page
    page.goto("/")

    expect(page.get_by_role("heading", level=1)).to_have_text("east")
    assert rows(page, "Sessions") == ["running", "failed", "finished", "cancelled"]
    assert rows(page, "Nodes") == ["a", "b"]
    page.get_by_role("link", name="failed", exact=True).click()
    expect(page).to_have_url(re.compile("/sessions/failed$"))


def test_the_page_of_a_session_is_updated(serve: Any, look: Any) -> None:
    """Numbers, rows and the status change without a reload until the session is over."""
    manager = manager_with_sessions()
    page = look(serve(manager)).page
    page.goto("/sessions/running")
    settled = page.locator("[data-figure=settled]")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    expect(settled).to_have_text("7")

    manager.advance("running", {6: "COMPLETED", 8: "WRITING"})
    expect(settled).to_have_text("8")
    expect(page.locator("tr[data-row='8'] .state")).to_have_text("active")
    manager.complete("running")
    expect(page.locator("#status")).to_have_text("finished")
    expect(page.locator("#live")).to_have_text("over")
    expect(page.get_by_role("button", name="Cancel…")).to_have_count(0)
    expect(page.locator("#logical [data-key] td[data-group=waiting]")).to_have_text(["0"] * 3)


def test_an_open_question_stays_when_others_go(serve: Any, look: Any) -> None:
    """A session that ends meanwhile takes away its other commands; the panel of Delete stays open."""
    manager = manager_with_sessions()
    page = look(serve(manager)).page
    page.goto("/sessions/running")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.get_by_role("button", name="Delete…").click()

    manager.complete("running")
    expect(page.locator("#ask-cancel")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete the session")).to_be_visible()


def test_a_failure_appears_on_the_open_page(serve: Any, look: Any) -> None:
    """The root cause appears with its text, and open details stay open when another one appears."""
    manager = manager_with_sessions()
    page = look(serve(manager)).page
    page.goto("/sessions/running")

    manager.fail("running", 7, "the disk is full", also=(22,))
    expect(page.get_by_text("the disk is full", exact=True)).to_be_visible()
    expect(page.get_by_text("1 failed, took 1 along")).to_be_visible()
    page.get_by_text("Details").click()
    manager.fail("running", 8, "another one")
    expect(page.get_by_text("another one", exact=True)).to_be_visible()
    expect(page.get_by_text("Traceback").first).to_be_visible()


def test_numbers_of_failures_are_those_of_the_legend(serve: Any, look: Any) -> None:
    """The sum under failures changes with the number in the legend, before the list of causes is fetched again."""
    manager = manager_with_sessions()
    manager.fail("running", 7, "the disk is full", also=(22,))
    page = look(serve(manager)).page
    page.clock.install()
    page.goto("/sessions/running")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.clock.pause_at(page.evaluate("Date.now() + 60_000"))  # only the stream is followed
    manager.fail("running", 8, "another one", also=(23, 24))
    legend = page.locator("#legend [data-group=error] b")
    while legend.inner_text() != "5":
        page.clock.run_for(250)

    expect(page.locator("[data-figure=failures]")).to_have_text("5 drops in error: 2 failed, 3 taken along")
    expect(page.locator("article .count")).to_have_text(["1 failed, took 1 along"])


def test_changes_are_drawn_together(serve: Any, look: Any) -> None:
    """Changes within 200 ms write a number once; without any change, only the time and for how long nothing settled."""
    manager = manager_with_sessions()
    page = look(serve(manager)).page
    page.add_init_script(
        """let heard = 0;
        window.EventSource = class extends EventSource {
          constructor(url) {
            super(url);
            this.addEventListener("change", () => { document.documentElement.dataset.heard = ++heard; });
          }
        };"""
    )
    page.clock.install()
    page.goto("/sessions/running")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.clock.pause_at(page.evaluate("Date.now() + 60_000"))
    page.evaluate(
        """() => {
          window.written = [];
          const row = (node) => (node.closest ? node : node.parentElement).closest("tr, #legend, [data-figure]");
          new MutationObserver((all) => window.written.push(...all.map(({ target }) => {
            const { figure, key } = row(target)?.dataset ?? {};
            return figure ?? key ?? "";
          }))).observe(document.querySelector("main"), { childList: true, subtree: true, characterData: true });
        }"""
    )
    for number, drop in enumerate((6, 7, 8), start=1):
        manager.advance("running", {drop: "COMPLETED"})
        expect(page.locator("html")).to_have_attribute("data-heard", str(number))
    assert page.evaluate("window.written") == []

    page.clock.run_for(250)
    written = page.evaluate("window.written")
    assert written.count("settled") == 1
    assert "a" in written
    assert "d" not in written
    assert "r" not in written
    page.clock.run_for(12_000)
    expect(page.locator("[data-figure=remaining]")).to_have_text(re.compile("^no drop settled for 1[0-3][.][0-9] s$"))
    expect(page.locator("[data-figure=rate]")).to_have_text("\u2013")


def test_failures_with_the_same_text_are_one_cause(serve: Any, look: Any) -> None:
    """The cause has the sum of their effects, and links to each of them; texts may differ in their numbers."""
    manager = manager_with_sessions()
    for drop in (6, 7, 8):
        manager.fail("running", drop, f"antenna {drop} flagged", also=(drop + 20,))
    page = look(serve(manager)).page
    page.goto("/sessions/running")

    expect(page.locator("article")).to_have_count(1)
    expect(page.get_by_text("antenna {n} flagged")).to_be_visible()
    expect(page.get_by_text("3 failed, took 3 along")).to_be_visible()
    page.get_by_text("2 alike", exact=True).click()
    page.get_by_role("link", name="fan_a_0-7").first.click()
    expect(page).to_have_url(re.compile("/drops/fan_a_0-7"))


def test_without_an_event_stream_the_page_polls(serve: Any, look: Any) -> None:
    """The page shows that it polls, and is still updated."""
    manager = manager_with_sessions()
    window = look(serve(manager, streams=0))
    window.allow_console_messages("503")
    page = window.page
    page.goto("/sessions/running")

    expect(page.locator("#live")).to_have_text("live, by asking")
    manager.complete("running")
    expect(page.locator("#status")).to_have_text("finished")
    expect(page.locator("#live")).to_have_text("over")


def test_a_page_that_is_hidden_while_it_polls_polls_once(serve: Any, look: Any) -> None:
    """An answer that comes after the page was hidden and shown again begins no second series of requests."""
    window = look(serve(manager_with_sessions(), streams=0))
    window.allow_console_messages("503")
    page = window.page
    page.add_init_script(
        """window.asked = 0;
        const ask = window.fetch;
        window.fetch = (url, options) => { asked += url.endsWith(".json"); return ask(url, options); };
        window.hide = (hidden) => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        };"""
    )
    held: list[Any] = []

    def hold(route: Any) -> None:  # the method of a list is refused as a handler
        held.append(route)

    page.clock.install()
    page.route("**/sessions/running.json", hold)
    with page.expect_request("**/sessions/running.json"):
        page.goto("/sessions/running")
    with page.expect_request("**/sessions/running.json"):
        page.evaluate("hide(true)")
        page.evaluate("hide(false)")
    for route in held:
        with page.expect_response("**/sessions/running.json"):
            route.continue_()
    expect(page.locator("#live")).to_have_text("live, by asking")
    page.clock.run_for(2_000)

    assert page.evaluate("asked") == 3


def test_a_page_reconnects_to_its_manager(serve: Any, look: Any) -> None:
    """The page shows that the connection is lost, and is updated again when the manager is back."""
    manager = manager_with_sessions()
    url = serve(manager)
    window = look(url)
    # Which one depends on when the manager ends; one that is ending answers 503 on connections that are open.
    window.allow_console_messages("net::ERR_", "503")
    page = window.page
    page.goto("/sessions/running")
    expect(page.locator("#live")).to_have_text("live")
    serve.stop(url)
    expect(page.locator("#live")).to_have_text("connection lost, trying again")

    manager.advance("running", {6: "COMPLETED"})
    serve(manager, port=urlsplit(url).port)
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("[data-figure=settled]")).to_have_text("8")


def test_a_hidden_page_closes_its_stream(serve: Any, look: Any) -> None:
    """When the page is shown again, it has the present state."""
    manager = manager_with_sessions()
    page = look(serve(manager)).page
    page.add_init_script(
        """window.sources = [];
        window.EventSource = class extends EventSource {
          constructor(url) { super(url); window.sources.push(this); }
        };
        window.hide = (hidden) => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        };"""
    )
    page.goto("/sessions/running")
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate("hide(true)")
    assert page.evaluate("sources.map((source) => source.readyState)") == [2]

    manager.advance("running", {6: "COMPLETED"})
    page.evaluate("hide(false)")
    expect(page.locator("[data-figure=settled]")).to_have_text("8")
    expect(page.locator("tr[data-row='6'] .state")).to_have_text("completed")


def test_the_page_of_a_deleted_session_shows_the_deletion(serve: Any, look: Any) -> None:
    """The page shows that the session was deleted, and does not poll for it."""
    manager = manager_with_sessions()
    window = look(serve(manager))
    window.allow_console_messages("404")
    window.page.goto("/sessions/running")
    expect(window.page.locator("#live")).to_have_attribute("data-state", "live")

    manager.delete("running")
    expect(window.page.locator("#live")).to_have_text("this was deleted")


def test_drops_are_filtered_and_paged(serve: Any, look: Any) -> None:
    """The form finds drops by state, logical node and text, in pages of 100."""
    manager = manager_with_sessions()
    manager.add(fan(500), "large")
    page = look(serve(manager)).page
    page.goto("/sessions/large")

    expect(page.get_by_text("1–100 of 501 drops")).to_be_visible()  # noqa: RUF001 - as it is shown
    page.get_by_role("combobox", name="Logical node").select_option(label="app")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("1–100 of 250 drops")).to_be_visible()  # noqa: RUF001 - as it is shown
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_text("101–200 of 250 drops")).to_be_visible()  # noqa: RUF001 - as it is shown
    page.get_by_role("combobox", name="State").select_option(label="in error")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("No drop matches.")).to_be_visible()


def test_a_filter_that_is_answered_late_does_not_replace_a_newer_one(serve: Any, look: Any) -> None:
    """The list shows what the form says, in whichever order answers come."""
    page = look(serve(manager_with_sessions())).page
    page.goto("/sessions/finished")
    expect(page.get_by_text("drops", exact=False).first).to_be_visible()
    held: list[Any] = []

    def hold(route: Any) -> None:  # the method of a list is refused as a handler
        held.append(route)

    page.route("**/sessions/finished?*state=ERROR*", hold)
    state = page.get_by_role("combobox", name="State")
    with page.expect_request("**/sessions/finished?*state=ERROR*"):
        state.select_option(label="in error")
    with page.expect_response("**/sessions/finished?*"):
        state.select_option(label="completed")
    expect(page.get_by_text("No drop matches.")).to_have_count(0)
    with page.expect_response("**/sessions/finished?*state=ERROR*"):
        held[0].continue_()
    page.wait_for_timeout(200)

    expect(page.get_by_text("No drop matches.")).to_have_count(0)


_UPDATED = """async ([before, ...later]) => {
  const { become } = await import("/static/refresh.js");
  const list = (names) => {
    const made = document.createElement("ul");
    for (const [at, name] of [...names].entries()) {
      const item = made.appendChild(document.createElement("li"));
      item.dataset.row = name;
      item.textContent = `${name}${at}`;
    }
    return made;
  };
  const live = list(before);
  return later.map((names) => (become(live, list(names)), live.textContent));
}"""


def test_rows_of_one_name_are_all_updated(serve: Any, look: Any) -> None:
    """Two nodes may have the same name by mistake: an open page goes on showing both."""
    page = look(serve(manager_with_sessions())).page
    page.goto("/nodes")

    assert page.evaluate(_UPDATED, ["axxb", "axxb", "xaxxb", "bx", "x", "", "xx"]) == [
        *("a0x1x2b3", "x0a1x2x3b4", "b0x1", "x0", "", "x0x1")
    ]


def test_a_manager_that_is_busy_is_not_asked_at_once(serve: Any, look: Any) -> None:
    """While logical nodes are missing on a page and the manager refuses it, the page asks about once a second."""
    manager = manager_with_sessions()
    window = look(serve(manager))
    window.allow_console_messages("503")
    page, asked = window.page, list[str]()
    page.clock.install()
    page.goto("/sessions/running")
    page.clock.run_for(3000)
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate("document.querySelector('#logical [data-key]').remove()")

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        route.fulfill(status=503, body="busy")

    page.route("**/sessions/running", refuse)
    manager.advance("running", {6: "COMPLETED"})
    for _ in range(40):
        page.clock.run_for(100)
        page.evaluate("new Promise((done) => requestAnimationFrame(done))")

    assert len(asked) <= 8
    page.unroute("**/sessions/running")
    for _ in range(40):
        page.clock.run_for(100)
    expect(page.locator("#logical [data-key]")).to_have_count(3)


def test_the_focus_stays_in_a_table_that_the_reader_has_sorted(serve: Any, look: Any) -> None:
    """The server sends its rows in another order: they are moved, and a reader with a keyboard stays where they are."""
    page = look(serve(manager_with_sessions())).page
    page.goto("/sessions/running")
    for _ in range(2):
        page.locator("#logical thead button").first.click()
    link = page.locator("#logical tbody th a").first
    name = link.inner_text()
    assert name != page.locator("#logical tbody th a").last.inner_text()
    link.focus()

    assert page.evaluate("import('/static/refresh.js').then((module) => module.refresh())") == "fresh"
    expect(page.locator("#logical tbody th a", has_text=name).first).to_be_focused()
    assert page.locator("#logical tbody th a").first.inner_text() == name


def test_a_number_of_a_logical_node_links_to_its_drops(serve: Any, look: Any) -> None:
    """Each number in the table of logical nodes is a link to the drops that it counts."""
    page = look(serve(manager_with_sessions())).page
    page.goto("/sessions/failed")
    page.locator("#logical tr", has_text="app").first.locator("td[data-group=error] a").click()

    expect(page.locator("#drops tbody .state")).to_have_text(["in error", "in error"])


def test_log_and_content_of_a_drop_are_shown_and_downloaded(serve: Any, look: Any) -> None:
    """The page of a drop shows the end of its log and the beginning of its content, and links to both in full."""
    page = look(serve(manager_with_sessions())).page
    page.goto("/sessions/failed/drops/fan_a_0-0")
    expect(page.locator("pre", has_text="no value 1").last).to_be_visible()
    with page.expect_download() as download:
        page.locator("section", has=page.get_by_role("heading", name="Log")).get_by_role(
            "link", name="Download"
        ).click()
    assert "no value 1" in download.value.path().read_text()

    page.goto("/sessions/finished/drops/fan_d_0-0")
    expect(page.locator("pre")).to_contain_text("000000  00 01 02 03")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.path().read_bytes() == bytes(range(256)) * 64


def test_a_picture_is_drawn(serve: Any, look: Any) -> None:
    """Content that is a PNG file is drawn on the page of its drop."""
    manager = manager_with_sessions()
    manager.write("finished", 22, PNG)
    page = look(serve(manager)).page
    page.goto("/sessions/finished/drops/fan_d_0-1")

    assert page.locator("img.preview").evaluate("image => image.decode().then(() => image.naturalWidth)") == 1


def test_neighbours_of_a_drop_are_links(serve: Any, look: Any) -> None:
    """The page of a drop links to the drops of its inputs and outputs, and runs the session again from it."""
    manager = manager_with_sessions()
    page = look(serve(manager)).page
    page.goto("/sessions/failed/drops/fan_a_0-0")
    page.get_by_role("region", name="Outputs").get_by_role("link").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("data")
    page.go_back()
    page.get_by_role("button", name="Run again from here…").click()
    assert manager.session("failed").is_over
    page.get_by_role("button", name="Run again", exact=True).click()
    expect(page.locator("#status")).to_have_text("running")
    assert [row.state for row in manager.drops("failed", DropQuery(oid="fan_a_0-0")).drops] == ["INITIALIZED"]


def test_code_is_edited_where_a_session_runs_again(serve: Any, look: Any) -> None:
    """The form of a drop has its code and values; what is changed there is what the session runs with."""
    manager = manager_with_sessions()
    detail = manager.drop("finished", "fan_a_0-0")
    parameters = {"depth": "3", "func_code": "def f():\n    return 1\n"}
    manager.drop = lambda *_: msgspec.structs.replace(detail, parameters=parameters)  # type: ignore[method-assign]
    requests, retry = [], manager.retry
    manager.retry = lambda name, request: (requests.append(request), retry(name, request))[1]  # type: ignore[method-assign]
    page = look(serve(manager)).page
    page.goto("/sessions/finished/drops/fan_a_0-0")
    page.get_by_role("button", name="Run again from here…").click()
    page.get_by_label("func_code").fill("def f():\n    return 2\n")
    page.get_by_label("depth").fill("4")
    page.locator("form[popover] button.primary").locator("visible=true").click()

    expect(page).to_have_url(re.compile("/sessions/finished$"))
    assert [retried.settings for retried in requests] == [("depth=4", "func_code=def f():\n    return 2\n")]


@pytest.mark.parametrize("javascript", [True, False])
def test_cancelling_needs_a_confirmation(serve: Any, look: Any, *, javascript: bool) -> None:
    """It takes two steps, keeps the reason, works without JavaScript and leads back to the session."""
    manager = manager_with_sessions()
    page = look(serve(manager), java_script_enabled=javascript).page
    page.goto("/sessions/running")
    page.get_by_role("button", name="Cancel…").click()
    assert manager.session("running").status == "RUNNING"
    page.get_by_label("Reason").fill("wrong input")
    page.get_by_role("button", name="Cancel the session").click()

    expect(page.locator("#status")).to_have_text("cancelled")
    assert manager.session("running").text == "wrong input"


def test_deleting_needs_a_confirmation(serve: Any, look: Any) -> None:
    """Deleting takes two steps and leads to the list of the remaining sessions."""
    page = look(serve(manager_with_sessions())).page
    page.goto("/sessions/failed")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete the session").click()

    expect(page).to_have_url(re.compile("/sessions$"))
    # The browser has the address of the list before it has its rows.
    expect(page.get_by_role("region", name="Sessions", exact=True).locator("tbody th a")).to_have_text(
        ["running", "finished", "cancelled"]
    )


def test_pages_are_the_same_without_javascript(serve: Any, look: Any) -> None:
    """All tables have the same rows with and without scripts."""
    url = serve(manager_with_sessions())
    texts: list[dict[str, list[str]]] = []
    for javascript in (True, False):
        page = look(url, java_script_enabled=javascript).page
        texts.append({})
        for address in ("/", "/sessions/failed", "/sessions/failed/drops/fan_a_0-0"):
            page.goto(address)
            texts[-1][address] = page.locator("table").all_inner_texts()

    assert texts[0] == texts[1]
    assert all(texts[0].values())


def test_no_page_is_wider_than_a_phone(serve: Any, look: Any) -> None:
    """At 360 pixels no page scrolls sideways, even with long and hostile names."""
    manager = manager_with_sessions(role="island", nodes=("n" * 200, "b"))
    manager.set_node(NodeInfo(name="c", version="0", host=HOSTILE, text=HOSTILE, state="lost"))
    manager.fail("running", 7, HOSTILE)
    page = look(serve(manager), viewport={"width": 360, "height": 740}).page
    widths = {}
    for address in PAGES:
        page.goto(address)
        widths[address] = page.evaluate("document.documentElement.scrollWidth")

    assert {address: width for address, width in widths.items() if width > 360} == {}


NAMELESS = """() => {
  const bad = [];
  for (const input of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
    if (!input.labels.length && !input.ariaLabel) bad.push(input.outerHTML);
  for (const thing of document.querySelectorAll("a, button, summary, th"))
    if (!thing.textContent.trim() && !thing.ariaLabel) bad.push(thing.outerHTML);
  for (const bar of document.querySelectorAll("svg")) if (!bar.ariaLabel) bad.push(bar.outerHTML);
  for (const image of document.images) if (!image.hasAttribute("alt")) bad.push(image.outerHTML);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  bad.push(...ids.filter((id, index) => ids.indexOf(id) !== index));
  if (document.querySelectorAll("h1").length !== 1) bad.push("h1");
  if (document.documentElement.lang !== "en") bad.push("lang");
  return bad;
}"""


PALE = """() => {
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([red, green, blue]) => [red, green, blue]
    .map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parts(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
  };
  const pale = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!hasText || element.closest("svg, option, .unseen")) continue;
    const [one, other] = [light(parts(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    if (contrast < 4.5) pale.push(`${element.outerHTML.slice(0, 80)} ${contrast.toFixed(2)}`);
  }
  return [...new Set(pale)];
}"""


COLOUR_RULES = ("color-contrast", "link-in-text-block")
OTHER_PAGES = (
    "/nodes/node-1",
    "/sessions/failed/timeline",
    "/sessions/failed/log",
    "/sessions/failed/causes",
    "/sessions/finished/results",
    "/sessions/failed/compare?other=finished",
    "/sessions/failed/drops/fan_d_0-0/origin",
)


def test_pages_are_accessible(serve: Any, look: Any) -> None:
    """Inputs, links, buttons and pictures have labels, each page has one heading, and ids are unique.

    The contrast of texts to the background is at least 4.5 (WCAG 2, level AA), in the light and the dark scheme, and
    axe-core finds nothing: on a screen and on a phone in light colours, and by the rules on colours in dark ones. The
    width changes no colour, and those rules take four fifths of the time.
    """
    manager = manager_with_sessions(role="island", nodes=("node-1",))
    manager.set_times("failed", sections_of(executed(manager.graph("failed"), 3)))
    page = look(serve(manager), color_scheme="light", viewport={"width": 1440, "height": 900}).page
    violations: dict[str, list[str]] = {}
    for address in (*PAGES, *OTHER_PAGES):
        page.goto(address)
        if address.endswith("timeline"):
            expect(page.locator("#timeline[data-ready=yes]")).to_have_count(1)
        violations[address] = page.evaluate(NAMELESS)
        # In one page: colours and widths are the only differences, and loading it again takes longer than the rules.
        for scheme, width in (("light", 1440), ("light", 390), ("dark", 390)):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            if width == 1440:
                findings = accessibility_findings(page, without=COLOUR_RULES)
            else:
                violations[address] += page.evaluate(PALE)
                findings = accessibility_findings(page, *(COLOUR_RULES if scheme == "dark" else ()))
            violations[address] += [f"{scheme}, {width}: {finding}" for finding in findings]
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1440, "height": 900})

    assert {address: all_found for address, all_found in violations.items() if all_found} == {}


def test_the_focus_of_the_keyboard_is_visible(serve: Any, look: Any) -> None:
    """The first stop skips to the content, and the focused element has an outline."""
    page = look(serve(manager_with_sessions())).page
    page.goto("/sessions/running")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_browser_without_a_token_is_redirected_to_the_login(serve: Any, look: Any) -> None:
    """After the login it gets the page that it requested."""
    window = look(serve(manager_with_sessions(), token="secret-token"))
    window.allow_console_messages("401")
    page = window.page
    page.goto("/sessions/failed")
    expect(page).to_have_url(re.compile("/login"))
    page.goto("/login?next=/sessions/failed#secret-token")

    expect(page).to_have_url(re.compile("/sessions/failed$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("failed")


def test_a_page_that_is_opened_before_its_session_comes_with_it(serve: Any, look: Any) -> None:
    """The page of a session that does not exist says that it waits, and shows the session once it has begun."""
    manager = FakeManager()
    window = look(serve(manager))
    window.allow_console_messages("404")
    page = window.page
    page.goto("/sessions/later/graph")
    expect(page.get_by_text("this page comes as soon as it is there")).to_be_visible()
    manager.add(fan(20), "later")
    expect(page.locator("#graph[data-ready=yes]")).to_have_count(1, timeout=120_000)


def test_a_long_name_leaves_room_on_a_phone(serve: Any, look: Any) -> None:
    """The heading of a page has three lines at most, a row of a list six; all of the name is in its title."""
    manager = FakeManager()
    name = " and then ".join(["calibrate the visibilities of all antennas and channels of the second night"] * 2)
    manager.add(GraphBuilder("s").app(name).data("b").connect(name, "b").build(), "s")
    page = look(serve(manager), viewport={"width": 390, "height": 844}).page
    oid = manager.drops("s", DropQuery(limit=1)).drops[0].oid
    page.goto(f"/sessions/s/drops/{quote(oid, safe='')}")
    heading = page.get_by_role("heading", level=1)
    lines = "(element) => element.getBoundingClientRect().height / parseFloat(getComputedStyle(element).lineHeight)"

    assert heading.evaluate(lines) < 3.5
    assert page.locator("th .sub").first.evaluate(lines) < 2.5
    assert page.locator(".crumbs").evaluate(lines) < 2.5
    expect(heading).to_have_attribute("title", name)


def test_an_unknown_page_links_to_the_first_page(serve: Any, look: Any) -> None:
    """Unknown pages, sessions and drops have status 404 and a link to the first page."""
    window = look(serve(manager_with_sessions()))
    window.allow_console_messages("404")
    for address in ("/nope", "/sessions/nope", "/sessions/failed/drops/nope"):
        assert window.page.goto(address).status == 404
        window.page.get_by_role("link", name="To the first page").click()
        expect(window.page.get_by_role("heading", level=1)).to_have_text("node-1")
