"""Limits and usage of attempts, as far as they can be enforced and measured in the process of the attempt.

After the limit, waits and commands of the attempt are stopped, and its Python code is interrupted by an exception;
code that catches that is interrupted once more. Code that runs outside of Python cannot be interrupted: then the
attempt is given up, and the pool kills its worker process.
"""

import resource
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from dropflow.errors import Interrupted
from dropflow.stopping import raise_in

LATE_GRACE_SECONDS = 2.0
"""Seconds that an attempt over its limit may take to clean up."""
_STOP_SECONDS = LATE_GRACE_SECONDS + 0.5
_INTERRUPT_SECONDS = 1.0
"""Seconds between two interrupts of an attempt that is over its limit."""
_SHORT_SECONDS = 0.001
"""Seconds of an attempt below which its duration counts as its processor time."""
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = b"5"
_GROWTH_BYTES = 16 << 20
"""Bytes by which the peak of memory must grow to be reset for the next attempts."""


class Deadline:
    """Context manager around an attempt that runs in this thread.

    Parameters
    ----------
    seconds : float
        The limit in seconds.
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
        """Whether the limit has passed and the attempt was asked to stop."""

    def __enter__(self) -> Self:
        self._thread = threading.get_ident()
        threading.Thread(target=self._watch, name="deadline", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Note that the attempt has ended. Idempotent; to be called again if the exception was raised in here.

        An exception that is pending is raised in here, and none is set later. It is not withdrawn by setting None:
        CPython 3.11 and 3.12 would then look for a pending one at every later call in every thread. In 3.11, a thread
        that is traced, such as by a debugger, would never return from that.
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


class UsageMeter:
    """Measures the attempts of one process or thread, one after another.

    The system is asked only after attempts of a millisecond or more, since each call takes microseconds. Shorter
    attempts count as if they had computed all the time.

    Parameters
    ----------
    owns_process : bool
        Whether attempts have the process to themselves. Then its child processes count too, and its memory is theirs.
    """

    def __init__(self, *, owns_process: bool) -> None:
        self._owns_process = owns_process
        self._measured = self._processor_seconds()
        self._short = 0.0
        """Seconds of the short attempts since the last measurement."""
        self._peak = self._least = _peak() if owns_process else 0

    def end(self, seconds: float) -> tuple[float, int]:
        """Return the processor time and memory of the attempt that ends.

        Parameters
        ----------
        seconds : float
            Seconds that it ran.

        Returns
        -------
        processor : float
            Seconds of processor time.
        memory : int
            Largest resident memory of the process meanwhile, in bytes; 0 if other attempts use it too.
        """
        if seconds < _SHORT_SECONDS:
            self._short += seconds
            return seconds, self._peak
        total = self._processor_seconds()
        processor, self._measured, self._short = total - self._measured - self._short, total, 0.0
        if not self._owns_process:
            return min(max(processor, 0.0), seconds), 0
        peak = _peak()
        if peak > self._least + _GROWTH_BYTES:
            # Resets the peak, so that it does not count for the next attempts. Without /proc, it does.
            with suppress(OSError):
                _RESET.write_bytes(_RESET_PEAK)
            self._least = _peak()
        self._peak = self._least
        return max(processor, 0.0), peak

    def _processor_seconds(self) -> float:
        if not self._owns_process:
            return time.thread_time()
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
