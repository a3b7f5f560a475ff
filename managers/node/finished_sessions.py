"""Sessions of earlier lives of this node, and older ones of this life: what their directories tell of them.

When a session is over, how it ended is written beside its slice and its journal. A node manager that is started again
finds the directories. Where the end is missing, its predecessor ended while the session ran: then the journal is
replayed once to see how far it had come, and what it had committed. Each session is read on its own. One that cannot be
read is told as FAILED, with the reason, and stays on the disk until it is deleted.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from dropflow.clock import Clock
from dropflow.data.repository import LocalRepository
from dropflow.engine.api import Handle
from dropflow.engine.content_record import ContentRecord
from dropflow.engine.core import Core
from dropflow.engine.events import Lost
from dropflow.engine.journal import Course, read, replay
from dropflow.engine.reports import FailureReport, cause_reports
from dropflow.engine.statistics import snapshot
from dropflow.errors import BadFileError, ConflictError, DropflowError, GoneError, LinkError, StorageError
from dropflow.failure import Failure
from dropflow.graph.slice_codec import parse_slice
from dropflow.graph.slices import Slice
from dropflow.graph.text_ids import oid
from dropflow.ids import session_of_directory
from dropflow.rest.schema import FailureInfo, SessionDetail, SessionInfo
from dropflow.states import DropState, SessionState
from managers.deployment import Deployment
from managers.node import session_views
from managers.node.checksummed_file import read_checksummed, write_checksummed
from managers.node.downloads import refuse_changed

__all__ = ["DamagedSession", "End", "FinishedSession", "find", "remove", "restored", "write_end"]

_log = logging.getLogger(__name__)

_DEPLOYMENT = "deployment.json"
_END = "end.msgpack"
_JOURNAL = "journal.dfj"
_NAMED = 20

T = TypeVar("T")


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended on this node.

    Attributes
    ----------
    whole : int
        Drops of the whole graph.
    detail : SessionDetail
        The last picture of it.
    failures : tuple of FailureInfo
        All root causes.
    contents : dict of int to ContentRecord
        What is left, by row of the slice.
    """

    whole: int
    detail: SessionDetail
    failures: tuple[FailureInfo, ...] = ()
    contents: dict[int, ContentRecord] = {}


def write_end(directory: Path, end: End) -> None:
    """Leave it for later lives of the node.

    Raises
    ------
    StorageError
        The directory cannot be written.
    """
    write_checksummed(directory / _END, end)


def remove(directory: Path) -> None:
    """Remove the directory of a session that is over; one that is gone already is no error.

    Raises
    ------
    StorageError
        It cannot be removed.
    """
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StorageError(f"cannot be removed: {error.strerror}", where=str(directory)) from error


def find(sessions: Path, node: str, clock: Clock) -> dict[str, "FinishedSession | DamagedSession"]:
    """The sessions whose directories are in `sessions`, by name.

    Directories of sessions that never were prepared to the end are removed.
    """
    found: dict[str, FinishedSession | DamagedSession] = {}
    for directory in sorted(path for path in sessions.iterdir() if path.is_dir()):
        if _is_unprepared(directory):
            shutil.rmtree(directory, ignore_errors=True)
            continue
        past: FinishedSession | DamagedSession
        try:
            past = restored(directory, node, clock)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one session, the others are served
            _log.warning("the session in %s cannot be read: %s", directory, error)
            past = DamagedSession(directory, node, error)
        found[past.name] = past
    return found


def _is_unprepared(directory: Path) -> bool:
    """Whether nothing ever ran here: the journal is the last file that is made before anything does."""
    if (directory / _JOURNAL).exists() or (directory / _END).exists():
        return False
    return not any(path.exists() and any(path.iterdir()) for path in (directory / "files", directory / "results"))


class _OverSession:
    """What every session that is over answers as a hosted session."""

    def __init__(self, directory: Path, detail: SessionDetail) -> None:
        self.directory = directory
        self.name = detail.session
        self.epoch = detail.epoch
        self._detail = detail

    def info(self) -> SessionInfo:
        """Return the session as one row."""
        return SessionInfo(**{name: getattr(self._detail, name) for name in SessionInfo.__struct_fields__})

    def detail(self) -> SessionDetail:
        """Return what was known last."""
        return self._detail

    def watch(self, version: int, seconds: float) -> SessionDetail:
        """Return `detail`, which does not change any more."""
        del version, seconds
        return self._detail

    def start(self) -> None:
        """Refuse.

        Raises
        ------
        ConflictError
            Always.
        """
        raise ConflictError(f"session {self.name!r} is over", hint="submit the graph again")

    def cancel(self, reason: str) -> None:
        """Do nothing: the session is over."""

    def remove(self) -> None:
        """Remove the directory of the session.

        Raises
        ------
        StorageError
            The directory cannot be removed.
        """
        remove(self.directory)


class FinishedSession(_OverSession):
    """A session that is over, and was before this process began.

    Parameters
    ----------
    directory : Path
        Its directory.
    end : End
        How it ended.

    Raises
    ------
    KeyError
        The end has a status that this version does not know.
    """

    finding = ""

    def __init__(self, directory: Path, end: End) -> None:
        super().__init__(directory, end.detail)
        self.whole = end.whole
        self.end = end
        self.state = SessionState[end.detail.status]

    @property
    def session(self) -> "FinishedSession":
        """What answers questions: itself."""
        return self

    @cached_property
    def piece(self) -> Slice:
        """What this node held.

        Raises
        ------
        GoneError
            It cannot be read.
        """
        with self._readable():
            return _slice(self.directory)

    @property
    def core(self) -> Core:
        """The engine's state at the end.

        Raises
        ------
        GoneError
            The journal cannot be read.
        """
        return self._course.core

    @cached_property
    def _course(self) -> Course:
        with self._readable():
            course = _replayed(self.directory, self.piece)
        _give_up(course.core, self.piece.node)
        return course

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except DropflowError as error:
            raise GoneError(
                f"what node {', '.join(self.end.detail.nodes)} kept of session {self.name!r} cannot be read: {error}",
                hint=f"look at the files in {self.directory}, or delete the session",
            ) from error

    # As the engine's session.

    def call(self, function: Callable[["FinishedSession"], T]) -> T:
        """Return `function(self)`."""
        return function(self)

    def handle(self, drop: int) -> Handle | None:
        """The content of a drop, if it is left."""
        return self._contents.get(drop)

    def held(self) -> Mapping[int, Handle]:
        """All contents that are left."""
        return self._contents

    def why_gone(self, drop: int) -> str:
        """Return why the content of a completed drop is not left."""
        if drop in self._course.released:
            return "was released after its last consumer"
        return f"was only in memory, and went with the process that ran session {self.name!r}"

    @cached_property
    def _contents(self) -> dict[int, Handle]:
        found = ((drop, record.handle(self.directory)) for drop, record in self.end.contents.items())
        return {drop: handle for drop, handle in found if handle is not None}

    def reports(self) -> Sequence[FailureReport]:
        """All root causes."""
        return tuple(
            FailureReport(
                drop=failure.drop,
                name=failure.name,
                code=failure.code,
                kind=failure.kind,
                text=failure.text if failure.node else "",  # the words are those of the node that knows
                hint=failure.hint,
                detail=failure.detail,
                count=failure.count,
                attempts=failure.attempts,
                log=str(self.directory / "logs") if failure.has_log else "",
                row=failure.row,
                drops=failure.drops,
            )
            for failure in self.end.failures
        )


class DamagedSession(_OverSession):
    """A session that was before this process began, and of which what was kept cannot be read.

    It is told as FAILED, because nothing of it can be had from this node, and can be deleted like any other.

    Parameters
    ----------
    directory : Path
        Its directory.
    node : str
        Name of this node.
    error : Exception
        Why it cannot be read.
    """

    whole = 0
    state = SessionState.FAILED

    def __init__(self, directory: Path, node: str, error: Exception) -> None:
        name = session_of_directory(directory.name)
        reason = str(error) if isinstance(error, DropflowError) else f"{type(error).__name__}: {error}"
        self.finding = f"what node {node} kept of session {name!r} cannot be read: {reason}"
        self._hint = f"look at the files in {directory}, or delete the session"
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
        changed = directory.stat().st_mtime
        detail = SessionDetail(
            session=name,
            graph="",
            status=self.state.name,
            epoch=_epoch(directory),
            version=int(changed * 1000),
            finished=changed,
            nodes=(node,),
            text=self.finding,
            failures=(session_views.failure_info(report, node),),
        )
        super().__init__(directory, detail)

    @property
    def session(self) -> "DamagedSession":
        """What answers questions: itself."""
        return self

    @property
    def piece(self) -> Slice:
        """Refuse: the slice cannot be read.

        Raises
        ------
        GoneError
            Always.
        """
        raise self._unreadable()

    @property
    def core(self) -> Core:
        """Refuse."""
        raise self._unreadable()

    def handle(self, drop: int) -> Handle | None:  # noqa: ARG002 - one protocol
        """Refuse."""
        raise self._unreadable()

    def held(self) -> Mapping[int, Handle]:
        """Refuse."""
        raise self._unreadable()

    def _unreadable(self) -> GoneError:
        return GoneError(self.finding, hint=self._hint)

    def call(self, function: Callable[["DamagedSession"], T]) -> T:
        """Return `function(self)`."""
        return function(self)

    def reports(self) -> Sequence[FailureReport]:
        """That it cannot be read."""
        return (self._report,)


def restored(directory: Path, node: str, clock: Clock) -> FinishedSession:
    """Return the session whose directory this is; no process may be at work in it.

    Raises
    ------
    DropflowError, KeyError
        It cannot be read.
    """
    if (directory / _END).exists():
        try:
            return FinishedSession(directory, read_checksummed(directory / _END, End))
        except DropflowError as error:
            _log.warning("the end of the session in %s is derived from its journal again: %s", directory, error)
    deployment = read_checksummed(directory / _DEPLOYMENT, Deployment)
    LocalRepository(directory, deployment.session, clock).close()  # sweeps up what was under way
    end = _interrupted(directory, deployment, node)
    try:
        write_end(directory, end)
    except StorageError as error:
        _log.warning("the end of session %s will be derived again: %s", deployment.session, error)
    return FinishedSession(directory, end)


def _epoch(directory: Path) -> int:
    """The deployment of a session, from the first record that can be read; 0 if none can.

    A manager above takes what nodes tell as parts of one session only if they agree on it.
    """
    sources: tuple[Callable[[], int], ...] = (
        lambda: read_checksummed(directory / _DEPLOYMENT, Deployment).epoch,
        lambda: read_checksummed(directory / _END, End).detail.epoch,
        lambda: read(directory / _JOURNAL)[0].epoch,
    )
    for source in sources:
        with suppress(DropflowError):
            return source()
    return 0


def _interrupted(directory: Path, deployment: Deployment, node: str) -> End:
    """The end of a session whose node manager ended before it."""
    piece = _slice(directory)
    course = _replayed(directory, piece)
    core = course.core
    was_over = core.status.is_terminal
    lost = _give_up(core, node)
    found = _failures(directory, piece, course)
    if not was_over:
        found.insert(0, _lost(piece, core, lost))
    statistics = snapshot(core, 0.0)
    ended = (directory / _JOURNAL).stat().st_mtime
    contents = {drop: record for drop, record in course.contents.items() if _is_left(drop, record, course, directory)}
    detail = SessionDetail(
        session=deployment.session,
        graph=deployment.graph,
        status=core.status.name,
        epoch=deployment.epoch,
        version=int(ended * 1000),
        drops=statistics.drops,
        settled=statistics.settled,
        states=session_views.totals(statistics),
        created=deployment.created,
        started=course.started,
        finished=ended,
        seconds=max(0.0, ended - course.started),
        nodes=(node,),
        text="" if was_over else lost.text,
        whole=deployment.drops,
        logical=session_views.logical_nodes(statistics),
        failures=tuple(found[:100]),
        notes=(*deployment.notes, *_missing(piece, contents, directory)),
    )
    return End(whole=deployment.drops, detail=detail, failures=tuple(found), contents=contents)


def _is_left(drop: int, record: ContentRecord, course: Course, directory: Path) -> bool:
    """Whether there is a content, or should be one: a file that was released may be there still."""
    handle = record.handle(directory)
    if handle is None:
        return False
    return drop not in course.released or (bool(handle.location) and os.path.lexists(handle.location))


def _missing(piece: Slice, contents: Mapping[int, ContentRecord], directory: Path) -> Iterator[str]:
    """What is not there any more of what was committed, or is not of the size that it had."""
    for drop, record in contents.items():
        handle = record.handle(directory)
        if handle is not None:
            try:
                refuse_changed(handle)
            except DropflowError as error:
                yield f"the content of {oid(piece.graph, drop)} is lost: {error.text}"


def _lost(piece: Slice, core: Core, failure: Failure) -> FailureInfo:
    """The node itself as a root cause."""
    states = np.frombuffer(core.drops.states, dtype=np.uint8)
    given_up = np.flatnonzero(piece.is_own & (states == DropState.CANCELLED.value)).tolist()
    return FailureInfo(
        drop="",
        name=piece.node,
        node=piece.node,
        code=failure.code,
        kind=failure.kind,
        text=failure.text,
        hint=failure.hint,
        count=len(given_up),
        drops=tuple(oid(piece.graph, drop) for drop in given_up[:_NAMED]),
    )


def _failures(directory: Path, piece: Slice, course: Course) -> list[FailureInfo]:
    """The root causes of the drops in ERROR here; of those on other nodes, the row."""
    reports = cause_reports(piece.graph, course.core, str(directory), course.failures, rows=piece.drop.data)
    return [session_views.failure_info(report, piece.node) for report in reports]


def _slice(directory: Path) -> Slice:
    path = directory / "slice.dfs"
    try:
        return parse_slice(path.read_bytes(), where=str(path))
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _replayed(directory: Path, piece: Slice) -> Course:
    return replay(piece.graph, directory / _JOURNAL, remote=piece.ghosts.tolist())


def _give_up(core: Core, node: str) -> Failure:
    """End what was under way, as for a node that is lost: this one."""
    failure = Failure(
        code=LinkError.code,
        kind="NodeLost",
        text=f"the manager of node {node} ended while the session ran",
        hint="submit the graph again",
        retryable=True,
    )
    if not core.status.is_terminal:
        core.handle([Lost(node, failure)])
    return failure
