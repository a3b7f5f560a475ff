"""When a process that stays is to end: by a signal, or because who started it is gone."""

import contextlib
import logging
import os
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

__all__ = ["Stopping"]

_LOG = logging.getLogger("dropflow.cli")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """Waits for SIGINT, SIGTERM, SIGHUP, or the end of the process that started this one.

    The first signal asks for a clean end; a second one ends the process at once, with 128 plus its number.

    Parameters
    ----------
    parent : int or None
        File descriptor of a pipe whose other end the starting process holds. When that process ends, however it ends,
        the pipe is closed and this process ends too.
    at_once : callable
        What must be done even if the end is not clean.
    """

    def __init__(self, parent: int | None = None, at_once: Callable[[], None] = lambda: None) -> None:
        self._parent = parent
        self._at_once = at_once
        self._wanted = False

    def __enter__(self) -> Self:
        # A pipe, because a signal handler that takes a lock may wait for the thread that it interrupts.
        self._reader, self._writer = os.pipe()
        # Who was started with nohup ignores SIGHUP, and keeps doing so.
        self._former = {
            number: signal.signal(number, self._on_signal)
            for number in _SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP
        }
        if self._parent is not None:
            with contextlib.suppress(OSError):  # told by `_watch`
                os.set_inheritable(self._parent, False)
            threading.Thread(target=self._watch, args=(self._parent,), name="parent", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        # The pipe stays: a thread that watches the parent may still write to it, and the process ends soon.

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when the process is to end."""
        return self._reader

    def asked(self) -> bool:
        """Whether the process is to end."""
        return self._wanted

    def stop(self) -> None:
        """Ask for a clean end, from any thread."""
        self._wanted = True
        os.write(self._writer, b"x")

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the process is to end, or for so many seconds; whether it is to end."""
        select.select([self._reader], [], [], seconds)
        return self._wanted

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._wanted:
            try:
                self._at_once()
            finally:
                os._exit(128 + number)
        self.stop()

    def _watch(self, parent: int) -> None:
        try:
            while os.read(parent, 1024):
                pass
        except OSError:
            _LOG.warning("the pipe to the starting process cannot be read; it is not watched")
            return
        self.stop()
