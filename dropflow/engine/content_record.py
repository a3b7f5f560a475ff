"""Where a committed content is, as the journal records it for a later process."""

from pathlib import Path
from typing import Self

import msgspec

from dropflow.engine.api import Handle

__all__ = ["ContentRecord"]

_INLINE = 1024
"""Bytes of the largest content in memory that is recorded as a whole: little compared with other costs of a drop."""

_HERE = "./"


class ContentRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A content with its size and checksum, as in `dropflow.engine.api.Handle`.

    Attributes
    ----------
    location : str
        As in `Handle`; below the session directory it is relative to that directory, which may be moved.
    body : bytes
        A content in memory if it is small. A larger one is lost with the process that has it.
    """

    kind: str
    location: str
    size: int
    checksum: int
    text: bool
    body: bytes

    @classmethod
    def of(cls, handle: Handle, directory: str) -> Self:
        """Return the record of a content.

        Parameters
        ----------
        handle : Handle
            The content, committed.
        directory : str
            The session directory, ending in a slash.
        """
        location = handle.location
        if location.startswith(directory):
            location = _HERE + location[len(directory) :]
        body = handle.body if handle.size <= _INLINE else b""
        return cls(handle.kind, location, handle.size, handle.checksum, handle.text, body)

    @property
    def is_inside(self) -> bool:
        """Whether it is below the session directory."""
        return self.location.startswith(_HERE)

    def in_directory(self, directory: Path) -> Handle | None:
        """Return the content for a later process, or None if it was only in the memory of an earlier process.

        Parameters
        ----------
        directory : Path
            The session directory.
        """
        if self.kind == "shm" or (self.kind == "bytes" and len(self.body) < self.size):
            return None
        location = self.location
        if location.startswith(_HERE):
            location = str(directory / location[len(_HERE) :])
        return Handle(
            kind=self.kind,
            body=self.body,
            location=location,
            size=self.size,
            checksum=self.checksum,
            text=self.text,
        )
