"""DALiuGE's own paths: what its clients, EAGLE and scripts of its users call, in the same shapes.

Successes look as DALiuGE's do. Errors have correct statuses, and carry both DALiuGE's ``type`` and ``args`` and our
``error``. Three things differ on purpose: nothing changes state by GET, what node managers of DALiuGE tell each other
(links, subscriptions, triggers) is answered with 501 because our links do it, and no session id escapes its directory.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, quote

import msgspec

from dropflow.errors import BadGraphError, ConflictError, DropflowError, HttpError, NotFoundError, UsageError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from dropflow.ids import session_directory_name
from dropflow.rest.content_disposition import attachment
from dropflow.rest.kit import Limits, Request, Response, Route
from dropflow.rest.request_body import check_depth
from dropflow.rest.schema import DropInfo, DropQuery, NodeInfo, Role, SessionInfo, SubmitQuery
from dropflow.rest.status import UNKNOWN
from dropflow.states import SessionState
from managers.api import Manager
from managers.routes.daliuge_shapes import (
    drop_status,
    expanded,
    log_records,
    node_string,
    refused,
    specifications,
    url_of,
)
from managers.routes.drafts import Draft, Drafts, session_name

__all__ = ["daliuge_routes"]

_S = "/api/sessions/{session}"
_SUCCESS = {"Status": "Success"}
_PAGE = 1000
_ISLAND_PORT = 8001
_Handler = Callable[[Request], object]


class _PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What DALiuGE's page of a session is asked for."""

    sessionId: str  # noqa: N815 - the spelling of DALiuGE


def daliuge_routes(
    manager: Manager, *, stop: Callable[[], None] | None = None, limits: Limits | None = None
) -> list[Route]:
    """DALiuGE's routes of a node, island or master.

    Parameters
    ----------
    manager : Manager
        Who answers.
    stop : callable, optional
        Ends the process soon, without waiting; ``POST /api/stop`` answers 501 without one.
    limits : Limits, optional
        How large and how deep a graph may be.
    """
    limits = limits or Limits()
    to = _DaliugeHandlers(manager, stop, limits.depth)
    table: list[tuple[str, str, _Handler]] = [
        ("GET", "/api", to.api),
        ("GET", "/api/submission_method", lambda _: {"methods": ["SERVER"]}),
        ("POST", "/api/stop", to.stop),
        ("GET", "/api/past_sessions", to.past_sessions),
        ("GET", "/api/sessions", to.sessions),
        ("GET", _S, to.session),
        ("DELETE", _S, to.delete),
        ("GET", _S + "/status", to.status),
        ("POST", _S + "/deploy", to.deploy),
        ("POST", _S + "/cancel", to.cancel),
        ("GET", _S + "/graph", to.graph),
        ("GET", _S + "/graph/size", to.size),
        ("GET", _S + "/graph/status", to.graph_status),
        ("GET", _S + "/dir", to.directory),
        ("GET", _S + "/graph/drop/{drop}", to.drop_log),
        ("GET", _S + "/graph/drop/data/{drop}", to.drop_path),
        ("GET", "/sessions/{session}/graph/drop/data/{drop}", to.drop_data),
        ("GET", "/sessions/{session}/graph/drop/{drop}", to.drop_page),
        ("GET", "/api/nodes", to.nodes),
        ("POST", "/api/node/{node}", to.add_node),
        ("DELETE", "/api/node/{node}", to.remove_node),
        ("GET", "/api/node/{node}/sessions", to.node_sessions),
        ("GET", "/api/node/{node}/sessions/{session}", to.node_session),
        ("GET", "/api/node/{node}/sessions/{session}/status", to.node_status),
        ("GET", "/api/node/{node}/sessions/{session}/graph", to.node_graph),
        ("GET", "/api/node/{node}/sessions/{session}/graph/status", to.node_graph_status),
        ("GET", "/api/islands", to.islands),
        ("POST", "/api/island/{node}", to.add_island),
        ("DELETE", "/api/island/{node}", to.remove_island),
    ]
    page = msgspec.structs.replace(_route("GET", "/session", to.session_page), query=_PageQuery)
    create = msgspec.structs.replace(_route("POST", "/api/sessions", to.create), json=True)
    append = _route("POST", _S + "/graph/append", to.append)
    append = msgspec.structs.replace(append, limit=limits.graph)
    return [*(_route(*row) for row in (*table, *_not_here())), create, append, page]


def _not_here() -> Iterator[tuple[str, str, _Handler]]:
    """What is not offered, each with the reason and the way to what was wanted."""
    links = "nodes of dropflow talk over their own links, which a deployment sets up"
    journal = "ask for /api/v1/sessions/SESSION/journal, or /api/v1/sessions/SESSION/drops/DROP/log"
    daemon = "ask the daemon of that host, or the manager above it"
    hashes = "reproducibility records are not made yet"
    for method, path, reason in (
        ("POST", _S + "/graph/link", links),
        ("POST", _S + "/subscriptions", links),
        ("POST", _S + "/trigger", links),
        ("GET", "/api/shutdown", "a GET changes nothing: POST /api/stop"),
        ("GET", _S + "/logs", journal),
        ("GET", _S + "/repro/status", hashes),
        ("GET", _S + "/repro/data", hashes),
        ("GET", "/api/managers/{host}/node", daemon),
        ("GET", "/api/managers/{host}/island", daemon),
        ("GET", "/api/managers/{host}/master", daemon),
        ("POST", "/api/managers/{host}/island", daemon),
        ("POST", "/api/managers/{host}/node/{verb}", daemon),
        ("DELETE", "/api/managers/{host}/node/{verb}", daemon),
    ):
        yield method, path, _refusing(reason)


def _refusing(reason: str) -> _Handler:
    def refuse(_: Request) -> object:
        raise HttpError(501, "dropflow does not offer this", hint=reason)

    return refuse


def _route(method: str, path: str, handler: _Handler) -> Route:
    def answer(call: Request) -> Response:
        try:
            found = handler(call)
        except DropflowError as error:
            return refused(error, call.path.get("session", ""))
        return found if isinstance(found, Response) else Response(body=msgspec.json.encode(found))

    return Route(method=method, path=path, handler=answer, summary="As in DALiuGE", original=True, tag="daliuge")


class _DaliugeHandlers:
    """The handlers. Each answers what DALiuGE would, as JSON-like values."""

    def __init__(self, manager: Manager, stop: Callable[[], None] | None, depth: int) -> None:
        self._manager = manager
        self._depth = depth
        self._stop = stop
        self._drafts = Drafts()

    # The manager itself.

    def api(self, _: Request) -> object:
        sessions = self._listed()
        if self._role() == "node":
            return {"sessions": sessions}
        hosts = [node_string(node) for node in self._manager.nodes()]
        return {"hosts": hosts, "sessionIds": [session["sessionId"] for session in sessions]}

    def stop(self, _: Request) -> object:
        if self._stop is None:
            raise HttpError(501, "this manager cannot be stopped from here", hint="end its process (SIGTERM)")
        self._stop()
        return _SUCCESS

    def past_sessions(self, _: Request) -> object:
        self._composite()
        return []  # sessions that are over stay among the others until they are deleted

    def nodes(self, _: Request) -> object:
        self._composite()
        found = [node_string(node) for node in self._manager.nodes()]
        return {"nodes": found} if self._role() == "master" else found

    def add_node(self, call: Request) -> object:
        self._composite()
        self._manager.add_child(url_of(call.path["node"]))
        return _SUCCESS

    def remove_node(self, call: Request) -> object:
        self._composite()
        self._manager.remove_child(url_of(call.path["node"]))
        return _SUCCESS

    def islands(self, _: Request) -> object:
        self._only_master()
        urls = [child.url for child in self._manager.children() if child.role == "island"]
        return {"islands": [url.partition("//")[2] for url in urls]}

    def add_island(self, call: Request) -> object:
        self._only_master()
        self._manager.add_child(url_of(call.path["node"], port=_ISLAND_PORT))
        return _SUCCESS

    def remove_island(self, call: Request) -> object:
        self._only_master()
        self._manager.remove_child(url_of(call.path["node"], port=_ISLAND_PORT))
        return _SUCCESS

    # Sessions that are being built.

    def create(self, call: Request) -> object:
        try:
            name = msgspec.json.decode(call.body)["sessionId"]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError) as error:
            raise UsageError("the body names no session", hint='send {"sessionId": "..."}') from error
        if not isinstance(name, str):
            raise UsageError("sessionId is no text", hint='send {"sessionId": "..."}')
        try:
            self._drafts.create(name, {session.session for session in self._manager.sessions()})
        except DropflowError as error:
            return refused(error, name, creating=True)
        return {"sessionId": name}

    def append(self, call: Request) -> object:
        name = call.path["session"]
        if self._drafts.find(name) is None:
            status = self._manager.session(session_name(name)).status
            raise ConflictError(f"session {name!r} is {status}", hint="create another one")
        try:
            check_depth(call.body, self._depth, what="the graph")
        except HttpError as error:  # a graph that cannot be used, as DALiuGE's clients are told
            raise BadGraphError(error.text, where=name, hint=error.hint) from error
        self._drafts.append(name, call.body)
        return _SUCCESS

    def deploy(self, call: Request) -> object:
        name = call.path["session"]
        if self._drafts.find(name) is None:
            status = self._manager.session(session_name(name)).status
            raise ConflictError(f"session {name!r} is {status}", hint="create another one")
        draft = self._drafts.take(name)
        if not draft.drops:
            return _SUCCESS
        try:
            graph = draft.graph()
            _refuse_unknown(_completed(call.body), draft)
            placed, anew = self._placed(graph)
            self._manager.submit(placed, SubmitQuery(session=session_name(name), anew=anew))
        except BaseException:
            self._drafts.give_back(draft)
            raise
        self._drafts.forget(name)
        return _SUCCESS

    def _placed(self, graph: PhysicalGraph) -> tuple[PhysicalGraph, bool]:
        """The graph with our names for its nodes, and whether to place it anew."""
        if self._role() == "node" or not graph.places:
            return graph, True  # a node manager of DALiuGE takes every drop as its own
        nodes = self._manager.nodes()
        found = {place: _node(nodes, place) for place in graph.places}
        unknown = [place for place, node in found.items() if node is None]
        if unknown and len(unknown) < len(found):
            known = ", ".join(node_string(node) for node in nodes) or "none"
            raise BadGraphError(f"node {unknown[0]!r} does not belong to this manager", hint=f"its nodes are {known}")
        places = tuple(node.name if (node := found[place]) is not None else place for place in graph.places)
        return replace(graph, places=places), False

    # Sessions.

    def sessions(self, _: Request) -> object:
        return self._listed()

    def session(self, call: Request) -> object:
        draft, name = self._drafts.find(call.path["session"]), session_name(call.path["session"])
        if draft is not None:
            return {"status": self._draft_status(draft), "graph": _drawn(draft), "dir": self._directory(name)}
        found = self._manager.session(name)
        graph = specifications(self._manager.graph(name))
        return {"status": self._status(found), "graph": graph, "dir": self._directory(name)}

    def delete(self, call: Request) -> object:
        name = call.path["session"]
        if self._drafts.find(name) is not None:
            self._drafts.forget(name)
        else:
            self._manager.delete(session_name(name))
        return _SUCCESS

    def status(self, call: Request) -> object:
        draft = self._drafts.find(call.path["session"])
        if draft is not None:
            return self._draft_status(draft)
        return self._status(self._manager.session(session_name(call.path["session"])))

    def cancel(self, call: Request) -> object:
        name = call.path["session"]
        draft = self._drafts.find(name)
        status = draft.status.name if draft else self._manager.session(session_name(name)).status
        if status not in ("DEPLOYING", "RUNNING", "CANCELLED", UNKNOWN):
            raise ConflictError(f"session {name!r} is {status}", hint="only one that runs can be cancelled")
        self._manager.cancel(session_name(name), "cancelled by a client of DALiuGE")
        return _SUCCESS

    def graph(self, call: Request) -> object:
        draft = self._drafts.find(call.path["session"])
        if draft is not None:
            return _drawn(draft)
        return specifications(self._manager.graph(session_name(call.path["session"])))

    def size(self, call: Request) -> object:
        draft = self._drafts.find(call.path["session"])
        if draft is not None:
            return len(draft.drops)
        try:
            return self._manager.session(session_name(call.path["session"])).drops
        except NotFoundError:
            return 0  # as DALiuGE answers

    def graph_status(self, call: Request) -> object:
        return {row.oid: drop_status(row) for row in self._rows(call)}

    def _rows(self, call: Request, *, node: str = "") -> Iterator[DropInfo]:
        draft = self._drafts.find(call.path["session"])
        if draft is not None:
            raise ConflictError(f"session {draft.name!r} is {draft.status.name}", hint="deploy it first")
        offset, total = 0, 1
        while offset < total:
            query = DropQuery(node=node, offset=offset, limit=_PAGE)
            page = self._manager.drops(session_name(call.path["session"]), query)
            yield from page.drops
            offset, total = offset + _PAGE, page.total

    def directory(self, call: Request) -> object:
        if self._drafts.find(call.path["session"]) is None:
            self._manager.session(session_name(call.path["session"]))
        return self._directory(session_name(call.path["session"]))

    # Drops.

    def drop_log(self, call: Request) -> object:
        spelled, drop = call.path["session"], call.path["drop"]
        name = session_name(spelled)
        status = _number(self._manager.session(name).status)
        try:
            text = b"".join(self._manager.log(name, drop).chunks).decode(errors="replace")
        except NotFoundError:
            text = ""
        return {"session": spelled, "status": status, "oid": drop, "logs": list(log_records(text.splitlines()))}

    def drop_path(self, call: Request) -> object:
        results = self._manager.results(session_name(call.path["session"])).results
        return {"filepath": next((result.path for result in results if result.oid == call.path["drop"]), "")}

    def drop_data(self, call: Request) -> object:
        found = self._manager.data(session_name(call.path["session"]), call.path["drop"])
        size = () if found.size is None else (("Content-Length", str(found.size)),)
        return Response(
            body=iter(found.chunks), content_type=found.content_type, headers=(attachment(found.name), *size)
        )

    def drop_page(self, call: Request) -> object:
        name = session_name(call.path["session"])
        return _moved(f"/sessions/{quote(name, safe='')}/drops/{quote(call.path['drop'], safe='')}")

    def session_page(self, call: Request) -> object:
        return _moved(f"/sessions/{quote(session_name(call.query.sessionId), safe='')}")

    # One node, asked through what stands above it.

    def node_sessions(self, call: Request) -> object:
        node = self._node(call)
        return [
            {"sessionId": self._drafts.spelled(found.session), "status": _number(found.status), "size": found.drops}
            for found in self._manager.sessions()
            if node.name in found.nodes
        ]

    def node_session(self, call: Request) -> object:
        name = session_name(call.path["session"])
        return {"status": self.node_status(call), "graph": self.node_graph(call), "dir": self._directory(name)}

    def node_status(self, call: Request) -> object:
        self._node(call)
        return _number(self._manager.session(session_name(call.path["session"])).status)

    def node_graph(self, call: Request) -> object:
        node = self._node(call)
        graph = self._manager.graph(session_name(call.path["session"]))
        here = {row.oid for row in self._rows(call, node=node.name)}
        known = specifications(graph)
        return {oid: known[oid] for oid in oids(graph, range(graph.drops)) if oid in here}

    def node_graph_status(self, call: Request) -> object:
        return {row.oid: drop_status(row) for row in self._rows(call, node=self._node(call).name)}

    # Inside.

    def _role(self) -> Role:
        return self._manager.info().role

    def _composite(self) -> None:
        if self._role() == "node":
            raise HttpError(404, "node managers have no nodes", hint="ask an island or a master")

    def _only_master(self) -> None:
        if self._role() != "master":
            raise HttpError(404, "only masters have islands", hint="ask a master")

    def _node(self, call: Request) -> NodeInfo:
        self._composite()
        found = _node(self._manager.nodes(), call.path["node"])
        if found is None:
            raise HttpError(404, f"there is no node {call.path['node']!r}", hint="see /api/nodes")
        return found

    def _listed(self) -> list[dict[str, Any]]:
        drafts = [
            {"sessionId": draft.name, "status": self._draft_status(draft), "size": len(draft.drops)}
            for draft in self._drafts.all()
        ]
        return drafts + [
            {
                "sessionId": self._drafts.spelled(session.session),
                "status": self._status(session),
                "size": session.drops,
            }
            for session in self._manager.sessions()
        ]

    def _draft_status(self, draft: Draft) -> object:
        return self._by_node(int(draft.status), [node.name for node in self._manager.nodes()])

    def _status(self, session: SessionInfo) -> object:
        return self._by_node(_number(session.status), list(session.nodes))

    def _by_node(self, status: int, names: list[str]) -> object:
        """A status as each kind of manager tells it: a number, numbers by node, or those by island."""
        role = self._role()
        if role == "node":
            return status
        known = {node.name: node for node in self._manager.nodes()}
        if role != "master":
            return {node_string(known[name]) if name in known else name: status for name in names}
        islands: dict[str, dict[str, int]] = {}
        for name in names:
            node = known.get(name, NodeInfo(name=name))
            islands.setdefault(node.island or "master", {})[node_string(node)] = status
        return islands

    def _directory(self, session: str) -> dict[str, str]:
        root = self._manager.info().root
        return {"dir": f"{root}/sessions/{session_directory_name(session)}" if root else ""}


def _node(nodes: tuple[NodeInfo, ...], spelled: str) -> NodeInfo | None:
    """The node that is called so: by its name, or by host and REST port."""
    by_name = next((node for node in nodes if node.name == spelled), None)
    if by_name is not None:
        return by_name
    try:
        wanted = expanded(spelled)
        return next((node for node in nodes if node.url and expanded(node.url.partition("//")[2]) == wanted), None)
    except UsageError:
        return None


def _number(status: str) -> int:
    """The integer of a status. DALiuGE has none for UNKNOWN; RUNNING makes its clients ask again."""
    return int(SessionState.RUNNING if status == UNKNOWN else SessionState[status])


def _drawn(draft: Draft) -> dict[str, Any]:
    return {oid: msgspec.json.decode(raw) for oid, raw in draft.drops.items()}


def _completed(body: bytes) -> list[str]:
    """The drops that the caller wants completed at the start; ours complete by themselves if nothing produces them."""
    try:
        fields = parse_qs(body.decode(), max_num_fields=16)
    except (UnicodeDecodeError, ValueError) as error:
        raise UsageError("the form cannot be read", hint="send completed=ID,ID") from error
    return [oid for text in fields.get("completed", []) for oid in text.split(",") if oid]


def _refuse_unknown(completed: list[str], draft: Draft) -> None:
    unknown = [oid for oid in completed if oid not in draft.drops]
    if unknown:
        raise BadGraphError(f"there is no drop {unknown[0]!r} to complete", where=draft.name)


def _moved(target: str) -> Response:
    return Response(content_type="text/plain", status=303, headers=(("Location", target),))
