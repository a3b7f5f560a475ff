"""Arrays: chunks in memory, and stores in which applications write the chunks of an array one by one."""

from dropflow.data.data_parameters import IO, common
from dropflow.data.file_paths import check_name, final_path, shared_name
from dropflow.data.read_content import measure
from dropflow.data.storage_errors import storage_errors
from dropflow.data.store import ContentWriter, Slot
from dropflow.engine.api import Handle
from dropflow.engine.component import Component, Parameter
from dropflow.engine.parameters import read
from dropflow.errors import AppError, BadParameterError
from dropflow.graph.templates import Kind, Template

__all__ = ["ARRAY", "ARRAY_STORE", "ArrayStore"]

_CHUNK_VOLUME = Parameter(
    name="data_volume",
    type="Float",
    default=0.0,
    minimum=0.0,
    parameter_type="ConstraintParameter",
    aliases=("Data volume",),
    description="Volume of a chunk, for the partitioner; 0 for its bytes.",
)

ARRAY = Component(
    name="Array",
    kind=Kind.DATA,
    category="Memory",
    dropclass="dropflow.data.Array",
    description="An array that is divided into chunks: the translator makes a drop for each of them. Applications on "
    "arrays take and give chunks; other applications get the zarr store of the whole.",
    parameters=(
        Parameter(
            name="shape",
            type="Json",
            default="[100, 100]",
            parameter_type="ComponentParameter",
            description="Lengths of the axes, such as [100, 64].",
        ),
        Parameter(
            name="chunks",
            type="Json",
            default="-1",
            parameter_type="ComponentParameter",
            description="Length of the chunks along each axis, such as [10, 64], or one number for all; -1 for one "
            "chunk, a list of lengths for chunks that differ.",
        ),
        Parameter(
            name="dtype",
            default="float64",
            parameter_type="ComponentParameter",
            description="Type of the values, as numpy spells it.",
        ),
        Parameter(
            name="store",
            parameter_type="ComponentParameter",
            description="Directory of a zarr array that is written, or read if no application makes the array; empty "
            "to keep it in memory. Relative paths are below the session's files.",
        ),
        Parameter(
            name="compressor",
            parameter_type="ComponentParameter",
            description="How chunks in the store are compressed: zlib, gzip, bz2, and with numcodecs blosc, zstd, lz4; "
            'with settings as zarr has them, such as {"id": "zstd", "level": 5}. Empty for no compression.',
        ),
        *(_CHUNK_VOLUME if one.name == "data_volume" else one for one in common(persists=False)),
    ),
    ports=IO,
)

ARRAY_STORE = Component(
    name="ArrayStore",
    kind=Kind.DATA,
    category="Directory",
    dropclass="dropflow.data.ArrayStore",
    description="The store of an array, which applications write chunk by chunk. The translator makes it.",
    parameters=(Parameter(name="dirname", description="The directory."), *common(persists=True)),
    ports=IO,
    is_internal=True,
)


class ArrayStoreWriter:
    """Completes a directory that is at its place already."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:  # noqa: ARG002 - one protocol
        """Raise: bytes cannot be written to a directory.

        Raises
        ------
        AppError
            Always.
        """
        raise AppError(f"{len(data)} bytes were written to the store of an array", hint="write its chunks")

    def path(self) -> str:
        """Return the directory itself: its chunks are there before this drop is complete."""
        return self._path

    def finish(self) -> Handle:
        """Return the directory.

        Raises
        ------
        StorageError
            It does not exist, or cannot be read.
        """
        with storage_errors("finish writing", self._path):
            return Handle(kind="directory", location=self._path, size=measure(self._path))

    def abandon(self) -> None:
        """Leave the directory: its chunks belong to applications that have succeeded."""


class ArrayStore:
    """Stores of arrays, named by the parameters of one template."""

    persists = True
    hands_over = False
    is_directory = True
    encoding = ""
    unwritten: Handle | None = None
    growing = None

    def __init__(self, template: Template) -> None:
        self._template = template
        self._value = str(read(ARRAY_STORE, template)["dirname"])

    @property
    def shared_name(self) -> str:
        """The directory that all drops of the template share; empty if each has its own."""
        return shared_name(self._value)

    def part(self, slot: Slot) -> ContentWriter:
        """Return a writer for the directory."""
        return ArrayStoreWriter(final_path(self._value, base=slot.workspace.files, oid=slot.oid, now=slot.now))

    def initial(self, slot: Slot) -> Handle:
        """Raise: the chunks of a store are always written first.

        Raises
        ------
        BadParameterError
            Always.
        """
        raise BadParameterError(
            f"no application writes the store {self._value} of {slot.oid}", where=self._template.name
        )

    def check(self) -> None:
        """Raise if the name is not valid for any drop.

        Raises
        ------
        BadParameterError
            As `check_name`, or it has the time, which applications that write chunks would see differently.
        """
        check_name(self._value)
        if "{datetime}" in self._value:
            raise BadParameterError(
                f"the store '{self._value}' has the placeholder {{datetime}}, which stores of arrays cannot have",
                where=self._template.name,
                hint="use {uid} or {auto}",
            )

    def check_initial(self) -> None:
        """Accept all parameters: the translator makes stores with applications that write them."""
