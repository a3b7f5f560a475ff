"""How a worker process ended, in words: its signal or exit status, its peak memory, and what it printed last."""

import signal
from dataclasses import dataclass

from dropflow.engine.host_memory import host_memory
from dropflow.errors import WorkerDiedError
from dropflow.formatting import format_size

__all__ = ["WorkerEnd"]

_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSYS})


@dataclass(frozen=True)
class WorkerEnd:
    """The end of one worker process.

    Attributes
    ----------
    status : int
        Exit status, or minus the number of the signal that ended it.
    peak : int
        Bytes of memory that it, or a process that it waited for, used at most; 0 if that is not known.
    is_peak_exact : bool
        Whether `peak` is more than what the process took over from the one that started it. If it is not, the process
        used at most that much: Linux keeps the larger of the two.
    by_oom_killer : bool
        Whether the kernel killed it because memory was used up.
    output : str
        The end of what it printed.
    is_over : bool
        Whether it has ended. If not, it was killed and waits for the kernel.
    """

    status: int
    peak: int = 0
    is_peak_exact: bool = False
    by_oom_killer: bool = False
    output: str = ""
    is_over: bool = True

    @property
    def reason(self) -> str:
        """How it ended, to follow a subject: "was killed by signal 11 (SIGSEGV), after using 1.2 GB of memory"."""
        if not self.is_over:
            how = "was killed and does not end, because it waits for the kernel"
        elif self.by_oom_killer:
            how = "was killed by the kernel's OOM killer (SIGKILL)"
        elif self.status < 0:
            how = f"was killed by signal {-self.status}{_name(-self.status)}"
        else:
            how = f"ended with status {self.status}"
        if self.peak:
            how += f", after using {'' if self.is_peak_exact else 'at most '}{format_size(self.peak)} of memory"
        return how

    @property
    def text(self) -> str:
        """The reason, and what it printed last."""
        return f"{self.reason}; it printed last: {self.output}" if self.output else self.reason

    def error(self) -> WorkerDiedError:
        """Return the error of the attempt that it was at."""
        return WorkerDiedError(f"the worker process {self.text}", hint=self._hint())

    def _hint(self) -> str:
        if not self.is_over:
            return "a file system or a device does not answer: look at its state, and at the kernel's log (dmesg)"
        if self.by_oom_killer:
            limit = host_memory().limit
            return (
                f"{limit.reason} allows {format_size(int(limit.bytes))} for all processes together: declare what the "
                "application needs in its field 'memory', run fewer attempts at a time (--workers), or allow more"
            )
        number = -self.status
        if number in _CRASHES:
            return "a crash in compiled code that the application calls; see the log of the drop"
        if number == signal.SIGKILL:
            return "another program killed it, or the kernel because memory was used up: see the kernel's log (dmesg)"
        if number > 0:
            return "another program, or the application itself, sent the signal"
        return "code of the application ended the process, as os._exit does; raise an exception instead"


def _name(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""
