"""Which contents of other members this node has copies of, on the disk, so that a later process finds them.

::

    copies/<row>-<tag>-<view>.part/<name>   a copy
    copies/<row>.msgpack                    its record: in which view it was made, of what
    copies/held.msgpack                     which copies of earlier views counted when the present view began

A record is written when the copy is complete, and before its owner is told. A copy counts in the view in which it was
made. In a later view it counts if it was there when that view began: the content of a drop that runs again is another
one, perhaps with other bytes, and its copies are removed then. A process that ends in between leaves records of an
earlier view, which do not count.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np

from dropflow.data.storage_errors import storage_errors
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.errors import DropflowError
from managers.node.checksummed_file import read_checksummed, write_checksummed
from managers.node.downloads import refuse_changed
from managers.node.held_copies import HeldCopy
from managers.node.paths import here, portable
from managers.node.shared_files import stamp_of
from managers.recovery.records import pack_column, unpack_column

__all__ = ["CopyRecords", "Version"]

_HERE = "./"
_HELD = "held.msgpack"

Version = tuple[int, int]
"""Deployment and view of a session."""


class _CopyRecord(msgspec.Struct, frozen=True):
    """One copy. The paths of its content are relative to the session directory if they are below it."""

    row: int
    version: Version
    copy: HeldCopy


class _HeldRows(msgspec.Struct, frozen=True):
    """The rows of the copies that were there when a view began: int32, packed."""

    version: Version
    rows: bytes


class CopyRecords:
    """The records of one session on this node. For any thread: each file is replaced as a whole.

    Parameters
    ----------
    directory : Path
        The session directory.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "copies"
        self._workspace = Workspace(str(directory), "")  # for paths, which do not have the session's name

    def write(self, version: Version, row: int, copy: HeldCopy, *, durable: bool = False) -> None:
        """Record a copy that is complete.

        Raises
        ------
        StorageError
            The record cannot be written.
        """
        with storage_errors("make the directory", self._folder):
            self._folder.mkdir(exist_ok=True)
        record = _CopyRecord(row, version, msgspec.structs.replace(copy, handle=self._relative(copy.handle)))
        write_checksummed(self._path(row), record, durable=durable)

    def begin_view(self, version: Version, rows: Iterable[int]) -> None:
        """Record which copies of earlier views count in the one that begins, before its journal does.

        Raises
        ------
        StorageError
            The record cannot be written.
        """
        if self._folder.exists():
            column = np.array(sorted(rows), dtype=np.int32)
            write_checksummed(self._folder / _HELD, _HeldRows(version, pack_column(column)))

    def moved(self, row: int, content: Handle) -> None:
        """Record that a copy has become a content, which is elsewhere: it is still found there if that is undone.

        Raises
        ------
        StorageError
            The record cannot be written.
        """
        with suppress(DropflowError):
            record = read_checksummed(self._path(row), _CopyRecord)
            moved = msgspec.structs.replace(content, final=content.location)
            copy = msgspec.structs.replace(record.copy, handle=self._relative(moved))
            write_checksummed(self._path(row), msgspec.structs.replace(record, copy=copy))

    def forget(self, path: str) -> None:
        """Remove the record of the copy at a path, which was removed; never raises."""
        name = Path(path).parent.name.partition("-")[0]
        with suppress(DropflowError, OSError, ValueError):
            record = read_checksummed(self._path(int(name)), _CopyRecord)
            if self._absolute(record.copy.handle).location == path:
                self._path(int(name)).unlink(missing_ok=True)

    def read(self, version: Version) -> dict[int, HeldCopy]:
        """Return the copies that count in this view and are there, by row. Damaged records are left out."""
        rows: frozenset[int] = frozenset()
        with suppress(DropflowError):
            held = read_checksummed(self._folder / _HELD, _HeldRows)
            if held.version == version:
                rows = frozenset(unpack_column(held.rows, np.int32).tolist())
        found: dict[int, HeldCopy] = {}
        for path in sorted(self._folder.glob("*.msgpack")):
            if path.name == _HELD:
                continue
            with suppress(DropflowError):
                record = read_checksummed(path, _CopyRecord)
                handle = self._absolute(record.copy.handle)
                refuse_changed(handle)
                is_counted = record.version == version or (record.version < version and record.row in rows)
                if is_counted and (not record.copy.stamp or stamp_of(handle.location) == record.copy.stamp):
                    found[record.row] = msgspec.structs.replace(record.copy, handle=handle)
        return found

    def _path(self, row: int) -> Path:
        return self._folder / f"{row}.msgpack"

    def _relative(self, handle: Handle) -> Handle:
        location, directory = handle.location, f"{self._workspace.directory}/"
        if location.startswith(directory):
            location = _HERE + location[len(directory) :]
        return portable(msgspec.structs.replace(handle, location=location), self._workspace)

    def _absolute(self, handle: Handle) -> Handle:
        location = handle.location
        if location.startswith(_HERE):
            location = f"{self._workspace.directory}/{location[len(_HERE) :]}"
        return here(msgspec.structs.replace(handle, location=location), self._workspace)
