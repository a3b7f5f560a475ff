"""The directory of one session on a node: which files are in it, and how they are written and read.

::

    deployment.json   what the session is, without its graph
    graph.dfg         the whole placed graph
    view.msgpack      where its drops are since nodes were lost, or since it was resumed
    next              the files of the next view, until the journal is that of this view
    journal.dfj       every event
    cancel.json       that it is to be cancelled, and why; only if that was asked for
    received.json     what came from other nodes, since the session is over
    summary.json      the result, for people
    end.msgpack       the result, for later processes of the node
    files, logs, results, tmp   see `dropflow.data.workspace`
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np

from dropflow.data.removed_directory import discard_directory, remove_directory
from dropflow.data.storage_errors import storage_errors
from dropflow.engine.content_record import ContentRecord
from dropflow.engine.journal import ReplayedSession, read, replay
from dropflow.engine.reports import SessionResult
from dropflow.errors import BadFileError, ConflictError, DropflowError, GoneError, StorageError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.placement import with_placement
from dropflow.graph.slices import Slice, empty_slice, slice_for
from dropflow.graph_file import load
from dropflow.ids import session_of_directory
from dropflow.rest.operation_records import CancelRequest
from dropflow.rest.session_records import FailureInfo, SessionDetail
from managers.deployment import Deployment
from managers.node.checksummed_file import read_checksummed, write_checksummed
from managers.node.next_view import DEPLOYMENT, GRAPH, VIEW, NextView, SavedView
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
        self.next = NextView(path, self.journal)
        """The files of the next view."""
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
        with storage_errors("write", self.path / GRAPH):
            (self.path / GRAPH).write_bytes(deployment.dfg)
        write_checksummed(self.path / DEPLOYMENT, deployment.without_graph())

    def write_cancel(self, request: CancelRequest) -> None:
        """Write that the session is to be cancelled, and force it to the disk.

        Raises
        ------
        StorageError
            The directory cannot be written.
        """
        write_checksummed(self._cancel, request, durable=True)

    def remove_cancel(self) -> None:
        """Remove the request to cancel the session, which was over and is to continue.

        Raises
        ------
        StorageError
            It cannot be removed.
        """
        with storage_errors("remove", self._cancel):
            self._cancel.unlink(missing_ok=True)

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
            remove_directory(self.path)
        except OSError as error:
            raise StorageError(f"cannot be removed: {error.strerror}", where=str(self.path)) from error

    def discard(self) -> None:
        """Remove what can be removed of a directory that is of no use."""
        discard_directory(self.path)

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

    def version(self) -> tuple[int, int]:
        """Return the deployment and the view that the journal is of.

        Raises
        ------
        BadFileError
            It cannot be read.
        """
        header, _ = read(self.journal)
        return header.epoch, header.view

    def deployment(self) -> Deployment:
        """Read the deployment.

        Raises
        ------
        BadFileError
            It cannot be read.
        """
        return self.next.read(DEPLOYMENT, lambda path: read_checksummed(path, Deployment))

    def decision(self) -> ViewDecision | None:
        """Read what was decided about the present view; None for the view of the first deployment.

        Raises
        ------
        BadFileError
            It cannot be read.
        """
        saved = self._saved_view()
        return None if saved is None else saved.decision

    def graph(self) -> PhysicalGraph:
        """Return the whole graph, whose columns are mapped from its file.

        Raises
        ------
        BadFileError
            It cannot be read.
        """
        return self.next.read(GRAPH, lambda path: load(path, mmap=True))

    def _saved_view(self) -> SavedView | None:
        is_there = self.next.has(VIEW) or (self.path / VIEW).exists()
        return self.next.read(VIEW, lambda path: read_checksummed(path, SavedView)) if is_there else None

    def slice(self, node: str) -> Slice:
        """Return the slice of a node.

        Raises
        ------
        BadFileError
            The graph cannot be read, or has no such node.
        """
        saved = self._saved_view()
        if saved is not None:
            return _slice_in(saved, self.graph(), node)
        graph = self.graph()
        if self.deployment().is_joining:
            return empty_slice(graph, node)
        members = [place.node for place in self.deployment().places]
        if node not in members:
            raise BadFileError(
                f"the session ran on {', '.join(members) or 'no node'}, not on node {node}",
                where=str(self.path / GRAPH),
                hint="start the node with the name that it had",
            )
        return slice_for(graph, node)

    def save_next(
        self, decision: ViewDecision, graph: PhysicalGraph, before: Slice, deployment: Deployment | None = None
    ) -> Slice:
        """Write with which drops this node continues, and return its slice. The present files stay.

        Parameters
        ----------
        decision : ViewDecision
            The next view.
        graph : PhysicalGraph
            The whole graph.
        before : Slice
            In the view before; its drops keep their rows.
        deployment : Deployment, optional
            With the bytes of the graph, if the session is deployed again.

        Raises
        ------
        BadFileError, StorageError
            The decision cannot be read, or the directory cannot be written.
        """
        saved = SavedView(decision=decision, rows=before.drop.tobytes())
        self.next.save(saved, deployment)
        return _slice_in(saved, graph, before.node)

    def graph_in_view(self) -> PhysicalGraph:
        """Return the whole graph with its present placement.

        Raises
        ------
        BadFileError
            It cannot be read.
        """
        saved = self._saved_view()
        return self.graph() if saved is None else _placed(saved, self.graph())

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

    def replay(self, piece: Slice, *, cut: bool = False) -> ReplayedSession:
        """Replay the journal.

        Parameters
        ----------
        cut : bool
            Whether a journal that is damaged before its end is replayed up to the damage.

        Raises
        ------
        DropflowError
            It cannot be read, or is that of another graph.
        """
        return replay(piece.graph, self.journal, remote=piece.ghosts.tolist(), cut=cut)

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


def _placed(saved: SavedView, graph: PhysicalGraph) -> PhysicalGraph:
    """Return a graph with the placement of a view."""
    placement = unpack_column(saved.decision.placement, np.uint16)
    return with_placement(graph, placement.astype(np.int32), saved.decision.places)


def _slice_in(saved: SavedView, graph: PhysicalGraph, node: str) -> Slice:
    """Return the slice of a node in a view; the drops that it had before come first."""
    return slice_for(_placed(saved, graph), node, first=np.frombuffer(saved.rows, dtype=np.int32))
