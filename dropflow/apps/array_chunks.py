"""What applications on arrays share: their place in the grid of chunks, and reading and writing of chunks.

The translator tells each of them about its arrays, in the field ``tiling``: how many of the last axes of its drops
count chunks, and shape, chunks and type of the arrays.
"""

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dropflow.apps.api import Context, InputData
from dropflow.errors import AppError, BadParameterError
from dropflow.graph.templates import Template
from dropflow.graph.tilings import Tiling
from dropflow.states import DropState

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ArrayPort", "ChunkGrid", "JoinedInput", "chunk_of", "joined", "refuse_lost"]

_TILING = "tiling"


class ArrayPort:
    """An array at an output of an application.

    Parameters
    ----------
    record : mapping
        Shape, chunks and type of the array, and in ``at`` the place of each of its axes in the grid of the application,
        -1 for an axis of one chunk that is not in it.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.tiling = Tiling.read(record)
        self.dtype = str(record["dtype"])
        self._at: Sequence[int] = record.get("at", range(len(self.tiling.shape)))

    def slices(self, grid: Sequence[int]) -> tuple[slice, ...]:
        """Return where the chunk of an instance is in the array."""
        return self.tiling.slices([0 if place < 0 else grid[place] for place in self._at])


class ChunkGrid:
    """What the translator has told an application about its arrays.

    Parameters
    ----------
    template : Template
        Of the application.
    """

    def __init__(self, template: Template) -> None:
        self._template = template

    @cached_property
    def record(self) -> Mapping[str, Any]:
        """The field ``tiling``.

        Raises
        ------
        BadParameterError
            The node has none: its graph was not translated.
        """
        argument = self._template.argument(_TILING)
        if argument is None or not isinstance(argument.value, Mapping):
            raise BadParameterError(
                f"the application '{self._template.name}' works on chunks of arrays, and its graph was not tiled",
                where=self._template.name,
                hint="translate the logical graph with dropflow",
            )
        return argument.value

    @cached_property
    def outputs(self) -> Mapping[str, ArrayPort]:
        """The arrays at the outputs, by port."""
        return {name: ArrayPort(record) for name, record in self.record["outputs"].items()}

    def place(self, context: Context) -> tuple[int, ...]:
        """Return the index of an instance along each axis of the grid of chunks."""
        index = context.index
        return index[len(index) - int(self.record["axes"]) :]


def refuse_lost(inputs: Sequence[InputData]) -> None:
    """Raise if a chunk has no content: an array with holes has no values there.

    Raises
    ------
    AppError
        Names the first of them.
    """
    lost = [data for data in inputs if not data.ok]
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise AppError(
            f"chunk {lost[0].oid}{more} has no content: it is {lost[0].state.name}",
            hint="correct the application that makes it; holes of arrays have no values",
        )


def joined(parts: "Sequence[NDArray[Any]]", counts: Sequence[int]) -> "NDArray[Any]":
    """Return chunks as one array.

    Parameters
    ----------
    parts : sequence of arrays
        The chunks, in row-major order.
    counts : sequence of int
        How many there are along each axis.

    Raises
    ------
    AppError
        They do not fit together.
    """
    import numpy as np  # noqa: PLC0415 - only applications that work with arrays pay for numpy

    if len(parts) == 1:
        return parts[0]
    grid = np.empty(tuple(counts), dtype=object)
    for index, part in zip(itertools.product(*map(range, counts)), parts, strict=True):
        grid[index] = part
    try:
        for axis in reversed(range(len(counts))):
            short = np.empty(grid.shape[:axis], dtype=object)
            for index in itertools.product(*map(range, short.shape)):
                short[index] = np.concatenate(list(grid[index]), axis=axis)
            grid = short
    except ValueError as error:
        raise AppError(f"chunks do not fit together: {error}") from error
    result: NDArray[Any] = grid[()]
    return result


def chunk_of(value: Any, shape: Sequence[int], dtype: str, what: str) -> "NDArray[Any]":
    """Return a value as a chunk of an array.

    Parameters
    ----------
    value : Any
        An array, or a number.
    shape : sequence of int
        Of the chunk.
    dtype : str
        Of the array.
    what : str
        What made the value, for messages.

    Raises
    ------
    AppError
        It has another shape, or its type cannot be converted without loss of its kind.
    """
    import numpy as np  # noqa: PLC0415 - see joined

    try:
        found = np.asarray(value)
    except ValueError as error:
        raise AppError(f"{what} is not an array: {error}") from error
    if found.dtype.hasobject or found.dtype.kind not in "biufc":
        raise AppError(f"{what} is a {type(value).__name__}, not an array of numbers")
    if found.shape != tuple(shape):
        raise AppError(
            f"{what} has the shape {list(found.shape)}, and the chunk {list(shape)}",
            hint="return an array of the shape of the chunk, or correct shape, chunks or labels",
        )
    if not np.can_cast(found.dtype, dtype, "same_kind"):
        raise AppError(
            f"{what} has the type {found.dtype.name}, and the array {dtype}",
            hint="convert the values in the function, or correct dtype of the array",
        )
    return found.astype(dtype, copy=False)


class JoinedInput:
    """The chunks at a port as one input: the part of `dropflow.apps.api.InputData` that functions need.

    Parameters
    ----------
    parts : sequence of InputData
        The chunks, in row-major order.
    counts : sequence of int
        How many there are along each axis.
    """

    is_collected = False
    is_directory = False
    in_memory = False
    ok = True
    state = DropState.COMPLETED

    def __init__(self, parts: Sequence[InputData], counts: Sequence[int]) -> None:
        self._parts = parts
        self._counts = counts
        self.port = parts[0].port
        self.name = parts[0].name
        self.oid = parts[0].oid

    @property
    def size(self) -> int:
        """Bytes of all chunks."""
        return sum(part.size for part in self._parts)

    def value(self, encoding: str | None = None) -> Any:  # noqa: ARG002 - chunks are always npy
        """The array."""
        refuse_lost(self._parts)
        return joined([part.value("npy") for part in self._parts], self._counts)
