"""DALiuGE's paths, called over HTTP and by DALiuGE's own client."""

import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from dropflow.api.auth import AccessRules
from dropflow.api.node_records import NodeInfo, Role
from dropflow.api.routes import Limits
from dropflow.api.serving import RestServer
from dropflow.errors import WorldError
from dropflow.graph.text_ids import oids
from managers.routes.daliuge import daliuge_routes
from managers.routes.daliuge_json import find_node
from managers.routes.daliuge_sessions import DaliugeSessions, session_name
from tests.fake_manager import FakeManager
from tests.http_server import ReceivedResponse, ask, serve
from tests.regular_graphs import fan

GRAPH = [
    {
        "oid": "A",
        "categoryType": "Data",
        "dropclass": "dlg.data.drops.memory.InMemoryDROP",
        "node": "h1",
        "island": "d1:8001",
        "consumers": ["B"],
    },
    {
        "oid": "B",
        "categoryType": "Application",
        "dropclass": "dlg.apps.simple.SleepAndCopyApp",
        "node": "h2:8000:5555:6666",
        "inputs": ["A"],
        "outputs": ["C"],
    },
    {
        "oid": "C",
        "categoryType": "Data",
        "dropclass": "dlg.data.drops.file.FileDROP",
        "node": "h2",
        "producers": ["B"],
    },
    {},
]
H1, H2 = "h1:8000:5555:5555", "h2:8000:5555:5555"
STATUS: dict[str, Any] = {
    "node": lambda status: status,
    "island": lambda status: {H1: status, H2: status},
    "master": lambda status: {"d1": {H1: status, H2: status}},
}


def _manager(role: Role) -> FakeManager:
    """Return a manager; an island or a master has two nodes."""
    manager = FakeManager(role=role, nodes=() if role == "node" else ("n1", "n2"))
    if role != "node":
        for number in (1, 2):
            node = NodeInfo(
                name=f"n{number}",
                url=f"http://h{number}:8000",
                links=f"tcp://h{number}:5555",
                island="d1" if role == "master" else "",
            )
            manager.set_node(node)
    return manager


class Served:
    """A manager and a server in front of it."""

    def __init__(self, manager: FakeManager, server: RestServer) -> None:
        self.manager = manager
        self.server = server

    def ask(self, method: str, target: str, body: object = None, **headers: str) -> ReceivedResponse:
        """Send one request; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return ask(self.server.url, method, target, body=data, headers=headers)

    def build(self, name: str) -> str:
        """Create a session with the graph above without deploying it, and return its path."""
        path = f"/api/sessions/{quote(name, safe='')}"
        assert self.ask("POST", "/api/sessions", {"sessionId": name}).json == {"sessionId": name}
        assert self.ask("POST", f"{path}/graph/append", GRAPH).json == {"Status": "Success"}
        return path


@pytest.fixture(params=["node", "island", "master"])
def role(request: pytest.FixtureRequest) -> Role:
    """Each role of a manager."""
    role_: Role = request.param
    return role_


@pytest.fixture
def served(role: Role) -> Iterator[Served]:
    """A manager of that role behind a server."""
    manager = _manager(role)
    with serve(daliuge_routes(manager), limits=Limits(body=100_000, streams=4)) as server:
        yield Served(manager, server)


@pytest.fixture
def node() -> Iterator[Served]:
    """A node manager behind a server."""
    manager = _manager("node")
    with serve(daliuge_routes(manager), limits=Limits(body=100_000, streams=4)) as server:
        yield Served(manager, server)


def test_a_session_is_built_deployed_watched_and_destroyed(served: Served, role: Role) -> None:
    """A session with a blank in its name is created, deployed, cancelled and destroyed, with DALiuGE's answers."""
    status = STATUS[role]
    path = served.build("x y")
    assert served.ask("GET", f"{path}/status").json == status(1)
    assert served.ask("GET", f"{path}/graph/size").json == 3
    assert set(served.ask("GET", path).json) == {"status", "graph", "dir"}

    deploy = served.ask("POST", f"{path}/deploy", b"completed=A")
    assert (deploy.status, deploy.json) == (200, {"Status": "Success"})
    assert served.ask("GET", "/api/sessions").json == [{"sessionId": "x y", "status": status(3), "size": 3}]
    served.manager.advance(session_name("x y"), {0: "COMPLETED", 1: "WRITING"})
    assert served.ask("GET", f"{path}/graph/status").json == {
        "A": {"status": 2},
        "B": {"execStatus": 1, "status": 0},
        "C": {"status": 0},
    }
    graph = served.ask("GET", f"{path}/graph").json
    assert (set(graph), graph["B"]["inputs"], graph["A"]["consumers"]) == ({"A", "B", "C"}, ["A"], ["B"])

    assert served.ask("POST", f"{path}/cancel").status == 200
    assert served.ask("GET", f"{path}/status").json == status(5)
    assert served.ask("DELETE", path).json == {"Status": "Success"}
    assert served.ask("GET", f"{path}/status").status == 404


def test_drops_go_to_the_nodes_that_the_graph_names(role: Role) -> None:
    """Nodes are named by host, with and without ports; a node manager takes all drops."""
    manager = _manager(role)
    with serve(daliuge_routes(manager)) as server:
        served = Served(manager, server)
        assert served.ask("POST", served.build("s") + "/deploy").status == 200
    nodes = {row.oid: row.node for row in (manager.drop("s", oid) for oid in "ABC")}

    assert role == "node" or nodes == {"A": "n1", "B": "n2", "C": "n2"}


def test_a_node_lists_its_own_drops(node: Served) -> None:
    """The graph of a session on several nodes has, on each of them, only the drops that are there."""
    graph = replace(fan(4), part=np.array([0, 0, 0, 0, 1], dtype=np.int32), places=("node-1", "n9"))
    node.manager.add(graph, "s")

    assert set(node.ask("GET", "/api/sessions/s/graph").json) == set(oids(graph, range(4)))


def test_the_records_of_reproducibility(served: Served, role: Role) -> None:
    """Each manager has digests of each drop and of the session in all modes, once the session has ended."""
    path = served.build("s")
    served.ask("POST", f"{path}/deploy")
    assert served.ask("GET", f"{path}/repro/status").json is False
    served.manager.complete("s")
    served.manager.write("s", 2, b"image")
    assert served.ask("GET", f"{path}/repro/status").json is True
    records = served.ask("GET", f"{path}/repro/data").json
    session = records["reprodata"]
    modes = {name: value["rmode"] for name, value in session.items() if name.startswith("RE")}

    assert modes == {
        "RERUN": "1",
        "REPEAT": "2",
        "RECOMPUTE": "4",
        "REPRODUCE": "5",
        "REPLICATE_SCI": "6",
        "REPLICATE_COMP": "7",
        "REPLICATE_TOTAL": "8",
    }
    without_versions = set(modes) - {"RECOMPUTE", "REPLICATE_COMP"}  # which this manager does not note
    assert {name for name in modes if session[name]["signature"]} == without_versions, role
    assert set(records["graph"]) == {"A", "B", "C"}
    for oid, drop in records["graph"].items():
        assert drop["oid"] == oid
        known = {name for name in modes if drop["reprodata"][name]["rg_blockhash"]}
        assert known == (without_versions if oid == "C" else {"RERUN", "REPEAT"})


@pytest.mark.parametrize("role", ["island", "master"])
def test_a_graph_with_unknown_nodes_is_refused(served: Served) -> None:
    """The hint lists the nodes, and the session can be destroyed."""
    path = served.build("s")
    unknown = {"oid": "X", "categoryType": "Data", "dropclass": "dlg.data.drops.memory.InMemoryDROP", "node": "h9"}
    assert served.ask("POST", f"{path}/graph/append", [unknown]).status == 200
    reply = served.ask("POST", f"{path}/deploy")

    assert (reply.status, reply.json["type"]) == (400, "InvalidGraphException")
    assert H1 in reply.json["error"]["hint"]
    assert served.ask("DELETE", path).status == 200


def test_the_same_errors_as_daliuge_with_the_right_statuses(node: Served) -> None:
    """Errors have status 404, 409, 400 or 501, DALiuGE's `type` and `args`, and our `error`."""
    path = node.build("s")
    for method, target, body, status, kind, arguments in (
        ("GET", "/api/sessions/nope", None, 404, "NoSessionException", ["nope"]),
        ("GET", "/api/sessions/nope/status", None, 404, "NoSessionException", ["nope"]),
        ("DELETE", "/api/sessions/nope", None, 404, "NoSessionException", ["nope"]),
        ("POST", "/api/sessions/nope/deploy", None, 404, "NoSessionException", ["nope"]),
        ("POST", "/api/sessions", {"sessionId": "s"}, 409, "SessionAlreadyExistsException", ["s"]),
        ("GET", f"{path}/graph/status", None, 400, "InvalidSessionState", None),
        ("POST", f"{path}/cancel", None, 400, "InvalidSessionState", None),
        ("POST", f"{path}/graph/append", GRAPH, 400, "InvalidGraphException", None),
        ("POST", f"{path}/deploy", b"completed=A,Z", 400, "InvalidGraphException", None),
        ("POST", "/api/sessions", {}, 400, "DaliugeException", None),
        ("POST", "/api/sessions", b"{", 400, "DaliugeException", None),
        ("POST", "/api/sessions", {"sessionId": 7}, 400, "DaliugeException", None),
        ("POST", "/api/sessions", {"sessionId": ""}, 400, "DaliugeException", None),
        ("POST", f"{path}/subscriptions", {}, 501, "NotImplementedError", None),
        ("GET", "/api/shutdown", None, 501, "NotImplementedError", None),
        ("GET", "/api/nodes", None, 404, "DaliugeException", None),
    ):
        reply = node.ask(method, target, body)
        assert (reply.status, reply.json["type"], reply.json["ok"]) == (status, kind, False), target
        assert arguments in (None, reply.json["args"])
        assert reply.json["error"]["text"]


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"{}", b"7", b"[7]", b"[[]]", b'["A"]', b'[{"oid": 7}]', b'[{"oid": "A"}]', b"[" * 5000, b"\xff"],
)
def test_a_body_that_is_not_a_list_of_drops_is_refused(node: Served, body: bytes) -> None:
    """It is refused with 400, and the session does not change."""
    node.ask("POST", "/api/sessions", {"sessionId": "s"})
    reply = node.ask("POST", "/api/sessions/s/graph/append", body)

    assert (reply.status, reply.json["type"]) == (400, "InvalidGraphException")
    assert node.ask("GET", "/api/sessions/s/status").json == 0


def test_the_depth_of_a_graph_is_limited(node: Served) -> None:
    """The error names the depth and the limit."""
    node.ask("POST", "/api/sessions", {"sessionId": "s"})
    for target, body in (
        ("/api/sessions/s/graph/append", b'[{"oid": "A", "type": "data", "x": ' + b"[" * 199 + b"]" * 199 + b"}]"),
        ("/api/sessions", b'{"sessionId": ' + b"[" * 200 + b"]" * 200 + b"}"),
    ):
        for sent, headers in ((body, {}), (zlib.compress(body), {"Content-Encoding": "gzip"})):
            reply = node.ask("POST", target, sent, **headers)
            assert reply.status == 400
            assert "nested 201 levels deep or more; this server takes 200" in reply.json["error"]["text"]


def test_a_bad_graph_is_refused_when_it_is_deployed(node: Served) -> None:
    """The error has all problems; the graph can be completed and deployed after that."""
    node.ask("POST", "/api/sessions", {"sessionId": "s"})
    node.ask("POST", "/api/sessions/s/graph/append", GRAPH[:1])
    refused = node.ask("POST", "/api/sessions/s/deploy")
    assert (refused.status, refused.json["type"]) == (400, "InvalidGraphException")
    assert refused.json["error"]["problems"][0]["code"] == "PG002"
    node.ask("POST", "/api/sessions/s/graph/append", GRAPH[1:])

    assert node.ask("POST", "/api/sessions/s/deploy").status == 200


def test_a_failed_deployment_can_be_repeated(node: Served) -> None:
    """The graph is kept while a node does not answer."""
    path = node.build("s")
    node.manager.refuse("submit", WorldError("n1 failed"))
    assert node.ask("POST", f"{path}/deploy").status == 503
    node.manager.allow("submit")

    assert node.ask("POST", f"{path}/deploy").status == 200
    assert node.ask("POST", f"{path}/deploy").status == 400


def test_an_empty_session_is_finished(node: Served) -> None:
    """A session without drops can be deployed, because DALiuGE deploys sessions to nodes without drops too."""
    node.ask("POST", "/api/sessions", {"sessionId": "s"})
    node.ask("POST", "/api/sessions/s/deploy")

    assert node.ask("GET", "/api/sessions/s/status").json == 4


@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress], ids=["zlib", "gzip"])
def test_compressed_graphs_are_read(node: Served, pack: Any) -> None:
    """Streams of zlib are accepted as gzip, because DALiuGE's client sends them so."""
    node.ask("POST", "/api/sessions", {"sessionId": "s"})
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    reply = ask(
        node.server.url,
        "POST",
        "/api/sessions/s/graph/append",
        body=pack(json.dumps(GRAPH).encode()),
        headers=headers,
    )

    assert reply.json == {"Status": "Success"}


def test_logs_and_data_of_a_drop(node: Served) -> None:
    """The table of the log is escaped, that of an unknown drop is empty, and the content is a download."""
    node.ask("POST", node.build("s") + "/deploy")
    node.manager.fail("s", 1, "<b>bold</b>")
    node.manager.write("s", 0, b"content")
    node.manager.advance("s", {0: "COMPLETED"})
    log = node.ask("GET", "/api/sessions/s/graph/drop/B").json

    assert (log["session"], log["oid"]) == ("s", "B")
    assert "&lt;b&gt;" in log["logs"][0]["Message"]
    assert node.ask("GET", "/api/sessions/s/graph/drop/nope").json["logs"] == []
    assert node.ask("GET", "/sessions/s/graph/drop/data/A").body == b"content"
    assert node.ask("GET", "/api/sessions/s/graph/drop/data/A").json == {"filepath": "results/A"}
    assert node.ask("GET", "/api/sessions/s/graph/drop/data/C").json == {"filepath": ""}
    assert node.ask("GET", "/sessions/s/graph/drop/B").headers["Location"] == "../../../../sessions/s/drops/B"
    assert node.ask("GET", "/session?sessionId=s&view=list").headers["Location"] == "./sessions/s"


@pytest.mark.parametrize("role", ["island", "master"])
def test_an_island_answers_for_each_of_its_nodes(served: Served) -> None:
    """The answer has the node's part of the graph and of the states."""
    served.ask("POST", served.build("s") + "/deploy")
    at = f"/api/node/{H2}/sessions"

    assert served.ask("GET", at).json == [{"sessionId": "s", "status": 3, "size": 3}]
    assert served.ask("GET", f"{at}/s/status").json == 3
    assert set(served.ask("GET", f"{at}/s/graph").json) == {"B", "C"}
    assert set(served.ask("GET", f"{at}/s/graph/status").json) == {"B", "C"}
    assert served.ask("GET", "/api/node/h9/sessions").status == 404


def test_nodes_are_found_beside_one_with_an_address_of_ipv6() -> None:
    """By name, or by host and port; a node whose address DALiuGE cannot spell does not hide the others."""
    nodes = [NodeInfo(name="six", url="http://[::1]:8000"), NodeInfo(name="four", url="http://host:8000")]

    assert [find_node(nodes, spelled) for spelled in ("six", "host", "Host:8000:5555", "host:9", "::1")] == [
        nodes[0], nodes[1], nodes[1], None, None,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "ünï", "-rf", "a" * 200, "%2F"])
def test_any_session_id_can_be_used(node: Served, name: str) -> None:
    """The name of the session in dropflow is a safe path segment."""
    path = node.build(name)
    assert node.ask("POST", f"{path}/deploy").status == 200
    (session,) = node.manager.sessions()

    assert "/" not in session.session
    assert not session.session.startswith((".", "-"))
    assert node.ask("GET", "/api/sessions").json[0]["sessionId"] == name
    assert node.ask("DELETE", path).status == 200


def test_the_names_of_deleted_sessions_are_forgotten() -> None:
    """Only drafts and sessions of the manager have one, so a manager that has had many does not grow."""
    manager = _manager("node")
    sessions = DaliugeSessions(manager, 100)
    for number in range(5):
        sessions.create(f"a/{number}")
        sessions.append(f"a/{number}", json.dumps(GRAPH).encode())
    for number in range(4):
        sessions.deploy(f"a/{number}", [])
    for number in range(3):
        manager.delete(session_name(f"a/{number}"))
    sessions.create("b/0")

    assert {session.name for session in sessions.all()} == {"a/3", "a/4", "b/0"}
    assert sorted(sessions._spelled.values()) == ["a/3", "a/4", "b/0"]


def test_a_manager_is_stopped_by_post() -> None:
    """A manager that cannot be stopped answers 501."""
    stopped: list[bool] = []
    with serve(daliuge_routes(_manager("node"), stop=lambda: stopped.append(True))) as server:
        assert ask(server.url, "GET", "/api/stop").status == 405
        assert ask(server.url, "POST", "/api/stop").json == {"Status": "Success"}
    with serve(daliuge_routes(_manager("node"))) as server:
        assert ask(server.url, "POST", "/api/stop").status == 501

    assert stopped == [True]


def test_the_origin_of_daliuges_client_is_refused_from_browsers() -> None:
    """Programs may send the origin that DALiuGE's client makes up."""
    with serve(daliuge_routes(_manager("node")), access=AccessRules(token=None)) as server:
        origin = {"Origin": "http://dlg-tm.localhost"}
        program, browser = (
            ask(server.url, "GET", "/api/sessions", headers=origin | more)
            for more in ({}, {"Sec-Fetch-Site": "cross-site"})
        )

    assert (program.status, browser.status) == (200, 403)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["node", "island", "master"])
def test_daliuges_own_client_works(served: Served, role: Role, daliuge: Path) -> None:
    """It creates, deploys, cancels and destroys a session, and raises its own exceptions."""
    status = STATUS[role]
    calls: list[tuple[list[object], object]] = [
        (["create_session", "x y"], None),
        (["create_session", "x y"], {"raised": "SessionAlreadyExistsException", "args": ["x y"]}),
        (["session_status", "x y"], status(0)),
        (["append_graph", "x y", GRAPH], None),
        (["graph_size", "x y"], 3),
        (["deploy_session", "x y", ["A"]], None),
        (["sessions"], [{"sessionId": "x y", "status": status(3), "size": 3}]),
        (
            ["graph_status", "x y"],
            {"A": {"status": 0}, "B": {"execStatus": 0, "status": 0}, "C": {"status": 0}},
        ),
        (["session_dir", "x y"], {"dir": ""}),
        (["cancelSession", "x y"], None),
        (["session_status", "x y"], status(5)),
        (["destroy_session", "x y"], None),
        (["session_status", "x y"], {"raised": "NoSessionException", "args": ["x y"]}),
        (["get_submission_method"], {"methods": ["SERVER"]}),
    ]
    if role != "node":
        calls += [
            (["nodes"], {"nodes": [H1, H2]} if role == "master" else [H1, H2]),
            (["add_node", "h3:8000"], None),
            (["remove_node", "h3:8000"], None),
        ]
    if role == "master":
        calls += [(["add_dim", "d2"], None), (["dims"], {"islands": ["d2:8001"]}), (["remove_dim", "d2"], None)]
    script = Path(__file__).with_name("daliuge_calls.py")
    done = subprocess.run(
        [sys.executable, str(script), role, str(served.server.port)],
        env={"PYTHONPATH": str(daliuge), "HOME": str(daliuge)},
        input=json.dumps([call for call, _ in calls]),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    for (call, expected), answer in zip(calls, json.loads(done.stdout), strict=True):
        assert answer == expected, call


def test_the_description_of_a_manager(served: Served, role: Role) -> None:
    """A node lists its sessions; islands and masters list their hosts too."""
    served.ask("POST", served.build("s") + "/deploy")
    description = served.ask("GET", "/api").json

    if role == "node":
        assert description == {"sessions": [{"sessionId": "s", "status": 3, "size": 3}]}
    else:
        assert description == {"hosts": [H1, H2], "sessionIds": ["s"]}
        assert served.ask("GET", "/api/past_sessions").json == []


def test_nodes_and_islands_are_added_and_removed(served: Served, role: Role) -> None:
    """Islands take nodes, masters both; DALiuGE's default ports are added to names without a port."""
    for kind, port, roles in (("node", 8000, ("island", "master")), ("island", 8001, ("master",))):
        allowed = role in roles
        assert served.ask("POST", f"/api/{kind}/h7").status == (200 if allowed else 404)
        urls = [child.url for child in served.manager.children()]
        assert (f"http://h7:{port}" in urls) is allowed
        assert served.ask("DELETE", f"/api/{kind}/h7").status == (200 if allowed else 404)
        assert served.manager.children() == ()
    if role == "master":
        assert served.ask("GET", "/api/islands").json == {"islands": []}
        assert served.ask("POST", "/api/node/h7:x").status == 400


def test_drafts_are_shown_and_deleted(served: Served) -> None:
    """The graph of a session can be read before the session is deployed."""
    path = served.build("s")

    assert set(served.ask("GET", f"{path}/graph").json) == {"A", "B", "C"}
    assert served.ask("GET", f"{path}/dir").json == {"dir": ""}
    assert served.ask("GET", "/api/sessions").json[0]["size"] == 3
    assert served.ask("DELETE", path).status == 200
    assert served.ask("GET", "/api/sessions").json == []


# DALiuGE's own client with real managers and real drops.


COPY = "dlg.apps.simple.CopyApp"
MEMORY = "dlg.data.drops.memory.InMemoryDROP"


def _graph(first: str, second: str) -> list[dict[str, Any]]:
    """Return a graph that copies a value from one node to another."""
    return [
        {"oid": "A", "categoryType": "Data", "dropclass": MEMORY, "node": first, "pydata": "41", "consumers": ["B"]},
        {
            "oid": "B",
            "categoryType": "Application",
            "dropclass": COPY,
            "node": second,
            "inputs": ["A"],
            "outputs": ["C"],
        },
        {"oid": "C", "categoryType": "Data", "dropclass": MEMORY, "node": second, "producers": ["B"]},
        {},
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A master, an island and two nodes on this host, without tokens."""
    place = tmp_path_factory.mktemp("cluster")
    command = [str(Path(sys.executable).with_name("dropflow")), "up", "--nodes", "2", "--no-auth", "--port", "0"]
    command += ["--root", str(place / "root"), "--workers", "1"]
    environment = {"HOME": str(place), "PATH": "/usr/bin:/bin"}
    with (place / "errors").open("w") as errors:
        up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        try:
            assert up.stdout is not None
            line = up.stdout.readline()
            assert line, (place / "errors").read_text()
            addresses: dict[str, Any] = json.loads(line)
            yield addresses
        finally:
            up.terminate()
            up.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["node", "island", "master"])
def test_a_session_of_daliuges_client_runs_to_its_end(cluster: dict[str, Any], daliuge: Path, kind: str) -> None:
    """Each role of manager runs a session; islands and masters run one with an edge between two nodes."""
    nodes = [url.partition("//")[2] for url in cluster["nodes"]]
    url = cluster["nodes"][0] if kind == "node" else cluster[kind]
    name = f"session of {kind}"
    calls: list[list[object]] = [
        ["create_session", name],
        ["append_graph", name, _graph(*nodes)],
        ["deploy_session", name, ["A"]],
        ["until", 4, "session_status", name],
        ["graph_status", name],
        ["destroy_session", name],
        ["sessions"],
    ]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("daliuge_calls.py")), kind, url.rpartition(":")[2]],
        input=json.dumps(calls),
        env={"PYTHONPATH": str(daliuge), "HOME": str(daliuge)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    created, appended, deployed, status, states, destroyed, left = json.loads(done.stdout)

    assert [created, appended, deployed, destroyed, left] == [None, None, None, None, []]
    assert status == 4
    assert states == {"A": {"status": 2}, "B": {"execStatus": 2, "status": 2}, "C": {"status": 2}}
