"""How a class of data drops takes content: `Store` for the class, `ContentWriter` for what one attempt writes.

A writer collects the content under a temporary name; `finish` returns a `Handle`, `abandon` discards it.
`dropflow.data.repository` makes the content that of the drop, and `dropflow.data.read_content` reads it back; neither
needs to know the class.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle

__all__ = ["ContentWriter", "GrowingWriter", "Slot", "Store"]


class Slot(msgspec.Struct, frozen=True):
    """What a part is written for.

    Attributes
    ----------
    workspace : Workspace
        The session's directories.
    oid : str
        Text id of the data drop.
    drop, attempt, number : int
        Row of the writing drop, its attempt and the position among its outputs: together unique in the session.
    now : float
        Seconds since the epoch.
    name : str
        File name that the producer chose; counts only where the drop itself gives none.
    kept : bool
        Whether the content outlives the session, so that it must end on the disk.
    """

    workspace: Workspace
    oid: str
    drop: int
    attempt: int
    number: int
    now: float = 0.0
    name: str = ""
    kept: bool = False


class ContentWriter(Protocol):
    """Content being written. Used by one thread."""

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Append; `text` says that the bytes are text by design. Answers the number of bytes."""
        ...

    def path(self) -> str:
        """Temporary path through which a program writes; what was written so far is there already."""
        ...

    def finish(self) -> Handle:
        """End writing: the content, still under its temporary name."""
        ...

    def abandon(self) -> None:
        """Throw away what was written; never raises."""
        ...


class GrowingWriter(ContentWriter, Protocol):
    """A part in a file that stays where it is until the content is committed, so that it can be read while it grows."""

    @property
    def location(self) -> str:
        """Where the file is."""
        ...

    @property
    def final(self) -> str:
        """Where the content must be after commit; empty when it stays."""
        ...


class Store(Protocol):
    """A class of data drops with the parameters of one template."""

    persists: bool
    """Whether contents outlive their last consumer where the template does not say."""
    is_directory: bool
    """Whether a program finds a directory at the part's path, rather than making a file there."""
    encoding: str
    """Encoding of its contents where ports say nothing but EAGLE's default; empty to leave it to the port."""
    unwritten: Handle | None
    """Content of an output that the application did not touch; None when a part must be made all the same."""

    @property
    def shared_name(self) -> str:
        """The file or directory that all drops of the template write; empty where each has its own."""
        ...

    def part(self, slot: Slot) -> ContentWriter:
        """Begin to write."""
        ...

    @property
    def growing(self) -> Callable[[Slot], GrowingWriter] | None:
        """As `part`, for contents that are read while they are written; None if they cannot be."""
        ...

    def initial(self, slot: Slot) -> Handle:
        """Content of a drop that no application writes.

        Raises
        ------
        BadParameterError, BadFileError
            The parameters say something that is not there or cannot be.
        """
        ...

    def check(self) -> None:
        """Refuse parameters that no drop of this template could work with; touches no disk.

        Raises
        ------
        BadParameterError
            Says which, and what to do.
        """
        ...

    def check_initial(self) -> None:
        """Refuse parameters that no drop without producers could begin with; touches no disk.

        Raises
        ------
        BadParameterError
            As `check`.
        """
        ...
