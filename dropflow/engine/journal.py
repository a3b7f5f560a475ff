"""The journal: every event of a session in order, as it was taken in. Replaying it gives the same state.

A file is a header and frames. A frame is eight bytes (length and CRC-32, little endian) and a MessagePack array of
events, one batch of the session. A torn last frame, as a crash leaves it, is recognised and left out.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dropflow.engine.core import Core
from dropflow.engine.events import Event
from dropflow.errors import BadFileError, StorageError
from dropflow.graph.physical import PhysicalGraph

__all__ = ["Journal", "JournalHeader", "read", "replay"]

_MAGIC = b"DFJ1"
_FRAME = struct.Struct("<II")


class JournalHeader(msgspec.Struct, frozen=True):
    """First frame of a journal: whose it is, and what else its core was made of."""

    session: str
    graph: str
    """Digest of the graph (`dropflow.graph.digest`); empty when it was not taken."""
    started: float
    streams: tuple[int, ...] = ()
    """Links whose data can be read by their consumers while it is written."""


class Journal:
    """Writes a journal. Used by the session's thread only.

    Raises
    ------
    StorageError
        From any method, when the file cannot be written.
    """

    def __init__(self, path: Path, header: JournalHeader) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._path = path
        try:
            self._stream = path.open("wb")
        except OSError as error:
            raise self._failed(error) from error
        self._write(_MAGIC + self._frame(header))

    def append(self, events: Sequence[Event]) -> None:
        """Add a batch of events and hand it to the operating system, so that it survives the death of this process."""
        self._write(self._frame(events))

    def close(self) -> None:
        """End the file. Idempotent."""
        self._stream.close()

    def _frame(self, content: object) -> bytes:
        body = self._encoder.encode(content)
        return _FRAME.pack(len(body), zlib.crc32(body)) + body

    def _write(self, data: bytes) -> None:
        try:
            self._stream.write(data)
            self._stream.flush()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"the journal cannot be written: {error.strerror}", where=str(self._path))


def read(path: Path) -> tuple[JournalHeader, Iterator[list[Event]]]:
    """Header and batches of a journal; a torn tail ends it.

    Raises
    ------
    BadFileError
        The file is no journal, or is damaged before its end.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadFileError(f"the journal cannot be read: {error.strerror}", where=str(path)) from error
    if not data.startswith(_MAGIC):
        raise BadFileError("this is no journal of dropflow", where=str(path))
    frames = _frames(data, path)
    first = next(frames, None)
    if first is None:
        raise BadFileError("the journal ends inside its header", where=str(path))
    header = msgspec.msgpack.decode(first, type=JournalHeader)
    decoder = msgspec.msgpack.Decoder(list[Event])
    return header, (decoder.decode(frame) for frame in frames)


def _frames(data: bytes, path: Path) -> Iterator[bytes]:
    offset = len(_MAGIC)
    while offset + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, offset)
        body = data[offset + _FRAME.size : offset + _FRAME.size + length]
        offset += _FRAME.size + length
        if len(body) < length:
            return
        if zlib.crc32(body) != checksum:
            if offset >= len(data):
                return
            raise BadFileError("the journal is damaged in its middle", where=str(path))
        yield body


def replay(graph: PhysicalGraph, path: Path) -> Core:
    """A fresh core that has taken in every event of a journal."""
    header, batches = read(path)
    core = Core(graph, streams=header.streams)
    for events in batches:
        core.handle(events)
    return core
