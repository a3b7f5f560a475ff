"""The routes of ``/api/v1``, derived from `dropflow.api.operations`: a new route begins there, and not here.

Most operations call the method of `dropflow.api.manager.Manager` that has their name (`_call_manager`). Those that
read a graph, wait, or stream their answer have a handler in `_SpecialHandlers`.
"""

import io
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial

import msgspec

from dropflow.api import operations
from dropflow.api.contents_answer import DataQuery, Download, attachment
from dropflow.api.logs import LogPage, LogQuery, log_text, page_with_lines
from dropflow.api.manager import Manager
from dropflow.api.node_records import ManagerInfo, ProbeRequest, ProbeResult
from dropflow.api.openapi import openapi_document
from dropflow.api.operations import OPERATIONS, Operation
from dropflow.api.request_bodies import check_depth, unpacked_limit
from dropflow.api.requests import Done, ProbeResultList, Readiness, SessionList
from dropflow.api.routes import Limits, Request, Response, Route, StreamSlots
from dropflow.api.session_records import SessionDetail, SessionInfo
from dropflow.clock import SystemClock
from dropflow.errors import BadFileError, HttpError, NotFoundError
from dropflow.failure import refuse_no_drops
from dropflow.graph.codec import Buffer, dump, is_dfg, parse
from dropflow.graph.daliuge_read import read_pg_stream
from dropflow.graph.notes import logical_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.version import __version__
from managers.archives import results_archive
from managers.deployment import unpack
from managers.routes.daliuge_json import pg_json
from managers.routes.owners import Owners
from managers.routes.session_events import session_events, state_events
from managers.state_hub import StateHub

_LONGEST_NAME = 1024
"""Characters of a name in a path."""
_POLL_SECONDS = 1.0
"""Seconds of one piece of a long poll: a server that closes does not wait for longer."""
_OVER_PACE = 0.2
"""Seconds after a change of a session until it is looked at again, for those who wait for its end only."""
_MAX_HEADER = 200
"""Characters of a header that are read."""
_GZIP = b"\x1f\x8b"
_MAX_UNZIPPED = 1 << 30
"""Bytes."""
_SHOWN = 64
"""Bytes of a body that is not a graph, in the error."""
_Handler = Callable[[Request], object]
_ReadLog = Callable[[str, LogQuery], LogPage]
Probe = Callable[[ProbeRequest], tuple[ProbeResult, ...]]
"""Probes addresses, in their order."""


def api_v1_routes(
    manager: Manager,
    streams: StreamSlots,
    *,
    limits: Limits | None = None,
    probe: Probe | None = None,
    hub: StateHub | None = None,
    owners: Owners | None = None,
) -> list[Route]:
    """Return the routes of a manager's own API, and ``/openapi.json``, which describes them.

    Parameters
    ----------
    manager : Manager
        Manager that they call.
    streams : StreamSlots
        Limits event streams and long polls, and ends them when the server closes.
    limits : Limits, optional
        How large a graph may be.
    probe : callable, optional
        Returns which other managers can be reached; 501 without one.
    hub : StateHub, optional
        Reads the states of drops; the pages of the same server share it.
    owners : Owners, optional
        Owners of sessions, and limits of users; without them, there are no limits.
    """
    limits, owners = limits or Limits(), owners or Owners(manager)
    handlers = _SpecialHandlers(manager, streams, limits, probe or _no_probe, hub or StateHub(manager), owners=owners)
    special = handlers.by_operation()
    routes = [
        _route(
            operation,
            _for_owner(owners, operation, special.get(operation.name) or _call_manager(manager, operation)),
            limits,
        )
        for operation in OPERATIONS
    ]

    def describe(_: Request) -> Response:
        return Response(body=openapi_document(routes, title="dropflow manager", version=__version__))

    routes.append(Route(method="GET", path="/openapi.json", handler=describe, summary="This document", tag="about"))
    return routes


def _route(operation: Operation[object], handler: _Handler, limits: Limits) -> Route:
    return Route(
        method=operation.method,
        path=operation.path,
        handler=handler,
        summary=operation.summary,
        query=operation.query,
        body=operation.body,
        answer=operation.answer if issubclass(operation.answer, msgspec.Struct) else None,
        status=operation.status,
        limit=limits.graph if operation.takes else 0,
        public=operation.public,
        users=operation.users != "none",
        takes=operation.takes,
        gives=operation.gives,
        errors=operation.errors,
        tag=operation.tag,
    )


def _for_owner(owners: Owners, operation: Operation[object], handler: _Handler) -> _Handler:
    """Return a handler that refuses users who are not the owner of the session, if the operation is for the owner.

    A session that is over, and is to run again, must be within the limits of its user.
    """
    if operation.users != "owner":
        return handler

    def handle(request: Request) -> object:
        if request.user:
            detail = owners.owned(_name(request, "session"), request.user)
            if operation in (operations.RESUME, operations.RETRY) and detail is not None and detail.is_over:
                with owners.admitted(request.user, detail.session, detail.drops):
                    return handler(request)
        return handler(request)

    return handle


def _call_manager(manager: Manager, operation: Operation[object]) -> _Handler:
    """Return a handler that calls the manager's method of the operation's name."""

    def handle(request: Request) -> object:
        method = getattr(manager, operation.name)
        names = [_name(request, variable) for variable in operation.variables]
        given = request.query if operation.query else request.body if operation.body else None
        if given is None:
            value = method(*names)
        elif operation.by_field:
            value = method(*names, **msgspec.structs.asdict(given))
        else:
            value = method(*names, given)
        return download_response(value) if operation.answer is Download else operation.answered(value)

    return handle


class _SpecialHandlers:
    """Handlers of the operations that do more than to call a method."""

    def __init__(
        self, manager: Manager, streams: StreamSlots, limits: Limits, probe: Probe, hub: StateHub, *, owners: Owners
    ) -> None:
        self._manager = manager
        self._owners = owners
        self._streams = streams
        self._limits = limits
        self._probe = probe
        self._hub = hub

    def by_operation(self) -> dict[str, _Handler]:
        """Return the handlers by the name of their operation."""
        return {
            operations.READY.name: lambda _: Readiness(),
            operations.INFO.name: self._info,
            operations.PROBE.name: lambda request: ProbeResultList(reaches=self._probe(request.body)),
            operations.SESSIONS.name: self._sessions,
            operations.SUBMIT.name: self._submit,
            operations.PREPARE.name: self._prepare,
            operations.START.name: self._start,
            operations.SESSION.name: self._session,
            operations.EVENTS.name: self._events,
            operations.STATE_EVENTS.name: self._state_events,
            operations.GRAPH.name: self._graph,
            operations.ARCHIVE.name: self._archive,
            operations.DATA.name: self._data,
            operations.SESSION_LOG.name: lambda request: self._log(request, self._manager.session_log, "session"),
            operations.SESSION_LOG_TEXT.name: lambda request: _log_text(request, self._manager.session_log, "session"),
            operations.MANAGER_LOG.name: lambda request: self._log(request, self._manager.manager_log, "node"),
            operations.MANAGER_LOG_TEXT.name: lambda request: _log_text(request, self._manager.manager_log, "node"),
        }

    def _info(self, _: Request) -> ManagerInfo:
        info, finding = self._manager.info(), self._owners.finding()
        return msgspec.structs.replace(info, findings=(*info.findings, finding)) if finding else info

    def _sessions(self, request: Request) -> SessionList:
        sessions = self._manager.sessions()
        return SessionList(sessions=sessions, users=self._owners.use(sessions, request.user))

    def _submit(self, request: Request) -> SessionInfo:
        graph = _read_graph(request.body, most=self._limits.drops, depth=self._limits.depth)
        # Others than users are trusted: a manager above submits for them.
        query = msgspec.structs.replace(request.query, user=request.user) if request.user else request.query
        with self._owners.admitted(query.user, query.session, graph.drops):
            return self._manager.submit(graph, query)

    def _prepare(self, request: Request) -> Done:
        deployment, session = unpack(request.body), _name(request, "session")
        if deployment.session != session:
            raise BadFileError(f"the deployment is of session {deployment.session!r}, not {session!r}")
        if deployment.drops > self._limits.drops:
            raise HttpError(413, f"the graph has {deployment.drops} drops; this server takes {self._limits.drops}")
        with self._owners.starting(deployment.user, session, deployment.drops):
            self._manager.prepare(deployment, seconds=request.query.seconds)
        return Done()

    def _start(self, request: Request) -> Done:
        self._manager.start(_name(request, "session"), request.body.epoch)
        return Done()

    def _session(self, request: Request) -> SessionDetail:
        name, query = _name(request, "session"), request.query
        if not query.seconds:
            return self._manager.session(name)
        with self._streams.slot():
            clock, version = SystemClock(), query.version
            end = clock.monotonic() + query.seconds
            while True:
                # In short pieces, so that a server that closes does not wait for long polls.
                piece = max(min(end - clock.monotonic(), _POLL_SECONDS), 0.0)
                detail = self._manager.watch(name, version=version, seconds=piece)
                ended = clock.monotonic() >= end or self._streams.closing.is_set() or request.is_gone()
                has_changed = detail.version != version
                if ended or detail.is_over or (has_changed and not query.over):
                    return detail
                version = detail.version
                if has_changed:
                    self._streams.closing.wait(_OVER_PACE)

    def _events(self, request: Request) -> Response:
        return self._stream(request, partial(session_events, self._manager), operations.EVENTS)

    def _state_events(self, request: Request) -> Response:
        return self._stream(request, partial(state_events, self._hub), operations.STATE_EVENTS)

    def _stream(
        self, request: Request, events: Callable[..., Generator[bytes] | None], operation: Operation[Download]
    ) -> Response:
        """Return events as they come; 204 if the client has seen the end."""
        chunks = events(
            _name(request, "session"),
            self._streams.closing,
            last=request.headers.get("Last-Event-Id", ""),
            is_gone=request.is_gone,
        )
        if chunks is None:
            return Response(content_type="text/plain", status=204)
        # Without the header, nginx collects an answer before it passes it on.
        headers = (("X-Accel-Buffering", "no"),)
        return Response(body=self._streams.hold(chunks), content_type=operation.gives, headers=headers)

    def _log(self, request: Request, read: _ReadLog, variable: str) -> LogPage:
        name = _name(request, variable)

        def has_ended() -> bool:
            return variable == "session" and self._manager.session(name).is_over

        return page_with_lines(partial(read, name), request.query, self._streams, request.is_gone, has_ended)

    def _archive(self, request: Request) -> Response:
        return download_response(results_archive(self._manager, _name(request, "session"), request.query))

    def _data(self, request: Request) -> Response:
        drop = _name(request, "drop")
        return content_response(request, partial(self._manager.data, _name(request, "session"), drop))

    def _graph(self, request: Request) -> Response:
        name = _name(request, "session")
        graph = self._manager.graph(name)
        if request.query.format == "json":
            return Response(body=pg_json(graph), headers=(attachment(f"{name}.json"),))
        if request.query.format == "logical":
            return Response(body=_logical(graph, name), headers=(attachment(f"{name}.graph"),))
        buffers = dump(graph)
        size = sum(buffer.nbytes for buffer in buffers)
        headers = (attachment(f"{name}.dfg"), ("Content-Length", str(size)))
        return Response(body=_chunks(buffers), content_type=operations.GRAPH.gives, headers=headers)


def content_response(request: Request, read: Callable[[DataQuery], Download]) -> Response:
    """Return the content that `read` returns, or the part of it that the headers or the query of a request ask for."""
    query = request.query or DataQuery()
    if given := request.headers.get("Range", ""):
        query = DataQuery(range=given[:_MAX_HEADER], if_range=request.headers.get("If-Range", "")[:_MAX_HEADER])
    return download_response(read(query))


def download_response(download: Download) -> Response:
    """Return a download as an answer: with status 206 if it is a part of a content."""
    headers = [attachment(download.name)]
    if download.size is not None:
        headers.append(("Content-Length", str(download.size)))
    if download.etag:
        headers += [("Accept-Ranges", "bytes"), ("ETag", download.etag)]
    if download.part is not None:
        headers.append(("Content-Range", download.part.header))
    status = 200 if download.part is None else 206
    return Response(
        body=iter(download.chunks), content_type=download.content_type, status=status, headers=tuple(headers)
    )


def _read_graph(body: bytes, *, most: int, depth: int) -> PhysicalGraph:
    """Return the physical graph in a body: a ``.dfg`` container or DALiuGE's JSON, plain or in a gzip file.

    Raises
    ------
    BadFileError, BadGraphError
        It is neither, or damaged; with all problems.
    HttpError
        413 for a graph of more than `most` drops, 400 for JSON that is nested deeper than `depth` levels.
    """
    if body.startswith(_GZIP):
        body = _unzipped(body)
    if not body:
        raise BadFileError("the body is empty", hint="send a .dfg file, or a physical graph in DALiuGE's JSON")
    if is_dfg(body):
        graph = parse(body)
    else:
        if body.lstrip()[:1] not in (b"[", b"{"):
            raise BadFileError(
                f"the body is not a physical graph: it begins with {body[:_SHOWN]!a}",
                hint="send a .dfg file, or a physical graph in DALiuGE's JSON",
            )
        check_depth(body, depth, what="the graph")
        graph = read_pg_stream(io.BytesIO(body), name="")
    if graph.drops > most:
        raise HttpError(413, f"the graph has too many drops; this server takes {most}")
    refuse_no_drops(graph.drops, name=graph.name)
    return graph


def _unzipped(body: bytes) -> bytes:
    unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        most = unpacked_limit(len(body), _MAX_UNZIPPED)
        data = unpack.decompress(body, most)
    except zlib.error as error:
        raise BadFileError(f"the gzip file is damaged: {error}") from error
    if not unpack.eof:
        if len(data) >= most:
            raise HttpError(413, f"the graph is larger than {most} bytes")
        raise BadFileError("the gzip file is cut off")
    return data


def _log_text(request: Request, read: _ReadLog, variable: str) -> Response:
    name = _name(request, variable)
    return Response(
        body=log_text(partial(read, name), request.query),
        content_type=operations.SESSION_LOG_TEXT.gives,
        headers=(attachment(f"{name}.log"),),
    )


def _logical(graph: PhysicalGraph, session: str) -> bytes:
    note = logical_of(graph)
    if note is None:
        raise NotFoundError(
            f"session {session!r} has no copy of a logical graph", hint="it was submitted as a physical graph"
        )
    return note.document


def _no_probe(_: ProbeRequest) -> tuple[ProbeResult, ...]:
    raise HttpError(501, "this server does not probe others")


def _chunks(buffers: Iterable[Buffer]) -> Iterator[bytes]:
    return (bytes(buffer) for buffer in buffers)


def _name(request: Request, variable: str) -> str:
    """Return a name from the path.

    Raises
    ------
    HttpError
        400: no session, drop or node can have that name.
    """
    name = request.path[variable]
    if not name or len(name) > _LONGEST_NAME or "\0" in name:
        raise HttpError(400, f"{name[:80]!a} cannot be the name of a {variable}")
    return name
