"""Errors of the operating system as `StorageError`, with the path and what to do."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dropflow.errors import StorageError

__all__ = ["storage_error", "storage_errors"]

_HINTS = {
    errno.ENOENT: "it was removed or renamed by another program, or never written",
    errno.EACCES: "give this user access, or choose another place",
    errno.EPERM: "give this user access, or choose another place",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.ENOTDIR: "a part of the path is a file: choose another place",
    errno.EISDIR: "there is a directory of that name: choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
_FULL = (errno.ENOSPC, errno.EDQUOT)


def storage_error(doing: str, path: str | Path, error: OSError) -> StorageError:
    """Return the `StorageError` for an `OSError` while `doing` something to `path`.

    If the disk is full, the hint has the free space.
    """
    reason = error.strerror or str(error)
    hint = _HINTS.get(error.errno or 0, "")
    if error.errno in _FULL:
        hint = f"{_free(path)} left on that file system: make room, or choose another place"
    return StorageError(f"cannot {doing} {path}: {reason}", hint=hint)


@contextmanager
def storage_errors(doing: str, path: str | Path) -> Iterator[None]:
    """Turn an `OSError` of the block into a `StorageError` with `path`.

    Raises
    ------
    StorageError
        In place of any `OSError` of the block.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(doing, path, error) from error


def _free(path: str | Path) -> str:
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return f"{shutil.disk_usage(place).free / 1e6:,.1f} MB"
    except OSError:
        return "nothing"
