"""Sessions of earlier lives of this node, and older ones of this life: what their directories tell of them.

When a session is over, how it ended is written beside its slice and its journal. A node manager that is started again
finds the directories: where that is missing, its predecessor ended while the session ran, and the journal is replayed
once to see how far it had come.
"""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from dropflow.clock import Clock
from dropflow.data.keeper import LocalKeeper
from dropflow.engine.api import Handle
from dropflow.engine.core import Core
from dropflow.engine.events import Assembled, Failed, Lost
from dropflow.engine.journal import read
from dropflow.engine.reports import FailureReport, cause_report
from dropflow.engine.statistics import errors_by_cause, snapshot
from dropflow.errors import ConflictError, DropflowError, LinkError, StorageError
from dropflow.failure import Failure
from dropflow.graph.names import oid
from dropflow.graph.slicing import Slice, parse_slice
from dropflow.rest.schema import FailureInfo, SessionDetail, SessionInfo
from dropflow.states import DropState, SessionState
from managers.deployment import Deployment
from managers.node import picture

__all__ = ["End", "PastSession", "find", "remove", "restored", "write_end"]

_log = logging.getLogger(__name__)

_END = "end.msgpack"
_NAMED = 20

T = TypeVar("T")


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended on this node.

    Attributes
    ----------
    detail : SessionDetail
        The last picture of it.
    failures : tuple of FailureInfo
        All root causes.
    contents : dict of int to Handle
        Files and directories that are left, by row of the slice.
    """

    detail: SessionDetail
    failures: tuple[FailureInfo, ...] = ()
    contents: dict[int, Handle] = {}


def write_end(directory: Path, end: End) -> None:
    """Leave it for later lives of the node.

    Raises
    ------
    OSError
        The directory cannot be written.
    """
    passing = directory / f"{_END}.part"
    passing.write_bytes(msgspec.msgpack.encode(end))
    passing.replace(directory / _END)


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


def find(sessions: Path, node: str, clock: Clock) -> dict[str, "PastSession"]:
    """The sessions whose directories are in `sessions`, by name.

    Directories of sessions that never were prepared to the end are removed; what cannot be read is left alone.
    """
    found = {}
    for directory in sorted(path for path in sessions.iterdir() if path.is_dir()):
        if not (directory / "journal.dfj").exists():
            shutil.rmtree(directory, ignore_errors=True)  # the last thing that is made, before anything runs
            continue
        try:
            past = restored(directory, node, clock)
        except (DropflowError, OSError, msgspec.MsgspecError) as error:
            _log.warning("the session in %s cannot be restored: %s", directory, error)
        else:
            found[past.name] = past
    return found


class PastSession:
    """A session that is over, and was before this process began.

    Parameters
    ----------
    directory : Path
        Its directory.
    deployment : Deployment
        How it was deployed.
    end : End
        How it ended.
    """

    def __init__(self, directory: Path, deployment: Deployment, end: End) -> None:
        self.directory = directory
        self.name = deployment.session
        self.epoch = deployment.epoch
        self.whole = deployment.drops
        self.end = end
        self.state = SessionState[end.detail.status]

    @property
    def session(self) -> "PastSession":
        """What answers questions: itself."""
        return self

    @cached_property
    def piece(self) -> Slice:
        """What this node held.

        Raises
        ------
        StorageError, BadFileError
            It cannot be read.
        """
        return _slice(self.directory)

    @cached_property
    def core(self) -> Core:
        """The engine's state at the end."""
        core = _replayed(self.directory, self.piece)[0]
        _give_up(core, self.piece.node)
        return core

    # As a hosted session.

    def info(self) -> SessionInfo:
        """In one row."""
        return SessionInfo(**{name: getattr(self.end.detail, name) for name in SessionInfo.__struct_fields__})

    def detail(self) -> SessionDetail:
        """As it was last."""
        return self.end.detail

    def watch(self, version: int, seconds: float) -> SessionDetail:
        """As `detail`: nothing will change."""
        del version, seconds
        return self.end.detail

    def start(self) -> None:
        """Refuse.

        Raises
        ------
        ConflictError
            Always.
        """
        raise ConflictError(f"session {self.name!r} is over", hint="submit the graph again")

    def cancel(self, reason: str) -> None:
        """Nothing to do: it is over."""

    def remove(self) -> None:
        """Remove what it left behind.

        Raises
        ------
        StorageError
            The directory cannot be removed.
        """
        remove(self.directory)

    # As the engine's session.

    def ask(self, question: Callable[["PastSession"], T]) -> T:
        """The answer to `question`."""
        return question(self)

    def handle(self, drop: int) -> Handle | None:
        """The content of a drop, if it is left."""
        return self.end.contents.get(drop)

    def held(self) -> Mapping[int, Handle]:
        """All contents that are left."""
        return self.end.contents

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


def restored(directory: Path, node: str, clock: Clock) -> PastSession:
    """The session whose directory this is; nobody may be at work in it.

    Raises
    ------
    DropflowError, OSError, msgspec.MsgspecError
        It cannot be read.
    """
    deployment = msgspec.json.decode((directory / "deployment.json").read_bytes(), type=Deployment)
    try:
        end = msgspec.msgpack.decode((directory / _END).read_bytes(), type=End)
    except (OSError, msgspec.MsgspecError):
        LocalKeeper(directory, deployment.session, clock).close()  # sweeps up what was under way
        end = _interrupted(directory, deployment, node)
        write_end(directory, end)
    return PastSession(directory, deployment, end)


def _interrupted(directory: Path, deployment: Deployment, node: str) -> End:
    """The end of a session whose node manager ended before it."""
    piece = _slice(directory)
    core, failures, started = _replayed(directory, piece)
    was_over = core.status.is_terminal
    lost = _give_up(core, node)
    found = _failures(directory, piece, core, failures)
    if not was_over:
        found.insert(0, _lost(piece, core, lost))
    statistics = snapshot(core, 0.0)
    ended = (directory / "journal.dfj").stat().st_mtime
    detail = SessionDetail(
        session=deployment.session,
        graph=deployment.graph,
        status=core.status.name,
        epoch=deployment.epoch,
        version=int(ended * 1000),
        drops=statistics.drops,
        settled=statistics.settled,
        states=picture.totals(statistics),
        created=deployment.created,
        started=started,
        finished=ended,
        seconds=max(0.0, ended - started),
        nodes=(node,),
        text="" if was_over else lost.text,
        logical=picture.logical_nodes(statistics),
        failures=tuple(found[:100]),
        notes=("the node manager ended before it had kept the results",) if was_over else (),
    )
    return End(detail=detail, failures=tuple(found))


def _lost(piece: Slice, core: Core, failure: Failure) -> FailureInfo:
    """The node itself as a root cause."""
    states = np.frombuffer(core.states, dtype=np.uint8)
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


def _failures(directory: Path, piece: Slice, core: Core, failures: Mapping[int, Failure]) -> list[FailureInfo]:
    """The root causes of the drops in ERROR here; of those on other nodes, the row."""
    graph, rows = piece.graph, piece.drop.data
    reports = (
        cause_report(graph, core, str(directory), cause, failures.get(cause), count=count, rows=rows)
        for cause, count in errors_by_cause(core).items()
    )
    return [picture.failure_info(report, piece.node) for report in reports]


def _slice(directory: Path) -> Slice:
    path = directory / "slice.dfs"
    try:
        return parse_slice(path.read_bytes(), where=str(path))
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _replayed(directory: Path, piece: Slice) -> tuple[Core, dict[int, Failure], float]:
    """The core after all that the journal tells, the last failure of each drop, and when the journal begins."""
    header, entries = read(directory / "journal.dfj")
    core, failures = Core(piece.graph, remote=piece.ghosts.tolist(), streams=header.streams), {}
    for entry in entries:
        failures.update(entry.failures)
        for event in entry.events:
            if isinstance(event, Failed | Assembled) and event.failure is not None:
                failures[event.drop] = event.failure
        core.handle(entry.events)
    return core, failures, header.started


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
