"""Writers to files, under temporary names."""

import contextlib
import errno
import io
import os
import shutil
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

from dropflow.data.file_checksum import checksum_of
from dropflow.data.read_content import measure
from dropflow.data.special_files import refuse_made, refuse_special
from dropflow.data.storage_errors import storage_error, storage_errors
from dropflow.data.store import Shield, Slot
from dropflow.data.workspace import PART_FOLDER
from dropflow.engine.api import Handle
from dropflow.errors import StorageError
from dropflow.fsync import force_to_disk

__all__ = ["FileWriter", "remove_part", "remove_part_folder", "temporary_path"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o666
"""Mode of new files, before the umask: the files get their final names when they are committed."""


def temporary_path(slot: Slot, final: str) -> str:
    """Return a unique temporary path on the file system of `final`.

    Raises
    ------
    BadFileError
        There is a FIFO, a socket or a device at `final`.
    StorageError
        Nothing can be written there.
    """
    workspace = slot.workspace
    if not workspace.is_detached:
        refuse_special(final)
    if workspace.is_detached or workspace.is_inside(final):
        return workspace.part_name(slot.drop, slot.attempt, slot.number)
    return workspace.part_beside(final)


class FileWriter:
    """Writes a content to a file, with `write`, by a program at `path`, or both.

    Parameters
    ----------
    path : str
        Temporary path.
    final : str
        Path of the content after its commit; empty if it stays.
    kind : str
        Kind of the handle.
    durable : bool
        Whether to force the file to disk (fsync) at the end.
    directory_for : callable, optional
        Makes a directory for a temporary path. Programs get a path in it with the final base name, because they use
        file extensions. Not called if no program writes the content.
    overflow : callable, optional
        Returns a temporary path on another file system, for the case that the first one is full.
    shielded : Shield
        Of the attempt that writes: an interruption just after a file is opened would leave it open.
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
        shielded: Shield = contextlib.nullcontext,
    ) -> None:
        self._path = path
        self._final = final
        self._kind = kind
        self._durable = durable
        self._directory_for = directory_for
        self._overflow = overflow
        self._shielded = shielded
        self._stream: io.FileIO | None = None
        self._size = 0
        self._checksum = 0
        self._text = True
        self._begun = False
        self._given = False

    @property
    def location(self) -> str:
        """Present path of the file."""
        return self._path

    @property
    def final(self) -> str:
        """Path of the content after its commit; empty if it stays."""
        return self._final

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Append to the file.

        Raises
        ------
        StorageError
            The file cannot be written.
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
        """Return the temporary path, for a program. There is no file unless something was written.

        Raises
        ------
        StorageError
            Its directory cannot be made.
        """
        if not self._given:
            self._given = True
            if self._directory_for is not None:
                self._rename(f"{self._directory_for(self._path)}/{self._final.rpartition('/')[2]}")
            else:
                Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        return self._path

    def finish(self) -> Handle:
        """Return the file, or a directory that a program made in its place; makes an empty file by default."""
        with storage_errors("finish writing", self._path):
            self._close()
            if not self._given and self._size:
                size, checksum = self._size, self._checksum
                kind = self._kind
            else:
                kind, size, checksum = self._look()
            if self._durable and kind != "directory":
                force_to_disk(self._path)
        text = self._text and bool(self._size) and not self._given
        return Handle(kind=kind, location=self._path, final=self._final, size=size, checksum=checksum, text=text)

    def abandon(self) -> None:
        """Remove the file and its directory; never raises."""
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
            with self._shielded():
                self._stream = io.FileIO(self._descriptor(), "ab")
            self._begun = True
        return self._stream

    def _descriptor(self) -> int:
        # Fails if another program made the file.
        flags = _APPEND if self._begun or self._given else _APPEND | os.O_EXCL
        try:
            return os.open(self._path, flags, _MODE)
        except FileNotFoundError:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, flags, _MODE)

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
            remove_part(path)  # incomplete copy
            raise
        self._path, self._overflow = path, None


def remove_part(path: str) -> None:
    """Remove an uncommitted content, and the directory that was made for it; never raises."""
    try:
        os.unlink(path)  # noqa: PTH108 - many of these in a session; unlinking refuses directories
    except FileNotFoundError:
        pass  # committed
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
    remove_part_folder(path)


def remove_part_folder(path: str) -> None:
    """Remove the directory that was made for `path`, if it is empty; never raises."""
    folder = path.rpartition("/")[0]
    if folder.endswith(PART_FOLDER):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106 - see above
