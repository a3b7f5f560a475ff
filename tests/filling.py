"""Fill a file system."""

import contextlib
from pathlib import Path

__all__ = ["fill"]


def fill(path: Path) -> None:
    """Write to `path` until nothing more fits on its file system."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
