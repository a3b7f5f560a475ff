"""DALiuGE's paths, asked by bytes and by DALiuGE's own client."""

import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dropflow.errors import WorldError
from dropflow.rest.auth import AccessRules
from dropflow.rest.kit import Limits
from dropflow.rest.schema import NodeInfo, Role
from dropflow.rest.server import RestServer
from dropflow.testing.fake_manager import FakeManager
from dropflow.testing.serving import ReceivedResponse, ask, serve
from managers.routes.daliuge import daliuge_routes
from managers.routes.drafts import session_name

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
    """A manager with two nodes where it may have them."""
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
        """One request; a body that is not bytes goes as JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return ask(self.server.url, method, target, body=data, headers=headers)

    def build(self, name: str) -> str:
        """Create a session with the graph above, not deployed; answers its path."""
        path = f"/api/sessions/{quote(name, safe='')}"
        assert self.ask("POST", "/api/sessions", {"sessionId": name}).json == {"sessionId": name}
        assert self.ask("POST", f"{path}/graph/append", GRAPH).json == {"Status": "Success"}
        return path


@pytest.fixture(params=["node", "island", "master"])
def role(request: pytest.FixtureRequest) -> Role:
    """Each kind of manager."""
    found: Role = request.param
    return found


@pytest.fixture
def served(role: Role) -> Iterator[Served]:
    """A manager of that kind."""
    manager = _manager(role)
    with serve(daliuge_routes(manager), limits=Limits(body=100_000, streams=4)) as server:
        yield Served(manager, server)


@pytest.fixture
def node() -> Iterator[Served]:
    """A node manager."""
    manager = _manager("node")
    with serve(daliuge_routes(manager), limits=Limits(body=100_000, streams=4)) as server:
        yield Served(manager, server)


def test_a_session_is_built_deployed_watched_and_destroyed(served: Served, role: Role) -> None:
    """The whole life of a session with a blank in its name, in DALiuGE's shapes."""
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
    """By host and REST port, in any of DALiuGE's spellings; a node manager takes them all."""
    manager = _manager(role)
    with serve(daliuge_routes(manager)) as server:
        served = Served(manager, server)
        assert served.ask("POST", served.build("s") + "/deploy").status == 200
    nodes = {row.oid: row.node for row in (manager.drop("s", oid) for oid in "ABC")}

    assert role == "node" or nodes == {"A": "n1", "B": "n2", "C": "n2"}


@pytest.mark.parametrize("role", ["island", "master"])
def test_a_graph_of_foreign_nodes_is_refused(served: Served) -> None:
    """With the nodes that there are; the session can be built again."""
    path = served.build("s")
    stranger = {"oid": "X", "categoryType": "Data", "dropclass": "dlg.data.drops.memory.InMemoryDROP", "node": "h9"}
    assert served.ask("POST", f"{path}/graph/append", [stranger]).status == 200
    reply = served.ask("POST", f"{path}/deploy")

    assert (reply.status, reply.json["type"]) == (400, "InvalidGraphException")
    assert H1 in reply.json["error"]["hint"]
    assert served.ask("DELETE", path).status == 200


def test_the_same_errors_as_daliuge_with_the_right_statuses(node: Served) -> None:
    """404, 409 and 400, each with `type` and `args` and with our `error`."""
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
def test_what_is_no_list_of_drops_is_refused(node: Served, body: bytes) -> None:
    """With 400, and the session stays as it was."""
    node.ask("POST", "/api/sessions", {"sessionId": "s"})
    reply = node.ask("POST", "/api/sessions/s/graph/append", body)

    assert (reply.status, reply.json["type"]) == (400, "InvalidGraphException")
    assert node.ask("GET", "/api/sessions/s/status").json == 0


def test_the_depth_of_a_graph_has_a_limit(node: Served) -> None:
    """Whoever sends too deep a graph or name is told how deep it is, and what may be."""
    node.ask("POST", "/api/sessions", {"sessionId": "s"})
    for target, body in (
        ("/api/sessions/s/graph/append", b'[{"oid": "A", "type": "data", "x": ' + b"[" * 199 + b"]" * 199 + b"}]"),
        ("/api/sessions", b'{"sessionId": ' + b"[" * 200 + b"]" * 200 + b"}"),
    ):
        for sent, headers in ((body, {}), (zlib.compress(body), {"Content-Encoding": "gzip"})):
            reply = node.ask("POST", target, sent, **headers)
            assert reply.status == 400
            assert "nested 201 levels deep or more; this server takes 200" in reply.json["error"]["text"]


def test_a_graph_that_makes_no_sense_is_refused_when_it_is_deployed(node: Served) -> None:
    """All its problems at once; after that it can still be completed and deployed."""
    node.ask("POST", "/api/sessions", {"sessionId": "s"})
    node.ask("POST", "/api/sessions/s/graph/append", GRAPH[:1])
    refused = node.ask("POST", "/api/sessions/s/deploy")
    assert (refused.status, refused.json["type"]) == (400, "InvalidGraphException")
    assert refused.json["error"]["problems"][0]["code"] == "PG002"
    node.ask("POST", "/api/sessions/s/graph/append", GRAPH[1:])

    assert node.ask("POST", "/api/sessions/s/deploy").status == 200


def test_a_deployment_that_fails_below_can_be_tried_again(node: Served) -> None:
    """A node that is away for a while costs no graph."""
    path = node.build("s")
    node.manager.refuse("submit", WorldError("n1 failed"))
    assert node.ask("POST", f"{path}/deploy").status == 503
    node.manager.allow("submit")

    assert node.ask("POST", f"{path}/deploy").status == 200
    assert node.ask("POST", f"{path}/deploy").status == 400


def test_an_empty_session_is_finished_at_once(node: Served) -> None:
    """As in DALiuGE, where nodes without drops are deployed too."""
    node.ask("POST", "/api/sessions", {"sessionId": "s"})
    node.ask("POST", "/api/sessions/s/deploy")

    assert node.ask("GET", "/api/sessions/s/status").json == 4


@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress], ids=["zlib", "gzip"])
def test_graphs_come_compressed(node: Served, pack: Any) -> None:
    """DALiuGE's client sends zlib and calls it gzip."""
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
    """The table of the log is escaped; an unknown drop has an empty one; the content is a download."""
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
    assert node.ask("GET", "/sessions/s/graph/drop/B").headers["Location"] == "/sessions/s/drops/B"
    assert node.ask("GET", "/session?sessionId=s&view=list").headers["Location"] == "/sessions/s"


@pytest.mark.parametrize("role", ["island", "master"])
def test_one_node_is_asked_through_what_stands_above(served: Served) -> None:
    """Its own part of the graph and of the states."""
    served.ask("POST", served.build("s") + "/deploy")
    at = f"/api/node/{H2}/sessions"

    assert served.ask("GET", at).json == [{"sessionId": "s", "status": 3, "size": 3}]
    assert served.ask("GET", f"{at}/s/status").json == 3
    assert set(served.ask("GET", f"{at}/s/graph").json) == {"B", "C"}
    assert set(served.ask("GET", f"{at}/s/graph/status").json) == {"B", "C"}
    assert served.ask("GET", "/api/node/h9/sessions").status == 404


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "ünï", "-rf", "a" * 200, "%2F"])
def test_no_session_id_escapes(node: Served, name: str) -> None:
    """Any id may be used; dropflow's own name for it is a safe path segment."""
    path = node.build(name)
    assert node.ask("POST", f"{path}/deploy").status == 200
    (session,) = node.manager.sessions()

    assert "/" not in session.session
    assert not session.session.startswith((".", "-"))
    assert node.ask("GET", "/api/sessions").json[0]["sessionId"] == name
    assert node.ask("DELETE", path).status == 200


def test_stopping_is_a_post_and_the_business_of_the_process() -> None:
    """Without a way to stop it says so."""
    stopped: list[bool] = []
    with serve(daliuge_routes(_manager("node"), stop=lambda: stopped.append(True))) as server:
        assert ask(server.url, "GET", "/api/stop").status == 405
        assert ask(server.url, "POST", "/api/stop").json == {"Status": "Success"}
    with serve(daliuge_routes(_manager("node"))) as server:
        assert ask(server.url, "POST", "/api/stop").status == 501

    assert stopped == [True]


def test_only_what_is_no_browser_passes_for_daliuges_client() -> None:
    """Its made-up origin is taken from programs; a browser on a page of that name is refused."""
    with serve(daliuge_routes(_manager("node")), access=AccessRules(token=None)) as server:
        origin = {"Origin": "http://dlg-tm.localhost"}
        program, browser = (
            ask(server.url, "GET", "/api/sessions", headers=origin | more)
            for more in ({}, {"Sec-Fetch-Site": "cross-site"})
        )

    assert (program.status, browser.status) == (200, 403)


# DALiuGE's own client.


@pytest.mark.slow
@pytest.mark.parametrize("role", ["node", "island", "master"])
def test_daliuges_own_client_is_served(served: Served, role: Role, daliuge: Path) -> None:
    """It builds, deploys, watches, cancels and destroys a session, and gets its own exceptions."""
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
    for (call, expected), found in zip(calls, json.loads(done.stdout), strict=True):
        assert found == expected, call


def test_a_manager_tells_about_itself(served: Served, role: Role) -> None:
    """Its sessions; those above nodes tell their hosts too."""
    served.ask("POST", served.build("s") + "/deploy")
    found = served.ask("GET", "/api").json

    if role == "node":
        assert found == {"sessions": [{"sessionId": "s", "status": 3, "size": 3}]}
    else:
        assert found == {"hosts": [H1, H2], "sessionIds": ["s"]}
        assert served.ask("GET", "/api/past_sessions").json == []


def test_nodes_and_islands_come_and_go(served: Served, role: Role) -> None:
    """Where there may be any; DALiuGE's default ports are added to bare names."""
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


def test_drafts_can_be_looked_at_and_thrown_away(served: Served) -> None:
    """What was appended so far, before anything is deployed."""
    path = served.build("s")

    assert set(served.ask("GET", f"{path}/graph").json) == {"A", "B", "C"}
    assert served.ask("GET", f"{path}/dir").json == {"dir": ""}
    assert served.ask("GET", "/api/sessions").json[0]["size"] == 3
    assert served.ask("DELETE", path).status == 200
    assert served.ask("GET", "/api/sessions").json == []
