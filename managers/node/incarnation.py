"""The incarnation of a node: a number that grows with each start, kept in the node's directory.

The time of the start cannot serve as that number: after the clock of a host was set back, peers would take a new
process for an earlier one, and refuse it. The upper bits of the number are a counter. The lower bits are random: two
nodes whose directories are copies of each other have different numbers. The counter of a new directory begins with the
time in seconds, which exceeds the counter of any directory that it replaces.

The file has a fixed size and is overwritten in place, so that a node whose disk is full can start again and serve its
results. It has the counter twice, each time with a checksum and in a disk sector of its own. The two are written one
after the other: a crash during a write damages one of them, and the other one has the number of the last start.
"""

import logging
import os
import secrets
import zlib
from pathlib import Path
from typing import BinaryIO

from dropflow.clock import Clock
from dropflow.data.storage_errors import storage_errors

__all__ = ["next_incarnation"]

_log = logging.getLogger(__name__)

_FILE = "incarnation"
_SLOT = 512
"""Bytes of one of the two slots: the smallest sector that a disk writes."""
_NONE = -1
_RANDOM_BITS = 20
_MOST = (1 << 53 - _RANDOM_BITS) - 1
"""Largest counter with which an incarnation is exact in JSON."""


def next_incarnation(root: Path, clock: Clock) -> int:
    """Count one more start of the node whose directory is `root`, and return its incarnation.

    Parameters
    ----------
    clock : Clock
        Time, with which the counter of a new directory begins.

    Raises
    ------
    StorageError
        The counter cannot be read or written.
    """
    path = root / _FILE
    with storage_errors("keep the number of starts of this node in", path):
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as stream:
            content = stream.read(2 * _SLOT)
            slots = [_parsed(content[:_SLOT]), _parsed(content[_SLOT:])]
            counted = max(slots)
            if content and min(slots) == _NONE:
                _log.warning("%s is damaged and is written again", path)
            counter = int(clock.now()) if counted == _NONE else counted + 1
            # The slot that is damaged or behind goes first: the other one stays whole until the new number is stored.
            for index in sorted(range(2), key=slots.__getitem__):
                _write(stream, index, counter)
        _sync_directory(root)
    return counter << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)


def _slot(counter: int) -> bytes:
    """Return one slot: the counter and its checksum, as text that people can read."""
    digits = b"%d" % counter
    return (b"%s %08x" % (digits, zlib.crc32(digits))).ljust(_SLOT - 1) + b"\n"


def _parsed(slot: bytes) -> int:
    """Return the counter in a slot; `_NONE` if it has none, or is damaged."""
    digits = slot[:20].partition(b" ")[0]
    counter = int(digits) if digits.isdigit() else _NONE
    return counter if counter < _MOST and slot == _slot(counter) else _NONE


def _write(stream: BinaryIO, index: int, counter: int) -> None:
    """Overwrite a slot, and wait until it is on the disk."""
    stream.seek(index * _SLOT)
    stream.write(_slot(counter))
    stream.flush()
    os.fsync(stream.fileno())


def _sync_directory(directory: Path) -> None:
    """Wait until the name of a new file is on the disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
