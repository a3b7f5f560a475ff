"""The incarnation of a node: a number that grows with each start, kept in the node's directory.

The time of the start would not do: a host whose clock was set back would start a node that its peers take for an
earlier process, and refuse. The number is a counter in the upper bits. Random lower bits tell two nodes apart whose
directories are copies of each other. A new directory begins with the time in seconds, which exceeds what a directory
that was lost had counted to.
"""

import logging
import os
import secrets
from pathlib import Path

from dropflow.clock import Clock
from dropflow.errors import StorageError

__all__ = ["next_incarnation"]

_log = logging.getLogger(__name__)

_FILE = "incarnation"
_RANDOM_BITS = 20
_MOST = (1 << 53 - _RANDOM_BITS) - 1
"""Largest counter with which an incarnation is exact in JSON."""


def next_incarnation(root: Path, clock: Clock) -> int:
    """Count one more start of the node whose directory is `root`, and return its incarnation.

    Parameters
    ----------
    clock : Clock
        Where the counter of a new directory begins.

    Raises
    ------
    StorageError
        The counter cannot be read or written.
    """
    path = root / _FILE
    try:
        known = _read(path)
        counter = int(clock.now()) if known is None else known + 1
        _write(path, counter)
    except OSError as error:
        raise StorageError(
            f"the number of starts of this node cannot be kept: {error.strerror}",
            where=str(path),
            hint="make the directory writable, or choose another --root",
        ) from error
    return counter << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)


def _read(path: Path) -> int | None:
    """The counter of the last start; None if there was none, or if the file does not tell."""
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    if text.isdecimal() and len(text) < 20 and int(text) < _MOST:  # noqa: PLR2004 - no need to parse a long one
        return int(text)
    _log.warning("%s is damaged; starts of this node are counted from the time on", path)
    return None


def _write(path: Path, counter: int) -> None:
    """Replace the counter so that a crash leaves the old one or the new one."""
    passing = path.with_name(f"{path.name}.part")
    with passing.open("w", encoding="ascii") as stream:
        stream.write(f"{counter}\n")
        stream.flush()
        os.fsync(stream.fileno())
    passing.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
