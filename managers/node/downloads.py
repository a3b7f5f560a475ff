"""Files and contents of drops as downloads."""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dropflow.content_digest import digest
from dropflow.data.read_content import open_file
from dropflow.engine.api import Handle
from dropflow.errors import GoneError, RangeError, StorageError
from dropflow.rest.byte_range import WHOLE, DataQuery, requested_part
from dropflow.rest.download import Download
from managers.node.directory_tar import directory_tar

__all__ = ["content_chunks", "content_download", "file_download", "refuse_changed"]

_BLOCK = 1 << 20
_BINARY = "application/octet-stream"
_CHANGED = "something else removed or changed it, or the storage is failing: submit the graph again"


def file_download(path: Path, name: str, content_type: str = _BINARY) -> Download:
    """Return a file as it is now, without what is appended later.

    Raises
    ------
    StorageError
        The file cannot be read.
    """
    stream = _opened(path)
    size = os.fstat(stream.fileno()).st_size
    return Download(name=name, content_type=content_type, size=size, chunks=_chunks(stream, size))


def content_chunks(handle: Handle, *, start: int = 0) -> tuple[int, Iterator[bytes]]:
    """Return the size of the content of a data drop that is no directory, and its bytes from `start`.

    A file of one block is compared with the checksum that it was committed with; the receiver compares longer ones.

    Raises
    ------
    GoneError, StorageError
        See `content_download`.
    """
    if handle.kind in ("bytes", "null"):
        return len(handle.body), iter((handle.body[start:],))
    if handle.kind == "url":
        raise GoneError(f"the content is at {handle.location}, not on this node")
    try:
        stream = open_file(handle.location)
    except OSError as error:
        raise _missing(handle, error) from error
    size = os.fstat(stream.fileno()).st_size
    try:
        _refuse_size(handle, size)
    except GoneError:
        stream.close()
        raise
    chunks = _chunks(stream, size, start)
    if start or size > _BLOCK or not handle.checksum:
        return size, chunks
    return size, iter([*_checked(chunks, handle)])


def content_download(handle: Handle, name: str, query: DataQuery = WHOLE) -> Download:
    """Return the content of a data drop, or the part that a query asks for; a directory as a tar file, always whole.

    A file is compared with the checksum that it was committed with. A short one is refused before anything is sent. The
    last block of a longer one is sent only if the checksum is right, so that a damaged content is never whole. A
    part is not compared: that would read the rest, too.

    Raises
    ------
    GoneError
        The content is elsewhere, is missing, or is not what was committed. The chunks raise it, too.
    RangeError
        The part begins after the end of the content.
    StorageError
        The content cannot be read.
    """
    kind = "text/plain; charset=utf-8" if handle.text else _BINARY
    if handle.kind in ("bytes", "null"):
        etag = _etag(handle.kind, handle.body)
        part = requested_part(query, len(handle.body), etag)
        body = handle.body if part is None else handle.body[part.first : part.last + 1]
        return Download(name=name, content_type=kind, size=len(body), chunks=iter((body,)), etag=etag, part=part)
    refuse_changed(handle)
    if handle.kind == "directory":
        chunks = directory_tar(Path(handle.location), name)
        return Download(name=f"{name}.tar", content_type="application/x-tar", size=None, chunks=chunks)
    if handle.kind == "url":
        raise GoneError(f"the content is at {handle.location}, not on this node")
    path = Path(handle.location)
    suffix = path.suffix if handle.kind == "file" else ""
    stream = _opened(path)
    found = os.fstat(stream.fileno())
    etag = _etag(handle.checksum, found.st_size, found.st_ino, found.st_mtime_ns)
    try:
        part = requested_part(query, found.st_size, etag)
    except RangeError:
        stream.close()
        raise
    start, end = (0, found.st_size) if part is None else (part.first, part.last + 1)
    chunks = _chunks(stream, end, start)
    if handle.checksum and end - start == found.st_size:
        chunks = _checked(chunks, handle)
        chunks = iter((*chunks,)) if handle.size <= _BLOCK else chunks
    offered = name if name.endswith(suffix) else name + suffix
    return Download(name=offered, content_type=kind, size=end - start, chunks=chunks, etag=etag, part=part)


def refuse_changed(handle: Handle) -> None:
    """Refuse a content that is missing, or has another size than it was committed with.

    Raises
    ------
    GoneError
        It is; the error names its place.
    """
    if not handle.location or handle.kind == "url":
        return
    try:
        size = os.stat(handle.location).st_size  # noqa: PTH116 - text, once a content
    except OSError as error:
        raise _missing(handle, error) from error
    _refuse_size(handle, size)


def _opened(path: Path) -> BinaryIO:
    try:
        return open_file(str(path))
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _etag(*identity: object) -> str:
    """Return a strong ETag: contents of another identity have another one."""
    found = digest()
    found.update(repr(identity).encode())
    return f'"{found.hexdigest()}"'


def _missing(handle: Handle, error: OSError) -> GoneError:
    return GoneError(f"{handle.location} is not there any more: {error.strerror}", hint=_CHANGED)


def _refuse_size(handle: Handle, size: int) -> None:
    if handle.checksum and size != handle.size:
        raise GoneError(f"{handle.location} has {size} bytes where {handle.size} were committed", hint=_CHANGED)


def _chunks(stream: BinaryIO, size: int, start: int = 0) -> Iterator[bytes]:
    with stream:
        stream.seek(start)
        left = size - start
        while left and (block := stream.read(min(_BLOCK, left))):
            left -= len(block)
            yield block


def _checked(chunks: Iterator[bytes], handle: Handle) -> Iterator[bytes]:
    """Yield `chunks`; the last one only if the checksum of all is right."""
    checksum, last = 0, b""
    for block in chunks:
        if last:
            yield last
        checksum, last = zlib.crc32(block, checksum), block
    if checksum != handle.checksum:
        found = f"CRC-32 {checksum:08x} where {handle.checksum:08x} was committed"
        raise GoneError(f"{handle.location} has {found}", hint=_CHANGED)
    if last:
        yield last
