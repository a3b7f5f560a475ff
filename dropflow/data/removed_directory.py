"""Removal of directories that others may be reading: they disappear as a whole.

A directory is renamed before anything in it is removed, so a process that finds its path unchanged knows that it was
whole until then.
"""

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

__all__ = ["REMOVED", "discard_directory", "remove_directory", "remove_rest"]

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
