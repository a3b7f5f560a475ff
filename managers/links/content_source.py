"""Contents that peers can fetch: in memory, or in files."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dropflow.errors import StorageError
from managers.links.packing import Buffer, view

__all__ = ["BufferSource", "ContentOpener", "ContentSource", "FileSource"]


class ContentSource(Protocol):
    """Content that can be fetched. Used by one thread."""

    @property
    def size(self) -> int | None:
        """Bytes; None while the content is growing."""
        ...

    def read(self, offset: int, length: int) -> Buffer:
        """Return up to `length` bytes from `offset` on; nothing beyond the end, or beyond what is written so far."""
        ...

    def close(self) -> None:
        """Release resources. Buffers that were returned stay valid."""
        ...


ContentOpener = Callable[[str, int, int, int], ContentSource]
"""Returns the source of (session, drop, attempt, producer).

Raises `GoneError` for released content, `StorageError` for content that cannot be read.
"""


class BufferSource:
    """Content in memory; ranges are views of it."""

    def __init__(self, content: Buffer) -> None:
        self._content = view(content)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self._content)

    def read(self, offset: int, length: int) -> Buffer:
        """Return a view of a range."""
        return self._content[offset : offset + length]

    def close(self) -> None:
        """Do nothing."""


class FileSource:
    """Content of a committed file, in shared memory or on a disk; ranges are views of its mapping.

    Raises
    ------
    StorageError
        The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._size = os.fstat(file.fileno()).st_size
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._size else b""
        except OSError as error:
            raise StorageError(f"the content cannot be read: {error.strerror}", where=str(path)) from error
        self._view = memoryview(mapped)

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    def read(self, offset: int, length: int) -> Buffer:
        """Return a view of a range."""
        return self._view[offset : offset + length]

    def close(self) -> None:
        """Release the mapping; it is unmapped with the last view of it."""
        self._view = memoryview(b"")
