"""Wait for the end of a server process: a signal, or the end of the process that started it."""

import contextlib
import logging
import os
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

__all__ = ["StopSignal"]

_log = logging.getLogger("dropflow.cli")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignal:
    """Waits for SIGINT, SIGTERM, SIGHUP, or the end of the process that started this one.

    The first signal requests a clean end; a second one ends the process immediately, with status 128 plus its number.

    Parameters
    ----------
    parent : int or None
        File descriptor of a pipe whose other end is open in the process that started this one. When that process ends,
        also when it is killed, the pipe is closed and this process ends too.
    before_exit : callable
        Called before the process ends without clean-up.
    """

    def __init__(self, parent: int | None = None, before_exit: Callable[[], None] = lambda: None) -> None:
        self._parent = parent
        self._before_exit = before_exit
        self._is_set = False

    def __enter__(self) -> Self:
        # A pipe, because a signal handler that takes a lock may wait for the thread that it interrupts.
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        # The system may deliver a signal to any thread, and then nothing interrupts the `select` of the main thread,
        # which runs the handlers: the byte that is written for each signal wakes it.
        self._former_wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # A process started with nohup ignores SIGHUP, and must still ignore it.
        self._former = {
            number: signal.signal(number, self._on_signal)
            for number in _SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP
        }
        if self._parent is not None:
            with contextlib.suppress(OSError):  # `_watch` logs it
                os.set_inheritable(self._parent, False)
            threading.Thread(target=self._watch, args=(self._parent,), name="parent", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._former_wakeup)
        for number, handler in self._former.items():
            signal.signal(number, handler)
        # The pipe stays open: the thread that watches the parent may still write to it, and the process ends soon.

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when the process should end."""
        return self._reader

    def is_set(self) -> bool:
        """Return whether the process should end."""
        return self._is_set

    def set(self) -> None:
        """Request a clean end, from any thread."""
        self._is_set = True
        os.write(self._writer, b"x")

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the process should end, or for so many seconds; return whether it should end."""
        select.select([self._reader], [], [], seconds)
        return self._is_set

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._is_set:
            try:
                self._before_exit()
            finally:
                os._exit(128 + number)
        self.set()

    def _watch(self, parent: int) -> None:
        try:
            while os.read(parent, 1024):
                pass
        except OSError:
            _log.warning("the pipe to the starting process cannot be read; it is not watched")
            return
        self.set()
