"""Parts that are files: content on its way under a temporary name."""

import contextlib
import errno
import io
import os
import shutil
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

from dropflow.data.read_content import checksum_of, measure
from dropflow.data.special_files import refuse_made, refuse_special
from dropflow.data.storage_errors import storage_error, storage_errors
from dropflow.data.store import Slot
from dropflow.data.workspace import PART_FOLDER
from dropflow.engine.api import Handle
from dropflow.errors import StorageError

__all__ = ["FileWriter", "remove_part", "remove_part_folder", "temporary_path"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o666
"""Of new files, less the umask: they are under their final name when they are committed."""


def temporary_path(slot: Slot, final: str) -> str:
    """Where the part for `final` is written: on its file system, under a name that nothing else has.

    Raises
    ------
    BadFileError
        At `final` is a FIFO, a socket or a device.
    StorageError
        Nothing can be written there.
    """
    workspace = slot.workspace
    refuse_special(final)
    if workspace.is_inside(final):
        return workspace.part_name(slot.drop, slot.attempt, slot.number)
    return workspace.part_beside(final)


class FileWriter:
    """Content on its way into a file, written by `write`, by a program at `path`, or both.

    Parameters
    ----------
    path : str
        Temporary path.
    final : str
        Where the content must be after commit; empty when it stays.
    kind : str
        Kind of the handle.
    durable : bool
        Whether to force the file to the disk when it is finished.
    directory_for : callable, optional
        Makes a directory for the part, given its temporary path: where programs find it under its final base name,
        because they look at the extensions of files. A part that no program asks for does without.
    overflow : callable, optional
        Gives a temporary path elsewhere, for when the file system of `path` is full.
    """

    def __init__(
        self,
        path: str,
        *,
        final: str = "",
        kind: str = "file",
        durable: bool = False,
        directory_for: Callable[[str], str] | None = None,
        overflow: Callable[[], str] | None = None,
    ) -> None:
        self._path = path
        self._final = final
        self._kind = kind
        self._durable = durable
        self._directory_for = directory_for
        self._overflow = overflow
        self._stream: io.FileIO | None = None
        self._size = 0
        self._checksum = 0
        self._text = True
        self._begun = False
        self._given = False

    @property
    def location(self) -> str:
        """Where the file is now."""
        return self._path

    @property
    def final(self) -> str:
        """Where the content must be after commit; empty when it stays."""
        return self._final

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Append to the file.

        Raises
        ------
        StorageError
            Names the path, and the space left when there is not enough.
        """
        block = memoryview(data).cast("B")
        done = 0
        while done < len(block):
            try:
                done += self._open().write(block[done:])
            except OSError as error:
                if error.errno not in _FULL or self._overflow is None:
                    raise storage_error("write", self._path, error) from error
                self._move(self._overflow())
        self._size += done
        self._checksum = zlib.crc32(block, self._checksum)
        self._text = self._text and text
        return done

    def path(self) -> str:
        """Temporary path, for a program; nothing is there unless something was written.

        Raises
        ------
        StorageError
            No directory can be made for it.
        """
        if not self._given:
            self._given = True
            if self._directory_for is not None:
                self._rename(f"{self._directory_for(self._path)}/{self._final.rpartition('/')[2]}")
            else:
                Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        return self._path

    def finish(self) -> Handle:
        """The file, or the directory that a program made in its place; an empty file when nothing was written."""
        with storage_errors("finish writing", self._path):
            self._close()
            if not self._given and self._size:
                size, checksum = self._size, self._checksum
                kind = self._kind
            else:
                kind, size, checksum = self._look()
            if self._durable and kind != "directory":
                _force(self._path)
        text = self._text and bool(self._size) and not self._given
        return Handle(kind=kind, location=self._path, final=self._final, size=size, checksum=checksum, text=text)

    def abandon(self) -> None:
        """Remove the file and the directory made for it."""
        with contextlib.suppress(OSError):
            self._close()
        remove_part(self._path)

    def _look(self) -> tuple[str, int, int]:
        try:
            mode = Path(self._path).stat().st_mode
        except FileNotFoundError:
            self._open()
            self._close()
            return self._kind, 0, 0
        refuse_made(self._path, mode)
        size = measure(self._path)
        if stat.S_ISDIR(mode):
            return "directory", size, 0
        return self._kind, size, checksum_of(self._path)

    def _open(self) -> io.FileIO:
        if self._stream is None:
            flags = _APPEND if self._begun or self._given else _APPEND | os.O_EXCL  # nothing that others have put there
            try:
                descriptor = os.open(self._path, flags, _MODE)
            except FileNotFoundError:
                Path(self._path).parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(self._path, flags, _MODE)
            self._stream = io.FileIO(descriptor, "ab")
            self._begun = True
        return self._stream

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _rename(self, path: str) -> None:
        if self._size:
            with storage_errors("move what was written so far to", path):
                self._close()
                Path(self._path).rename(path)
        self._path = path

    def _move(self, path: str) -> None:
        self._close()
        try:
            with storage_errors("move what was written so far to", path):
                shutil.copyfile(self._path, path)
                Path(self._path).unlink()
        except StorageError:
            remove_part(path)  # what a full disk cut short
            raise
        self._path, self._overflow = path, None


def remove_part(path: str) -> None:
    """Remove a part and the directory that was made for it, if there is one; never raises."""
    try:
        os.unlink(path)  # noqa: PTH108 - many of these in a session; unlinking refuses directories
    except FileNotFoundError:
        pass  # committed
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
    remove_part_folder(path)


def remove_part_folder(path: str) -> None:
    """Remove the directory that was made for the part at `path`, which is gone from there; never raises."""
    folder = path.rpartition("/")[0]
    if folder.endswith(PART_FOLDER):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106 - see above


def _force(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
