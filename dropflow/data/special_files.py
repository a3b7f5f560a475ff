"""Errors for FIFOs, sockets and devices in place of regular files.

Opening one may wait forever, and a rename onto one destroys it.
"""

import os
import stat

from dropflow.errors import AppError, BadFileError, UsageError

__all__ = ["refuse_made", "refuse_reading", "refuse_special"]

_KINDS = (
    (stat.S_ISFIFO, "a FIFO (named pipe)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def refuse_special(final: str) -> None:
    """Raise if the content at a path would replace a FIFO, a socket or a device. Follows links and opens nothing.

    Raises
    ------
    BadFileError
        The path is a FIFO, a socket or a device.
    """
    try:
        kind = _kind_of(os.stat(final).st_mode)  # noqa: PTH116 - text, once a file drop
    except OSError:
        return  # nothing is there, or writing will raise the same error
    if kind:
        raise BadFileError(
            f"{final} is {kind}, and a content would replace it",
            hint="name a regular file, or one that does not exist; an application that writes to a FIFO or a device "
            "opens it by itself, and a NULL data drop takes output that is not kept",
        )


def refuse_made(path: str, mode: int) -> None:
    """Raise if a program made neither a file nor a directory at the path of its output.

    Raises
    ------
    AppError
        Says what it is.
    """
    kind = _kind_of(mode)
    if kind:
        raise AppError(
            f"the program left {kind} at the path of its output, {path}, where a file or directory is expected",
            hint="write the content into a file there",
        )


def refuse_reading(path: str, mode: int) -> None:
    """Raise if a content is a FIFO, a socket or a device: it may have no end, and cannot be read twice.

    Raises
    ------
    UsageError
        Says what it is.
    """
    kind = _kind_of(mode)
    if kind:
        raise UsageError(
            f"{path} is {kind}, which may have no end and cannot be read twice",
            hint="let the application read from its path: give the port the encoding 'path'",
        )


def _kind_of(mode: int) -> str:
    """Return the kind of a special file by its mode; empty for regular files and directories."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "")
