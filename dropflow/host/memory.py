"""How much memory this process and its child processes may use together, and whether it is nearly used up.

The limit is the smallest of these: the memory of the machine; the limits of the control groups (cgroup, version 1 or 2)
of this process, and of all groups around them; the limits of this process (``ulimit -v`` and ``-d``); and the limit of
a user (``--memory``). The memory in use is measured where the limit is. In a group, all its processes count, and files
in shared memory (tmpfs) that they wrote. For the limit of a user, these count: the process that got the limit, its
child processes, and the files of its sessions in shared memory. Cached files of the disk do not count, because the
kernel takes their memory back.

As memory fills up, first new contents go to the disk and not to shared memory. Then no attempts begin beside running
ones. Each process decides for itself, by a measurement that is at most 50 ms old, or as old as 20 measurements take.
"""

import enum
import os
import re
import resource
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dropflow.clock import SystemClock

_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only read
_VARIABLE = "DROPFLOW_MEMORY"
"""Environment variable with the limit of a user in bytes, for a process and its child processes, and the process id."""
_VALID_SECONDS = 0.05
"""Shortest seconds for which a measurement is used."""
_VALID_COSTS = 20
"""Times its own duration for which a measurement is used: it takes at most 5 % of the time."""
_GROUP_SHARES = (0.6, 0.8)
"""Shares of the limit of a group: above the first, contents go to the disk; above the second, attempts wait."""
_MACHINE_SHARES = (0.8, 0.9)
"""The same shares for the machine. They are higher: attempts should not wait for memory that other users take."""
_VALUES_SHARE = 0.6
"""Share of the free memory for the values of one computation. Its running tasks need the rest."""
_NOT_RECLAIMABLE = frozenset({b"inactive_anon", b"active_anon", b"unevictable"})
"""Pages of processes and of shared memory, in the statistics of a group."""


class Pressure(enum.IntEnum):
    """How full memory is."""

    LOW = 0
    CONTENTS = 1
    """Contents go to the disk."""
    ATTEMPTS = 2
    """Attempts do not begin beside others."""


class MemoryLimit(NamedTuple):
    """A limit of memory, and its reason.

    Attributes
    ----------
    bytes : float
        The limit in bytes.
    reason : str
        The name of the limit, such as ``the machine``.
    """

    bytes: float
    reason: str


class HostMemory:
    """The memory that this process and its child processes may use. The limits are read once.

    Parameters
    ----------
    proc, cgroups : Path
        Directories in which the system shows processes and control groups.
    given : str
        The limit of a user in bytes, for a process and its child processes, and the process id; empty for no limit.
    """

    def __init__(self, proc: Path = _PROC, cgroups: Path = _CGROUPS, given: str = "") -> None:
        self._meminfo = proc / "meminfo"
        total, _ = self._machine()
        limits = [MemoryLimit(total, "the machine")]
        self._groups: list[tuple[Path, float]] = []
        for folder in control_groups("memory", proc, cgroups):
            limit = min((amount for name in _LIMITS if (amount := _number(folder / name))), default=total)
            if limit < total:
                self._groups.append((folder / "memory.stat", limit))
                inside = folder.relative_to(cgroups)
                limits.append(
                    MemoryLimit(limit, f"the control group {inside}" if inside.parts else "the control group")
                )
        for kind, option in ((resource.RLIMIT_AS, "-v"), (resource.RLIMIT_DATA, "-d")):
            soft, _ = resource.getrlimit(kind)
            if soft != resource.RLIM_INFINITY:
                limits.append(MemoryLimit(soft, f"ulimit {option}"))
        self._given, self._root = (int(word) for word in given.split()) if given else (0, 0)
        if given:
            limits.append(MemoryLimit(self._given, "--memory"))
        self.limit = min(limits, key=lambda limit: limit.bytes)
        """The limit of memory with the fewest bytes, and where it comes from."""
        self._clock = SystemClock()
        self._next_measurement, self._pressure = 0.0, Pressure.LOW

    def pressure(self) -> Pressure:
        """Return how full memory is. Any thread may call this."""
        now = self._clock.monotonic()
        if now >= self._next_measurement:
            self._pressure = self._measure()
            self._next_measurement = now + max(_VALID_SECONDS, _VALID_COSTS * (self._clock.monotonic() - now))
        return self._pressure

    def free(self) -> float:
        """Return the bytes that may still be used."""
        _, available = self._machine()
        left = [limit - _used(statistics) for statistics, limit in self._groups]
        if self._given:
            left.append(self._given - _used_by(self._root))
        return max(0.0, min(available, *left, self.limit.bytes))

    def for_values(self) -> int:
        """Return how many bytes the values of one computation may take if no limit is given."""
        return max(1, int(_VALUES_SHARE * self.free()))

    def _measure(self) -> Pressure:
        total, available = self._machine()
        pressure = _pressure(total - available, total, _MACHINE_SHARES)
        for statistics, limit in self._groups:
            pressure = max(pressure, _pressure(_used(statistics), limit, _GROUP_SHARES))
        if self._given:
            pressure = max(pressure, _pressure(_used_by(self._root), self._given, _GROUP_SHARES))
        return pressure

    def _machine(self) -> tuple[float, float]:
        """Return the bytes of memory of the machine, and how many are available."""
        try:
            lines = self._meminfo.read_bytes().splitlines()
            values = {name: float(rest.split()[0]) * 1024 for name, _, rest in (line.partition(b":") for line in lines)}
            return values[b"MemTotal"], values[b"MemAvailable"]
        except (OSError, KeyError, ValueError, IndexError):
            total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
            return total, total


@cache
def host_memory() -> HostMemory:
    """Return the memory that this process may use. The limits are read at the first call."""
    return HostMemory(given=os.environ.get(_VARIABLE, ""))


def restrict_memory(size: int) -> None:
    """Limit this process and its child processes to this many bytes together."""
    os.environ[_VARIABLE] = f"{size} {os.getpid()}"
    host_memory.cache_clear()


def control_groups(controller: str, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> list[Path]:
    """Return the directories of the control groups of this process for one controller, the innermost first.

    In a container whose groups have other names inside than outside, only the outermost directory exists: its own.
    """
    folders = []
    for base, parts in _memberships(controller, proc / "self" / "cgroup", cgroups):
        folders += [base.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    return [folder for folder in folders if folder.is_dir()]


def _memberships(controller: str, membership: Path, cgroups: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the root of a hierarchy with a controller, and the path of this process in it: all of v2, or one of v1."""
    try:
        lines = membership.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers or controller in controllers.split(","):
            yield cgroups / controller if controllers else cgroups, [part for part in path.split("/") if part]


def _number(path: Path) -> float:
    """Return the number in a file; 0 if there is none."""
    try:
        return float(path.read_bytes())
    except (OSError, ValueError):  # no such file, or "max"
        return 0.0


def _used(statistics: Path) -> float:
    """Return the bytes that a group and its subgroups use and the kernel cannot take back; 0 if that is unknown."""
    try:
        rows = [line.split() for line in statistics.read_bytes().splitlines()]
    except OSError:
        return 0.0
    values = {row[0]: float(row[1]) for row in rows}
    # Version 1 counts a group and all in it under other names.
    prefix = b"total_" if b"total_inactive_anon" in values else b""
    return sum(values.get(prefix + name, 0.0) for name in _NOT_RECLAIMABLE)


def _used_by(root: int) -> float:
    """Return the bytes of a process, its child processes, and its files in shared memory; 0 if it has ended."""
    import psutil  # noqa: PLC0415 - most processes have no limit of a user

    used = 0.0
    with suppress(psutil.Error):
        process = psutil.Process(root)
        for member in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                memory = member.memory_info()
                used += memory.rss - memory.shared
    for folder in _SHARED_MEMORY.glob(f"dropflow-*-{root}-*"):  # the names of `dropflow.data.workspace`
        if folder.name.split("-", 3)[2] != str(root):  # the number is part of the name of the session
            continue
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    used += entry.stat().st_blocks * 512
    return used


def _pressure(used: float, limit: float, shares: tuple[float, float]) -> Pressure:
    return Pressure(sum(used > share * limit for share in shares))


# The number of processes that the kernel has ended because memory was used up.


def counter_files(membership: Path = _PROC / "self" / "cgroup", root: Path = _CGROUPS) -> list[Path]:
    """Return the files that count the kills in the control groups of this process."""
    paths = (
        base.joinpath(*parts, "memory.events" if base == root else "memory.oom_control")
        for base, parts in _memberships("memory", membership, root)
    )
    return [path for path in paths if path.exists()]


def count_kills(counters: Iterable[Path] | None = None) -> int:
    """Return how many processes the OOM killer has ended in the control groups of this process, or in those given."""
    return sum(_read_count(path) for path in (_own_counters() if counters is None else counters))


@cache
def _own_counters() -> tuple[Path, ...]:
    return tuple(counter_files())


def _read_count(path: Path) -> int:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return 0
    match = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0
