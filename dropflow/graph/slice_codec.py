"""Slices as bytes: one slice, and several of them one after the other, each with its length in front.

Managers send single slices to nodes, and pass streams of slices up the hierarchy.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from dropflow.errors import BadFileError
from dropflow.graph.codec import Buffer, dump, parse
from dropflow.graph.slices import Slice

__all__ = ["dump_slice", "dump_slices", "parse_slice", "parse_slices"]

_HEAD = struct.Struct("<8sQQII")
_MAGIC = b"\x89DFS\r\n\x1a\n"
_LENGTH = struct.Struct("<Q")


def dump_slice(piece: Slice) -> list[Buffer]:
    """Return a slice as buffers to be written one after the other: a head, the ``.dfg`` of its graph, and its rows."""
    graph = dump(piece.graph)
    rows = np.ascontiguousarray(piece.drop, dtype="<i4").tobytes()
    size = sum(len(buffer) for buffer in graph)
    node = piece.node.encode()
    tail = rows + node
    head = _HEAD.pack(_MAGIC, size, len(rows), len(node), zlib.crc32(tail))
    return [head, *graph, tail]


def parse_slice(buffer: Buffer, *, where: str = "") -> Slice:
    """Return the slice in `buffer`.

    Raises
    ------
    BadFileError
        It is not a slice, or damaged.
    """
    view = memoryview(buffer).cast("B")
    if len(view) < _HEAD.size or bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise BadFileError("not a slice of a graph", where=where)
    _, size, row_bytes, name_bytes, checksum = _HEAD.unpack_from(view)
    end = _HEAD.size + size
    tail = view[end:]
    if len(tail) != row_bytes + name_bytes or zlib.crc32(tail) != checksum:
        raise BadFileError("the slice of the graph is damaged or cut off", where=where)
    # A copy: the columns of a container must be aligned to its start.
    graph = parse(bytes(view[_HEAD.size : end]), where=where)
    # A copy: a view would keep the whole buffer alive.
    drop = np.frombuffer(tail[:row_bytes], dtype="<i4").astype(np.int32)
    node = bytes(tail[row_bytes:]).decode()
    if len(drop) != graph.drops or (drop[1:] <= drop[:-1]).any() or node not in graph.places:
        raise BadFileError("the rows of the slice do not fit its graph", where=where)
    drop.flags.writeable = False
    return Slice(node, graph, drop)


def dump_slices(slices: Iterable[Slice]) -> Iterator[Buffer]:
    """Yield the slices as buffers to be written one after the other."""
    for piece in slices:
        buffers = dump_slice(piece)
        yield _LENGTH.pack(sum(memoryview(buffer).nbytes for buffer in buffers))
        yield from buffers


def parse_slices(buffer: Buffer, *, where: str = "") -> tuple[Slice, ...]:
    """Return the slices in `buffer`.

    Parameters
    ----------
    buffer : bytes-like
        What `dump_slices` yielded, joined.
    where : str
        Name of the sender, for messages.

    Raises
    ------
    BadFileError
        They are not slices, damaged, or truncated.
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
