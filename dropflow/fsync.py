"""Forcing files and directories to the disk, so that they survive the loss of power."""

import os

__all__ = ["force_to_disk"]


def force_to_disk(path: str) -> None:
    """Wait until the content of a file, or the names in a directory, are on the disk.

    Raises
    ------
    OSError
        The disk reports an error.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
