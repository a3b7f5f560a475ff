"""The directory of one session on a node: its files, and how they are written and read.

::

    deployment.json   the deployment of the session, without its graph
    graph.dfg         the whole placed graph
    view.msgpack      the places of its drops since nodes were lost, or since it was resumed
    next              the files of the next view, until the journal is that of this view
    journal.dfj       every event
    cancel.json       the request to cancel it, with the reason; only if there was one
    received.json     counts of contents from other nodes; once the session is over
    summary.json      the result, for people
    end.msgpack       the result, for later processes of the node
    files, logs, results, tmp   see `dropflow.data.workspace`
"""

import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from dropflow.api.requests import CancelRequest
from dropflow.api.session_records import FailureInfo, SessionDetail
from dropflow.data.storage_errors import storage_errors
from dropflow.data.workspace import discard_directory, remove_directory
from dropflow.errors import BadFileError, ConflictError, DropflowError, GoneError, StorageError
from dropflow.execution.content_location import ContentRecord
from dropflow.execution.journal import ReplayedSession, is_blank, read, replay
from dropflow.execution.statistics import SessionResult
from dropflow.files import END, GRAPH_FILE, JOURNAL, SUMMARY, force_to_disk
from dropflow.graph.codec import load
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice, empty_slice, slice_for, with_placement
from dropflow.ids import session_of_directory
from dropflow.sessions.stopped import StoppedSession
from managers.deployment import Deployment
from managers.recovery.records import ViewDecision, unpack_column

_CODECS: dict[str, Any] = {".json": msgspec.json, ".msgpack": msgspec.msgpack}

T = TypeVar("T")
_REPLACED = (END, SUMMARY)
"""Files of an earlier end of the session, which are removed when it is deployed again."""

# Small files with a checksum, each replaced as a whole. A damaged file is an error when it is read.
#
# The suffix of the name determines the encoding: ``.json`` or ``.msgpack``.


class _Checksummed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    crc32: int
    """Checksum of `content`, as it is encoded."""
    content: msgspec.Raw


def write_checksummed(path: Path, content: object, *, durable: bool = False) -> None:
    """Write `content` to `path`; on failure, the old file stays.

    Parameters
    ----------
    durable : bool
        Whether to force it to the disk, so that it survives the end of the machine.

    Raises
    ------
    StorageError
        The file cannot be written.
    """
    codec = _CODECS[path.suffix]
    body = codec.encode(content)
    part = path.with_name(f"{path.name}.part")
    with storage_errors("write", path):
        try:
            part.write_bytes(codec.encode(_Checksummed(crc32=zlib.crc32(body), content=msgspec.Raw(body))))
            if durable:
                force_to_disk(str(part))
            part.replace(path)
            if durable:
                force_to_disk(str(path.parent))
        finally:
            part.unlink(missing_ok=True)


def read_checksummed(path: Path, kind: type[T]) -> T:
    """Return the content of a file that `write_checksummed` wrote.

    Raises
    ------
    BadFileError
        The file does not exist, cannot be read, is damaged, or was written by another version.
    """
    codec = _CODECS[path.suffix]
    try:
        stored = codec.decode(path.read_bytes(), type=_Checksummed)
    except OSError as error:
        raise BadFileError(f"the file cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, RecursionError) as error:  # msgspec raises UnicodeDecodeError, too
        raise BadFileError(f"the file is damaged: {error}", where=str(path)) from error
    if zlib.crc32(stored.content) != stored.crc32:
        raise BadFileError("the file is damaged: a checksum is wrong", where=str(path))
    try:
        content: T = codec.decode(stored.content, type=kind)
    except (ValueError, RecursionError) as error:
        hint = "start this manager with the version that wrote it"
        raise BadFileError(f"the file is whole, but of another version: {error}", where=str(path), hint=hint) from error
    return content


# The files of the next view of a session, beside the present ones until its journal begins.
#
# The rename of its journal is the moment from which a session is in its next view. Before it, the files that belong to
# the present journal are untouched, so the session is unchanged if a process ends then. After it, the files of the next
# view are moved to the place of the present ones, by this process or by a later one.

DEPLOYMENT, VIEW = "deployment.json", "view.msgpack"
"""Names of the files that belong to a view, with `GRAPH_FILE`."""


class SavedView(msgspec.Struct, frozen=True):
    """A view of a session, and the rows of the slice before it."""

    decision: ViewDecision
    rows: bytes


class NextView:
    """The subdirectory with the files of the next view.

    Parameters
    ----------
    path : Path
        Directory of the session.
    journal : Path
        Its journal.
    """

    def __init__(self, path: Path, journal: Path) -> None:
        self._present = path
        self._path = path / "next"
        self._journal = journal
        self._is_read = False
        """Whether this process has written these files, and reads them."""

    def has(self, name: str) -> bool:
        """Return whether there is a file of the next view that this process has written."""
        return self._is_read and (self._path / name).exists()

    def read(self, name: str, read_file: Callable[[Path], T]) -> T:
        """Read a file: that of the next view if this process has written it, else the present one."""
        if self.has(name):
            with suppress(DropflowError):  # the file is being moved to its place
                return read_file(self._path / name)
        return read_file(self._present / name)

    def save(self, view: SavedView, deployment: Deployment | None) -> None:
        """Write the files of the next view.

        Parameters
        ----------
        deployment : Deployment or None
            With the bytes of the graph, if the session is deployed again.

        Raises
        ------
        StorageError
            They cannot be written.
        """
        with storage_errors("write", self._path):
            self._path.mkdir(exist_ok=True)
            if deployment is not None and (self._present / GRAPH_FILE).read_bytes() != deployment.dfg:
                (self._path / GRAPH_FILE).write_bytes(deployment.dfg)
        write_checksummed(self._path / VIEW, view)
        if deployment is not None:
            write_checksummed(self._path / DEPLOYMENT, deployment.without_graph())
        self._is_read = True

    def settle(self) -> None:
        """Move the files to the place of the present ones if the journal is that of the next view; else do nothing.

        If the session is deployed again, files of the end of the earlier deployment are removed. Idempotent, also if a
        process ends in between.

        Raises
        ------
        BadFileError, StorageError
            The files cannot be read or moved.
        """
        if not self._path.exists() or is_blank(self._journal):
            return
        header, _ = read(self._journal)
        again, view = self._path / DEPLOYMENT, self._path / VIEW
        if again.exists():
            has_begun = read_checksummed(again, Deployment).epoch == header.epoch
        else:
            has_begun = view.exists() and read_checksummed(view, SavedView).decision.view.number == header.view
        if not has_begun:
            return
        with storage_errors("write", self._present):
            for name in _REPLACED if again.exists() else ():
                (self._present / name).unlink(missing_ok=True)
            for name in (GRAPH_FILE, VIEW, DEPLOYMENT):  # while the last file exists, this has to be repeated
                if (self._path / name).exists():
                    (self._path / name).replace(self._present / name)
        self.discard()

    def discard(self) -> None:
        """Remove the files, and the beginning of a journal that did not replace the present one."""
        self._is_read = False
        shutil.rmtree(self._path, ignore_errors=True)
        with suppress(OSError):
            self._journal.with_name(f"{self._journal.name}.new").unlink(missing_ok=True)


class SessionEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended on this node.

    Attributes
    ----------
    whole : int
        Drops of the whole graph.
    detail : SessionDetail
        The last details of the session.
    failures : tuple of FailureInfo
        All root causes.
    contents : dict of int to ContentRecord
        The contents that exist, by row of the slice.
    is_certain : bool
        Whether the process that ran the session wrote this record. Otherwise it was derived from the journal, and other
        nodes may have continued the session.
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
        self.journal = path / JOURNAL
        self.next = NextView(path, self.journal)
        """The files of the next view."""
        self._summary = path / SUMMARY
        self._end = path / END
        self._cancel = path / "cancel.json"

    @property
    def session(self) -> str:
        """Name of the session, from the name of the directory."""
        return session_of_directory(self.path.name)

    # Writing.

    def make(self) -> None:
        """Make the directory.

        Raises
        ------
        ConflictError
            The directory exists.
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
        with storage_errors("write", self.path / GRAPH_FILE):
            (self.path / GRAPH_FILE).write_bytes(deployment.dfg)
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
        """Remove a useless directory as far as possible; never raises."""
        discard_directory(self.path)

    # Reading.

    @property
    def is_unprepared(self) -> bool:
        """Whether no attempt ever ran here: the journal is the last file that is made before the first attempt.

        A directory without the graph, the first file, is not that of a session, unless it is empty.
        """
        if self.journal.exists() or self._end.exists():
            return False
        contents = (self.path / "files", self.path / "results")
        if any(path.exists() and any(path.iterdir()) for path in contents):
            return False
        return (self.path / GRAPH_FILE).exists() or not any(self.path.iterdir())

    @property
    def changed(self) -> float:
        """The time of the last change, in seconds since the epoch."""
        return self.path.stat().st_mtime

    def version(self) -> tuple[int, int]:
        """Return the deployment and the view of the journal.

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
        """Read the decision about the present view; None for the view of the first deployment.

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
        return self.next.read(GRAPH_FILE, lambda path: load(path, mmap=True))

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
                where=str(self.path / GRAPH_FILE),
                hint="start the node with the name that it had",
            )
        return slice_for(graph, node)

    def save_next(
        self, decision: ViewDecision, graph: PhysicalGraph, before: Slice, deployment: Deployment | None = None
    ) -> Slice:
        """Write the drops with which this node continues, and return its slice. The present files stay.

        Parameters
        ----------
        decision : ViewDecision
            The next view.
        graph : PhysicalGraph
            The whole graph.
        before : Slice
            The slice in the view before; its drops keep their rows.
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

    def stopped(self, node: str, *, ignore_damage: bool = False) -> StoppedSession:
        """Return the state of the session here. No process may be at work in it.

        Parameters
        ----------
        ignore_damage : bool
            Take a journal that is damaged before its end up to the damage.

        Raises
        ------
        DropflowError
            It cannot be read.
        """
        piece = self.slice(node)
        return StoppedSession(self.path, piece, self.replay(piece, cut=ignore_damage))

    def end(self) -> SessionEnd | None:
        """Read how the session ended; None if its end was never written.

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
        with suppress(BadFileError):  # a damaged request counts as a request, too
            return read_checksummed(self._cancel, CancelRequest)
        return CancelRequest()

    def epoch(self) -> int:
        """Return the epoch of the session from the first file that can be read; 0 if none can.

        A manager above merges the reports of nodes into one session only if they have the same epoch.
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
