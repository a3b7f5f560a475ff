"""Contents that are compressed by gzip: a bounded part of them, decompressed into memory."""

import zlib

from dropflow.errors import BadFileError
from dropflow.preview.source import BytesSource, Source

__all__ = ["is_gzip", "unpacked"]

_MAGIC = b"\x1f\x8b"
_LIMIT = 64 << 20
_PIECE = 1 << 20


def is_gzip(start: bytes) -> bool:
    """Whether a content that begins so is compressed by gzip."""
    return start.startswith(_MAGIC)


def unpacked(source: Source) -> tuple[BytesSource, bool]:
    """Return what is compressed, or its first 64 MiB, and whether that is all of it.

    Raises
    ------
    BadFileError
        It is damaged.
    """
    unpack = zlib.decompressobj(wbits=31)
    pieces: list[bytes] = []
    left, at = _LIMIT, 0
    try:
        while left and at < source.size and not unpack.eof:
            data = source.read(at, min(_PIECE, source.size - at))
            at += len(data)
            piece = unpack.decompress(data, left)
            pieces.append(piece)
            left -= len(piece)
    except zlib.error as error:
        raise BadFileError(f"it is not what gzip writes: {error}") from error
    if left and not unpack.eof:
        raise BadFileError("it is cut off: the end of what gzip wrote is missing")
    return BytesSource(b"".join(pieces), source.name.removesuffix(".gz")), unpack.eof
