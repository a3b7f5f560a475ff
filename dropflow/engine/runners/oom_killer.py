"""Whether the kernel killed a process because memory was used up (OOM killer), as far as the system shows it.

Two places show it. The kernel's log names the process, but many systems let only root read it, and inside of a
container the ids of processes differ from those in the log. The control group (cgroup) of this process, in which worker
processes are too, counts how many of its processes were killed; version 1 counts in another file than version 2.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["OomKiller", "counter_files"]

_KERNEL_LOG = Path("/dev/kmsg")
_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_RECORD = 8192
"""Bytes: a read of the kernel's log with less room than its record fails."""


class OomKiller:
    """Watches what the OOM killer did since this object was made. Used by one thread.

    Parameters
    ----------
    counters : iterable of Path
        Files with a line ``oom_kill N``, from `counter_files`.
    kernel_log : Path
        The kernel's log, one record for each read.
    """

    def __init__(self, counters: Iterable[Path] = (), kernel_log: Path = _KERNEL_LOG) -> None:
        self._counters = tuple(counters)
        self._log = -1
        with contextlib.suppress(OSError):
            self._log = os.open(kernel_log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._log, 0, os.SEEK_END)
        self._known = self._recent = self._count()

    def check(self) -> None:
        """Forget what was counted before the last check: it was the end of a process that is no worker.

        To be called about once a second, which is longer than the end of a worker takes to be noticed.
        """
        self._known, self._recent = self._recent, max(self._recent, self._count())

    def has_killed(self, pid: int) -> bool:
        """Return whether a process that SIGKILL has ended just now was killed by the OOM killer.

        Each kill that was counted is the reason of one process only.
        """
        if any(f"Killed process {pid} " in record for record in self._records()):
            is_killed = True
        else:
            is_killed = self._count() > self._known
        if is_killed:
            self._known += 1
            self._recent = max(self._recent, self._known)
        return is_killed

    def close(self) -> None:
        """Close the kernel's log. Idempotent."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _count(self) -> int:
        return sum(_read_count(path) for path in self._counters)

    def _records(self) -> Iterator[str]:
        while self._log >= 0:
            try:
                record = os.read(self._log, _RECORD)
            except BrokenPipeError:  # the oldest records were overwritten
                continue
            except OSError:  # no more records
                return
            if not record:
                return
            yield record.decode(errors="replace")


def counter_files(membership: Path = _MEMBERSHIP, root: Path = _CGROUPS) -> list[Path]:
    """Return the files that count the kills in the control groups of this process."""
    try:
        lines = membership.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        inside = group.lstrip("/")
        if not controllers:
            found.append(root / inside / "memory.events")
        elif "memory" in controllers.split(","):
            found.append(root / "memory" / inside / "memory.oom_control")
    return [path for path in found if path.exists()]


def _read_count(path: Path) -> int:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return 0
    match = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0
