"""Files on file systems that several nodes of a session see: which of them are there as they were committed.

Nothing is concluded from paths, mounts or types of file systems. A file of another node is seen from here if its path
has the inode, the size and the time of change that its owner read when it was committed. If the owner is lost, its file
is then there as before.
"""

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from dropflow.data.read import measure
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.errors import StorageError

__all__ = [
    "SharedFile",
    "here",
    "portable",
    "stamp_of",
    "still_there",
]


# Paths of contents in messages between nodes, relative to the directory that the session has on each.

_RELATIVE = "./"


def portable(handle: Handle, workspace: Workspace) -> Handle:
    """Return `handle` with a `final` path that means the same on every node."""
    if not handle.final.startswith(f"{workspace.directory}/"):
        return handle
    relative = handle.final[len(workspace.directory) + 1 :]
    return msgspec.structs.replace(handle, final=_RELATIVE + relative)


def here(handle: Handle, workspace: Workspace) -> Handle:
    """Return the handle that another node sent, with the `final` path that it has here.

    Raises
    ------
    StorageError
        The path leaves the session's directory, or is not a path.
    """
    if "\0" in handle.final:
        raise StorageError(f"{handle.final!r} is not a path")
    if not handle.final.startswith(_RELATIVE):
        return handle
    final = f"{workspace.directory}/{handle.final[len(_RELATIVE) :]}"
    if ".." in Path(final).parts:
        raise StorageError(f"the path {handle.final!r} leaves the directory of the session")
    return msgspec.structs.replace(handle, final=final)


_log = logging.getLogger(__name__)

_SECONDS = 5.0
"""How long a file system may take to answer: that of a lost node may not."""


class SharedFile(msgspec.Struct, frozen=True):
    """A committed file or directory of another node, and what `stamp_of` it was."""

    handle: Handle
    stamp: tuple[int, ...]


def stamp_of(path: str) -> tuple[int, ...]:
    """Return inode, size and time of change (ns) of a file or directory; empty if it cannot be read."""
    try:
        found = os.stat(path)  # noqa: PTH116 - once a content
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def still_there(files: Mapping[int, SharedFile], seconds: float = _SECONDS) -> list[int]:
    """Return which files are as they were when they were committed, of those that can be looked at in time."""
    if not files:
        return []
    found: list[int] = []

    def look() -> None:
        for row, file in files.items():
            if _is_same(file):
                found.append(row)

    # A file system that hangs must not hang the session.
    thread = threading.Thread(target=look, name="shared-files", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        _log.warning(
            "%d of %d shared files could not be looked at in %g s", len(files) - len(found), len(files), seconds
        )
    return found[:]


def _is_same(file: SharedFile) -> bool:
    handle = file.handle
    if not file.stamp or stamp_of(handle.location) != file.stamp or not os.access(handle.location, os.R_OK):
        return False
    try:
        return handle.kind != "directory" or measure(handle.location) == handle.size
    except OSError:
        return False
