"""DALiuGE's own paths: what its clients, EAGLE and scripts of its users call, in the same shapes.

Successful answers look as DALiuGE's do. Errors have correct statuses, and both DALiuGE's ``type`` and ``args`` and our
``error``. Three things differ on purpose: no GET changes anything; what node managers of DALiuGE send each other
(links, subscriptions, triggers) is answered with 501, because our links do it; and no session id is used as a path.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs, quote

import msgspec

from dropflow.api.addresses import DAEMON_PORT, ISLAND_PORT
from dropflow.api.client import Client
from dropflow.api.manager import Manager
from dropflow.api.node_records import NodeInfo, Role
from dropflow.api.operations import Operation
from dropflow.api.routes import Limits, Request, Response, Route
from dropflow.errors import DropflowError, HttpError, NotFoundError, UsageError
from dropflow.graph.digests import drop_digests
from dropflow.graph.text_ids import oids
from dropflow.ids import session_directory_name
from dropflow.version import __version__
from dropflow.web.frame import redirect
from dropflow.web.signature import drop_modes, signature
from managers.routes.daliuge_json import drop_status, find_node, log_records, node_string, refused, url_of
from managers.routes.daliuge_sessions import DaliugeSession, DaliugeSessions, session_name
from managers.routes.handlers import content_response

_SUCCESS = {"Status": "Success"}
_RMODES = {
    "RERUN": 1,
    "REPEAT": 2,
    "RECOMPUTE": 4,
    "REPRODUCE": 5,
    "REPLICATE_SCI": 6,
    "REPLICATE_COMP": 7,
    "REPLICATE_TOTAL": 8,
}
_ALL_RMODES = "-1"
_MANAGER_START_SECONDS = 60.0
"""Seconds that a client should wait until a daemon has started a manager."""
_MANAGED = "/api/v1/managers/{role}"
_LOOK = Operation(name="managed", path=_MANAGED, answer=dict[str, Any], summary="One manager of a daemon")
_S = "/api/sessions/{session}"
_Handler = Callable[[Request], object]


class _Children(msgspec.Struct, frozen=True):
    """Addresses of the first children of an island that a daemon starts."""

    nodes: tuple[str, ...] = ()


_START = Operation(
    name="start_managed",
    method="POST",
    path=f"{_MANAGED}/start",
    body=_Children,
    answer=dict[str, Any],
    summary="Start a manager of a daemon",
    patience=_MANAGER_START_SECONDS,
    repeatable=False,
)
_STOP = msgspec.structs.replace(_START, name="stop_managed", path=f"{_MANAGED}/stop", body=None)


class _HandlerBase:
    """The manager and the sessions that all handlers use."""

    def __init__(self, manager: Manager, sessions: DaliugeSessions) -> None:
        self._manager = manager
        self._sessions = sessions

    def _role(self) -> Role:
        return self._manager.info().role

    def _check_composite(self) -> None:
        if self._role() == "node":
            raise HttpError(404, "node managers have no nodes", hint="ask an island or a master")

    def _status(self, session: DaliugeSession) -> object:
        """Return a status as this kind of manager shows it: a number, numbers by node, or those by island."""
        role, status = self._role(), int(session.status)
        if role == "node":
            return status
        known = {node.name: node for node in self._manager.nodes()}
        if role == "island":
            return {node_string(known[name]) if name in known else name: status for name in session.nodes}
        islands: dict[str, dict[str, int]] = {}
        for name in session.nodes:
            node = known.get(name, NodeInfo(name=name))
            islands.setdefault(node.island or "master", {})[node_string(node)] = status
        return islands

    def _listed(self) -> list[dict[str, object]]:
        return [
            {"sessionId": session.name, "status": self._status(session), "size": session.size}
            for session in self._sessions.all()
        ]

    def _directory(self, name: str) -> dict[str, str]:
        root = self._manager.info().root
        return {"dir": f"{root}/sessions/{session_directory_name(session_name(name))}" if root else ""}


class ManagerHandlers(_HandlerBase):
    """The manager itself, its nodes and islands."""

    def __init__(
        self, manager: Manager, sessions: DaliugeSessions, stop: Callable[[], None] | None, secret: bytes | None
    ) -> None:
        super().__init__(manager, sessions)
        self._stop = stop
        self._secret = secret

    def api(self, _: Request) -> object:
        """Answer ``GET /api``."""
        listed = self._listed()
        if self._role() == "node":
            return {"sessions": listed}
        hosts = [node_string(node) for node in self._manager.nodes()]
        return {"hosts": hosts, "sessionIds": [session["sessionId"] for session in listed]}

    def stop(self, _: Request) -> object:
        """Answer ``POST /api/stop``."""
        if self._stop is None:
            raise HttpError(501, "this manager cannot be stopped from here", hint="end its process (SIGTERM)")
        self._stop()
        return _SUCCESS

    def past_sessions(self, _: Request) -> object:
        """Answer ``GET /api/past_sessions``."""
        self._check_composite()
        return []  # sessions that are over stay in the list of sessions until they are deleted

    def nodes(self, _: Request) -> object:
        """Answer ``GET /api/nodes``."""
        self._check_composite()
        nodes = [node_string(node) for node in self._manager.nodes()]
        return {"nodes": nodes} if self._role() == "master" else nodes

    def add_node(self, request: Request) -> object:
        """Answer ``POST /api/node/{node}``."""
        self._check_composite()
        self._manager.add_child(url_of(request.path["node"]))
        return _SUCCESS

    def remove_node(self, request: Request) -> object:
        """Answer ``DELETE /api/node/{node}``."""
        self._check_composite()
        self._manager.remove_child(url_of(request.path["node"]))
        return _SUCCESS

    def islands(self, _: Request) -> object:
        """Answer ``GET /api/islands``."""
        self._check_master()
        urls = [child.url for child in self._manager.children() if child.role == "island"]
        return {"islands": [url.partition("//")[2] for url in urls]}

    def add_island(self, request: Request) -> object:
        """Answer ``POST /api/island/{node}``."""
        self._check_master()
        self._manager.add_child(url_of(request.path["node"], port=ISLAND_PORT))
        return _SUCCESS

    def remove_island(self, request: Request) -> object:
        """Answer ``DELETE /api/island/{node}``."""
        self._check_master()
        self._manager.remove_child(url_of(request.path["node"], port=ISLAND_PORT))
        return _SUCCESS

    # Managers of other hosts, by the daemons there.

    def process(self, role: str, request: Request) -> object:
        """Answer ``GET /api/managers/{host}/node``, and those of an island and a master."""
        return {"pid": self._ask(request, _LOOK, role=role)["pid"]}

    def start_island(self, request: Request) -> object:
        """Answer ``POST /api/managers/{host}/island``: it is a child of this master then."""
        try:
            body = msgspec.json.decode(request.body or b"{}", type=_Children)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UsageError(
                "the body has no list of nodes", hint='send {"nodes": ["host", ...]}, or nothing'
            ) from error
        self._manager.add_child(self._ask(request, _START, role="island", body=body)["url"])
        return self.islands(request)

    def change_node(self, request: Request) -> object:
        """Answer ``POST /api/managers/{host}/node/{node}``: start, stop, or the name of a node for the island there."""
        verb = request.path["node"]
        if verb == "start":
            return {"pid": self._ask(request, _START, role="node", body=_Children())["pid"]}
        if verb == "stop":
            self._ask(request, _STOP, role="node")
            return _SUCCESS
        with self._client(request, ISLAND_PORT) as island:
            island.add_child(url_of(verb))
        return _SUCCESS

    def remove_node_there(self, request: Request) -> object:
        """Answer ``DELETE /api/managers/{host}/node/{node}``: the island of that host has the node no more."""
        with self._client(request, ISLAND_PORT) as island:
            island.remove_child(url_of(request.path["node"]))
        return _SUCCESS

    def _ask(self, request: Request, operation: Operation[dict[str, Any]], **arguments: object) -> dict[str, Any]:
        with self._client(request, DAEMON_PORT) as daemon:
            return daemon.call(operation, **arguments)

    def _client(self, request: Request, port: int) -> Client:
        """Return a client of a server on another host, whose requests are signed with the key of this cluster."""
        self._check_master()
        return Client(url_of(request.path["host"], port=port), secret=self._secret)

    def _check_master(self) -> None:
        if self._role() != "master":
            raise HttpError(404, "only masters have islands", hint="ask a master")


class SessionHandlers(_HandlerBase):
    """Drafts, sessions and their drops."""

    def create(self, request: Request) -> object:
        """Answer ``POST /api/sessions``."""
        try:
            name = msgspec.json.decode(request.body)["sessionId"]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError) as error:
            raise UsageError("the body names no session", hint='send {"sessionId": "..."}') from error
        if not isinstance(name, str):
            raise UsageError("sessionId is not text", hint='send {"sessionId": "..."}')
        try:
            self._sessions.create(name)
        except DropflowError as error:
            return refused(error, name, creating=True)
        return {"sessionId": name}

    def append(self, request: Request) -> object:
        """Answer ``POST /api/sessions/{session}/graph/append``."""
        self._sessions.append(request.path["session"], request.body)
        return _SUCCESS

    def deploy(self, request: Request) -> object:
        """Answer ``POST /api/sessions/{session}/deploy``."""
        self._sessions.deploy(request.path["session"], _completed(request.body))
        return _SUCCESS

    def all(self, _: Request) -> object:
        """Answer ``GET /api/sessions``."""
        return self._listed()

    def session(self, request: Request) -> object:
        """Answer ``GET /api/sessions/{session}``."""
        name = request.path["session"]
        session = self._sessions.get(name)
        graph = self._sessions.specifications(name)
        return {"status": self._status(session), "graph": graph, "dir": self._directory(name)}

    def delete(self, request: Request) -> object:
        """Answer ``DELETE /api/sessions/{session}``."""
        self._sessions.delete(request.path["session"])
        return _SUCCESS

    def status(self, request: Request) -> object:
        """Answer ``GET /api/sessions/{session}/status``."""
        return self._status(self._sessions.get(request.path["session"]))

    def cancel(self, request: Request) -> object:
        """Answer ``POST /api/sessions/{session}/cancel``."""
        self._sessions.cancel(request.path["session"])
        return _SUCCESS

    def graph(self, request: Request) -> object:
        """Answer ``GET /api/sessions/{session}/graph``."""
        return self._sessions.specifications(request.path["session"])

    def size(self, request: Request) -> object:
        """Answer ``GET /api/sessions/{session}/graph/size``."""
        return self._sessions.size(request.path["session"])

    def graph_status(self, request: Request) -> object:
        """Answer ``GET /api/sessions/{session}/graph/status``."""
        return {row.oid: drop_status(row) for row in self._sessions.rows(request.path["session"])}

    def directory(self, request: Request) -> object:
        """Answer ``GET /api/sessions/{session}/dir``."""
        return self._directory(self._sessions.get(request.path["session"]).name)

    def has_reproducibility(self, request: Request) -> object:
        """Answer ``GET /api/sessions/{session}/repro/status``: whether the session has ended."""
        return self._sessions.get(request.path["session"]).status.is_terminal

    def reproducibility(self, request: Request) -> object:
        """Answer ``GET /api/sessions/{session}/repro/data``: digests of each drop and of the session, in all modes."""
        name = request.path["session"]
        specifications = self._sessions.specifications(name)
        graph, results = self._manager.graph(session_name(name)), self._manager.results(session_name(name))
        digests = drop_digests(graph)
        for oid, modes in zip(oids(graph, range(graph.drops)), drop_modes(graph, results, digests), strict=True):
            if oid in specifications:
                specifications[oid]["reprodata"] = _reprodata(modes, "rg_blockhash")
        record = _reprodata(signature(graph, results, digests).modes, "signature")
        about = {"repro_protocol": f"dropflow {__version__}", "HashingAlg": "BLAKE2b"}
        return {"graph": specifications, "reprodata": {"meta_data": about, **record}}

    def drop_log(self, request: Request) -> object:
        """Answer ``GET /api/sessions/{session}/graph/drop/{drop}``."""
        name, drop = request.path["session"], request.path["drop"]
        status = int(self._sessions.get(name).status)
        try:
            text = b"".join(self._manager.log(session_name(name), drop).chunks).decode(errors="replace")
        except NotFoundError:
            text = ""
        return {"session": name, "status": status, "oid": drop, "logs": list(log_records(text.splitlines()))}

    def drop_path(self, request: Request) -> object:
        """Answer ``GET /api/sessions/{session}/graph/drop/data/{drop}``."""
        results = self._manager.results(session_name(request.path["session"])).results
        return {"filepath": next((result.path for result in results if result.oid == request.path["drop"]), "")}

    def drop_data(self, request: Request) -> object:
        """Answer ``GET /sessions/{session}/graph/drop/data/{drop}``."""
        drop = request.path["drop"]
        return content_response(request, partial(self._manager.data, session_name(request.path["session"]), drop))

    def drop_page(self, request: Request) -> object:
        """Answer ``GET /sessions/{session}/graph/drop/{drop}``."""
        name = session_name(request.path["session"])
        return redirect(f"/sessions/{quote(name, safe='')}/drops/{quote(request.path['drop'], safe='')}")

    def page(self, request: Request) -> object:
        """Answer ``GET /session``."""
        return redirect(f"/sessions/{quote(session_name(request.query.sessionId), safe='')}")


def _reprodata(modes: Mapping[str, str], field: str) -> dict[str, object]:
    """Return digests by their modes, as DALiuGE's records have them."""
    return {"rmode": _ALL_RMODES} | {
        mode: {"rmode": str(_RMODES[mode]), field: digest or None} for mode, digest in modes.items()
    }


class NodeHandlers(_HandlerBase):
    """One node, asked through the manager above it."""

    def sessions(self, request: Request) -> object:
        """Answer ``GET /api/node/{node}/sessions``."""
        return [
            {"sessionId": session.name, "status": int(session.status), "size": session.size}
            for session in self._sessions.deployed(node=self._node(request).name)
        ]

    def session(self, request: Request) -> object:
        """Answer ``GET /api/node/{node}/sessions/{session}``."""
        name = request.path["session"]
        return {"status": self.status(request), "graph": self.graph(request), "dir": self._directory(name)}

    def status(self, request: Request) -> object:
        """Answer ``GET /api/node/{node}/sessions/{session}/status``."""
        self._node(request)
        return int(self._sessions.get(request.path["session"]).status)

    def graph(self, request: Request) -> object:
        """Answer ``GET /api/node/{node}/sessions/{session}/graph``."""
        name = request.path["session"]
        here = {row.oid for row in self._sessions.rows(name, node=self._node(request).name)}
        return {oid: drop for oid, drop in self._sessions.specifications(name).items() if oid in here}

    def graph_status(self, request: Request) -> object:
        """Answer ``GET /api/node/{node}/sessions/{session}/graph/status``."""
        rows = self._sessions.rows(request.path["session"], node=self._node(request).name)
        return {row.oid: drop_status(row) for row in rows}

    def _node(self, request: Request) -> NodeInfo:
        self._check_composite()
        node = find_node(self._manager.nodes(), request.path["node"])
        if node is None:
            raise HttpError(404, f"there is no node {request.path['node']!r}", hint="see /api/nodes")
        return node


def _completed(body: bytes) -> list[str]:
    """Return the ids of the form field ``completed``, separated by commas."""
    try:
        fields = parse_qs(body.decode(), max_num_fields=16)
    except (UnicodeDecodeError, ValueError) as error:
        raise UsageError("the form cannot be read", hint="send completed=ID,ID") from error
    return [oid for text in fields.get("completed", []) for oid in text.split(",") if oid]


class _PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query of DALiuGE's page of a session."""

    sessionId: str  # noqa: N815 - the spelling of DALiuGE


def daliuge_routes(
    manager: Manager,
    *,
    stop: Callable[[], None] | None = None,
    limits: Limits | None = None,
    secret: bytes | None = None,
) -> list[Route]:
    """Return DALiuGE's routes of a node, island or master.

    Parameters
    ----------
    manager : Manager
        Manager of the sessions that they show.
    stop : callable, optional
        Ends the process soon, without waiting; ``POST /api/stop`` answers 501 without one.
    limits : Limits, optional
        How large and how deep a graph may be.
    secret : bytes, optional
        Secret half of the cluster key, which signs what a master asks of the daemons of other hosts.
    """
    limits = limits or Limits()
    drafts = DaliugeSessions(manager, limits.depth)
    about, sessions, nodes = (
        ManagerHandlers(manager, drafts, stop, secret),
        SessionHandlers(manager, drafts),
        NodeHandlers(manager, drafts),
    )
    node, node_session = "/api/node/{node}", "/api/node/{node}/sessions/{session}"
    table: list[tuple[str, str, _Handler]] = [
        ("GET", "/api", about.api),
        ("GET", "/api/submission_method", lambda _: {"methods": ["SERVER"]}),
        ("POST", "/api/stop", about.stop),
        ("GET", "/api/past_sessions", about.past_sessions),
        ("GET", "/api/nodes", about.nodes),
        ("POST", node, about.add_node),
        ("DELETE", node, about.remove_node),
        ("GET", "/api/islands", about.islands),
        *(
            ("GET", f"/api/managers/{{host}}/{role}", partial(about.process, role))
            for role in ("node", "island", "master")
        ),
        ("POST", "/api/managers/{host}/island", about.start_island),
        ("POST", "/api/managers/{host}/node/{node}", about.change_node),
        ("DELETE", "/api/managers/{host}/node/{node}", about.remove_node_there),
        ("POST", "/api/island/{node}", about.add_island),
        ("DELETE", "/api/island/{node}", about.remove_island),
        ("GET", "/api/sessions", sessions.all),
        ("GET", _S, sessions.session),
        ("DELETE", _S, sessions.delete),
        ("GET", _S + "/status", sessions.status),
        ("POST", _S + "/deploy", sessions.deploy),
        ("POST", _S + "/cancel", sessions.cancel),
        ("GET", _S + "/graph", sessions.graph),
        ("GET", _S + "/graph/size", sessions.size),
        ("GET", _S + "/graph/status", sessions.graph_status),
        ("GET", _S + "/dir", sessions.directory),
        ("GET", _S + "/repro/status", sessions.has_reproducibility),
        ("GET", _S + "/repro/data", sessions.reproducibility),
        ("GET", _S + "/graph/drop/{drop}", sessions.drop_log),
        ("GET", _S + "/graph/drop/data/{drop}", sessions.drop_path),
        ("GET", "/sessions/{session}/graph/drop/data/{drop}", sessions.drop_data),
        ("GET", "/sessions/{session}/graph/drop/{drop}", sessions.drop_page),
        ("GET", node + "/sessions", nodes.sessions),
        ("GET", node_session, nodes.session),
        ("GET", node_session + "/status", nodes.status),
        ("GET", node_session + "/graph", nodes.graph),
        ("GET", node_session + "/graph/status", nodes.graph_status),
    ]
    page = msgspec.structs.replace(_route("GET", "/session", sessions.page), query=_PageQuery)
    create = msgspec.structs.replace(_route("POST", "/api/sessions", sessions.create), json=True)
    append = msgspec.structs.replace(_route("POST", _S + "/graph/append", sessions.append), limit=limits.graph)
    return [*(_route(*row) for row in (*table, *_not_offered())), create, append, page]


def _not_offered() -> Iterator[tuple[str, str, _Handler]]:
    """Yield routes that answer 501 with the reason and with what to use instead."""
    links = "nodes of dropflow use links of their own, which a deployment sets up"
    journal = "use /api/v1/sessions/SESSION/journal, or /api/v1/sessions/SESSION/drops/DROP/log"
    for method, path, reason in (
        ("POST", _S + "/graph/link", links),
        ("POST", _S + "/subscriptions", links),
        ("POST", _S + "/trigger", links),
        ("GET", "/api/shutdown", "a GET changes nothing: POST /api/stop"),
        ("GET", _S + "/logs", journal),
    ):
        yield method, path, _refusing(reason)


def _refusing(reason: str) -> _Handler:
    def refuse(_: Request) -> object:
        raise HttpError(501, "dropflow does not offer this", hint=reason)

    return refuse


def _route(method: str, path: str, handler: _Handler) -> Route:
    def answer(request: Request) -> Response:
        try:
            response = handler(request)
        except DropflowError as error:
            return refused(error, request.path.get("session", ""))
        return response if isinstance(response, Response) else Response(body=msgspec.json.encode(response))

    return Route(method=method, path=path, handler=answer, summary="As in DALiuGE", daliuge=True, tag="daliuge")
