"""Our own API, ``/api/v1``: one route for each method of `managers.api.Manager`, and the stream of events.

Written once for nodes, islands and masters. `dropflow.rest.client` is the other end.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dropflow.errors import BadFileError, HttpError
from dropflow.graph.codec import dump
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slice_codec import MEDIA_TYPE as SLICES
from dropflow.graph.slice_codec import dump_slices
from dropflow.rest.content_disposition import attachment
from dropflow.rest.content_records import MEDIA_TYPE as CONTENTS
from dropflow.rest.content_records import ContentsRequest
from dropflow.rest.kit import Limits, Request, Response, Route, StreamSlots
from dropflow.rest.list_records import ChildList, Done, EpochRequest, FailureList, NodeList, ResultList, SessionList
from dropflow.rest.openapi import openapi_document
from dropflow.rest.schema import (
    Child,
    ChildRequest,
    Download,
    DropDetail,
    DropPage,
    DropQuery,
    ManagerInfo,
    PageQuery,
    SessionDetail,
    SessionInfo,
    SubmitQuery,
)
from dropflow.version import __version__
from managers.api import Manager
from managers.deployment import MEDIA_TYPE, unpack
from managers.probing import Prober
from managers.routes.events import session_events
from managers.routes.graphs import GRAPH_MEDIA_TYPE, pg_json, read_graph
from managers.routes.probe import probe_routes

__all__ = ["api_v1_routes"]

_PREFIX = "/api/v1"
_SESSION = _PREFIX + "/sessions/{session}"
_DROP = _SESSION + "/drops/{drop}"
_LONGEST_NAME = 1024
_POLL = 1.0
_Seconds = Annotated[float, Meta(ge=0, le=300)]


class WatchQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wait for something newer than `version`, for `seconds` at most; answer at once when `seconds` is 0."""

    version: Annotated[int, Meta(ge=-1, le=2**53)] = -1
    seconds: _Seconds = 0.0


class DeploymentQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the preparation may take."""

    seconds: Annotated[float, Meta(gt=0, le=3600)] = 60.0


class ChildQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which child."""

    url: Annotated[str, Meta(min_length=1, max_length=1024)]


class GraphQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In which form: `dfg` (ours) or `json` (DALiuGE's)."""

    format: Annotated[str, Meta(pattern="^(dfg|json)$")] = "dfg"


class CancelRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a session is stopped."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """A manager answers."""

    ready: bool = True


def api_v1_routes(
    manager: Manager, streams: StreamSlots, *, limits: Limits | None = None, prober: Prober | None = None
) -> list[Route]:
    """The route table of ``/api/v1`` for a manager.

    Parameters
    ----------
    manager : Manager
        Who answers.
    streams : StreamSlots
        Where event streams and long polls are counted, and ended when the server closes.
    limits : Limits, optional
        How large a graph may be.
    prober : Prober, optional
        What tries whether others can be reached; one without a cluster key unless given.
    """
    handlers = _ApiHandlers(manager, streams, limits or Limits())
    asked = probe_routes(prober or Prober("nobody", None))
    routes = [*_manager_routes(handlers), *asked, *_session_routes(handlers), *_drop_routes(handlers)]

    def describe(_: Request) -> Response:
        return Response(body=openapi_document(routes, title="dropflow manager", version=__version__))

    routes.append(Route(method="GET", path="/openapi.json", handler=describe, summary="This document", tag="about"))
    return routes


def _manager_routes(to: "_ApiHandlers") -> list[Route]:
    def row(method: str, path: str, handler: Callable[[Request], object], summary: str, **more: Any) -> Route:
        return Route(method=method, path=path, handler=handler, summary=summary, tag="managers", **more)

    return [
        row("GET", "/ready", lambda _: Readiness(), "Whether a manager answers", answer=Readiness, public=True),
        row("GET", f"{_PREFIX}/info", to.info, "About the manager", answer=ManagerInfo),
        row("GET", f"{_PREFIX}/nodes", to.nodes, "All node managers at or below it", answer=NodeList),
        row("GET", f"{_PREFIX}/children", to.children, "Its direct children", answer=ChildList),
        row("POST", f"{_PREFIX}/children", to.add_child, "Take a child", body=ChildRequest, answer=Child, status=201),
        row("DELETE", f"{_PREFIX}/children", to.remove_child, "Forget a child", query=ChildQuery, answer=Done),
    ]


def _session_routes(to: "_ApiHandlers") -> list[Route]:
    def row(method: str, path: str, handler: Callable[[Request], object], summary: str, **more: Any) -> Route:
        return Route(method=method, path=path, handler=handler, summary=summary, tag="sessions", **more)

    submitted: dict[str, Any] = {
        "query": SubmitQuery,
        "answer": SessionInfo,
        "status": 201,
        "takes": GRAPH_MEDIA_TYPE,
        "limit": to.limits.graph,
    }
    return [
        row("GET", f"{_PREFIX}/sessions", to.sessions, "All sessions, the youngest first", answer=SessionList),
        row("POST", f"{_PREFIX}/sessions", to.submit, "Deploy a graph and start it", **submitted),
        row("GET", _SESSION, to.session, "One session; may wait for news", query=WatchQuery, answer=SessionDetail),
        row("DELETE", _SESSION, to.delete, "Forget a session and what it left behind", answer=Done),
        row("POST", _SESSION + "/cancel", to.cancel, "Stop a session", body=CancelRequest, answer=SessionInfo),
        row("GET", _SESSION + "/events", to.events, "Changes as they happen", gives="text/event-stream"),
        row("GET", _SESSION + "/failures", to.failures, "Root causes", query=PageQuery, answer=FailureList),
        row("GET", _SESSION + "/results", to.results, "What the session left for people", answer=ResultList),
        row("POST", _SESSION + "/contents", to.contents, "Download contents", body=ContentsRequest, gives=CONTENTS),
        row("GET", _SESSION + "/journal", to.journal, "Download the journal", gives="application/octet-stream"),
        row("GET", _SESSION + "/graph", to.graph, "Download the graph", query=GraphQuery, gives=GRAPH_MEDIA_TYPE),
        row("GET", _SESSION + "/slices", to.slices, "What nodes hold of the graph, for a manager above", gives=SLICES),
        row(
            "PUT",
            _SESSION + "/deployment",
            to.prepare,
            "First half of a deployment, by a manager above",
            query=DeploymentQuery,
            answer=Done,
            takes=MEDIA_TYPE,
            limit=to.limits.graph,
        ),
        row("POST", _SESSION + "/start", to.start, "Second half of a deployment", body=EpochRequest, answer=Done),
        row("POST", _SESSION + "/undo", to.undo, "Take a deployment back", body=EpochRequest, answer=Done),
    ]


def _drop_routes(to: "_ApiHandlers") -> list[Route]:
    def row(path: str, handler: Callable[[Request], object], summary: str, **more: Any) -> Route:
        return Route(method="GET", path=path, handler=handler, summary=summary, tag="drops", **more)

    return [
        row(_SESSION + "/drops", to.drops, "A page of the drops that match", query=DropQuery, answer=DropPage),
        row(_DROP, to.drop, "One drop, and a page of its neighbours", query=PageQuery, answer=DropDetail),
        row(_DROP + "/log", to.log, "Download the log of a drop", gives="text/plain"),
        row(_DROP + "/data", to.data, "Download the content of a data drop", gives="application/octet-stream"),
    ]


class _ApiHandlers:
    """From calls to methods of the manager."""

    def __init__(self, manager: Manager, streams: StreamSlots, limits: Limits) -> None:
        self._manager = manager
        self._streams = streams
        self.limits = limits

    def info(self, _: Request) -> ManagerInfo:
        return self._manager.info()

    def nodes(self, _: Request) -> NodeList:
        return NodeList(nodes=self._manager.nodes())

    def children(self, _: Request) -> ChildList:
        return ChildList(children=self._manager.children())

    def add_child(self, call: Request) -> Child:
        return self._manager.add_child(call.body.url)

    def remove_child(self, call: Request) -> Done:
        self._manager.remove_child(call.query.url)
        return Done()

    def sessions(self, _: Request) -> SessionList:
        return SessionList(sessions=self._manager.sessions())

    def submit(self, call: Request) -> SessionInfo:
        return self._manager.submit(read_graph(call.body, most=self.limits.drops, depth=self.limits.depth), call.query)

    def prepare(self, call: Request) -> Done:
        deployment = unpack(call.body)
        if deployment.session != _session(call):
            raise BadFileError(f"the deployment is of session {deployment.session!r}, not {_session(call)!r}")
        if deployment.drops > self.limits.drops:
            raise HttpError(413, f"the graph has {deployment.drops} drops; this server takes {self.limits.drops}")
        self._manager.prepare(deployment, seconds=call.query.seconds)
        return Done()

    def start(self, call: Request) -> Done:
        self._manager.start(_session(call), call.body.epoch)
        return Done()

    def undo(self, call: Request) -> Done:
        self._manager.undo(_session(call), call.body.epoch, call.body.reason)
        return Done()

    def session(self, call: Request) -> SessionDetail:
        name, query = _session(call), call.query
        if not query.seconds:
            return self._manager.session(name)
        with self._streams.slot():
            left = query.seconds
            while True:
                # In short pieces, so that a server that closes need not wait for those who wait.
                piece = min(left, _POLL)
                detail = self._manager.watch(name, version=query.version, seconds=piece)
                left -= piece
                ended = left <= 0 or self._streams.closing.is_set() or call.is_gone()
                if detail.version != query.version or ended or detail.is_over:
                    return detail

    def events(self, call: Request) -> Response:
        last = call.headers.get("Last-Event-Id", "")
        chunks = session_events(self._manager, _session(call), self._streams.closing, last=last, is_gone=call.is_gone)
        if chunks is None:
            return Response(content_type="text/plain", status=204)
        return Response(body=self._streams.hold(chunks), content_type="text/event-stream")

    def cancel(self, call: Request) -> SessionInfo:
        return self._manager.cancel(_session(call), call.body.reason)

    def delete(self, call: Request) -> Done:
        self._manager.delete(_session(call))
        return Done()

    def drops(self, call: Request) -> DropPage:
        return self._manager.drops(_session(call), call.query)

    def drop(self, call: Request) -> DropDetail:
        return self._manager.drop(_session(call), _named(call, "drop"), call.query)

    def failures(self, call: Request) -> FailureList:
        return self._manager.failures(_session(call), call.query)

    def results(self, call: Request) -> ResultList:
        return self._manager.results(_session(call))

    def contents(self, call: Request) -> Response:
        return _downloaded(self._manager.contents(_session(call), call.body))

    def log(self, call: Request) -> Response:
        return _downloaded(self._manager.log(_session(call), _named(call, "drop")))

    def data(self, call: Request) -> Response:
        return _downloaded(self._manager.data(_session(call), _named(call, "drop")))

    def journal(self, call: Request) -> Response:
        return _downloaded(self._manager.journal(_session(call)))

    def graph(self, call: Request) -> Response:
        name = _session(call)
        graph = self._manager.graph(name)
        if call.query.format == "json":
            return Response(body=pg_json(graph), headers=(attachment(f"{name}.json"),))
        return _dfg(graph, name)

    def slices(self, call: Request) -> Response:
        pieces = self._manager.slices(_session(call))
        return Response(body=(bytes(buffer) for buffer in dump_slices(pieces)), content_type=SLICES)


def _dfg(graph: PhysicalGraph, name: str) -> Response:
    buffers = dump(graph)

    def chunks() -> Iterator[bytes]:
        for buffer in buffers:
            yield bytes(buffer)

    size = sum(buffer.nbytes for buffer in buffers)
    headers = (attachment(f"{name}.dfg"), ("Content-Length", str(size)))
    return Response(body=chunks(), content_type=GRAPH_MEDIA_TYPE, headers=headers)


def _downloaded(download: Download) -> Response:
    headers = [attachment(download.name)]
    if download.size is not None:
        headers.append(("Content-Length", str(download.size)))
    return Response(body=iter(download.chunks), content_type=download.content_type, headers=tuple(headers))


def _session(call: Request) -> str:
    return _named(call, "session")


def _named(call: Request, variable: str) -> str:
    """A name out of the path: anything that could be one."""
    name = call.path[variable]
    if not name or len(name) > _LONGEST_NAME or "\0" in name:
        raise HttpError(400, f"this cannot be the name of a {variable}", where=ascii(name[:80]))
    return name
