"""The session's directory in shared memory, and what dead sessions left in theirs.

Its name says whose it is: ``dropflow-<pid namespace>-<pid>-<start time>-<session>``. When a session starts, it removes
the directories of sessions whose process is no more. Process ids are reused and differ between containers that share
``/dev/shm``, hence the start time and the namespace in the name: a directory is only judged by a process that can see
its owner.
"""

import os
import shutil
from pathlib import Path

from dropflow.ids import safe_name

__all__ = ["ROOT", "claim", "release", "sweep"]

ROOT = Path("/dev/shm")  # noqa: S108 - shared memory is what we want; names are private to us and mode 0700

_PREFIX = "dropflow"
_RESERVE = 16
"""A shared memory with less than one part in this many free is left alone."""


def claim(session: str, root: Path = ROOT) -> Path | None:
    """Make the directory of `session` in shared memory; None where there is none, or no room in it."""
    try:
        status = os.statvfs(root)
        if status.f_bavail * _RESERVE < status.f_blocks:
            return None
        owner = f"{_namespace()}-{os.getpid()}-{_started(os.getpid())}"
        path = root / f"{_PREFIX}-{owner}-{safe_name(session)}"
        number = 0
        while path.exists():  # a second repository of the same session in this process
            number += 1
            path = root / f"{_PREFIX}-{owner}-{safe_name(session)}.{number}"
        path.mkdir(mode=0o700)
    except OSError:
        return None
    return path


def release(path: Path) -> None:
    """Remove a directory in shared memory with all it contains; never raises."""
    shutil.rmtree(path, ignore_errors=True)


def sweep(root: Path = ROOT) -> list[Path]:
    """Remove the directories of sessions of this user whose process is dead; which they were."""
    removed = []
    try:
        namespace = _namespace()
        for path in root.glob(f"{_PREFIX}-{namespace}-*"):
            if path.lstat().st_uid == os.getuid() and _is_dead(path.name):
                release(path)
                removed.append(path)
    except OSError:
        pass  # no shared memory, or another session swept first
    return removed


def _is_dead(name: str) -> bool:
    pieces = name.split("-", 4)
    if len(pieces) < 5 or not pieces[2].isdecimal():  # noqa: PLR2004 - the five parts of the name
        return False
    return _started(int(pieces[2])) != pieces[3]


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 - a link that must be followed to its inode


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot; empty when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The second field, the name in parentheses, may contain blanks; the start is the 22nd.
    return fields.rpartition(")")[2].split()[19]
