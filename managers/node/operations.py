"""The operations of a node on its sessions: answers from a session, and calls of its state machine."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.api import operations
from dropflow.api.contents_answer import MEDIA_TYPE as CONTENTS
from dropflow.api.contents_answer import ContentsRequest, DataQuery, Download, write_records
from dropflow.api.drop_queries import find_drop
from dropflow.api.drop_records import FIRST_PAGE, DropDetail, DropPage, DropQuery, PageQuery
from dropflow.api.logs import LogPage, LogQuery
from dropflow.api.node_records import Child
from dropflow.api.operations import OPERATIONS
from dropflow.api.requests import (
    ALL_TIMES,
    CancelRequest,
    DropStates,
    FailureList,
    FailureQuery,
    ResultList,
    ResultsQuery,
    TimesQuery,
)
from dropflow.api.session_records import SessionDetail, SessionInfo
from dropflow.data.file import remove_part
from dropflow.errors import ConflictError, GoneError, NotFoundError, UsageError
from dropflow.execution.content_location import Handle
from dropflow.execution.session import Session
from dropflow.graph.codec import dump
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.graph.text_ids import oid, row_of
from dropflow.ids import drop_file_name
from dropflow.preview.source import Preview, PreviewQuery
from dropflow.states import SessionState
from dropflow.times.octets import RUNNING, TIMES_FILE, TimesSection, pack_times, read_receipts, read_times
from dropflow.times.statistics import AttemptProfile
from dropflow.times.timeline import described
from dropflow.web.times import SessionTimes
from managers.deployment import Deployment, deployment_download
from managers.node import session_records
from managers.node.copy_effects import CopyRecords, ReleasedContents, copied_results, served_copies
from managers.node.downloads import batch, content_download, file_download
from managers.node.finished_sessions import DamagedSession, FinishedSession
from managers.node.hosted_session import HostedSession, receipts_of
from managers.node.previews import ContentPreviews
from managers.node.session_log import SessionLogs, log_download, name_in
from managers.node.session_records import StateLogs
from managers.node.view_states import stopped_part
from managers.recovery.records import FEWEST_VOTERS, StoppedPart

_TIMES = operations.TIMES.gives
_GONE = "submit the graph again; set persist on its node to keep it"

NodeSession = HostedSession | FinishedSession | DamagedSession


class NodeOperations(SessionTimes):
    """The operations on sessions, each a method with the name and the arguments of the operation.

    Parameters
    ----------
    name : str
        Name of the node.
    sessions : callable
        Returns all sessions of the node by name.
    """

    def __init__(self, name: str, sessions: Callable[[], Mapping[str, NodeSession]]) -> None:
        self.name = name
        self._all = sessions
        self._state_logs = StateLogs()
        self._logs = SessionLogs()
        self._previews = ContentPreviews()

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Return the methods by the name of their operation."""
        names = [operation.name for operation in OPERATIONS]
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def close(self) -> None:
        """End the processes that make previews."""
        self._previews.close()

    def decided(self, operation: str, value: Any, **arguments: Any) -> Any:
        """Return the answer of an operation that the state machine has carried out, from its return value."""
        match operation:
            case operations.WATCH.name:
                return self.session(arguments["session"])
            case operations.REBALANCE.name | operations.FORCE_CONTINUE.name | operations.RETRY.name:
                return self.find(arguments["session"]).info()
            case operations.CANCEL.name:
                if value is not None:
                    return value.info()
                # It was being prepared, and was removed.
                text = CancelRequest(reason=arguments["reason"]).text
                state = SessionState.CANCELLED.name
                return SessionInfo(session=arguments["session"], graph="", status=state, text=text)
        return value

    def find(self, session: str) -> NodeSession:
        """Return a session.

        Raises
        ------
        NotFoundError
            The session does not exist here.
        """
        instance = self._all().get(session)
        if instance is None:
            raise NotFoundError(f"there is no session {session!r} on node {self.name}")
        return instance

    # Children: a node has none.

    def children(self) -> tuple[Child, ...]:
        """Return nothing."""
        return ()

    def add_child(self, url: str) -> Child:
        """Refuse it."""
        raise UsageError(f"{self.name} is a node manager, which has no children", where=url, hint="ask an island")

    def remove_child(self, url: str) -> None:
        """Refuse it."""
        self.add_child(url)

    # Whole sessions.

    def sessions(self) -> tuple[SessionInfo, ...]:
        """Return all sessions, the youngest first."""
        infos = [session.info() for session in self._all().values()]
        return tuple(sorted(infos, key=lambda info: (-info.created, info.session)))

    def session(self, session: str) -> SessionDetail:
        """Return one session as it is now."""
        return self.find(session).detail()

    def deployment(self, session: str) -> Download:
        """Return the deployment with which another node joins a session."""
        return deployment_download(joining_deployment(self.find(session)))

    def release(self, session: str, rows: Sequence[int]) -> None:
        """Remove results of a session that is FINISHED, and copies of results of other nodes."""
        release_contents(self.find(session), rows)

    def drops(self, session: str, query: DropQuery) -> DropPage:
        """Return a page of the drops that match."""
        if query.time:
            return self.drops_at(session, query)
        instance = self.find(session)
        return session_records.page(
            instance.session, instance.piece, query, whole=instance.whole, running=_running(instance)
        )

    def drop(self, session: str, drop: str, query: PageQuery) -> DropDetail:
        """Return one drop."""
        instance, row = self.find(session), self._row(session, drop)
        detail = session_records.detail_of(
            instance.session, instance.piece, row, instance.directory.logs, query, running=_running(instance)
        )
        return msgspec.structs.replace(detail, attempts=_attempts(instance, row))

    def cancel_drop(self, session: str, drop: str, reason: str, grace: float) -> DropDetail:
        """Cancel one drop, and return its state afterwards."""
        instance, row = self.find(session), self._row(session, drop)
        if instance.state.is_terminal or not isinstance(instance.session, Session):
            raise ConflictError(f"session {session!r} is over", hint="its drops do not change any more")
        instance.session.cancel_drop(row, reason, grace)
        # After this call, the session has read the request; after the next, it is done.
        instance.session.call(lambda _: None)
        return self.drop(session, drop, FIRST_PAGE)

    def pause(self, session: str) -> SessionInfo:
        """Start no more attempts of a session."""
        return _pause(self.find(session), is_paused=True)

    def unpause(self, session: str) -> SessionInfo:
        """Continue a session after a pause."""
        return _pause(self.find(session), is_paused=False)

    def states(self, session: str, *, since: str = "") -> DropStates:
        """Return the states of the drops, or their changes since an answer."""
        instance = self.find(session)
        return self._state_logs.read(instance.session, instance.piece, since, _running(instance))

    def failures(self, session: str, query: FailureQuery) -> FailureList:
        """Return a page of the root causes."""
        return session_records.failure_list(self.find(session).session, query, self.name)

    def log(self, session: str, drop: str) -> Download:
        """Return the log of a drop."""
        instance = self.find(session)
        name = oid(instance.piece.graph, self._row(session, drop))
        return log_download(instance.directory.logs, name, where=session)

    def session_log(self, session: str, query: LogQuery) -> LogPage:
        """Return a page of the log of the drops that ran on this node."""
        instance = self.find(session)
        return self._logs.page(str(instance.directory.logs), self.name, query, partial(name_in, instance.piece.graph))

    def data(self, session: str, drop: str, query: DataQuery) -> Download:
        """Return the content of a data drop or a part of it; of a drop on another node, the copy here."""
        try:
            row = self._row(session, drop)
        except NotFoundError:
            copy = self._copy(session, drop)
            if copy is None:
                raise
            return content_download(copy, drop_file_name(drop), query)
        name, handle = self._content(session, row)
        return content_download(handle, name, query)

    def preview(self, session: str, drop: str, query: PreviewQuery) -> Preview:
        """Return a bounded part of the content of a data drop."""
        return self._previews.preview(session, self._content(session, self._row(session, drop))[1], query)

    def picture(self, session: str, drop: str, query: PreviewQuery) -> Download:
        """Return the content of a data drop as a picture."""
        name, handle = self._content(session, self._row(session, drop))
        return self._previews.picture(session, handle, name, query)

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """Return the contents of many drops."""
        instance = self.find(session)
        piece = instance.piece
        if request.node != self.name:
            raise NotFoundError(f"this is node {self.name}, not {request.node}", where=session)
        local = [piece.local(content.row) for content in request.wanted]
        rows = [row for row in local if row is not None and piece.is_own[row]]
        # One call to the thread of the session for all drops: a call for each would cost more than to send small ones.
        own: dict[int, Handle | None] = instance.session.call(lambda live: {row: live.content(row) for row in rows})
        # Most requests are for drops of this node: then copies are not read.
        copies = cache(partial(served_copies, instance))

        def find(drop: int) -> Handle:
            row = piece.local(drop)
            if row is not None and row in own:
                return _content_of(instance, row, own[row])
            copy = copies().get(drop)
            if copy is None:
                raise NotFoundError(f"the drop in row {drop} is not on node {self.name}", where=session)
            return copy.handle

        chunks = write_records(batch(request.wanted, find))
        return Download(name=f"{session}-contents", content_type=CONTENTS, size=None, chunks=chunks)

    def _content(self, session: str, row: int) -> tuple[str, Handle]:
        """Return the name of a drop as part of a path, and its content."""
        instance = self.find(session)
        handle = instance.session.call(lambda live: live.content(row))
        return drop_file_name(oid(instance.piece.graph, row)), _content_of(instance, row, handle)

    def results(self, session: str, query: ResultsQuery) -> ResultList:
        """Return the results, and copies of results of other nodes."""
        instance = self.find(session)
        contents = instance.session.call(lambda live: live.contents())
        directory, copies = instance.directory, served_copies(instance)
        if not copies:
            first = query.limit if query.is_in_order else 0
            return session_records.results(instance.piece, contents, directory.path, limit=first).chosen(query)
        # Managers above get all copies, and leave out copies of results whose own nodes answer.
        own = session_records.results(instance.piece, contents, directory.path)
        copied = copied_results(directory.graph_in_view(), copies, directory.path, self.name)
        return msgspec.structs.replace(own, results=own.results + copied)

    def _copy(self, session: str, drop: str) -> Handle | None:
        """Return the copy here of the content of a drop on another node, by its whole id; None if there is none."""
        instance = self.find(session)
        copies = served_copies(instance)
        row = row_of(instance.graph(), drop) if copies else None
        return copies[row].handle if row is not None and row in copies else None

    def journal(self, session: str) -> Download:
        """Return the journal."""
        instance = self.find(session)
        return file_download(instance.directory.journal, f"{session}.dfj", "application/octet-stream")

    def times(self, session: str, query: TimesQuery = ALL_TIMES) -> Download:
        """Return the times of the attempts on this node."""
        instance = self.find(session)
        now, running = instance.session.call(_write_times) if isinstance(instance.session, Session) else (0.0, [])
        path = instance.directory.path / TIMES_FILE
        known = query.known.get(self.name, 0)
        records = read_times(path)
        first = known if known <= len(records) else 0  # the session was deleted, and this is another one of that name
        section = TimesSection(
            node=self.name,
            first=first,
            total=len(records),
            records=records[first:],
            running=_running_records(running, instance.piece),
            now=now,
            received=receipts_of(instance)
            if isinstance(instance, HostedSession)
            else read_receipts(instance.directory.path),
            busy_with=_others_at_work(instance, self._all()),
        )
        data = pack_times(section)
        return Download(name=f"{session}.times", content_type=_TIMES, size=len(data), chunks=iter([data]))

    def graph(self, session: str) -> PhysicalGraph:
        """Return the whole graph."""
        return self.find(session).graph()

    def remains(self, session: str, *, ignore_damage: bool) -> tuple[bytes, ...]:
        """Return the part of a session on this node, encoded."""
        return (msgspec.msgpack.encode(self.part_of(session, ignore_damage=ignore_damage)),)

    def part_of(self, session: str, *, ignore_damage: bool) -> StoppedPart:
        """Return the part of a session on this node, for its continuation."""
        instance = self.find(session)
        return stopped_part(instance, self.name, ignore_damage=ignore_damage)

    def _row(self, session: str, drop: str) -> int:
        """Return the row in the slice of the drop with the name or id `drop`."""
        piece = self.find(session).piece
        row = row_of(piece.graph, drop)
        if row is None:
            row = row_of(piece.graph, find_drop(partial(self.drops, session), drop, session=session).oid)
        if row is None or not piece.is_own[row]:
            raise NotFoundError(f"drop {drop!r} is not on node {self.name}", where=session)
        return row


def release_contents(instance: NodeSession, rows: Sequence[int]) -> None:
    """Remove results of a session, and copies of results of other nodes, by rows of drops in the whole graph.

    Rows without a result or copy here are left out, and so are contents outside of the directory of the session.

    Raises
    ------
    ConflictError
        The session is not FINISHED.
    StorageError
        The directory cannot be written.
    """
    if isinstance(instance, DamagedSession) or instance.state is not SessionState.FINISHED:
        raise ConflictError(
            f"session {instance.name!r} is {instance.state.name}, and not FINISHED: its results are not released"
        )
    piece, directory = instance.piece, instance.directory.path
    local = {row: here for row in rows if (here := piece.local(row)) is not None and piece.is_own[here]}
    contents: dict[int, Handle | None] = instance.session.call(
        lambda live: {row: live.content(here) for row, here in local.items()}
    )
    own = {row: content for row, content in contents.items() if content is not None and _is_inside(content, directory)}
    if own:
        # Recorded first: if this process ends in between, the files do not count as results, and are removed with the
        # session.
        ReleasedContents(directory, instance.epoch).add(own)
        forgotten = {local[row] for row in own}
        if isinstance(instance, FinishedSession):
            instance.forget(forgotten)
        else:
            instance.session.call(lambda live: live.handover.forget(forgotten))
    for content in own.values():
        remove_part(content.location)
    copies = served_copies(instance)
    for copy in (copies[row].handle for row in rows if row in copies):
        if _is_inside(copy, directory):
            CopyRecords(directory).forget(copy.location)
            remove_part(copy.location)


def _is_inside(content: Handle, directory: Path) -> bool:
    return content.kind in ("file", "directory") and Path(content.location).is_relative_to(directory)


def _pause(instance: NodeSession, *, is_paused: bool) -> SessionInfo:
    """Pause or continue a session that is not over, and return its state afterwards."""
    if isinstance(instance.session, Session) and not instance.state.is_terminal:
        instance.session.pause(is_paused=is_paused)
        for _ in range(2):  # after the first call, the session has read the request; after the second, it is done
            instance.session.call(lambda _: None)
    return instance.info()


def _content_of(instance: NodeSession, row: int, handle: Handle | None) -> Handle:
    """Return the content of a drop, if it has one."""
    if handle is not None:
        return handle
    name, session = oid(instance.piece.graph, row), instance.name
    state = instance.session.call(lambda live: live.core.drops.state(row)).name
    if state == "COMPLETED":
        raise GoneError(f"the content of drop {name} {instance.why_gone(row)}", where=session, hint=_GONE)
    raise NotFoundError(f"drop {name} has no content: it is {state}", where=session)


def _running(instance: NodeSession) -> frozenset[int] | None:
    """Return the drops whose attempts run now; None if the session is over."""
    if instance.state.is_terminal or not isinstance(instance.session, Session):
        return None
    return frozenset(instance.session.runner.running)


def _attempts(instance: NodeSession, row: int) -> tuple[AttemptProfile, ...]:
    """Return the attempts of the drop in this row of the slice: ended attempts, and the running one."""
    now, running = instance.session.call(_write_times) if isinstance(instance.session, Session) else (0.0, [])
    records, graph = read_times(instance.directory.path / TIMES_FILE), instance.piece.graph
    own = records[records["drop"] == instance.piece.drop[row]]
    own["drop"] = row
    attempts = described(graph, own)
    for drop, worker, given in running:
        if drop != row:
            continue
        before = records[(records["worker"] == worker) & (worker > 0)]
        ends = before["ready"] + before["waited"] + before["queued"] + before["ran"]
        began = max(given, float(ends.max(initial=0.0)))
        times = AttemptProfile(
            drop=oid(graph, row), attempt=len(own) + 1, waited=began - given, ran=now - began, began=began
        )
        attempts += (msgspec.structs.replace(times, worker=worker, is_running=True),)
    return attempts


def _others_at_work(instance: NodeSession, sessions: Mapping[str, NodeSession]) -> tuple[str, ...]:
    if instance.state.is_terminal or not isinstance(instance.session, Session):
        return ()
    others = {name: other.session for name, other in sessions.items() if other is not instance}
    return busy_with(
        instance.session, {name: session for name, session in others.items() if isinstance(session, Session)}
    )


def busy_with(session: Session, others: Mapping[str, Session]) -> tuple[str, ...]:
    """Return the sessions among `others` whose attempts run, if attempts of `session` wait and none of them runs."""
    attempts = session.attempts()
    if attempts.running or not attempts.queued + attempts.ready:
        return ()
    return tuple(sorted(name for name, other in others.items() if any(other.runner.running.values())))


def _write_times(live: Session) -> tuple[float, list[tuple[int, int, float]]]:
    """Write the records so far; return the time, and the row, worker process and start time of each running attempt."""
    times = live.times
    if times is None:
        return 0.0, []
    times.write()
    return times.now, [(drop, worker, times.given_at(drop)) for drop, worker in live.runner.running.items()]


def _running_records(running: Sequence[tuple[int, int, float]], piece: Slice) -> npt.NDArray[Any]:
    """Return the attempts that run, by rows of the whole graph."""
    records = np.zeros(len(running), RUNNING)
    for number, (row, worker, since) in enumerate(running):
        records[number] = int(piece.drop[row]), int(piece.graph.template[row]), worker, since
    return records


def joining_deployment(instance: HostedSession | FinishedSession | DamagedSession) -> Deployment:
    """Return the deployment of the session with the present placement of its graph, and its present members.

    Raises
    ------
    ConflictError
        The session does not run, or its nodes cannot change.
    GoneError
        Its files cannot be read.
    """
    node = instance.piece.node
    if not isinstance(instance, HostedSession) or instance.state.is_terminal:
        raise ConflictError(f"session {instance.name!r} is {instance.state.name}: no node can join it", where=node)
    view = instance.view
    if not view.members or len(view.members) + 1 + len(view.witnesses) < FEWEST_VOTERS:
        text = f"session {instance.name!r} would have fewer than {FEWEST_VOTERS} voters: no node can join it"
        raise ConflictError(text, where=node)
    with instance.directory.gone_if_unreadable(node):
        dfg = b"".join(dump(instance.directory.graph_in_view()))
    return msgspec.structs.replace(
        instance.deployment,
        view=view.number,
        places=view.members,
        witnesses=view.witnesses,
        nodes=(),
        notes=(),
        decision=b"",
        copies={},
        is_joining=False,
        started=instance.info().started,
        dfg=dfg,
    )
