"""DALiuGE's own paths: what its clients, EAGLE and scripts of its users call, in the same shapes.

Successful answers look as DALiuGE's do. Errors have correct statuses, and both DALiuGE's ``type`` and ``args`` and our
``error``. Three things differ on purpose: no GET changes anything; what node managers of DALiuGE send each other
(links, subscriptions, triggers) is answered with 501, because our links do it; and no session id is used as a path.
"""

from collections.abc import Callable, Iterator

import msgspec

from dropflow.errors import DropflowError, HttpError
from dropflow.rest.server.route import Limits, Request, Response, Route
from managers.api import Manager
from managers.routes.daliuge_handlers import ManagerHandlers, NodeHandlers, SessionHandlers
from managers.routes.daliuge_sessions import DaliugeSessions
from managers.routes.daliuge_shapes import refused

__all__ = ["daliuge_routes"]

_S = "/api/sessions/{session}"
_Handler = Callable[[Request], object]


class _PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query of DALiuGE's page of a session."""

    sessionId: str  # noqa: N815 - the spelling of DALiuGE


def daliuge_routes(
    manager: Manager, *, stop: Callable[[], None] | None = None, limits: Limits | None = None
) -> list[Route]:
    """Return DALiuGE's routes of a node, island or master.

    Parameters
    ----------
    manager : Manager
        Whose sessions they show.
    stop : callable, optional
        Ends the process soon, without waiting; ``POST /api/stop`` answers 501 without one.
    limits : Limits, optional
        How large and how deep a graph may be.
    """
    limits = limits or Limits()
    drafts = DaliugeSessions(manager, limits.depth)
    about, sessions, nodes = (
        ManagerHandlers(manager, drafts, stop),
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
    def answer(request: Request) -> Response:
        try:
            found = handler(request)
        except DropflowError as error:
            return refused(error, request.path.get("session", ""))
        return found if isinstance(found, Response) else Response(body=msgspec.json.encode(found))

    return Route(method=method, path=path, handler=answer, summary="As in DALiuGE", daliuge=True, tag="daliuge")
