"""The directory of a session in shared memory, and the removal of directories that dead sessions left.

Its name identifies its owner: ``dropflow-<pid namespace>-<pid>-<start time>-<session>``. When a session starts, it
removes the directories of sessions whose process has ended. Process ids are reused, and differ between containers that
share ``/dev/shm``; therefore the name has the start time and the namespace, and only directories of processes in the
same namespace are removed.
"""

import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from dropflow.ids import safe_name

ROOT = Path("/dev/shm")  # noqa: S108 - shared memory, in a directory with mode 0700

_PREFIX = "dropflow"
_RESERVE = 16
"""Shared memory is not used if less than one part in this many is free."""


def claim(session: str, root: Path = ROOT) -> Path | None:
    """Make the directory of `session` in shared memory. Returns None if there is no shared memory, or it is full."""
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
    """Remove a directory in shared memory with all its files; never raises."""
    shutil.rmtree(path, ignore_errors=True)


def sweep(root: Path = ROOT) -> list[Path]:
    """Remove the directories of this user's sessions whose process has ended. Returns the removed directories."""
    removed = []
    started = cache(_started)  # a process may have thousands of sessions
    try:
        prefix = f"{_PREFIX}-{_namespace()}-"
        with os.scandir(root) as entries:
            found = [entry for entry in entries if entry.name.startswith(prefix)]
        for entry in found:
            if _is_dead(entry.name, started) and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                release(Path(entry))
                removed.append(Path(entry))
    except OSError:
        pass  # no shared memory, or another session swept first
    return removed


def _is_dead(name: str, started: Callable[[int], str]) -> bool:
    pieces = name.split("-", 4)
    if len(pieces) < 5 or not pieces[2].isdecimal():  # noqa: PLR2004 - the five parts of the name
        return False
    return started(int(pieces[2])) != pieces[3]


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 - a link that must be followed to its inode


def _started(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; empty if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The second field, the name in parentheses, may contain blanks; the start is the 22nd.
    return fields.rpartition(")")[2].split()[19]


# Removal of directories that others may be reading: they disappear as a whole.
#
# A directory is renamed before anything in it is removed, so a process that finds its path unchanged
# knows that it was whole until then.

REMOVED = ".removed-"
"""Beginning of the names of directories that are being removed."""

_TOKEN_BYTES = 8


def remove_directory(path: Path) -> None:
    """Remove a directory with all that is in it. Idempotent.

    Raises
    ------
    OSError
        It cannot be removed, and is at its path with what is left.
    """
    removed = _set_aside(path)
    if removed is None:
        return
    try:
        shutil.rmtree(removed)
    except OSError:
        with suppress(OSError):
            os.rename(removed, path)  # noqa: PTH104 - as below
        raise


def discard_directory(path: Path) -> None:
    """Remove a directory, and of what is in it as much as can be removed; never raises."""
    removed: Path | None = path
    with suppress(OSError):
        removed = _set_aside(path)
    if removed is not None:
        shutil.rmtree(removed, ignore_errors=True)


def remove_rest(parent: Path) -> None:
    """Remove what processes have left that ended while they removed a directory in `parent`; never raises."""
    with suppress(OSError):
        for path in parent.glob(f"{REMOVED}*"):
            shutil.rmtree(path, ignore_errors=True)


def _set_aside(path: Path) -> Path | None:
    """Rename a directory that is to be removed, and return its new path; None if there is none."""
    removed = path.with_name(REMOVED + secrets.token_hex(_TOKEN_BYTES))
    try:
        os.rename(path, removed)  # noqa: PTH104 - once a directory
    except FileNotFoundError:
        return None
    return removed
