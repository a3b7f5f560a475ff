"""Interrupting the code of an application in the thread that runs it, and nothing else that runs there."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from dropflow.engine.interrupt_thread import is_importing, raise_in
from dropflow.errors import Interrupted

__all__ = ["Interruption"]


class Interruption:
    """Whether one attempt is to stop, and the thread in which `Interrupted` is raised if so, once.

    The application runs between `enter` and `leave`.

    Parameters
    ----------
    lock : context manager
        Makes `request` and `leave` exclude each other. Reentrant: a signal handler may request in the same thread.
    """

    __slots__ = ("_is_raised", "_lock", "_thread", "is_requested")

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self.is_requested = False
        """Whether the attempt is to stop."""
        self._lock = lock
        self._thread = 0
        self._is_raised = False

    def enter(self) -> None:
        """Begin to run code of the application in this thread.

        Raises
        ------
        Interrupted
            The attempt is to stop.
        """
        # `request` sets `is_requested` and then reads `_thread`, so one of the two sees the other.
        self._thread = threading.get_ident()
        if self.is_requested:
            raise Interrupted

    def leave(self) -> None:
        """End running code of the application: nothing is raised in this thread after this call.

        Raises
        ------
        Interrupted
            It was interrupted just now.
        """
        self._thread = 0
        if self._is_raised:
            with self._lock:  # `request` may be about to raise it; what is pending is raised at the next call
                threading.get_ident()

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Run code that must not be interrupted at any point, such as the start of a process. From any thread.

        Raises
        ------
        Interrupted
            Afterwards, if the attempt was interrupted meanwhile.
        """
        thread = threading.get_ident()
        if self._thread != thread:  # only the thread of the application is interrupted
            yield
            return
        self.leave()
        was_raised = self._is_raised
        try:
            yield
        finally:
            with self._lock:
                self._thread = thread
                is_raised = self._is_raised
        if is_raised and not was_raised:
            raise Interrupted

    def request(self) -> int | None:
        """Interrupt the application. May be called from any thread.

        Returns
        -------
        int or None
            Thread in which an exception is pending now, 0 if there is none. None if the application cannot be
            interrupted now, because it imports a module.
        """
        self.is_requested = True
        with self._lock:
            if self._is_raised:
                return 0
            if self._thread and is_importing(self._thread):
                return None
            self._is_raised = True  # before `_thread` is read: `leave` sets `_thread` and then reads this
            thread = self._thread
            if thread:
                raise_in(thread, Interrupted)
            return thread
