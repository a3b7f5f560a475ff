"""Several slices of a graph one after the other, each with its length in front: how managers hand them up."""

import struct
from collections.abc import Iterable, Iterator

from dropflow.errors import BadFileError
from dropflow.graph.codec import Buffer
from dropflow.graph.slicing import Slice, dump_slice, parse_slice

__all__ = ["MEDIA_TYPE", "dump_slices", "parse_slices"]

MEDIA_TYPE = "application/vnd.dropflow.slices"

_LENGTH = struct.Struct("<Q")


def dump_slices(slices: Iterable[Slice]) -> Iterator[Buffer]:
    """The slices as buffers to be written one after the other."""
    for piece in slices:
        buffers = dump_slice(piece)
        yield _LENGTH.pack(sum(memoryview(buffer).nbytes for buffer in buffers))
        yield from buffers


def parse_slices(buffer: Buffer, *, where: str = "") -> tuple[Slice, ...]:
    """The slices in `buffer`.

    Parameters
    ----------
    where : str
        Where they come from, for messages.

    Raises
    ------
    BadFileError
        They are no slices, damaged, or cut off.
    """
    view = memoryview(buffer).cast("B")
    found = []
    start = 0
    while start < len(view):
        body = start + _LENGTH.size
        size = _LENGTH.unpack_from(view, start)[0] if body <= len(view) else len(view)
        if body + size > len(view):
            raise BadFileError("the slices of the graph are cut off", where=where)
        found.append(parse_slice(view[body : body + size], where=where))
        start = body + size
    return tuple(found)
