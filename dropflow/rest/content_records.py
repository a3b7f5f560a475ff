"""Contents of many drops in one answer: the request, and the records that come back one after the other.

Each record is a length of four bytes, little-endian, and a message in msgpack. For each content that was asked for
there is `ContentUnchanged`, or `ContentError`, or `ContentBegin`, then `ContentPiece` for the bytes and `ContentEnd`.
`ContentError` may also come instead of `ContentEnd`. A directory comes as a tar file. Managers between the
node and the client forward the bytes unchanged.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.errors import ProtocolError
from dropflow.rest.error_body import ErrorBody

__all__ = [
    "MAX_CONTENTS",
    "MEDIA_TYPE",
    "ContentBegin",
    "ContentEnd",
    "ContentError",
    "ContentPiece",
    "ContentRecord",
    "ContentRequest",
    "ContentUnchanged",
    "ContentsRequest",
    "read_records",
    "write_records",
]

MEDIA_TYPE = "application/vnd.dropflow.contents"
MAX_CONTENTS = 1000
"""Contents that one request may ask for."""

_LENGTH = struct.Struct("<I")
_LONGEST = 1 << 24
_CHUNK = 1 << 16


class ContentRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request for one content, of the drop in this row of the whole graph.

    Attributes
    ----------
    digest : str
        Of the content that the client has already (`dropflow.data.fingerprint.fingerprint`); empty if it has none.
    """

    row: Annotated[int, Meta(ge=0, le=2**53)]
    digest: Annotated[str, Meta(max_length=64)] = ""


class ContentsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request for contents that are on one node."""

    node: Annotated[str, Meta(min_length=1, max_length=255)]
    wanted: Annotated[tuple[ContentRequest, ...], Meta(min_length=1, max_length=MAX_CONTENTS)]


class ContentBegin(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Start of the content of `ContentsRequest.wanted` with this index."""

    index: int
    is_directory: bool = False


class ContentPiece(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The next bytes of the content."""

    data: bytes


class ContentEnd(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """End of a complete content; `digest` is that of its bytes."""

    digest: str


class ContentUnchanged(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The client already has this content."""

    index: int


class ContentError(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A content is not available, or ends early."""

    index: int
    error: ErrorBody


ContentRecord = ContentBegin | ContentPiece | ContentEnd | ContentUnchanged | ContentError


def write_records(records: Iterable[ContentRecord]) -> Iterator[bytes]:
    """Yield records as bytes; small ones are joined into chunks."""
    encoder, waiting = msgspec.msgpack.Encoder(), bytearray()
    for record in records:
        message = encoder.encode(record)
        waiting += _LENGTH.pack(len(message))
        waiting += message
        if len(waiting) >= _CHUNK:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


def read_records(chunks: Iterable[bytes]) -> Iterator[ContentRecord]:
    """Yield the records in `chunks` of any size.

    Raises
    ------
    ProtocolError
        The bytes are not records, or end within one.
    """
    decoder, waiting = msgspec.msgpack.Decoder(ContentRecord), bytearray()
    for chunk in chunks:
        waiting += chunk
        start = 0
        while len(waiting) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(waiting, start)
            if size > _LONGEST:
                raise ProtocolError(f"a record of {size:,} bytes is larger than any of a content")
            end = start + _LENGTH.size + size
            if len(waiting) < end:
                break
            try:
                yield decoder.decode(bytes(waiting[start + _LENGTH.size : end]))
            except msgspec.MsgspecError as error:
                raise ProtocolError(f"the contents cannot be read: {error}") from error
            start = end
        del waiting[:start]
    if waiting:
        raise ProtocolError("the contents are cut off")
