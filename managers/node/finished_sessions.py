"""Sessions that are over: they are found in their directories, and answer queries from there.

When a session is over, its end is written beside its graph and its journal. If the end is missing, the process ended
while the session ran. Then the journal is replayed once, to find the states of its drops and the contents that it had
committed. Each session is read separately. A session that cannot be read is FAILED, with the reason, and stays on the
disk until it is deleted.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec
import numpy as np

from dropflow.api.requests import CancelRequest
from dropflow.api.session_records import FailureInfo, SessionDetail, SessionInfo
from dropflow.data.repository import remove_uncommitted
from dropflow.data.survival import replaced_contents
from dropflow.data.workspace import REMOVED, Workspace, remove_rest
from dropflow.errors import BadFileError, DropflowError, GoneError, StorageError
from dropflow.execution.content_location import ContentRecord, Handle
from dropflow.execution.decisions.continuation import recomputed_drops
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import Abandon, Cancel, KnownStates, Lost
from dropflow.execution.failure_table import Fault
from dropflow.execution.journal import ReplayedSession
from dropflow.execution.statistics import FailureReport, RankedCauses, applications_run, cause_reports, snapshot
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.graph.text_ids import oid
from dropflow.reuse.log import taken_results
from dropflow.sessions import summaries
from dropflow.states import DropState, SessionState
from managers.deployment import Deployment
from managers.node.copy_effects import RELEASED, ReleasedContents
from managers.node.directory import SessionDirectory, SessionEnd
from managers.node.downloads import refuse_changed
from managers.recovery.records import node_lost

REPLACED = "was replaced by that of a later drop, which wrote the same file"
"""Why a content of an earlier iteration of a loop does not exist any more."""
T = TypeVar("T")
_log = logging.getLogger(__name__)
MOST_FAILURES = 100
"""Failures that the details of a session on one node name."""
_MOST_LOST_DROPS = 20
"""Drops that the failure of a lost node names."""


# Root causes of a session that is over, as they were written when it ended.


class WrittenFailures:
    """The failure table of a session that is over: see `managers.node.session_records.FailureReports`.

    Parameters
    ----------
    reports : sequence of FailureReport
        Lost nodes first, then those that put the most drops in ERROR.
    """

    def __init__(self, reports: Sequence[FailureReport]) -> None:
        self._reports = reports

    @property
    def lost_count(self) -> int:
        """The number of lost nodes. Their reports come first."""
        return len(self._reports) - len(self._ranked.rows)

    def causes(self) -> RankedCauses:
        """Return the drops that are root causes, without lost nodes."""
        return self._ranked

    @cached_property
    def _ranked(self) -> RankedCauses:
        drops = [report for report in self._reports if report.row >= 0]
        rows = np.array([drop.row for drop in drops], np.int64)
        counts = np.array([drop.count for drop in drops], np.int64)
        return RankedCauses(rows, counts, np.array([drop.took_along for drop in drops], np.int64), rows)

    def reports(self, start: int = 0, stop: int | None = None) -> Sequence[FailureReport]:
        """Return the reports of all root causes, or of a range."""
        return self._reports[start:stop]

    def reports_in(self, rows: Sequence[int]) -> Sequence[FailureReport]:
        """Return the root causes among drops, whose rows are those in the whole graph."""
        wanted = {*rows}
        return tuple(report for report in self._reports if report.row in wanted)


# Sessions that are over: answers to queries from their directories.
#
# They have the methods of a `HostedSession`. A running session answers some queries in its own thread; these objects
# answer them from files.


class _OverSession:
    """The common part of finished and damaged sessions."""

    def __init__(self, directory: SessionDirectory, detail: SessionDetail) -> None:
        self.directory = directory
        self.name = detail.session
        self.epoch = detail.epoch
        self._detail = detail

    def info(self) -> SessionInfo:
        """Return the session as one row."""
        return SessionInfo(**{name: getattr(self._detail, name) for name in SessionInfo.__struct_fields__})

    def detail(self) -> SessionDetail:
        """Return the session with its logical nodes and failures."""
        return self._detail


class FinishedSession(_OverSession):
    """A session that ended in an earlier process of this node, or long ago.

    Parameters
    ----------
    directory : SessionDirectory
        Its directory.
    end : SessionEnd
        How it ended.

    Raises
    ------
    KeyError
        The end has a status that does not exist in this version.
    """

    finding = ""

    def __init__(self, directory: SessionDirectory, end: SessionEnd) -> None:
        super().__init__(directory, end.detail)
        self.whole = end.whole
        self.end = end
        self.state = SessionState[end.detail.status]
        self.is_certain = end.is_certain
        self.ends = tuple(msgspec.msgpack.encode(node_end) for node_end in end.detail.ends)

    @property
    def session(self) -> "FinishedSession":
        """The object that `call` is a method of: this one."""
        return self

    @cached_property
    def piece(self) -> Slice:
        """The drops of this node.

        Raises
        ------
        GoneError
            It cannot be read.
        """
        with self.directory.gone_if_unreadable(self._node):
            return self.directory.slice(self._node)

    def graph(self) -> PhysicalGraph:
        """Return the whole graph.

        Raises
        ------
        GoneError
            It cannot be read.
        """
        with self.directory.gone_if_unreadable(self._node):
            return self.directory.graph()

    @property
    def core(self) -> Core:
        """The session's state at the end.

        Raises
        ------
        GoneError
            The journal cannot be read.
        """
        return self._replayed.core

    @property
    def known(self) -> KnownStates | None:
        """The states with which it continued an earlier session; None if it did not."""
        return self._replayed.known

    @cached_property
    def _replayed(self) -> ReplayedSession:
        with self.directory.gone_if_unreadable(self._node):
            replayed = self.directory.replay(self.piece)
        end_interrupted(replayed.core, self.piece.node, self.directory.cancel_request())
        return replayed

    @property
    def _node(self) -> str:
        """The name of this node when the session ended."""
        return self.end.detail.nodes[0]

    # As `dropflow.execution.session.Session`.

    def call(self, function: Callable[["FinishedSession"], T]) -> T:
        """Return `function(self)`."""
        return function(self)

    def content(self, drop: int) -> Handle | None:
        """Return the content of a drop, if it exists."""
        return self._contents.get(drop)

    @property
    def missing(self) -> Mapping[int, float]:
        """Share of missing data when a content was made, if not 0, by drop."""
        return self._replayed.missing

    def contents(self) -> Mapping[int, Handle]:
        """Return all contents that exist."""
        return self._contents

    def why_gone(self, drop: int) -> str:
        """Return why the content of a completed drop does not exist any more."""
        if drop in replaced_contents(self._replayed.contents):
            return REPLACED
        if drop in self._released:
            return RELEASED
        if drop in self._replayed.released:
            return "was released after its last consumer"
        return f"was only in memory, and was lost when the process that ran session {self.name!r} ended"

    def faults(self, drop: int) -> Sequence[Fault]:
        """Return the infrastructure faults of a drop, oldest first."""
        return self._replayed.faults.get(drop, ())

    @cached_property
    def _contents(self) -> dict[int, Handle]:
        handles = ((drop, record.in_directory(self.directory.path)) for drop, record in self.end.contents.items())
        released = self._released
        return {drop: handle for drop, handle in handles if handle is not None and drop not in released}

    @property
    def _released(self) -> frozenset[int]:
        """The rows in the slice of the drops whose contents a client has released."""
        rows = ReleasedContents(self.directory.path, self.epoch).rows()
        local = map(self.piece.local, rows) if rows else ()
        return frozenset(row for row in local if row is not None)

    def forget(self, rows: Collection[int]) -> None:
        """Forget the contents of drops of the slice that were released by a client."""
        # A new mapping: other threads may be reading the old one.
        self._contents = {drop: handle for drop, handle in self._contents.items() if drop not in rows}

    @cached_property
    def failure_table(self) -> WrittenFailures:
        """All root causes."""
        logs = str(self.directory.logs)
        return WrittenFailures([summaries.written_report(failure, logs) for failure in self.end.failures])


class DamagedSession(_OverSession):
    """A session of an earlier process of this node whose files cannot be read.

    It is FAILED, and can be deleted like any other.

    Parameters
    ----------
    directory : SessionDirectory
        Its directory.
    node : str
        Name of this node.
    error : Exception
        Why it cannot be read.
    """

    whole = 0
    state = SessionState.FAILED
    is_certain = False
    ends = ()

    def __init__(self, directory: SessionDirectory, node: str, error: Exception) -> None:
        name = directory.session
        reason = str(error) if isinstance(error, DropflowError) else f"{type(error).__name__}: {error}"
        self.finding = f"the files of session {name!r} on node {node} cannot be read: {reason}"
        self._hint = f"look at the files in {directory.path}, or delete the session"
        report = FailureReport(
            drop="",
            name=node,
            code=BadFileError.code,
            kind="DamagedSession",
            text=self.finding,
            hint=self._hint,
            count=0,
        )
        self._report = report
        changed = directory.changed
        detail = SessionDetail(
            session=name,
            graph="",
            status=self.state.name,
            epoch=directory.epoch(),
            version=int(changed * 1000),
            finished=changed,
            nodes=(node,),
            text=self.finding,
            failures=(summaries.failure_info(report, node),),
        )
        super().__init__(directory, detail)

    @property
    def session(self) -> "DamagedSession":
        """The object that `call` is a method of: this one."""
        return self

    def _refuse(self, *_: object) -> NoReturn:
        """Raise the error with which the files of the session could not be read.

        Raises
        ------
        GoneError
            Always.
        """
        raise GoneError(self.finding, hint=self._hint)

    graph = content = contents = why_gone = _refuse
    piece, core = property(_refuse), property(_refuse)

    def call(self, function: Callable[["DamagedSession"], T]) -> T:
        """Return `function(self)`."""
        return function(self)

    @property
    def failure_table(self) -> WrittenFailures:
        """The only root cause: the session cannot be read."""
        return WrittenFailures((self._report,))


def end_interrupted(core: Core, node: str, request: CancelRequest | None) -> Failure | None:
    """End the attempts that were running when the process of this node ended.

    If the session was to be cancelled, it is CANCELLED. Otherwise it ends as after the loss of this node, and that
    failure is returned.
    """
    if core.status.is_terminal:
        return None
    if request is not None or core.status is SessionState.CANCELLING:
        core.handle([Cancel(), Abandon()])
        return None
    hint = "continue the session with 'dropflow resume'"
    failure = node_lost(f"the manager of node {node} ended while the session ran", hint)
    core.handle([Lost(node, failure)])
    return failure


def recover_all(sessions: Path, node: str) -> dict[str, FinishedSession | DamagedSession]:
    """Return the sessions whose directories are in `sessions`, by name.

    Directories of sessions that were never prepared to the end are removed. Those that are of no session stay, and are
    shown as damaged sessions.
    """
    recovered: dict[str, FinishedSession | DamagedSession] = {}
    remove_rest(sessions)
    for path in sorted(path for path in sessions.iterdir() if path.is_dir() and not path.name.startswith(REMOVED)):
        directory = SessionDirectory(path)
        session: FinishedSession | DamagedSession
        try:
            with suppress(DropflowError):  # if this fails, the session is damaged, which is found below
                directory.next.settle()
                directory.next.discard()
            if directory.is_unprepared:
                directory.discard()
                continue
            session = recover(directory, node)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one session, the others are served
            _log.warning("the session in %s cannot be read: %s", path, error)
            session = DamagedSession(directory, node, error)
        recovered[session.name] = session
    return recovered


def recover(directory: SessionDirectory, node: str) -> FinishedSession:
    """Return the session in a directory in which no process is at work.

    Raises
    ------
    DropflowError, KeyError
        The session cannot be read.
    """
    try:
        end = directory.end()
    except DropflowError as error:
        _log.warning("the end of the session in %s is derived from its journal again: %s", directory.path, error)
        end = None
    if end is not None:
        return FinishedSession(directory, end)
    deployment = directory.deployment()
    remove_uncommitted(Workspace(os.path.abspath(directory.path), deployment.session))  # noqa: PTH100 - keeps links
    end = _end_of_interrupted(directory, deployment, node)
    try:
        directory.write_end(end)
    except StorageError as error:
        _log.warning("the end of session %s will be derived again: %s", deployment.session, error)
    return FinishedSession(directory, end)


def _end_of_interrupted(directory: SessionDirectory, deployment: Deployment, node: str) -> SessionEnd:
    """Return the end of a session whose process ended before the session."""
    piece = directory.slice(node)
    replayed = directory.replay(piece)
    core = replayed.core
    request = directory.cancel_request()
    lost = end_interrupted(core, node, request)
    failures = _failures(directory, piece, replayed)
    if lost is not None:
        failures.insert(0, _lost_node(piece, core, lost))
    cancelled = (request or CancelRequest()).text if core.status is SessionState.CANCELLED else ""
    statistics = snapshot(core, 0.0)
    running = [0] * len(statistics.nodes)
    started, ended = deployment.started or replayed.started, directory.journal.stat().st_mtime
    own = {row: record for row, record in replayed.contents.items() if piece.is_own[row]}
    replaced = replaced_contents(own)
    contents = {
        row: record for row, record in own.items() if row not in replaced and _is_left(row, record, replayed, directory)
    }
    reused = taken_results(directory.path) if deployment.reuse else ()
    detail = SessionDetail(
        session=deployment.session,
        graph=deployment.graph,
        status=core.status.name,
        epoch=deployment.epoch,
        version=int(ended * 1000),
        drops=statistics.drops,
        settled=statistics.settled,
        counts=summaries.counts_of(statistics, running),
        states=statistics.states,
        created=deployment.created,
        joined_by=deployment.joined_by,
        request_id=deployment.request_id,
        user=deployment.user,
        started=started,
        finished=ended,
        seconds=max(0.0, ended - started),
        rate=statistics.settled / (ended - started) if 0 < started < ended else 0.0,
        nodes=(node,),
        text=cancelled if lost is None else lost.text,
        whole=deployment.drops,
        logical=summaries.logical_nodes(statistics, running),
        failures=tuple(failures[:MOST_FAILURES]),
        recomputed=deployment.recomputed_before(node) + recomputed_drops(piece.graph, replayed.known),
        computed=applications_run(statistics) - len(reused),
        reused=len(reused),
        notes=(*deployment.notes, *_damage(piece, contents, directory)),
    )
    return SessionEnd(whole=deployment.drops, detail=detail, failures=tuple(failures), contents=contents)


def _is_left(row: int, record: ContentRecord, replayed: ReplayedSession, directory: SessionDirectory) -> bool:
    """Return whether a content exists, or should exist: a file that was released may still be there."""
    handle = record.in_directory(directory.path)
    if handle is None:
        return False
    return row not in replayed.released or (bool(handle.location) and os.path.lexists(handle.location))


def _damage(piece: Slice, contents: Mapping[int, ContentRecord], directory: SessionDirectory) -> Iterator[str]:
    """Yield a note for each content that was committed and is missing, or has another size."""
    for row, record in contents.items():
        handle = record.in_directory(directory.path)
        if handle is not None:
            try:
                refuse_changed(handle)
            except DropflowError as error:
                yield f"the content of {oid(piece.graph, row)} is lost: {error.text}"


def _lost_node(piece: Slice, core: Core, failure: Failure) -> FailureInfo:
    """Return the loss of this node as a root cause."""
    states = np.frombuffer(core.drops.states, dtype=np.uint8)
    cancelled = np.flatnonzero(piece.is_own & (states == DropState.CANCELLED.value)).tolist()
    lost = [row for row in cancelled if row not in core.drops.cancelled]
    return FailureInfo(
        drop="",
        name=piece.node,
        node=piece.node,
        code=failure.code,
        kind=failure.kind,
        text=failure.text,
        hint=failure.hint,
        count=len(lost),
        drops=tuple(oid(piece.graph, row) for row in lost[:_MOST_LOST_DROPS]),
    )


def _failures(directory: SessionDirectory, piece: Slice, replayed: ReplayedSession) -> list[FailureInfo]:
    """Return the root causes of the drops in ERROR here. For a cause on another node, only the row is known."""
    reports = cause_reports(piece.graph, replayed.core, str(directory.path), replayed.failures, rows=piece.drop.data)
    return [summaries.failure_info(report, piece.node) for report in reports]
