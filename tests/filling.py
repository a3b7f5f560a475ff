"""Fill a file system."""

import contextlib
from pathlib import Path


def fill(path: Path) -> None:
    """Write to `path` until its file system is full."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
