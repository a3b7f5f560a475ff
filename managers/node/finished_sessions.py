"""Sessions that are over: answers to queries from their directories.

They answer as a `HostedSession` does. Queries that a running session answers in its own thread, with its engine, they
answer from their files.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import msgspec

from dropflow.data.surviving_contents import replaced_contents
from dropflow.engine.api import Handle
from dropflow.engine.core import Core
from dropflow.engine.events import Abandon, Cancel, KnownStates, Lost
from dropflow.engine.faults import Fault
from dropflow.engine.journal import ReplayedSession
from dropflow.engine.reports import FailureReport
from dropflow.errors import BadFileError, DropflowError, GoneError, LinkError
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.rest.operation_records import CancelRequest
from dropflow.rest.session_records import SessionDetail, SessionInfo
from dropflow.states import SessionState
from managers.node import session_views
from managers.node.released_contents import RELEASED, ReleasedContents
from managers.node.session_directory import SessionDirectory, SessionEnd
from managers.node.written_failures import WrittenFailures, written_report

__all__ = ["REPLACED", "DamagedSession", "FinishedSession", "end_interrupted"]

REPLACED = "was replaced by that of a later drop, which wrote the same file"
"""Why a content of an earlier iteration of a loop is not left."""

T = TypeVar("T")


class _OverSession:
    """What finished and damaged sessions have in common."""

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
        The end has a status that this version does not know.
    """

    finding = ""

    def __init__(self, directory: SessionDirectory, end: SessionEnd) -> None:
        super().__init__(directory, end.detail)
        self.whole = end.whole
        self.end = end
        self.state = SessionState[end.detail.status]
        self.is_certain = end.is_certain
        self.ends = tuple(msgspec.msgpack.encode(one) for one in end.detail.ends)

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
        """The engine's state at the end.

        Raises
        ------
        GoneError
            The journal cannot be read.
        """
        return self._replayed.core

    @property
    def known(self) -> KnownStates | None:
        """With which states it continued, if it did."""
        return self._replayed.known

    @cached_property
    def _replayed(self) -> ReplayedSession:
        with self.directory.gone_if_unreadable(self._node):
            replayed = self.directory.replay(self.piece)
        end_interrupted(replayed.core, self.piece.node, self.directory.cancel_request())
        return replayed

    @property
    def _node(self) -> str:
        """The name that this node had."""
        return self.end.detail.nodes[0]

    # As the engine's session.

    def call(self, function: Callable[["FinishedSession"], T]) -> T:
        """Return `function(self)`."""
        return function(self)

    def content(self, drop: int) -> Handle | None:
        """Return the content of a drop, if it is left."""
        return self._contents.get(drop)

    def contents(self) -> Mapping[int, Handle]:
        """Return all contents that are left."""
        return self._contents

    def why_gone(self, drop: int) -> str:
        """Return why the content of a completed drop is not left."""
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
        found = ((drop, record.in_directory(self.directory.path)) for drop, record in self.end.contents.items())
        released = self._released
        return {drop: handle for drop, handle in found if handle is not None and drop not in released}

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
        return WrittenFailures([written_report(failure, logs) for failure in self.end.failures])


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
            failures=(session_views.failure_info(report, node),),
        )
        super().__init__(directory, detail)

    @property
    def session(self) -> "DamagedSession":
        """The object that `call` is a method of: this one."""
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

    def graph(self) -> PhysicalGraph:
        """Refuse."""
        raise self._unreadable()

    @property
    def core(self) -> Core:
        """Raise the error with which the files of the session could not be read."""
        raise self._unreadable()

    def content(self, drop: int) -> Handle | None:  # noqa: ARG002 - one protocol
        """Raise the error with which the files of the session could not be read."""
        raise self._unreadable()

    def contents(self) -> Mapping[int, Handle]:
        """Raise the error with which the files of the session could not be read."""
        raise self._unreadable()

    def why_gone(self, drop: int) -> str:  # noqa: ARG002 - one protocol
        """Raise the error with which the files of the session could not be read."""
        raise self._unreadable()

    def _unreadable(self) -> GoneError:
        return GoneError(self.finding, hint=self._hint)

    def call(self, function: Callable[["DamagedSession"], T]) -> T:
        """Return `function(self)`."""
        return function(self)

    @property
    def failure_table(self) -> WrittenFailures:
        """That the session cannot be read, as its only cause."""
        return WrittenFailures((self._report,))


def end_interrupted(core: Core, node: str, request: CancelRequest | None) -> Failure | None:
    """End what was under way when the process of this node ended.

    If the session was to be cancelled, it is CANCELLED. Otherwise it ends as for the loss of a node, this one, and that
    failure is returned.
    """
    if core.status.is_terminal:
        return None
    if request is not None or core.status is SessionState.CANCELLING:
        core.handle([Cancel(), Abandon()])
        return None
    failure = Failure(
        code=LinkError.code,
        kind="NodeLost",
        text=f"the manager of node {node} ended while the session ran",
        hint="continue it with 'dropflow resume'",
        retryable=True,
    )
    core.handle([Lost(node, failure)])
    return failure
