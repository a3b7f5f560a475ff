"""The pages of a manager over HTTP: JSON, escaping, errors, forms, static files."""

import http.client
import re
import zlib
from dataclasses import replace
from threading import Event
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from dropflow.api.drop_records import DropQuery
from dropflow.api.requests import EVERY_RESULT, ResultList, ResultsQuery, RetryRequest
from dropflow.api.routes import Request
from dropflow.api.session_records import FailureInfo
from dropflow.errors import ConflictError, LinkError, PreviewError
from dropflow.preview.source import Line, Preview
from dropflow.web.known_servers import KnownServers, ServerAddress, hop_url
from managers.web.page_templates import drop_label, drop_url
from managers.web.pages import launch_routes
from managers.web.views import (
    DropView,
    NodeQuery,
    NodesView,
    OverviewView,
    SessionQuery,
    SessionsView,
    SessionView,
    drop_view,
    nodes_view,
    overview_view,
    session_view,
    sessions_view,
)
from tests.fake_manager import FakeManager, manager_with_sessions
from tests.managers.web.hostile_graph import HOSTILE, hostile_graph
from tests.managers.web.reading import ask, read
from tests.regular_graphs import fan
from tests.times.made_times import sections_of

PAGES = ("/", "/nodes", "/sessions", "/sessions/failed", "/sessions/failed/drops/fan_a_0-0", "/sessions/running/log")


class WaitingManager(FakeManager):
    """A manager that reads results only after it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_read = Event()

    def results(self, session: str, query: ResultsQuery = EVERY_RESULT) -> ResultList:
        """Wait, and return the results."""
        assert self.may_read.wait(60)
        return super().results(session, query)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_the_frame_of_a_session_page_comes_before_its_results(serve: Any, encoding: str) -> None:
    """A browser gets styles and scripts before results are read; the whole is the page without JavaScript."""
    manager = WaitingManager()
    manager.add(fan(3), "slow")
    connection = http.client.HTTPConnection(serve(manager).removeprefix("http://"), timeout=60)
    connection.request("GET", "/sessions/slow", headers={"Accept": "text/html", "Accept-Encoding": encoding})
    answer = connection.getresponse()
    unpack = zlib.decompressobj(31) if encoding == "gzip" else None
    first = answer.read1(65536)
    assert b'<main id="main">' in (unpack.decompress(first) if unpack else first)
    manager.may_read.set()
    rest = answer.read()
    connection.close()
    page = (unpack.decompress(rest) if unpack else rest).decode()
    assert page.count("<main") == 0
    assert page.rstrip().endswith("</html>")
    assert 'data-part="results"' in page


def test_a_content_without_a_preview_can_be_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its section has the reason and the link, as that of a damaged content has."""
    manager = manager_with_sessions()
    drop = next(
        row.oid for row in manager.drops("failed", DropQuery()).drops if not row.is_app and row.state == "COMPLETED"
    )

    def fail(*_: object) -> None:
        raise PreviewError("the process that reads it was ended by SIGSEGV", hint="download it")

    monkeypatch.setattr(manager, "preview", fail)
    view = drop_view(manager, "failed", drop)

    assert view.data is not None
    assert view.data.trouble == "the process that reads it was ended by SIGSEGV"
    assert view.warnings == ()


def test_a_measurement_set_has_its_subtables(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the plot stands how many there are; each of them is a part to choose."""
    manager = manager_with_sessions()
    preview = Preview(
        kind="directory",
        columns=("Subtable", "Rows"),
        rows=(("ANTENNA", "3"), ("FIELD", "1")),
        parts=("DATA", "ANTENNA", "FIELD"),
        line=Line(count=2, lows=(1.0, 2.0), highs=(3.0, 4.0)),
    )
    monkeypatch.setattr(manager, "preview", lambda *_: preview)
    drop = next(
        row.oid for row in manager.drops("failed", DropQuery()).drops if not row.is_app and row.state == "COMPLETED"
    )
    page = ask(serve(manager), f"/sessions/failed/drops/{drop}").text

    assert "<summary>2 subtables</summary>" in page
    assert '<option value="1">ANTENNA</option>' in page


@pytest.mark.parametrize(
    ("path", "kind", "view"),
    [
        ("/", OverviewView, overview_view),
        ("/nodes", NodesView, lambda manager_: nodes_view(manager_, NodeQuery())),
        (
            "/sessions?status=failed",
            SessionsView,
            lambda manager_: sessions_view(manager_, SessionQuery(status="failed")),
        ),
        (
            "/sessions/failed?state=ERROR&limit=3&offset=1",
            SessionView,
            lambda manager_: session_view(manager_, "failed", DropQuery(state="ERROR", limit=3, offset=1)),
        ),
        ("/sessions/failed/drops/fan_a_0-0", DropView, lambda manager_: drop_view(manager_, "failed", "fan_a_0-0")),
    ],
)
def test_each_page_has_its_record_as_json(serve: Any, path: str, kind: type, view: Any) -> None:
    """The address under rel=alternate answers with the record from which the page is made."""
    manager = manager_with_sessions()
    url = serve(manager)
    tags, _ = read(ask(url, path))
    twin = next(
        attributes["href"] for tag, attributes in tags if tag == "link" and attributes.get("rel") == "alternate"
    )
    answer = msgspec.json.decode(ask(url, twin).body)

    assert answer.pop("ok") is True
    assert msgspec.convert(answer, kind) == view(manager)


def test_the_name_of_a_session_may_end_in_json(serve: Any) -> None:
    """Session x.json has its page at x.json and its JSON at x.json.json, also beside a session x."""
    manager = FakeManager()
    manager.add(fan(4), "x.json")
    manager.add(fan(4), "x")
    url = serve(manager)

    assert ask(url, "/sessions/x.json").headers["content-type"].startswith("text/html")
    assert msgspec.json.decode(ask(url, "/sessions/x.json.json").body)["session"]["session"] == "x.json"


def test_the_id_of_a_drop_may_end_in_json(serve: Any) -> None:
    """Drop x.json has its page, although another id is x, and ax has its JSON, although another id ends in ax.json."""
    manager = FakeManager()
    manager.add(replace(fan(4), oids=("x", "ax", "x.json", "aax.json", "d")), "s")
    url = serve(manager)

    assert ask(url, "/sessions/s/drops/x.json").headers["content-type"].startswith("text/html")
    assert msgspec.json.decode(ask(url, "/sessions/s/drops/ax.json").body)["drop"]["oid"] == "ax"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/sessions/failed", "/sessions/failed/drops/fan_a_0-0"])
def test_no_form_can_be_sent_before_the_script_that_completes_it_has_run(serve: Any, path: str) -> None:
    """It runs before the page is shown. A form without the page key would lead to a page that asks for the token."""
    head, _, _ = ask(serve(manager_with_sessions()), path).text.partition("<body>")
    (script,) = re.findall(r"<script[^>]*/page_key\.js[^>]*>", head)

    assert not re.search("defer|async|module", script)


def test_the_page_of_a_drop_has_its_attempts_and_what_a_failure_read(serve: Any) -> None:
    """It tells when each attempt began, how long it waited and ran, and on which worker; and names its inputs."""
    manager = manager_with_sessions()
    times = {"drop": 1, "attempt": -1, "worker": 7, "queued": 2, "ran": 3, "processor": 1, "memory": 5e6}
    manager.set_times("failed", sections_of([[times, times | {"drop": 2, "worker": 9}]]))
    text = ask(serve(manager), "/sessions/failed/drops/fan_a_0-0").text

    for words in ("Table of attempts", "1, failed", "2.00 s", "3.00 s", "5.0 MB", "worker 7", "It read 1 input:"):
        assert words in text
    assert "worker 9" not in text


@pytest.mark.slow
def test_a_cause_on_another_node_leads_to_its_row(serve: Any) -> None:
    """A root cause whose id is unknown is linked by its row. What went into the attempt is on its card."""
    manager = manager_with_sessions()
    foreign = FailureInfo(drop="#2", name="drop in row 2", node="", code="", kind="", text="elsewhere", row=2)
    foreign = msgspec.structs.replace(foreign, inputs=("sky: <a.npy>, 2 Bytes",))
    manager._sessions["failed"] = msgspec.structs.replace(manager._sessions["failed"], failures=(foreign,))
    answer = ask(serve(manager), "/sessions/failed")
    assert "sky: &lt;a.npy&gt;, 2 Bytes" in answer.text
    tags, _ = read(answer)

    (link,) = [attributes["href"] for tag, attributes in tags if tag == "a" and "row=" in attributes.get("href", "")]
    assert link == "/sessions/failed?row=2#drops"
    tags, _ = read(ask(serve(manager), link.removesuffix("#drops")))
    assert "/sessions/failed/drops/fan_a_0-1" in [attributes["href"] for tag, attributes in tags if tag == "a"]


@pytest.mark.slow
def test_results_are_paged_sorted_and_filtered(serve: Any) -> None:
    """The page of the session has the first 10 and links to all; order and filter stay from page to page."""
    manager = FakeManager()
    manager.add(fan(500), "s")
    manager.complete("s")
    for drop in range(251, 501):
        manager.write("s", drop, bytes(5_000 if drop == 400 else 10))
    url = serve(manager)
    count = len(manager.results("s").results)
    page = ask(url, "/sessions/s")
    assert f"{count} files" in page.text
    assert "the first 10 are here" in page.text

    tags, _ = read(page)
    address = next(each["href"] for tag, each in tags if tag == "a" and each.get("href", "").endswith("/results"))
    assert "1 file matches, " in ask(url, f"{address}?text=d_0-149&sort=size").text
    first = msgspec.json.decode(ask(url, f"{address}.json?sort=-size").body)
    assert (first["total"], first["results"][0]["drop"]) == (count, 400)
    listed, pages, address = [], 0, f"{address}?sort=-path&node=node-1"
    while address:
        tags, _ = read(ask(url, address))
        links = [each.get("href", "") for tag, each in tags if tag == "a"]
        listed += [link for link in links if link.startswith("/sessions/s/drops/")]
        address = next((each["href"] for tag, each in tags if tag == "a" and each.get("rel") == "next"), "")
        pages += 1
    wanted = sorted(manager.results("s").results, key=lambda result: result.path, reverse=True)
    assert listed == [drop_url("s", result_.oid) for result_ in wanted]
    assert pages == 3
    assert "No result matches" in ask(url, "/sessions/s/results?node=other").text
    assert ask(url, "/sessions/s/results?sort=nothing").status == 400
    assert ask(url, "/sessions/none/results").status == 404


@pytest.mark.slow
def test_causes_and_neighbours_are_paged(serve: Any) -> None:
    """Each page links to the next, and together they show all."""
    manager = FakeManager()
    manager.add(fan(300), "s")
    for drop in range(1, 131):
        manager.fail("s", drop, f"no value {drop}")
    url = serve(manager)
    for path, wanted in (("/sessions/s/causes", 130), (drop_url("s", "fan_r_0"), 150)):
        seen, pages, address = set(), 0, path
        while address:
            tags, _ = read(ask(url, address))
            links = [attributes.get("href", "") for tag, attributes in tags if tag == "a"]
            seen |= {link for link in links if link.startswith("/sessions/s/drops/fan_a_") and "?" not in link}
            address = next((each["href"] for tag, each in tags if tag == "a" and each.get("rel") == "next"), "")
            pages += 1
        assert (len(seen), pages) == (wanted, 2)

    assert "causes of 30 are not listed here" in read(ask(url, "/sessions/s"))[1]


def test_the_page_of_a_session_folds_its_causes_after_the_first(serve: Any) -> None:
    """It tells how many are folded."""
    manager = FakeManager()
    manager.add(fan(30), "s")
    for drop in range(1, 13):
        manager.fail("s", drop, f"no value {'x' * drop}")

    page = ask(serve(manager), "/sessions/s").text

    assert "<summary>7 more</summary>" in page
    assert page.index("no value xxxxx<") < page.index("<summary>7 more") < page.index("no value xxxxxx<")


@pytest.mark.slow
def test_hostile_names_are_escaped(serve: Any) -> None:
    """Names, texts, logs and parameters add no elements or attributes to a page."""
    manager = FakeManager(name=HOSTILE)
    manager.add(hostile_graph(), "evil")
    manager.fail("evil", 0, HOSTILE)
    manager.write("evil", 1, HOSTILE.encode())
    url = serve(manager)

    names = [drop.oid for drop in manager.drops("evil", DropQuery()).drops[:2]]
    paths = ("/", "/nodes", "/sessions", "/sessions/evil")
    for path in (*paths, *(drop_url("evil", name) for name in names)):
        page = ask(url, path)
        tags, text = read(page)
        assert page.status == 200
        assert [
            attributes
            for tag, attributes in tags
            if tag == "script" and not attributes.get("src", "").startswith("/static/")
        ] == []
        assert "<script>alert('x')</script>" in text
        assert "{{1+1}}" in text


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_pages_keep_to_their_security_policy(serve: Any, path: str) -> None:
    """No page has inline scripts, styles or handlers, or anything from another host."""
    page = ask(serve(manager_with_sessions(role="island")), path)
    tags, _ = read(page)

    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert [tag for tag, _ in tags if tag in ("style", "base", "iframe", "object", "embed")] == []
    assert [
        tag for tag, attributes in tags if any(name == "style" or name.startswith("on") for name in attributes)
    ] == []
    assert [
        attributes["src"] for _, attributes in tags if "src" in attributes and not attributes["src"].startswith("/")
    ] == []
    assert all(attributes.get("src") for tag, attributes in tags if tag == "script")


def test_gpus_of_a_node_are_shown_if_it_has_some(serve: Any) -> None:
    """In the table of nodes, beside its workers: how many attempts hold, of how many."""
    manager = manager_with_sessions()
    plain = manager.nodes()[0]
    load = msgspec.structs.replace(plain.load, gpus=4, gpus_free=1)
    manager.set_node(msgspec.structs.replace(plain, name="fast", load=load))
    page = ask(serve(manager), "/nodes").text

    assert page.count("3 of 4 GPUs") == page.count(" GPU") == 1


def test_links_of_nodes_are_web_addresses_only(serve: Any) -> None:
    """A node whose URL is a javascript: address is shown without a link."""
    manager = FakeManager()
    node = manager.nodes()[0]
    manager.set_node(msgspec.structs.replace(node, url="javascript:alert(1)"))

    assert "javascript:" not in ask(serve(manager), "/nodes").text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/sessions/nope", 404, "there is no session"),
        ("/sessions/failed/drops/nope", 404, "there is no drop"),
        ("/sessions/failed?state=NOPE", 400, "there is no state NOPE"),
        ("/sessions/failed?offset=-1", 400, "the query cannot be used"),
        ("/sessions/failed?colour=red", 400, "the query cannot be used"),
        ("/sessions/failed?offset=0&offset=1", 400, "in it more than once"),
        ("/sessions/failed/pictures/fan_r_0", 400, "is not a picture"),
        ("/static/../pages.py", 404, "is not served here"),
        ("/static/%2e%2e%2fpages.py", 404, "is not served here"),
    ],
)
def test_errors_are_pages(serve: Any, path: str, status: int, words: str) -> None:
    """An error is a page with its text and a link to the first page."""
    page = ask(serve(manager_with_sessions()), path)
    _, text = read(page)

    assert page.status == status
    assert words in text
    assert "To the first page" in text


def test_a_page_with_missing_parts_is_shown(serve: Any) -> None:
    """The page of a session names the parts that are missing because a node is lost."""
    manager = manager_with_sessions()
    manager.refuse("results", LinkError("node b does not answer"))
    _, text = read(ask(serve(manager), "/sessions/finished"))

    assert "node b does not answer" in text
    assert "Logical nodes" in text


@pytest.mark.slow
def test_the_page_of_a_session_does_not_grow_with_its_drops(serve: Any) -> None:
    """The pages of 1,000 and of 20,000 drops have about the same size."""
    manager = FakeManager()
    manager.add(fan(1_000), "small")
    manager.add(fan(20_000), "large")
    url = serve(manager)

    assert len(ask(url, "/sessions/large").body) < 1.1 * len(ask(url, "/sessions/small").body)


@pytest.mark.parametrize("action", ["cancel", "delete"])
def test_only_pages_of_the_same_origin_change_a_session(serve: Any, action: str) -> None:
    """A form of another or an unknown origin is refused, and the session goes on."""
    manager = manager_with_sessions()
    url = serve(manager)
    for origin in ("https://evil.example", "null", url.replace("http", "https").replace("127.0.0.1", "localhost")):
        assert ask(url, f"/sessions/running/{action}", method="POST", Origin=origin).status == 403

    assert manager.session("running").status == "RUNNING"
    assert ask(url, f"/sessions/running/{action}", method="POST", Origin=url).status == 303


@pytest.mark.parametrize("action", ["cancel", "delete"])
def test_get_of_an_action_changes_nothing(serve: Any, action: str) -> None:
    """GET is refused, and the session goes on."""
    manager = manager_with_sessions()

    assert ask(serve(manager), f"/sessions/running/{action}").status == 405
    assert manager.session("running").status == "RUNNING"


@pytest.mark.slow
def test_a_session_that_is_over_is_resumed_or_tried_again_from_its_page(serve: Any) -> None:
    """Its forms do it, and what is not possible has none."""
    manager = manager_with_sessions()
    url = serve(manager)

    def forms(session: str) -> list[str]:
        tags, _ = read(ask(url, f"/sessions/{session}"))
        return [each["action"].rpartition("/")[2] for tag, each in tags if tag == "form" and each["method"] == "post"]

    assert forms("failed") == ["retry", "delete"]
    assert forms("finished") == ["delete"]
    assert forms("cancelled") == ["resume", "delete"]
    assert forms("running") == ["pause", "cancel", "delete"]
    for name, action in (("failed", "retry"), ("cancelled", "resume")):
        assert ask(url, f"/sessions/{name}/{action}", method="POST", Origin=url).status == 303
        assert manager.session(name).status == "RUNNING"


def test_forms_that_are_too_large_or_damaged_are_refused(serve: Any) -> None:
    """They are refused with 413 and 400, and the session goes on."""
    manager = manager_with_sessions()
    url = serve(manager)

    assert ask(url, "/sessions/running/cancel", method="POST", body=b"reason=" + b"x" * 2_000_000).status == 413
    assert ask(url, "/sessions/running/cancel", method="POST", body=b"\xff\xfe").status == 400
    assert manager.session("running").status == "RUNNING"


@pytest.mark.slow
def test_pages_need_the_token_and_static_files_do_not(serve: Any) -> None:
    """Pages and their JSON are refused without the token; the login page needs the style sheet."""
    url = serve(manager_with_sessions(), token="secret-token")

    for path in (*PAGES, "/overview.json", "/sessions/failed.json", "/sessions/finished/pictures/fan_r_0"):
        assert ask(url, path, Accept="application/json").status == 401
        assert ask(url, path, Authorization="Bearer secret-token").status in (200, 400)
    assert ask(url, "/static/dropflow.css").status == 200


def test_static_files_are_revalidated(serve: Any) -> None:
    """A browser that has the present file gets 304 and no bytes."""
    url = serve(FakeManager())
    first = ask(url, "/static/session.js")
    second = ask(url, "/static/session.js", If_None_Match=first.headers["etag"])

    assert first.headers["content-type"].startswith("text/javascript")
    assert first.headers["cache-control"] == "no-cache"
    assert (second.status, second.body) == (304, b"")


def test_sessions_are_filtered_and_paged(serve: Any) -> None:
    """The list is filtered by status and by part of a name."""
    manager = manager_with_sessions()

    assert [session.session for session in sessions_view(manager, SessionQuery(text="FIN")).sessions] == ["finished"]
    assert [session.session for session in sessions_view(manager, SessionQuery(status="failed")).sessions] == ["failed"]
    page = sessions_view(manager, SessionQuery(offset=1, limit=2))
    assert ([session.session for session in page.sessions], page.total) == (["failed", "finished"], 4)
    assert 'href="./sessions?offset=1&amp;limit=1"' in ask(serve(manager), "/sessions?limit=1").text


def test_sessions_show_their_users(serve: Any) -> None:
    """The list tells whose a session is; those of the administrator have no user."""
    manager = manager_with_sessions()
    manager.add(fan(2), "hers", user="alice")

    assert ask(serve(manager), "/sessions").text.count("by <bdi>") == 1
    assert "by <bdi>alice</bdi>" in ask(serve(manager), "/sessions").text


def test_graphs_are_run_from_the_form_of_the_translator() -> None:
    """A new graph, or that of a session, at the front door; without a translator the error tells how to start one."""
    known = [
        ServerAddress("translator", "translator", "http://127.0.0.1:8084"),
        ServerAddress("master", "master", "http://127.0.0.1:8002"),
    ]
    manager, servers = manager_with_sessions(), KnownServers(role=lambda: "node", neighbours=lambda: known)
    there = hop_url("http://127.0.0.1:8084", "/like?manager=http%3A%2F%2F127.0.0.1%3A8002&session=a+b")
    for path, expected in (
        ({"session": "a b"}, there),
        ({}, there.replace("like", "").replace("%26session%3Da%2Bb", "")),
    ):
        call = Request(path=path, query=None, body=b"", headers={})
        (page,) = {dict(route.handler(call).headers)["Location"] for route in launch_routes(manager, servers)}
        assert page == expected
        with pytest.raises(ConflictError, match="no translator of this cluster is known here"):
            launch_routes(manager, KnownServers())[0].handler(call)


def test_the_report_of_a_session_is_a_file(serve: Any) -> None:
    """It is downloaded, not shown, as its style is not that of pages; a session that is unknown has none."""
    url = serve(manager_with_sessions())
    reply = ask(url, "/sessions/failed/report.html")

    assert (reply.status, reply.headers["content-disposition"]) == (200, 'attachment; filename="failed-report.html"')
    assert "no value 1" in reply.text
    assert "report.html" in ask(url, "/sessions/failed").text
    assert ask(url, "/sessions/none/report.html").status == 404


def _asked(manager: FakeManager) -> list[RetryRequest]:
    """Return a list that gets each request to run drops again."""
    requests: list[RetryRequest] = []
    retry = manager.retry
    manager.retry = lambda name, request: (requests.append(request), retry(name, request))[1]  # type: ignore[method-assign]
    return requests


def _post(url: str, session: str, **form: str) -> int:
    """Return the status of the answer to a form that runs drops again."""
    posted = {"method": "POST", "Content_Type": "application/x-www-form-urlencoded"}
    return ask(url, f"/sessions/{session}/retry", body=urlencode(form).encode(), **posted).status


@pytest.mark.parametrize("query", ["names?drops=", "drawing?open=", "drawing?closed=1,"])
def test_a_row_that_no_graph_has_is_refused(serve: Any, query: str) -> None:
    """A number of thousands of digits is an error of the request, and not of the server."""
    url = serve(manager_with_sessions())

    assert ask(url, f"/sessions/finished/graph/{query}3,2,,").status == 200
    assert ask(url, f"/sessions/finished/graph/{query}{'9' * 3900}").status == 400
    assert ask(url, f"/sessions/finished/graph/names?drops={'9' * 5000}").status == 400


def test_a_failed_drop_is_tried_again_from_its_page(serve: Any) -> None:
    """Only its root cause is tried; drops that did not fail have no such form."""
    manager = manager_with_sessions()
    requests, url = _asked(manager), serve(manager)

    assert 'name="drop" value="fan_a_0-0"' in ask(url, "/sessions/failed/drops/fan_a_0-0").text
    assert 'name="drop"' not in ask(url, "/sessions/finished/drops/fan_d_0-0").text
    assert _post(url, "failed", drop="none") == 404
    assert _post(url, "failed", drop="fan_a_0-0") == 303
    assert [request.drops for request in requests[1:]] == [("fan_a_0-0",)]


def test_a_session_is_run_again_from_the_page_of_a_drop(serve: Any) -> None:
    """A drop from which that is not possible has no form: its session runs, it has not run, or another drop failed."""
    manager = manager_with_sessions()
    url = serve(manager)

    def is_offered(session: str, oid: str) -> bool:
        return f'name="start" value="{oid}"' in ask(url, f"/sessions/{session}/drops/{oid}").text

    assert is_offered("finished", "fan_a_0-0")
    assert is_offered("failed", "fan_a_0-0")
    assert not is_offered("running", "fan_a_0-0")
    assert not is_offered("failed", "fan_d_0-0")
    assert not is_offered("cancelled", "fan_d_0-9")
    assert _post(url, "running", start="fan_a_0-0") == 409
    assert _post(url, "finished", start="fan_a_0-0") == 303
    assert manager.session("finished").status == "RUNNING"
    assert manager.session("finished").states["INITIALIZED"] == 2


def test_parameters_are_changed_where_a_session_runs_again(serve: Any) -> None:
    """The form has all parameters of the drop with their values, code too; those that differ are sent.

    Browsers post lines with endings of their own: that is no difference, whatever endings the graph has.
    """
    manager = manager_with_sessions()
    detail = manager.drop("finished", "fan_a_0-0")
    parameters = {"depth": "3", "func_code": "def f():\n    return 1\n", "same": "\nx\n", "of_windows": "a\r\nb\rc\n"}
    manager.drop = lambda *_: msgspec.structs.replace(detail, parameters=parameters)  # type: ignore[method-assign]
    requests, url = _asked(manager), serve(manager)
    page = ask(url, "/sessions/finished/drops/fan_a_0-0").text
    assert '<input type="text" name="value-depth" value="3"' in page
    assert "def f():\n    return 1\n</textarea>" in page
    form = {"value-depth": "4", "value-func_code": "def f():\r\n    return 2\r\n", "value-same": "\r\nx\r\n"}
    form["value-of_windows"] = "a\r\nb\r\nc\r\n"

    assert _post(url, "finished", start="fan_a_0-0", **form) == 303
    assert [request.settings for request in requests] == [("depth=4", "func_code=def f():\n    return 2\n")]

    parameters |= {f"p{number}": "1" for number in range(300)}
    form |= {f"value-p{number}": "2" for number in range(300)}
    assert _post(url, "finished", start="fan_a_0-0", **form) in (303, 409)
    assert len(requests[-1].settings) == 302


@pytest.mark.parametrize(
    ("name", "oid", "label"),
    [
        ("Measure", "graph_key_0-3", "Measure 3"),
        ("Measure", "graph_key_0-3-1", "Measure 3-1"),
        ("Mean", "graph_key_0", "Mean"),
        ("Mean", "of-another-program", "Mean"),
        ("", "of-another-program", "of-another-program"),
    ],
)
def test_drops_have_names_for_people(name: str, oid: str, label: str) -> None:
    """The name of the logical node, and the indices if there are several."""
    assert drop_label(name, oid) == label
