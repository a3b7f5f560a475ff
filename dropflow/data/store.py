"""How a class of data drops takes content: `Store` for the class, `ContentWriter` for what one attempt writes.

A writer collects the content under a temporary name; `finish` returns a `Handle`, `abandon` discards it.
`dropflow.data.repository` makes the content that of the drop, and `dropflow.data.read` reads it back; neither
needs to know the class.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import msgspec

from dropflow.data.survival import MOST_REPLICAS
from dropflow.data.workspace import Workspace
from dropflow.execution.content_location import Handle
from dropflow.graph.components import Parameter, Port

Shield = Callable[[], AbstractContextManager[None]]
"""Returns a context manager around what must not be interrupted in the thread that runs it."""
IO = (Port(name="io", usage="InputOutput", description="Data that producers write and consumers read."),)
"""The port of a data drop. Graphs usually add ports named after the ports of their applications."""
_BLOCK_SKIP = Parameter(
    name="block_skip",
    type="Boolean",
    default=False,
    parameter_type="ComponentParameter",
    description="Pass a skip on only when all producers were skipped.",
)
_DATA_VOLUME = Parameter(
    name="data_volume",
    type="Float",
    default=5.0,
    minimum=0.0,
    parameter_type="ConstraintParameter",
    aliases=("Data volume",),
    description="Volume of the content, for the partitioner; any unit, the same in the whole graph.",
)
_GROUP_END = Parameter(
    name="group_end",
    type="Boolean",
    default=False,
    parameter_type="ComponentParameter",
    aliases=("Group end",),
    description="Ends the body of the enclosing loop.",
)
_REPLICAS = Parameter(
    name="replicas",
    type="Integer",
    default=0,
    minimum=0,
    maximum=MOST_REPLICAS,
    parameter_type="ComponentParameter",
    description="On how many nodes the content is to be, so that the loss of one does not lose it; 0 for what the "
    "session says. Sessions on one machine ignore it.",
)
_STREAMING = Parameter(
    name="streaming",
    type="Boolean",
    default=False,
    parameter_type="ComponentParameter",
    description="Consumers read the content while it is being written.",
)


class Slot(msgspec.Struct, frozen=True):
    """The drop, attempt and output that a content is written for.

    Attributes
    ----------
    workspace : Workspace
        The session's directories.
    oid : str
        Text id of the data drop.
    drop, attempt, number : int
        Row of the writing drop, its attempt, and the position among its outputs. Together unique in the session.
    now : float
        Seconds since the epoch.
    name : str
        File name that the producer chose, for drops without a name of their own.
    kept : bool
        Whether the content is kept after the session, so that it must be on disk.
    shielded : Shield
        Shield of the attempt that writes.
    index : tuple of int
        Position in each axis of the template, of a drop that no application writes.
    """

    workspace: Workspace
    oid: str
    drop: int
    attempt: int
    number: int
    now: float = 0.0
    name: str = ""
    kept: bool = False
    shielded: Shield = nullcontext
    index: tuple[int, ...] = ()


class ContentWriter(Protocol):
    """Writes the content of one output of an attempt. Used by one thread."""

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Append bytes, which are text if `text` is set. Returns the number of bytes."""
        ...

    def path(self) -> str:
        """Return the temporary path for a program. Data that were written before are in the file."""
        ...

    def finish(self) -> Handle:
        """End writing. Returns the content, under its temporary name."""
        ...

    def abandon(self) -> None:
        """Discard what was written; never raises."""
        ...


class GrowingWriter(ContentWriter, Protocol):
    """A writer whose file keeps its path until the commit, so that it can be read while it grows."""

    @property
    def location(self) -> str:
        """Path of the file."""
        ...

    @property
    def final(self) -> str:
        """Path of the content after its commit; empty if it stays."""
        ...


class Store(Protocol):
    """A class of data drops with the parameters of one template."""

    persists: bool
    """Whether contents are kept after their last consumer, if the template does not say."""
    is_directory: bool
    """Whether programs make a directory at the path of the writer, rather than a file."""
    encoding: str
    """Encoding of its contents at ports with EAGLE's default encoding; empty to use that of the port."""
    unwritten: Handle | None
    """Content of an output that was not written; None if a writer must be made for it."""
    hands_over: bool
    """Whether the content of a part does not change by its commit, so that a chain of applications may hand it on."""

    @property
    def shared_name(self) -> str:
        """The file or directory that all drops of the template share; empty if each has its own."""
        ...

    def part(self, slot: Slot) -> ContentWriter:
        """Return a writer for a content."""
        ...

    @property
    def growing(self) -> Callable[[Slot], GrowingWriter] | None:
        """Like `part`, for contents that are read while they are written; None if the class does not support that."""
        ...

    def initial(self, slot: Slot) -> Handle:
        """Return the content of a drop that no application writes.

        Raises
        ------
        BadParameterError, BadFileError
            The file of the parameters does not exist, or a value is not valid.
        """
        ...

    def check(self) -> None:
        """Raise if no drop of this template could use the parameters. Does not access the disk.

        Raises
        ------
        BadParameterError
            Names the parameters.
        """
        ...

    def check_initial(self) -> None:
        """Raise if no drop without producers could begin with the parameters. Does not access the disk.

        Raises
        ------
        BadParameterError
            As `check`.
        """
        ...


# Parameters and ports that the data classes share in the palette.


def persist(default: bool) -> Parameter:  # noqa: FBT001 - the only argument
    """Return the parameter that keeps the content after its last consumer."""
    return Parameter(
        name="persist",
        type="Boolean",
        default=default,
        parameter_type="ComponentParameter",
        aliases=("precious",),
        description="Keep the content after its last consumer; results of leaf drops are always kept.",
    )


def common(*, persists: bool) -> tuple[Parameter, ...]:
    """Return the parameters of every data class; `persists` is the default of `persist`."""
    return (persist(persists), _BLOCK_SKIP, _DATA_VOLUME, _GROUP_END, _REPLICAS, _STREAMING)
