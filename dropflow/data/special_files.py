"""FIFOs, sockets and devices, which are no place for a content.

Opening one may wait for ever, and a rename onto one destroys it.
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
    """Refuse to put a content in the place of a FIFO, a socket or a device. Links are followed, and nothing is opened.

    Raises
    ------
    BadFileError
        Says what is there.
    """
    try:
        kind = _kind_of(os.stat(final).st_mode)  # noqa: PTH116 - text, once a file drop
    except OSError:
        return  # nothing is there, or the attempt to write will say why it cannot
    if kind:
        raise BadFileError(
            f"{final} is {kind}, and a content would replace it",
            hint="name a regular file, or one that does not exist; an application that writes to a FIFO or a device "
            "opens it by itself, and a NULL data drop takes output that is not kept",
        )


def refuse_made(path: str, mode: int) -> None:
    """Refuse what a program left at the path of its output if it is neither a file nor a directory.

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
    """Refuse to read the content of a FIFO, a socket or a device: it may have no end, and has no second reader.

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
    """What a file of this mode is called if it is neither a regular file nor a directory; empty otherwise."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "")
