"""The paths of dropflow's own API, on a fake manager."""

import gzip
import json
import re
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dropflow.api import operations
from dropflow.api.auth import AccessRules, cookie_value
from dropflow.api.client import Client
from dropflow.api.contents_answer import attachment, file_name
from dropflow.api.drop_records import DropQuery
from dropflow.api.event_stream import ServerSentEvent, format_event, heartbeat, read_events
from dropflow.api.openapi import openapi_document
from dropflow.api.requests import WatchQuery
from dropflow.api.routes import Limits, StreamSlots
from dropflow.api.serving import RestServer
from dropflow.api.session_records import FailureInfo, LogicalNodeInfo, SessionDetail, apply_change, change_between
from dropflow.api.waitress_server import ConnectionLimits
from dropflow.errors import HttpError, LinkError
from dropflow.states import DropState
from dropflow.web.sign_in import login_routes
from dropflow.web.tickets import TICKET
from managers.deployment import Deployment, pack
from managers.manager_server import manager_routes
from managers.probing import Prober
from managers.routes.daliuge import daliuge_routes
from managers.routes.handlers import api_v1_routes
from managers.routes.metrics import metrics_routes
from managers.routes.session_events import session_events
from tests.fake_manager import FakeManager, manager_with_sessions
from tests.http_server import ReceivedResponse, ask, serve
from tests.lazy_module import LazyModule
from tests.regular_graphs import fan
from tests.virtual_clock import VirtualClock

schemathesis = LazyModule("schemathesis")
openapi_checks = LazyModule("schemathesis.specs.openapi.checks")

_NAMES = sorted(DropState.__members__)


@pytest.fixture
def manager() -> FakeManager:
    """An island with four sessions."""
    return manager_with_sessions(role="island", nodes=("n1", "n2"))


@pytest.fixture
def server(manager: FakeManager) -> Iterator[RestServer]:
    """The manager, behind a server without a token."""
    streams = StreamSlots(4)
    limits = Limits(body=1000, graph=100_000, depth=20, streams=4)
    prober = Prober("i", None, connect=_no_client, resolve=_no_host)
    routes = api_v1_routes(manager, streams, limits=limits, probe=prober.probe)
    with serve(routes, streams=streams, limits=limits) as server_:
        yield server_


def _no_client(url: str, seconds: float) -> Client:
    """Raise, because the tests call no other manager."""
    del seconds
    raise LinkError("there is no host of that name", where=url)


def _no_host(host: str) -> str:
    raise LinkError(f"there is no host {host!r}")


def _document(server: RestServer) -> dict[str, Any]:
    document: dict[str, Any] = ask(server.url, "GET", "/openapi.json").json
    return document


@pytest.mark.slow
def test_every_route_is_described(server: RestServer, manager: FakeManager) -> None:
    """The document has each path and method of the table, and valid schemas."""
    routes = api_v1_routes(manager, StreamSlots(1))
    described = _document(server)

    assert {(path, method) for path, row in described["paths"].items() for method in row} == {
        (route.path, route.method.lower()) for route in routes
    }
    for schema in described["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_operation_ids_are_unique(server: RestServer) -> None:
    """Generated clients need unique operation ids."""
    names = [operation["operationId"] for row in _document(server)["paths"].values() for operation in row.values()]

    assert sorted(names) == sorted(set(names))


_TABLE = openapi_document(api_v1_routes(FakeManager(), StreamSlots(1)), title="dropflow", version="0")
_OPERATIONS = [(path, method) for path, methods in _TABLE["paths"].items() for method in methods]


@cache
def _schema() -> Any:
    """Return the document as schemathesis reads it."""

    @schemathesis.serializer("application/vnd.dropflow.graph", "application/vnd.dropflow.deployment")
    def as_it_is(_: Any, value: Any) -> dict[str, Any]:
        """Return the bytes of a generated graph or deployment."""
        return {"data": value if isinstance(value, bytes) else repr(value).encode()}

    return schemathesis.openapi.from_dict(_TABLE)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), _OPERATIONS)
def test_no_request_breaks_the_server(path: str, method: str, server: RestServer) -> None:
    """Every request that schemathesis generates has an answer that the document describes."""
    checks = [
        schemathesis.checks.not_a_server_error,
        openapi_checks.status_code_conformance,
        openapi_checks.response_schema_conformance,
    ]

    # Of a hundred in `make exhaustive` that are 20, in `make test` 3: each is a request to the server.
    @settings(
        max_examples=20 if settings.default.max_examples >= 100 else 3,
        suppress_health_check=list(HealthCheck),
        deadline=None,
        database=None,
    )
    @given(case=_schema()[path][method].as_strategy())
    def run(case: Any) -> None:
        if case.query and "seconds" in case.query:
            case.query["seconds"] = 0.01
        response = case.call(base_url=server.url, timeout=60, headers={"Authorization": "Bearer any"})
        case.validate_response(response, checks=checks)
        assert response.status_code < 500 or response.status_code == 503

    run()


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("GET", "/api/v1/sessions/nope", b"", 404),
        ("GET", "/api/v1/sessions/running/drops?limit=1001", b"", 400),
        ("GET", "/api/v1/sessions/running/drops?state=NONE", b"", 400),
        ("GET", "/api/v1/sessions/running/drops/fan_r_0/log", b"", 404),
        ("GET", "/api/v1/sessions/running?seconds=301", b"", 400),
        ("GET", "/api/v1/sessions/running?seconds=nan", b"", 400),
        ("GET", "/api/v1/sessions/%00", b"", 400),
        ("POST", "/api/v1/sessions", b"", 400),
        ("POST", "/api/v1/sessions?session=a%2Fb", b"[]", 400),
        ("POST", "/api/v1/sessions", b"[1]", 422),
        ("POST", "/api/v1/sessions", b"\x1f\x8bnonsense", 400),
        ("POST", "/api/v1/sessions", b"x" * 100_001, 413),
        ("POST", "/api/v1/sessions", b"[" * 21, 400),
        ("POST", "/api/v1/sessions", gzip.compress(b"[" * 21, mtime=0), 400),
        ("POST", "/api/v1/sessions/running/cancel", b'{"reason": ' + b"[" * 20, 400),
        ("POST", "/api/v1/children", b" " * 1001, 413),
        ("PUT", "/api/v1/sessions/s/deployment", b"nonsense", 400),
        ("PUT", "/api/v1/sessions/s/deployment", b"x" * 2000, 400),
        ("PUT", "/api/v1/sessions/s/deployment", b"x" * 100_001, 413),
        ("PUT", "/api/v1/sessions/s/deployment?seconds=0", b"", 400),
        ("POST", "/api/v1/sessions/s/start", b'{"epoch": "x"}', 400),
        ("POST", "/api/v1/sessions/s/start", b'{"epoch": 1}', 404),
        ("DELETE", "/api/v1/children", b"", 400),
        ("POST", "/api/v1/probe", b'{"addresses": []}', 400),
        ("POST", "/api/v1/probe", b'{"addresses": ["tcp://a:1"], "seconds": 11}', 400),
        ("POST", "/api/v1/probe", b'{"addresses": ["tcp://a:1"], "more": 1}', 400),
        ("POST", "/api/v1/probe", b'{"addresses": ["file:///etc/passwd"]}', 400),
        ("POST", "/api/v1/probe", b'{"addresses": ["http://user:word@host:1"]}', 400),
        ("POST", "/api/v1/probe", b'{"addresses": ["http://host:1/?query"]}', 400),
        ("POST", "/api/v1/probe", b'{"addresses": [' + b'"tcp://a:1",' * 32 + b'"tcp://a:1"]}', 400),
        ("GET", "/api/v1/sessions/running/graph?format=xml", b"", 400),
        ("GET", "/api/v2/sessions", b"", 404),
        ("PATCH", "/api/v1/sessions", b"", 405),
    ],
)
def test_errors_have_statuses(server: RestServer, method: str, target: str, body: bytes, status: int) -> None:
    """Each error has its status and a body with a text."""
    reply = ask(server.url, method, target, body=body)

    assert (reply.status, reply.json["ok"]) == (status, False)
    assert reply.json["error"]["text"]


@pytest.mark.parametrize(
    ("target", "words", "hint"),
    [
        ("POST /api/v1/sessions?session=a/b", "'session' cannot be 'a/b'", "without slashes"),
        ("POST /api/v1/sessions?session=con%0A", r"'session' cannot be 'con\n'", "without slashes"),
        ("GET /api/v1/sessions/s/log?seconds=9999", "'seconds': expected a number <= 60.0", ""),
        ("GET /api/v1/sessions/s/log?after=x", "'after' cannot be 'x'", "NODE:NUMBER"),
        ("GET /api/v1/sessions/s/log?colour=red", "Object contains unknown field `colour`", ""),
    ],
)
def test_a_query_that_cannot_be_used_is_refused_in_words(
    server: RestServer, target: str, words: str, hint: str
) -> None:
    """The answer names the field, and says what it may be; no pattern, and no notation of JSON."""
    method, _, address = target.partition(" ")
    reply = ask(server.url, method, address)

    assert (reply.status, reply.json["error"]["text"]) == (400, f"the query cannot be used: {words}")
    assert hint in reply.json["error"].get("hint", "")


@given(st.text(min_size=1, max_size=100))
def test_names_of_downloads_are_safe(name: str) -> None:
    """For any name the header is one line, and the client's file name is one path segment."""
    _, header = attachment(name)
    offered = file_name(header)

    assert header.isascii()
    assert header.isprintable()
    assert offered
    assert "/" not in offered
    assert not offered.startswith(".")


def test_the_graph_is_downloaded_in_two_formats(server: RestServer) -> None:
    """It is downloaded as a .dfg file and as DALiuGE's JSON."""
    ours, theirs = (ask(server.url, "GET", f"/api/v1/sessions/running/graph?format={form}") for form in ("dfg", "json"))

    assert 'filename="running.dfg"' in ours.headers["Content-Disposition"]
    assert len([drop for drop in theirs.json if "oid" in drop]) == 41


_STATES = st.dictionaries(st.sampled_from(_NAMES), st.integers(0, 9), max_size=3)


@st.composite
def _details(draw: st.DrawFn, keys: tuple[str, ...] = ("a", "b", "c")) -> SessionDetail:
    logical = tuple(
        LogicalNodeInfo(key=key, name=key, category="", is_app=True, artificial=False, drops=9, states=draw(_STATES))
        for key in keys
    )
    failure = st.sampled_from("xyz").map(
        lambda drop: FailureInfo(drop=drop, name="n", node="n", code="DF105", kind="ValueError", text="t")
    )
    return SessionDetail(
        session="s",
        graph="g",
        status=draw(st.sampled_from(["RUNNING", "FAILED"])),
        version=draw(st.integers(0, 99)),
        settled=draw(st.integers(0, 3)),
        states=draw(_STATES),
        remaining=draw(st.none() | st.floats(0, 9)),
        logical=logical,
        failures=tuple(draw(st.lists(failure, max_size=2))),
        notes=tuple(draw(st.lists(st.sampled_from("uv"), max_size=2))),
    )


@pytest.mark.slow
@given(_details(), st.lists(_details(), max_size=4))
def test_changes_add_up_to_the_state(first: SessionDetail, later: list[SessionDetail]) -> None:
    """A client that applies each change to the state before it has the state after it."""
    state = known = first
    for after in later:
        change = change_between(known, after)
        assert change is not None
        state = apply_change(state, msgspec.json.decode(msgspec.json.encode(change)))
        known = after
        assert state == after


@pytest.mark.slow
@given(_details(), _details(keys=("a", "c")))
def test_other_logical_nodes_need_the_whole_state(before: SessionDetail, after: SessionDetail) -> None:
    """There is no change between states with different logical nodes."""
    assert change_between(before, after) is None


def test_a_change_has_only_what_changed(manager: FakeManager) -> None:
    """When one drop changes, the change has its logical node and the counts."""
    before = manager.session("running")
    manager.advance("running", {8: "WRITING"})
    change = change_between(before, manager.session("running"))

    assert change is not None
    assert [node.key for node in change["logical"]] == ["a"]
    assert change.keys() == {"version", "running", "counts", "states", "logical"}


@given(
    st.lists(st.builds(ServerSentEvent, st.sampled_from(["session", "change"]), st.just("7"), st.binary(min_size=1))),
    st.integers(1, 40),
)
def test_events_are_read_from_chunks_of_any_size(events: list[ServerSentEvent], size: int) -> None:
    """Events and heartbeats may be split anywhere."""
    clean = [ServerSentEvent(event.name, event.id, event.data.replace(b"\n", b" ")) for event in events]
    wire = heartbeat().join([b"", *(format_event(event) for event in clean)])
    chunks = [wire[start : start + size] for start in range(0, len(wire), size)]

    assert list(read_events(chunks)) == clean


def _events(reply: ReceivedResponse) -> list[str]:
    return [event.name for event in read_events([reply.body])]


def test_a_session_that_is_over_is_sent_once(server: RestServer, manager: FakeManager) -> None:
    """The stream has the state and the end. A client with that version gets 204, so that browsers do not reconnect."""
    version = str(manager.session("finished").version)
    target = "/api/v1/sessions/finished/events"

    assert _events(ask(server.url, "GET", target)) == ["session", "end"]
    assert ask(server.url, "GET", target, headers={"Last-Event-ID": version}).status == 204
    assert _events(ask(server.url, "GET", target, headers={"Last-Event-ID": "1"})) == ["session", "end"]


@pytest.mark.slow
def test_a_client_that_reconnects_gets_only_changes(manager: FakeManager) -> None:
    """A client that has the current version does not get the whole state again."""
    version = str(manager.session("running").version)
    chunks = session_events(manager, "running", threading.Event(), last=version)
    assert chunks is not None
    assert next(chunks) == heartbeat()
    manager.complete("running")

    assert [event.name for event in read_events(chunks)] == ["change", "end"]


@pytest.mark.slow
def test_a_session_that_is_deleted_ends_its_events(manager: FakeManager) -> None:
    """The last event of a deleted session is `gone`."""
    chunks = session_events(manager, "running", threading.Event())
    assert chunks is not None
    next(chunks)
    manager.delete("running")

    assert [event.name for event in read_events(chunks)] == ["gone"]


@pytest.mark.slow
def test_a_failed_watch_is_reported_and_tried_again(manager: FakeManager) -> None:
    """The error of the manager is an event, and later changes arrive."""
    chunks = session_events(manager, "running", threading.Event())
    assert chunks is not None
    next(chunks)
    manager.refuse("watch", LinkError("n2 does not answer"))
    (trouble,) = read_events([next(chunks)])
    manager.allow("watch")
    manager.complete("running")

    assert (trouble.name, b"n2 does not answer" in trouble.data) == ("trouble", True)
    assert [event.name for event in read_events(chunks)] == ["change", "end"]


@pytest.mark.slow
def test_a_request_waits_for_the_end_of_a_session(manager: FakeManager) -> None:
    """With `over`, changes before the end are no answer; after the time, the session is answered as it is."""
    with serve(api_v1_routes(manager, StreamSlots(1))) as server, Client(server.url) as client:
        running = client.call(operations.SESSION, session="running", query=WatchQuery(over=True, seconds=0.01))
        assert running.status == "RUNNING"

        def change() -> None:
            manager.advance("running", {0: "COMPLETED"})
            manager.complete("running")

        timer = threading.Timer(0.01, change)
        timer.start()
        over = client.call(operations.SESSION, session="running", query=WatchQuery(over=True, seconds=30))
        timer.join()

    assert over.status == "FINISHED"


@pytest.mark.slow
def test_a_client_that_disconnects_frees_its_slot(manager: FakeManager) -> None:
    """Its slot becomes free although the session does not change."""
    streams = StreamSlots(1)
    with serve(api_v1_routes(manager, streams), streams=streams) as server:
        with Client(server.url) as client:
            updates = client.events("running")
            next(updates)
            with pytest.raises(HttpError, match="too many long polls"):
                client.watch("running", version=99, seconds=1)
            updates.close()  # type: ignore[attr-defined] # it is a generator
        for _ in range(3000):
            try:
                with streams.slot():
                    break
            except HttpError:
                threading.Event().wait(0.02)
        else:
            pytest.fail("the slot did not become free")


class _UnchangingManager(FakeManager):
    """A manager whose sessions do not change, and whose clock advances at each call of `watch`."""

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """Advance the clock by twenty seconds."""
        del version, seconds
        self.clock_of_watch.advance(20.0)
        return self.session(session)

    clock_of_watch = VirtualClock()


@pytest.mark.slow
def test_idle_streams_have_heartbeats() -> None:
    """While nothing changes, the stream has heartbeats, so that both ends notice a lost connection."""
    manager = _UnchangingManager()
    manager.add(fan(20), "s")
    chunks = session_events(manager, "s", threading.Event(), clock=manager.clock_of_watch)
    assert chunks is not None
    next(chunks)

    assert [next(chunks), next(chunks)] == [heartbeat(), heartbeat()]


def test_a_deployment_goes_to_its_own_session_only(server: RestServer) -> None:
    """The names in the path and in the body must be equal, and the graph within the limit."""
    for name, drops, status in (("other", 1, 400), ("s", 10**9, 413)):
        deployment = Deployment(session="s", epoch=1, graph="g", drops=drops, created=0.0, places=())
        target = f"/api/v1/sessions/{name}/deployment"
        assert ask(server.url, "PUT", target, body=pack(deployment)).status == status


# The metrics for Prometheus.


_DASHBOARD = Path(__file__).resolve().parents[3] / "examples" / "grafana.json"


def _samples(manager: FakeManager) -> dict[tuple[str, str], float]:
    """Return the value of each sample, by its name and the values of its labels."""
    with serve(metrics_routes(manager)) as server:
        text = ask(server.url, "GET", "/metrics").body.decode()
    families = text_string_to_metric_families(text)
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_only_grows_is_a_counter() -> None:
    """Its name has the ending that Prometheus demands. What can fall is a gauge, also drops that ran again."""
    with serve(metrics_routes(manager_with_sessions(nodes=("n1",)))) as server:
        text = ask(server.url, "GET", "/metrics").body.decode()

    counters = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE") and line.endswith("counter")}
    assert counters == {"dropflow_node_received_bytes_total"}


def test_sessions_drops_and_nodes_are_counted() -> None:
    """They are counted by status and state. States without members are 0, so that the series are always the same."""
    samples = _samples(manager_with_sessions(nodes=("n1", "n2")))

    assert samples["dropflow_sessions", "running"] == samples["dropflow_sessions", "failed"] == 1
    assert samples["dropflow_sessions", "deploying"] == 0
    assert samples["dropflow_drops", "error"] == 4
    assert samples["dropflow_attempts_running", ""] == 2
    assert (samples["dropflow_nodes", "alive"], samples["dropflow_nodes", "lost"]) == (2, 0)
    assert samples["dropflow_node_processor_ratio", "n1"] == 0.375
    # Two nodes on one host share its processors.
    assert [value for (name, _), value in samples.items() if name == "dropflow_host_cores"] == [2]


def test_a_scrape_shows_the_present_state() -> None:
    """Nothing is kept between scrapes or shared between managers."""
    manager = manager_with_sessions()
    before = _samples(manager)["dropflow_drops", "completed"]
    manager.advance("running", {8: "COMPLETED"})

    assert _samples(manager)["dropflow_drops", "completed"] == before + 1
    assert _samples(FakeManager())["dropflow_drops", "completed"] == 0


def test_names_are_escaped() -> None:
    """The name of a node cannot add lines."""
    samples = _samples(FakeManager(nodes=('n"\n1',)))

    assert ("dropflow_node_cores", 'n"\n1') in samples


def test_metrics_need_the_token() -> None:
    """They contain the names of nodes."""
    with serve(metrics_routes(manager_with_sessions()), access=AccessRules(token="t")) as server:
        assert ask(server.url, "GET", "/metrics").status == 401
        assert ask(server.url, "GET", "/metrics", headers={"Authorization": "Bearer t"}).status == 200


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    """Each expression of the Grafana dashboard names metrics, labels and values of labels that `/metrics` has."""
    with serve(metrics_routes(manager_with_sessions(nodes=("n1",)))) as server:
        text = ask(server.url, "GET", "/metrics").body.decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    labels = {sample.name: {*sample.labels} for sample in samples}
    values = {(sample.name, *pair) for sample in samples for pair in sample.labels.items()}
    panels = json.loads(_DASHBOARD.read_text(encoding="utf-8"))["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    selectors = [
        selector for expression in expressions for selector in re.findall(r"(dropflow_\w+)\{([^}]*)\}", expression)
    ]

    assert {name for name, _ in selectors} <= set(labels)
    for name, rules in selectors:
        for label, wanted in re.findall(r'(\w+)=~?"([^"$]+)"', rules):
            assert {(name, label, value) for value in wanted.split("|")} <= values
    for expression in expressions:
        for label in re.findall(r"by \((\w+)\)", expression):
            assert all(label in labels[name] for name in re.findall(r"dropflow_\w+", expression))


# GET changes nothing, with any path, query and headers.


_TOKEN = "a-token"
_CHANGES = (
    "submit",
    "prepare",
    "start",
    "undo",
    "cancel",
    "pause",
    "unpause",
    "cancel_drop",
    "delete",
    "add_child",
    "remove_child",
)
_QUERY = "?sessionId=failed&session=x&anew=true&url=http://127.0.0.1:1&_method=DELETE&action=delete&dlg_mgr_deploy=1"


class _RecordingManager:
    """A manager that records which of its methods are called."""

    def __init__(self, manager: FakeManager) -> None:
        self._manager = manager
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self._manager, name)


@pytest.mark.slow
@pytest.mark.parametrize("query", ["", _QUERY])
def test_nothing_is_changed_by_get(query: str) -> None:
    """Every route that GET reaches is called with the token and with the cookie, and changes nothing."""
    recording, stopped, streams, access = (
        _RecordingManager(manager_with_sessions()),
        [],
        StreamSlots(4),
        AccessRules(token=_TOKEN),
    )
    manager: Any = recording
    routes = manager_routes(manager, streams, access, stop=lambda: stopped.append(True), limits=Limits(streams=4))
    paths = [route.path for route in routes if route.method == "GET" and not route.path.endswith("/events")]
    drop = manager_with_sessions().drops("failed", DropQuery(limit=1)).drops[0].oid
    with serve(routes, access=access, streams=streams) as server:
        for path in paths:
            target = re.sub(r"\{(\w+)\}", lambda name: {"session": "failed", "drop": drop}.get(name[1], "x"), path)
            for headers in ({"Authorization": f"Bearer {_TOKEN}"}, {"Cookie": f"dropflow={cookie_value(_TOKEN)}"}):
                status = ask(server.url, "GET", target + query, headers=headers | {"Accept": "text/html"}).status
                assert status not in ({401, 500} if path == "/hop" else {401, 403, 500}), path  # to no known server

    assert len(paths) > 50
    assert recording.called.isdisjoint(_CHANGES)
    assert stopped == []


# The page of the REST interface is complete.


_PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "rest.md").read_text(encoding="utf-8")
_OWN, _, _DALIUGE = _PAGE.partition("\n## DALiuGE's paths")
_ROW = re.compile(r"^\| ([A-Z, ]+) \| `(/[^`]*)`", re.MULTILINE)
_PATH = re.compile(r"`(/[^`]*)`")


def _daliuge_paths() -> Iterator[str]:
    """Yield DALiuGE's paths on the page, where those below a path are short."""
    for above, _, below in (line.partition(" and below it ") for line in _DALIUGE.splitlines()):
        yield from (paths := _PATH.findall(above))
        yield from (paths[-1] + path for path in _PATH.findall(below))


def test_every_path_is_documented_and_every_documented_path_is_served() -> None:
    """The page has all methods and paths that are no operations of a manager, all of DALiuGE's paths, and no others."""
    manager = FakeManager()
    ours = [*api_v1_routes(manager, StreamSlots(1)), *metrics_routes(manager), *login_routes(AccessRules(token=None))]
    described = {operation.path for operation in (*operations.OPERATIONS, TICKET)}
    rows = {(method, path) for methods, path in _ROW.findall(_OWN) for method in methods.split(", ")}
    served = {(route.method, route.path) for route in ours if route.path not in described}

    assert rows == {(method, path) for method, path in served if not path.startswith("/login.")}
    assert set(_daliuge_paths()) == {route.path for route in daliuge_routes(manager)}


def test_the_limits_are_those_of_the_page() -> None:
    """The page states the limits that a server has."""
    limits = Limits()

    assert f"{limits.body // 2**20} MB" in _PAGE
    assert f"{limits.graph // 2**20} MB" in _PAGE
    assert f"{limits.depth} levels" in _PAGE
    assert f"{limits.drops // 10**6} million drops" in _PAGE
    assert f"{limits.streams} event streams" in _PAGE
    assert f"{limits.together // 2**20} MB of memory together" in _PAGE


def test_the_connection_limits_are_those_of_the_page() -> None:
    """The page states the number of connections and their time limits."""
    limits, page = ConnectionLimits(), " ".join(_PAGE.split())

    assert f"{limits.most} connections, {limits.per_address} of them from one address" in page
    assert f"the head of a request takes {limits.head:g} seconds" in page
    assert f"transferred for {limits.still:g} seconds" in page
    assert f"without a credential takes {limits.body:g} seconds" in page
    assert f"{limits.kept:g} seconds after the last answer" in page
