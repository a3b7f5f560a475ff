"""The lock of a session directory: at most one process works in it."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from socket import gethostname
from types import TracebackType
from typing import Self

from dropflow.errors import ConflictError, StorageError

__all__ = ["LOCK", "SessionLock"]

LOCK = "lock"
"""Name of the file in the session directory."""

_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class SessionLock:
    """Held while a process works in a session directory; the system releases it when the process ends, however it ends.

    It is a lock of the whole file (``flock``), which worker processes do not inherit. On a file system without such
    locks there is none, and nothing keeps two processes apart.

    Parameters
    ----------
    directory : Path
        The session directory, which exists.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / LOCK
        self._descriptor = -1

    def __enter__(self) -> Self:
        """Acquire the lock.

        Raises
        ------
        ConflictError
            Another process has it.
        StorageError
            The file cannot be made.
        """
        while self._descriptor < 0:
            try:
                self._descriptor = self._acquire()
            except OSError as error:
                raise StorageError(
                    f"the lock of the session cannot be made: {error.strerror}", where=str(self._path)
                ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the file and release the lock."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1

    def _acquire(self) -> int:
        """Return the descriptor with the lock; -1 if the process that had it has just removed the file."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                raise ConflictError(
                    f"another process is at work in it{f': {holder}' if holder else ''}",
                    where=str(self._directory),
                    hint="wait until it ends, or stop it",
                ) from None
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
            if not os.path.lexists(self._path) or not os.path.samestat(os.fstat(descriptor), self._path.stat()):
                os.close(descriptor)
                return -1
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {gethostname()}\n".encode(), 0)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        return descriptor
