"""The directory of one session on a node: which files are in it, and how they are written and read.

::

    deployment.json   what the session is, without its graph
    graph.dfg         the whole placed graph
    view.msgpack      where its drops are since nodes were lost
    journal.dfj       every event
    cancel.json       that it is to be cancelled, and why; only if that was asked for
    summary.json      the result, for people
    end.msgpack       the result, for later processes of the node
    files, logs, results, tmp   see `dropflow.data.workspace`
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np

from dropflow.data.storage_errors import storage_errors
from dropflow.engine.content_record import ContentRecord
from dropflow.engine.journal import ReplayedSession, read, replay
from dropflow.engine.reports import SessionResult
from dropflow.errors import BadFileError, ConflictError, DropflowError, GoneError, StorageError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.placement import with_placement
from dropflow.graph.slices import Slice, slice_for
from dropflow.graph_file import load
from dropflow.ids import session_of_directory
from dropflow.rest.operation_records import CancelRequest
from dropflow.rest.schema import FailureInfo, SessionDetail
from managers.deployment import Deployment
from managers.node.checksummed_file import read_checksummed, write_checksummed
from managers.recovery.records import ViewDecision, unpack_column

__all__ = ["SessionDirectory", "SessionEnd"]


class SessionEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended on this node.

    Attributes
    ----------
    whole : int
        Drops of the whole graph.
    detail : SessionDetail
        The session as it was last.
    failures : tuple of FailureInfo
        All root causes.
    contents : dict of int to ContentRecord
        What is left, by row of the slice.
    is_certain : bool
        Whether the process that ran the session wrote this. Otherwise it was derived from the journal, and the session
        may have gone on on other nodes.
    """

    whole: int
    detail: SessionDetail
    failures: tuple[FailureInfo, ...] = ()
    contents: dict[int, ContentRecord] = {}
    is_certain: bool = False


class _SavedView(msgspec.Struct, frozen=True):
    """The present view of a session, and the rows of the slice before it."""

    decision: ViewDecision
    rows: bytes


class SessionDirectory:
    """The files of one session.

    Parameters
    ----------
    path : Path
        The directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.journal = path / "journal.dfj"
        self._deployment = path / "deployment.json"
        self._graph = path / "graph.dfg"
        self._view = path / "view.msgpack"
        self._summary = path / "summary.json"
        self._end = path / "end.msgpack"
        self._cancel = path / "cancel.json"

    @property
    def session(self) -> str:
        """Name of the session, from that of the directory."""
        return session_of_directory(self.path.name)

    # Writing.

    def make(self) -> None:
        """Make the directory.

        Raises
        ------
        ConflictError
            There is one.
        StorageError
            It cannot be made.
        """
        try:
            self.path.mkdir(parents=True)
        except FileExistsError:
            raise ConflictError(
                f"there is already a directory for a session {self.session!r}, but no such session",
                where=str(self.path),
                hint="check its contents and remove it, or give the new session another name",
            ) from None
        except OSError as error:
            raise StorageError(f"cannot be made: {error.strerror}", where=str(self.path)) from error

    def save(self, deployment: Deployment) -> None:
        """Write the graph, and the deployment without it.

        Raises
        ------
        StorageError
            The directory cannot be written.
        """
        with storage_errors("write", self._graph):
            self._graph.write_bytes(deployment.dfg)
        write_checksummed(self._deployment, deployment.without_graph())

    def write_cancel(self, request: CancelRequest) -> None:
        """Write that the session is to be cancelled, and force it to the disk.

        Raises
        ------
        StorageError
            The directory cannot be written.
        """
        write_checksummed(self._cancel, request, durable=True)

    def write_summary(self, result: SessionResult) -> None:
        """Write the result for people.

        Raises
        ------
        StorageError
            The directory cannot be written.
        """
        with storage_errors("write", self._summary):
            self._summary.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2))

    def write_end(self, end: SessionEnd) -> None:
        """Write how the session ended, for later processes of the node.

        Raises
        ------
        StorageError
            The directory cannot be written.
        """
        write_checksummed(self._end, end)

    def remove(self) -> None:
        """Remove the directory of a session that is over. Idempotent.

        Raises
        ------
        StorageError
            It cannot be removed.
        """
        try:
            shutil.rmtree(self.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StorageError(f"cannot be removed: {error.strerror}", where=str(self.path)) from error

    def discard(self) -> None:
        """Remove what can be removed of a directory that is of no use."""
        shutil.rmtree(self.path, ignore_errors=True)

    # Reading.

    @property
    def is_unprepared(self) -> bool:
        """Whether nothing ever ran here: the journal is the last file that is made before anything runs."""
        if self.journal.exists() or self._end.exists():
            return False
        contents = (self.path / "files", self.path / "results")
        return not any(path.exists() and any(path.iterdir()) for path in contents)

    @property
    def changed(self) -> float:
        """The time of the last change, in seconds since the epoch."""
        return self.path.stat().st_mtime

    def deployment(self) -> Deployment:
        """Read the deployment.

        Raises
        ------
        BadFileError
            It cannot be read.
        """
        return read_checksummed(self._deployment, Deployment)

    def graph(self) -> PhysicalGraph:
        """Return the whole graph, whose columns are mapped from its file.

        Raises
        ------
        BadFileError
            It cannot be read.
        """
        return load(self._graph, mmap=True)

    def slice(self, node: str) -> Slice:
        """Return the slice of a node.

        Raises
        ------
        BadFileError
            The graph cannot be read, or has no such node.
        """
        if self._view.exists():
            return _slice_in(read_checksummed(self._view, _SavedView), self.graph(), node)
        graph = self.graph()
        members = [place.node for place in self.deployment().places]
        if node not in members:
            raise BadFileError(
                f"the session ran on {', '.join(members) or 'no node'}, not on node {node}",
                where=str(self._graph),
                hint="start the node with the name that it had",
            )
        return slice_for(graph, node)

    def save_view(self, decision: ViewDecision, graph: PhysicalGraph, before: Slice) -> Slice:
        """Write with which drops this node continues, and return its slice.

        Parameters
        ----------
        graph : PhysicalGraph
            The whole graph, from `graph_in_view`.
        before : Slice
            In the view before; its drops keep their rows.

        Raises
        ------
        BadFileError, StorageError
            The decision cannot be read, or the directory cannot be written.
        """
        saved = _SavedView(decision=decision, rows=before.drop.tobytes())
        write_checksummed(self._view, saved)
        return _slice_in(saved, graph, before.node)

    def graph_in_view(self) -> PhysicalGraph:
        """Return the whole graph with its present placement.

        Raises
        ------
        BadFileError
            It cannot be read.
        """
        graph = self.graph()
        return _placed(read_checksummed(self._view, _SavedView), graph) if self._view.exists() else graph

    @contextmanager
    def gone_if_unreadable(self, node: str) -> Iterator[None]:
        """Turn the errors of a file of this directory, on `node`, into a `GoneError` for a client."""
        try:
            yield
        except DropflowError as error:
            raise GoneError(
                f"the files of session {self.session!r} on node {node} cannot be read: {error}",
                hint=f"look at the files in {self.path}, or delete the session",
            ) from error

    def replay(self, piece: Slice) -> ReplayedSession:
        """Replay the journal.

        Raises
        ------
        DropflowError
            It cannot be read, or is that of another graph.
        """
        return replay(piece.graph, self.journal, remote=piece.ghosts.tolist())

    def end(self) -> SessionEnd | None:
        """Read how the session ended; None if that was never written.

        Raises
        ------
        BadFileError
            It cannot be read.
        """
        return read_checksummed(self._end, SessionEnd) if self._end.exists() else None

    def cancel_request(self) -> CancelRequest | None:
        """Return the request to cancel the session; None if there was none."""
        if not self._cancel.exists():
            return None
        with suppress(BadFileError):  # a damaged request is one, too
            return read_checksummed(self._cancel, CancelRequest)
        return CancelRequest()

    def epoch(self) -> int:
        """Return the epoch of the session from the first file that can be read; 0 if none can.

        A manager above takes what nodes report as parts of one session only if they agree on the epoch.
        """
        sources: tuple[Callable[[], int], ...] = (
            lambda: self.deployment().epoch,
            lambda: read_checksummed(self._end, SessionEnd).detail.epoch,
            lambda: read(self.journal)[0].epoch,
        )
        for source in sources:
            with suppress(DropflowError):
                return source()
        return 0


def _placed(saved: _SavedView, graph: PhysicalGraph) -> PhysicalGraph:
    """Return a graph with the placement of a view."""
    placement = unpack_column(saved.decision.placement, np.uint16)
    return with_placement(graph, placement.astype(np.int32), saved.decision.places)


def _slice_in(saved: _SavedView, graph: PhysicalGraph, node: str) -> Slice:
    """Return the slice of a node in a view; the drops that it had before come first."""
    return slice_for(_placed(saved, graph), node, first=np.frombuffer(saved.rows, dtype=np.int32))
