"""FIFOs that wake a waiting thread, also from other processes; streams use them (`dropflow.data.streams`)."""

import contextlib
import errno
import math
import os
import select
import threading

__all__ = ["WakeFifo", "remove", "wake"]

_DRAINED = 1 << 16
_NO_READER = (errno.ENXIO, errno.ENOENT, errno.ENOTDIR)


class WakeFifo:
    """A FIFO that wakes the thread that waits for it. It gets its name when it is open for reading."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        passing = f"{path}.new"
        os.mkfifo(passing, 0o600)
        self.fileno = os.open(passing, os.O_RDWR | os.O_NONBLOCK)
        try:
            os.rename(passing, path)  # noqa: PTH104 - text, as everywhere here
        except OSError:
            os.close(self.fileno)
            raise
        self._poll = select.poll()
        self._poll.register(self.fileno, select.POLLIN)
        self._is_open = True

    def wake(self) -> None:
        """Wake the waiting thread. May be called from any thread."""
        with self._lock:
            if self._is_open:
                _signal(self.fileno)

    def wait(self, seconds: float | None) -> None:
        """Wait for a wake-up since the last `clear`, at most `seconds`; then clear."""
        self._poll.poll(None if seconds is None else max(0, math.ceil(seconds * 1000)))
        self.clear()

    def clear(self) -> None:
        """Discard all pending wake-ups."""
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self.fileno, _DRAINED)) == _DRAINED:
                pass

    def close(self) -> None:
        """Close and remove the FIFO. Idempotent."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                remove(self._path)
                os.close(self.fileno)


def wake(path: str) -> bool:
    """Wake the thread that waits for the FIFO at `path`. Returns False if nothing has it open."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NO_READER:
            return False
        raise  # the reader would wait forever
    try:
        _signal(descriptor)
    finally:
        os.close(descriptor)
    return True


def _signal(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError, BrokenPipeError):  # full: the reader is woken anyway
        os.write(descriptor, b"!")


def remove(path: str) -> None:
    """Remove a file; never raises."""
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108 - text, as everywhere here
