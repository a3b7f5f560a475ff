"""What an attempt uses: processor time and memory."""

import resource
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["UsageMeter"]

_SHORT_SECONDS = 0.001
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = b"5"
_GROWTH = 16 << 20


class UsageMeter:
    """Measures the attempts of one process or thread, one after another.

    The system is asked after attempts of a millisecond or more only, since that takes microseconds. Shorter ones count
    as if they had computed all the time.

    Parameters
    ----------
    owns_process : bool
        Whether attempts have the process to themselves. Then its child processes count too, and its memory is theirs.
    """

    def __init__(self, *, owns_process: bool) -> None:
        self._owns_process = owns_process
        self._measured = self._processor_seconds()
        self._short = 0.0
        """Seconds of the short attempts since then."""
        self._peak = self._least = _peak() if owns_process else 0

    def end(self, seconds: float) -> tuple[float, int]:
        """Return what the attempt that ends has used.

        Parameters
        ----------
        seconds : float
            How long it ran.

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
        if peak > self._least + _GROWTH:
            # Otherwise the next attempts would be charged with the peak of this one. Without /proc they are.
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
