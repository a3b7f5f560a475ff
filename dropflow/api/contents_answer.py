"""Contents of many drops in one answer: the request, and the records that come back one after the other.

Each record is a length of four bytes, little-endian, and a message in msgpack. For each content that was asked for
there is `ContentUnchanged`, or `ContentError`, or `ContentBegin`, then `ContentPiece` for the bytes and `ContentEnd`.
`ContentError` may also come instead of `ContentEnd`. The message of a piece has only the number of its bytes, which
follow it as they are, so that large ones are neither packed nor copied. A directory comes as a tar file. Managers
between the node and the client forward the bytes unchanged.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import PurePosixPath
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Meta

from dropflow.api.drop_records import ResultInfo
from dropflow.api.error_body import ErrorBody
from dropflow.errors import ProtocolError, RangeError
from dropflow.ids import safe_name

MEDIA_TYPE = "application/vnd.dropflow.contents"
MAX_CONTENTS = 10_000
"""Contents that one request may ask for."""

_LENGTH = struct.Struct("<I")
_LONGEST_RECORD_BYTES = 1 << 24
"""Bytes of a record without its content, above which an answer counts as damaged."""
_CHUNK_BYTES = 1 << 18
"""Bytes of records that are collected before they are sent."""
_ALONE = 1 << 16
"""Bytes of a piece that is a chunk of its own; smaller ones are joined."""
_RANGE = re.compile(r"bytes=\s*(\d*)-(\d*)\s*", re.ASCII | re.IGNORECASE)
_PART = re.compile(r"bytes (\d+)-(\d+)/(\d+)", re.ASCII)
_RANGE_DIGITS = 18
"""Digits of a position in a range of bytes; a longer one is ignored as malformed."""
_PLAIN = re.compile(r"[A-Za-z0-9._ -]+")
UNFINISHED = ".dropflow-unfinished"
"""Name of the directory for incomplete files; no result has it."""
_OUTSIDE = "outside"


class ContentRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The request for one content, of the drop in this row of the whole graph.

    Attributes
    ----------
    digest : str
        Digest of the content that the client has (`dropflow.data.storage_errors.fingerprint`); empty if it has none.
    offset, checksum : int
        The client has this many bytes already of a content that was committed with this CRC-32. A content with another
        checksum comes from its beginning.
    """

    row: Annotated[int, Meta(ge=0, le=2**53)]
    digest: Annotated[str, Meta(max_length=64)] = ""
    offset: Annotated[int, Meta(ge=0, le=2**62)] = 0
    checksum: Annotated[int, Meta(ge=0, lt=2**32)] = 0


class ContentsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request for contents that are on one node."""

    node: Annotated[str, Meta(min_length=1, max_length=255)]
    wanted: Annotated[tuple[ContentRequest, ...], Meta(min_length=1, max_length=MAX_CONTENTS)]


class ContentBegin(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Start of the content of `ContentsRequest.wanted` with this index.

    Attributes
    ----------
    size, checksum : int or None
        With which it was committed; None if that is not known. Of a directory, the bytes of its files, and the checksum
        of its listing: the tar file that follows is larger, and has another one.
    offset : int
        The bytes before are not sent, because the client has them.
    """

    index: int
    is_directory: bool = False
    size: int | None = None
    checksum: int | None = None
    offset: int = 0


class ContentPiece(msgspec.Struct, frozen=True):
    """The next bytes of the content. They may arrive in other pieces than they were sent in.

    A piece without bytes means that the sender is busy with this content, and is sent at once.
    """

    data: bytes | memoryview


class ContentEnd(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """End of a complete content; `checksum` is the CRC-32 of all its bytes."""

    checksum: int


class ContentUnchanged(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The client already has this content."""

    index: int


class ContentError(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A content is not available, or ends early."""

    index: int
    error: ErrorBody


class _PieceHeader(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The number of bytes that follow."""

    size: Annotated[int, Meta(ge=0)]


ContentRecord = ContentBegin | ContentPiece | ContentEnd | ContentUnchanged | ContentError
_Message = ContentBegin | _PieceHeader | ContentEnd | ContentUnchanged | ContentError


def write_records(records: Iterable[ContentRecord]) -> Iterator[bytes]:
    """Yield records as bytes; small ones are joined into chunks."""
    encoder, waiting = msgspec.msgpack.Encoder(), bytearray()
    for record in records:
        data = record.data if isinstance(record, ContentPiece) else b""
        message = encoder.encode(_PieceHeader(len(data)) if isinstance(record, ContentPiece) else record)
        waiting += _LENGTH.pack(len(message))
        waiting += message
        if len(data) < _ALONE:
            waiting += data
        is_sign = isinstance(record, ContentPiece) and not data
        if len(waiting) >= _CHUNK_BYTES or len(data) >= _ALONE or is_sign:
            yield bytes(waiting)
            waiting.clear()
        if len(data) >= _ALONE:
            yield bytes(data)
    if waiting:
        yield bytes(waiting)


class RecordReader:
    """Reads records from chunks of any size, as they arrive."""

    def __init__(self) -> None:
        self._decoder = msgspec.msgpack.Decoder(_Message)
        self._waiting = b""
        """Bytes of a length or message that is not complete."""
        self._left = 0
        """Bytes of the piece that have not arrived."""

    @property
    def is_between(self) -> bool:
        """Whether nothing of the next record has arrived."""
        return not self._waiting and not self._left

    def read(self, chunk: bytes) -> Iterator[ContentRecord]:
        """Yield the records of the next chunk; a piece without a copy, and what there is of it.

        Raises
        ------
        ProtocolError
            The bytes are not records.
        """
        view, start = memoryview(self._waiting + chunk if self._waiting else chunk), 0
        while start < len(view):
            if self._left:
                data = view[start : start + self._left]
                self._left -= len(data)
                start += len(data)
                yield ContentPiece(data)
                continue
            if len(view) - start < _LENGTH.size:
                break
            (size,) = _LENGTH.unpack_from(view, start)
            if size > _LONGEST_RECORD_BYTES:
                raise ProtocolError(f"a record of {size:,} bytes is larger than any of a content")
            end = start + _LENGTH.size + size
            if len(view) < end:
                break
            record = self._decoded(view[start + _LENGTH.size : end])
            start = end
            if isinstance(record, _PieceHeader):
                self._left = record.size
            else:
                yield record
        self._waiting = bytes(view[start:])

    def _decoded(self, message: memoryview) -> _Message:
        try:
            record: _Message = self._decoder.decode(message)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ProtocolError(f"the contents cannot be read: {error}") from error
        return record


def read_records(chunks: Iterable[bytes]) -> Iterator[ContentRecord]:
    """Yield the records in `chunks` of any size.

    Raises
    ------
    ProtocolError
        The bytes are not records, or end within one.
    """
    reader = RecordReader()
    for chunk in chunks:
        yield from reader.read(chunk)
    if not reader.is_between:
        raise ProtocolError("the contents are cut off")


# Parts of downloads, as HTTP asks for them (RFC 9110, 14): one range of bytes, if the content is still the same.
#
# The headers ``Range`` and ``If-Range`` are passed from manager to manager as they are; the node that has the content
# reads them, because only it knows the size.


class DataQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a content to download; the headers of the same names count more.

    Attributes
    ----------
    range : str
        As in the header ``Range``; empty for the whole content.
    if_range : str
        As in ``If-Range``: the ETag of the content whose part it is. If it has another one, all of it comes.
    """

    range: Annotated[str, Meta(max_length=200)] = ""
    if_range: Annotated[str, Meta(max_length=200)] = ""


WHOLE = DataQuery()


class PartOfContent(msgspec.Struct, frozen=True):
    """The bytes from `first` to `last`, which is one of them, of a content of `whole` bytes."""

    first: int
    last: int
    whole: int

    @property
    def header(self) -> str:
        """The value of ``Content-Range``."""
        return f"bytes {self.first}-{self.last}/{self.whole}"

    @property
    def size(self) -> int:
        """Number of its bytes."""
        return self.last - self.first + 1


def requested_part(query: DataQuery, size: int, etag: str) -> PartOfContent | None:
    """Return the part that a request asks for; None for the whole content.

    As HTTP requires, a header that is not one range of bytes is ignored.

    Parameters
    ----------
    size : int
        Bytes of the content.
    etag : str
        Its strong ETag.

    Raises
    ------
    RangeError
        The range begins after the end of the content.
    """
    match = _RANGE.fullmatch(query.range)
    if (
        match is None
        or (query.if_range and query.if_range != etag)
        or any(len(group) > _RANGE_DIGITS for group in match.groups())
    ):
        return None
    begin, end = (int(text) if text else None for text in match.groups())
    if begin is None:
        if end is None:
            return None
        begin, end = max(size - end, 0) if end else size, None
    if end is not None and end < begin:
        return None
    if begin >= size:
        raise RangeError(
            f"the content has {size:,} bytes, and the range begins at byte {begin:,}",
            size=size,
            hint="download it again from its beginning",
        )
    return PartOfContent(begin, size - 1 if end is None else min(end, size - 1), size)


def read_content_range(header: str) -> PartOfContent | None:
    """Return the part that an answer has, from its ``Content-Range``; None if it has the whole content."""
    match = _PART.fullmatch(header.strip())
    return None if match is None else PartOfContent(*map(int, match.groups()))


# A download: a content as a stream of bytes, with what its receiver needs to know.


@dataclass(frozen=True)
class Download:
    """A download.

    Attributes
    ----------
    name : str
        File name to offer.
    content_type : str
        Media type.
    size : int or None
        Bytes, if they are known.
    chunks : iterator of bytes
        The content; to be exhausted or closed.
    etag : str
        Strong ETag, if parts of the content can be downloaded; else empty.
    part : PartOfContent or None
        The range of the content in this answer; None for all of it.
    """

    name: str
    content_type: str
    size: int | None
    chunks: Iterator[bytes]
    etag: str = ""
    part: PartOfContent | None = None

    def close(self) -> None:
        """Close the chunks, whether or not all of them were read."""
        close = getattr(self.chunks, "close", None)
        if close is not None:
            close()


# Names of downloads in the header Content-Disposition (RFC 6266), safe for browsers and shells.


def attachment(name: str) -> tuple[str, str]:
    """Return the header of a download with this name: a plain name, and the full one as ``filename*``."""
    last = name.replace("\\", "/").rpartition("/")[2]
    clean = "".join(character for character in last if character.isprintable()).lstrip(".") or "download"
    clean = clean.encode("utf-8", errors="replace").decode()
    plain = clean if _PLAIN.fullmatch(clean) else safe_name(clean, fallback="download")
    encoded_name = "" if plain == clean else f"; filename*=UTF-8''{quote(clean, safe='')}"
    return "Content-Disposition", f'attachment; filename="{plain}"{encoded_name}'


def file_name(header: str) -> str:
    """Return the name in such a header, as one safe path segment."""
    message = Message()
    message["Content-Disposition"] = header or "attachment"
    filename = message.get_filename(failobj="download")
    return safe_name(str(filename), fallback="download")


# Paths of the results of a session in a directory or an archive: relative, distinct, and never outside of it.


def result_paths(results: Iterable[ResultInfo]) -> Iterator[tuple[ResultInfo, PurePosixPath]]:
    """Yield each result with a distinct relative path; if paths are equal, the node or the row is appended."""
    taken: set[PurePosixPath] = set()
    for result in results:
        path = _confined(result.path)
        if path in taken:
            path = path.with_name(f"{path.name}~{safe_name(result.node, fallback='node')}")
        while path in taken:
            path = path.with_name(f"{path.name}~{result.drop}")
        taken.add(path)
        yield result, path


def _confined(path: str) -> PurePosixPath:
    """Return `path` without ``..``, and below ``outside`` if it led out of the directory."""
    given = PurePosixPath(path.replace("\0", "_"))
    parts = [part for part in given.parts if part not in ("/", "//", "..", ".")]
    if given.is_absolute() or ".." in given.parts or (parts and parts[0] == UNFINISHED):
        parts.insert(0, _OUTSIDE)
    return PurePosixPath(*parts) if parts else PurePosixPath(_OUTSIDE, "unnamed")
