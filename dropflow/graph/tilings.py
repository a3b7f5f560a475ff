"""How an array is divided into chunks: lengths of its axes, and lengths of the chunks along each of them.

The translator makes the drops of arrays from tilings, and applications find the place of their chunk in them. A regular
axis, of chunks of one length but for a shorter last one, is one number, however many chunks it has.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import BadParameterError

__all__ = ["Tiling", "common_bounds"]

_LARGEST = 2**53
_SHOWN = 60


class Tiling(msgspec.Struct, frozen=True):
    """The chunks of an array.

    Attributes
    ----------
    shape : tuple of int
        Lengths of the axes, at least 1 each.
    chunks : tuple of int or tuple of int
        For each axis the length of its chunks, or those of all of them if they differ.
    """

    shape: tuple[int, ...]
    chunks: tuple[int | tuple[int, ...], ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(
            -(-length // size) if isinstance(size, int) else len(size)
            for length, size in zip(self.shape, self.chunks, strict=True)
        )

    @property
    def number(self) -> int:
        """Number of chunks."""
        return prod(self.counts)

    @property
    def is_regular(self) -> bool:
        """Whether all chunks of an axis have one length, but for a shorter last one."""
        return all(isinstance(size, int) for size in self.chunks)

    def bounds(self, axis: int) -> npt.NDArray[np.int64]:
        """Return where the chunks of an axis begin, and where the last one ends, shape (chunks + 1,)."""
        length, size = self.shape[axis], self.chunks[axis]
        if isinstance(size, int):
            return np.minimum(np.arange(0, length + size, size, dtype=np.int64), length)
        return np.cumsum([0, *size], dtype=np.int64)

    def slices(self, index: Sequence[int]) -> tuple[slice, ...]:
        """Return where a chunk is in the array, by its index along each axis."""
        found = []
        for position, length, size in zip(index, self.shape, self.chunks, strict=True):
            if isinstance(size, int):
                found.append(slice(position * size, min((position + 1) * size, length)))
            else:
                start = sum(size[:position])
                found.append(slice(start, start + size[position]))
        return tuple(found)

    def chunk_shape(self, index: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a chunk."""
        return tuple(one.stop - one.start for one in self.slices(index))

    def axis(self, axis: int) -> tuple[int, int | tuple[int, ...]]:
        """Return length and chunks of an axis. Those of two axes are equal if their chunks are the same."""
        return self.shape[axis], self.chunks[axis]

    def record(self) -> dict[str, Any]:
        """Return the tiling as JSON; `parse` reads it."""
        return {
            "shape": list(self.shape),
            "chunks": [one if isinstance(one, int) else list(one) for one in self.chunks],
        }

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> "Tiling":
        """Return the tiling of a `record`.

        Raises
        ------
        BadParameterError
            As `parse`.
        """
        return cls.parse(record.get("shape"), record.get("chunks"))

    @classmethod
    def parse(cls, shape: Any, chunks: Any) -> "Tiling":
        """Return the tiling that two fields describe.

        Parameters
        ----------
        shape : list of int
            Lengths of the axes.
        chunks : int or list
            The length of the chunks of all axes, or a list with that of each axis. A list of lengths stands for chunks
            that differ, -1 or nothing for one chunk.

        Raises
        ------
        BadParameterError
            A length is not a positive whole number, or the chunks do not make up the axis. `fields` names the field.
        """
        lengths = _shape(shape)
        given = [chunks] * len(lengths) if chunks in (None, "") or _is_whole(chunks) else chunks
        if not isinstance(given, list | tuple):
            raise _bad("chunks", chunks, "it is neither a number nor a list of numbers")
        if len(given) != len(lengths):
            raise _bad("chunks", chunks, f"it has {len(given)} axes, and the shape {len(lengths)}")
        return cls(lengths, tuple(_chunks(one, lengths[axis], axis) for axis, one in enumerate(given)))


def common_bounds(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bounds of the pieces into which two tilings of an axis divide it together, each bound once."""
    return np.union1d(one, other)


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise _bad("shape", value, "it is not a list of numbers")
    for one in value:
        if not (_is_whole(one) and 0 < one <= _LARGEST):
            raise _bad("shape", value, f"the length {one!r:.{_SHOWN}} is not a positive whole number")
    return tuple(int(one) for one in value)


def _chunks(value: Any, length: int, axis: int) -> int | tuple[int, ...]:
    if value in (None, "", -1):
        return length
    if _is_whole(value):
        if value < 1:
            raise _bad("chunks", value, f"chunks of axis {axis} need a positive length, or -1 for one chunk")
        return min(int(value), length)
    if not isinstance(value, list | tuple) or not all(_is_whole(one) and one > 0 for one in value):
        raise _bad("chunks", value, f"axis {axis} needs a positive whole number, or a list of them")
    sizes = tuple(int(one) for one in value)
    if sum(sizes) != length:
        raise _bad("chunks", value, f"the chunks of axis {axis} make up {sum(sizes):,} of its {length:,} values")
    is_regular = all(one == other for one, other in pairwise(sizes[:-1])) and sizes[-1] <= sizes[0]
    return sizes[0] if is_regular else sizes


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _bad(field: str, value: Any, why: str) -> BadParameterError:
    shown = repr(value)
    text = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return BadParameterError(
        f"{field} is {text}: {why}",
        fields=(field,),
        hint="for example shape [100, 64] and chunks [10, 64]",
    )
