"""Write contents that managers send into a directory: each file is complete, or it is not there.

No path that a manager sends leads out of the directory. Incomplete files are in a hidden directory inside of it, which
the next command empties if this process is killed.
"""

import fcntl
import os
import secrets
import shutil
import tarfile
import threading
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self

from dropflow.content_digest import digest
from dropflow.data.fingerprint import fingerprint
from dropflow.errors import BadFileError, MissingDependencyError, StorageError
from dropflow.private import private_directory
from dropflow.rest.result_paths import UNFINISHED

__all__ = ["IncomingFile", "ResultDirectory"]


class ResultDirectory:
    """A directory into which several threads write contents.

    Raises
    ------
    OSError
        It cannot be written.
    StorageError
        Other users can change the files.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._unfinished = root / UNFINISHED
        self._safe: set[Path] = set()
        self._lock = threading.Lock()
        """Guards `_safe` and the creation of parent directories."""
        root.mkdir(parents=True, exist_ok=True)
        # All commands that write here share the lock of the directory; the last one removes incomplete files.
        self._shared = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._clear_if_alone()
        with suppress(OSError):
            fcntl.flock(self._shared, fcntl.LOCK_SH)
        private_directory(self._unfinished)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._clear_if_alone()
        os.close(self._shared)

    def digest(self, path: PurePosixPath, size: int | None) -> str:
        """Return the digest of the file at this path; empty if there is none, or one of another size."""
        target = self.root / path
        if target.is_symlink() or not target.exists():
            return ""
        try:
            if not target.is_dir() and target.stat().st_size != size:
                return ""
            return fingerprint(target)
        except (OSError, StorageError):
            return ""

    def begin(self, path: PurePosixPath, *, is_directory: bool) -> "IncomingFile":
        """Return the incomplete file for the content that belongs at this path.

        Raises
        ------
        BadFileError
            A link in the directory leads out of it.
        OSError
            It cannot be written.
        """
        target = self.root / path
        with self._lock:
            if target.parent not in self._safe:
                if not target.parent.resolve().is_relative_to(self.root.resolve()):
                    raise BadFileError("a link in the directory leads out of it", where=str(target.parent))
                target.parent.mkdir(parents=True, exist_ok=True)
                self._safe.add(target.parent)
        return IncomingFile(target, self._unfinished / secrets.token_hex(8), is_directory=is_directory)

    def _clear_if_alone(self) -> None:
        with suppress(OSError):
            fcntl.flock(self._shared, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(self._unfinished)


class IncomingFile:
    """One content that is being written."""

    def __init__(self, target: Path, unfinished: Path, *, is_directory: bool) -> None:
        self.size = 0
        self._target = target
        self._unfinished = unfinished
        self._is_directory = is_directory
        self._digest = digest()
        self._file: BinaryIO = unfinished.open("xb")

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def finish(self, wanted: str) -> None:
        """Move the content to its path, if `wanted` is the digest of its bytes.

        Raises
        ------
        BadFileError
            The digest differs, or a directory cannot be unpacked.
        """
        self._file.close()
        if self._digest.hexdigest() != wanted:
            raise BadFileError("the content was damaged during the transfer", hint="fetch it again")
        content = self._unpacked() if self._is_directory else self._unfinished
        if self._target.is_dir() and not self._target.is_symlink():
            shutil.rmtree(self._target)
        elif content.is_dir():
            self._target.unlink(missing_ok=True)
        content.replace(self._target)

    def close(self) -> None:
        """Remove incomplete files; idempotent."""
        self._file.close()
        _remove(self._unfinished)
        if self._is_directory:
            _remove(self._folder)

    @property
    def _folder(self) -> Path:
        return self._unfinished.with_name(f"{self._unfinished.name}.d")

    def _unpacked(self) -> Path:
        if not hasattr(tarfile, "data_filter"):
            raise MissingDependencyError(
                "this Python cannot unpack directories safely",
                hint="use Python 3.11.4 or newer, or run fetch elsewhere",
            )
        try:
            with tarfile.open(self._unfinished) as archive:
                archive.extractall(self._folder, filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise BadFileError(f"the directory cannot be unpacked: {error}") from error
        return self._folder


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
