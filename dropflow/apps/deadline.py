"""Time limits of attempts, as far as they can be enforced in the process of the attempt.

After the limit, waits and commands of the attempt are stopped, and its Python code is interrupted by an exception; code
that catches that is interrupted once more. Code that runs outside of Python cannot be interrupted: then the attempt is
given up, and the pool kills its worker process.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from dropflow.engine.interrupt_thread import raise_in
from dropflow.errors import Interrupted

__all__ = ["GRACE_SECONDS", "Deadline"]

GRACE_SECONDS = 2.0
"""How long an attempt that is over its limit may take to clean up."""
_STOP_SECONDS = GRACE_SECONDS + 0.5
_INTERRUPT_SECONDS = 1.0


class Deadline:
    """Context manager around an attempt that runs in this thread.

    Parameters
    ----------
    seconds : float
        The limit.
    stop : callable
        Stops waits and commands of the attempt.
    give_up : callable
        Called from another thread if the attempt does not end.
    """

    def __init__(self, seconds: float, stop: Callable[[], None], give_up: Callable[[], None]) -> None:
        self._seconds = seconds
        self._stop = stop
        self._give_up = give_up
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = 0
        self.expired = False
        """Whether the limit has passed and the attempt was told to stop."""

    def __enter__(self) -> Self:
        self._thread = threading.get_ident()
        threading.Thread(target=self._watch, name="deadline", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Note that the attempt has ended. Idempotent; to be called again if the exception was raised in here.

        An exception that is pending is raised in here, and none is set later. It is not withdrawn by setting None:
        CPython 3.11 and 3.12 would then look for a pending one at every later call in every thread, and in 3.11 a
        thread that is traced, as by a debugger, would never return from that.
        """
        with self._lock:
            self._over.set()

    def _watch(self) -> None:
        if self._over.wait(self._seconds):
            return
        self.expired = True
        self._stop()
        if self._over.wait(_STOP_SECONDS):
            return
        with self._lock:
            if self._over.is_set():
                return
            raise_in(self._thread, Interrupted)
        if not self._over.wait(_INTERRUPT_SECONDS):
            self._give_up()
