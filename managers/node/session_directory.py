"""The directory of one session on a node: which files are in it, and how they are written and read.

::

    deployment.json   what the session is, without its slices
    slice.dfs         the drops of this node
    journal.dfj       every event
    summary.json      the result, for people
    end.msgpack       the result, for later processes of the node
    files, logs, results, tmp   see `dropflow.data.workspace`
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from dropflow.data.storage_errors import storage_errors
from dropflow.engine.content_record import ContentRecord
from dropflow.engine.journal import ReplayedSession, read, replay
from dropflow.engine.reports import SessionResult
from dropflow.errors import ConflictError, DropflowError, StorageError
from dropflow.graph.slice_codec import dump_slice, parse_slice
from dropflow.graph.slices import Slice
from dropflow.ids import session_of_directory
from dropflow.rest.schema import FailureInfo, SessionDetail
from managers.deployment import Deployment
from managers.node.checksummed_file import read_checksummed, write_checksummed

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
    """

    whole: int
    detail: SessionDetail
    failures: tuple[FailureInfo, ...] = ()
    contents: dict[int, ContentRecord] = {}


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
        self._slice = path / "slice.dfs"
        self._summary = path / "summary.json"
        self._end = path / "end.msgpack"

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

    def save(self, piece: Slice, deployment: Deployment) -> None:
        """Write the slice, and the deployment without slices.

        Raises
        ------
        StorageError
            The directory cannot be written.
        """
        try:
            with self._slice.open("wb") as stream:
                stream.writelines(dump_slice(piece))
        except OSError as error:
            raise StorageError(f"cannot be written: {error.strerror}", where=str(self.path)) from error
        write_checksummed(self._deployment, msgspec.structs.replace(deployment, slices={}))

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

    def slice(self) -> Slice:
        """Read the slice.

        Raises
        ------
        BadFileError, StorageError
            It cannot be read.
        """
        try:
            return parse_slice(self._slice.read_bytes(), where=str(self._slice))
        except OSError as error:
            raise StorageError(f"cannot be read: {error.strerror}", where=str(self._slice)) from error

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
