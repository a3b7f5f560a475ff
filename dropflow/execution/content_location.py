"""The place of the content of a data drop: as a handle, and as the journal records it for a later process."""

from pathlib import Path
from typing import Self

import msgspec

_MOST_IN_JOURNAL = 1024
"""Most bytes of a content in memory that is recorded as a whole: little compared with other costs of a drop."""
HERE = "./"


class Handle(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The place of the content of a data drop, or of a part by one producer. Small, immutable, sent between processes.

    Attributes
    ----------
    kind : str
        ``null`` (no content by design), ``bytes`` (in `body`), ``shm`` (a file in shared memory), ``file``,
        ``directory``, ``url``; ``stream``, a content that is still being written (`dropflow.data.streams`).
    body : bytes
        The content itself when `kind` is ``bytes``.
    location : str
        Path or URL of the content otherwise.
    final : str
        Path or URL of the content after the commit; empty if it stays where it is.
    size : int
        Bytes.
    checksum : int
        CRC-32 of the content; 0 when it was not computed.
    text : bool
        Whether the content is text by design (a String memory drop).
    seconds : float
        Seconds of the attempt that wrote it, if it ran on another node and the results of long attempts are to be
        protected; else 0.
    missing : float
        Share of the data that was missing when it was made, from 0 to 1; see `dropflow.graph.completeness`.
    """

    kind: str = "bytes"
    body: bytes = b""
    location: str = ""
    final: str = ""
    size: int = 0
    checksum: int = 0
    text: bool = False
    seconds: float = 0.0
    missing: float = 0.0


class ContentRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A content with its size and checksum, as in `Handle`.

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
    missing: float = 0.0

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
            location = HERE + location[len(directory) :]
        body = handle.body if handle.size <= _MOST_IN_JOURNAL else b""
        return cls(handle.kind, location, handle.size, handle.checksum, handle.text, body, handle.missing)

    @property
    def is_inside(self) -> bool:
        """Whether it is below the session directory."""
        return self.location.startswith(HERE)

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
        if location.startswith(HERE):
            location = str(directory / location[len(HERE) :])
        return Handle(
            kind=self.kind,
            body=self.body,
            location=location,
            size=self.size,
            checksum=self.checksum,
            text=self.text,
            missing=self.missing,
        )
