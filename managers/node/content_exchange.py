"""ContentExchange of drops on their way between nodes: what is said of them, and how they come within reach.

A small content travels in the message that tells of its drop. A larger one is read in place where both nodes see the
same file (a shared file system, or one host), and fetched otherwise; once, before the session here hears of the drop,
so that however many consumers it has, they find it.
"""

import os
import shutil
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from dropflow.data.file_writer import remove_part
from dropflow.data.special_files import refuse_reading
from dropflow.data.storage_errors import storage_errors
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.errors import GoneError, StorageError
from managers.links import BufferSource, ContentSource, FileSource, Sink, TransferResult
from managers.messages import Content
from managers.node.paths import here, portable

__all__ = ["INLINE", "ContentExchange", "Fetch"]

INLINE = 4096
"""Bytes of the largest content that travels in the message about its drop."""

Fetch = Callable[[Content, Sink], TransferResult]
"""Fetches what a content stands for, passing it on as it arrives."""


class ContentExchange:
    """What one session offers to other nodes, and what it got from them.

    Parameters
    ----------
    workspace : Workspace
        The session's directories.
    in_place : bool
        Whether to read files of other nodes where they lie, if they are seen from here.
    """

    def __init__(self, workspace: Workspace, *, in_place: bool = True) -> None:
        self._workspace = workspace
        self._in_place = in_place
        self._lock = threading.Lock()
        self._offered: dict[tuple[int, int], Handle] = {}
        self._copies: dict[int, str] = {}

    # To others.

    def offer(self, drop: int, handle: Handle, producer: int = -1) -> Content:
        """What to say of a content, or of an application's part; from now on it can be fetched.

        Parameters
        ----------
        drop, producer : int
            Rows of the whole graph.
        """
        told = portable(handle, self._workspace)
        if handle.kind in ("null", "url") or (handle.kind == "bytes" and handle.size <= INLINE):
            return Content(drop, told, producer)
        with self._lock:
            self._offered[drop, producer] = handle
        if handle.kind == "bytes":
            return Content(drop, msgspec.structs.replace(told, body=b""), producer)
        return Content(drop, told, producer, _stamp(handle.location))

    def withdraw(self, drop: int, producer: int = -1) -> Handle | None:
        """StreamOffer it no longer."""
        if not self._offered:
            return None
        with self._lock:
            return self._offered.pop((drop, producer), None)

    def source(self, drop: int, producer: int) -> ContentSource:
        """Open what was offered.

        Raises
        ------
        GoneError
            It is offered no longer.
        StorageError
            It cannot be read.
        """
        with self._lock:
            handle = self._offered.get((drop, producer))
        if handle is None:
            raise GoneError(f"the content of drop {drop} is not offered any more")
        if handle.kind == "bytes":
            return BufferSource(handle.body)
        if handle.kind == "directory":
            return _TarSource(Path(handle.location), self._workspace.tmp / f"offer-{drop}-{producer}.tar")
        with storage_errors("read", handle.location):
            refuse_reading(handle.location, Path(handle.location).stat().st_mode)
        return FileSource(Path(handle.location))

    # From others.

    def take_over(self, content: Content, fetch: Fetch) -> Handle:
        """The content that another node told of, within reach of this one.

        A part becomes ours: it is moved here, or fetched. Blocks while it is fetched.

        Raises
        ------
        DropflowError
            It cannot be had.
        """
        handle = here(content.handle, self._workspace)
        is_part = content.producer >= 0
        if not self.needs_fetching(content):
            return handle
        if self._in_place and content.stamp and _stamp(handle.location) == content.stamp:
            return self._adopt(content, handle) if is_part else handle
        return self._fetched(content, handle, fetch)

    def forget(self, drop: int) -> None:
        """Remove the copy of a content that was fetched, if there is one."""
        if not self._copies:
            return
        with self._lock:
            path = self._copies.pop(drop, None)
        if path is not None:
            remove_part(path)

    def needs_fetching(self, content: Content) -> bool:
        """Whether `take_over` may take long."""
        handle = content.handle
        return not (handle.kind in ("null", "url") or (handle.kind == "bytes" and len(handle.body) == handle.size))

    def _adopt(self, content: Content, handle: Handle) -> Handle:
        path = self._path(content)
        try:
            with storage_errors("take over", handle.location):
                shutil.move(handle.location, path)
        except StorageError:
            remove_part(path)  # of a copy to another file system that was cut short
            raise
        return msgspec.structs.replace(handle, location=path)

    def _fetched(self, content: Content, handle: Handle, fetch: Fetch) -> Handle:
        if handle.kind == "bytes":
            body = bytearray()
            fetch(content, lambda _, data: body.extend(data))
            return msgspec.structs.replace(handle, body=bytes(body))
        path = self._path(content)
        target = f"{path}.tar" if handle.kind == "directory" else path
        try:
            with storage_errors("write what was fetched to", target), open(target, "wb") as stream:  # noqa: PTH123 - text
                fetch(content, lambda _, data: stream.write(data))
            if handle.kind == "directory":
                _unpack(target, path)
        except BaseException:
            remove_part(path)
            raise
        finally:
            if target != path:
                remove_part(target)
        if content.producer < 0:
            with self._lock:
                self._copies[content.drop] = path
        return msgspec.structs.replace(handle, location=path)

    def _path(self, content: Content) -> str:
        handle = content.handle
        folder = self._workspace.shared if handle.kind == "shm" else self._workspace.tmp
        name = f"from-{content.drop}-{content.producer}"
        # Programs look at the ends of names.
        return f"{folder}/{name}-{Path(handle.final or handle.location).name}"


class _TarSource(FileSource):
    """A directory as a tar file that goes when it is closed."""

    def __init__(self, folder: Path, archive: Path) -> None:
        with storage_errors("pack", folder), tarfile.open(archive, "w") as tar:
            tar.add(folder, arcname=".")
        super().__init__(archive)
        archive.unlink()  # what is mapped stays readable


def _unpack(archive: str, folder: str) -> None:
    with storage_errors("unpack what was fetched to", folder), tarfile.open(archive) as tar:
        # The first releases of Python 3.11 have no filters; but then, the sender has the cluster key.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        tar.extractall(folder)  # noqa: S202 - filtered, see above


def _stamp(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)  # noqa: PTH116 - once a content
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
