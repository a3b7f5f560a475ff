"""Directories that other users of this host must not be able to prepare or change."""

import os
import stat
from pathlib import Path

from dropflow.errors import StorageError

__all__ = ["private_directory"]

_MODE = 0o700


def private_directory(path: Path) -> Path:
    """Make `path` with mode 0700 and missing parents; one that is there already is taken if it is safe to use.

    A link to a directory counts as what it leads to.

    Raises
    ------
    StorageError
        It cannot be made, another user owns it, or everybody may write to it.
    """
    try:
        path.mkdir(mode=_MODE, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        hint = "choose another directory"
        raise StorageError(f"the directory cannot be made: {error.strerror}", where=str(path), hint=hint) from error
    user = os.geteuid()
    # The superuser works in directories of others: a container does that on the volumes of its host.
    if user and found.st_uid not in (user, 0):
        hint = "choose another directory, such as a new one below it"
        raise StorageError("the directory belongs to another user", where=str(path), hint=hint)
    if found.st_mode & stat.S_IWOTH:
        raise StorageError(
            "every user of this host can write to the directory", where=str(path), hint=f"chmod o-w {path}"
        )
    return path
