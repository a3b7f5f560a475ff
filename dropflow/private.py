"""Directories that other users of this host cannot create or write to before dropflow does."""

import errno
import os
import stat
from pathlib import Path

from dropflow.errors import StorageError

__all__ = ["make_directories", "private_directory", "private_opener"]

_MODE = 0o700


def make_directories(path: Path) -> None:
    """Create `path` and its missing parents, each with mode 0700 whatever the umask is. Idempotent.

    Raises
    ------
    OSError
        One of them cannot be made.
    """
    for missing in [each for each in (*reversed(path.parents), path) if not each.exists()]:
        missing.mkdir(mode=_MODE, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def private_directory(path: Path) -> Path:
    """Create `path` with mode 0700 and missing parents, and return it; use a directory that exists if it is safe.

    A link to a directory counts as that directory.

    Raises
    ------
    StorageError
        It cannot be created, another user owns it, or every user may write to it.
    """
    try:
        make_directories(path)
        found = path.stat()
    except OSError as error:
        hint = "choose another directory"
        raise StorageError(f"the directory cannot be made: {error.strerror}", where=str(path), hint=hint) from error
    user = os.geteuid()
    # The superuser may use directories of other users: a container does that on volumes of its host.
    if user and found.st_uid not in (user, 0):
        hint = "choose another directory, such as a new one below it"
        raise StorageError("the directory belongs to another user", where=str(path), hint=hint)
    if found.st_mode & stat.S_IWOTH:
        raise StorageError(
            "every user of this host can write to the directory", where=str(path), hint=f"chmod o-w {path}"
        )
    return path


def private_opener(path: str, flags: int) -> int:
    """Open a file, as the `opener` of `open`, too; one that is made has mode 0600 whatever the umask is."""
    return os.open(path, flags, 0o600)
