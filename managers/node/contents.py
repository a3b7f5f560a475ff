"""Transfer of contents of drops between nodes.

A small content is sent in the message about its drop. A larger one is read in place if both nodes see the same file, on
a shared file system or on one host. A hard link keeps such a file if its node removes it. All other contents are
fetched once, before the session here gets the event, so that all consumers find them.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from pathlib import Path

import msgspec

from dropflow.data.file import remove_part
from dropflow.data.read import measure
from dropflow.data.storage_errors import refuse_reading, storage_errors
from dropflow.data.workspace import PART_FOLDER, Workspace
from dropflow.errors import GoneError, StorageError
from dropflow.execution.content_location import HERE, Handle
from dropflow.files import force_to_disk
from dropflow.host.memory import host_memory
from dropflow.times.octets import read_receipts
from managers.links import BufferSource, ContentSource, FileSource, TransferResult, WantedContent
from managers.messages import Content
from managers.node.fetch_pool import PendingFetch, Receipts
from managers.node.trees import TreeSource, TreeWriter
from managers.recovery.records import SharedFile

MOST_IN_EVENT = 4096
"""Most bytes of a content that is sent in the message about its drop."""

_LONGEST_NAME = 255
"""Most bytes of the name of a file on Linux."""
_FETCH_SECONDS = 60.0
"""Seconds to wait for the next bytes of a content."""
_log = logging.getLogger(__name__)
_SECONDS = 5.0
"""Seconds that a file system may take to answer. The file system of a lost node may never answer."""


class ContentExchange:
    """The contents that one session offers to other nodes, and the contents that it got from them.

    The session's thread owns the tables. The threads that serve and fetch contents read or set single entries, which
    is atomic.

    Parameters
    ----------
    session : str
        Name of the session.
    workspace : Workspace
        The session's directories.
    in_place : bool
        Whether to read files of other nodes in place if they can be seen from here, and to let other nodes do the same.
    """

    def __init__(self, session: str, workspace: Workspace, *, in_place: bool = True) -> None:
        self._session = session
        self._workspace = workspace
        self.in_place = in_place
        """Whether files of other nodes are read in place."""
        self.copies_to_disk = False
        """Whether all copies are on the disk, because the session has a limit for shared memory."""
        self._offered: dict[tuple[int, int], Handle] = {}
        self._for_copies: set[int] = set()
        """Drops here whose contents are offered for copies, also after their last consumer."""
        self._copies: dict[int, str] = {}
        self._bodies: dict[int, Handle] = {}
        """Contents in memory that were fetched, by drop, until they are released."""
        self._view = 0
        self.receipts = Receipts(read_receipts(Path(workspace.directory)))
        """Counts of the contents that came from other nodes."""

    # To others.

    def offer(self, drop: int, handle: Handle, producer: int = -1) -> Content:
        """Return the record to send about a content, or about an application's part; from now on it can be fetched.

        Parameters
        ----------
        drop, producer : int
            Rows of the whole graph.
        """
        sent = portable(handle, self._workspace)
        if handle.kind in ("null", "url") or (handle.kind == "bytes" and handle.size <= MOST_IN_EVENT):
            return Content(drop, sent, producer)
        self._offered[drop, producer] = handle
        if handle.kind == "bytes":
            return Content(drop, msgspec.structs.replace(sent, body=b""), producer)
        if not self.in_place:
            # Only the name: programs recognise files by it, and the copy gets it.
            return Content(drop, msgspec.structs.replace(sent, location=Path(handle.location).name), producer)
        return Content(drop, sent, producer, stamp_of(handle.location))

    def offer_copy(self, drop: int, handle: Handle) -> Content:
        """Return the record to send about a content that another node is to hold a copy of.

        Its `final` path is its place, so that the copy comes to the same place if it becomes the content. A file in the
        session directory here is removed with the directory, so it cannot be used in place.
        """
        self._for_copies.add(drop)
        content = self.offer(drop, handle)
        if handle.kind not in ("file", "directory"):
            return content
        final = portable(msgspec.structs.replace(handle, final=handle.location), self._workspace).final
        stamp = () if self._workspace.is_inside(handle.location) else stamp_of(handle.location)
        return msgspec.structs.replace(
            content, handle=msgspec.structs.replace(content.handle, final=final), stamp=stamp if self.in_place else ()
        )

    def is_outside(self, handle: Handle) -> bool:
        """Return whether a content is outside of the session's directory, where other nodes may see it."""
        is_file = self.in_place and handle.kind in ("file", "directory")
        return is_file and not self._workspace.is_inside(handle.location)

    def withdraw(self, drop: int, producer: int = -1) -> Handle | None:
        """Stop offering a content, unless it is offered for copies; return it if it was offered."""
        if producer < 0 and drop in self._for_copies:
            return None
        return self._offered.pop((drop, producer), None)

    def withdraw_for_copies(self, drops: Iterable[int]) -> None:
        """Stop offering these contents for copies."""
        self._for_copies.difference_update(drops)

    def source(self, drop: int, producer: int) -> ContentSource:
        """Open an offered content. For any thread.

        Raises
        ------
        GoneError
            It is no longer offered.
        StorageError
            It cannot be read.
        """
        handle = self._offered.get((drop, producer))
        if handle is None:
            raise GoneError(f"the content of drop {drop} is not offered any more")
        if handle.kind == "bytes":
            return BufferSource(handle.body)
        if handle.kind == "directory":
            return TreeSource(Path(handle.location))
        with storage_errors("read", handle.location):
            refuse_reading(handle.location, Path(handle.location).stat().st_mode)
        return FileSource(Path(handle.location))

    # From others.

    def needs_fetching(self, content: Content) -> bool:
        """Return whether a content must be fetched, or looked for on a disk."""
        handle = content.handle
        return not (handle.kind in ("null", "url") or (handle.kind == "bytes" and len(handle.body) == handle.size))

    def take_over(self, content: Content) -> Handle:
        """Return a content that need not be fetched."""
        return here(content.handle, self._workspace)

    def fetch(self, content: Content, give_up: Callable[[], bool]) -> Generator[PendingFetch, TransferResult, Handle]:
        """Fetch a content, or find it in place; return it. An application's part is moved to this node.

        Raises
        ------
        DropflowError
            It is not available.
        """
        handle = here(content.handle, self._workspace)
        if self.in_place and content.stamp and stamp_of(handle.location) == content.stamp:
            return self._adopt(content, handle) if content.producer >= 0 else self._in_place(content, handle)
        if handle.kind == "bytes":
            body = bytearray()
            wanted = self._wanted(content)
            yield PendingFetch(wanted, lambda _, data: body.extend(data), _FETCH_SECONDS, give_up)
            fetched = msgspec.structs.replace(handle, body=bytes(body))
            if content.producer < 0:
                self._bodies[content.drop] = fetched
            return fetched
        path = self._path(content, is_copy=True)
        yield from self._fetch_to(path, content, give_up)
        if content.producer < 0:
            self._copies[content.drop] = path
        return msgspec.structs.replace(handle, location=path)

    def fetch_copy(
        self, content: Content, give_up: Callable[[], bool]
    ) -> Generator[PendingFetch, TransferResult, Handle]:
        """Fetch a copy of a content to hold for its owner; return it.

        A file that is outside of the owner's session directory, and can be seen from here, is not copied.

        Raises
        ------
        DropflowError
            It is not available, is damaged, or cannot be written.
        """
        if not self.needs_fetching(content):
            return self.take_over(content)
        handle = here(content.handle, self._workspace)
        if self.in_place and content.stamp and stamp_of(handle.location) == content.stamp:
            return msgspec.structs.replace(handle, final="")
        folder = self._workspace.copies / f"{content.drop}-{self._workspace.tag}-{self._view}{PART_FOLDER}"
        path = f"{folder}/{Path(handle.final or handle.location).name or 'content'}"
        with storage_errors("make the directory", folder):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            yield from self._fetch_to(path, content, give_up)
            if self._workspace.durable and handle.kind != "directory":
                force_to_disk(path)
        except BaseException:
            remove_part(path)
            raise
        kind = "directory" if handle.kind == "directory" else "file"
        return msgspec.structs.replace(handle, kind=kind, body=b"", location=path)

    def _wanted(self, content: Content) -> WantedContent:
        handle = content.handle
        is_directory = handle.kind == "directory"
        return WantedContent(
            session=self._session,
            drop=content.drop,
            producer=content.producer,
            size=None if is_directory else handle.size,
            checksum=None if is_directory else handle.checksum or None,
            check=not handle.checksum,  # for a directory, the checksum of its tree is compared
        )

    def _fetch_to(
        self, path: str, content: Content, give_up: Callable[[], bool]
    ) -> Generator[PendingFetch, TransferResult, None]:
        """Fetch a content to a path; after a failure, remove its beginning."""
        if content.handle.kind == "directory":
            try:
                yield from self._fetch_tree(path, content, give_up)
            except StorageError as problem:  # the received bytes differ from the committed ones: fetch once more
                _log.warning("%s: it is fetched again", problem)
                yield from self._fetch_tree(path, content, give_up)
            return
        try:
            with storage_errors("write fetched data to", path), open(path, "wb") as stream:  # noqa: PTH123 - text
                yield PendingFetch(self._wanted(content), lambda _, data: stream.write(data), _FETCH_SECONDS, give_up)
        except BaseException:
            remove_part(path)
            raise

    def _fetch_tree(
        self, path: str, content: Content, give_up: Callable[[], bool]
    ) -> Generator[PendingFetch, TransferResult, None]:
        """Fetch a directory to a path; after a failure, remove its beginning.

        Raises
        ------
        StorageError
            Its tree differs from the committed one.
        """
        writer = TreeWriter(path)
        try:
            yield PendingFetch(self._wanted(content), writer.write, _FETCH_SECONDS, give_up)
            _refuse_other_tree(path, content.handle, *writer.finish())
        except BaseException:
            writer.close()
            remove_part(path)
            raise

    def copy(self, content: Content) -> Handle | None:
        """Return the copy of a content that was fetched in an earlier view of the session, or None."""
        if content.producer < 0 and content.drop in self._bodies:
            return self._bodies[content.drop]
        path = None if content.producer >= 0 else self._copies.get(content.drop)
        return None if path is None else msgspec.structs.replace(here(content.handle, self._workspace), location=path)

    def next_view(self, reset: Iterable[int], complete: Collection[int]) -> None:
        """Continue in the next view of the session.

        Parameters
        ----------
        reset : iterable of int
            Drops that run again.
        complete : collection of int
            Drops whose copies are used. All other drops run again, or belonged to a node that was lost before it
            reported: their new contents may differ. Their old copies stay on the disk, since attempts that still run
            may read them.
        """
        self._view += 1
        self._for_copies.difference_update(reset)
        for drop, producer in [key for key in self._offered if key[1] >= 0]:
            del self._offered[drop, producer]  # parts that are still needed are offered again
        # One by one: a fetch of the view before may add a content meanwhile.
        for drop in {*self._copies, *self._bodies}.difference(complete):
            self._copies.pop(drop, None)
            self._bodies.pop(drop, None)

    def remove_copy(self, drop: int) -> None:
        """Remove the copy of a content that was fetched, if there is one."""
        self._bodies.pop(drop, None)
        path = self._copies.pop(drop, None)
        if path is not None:
            remove_part(path)

    def _in_place(self, content: Content, handle: Handle) -> Handle:
        """Return a content in place; if it is in the session directory of its node, by a hard link here if possible.

        Its node removes that directory after a restart, or when the session goes on without the node, while attempts
        here may read the content. Without a link they lose it then: see `dropflow.runners.executor`.
        """
        is_file = handle.kind in ("file", "shm")
        if not is_file or not (handle.kind == "shm" or self._workspace.is_on_other_node(handle.location)):
            return handle
        path = self._path(content)
        try:
            os.link(handle.location, path)
        except OSError:  # another file system, or the files of another user
            return handle
        self._copies[content.drop] = path
        return msgspec.structs.replace(handle, location=path)

    def _adopt(self, content: Content, handle: Handle) -> Handle:
        path = self._path(content)
        try:
            with storage_errors(f"move {handle.location} to", path):  # the error contains the free space there
                shutil.move(handle.location, path)
        except StorageError:
            remove_part(path)  # a copy to another file system that is incomplete
            raise
        return msgspec.structs.replace(handle, location=path)

    def _path(self, content: Content, *, is_copy: bool = False) -> str:
        """Return the path of a content of another node here; a new copy is on the disk if memory is limited or full."""
        handle = content.handle
        is_shared = handle.kind == "shm" and not (is_copy and (self.copies_to_disk or host_memory().pressure()))
        folder = self._workspace.shared if is_shared else self._workspace.tmp
        # A file of an earlier view may have readers, so it is not written again.
        name = f"from-{content.drop}-{content.producer}" + (f"-view{self._view}" if self._view else "") + "-"
        # Programs recognise files by the ends of their names.
        end = os.fsencode(Path(handle.final or handle.location).name)[-(_LONGEST_NAME - len(name)) :]
        return f"{folder}/{name}{end.decode(errors='ignore')}"


def _refuse_other_tree(folder: str, handle: Handle, size: int, checksum: int) -> None:
    if size != handle.size:
        raise StorageError(f"the copy of a directory has {size} bytes where {handle.size} were committed", where=folder)
    if handle.checksum and checksum != handle.checksum:
        raise StorageError(
            f"the copy of a directory has CRC-32 {checksum:08x} where {handle.checksum:08x} was committed", where=folder
        )


# Files on file systems that several nodes of a session see, and which of them are unchanged since the commit.
#
# Nothing is concluded from paths, mounts or types of file systems. A file of another node is seen from here if its path
# has the inode, the size and the time of change that its owner read when it was committed. If the owner is lost, its
# file is then there as before.
#
# Paths of contents in messages between nodes are relative to the session directory of each node.


def portable(handle: Handle, workspace: Workspace) -> Handle:
    """Return `handle` with a `final` path that means the same on every node."""
    if not handle.final.startswith(f"{workspace.directory}/"):
        return handle
    relative = handle.final[len(workspace.directory) + 1 :]
    return msgspec.structs.replace(handle, final=HERE + relative)


def here(handle: Handle, workspace: Workspace) -> Handle:
    """Return a handle from another node, with its `final` path on this node.

    Raises
    ------
    StorageError
        The path leaves the session's directory, or is not a path.
    """
    if "\0" in handle.final:
        raise StorageError(f"{handle.final!r} is not a path")
    if not handle.final.startswith(HERE):
        return handle
    final = f"{workspace.directory}/{handle.final[len(HERE) :]}"
    if ".." in Path(final).parts:
        raise StorageError(f"the path {handle.final!r} leaves the directory of the session")
    return msgspec.structs.replace(handle, final=final)


def stamp_of(path: str) -> tuple[int, ...]:
    """Return inode, size and time of change (ns) of a file or directory; empty if it cannot be read."""
    try:
        status = os.stat(path)  # noqa: PTH116 - once a content
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def still_there(files: Mapping[int, SharedFile], seconds: float = _SECONDS) -> list[int]:
    """Return the files that are unchanged since their commit, among the files that can be read in time."""
    if not files:
        return []
    unchanged: list[int] = []

    def look() -> None:
        for row, file in files.items():
            if _is_same(file):
                unchanged.append(row)

    # A file system that hangs must not hang the session.
    thread = threading.Thread(target=look, name="shared-files", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        _log.warning(
            "%d of %d shared files could not be looked at in %g s", len(files) - len(unchanged), len(files), seconds
        )
    return unchanged[:]


def _is_same(file: SharedFile) -> bool:
    handle = file.handle
    if not file.stamp or stamp_of(handle.location) != file.stamp or not os.access(handle.location, os.R_OK):
        return False
    try:
        return handle.kind != "directory" or measure(handle.location) == handle.size
    except OSError:
        return False
