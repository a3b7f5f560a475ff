"""A manager in memory whose sessions change only when a test changes them, for tests of routes, pages and clients.

A test gives drops new states (`advance`, `complete`, `fail`, `hide`), and makes any operation fail (`refuse`)::

    manager = FakeManager(role="island", nodes=("n1", "n2"))
    manager.add(fan(40), "s")
    manager.advance("s", {0: "COMPLETED"})
    manager.refuse("drops", LinkError("nothing listens there"))
"""

import functools
import threading
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from dropflow.api.contents_answer import (
    MEDIA_TYPE,
    WHOLE,
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentsRequest,
    DataQuery,
    Download,
    requested_part,
    write_records,
)
from dropflow.api.drop_queries import find_drop
from dropflow.api.drop_records import FIRST_DROPS, FIRST_PAGE, DropDetail, DropInfo, DropPage, DropQuery, PageQuery
from dropflow.api.error_body import to_body
from dropflow.api.logs import LAST_LINES, LogLine, LogPage, LogQuery, LogTextQuery, pack_cursor, severity, unpack_cursor
from dropflow.api.manager import Manager
from dropflow.api.node_records import (
    Child,
    Lack,
    Load,
    LoadSample,
    ManagerInfo,
    ManagerStatus,
    NodeComponents,
    NodeHistory,
    NodeInfo,
    Role,
)
from dropflow.api.operations import OPERATIONS, WATCH, Operation
from dropflow.api.requests import (
    ALL_TIMES,
    DEFAULT_DRAIN,
    DEFAULT_SUBMISSION,
    EVERY_RESULT,
    FIRST_FAILURES,
    RESUME_ALL,
    RETRY_ALL,
    RUNNING,
    DrainedSession,
    DrainReply,
    DrainRequest,
    DropStates,
    FailureList,
    FailureQuery,
    MemberRequest,
    ResultList,
    ResultsQuery,
    ResumeRequest,
    RetryRequest,
    SubmitQuery,
    TimesQuery,
)
from dropflow.api.session_records import SessionDetail, SessionInfo
from dropflow.clock import Clock
from dropflow.errors import ConflictError, DropflowError, GoneError, NotFoundError
from dropflow.graph.codec import parse
from dropflow.graph.notes import note_options
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.ids import drop_file_name, safe_name
from dropflow.preview.look import picture, preview
from dropflow.preview.source import FIRST_LOOK, BytesSource, Preview, PreviewQuery, picture_type
from dropflow.sessions.retry import drops_to_repeat
from dropflow.states import UNKNOWN, DropState, is_over
from dropflow.stopping import GRACE_SECONDS
from dropflow.times.octets import TimesSection, pack_times
from dropflow.times.timeline import described
from dropflow.web.times import SessionTimes
from tests.fake_session import FakeSession, rows_of
from tests.regular_graphs import fan
from tests.virtual_clock import VirtualClock

_Answer = TypeVar("_Answer")
_Kind = TypeVar("_Kind", bound=type)
_LOAD = Load(
    cores=2, workers=2, busy=1, processor=37.5, memory=8 << 30, memory_free=5 << 30, disk=1 << 40, disk_free=1 << 39
)
_CHUNK = 4096


def _refusable(kind: _Kind) -> _Kind:
    """Make every operation of a class raise the error that a test set for it with `refuse`."""

    def checked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: "FakeManager", *given: Any, **named: Any) -> Any:
            if name in self.refused:
                raise self.refused[name]
            return method(self, *given, **named)

        return call

    for operation in (*OPERATIONS, WATCH):
        if operation.to != "server":
            setattr(kind, operation.name, checked(operation.name, getattr(kind, operation.name)))
    return kind


@_refusable
class FakeManager(SessionTimes, Manager):
    """A manager without processes, disk or network; see the module and `dropflow.api.manager.Manager`.

    Parameters
    ----------
    name : str
        Its name. If it is a node, its drops are on the node of this name.
    role : str
        ``node``, ``island`` or ``master``.
    nodes : sequence of str
        Names of its nodes; empty for a node, which is its own only node.
    clock : Clock, optional
        By default a virtual one.

    Attributes
    ----------
    prepared : dict
        Deployments by session and epoch.
    undone : list
        Session, epoch and reason of each `undo`.
    members : list
        Session and request of each `add_member`.
    drained : list
        Name of the node and request of each `drain`.
    rebalanced : list
        Name of the session of each `rebalance`.
    refused : dict
        Errors by operation.
    closed : bool
        Whether `close` was called.
    """

    def __init__(
        self,
        name: str = "node-1",
        *,
        role: Role = "node",
        nodes: tuple[str, ...] = (),
        url: str = "http://127.0.0.1:8000",
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.clock = clock or VirtualClock()
        self.prepared: dict[tuple[str, int], Any] = {}
        self.undone: list[tuple[str, int, str]] = []
        self.members: list[tuple[str, MemberRequest]] = []
        self.drained: list[tuple[str, DrainRequest]] = []
        self.rebalanced: list[str] = []
        self.refused: dict[str, DropflowError] = {}
        self._role: Role = role
        self._url = url
        self._started = self.clock.now()
        self._nodes = {node: NodeInfo(name=node, version="0", host="localhost") for node in nodes or (name,)}
        self._children: dict[str, Child] = {}
        self._sessions: dict[str, FakeSession] = {}
        self.closed = False
        # Threads of a server wait in `watch` until a test, in another thread, changes a session.
        self._changed = threading.Condition()
        self._sections: dict[str, tuple[TimesSection, ...]] = {}
        self._lines: dict[str, tuple[LogLine, ...]] = {}

    def call(self, operation: Operation[_Answer], /, **arguments: Any) -> _Answer:
        """Call the method of an operation."""
        return operation.answered(getattr(self, operation.name)(**arguments))

    def refuse(self, operation: str, error: DropflowError) -> None:
        """Let every later call of this operation raise `error`."""
        self.refused[operation] = error

    def allow(self, operation: str) -> None:
        """Allow an operation that `refuse` made fail."""
        self.refused.pop(operation, None)

    def set_node(self, node: NodeInfo) -> None:
        """Add or replace a node manager."""
        self._nodes[node.name] = node

    def add(self, graph: PhysicalGraph, session: str, *, request_id: str = "", user: str = "") -> None:
        """Add a session whose drops are all INITIALIZED."""
        rows, now = rows_of(graph, self.name), self.clock.now()
        self._put(FakeSession(name=session, graph=graph, rows=rows, created=now, request_id=request_id, user=user))

    def advance(self, session: str, states: Mapping[int, str]) -> None:
        """Give drops new states, by row; the session is over when all drops are settled."""
        self._put(self._find(session).with_states(states, self.clock.now()))

    def complete(self, session: str) -> None:
        """Complete every drop that is not settled."""
        self.advance(session, dict.fromkeys(self._find(session).open_rows(), "COMPLETED"))

    def hide(self, session: str, text: str) -> None:
        """Make the status of a session UNKNOWN, as if nodes did not answer, until a drop changes its state."""
        self._put(msgspec.structs.replace(self._find(session), status=UNKNOWN, text=text))

    def hold(self, session: str, text: str) -> None:
        """Say what a session that runs waits for, as if too few of its nodes answered."""
        self._put(msgspec.structs.replace(self._find(session), text=text))

    def fail(self, session: str, drop: int, text: str, *, also: tuple[int, ...] = ()) -> None:
        """Let a drop fail, and the drops in `also` because of it."""
        self._put(self._find(session).with_failure(drop, text, 1 + len(also)))
        self.advance(session, dict.fromkeys((drop, *also), "ERROR"))

    def write(self, session: str, drop: int, content: bytes) -> None:
        """Give a data drop content that can be downloaded."""
        found = self._find(session)
        self._put(msgspec.structs.replace(found, content={**found.content, drop: content}))

    def set_times(self, session: str, sections: Sequence[TimesSection]) -> None:
        """Set the times of the attempts of a session."""
        self._sections[session] = tuple(sections)

    def print_lines(self, session: str, lines: Sequence[LogLine]) -> None:
        """Append lines to the log of a session or a manager."""
        known = self._lines.get(session, ())
        self._lines[session] = (
            *known,
            *(msgspec.structs.replace(line, at=len(known) + place) for place, line in enumerate(lines)),
        )

    def _find(self, session: str) -> FakeSession:
        found = self._sessions.get(session)
        if found is None:
            raise NotFoundError(f"there is no session {session!r}", where=self.name, hint="see the list of sessions")
        return found

    def _put(self, session: FakeSession) -> None:
        with self._changed:
            before = self._sessions.get(session.name)
            version = before.version + 1 if before else 1
            self._sessions[session.name] = msgspec.structs.replace(session, version=version)
            self._changed.notify_all()

    # On itself and its children.

    def info(self) -> ManagerInfo:
        """Return what it is."""
        return ManagerInfo(
            name=self.name,
            role=self._role,
            url=self._url,
            version="0",
            host="localhost",
            process=1,
            incarnation=1,
            started=self._started,
            time=self.clock.now(),
            protocol=1,
        )

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Return its nodes, with a load that never changes."""
        running = sum(not is_over(found.status) for found in self._sessions.values())
        nodes = [
            msgspec.structs.replace(node, sessions=running, load=_LOAD) if node.load == Load() else node
            for node in self._nodes.values()
        ]
        return tuple(sorted(nodes, key=lambda node: node.name))

    def components(self, needs: Sequence[str] = ()) -> tuple[NodeComponents, ...]:
        """Return nodes that lack every program that they are asked for."""
        lacks = tuple(Lack(need=need, text="it is not installed") for need in needs if need.startswith("program:"))
        return tuple(NodeComponents(node=name, applications=1, lacks=lacks) for name in self._nodes)

    def children(self) -> tuple[Child, ...]:
        """Return the children that `add_child` added."""
        return tuple(self._children.values())

    def add_child(self, url: str) -> Child:
        """Add any address."""
        role: Role = "island" if self._role == "master" else "node"
        return self._children.setdefault(url, Child(name=safe_name(url.partition("//")[2]), url=url, role=role))

    def remove_child(self, url: str) -> None:
        """Remove an address that was added."""
        if self._children.pop(url, None) is None:
            raise NotFoundError(f"{url} is not a child", where=self.name)

    def manager_log(self, node: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the lines that `print_lines` appended for this name."""
        if node not in (self.name, *self._nodes):
            raise NotFoundError(f"there is no node {node!r} here", where=self.name)
        return _log_page(self._lines.get(node, ()), query, node)

    def node_history(self, node: str) -> NodeHistory:
        """Return a minute of made-up load."""
        if node not in self._nodes:
            raise NotFoundError(f"there is no node {node!r} here", where=self.name)
        now = self.clock.now()
        samples = [
            LoadSample(now - 60 + at, 20.0 + 30 * (at % 3), at << 25, at << 28, at << 20, at << 18, 2, at % 4)
            for at in range(0, 60, 5)
        ]
        return NodeHistory(node=node, every=5.0, samples=tuple(samples))

    def drain(self, node: str, request: DrainRequest = DEFAULT_DRAIN) -> DrainReply:
        """Have a node take no sessions any more."""
        if node not in self._nodes:
            raise NotFoundError(f"there is no node {node!r} here", where=self.name)
        self.drained.append((node, request))
        self._nodes[node] = msgspec.structs.replace(self._nodes[node], state="draining")
        left = [found.name for found in self._sessions.values() if not is_over(found.status)]
        told = tuple(DrainedSession(session=name, text="it goes to others") for name in left)
        over = len(self._sessions) - len(left)
        return DrainReply(node=node, seconds=request.grace, sessions=told, over=over)

    # On the nodes of sessions.

    def deployment(self, session: str) -> Download:
        """Download a text in place of a deployment."""
        self._find(session)
        return _download(f"{session}.deployment", "application/vnd.dropflow.deployment", session.encode())

    def add_member(self, session: str, member: MemberRequest) -> None:
        """Keep a member in `members`."""
        self._find(session)
        self.members.append((session, member))

    def rebalance(self, session: str) -> SessionInfo:
        """Count the views of a session."""
        found = self._find(session)
        if is_over(found.status):
            raise ConflictError(f"session {session!r} is {found.status}")
        self.rebalanced.append(session)
        return found.info(self.clock.now())

    # On whole sessions.

    def status(self) -> ManagerStatus:
        """Return its info, nodes and sessions."""
        return ManagerStatus.of(self.info(), self.nodes(), self.sessions())

    def submit(self, graph: PhysicalGraph, options: SubmitQuery = DEFAULT_SUBMISSION) -> SessionInfo:
        """Add a session with this graph. Its drops change only by the methods for tests."""
        wanted = safe_name(graph.name)
        free = (wanted, *(f"{wanted}-{number}" for number in range(2, len(self._sessions) + 3)))
        name = options.session or next(name for name in free if name not in self._sessions)
        if name in self._sessions:
            raise ConflictError(f"there is a session {name!r} already", hint="choose another name")
        self.add(note_options(graph, options), name, request_id=options.request_id, user=options.user)
        return self._find(name).info(self.clock.now())

    def prepare(self, deployment: Any, *, seconds: float) -> None:
        """Keep a deployment in `prepared`."""
        if deployment.session in self._sessions:
            raise ConflictError(f"there is a session {deployment.session!r} already")
        self.prepared[deployment.session, deployment.epoch] = deployment

    def start(self, session: str, epoch: int) -> None:
        """Add a session with the drops that the prepared graph places on the nodes of this manager."""
        deployment = self.prepared.get((session, epoch))
        if deployment is None:
            raise NotFoundError(f"session {session!r} was not prepared with epoch {epoch}")
        graph = parse(deployment.dfg)
        rows = tuple(row for row in rows_of(graph, self.name) if row.node in self._nodes)
        made = FakeSession(name=session, graph=graph, rows=rows, epoch=epoch)
        self._put(msgspec.structs.replace(made, created=deployment.created, whole=deployment.drops))

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Undo a deployment, started or not, and note it in `undone`."""
        self.undone.append((session, epoch, reason))
        if self.prepared.pop((session, epoch), None) is not None:
            self._sessions.pop(session, None)

    def sessions(self) -> tuple[SessionInfo, ...]:
        """Return all sessions, the youngest first."""
        infos = [found.info(self.clock.now()) for found in list(self._sessions.values())]
        return tuple(sorted(infos, key=lambda info: info.created, reverse=True))

    def session(self, session: str) -> SessionDetail:
        """Return one session as it is now."""
        return self._find(session).detail(self.clock.now())

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """Wait in real time for another version."""

        def has_changed() -> bool:
            found = self._find(session)
            return self.closed or found.version != version or is_over(found.status)

        with self._changed:
            self._changed.wait_for(has_changed, timeout=seconds)
        return self.session(session)

    def cancel(self, session: str, reason: str = "", grace: float = GRACE_SECONDS) -> SessionInfo:
        """Cancel all open drops, unless the session is hidden."""
        found = self._find(session)
        if not is_over(found.status) and found.status != UNKNOWN:
            self._put(found.cancelled(reason or "cancelled", self.clock.now()))
        return self._find(session).info(self.clock.now())

    def delete(self, session: str, *, epoch: int | None = None) -> None:
        """Delete a session, unless it was deployed again after `epoch`."""
        if epoch is not None and self._find(session).epoch > epoch:
            raise NotFoundError(f"session {session!r} was deployed again")
        self._find(session)
        with self._changed:
            del self._sessions[session]
            self._changed.notify_all()

    def pause(self, session: str) -> SessionInfo:
        """Set a session that runs to PAUSED."""
        return self._switch(session, "RUNNING", "PAUSED")

    def unpause(self, session: str) -> SessionInfo:
        """Set a session that is paused to RUNNING."""
        return self._switch(session, "PAUSED", "RUNNING")

    def force_continue(self, session: str) -> SessionInfo:
        """Refuse: no node is ever lost here."""
        self._find(session)
        raise ConflictError(f"session {session!r} has a majority: 1 of 1 voters are not lost")

    def resume(self, session: str, request: ResumeRequest = RESUME_ALL) -> SessionInfo:
        """Run the cancelled drops of a session that is over."""
        found = self._find(session)
        if not is_over(found.status):
            raise ConflictError(f"session {session!r} is not over: it is {found.status}")
        return self._again(found, ("CANCELLED",), "nothing is left to run")

    def retry(self, session: str, request: RetryRequest = RETRY_ALL) -> SessionInfo:
        """Run the drops in ERROR of a session, and the cancelled ones if it is over; or those of `start`."""
        found = self._find(session)
        if request.start:
            if not is_over(found.status):
                raise ConflictError(f"session {session!r} is not over: it is {found.status}")
            column = np.array([DropState[row.state] for row in found.rows], dtype=np.uint8)
            causes = {row.drop: row.drop for row in found.rows if row.state == "ERROR"}
            again = drops_to_repeat(found.graph, column, causes, request.start)
            self._put(found.again(set(again.drops)))
            return self.session(session)
        for drop in request.drops:
            if _row(found, drop).state != "ERROR":
                raise ConflictError(f"{drop} did not fail")
        states = ("ERROR", "CANCELLED") if is_over(found.status) else ("ERROR",)
        return self._again(found, states, "no drop of this session failed")

    def _again(self, found: FakeSession, states: tuple[str, ...], otherwise: str) -> SessionInfo:
        if not any(row.state == states[0] for row in found.rows):
            raise ConflictError(otherwise)
        self._put(found.again({row.drop for row in found.rows if row.state in states}))
        return self.session(found.name)

    def remains(self, session: str, *, ignore_damage: bool = False) -> tuple[bytes, ...]:
        """Return nothing: only managers ask for it."""
        self._find(session)
        return ()

    def _switch(self, session: str, before: str, after: str) -> SessionInfo:
        found = self._find(session)
        if found.status == before:
            self._put(msgspec.structs.replace(found, status=after, version=found.version + 1))
        return self.session(session)

    # On drops and contents.

    def drops(self, session: str, query: DropQuery = FIRST_DROPS) -> DropPage:
        """Return a page of the drops that match."""
        if query.time:
            return self.drops_at(session, query)
        return self._find(session).page(query)

    def drop(self, session: str, drop: str, query: PageQuery = FIRST_PAGE) -> DropDetail:
        """Return one drop with its neighbours."""
        found = self._find(session)
        detail = found.drop_detail(_row(found, drop), query)
        records = [one.records[one.records["drop"] == detail.drop] for one in self._sections.get(session, ())]
        attempts = tuple(attempt for record in records for attempt in described(found.graph, record))
        return msgspec.structs.replace(detail, attempts=attempts)

    def states(self, session: str, *, since: str = "") -> DropStates:
        """Return the states of all drops, or nothing if the session has not changed."""
        found = self._find(session)
        cursor = f"{found.epoch}.{found.version}"
        if since == cursor:
            return DropStates(cursor=cursor)
        rows = array("I", (row.drop for row in found.rows))
        return DropStates(cursor=cursor, drops=rows.tobytes(), states=bytes(_sign(row) for row in found.rows))

    def failures(self, session: str, query: FailureQuery = FIRST_FAILURES) -> FailureList:
        """Return a page of the root causes that `fail` made."""
        found = sorted(self._find(session).failures, key=lambda failure: -failure.count)
        return FailureList.of(found, query)

    def cancel_drop(
        self,
        session: str,
        drop: str,
        reason: str = "",
        grace: float = GRACE_SECONDS,
    ) -> DropDetail:
        """Cancel one drop that is open, of a session that is not over."""
        found = self._find(session)
        row = _row(found, drop)
        if is_over(found.status):
            raise ConflictError(f"session {session!r} is over")
        if row.drop in found.open_rows():
            self._put(found.with_states({row.drop: "CANCELLED"}, self.clock.now()))
        return self.drop(session, row.oid)

    def log(self, session: str, drop: str) -> Download:
        """Download the log of a drop that failed."""
        found = self._find(session)
        row = _row(found, drop)
        return _download(f"{drop_file_name(row.oid)}.log", "text/plain; charset=utf-8", found.log(row))

    def session_log(self, session: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the lines that `print_lines` appended."""
        self._find(session)
        return _log_page(self._lines.get(session, ()), query, self.name)

    def data(self, session: str, drop: str, query: DataQuery = WHOLE) -> Download:
        """Download the content that `write` wrote, or a part of it."""
        found = self._find(session)
        row = _row(found, drop)
        if row.state in ("EXPIRED", "DELETED"):
            raise GoneError(f"the content of {row.oid!r} was released", where=session)
        if row.drop not in found.content:
            raise NotFoundError(f"drop {row.oid!r} has no content", where=session)
        content = found.content[row.drop]
        etag = f'"{len(content)}-{zlib.crc32(content):08x}"'
        part = requested_part(query, len(content), etag)
        wanted = content if part is None else content[part.first : part.last + 1]
        download = _download(drop_file_name(row.oid), "application/octet-stream", wanted)
        return replace(download, etag=etag, part=part)

    def preview(self, session: str, drop: str, query: PreviewQuery = FIRST_LOOK) -> Preview:
        """Return a preview of the content that `write` wrote."""
        return preview(BytesSource(b"".join(self.data(session, drop).chunks)), query)

    def picture(self, session: str, drop: str, query: PreviewQuery = FIRST_LOOK) -> Download:
        """Return a picture of the content that `write` wrote."""
        data = picture(BytesSource(b"".join(self.data(session, drop).chunks)), query)
        return _download("picture", picture_type(data), data)

    def results(self, session: str, query: ResultsQuery = EVERY_RESULT) -> ResultList:
        """Return all content of completed drops."""
        return self._find(session).results().chosen(query)

    def release(self, session: str, rows: Sequence[int]) -> None:
        """Remove the contents of drops of a session that is FINISHED."""
        found = self._find(session)
        if found.status != "FINISHED":
            raise ConflictError(f"session {session!r} is not FINISHED: it is {found.status}")
        content = {drop: data for drop, data in found.content.items() if drop not in rows}
        self._put(msgspec.structs.replace(found, content=content))

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """Download what `data` returns for each of the drops."""
        found = self._find(session)

        def records() -> Iterator[ContentRecord]:
            for index, one in enumerate(request.wanted):
                try:
                    content = b"".join(self.data(session, oid(found.graph, one.row)).chunks)
                except DropflowError as error:
                    yield ContentError(index, to_body(error))
                    continue
                checksum = zlib.crc32(content)
                start = one.offset if one.checksum == checksum and one.offset <= len(content) else 0
                yield ContentBegin(index, size=len(content), checksum=checksum or None, offset=start)
                yield from (ContentPiece(content[start:]), ContentEnd(checksum))

        return Download(name="contents", content_type=MEDIA_TYPE, size=None, chunks=write_records(records()))

    def journal(self, session: str) -> Download:
        """Download a text in place of a journal."""
        self._find(session)
        return _download(f"{session}.journal", "application/octet-stream", f"journal of {session}".encode() * 1000)

    def times(self, session: str, query: TimesQuery = ALL_TIMES) -> Download:
        """Download the times that `set_times` set."""
        self._find(session)
        parts = []
        for section in self._sections.get(session, ()):
            known = query.known.get(section.node, 0)
            first = known if known <= len(section.records) else 0
            rest = msgspec.structs.replace(section, first=first, records=section.records[first:])
            parts.append(pack_times(rest))
        return _download(f"{session}.times", "application/vnd.dropflow.times", b"".join(parts))

    def graph(self, session: str) -> PhysicalGraph:
        """Return the graph of a session."""
        return self._find(session).graph

    def close(self) -> None:
        """Wake all threads that wait in `watch`."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()


def manager_with_sessions(**settings: Any) -> FakeManager:
    """Return a manager with four sessions: ``running``, ``failed``, ``finished`` and ``cancelled``.

    Parameters
    ----------
    **settings
        Those of `FakeManager`.
    """
    manager = FakeManager(**settings)
    graph = fan(40)
    for name in ("cancelled", "finished", "failed", "running"):
        manager.add(graph, name)
        manager.advance(name, dict.fromkeys(range(6), "COMPLETED"))
        manager.write(name, 0, b"the root of all\n")
        if isinstance(manager.clock, VirtualClock):
            manager.clock.advance(60.0)
    manager.advance("running", {6: "WRITING", 7: "WRITING", 21: "COMPLETED"})
    for drop in (1, 2):
        manager.fail("failed", drop, f"no value {drop}", also=(20 + drop,))
    manager.complete("failed")
    manager.complete("finished")
    manager.write("finished", 21, bytes(range(256)) * 64)
    manager.cancel("cancelled", "not needed any more")
    return manager


def _row(session: FakeSession, drop: str) -> DropInfo:
    """Return the drop with this id, or with the only id that ends in this text."""
    found = find_drop(session.page, drop, session=session.name)
    return next(row for row in session.rows if row.oid == found.oid)


def _sign(row: DropInfo) -> int:
    return RUNNING if row.is_app and row.state == DropState.WRITING.name else DropState[row.state].value


def _download(name: str, content_type: str, content: bytes) -> Download:
    chunks = (content[start : start + _CHUNK] for start in range(0, len(content), _CHUNK))
    return Download(name=name, content_type=content_type, size=len(content), chunks=chunks)


def _log_page(lines: Sequence[LogLine], query: LogQuery, name: str) -> LogPage:
    before = unpack_cursor(query.before).get(name, len(lines))
    after = unpack_cursor(query.after).get(name, -1)
    found = [line for line in lines if after < line.at < before and _is_wanted(line, query)]
    kept = found[: query.limit] if query.is_forward else found[-query.limit :]
    is_cut = len(kept) < len(found)
    first, last = (kept[0].at, kept[-1].at) if kept else (0, 0)
    end = len(lines) - 1
    return LogPage(
        lines=tuple(kept),
        older=pack_cursor({name: after + 1 if query.is_forward else first if is_cut else 0}),
        newer=pack_cursor({name: (last if is_cut else end) if query.is_forward else before - 1}),
        is_first=after < 0 if query.is_forward else not is_cut,
        is_last=not is_cut if query.is_forward else before > end,
        reached=(kept[-1].time if query.is_forward else kept[0].time) if is_cut and kept else 0.0,
    )


def _is_wanted(line: LogLine, query: LogTextQuery) -> bool:
    return (
        query.text.lower() in line.text.lower()
        and query.drop.lower() in f"{line.drop} {line.name}".lower()
        and query.oid in ("", line.drop)
        and query.node in ("", line.node)
        and (not query.level or severity(line.level) >= severity(query.level))
    )
