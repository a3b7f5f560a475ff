"""Downloads from a node: files, contents of many drops, directories as tar files."""

import os
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dropflow.api.contents_answer import (
    WHOLE,
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentRequest,
    ContentUnchanged,
    DataQuery,
    Download,
    requested_part,
)
from dropflow.api.error_body import to_body
from dropflow.data.read import open_file
from dropflow.data.remote import known_checksum, open_remote
from dropflow.data.storage_errors import below, fingerprint, storage_errors
from dropflow.errors import (
    DropflowError,
    GoneError,
    RangeError,
    StorageError,
)
from dropflow.execution.content_location import Handle
from dropflow.files import content_digest
from managers.node.trees import TreeSource

_TAR_BLOCK_BYTES = 1 << 18
"""Bytes of the tar file of a directory in one chunk of the response."""
_DOWNLOAD_BLOCK_BYTES = 1 << 20
"""Bytes in one chunk of a download; a content up to this size is checked before its first byte is sent."""
_BINARY = "application/octet-stream"
_CHANGED = "something else removed or changed it, or the storage is failing: submit the graph again"
_PIECE_BYTES = 1 << 22
"""Bytes in one piece of the answer with many contents."""

# A directory as a tar file, read while it is sent.


class DirectoryListing(NamedTuple):
    """The size of a directory and a checksum of its entries, without reading its files.

    Attributes
    ----------
    size : int
        Bytes of the files together.
    checksum : int
        CRC-32 of the headers of their tar file: names, kinds, sizes, times and targets of links. If it is the same, the
        tar file is the same, unless the bytes of a file were changed with the same size and time. Never 0.
    """

    size: int
    checksum: int


def directory_listing(root: Path) -> DirectoryListing:
    """Return the listing of a directory.

    Raises
    ------
    StorageError
        It cannot be read.
    """
    size = checksum = 0
    with storage_errors("pack", root):
        for name, path, status in chain([(".", str(root), root.stat())], below(str(root))):
            target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""  # noqa: PTH115 - text, once a link
            is_file = stat.S_ISREG(status.st_mode)
            size += status.st_size if is_file else 0
            entry = (name, status.st_mode, status.st_mtime_ns, status.st_size * is_file, target)
            checksum = zlib.crc32(repr(entry).encode(errors="surrogateescape"), checksum)
    return DirectoryListing(size, checksum or 1)


def directory_tar(root: Path, top: str) -> Iterator[bytes]:
    """Yield a tar file with `root` and all entries below it, sorted by name, under the name `top`.

    Links are stored as links; sockets, pipes and devices are left out.

    Raises
    ------
    StorageError
        A file cannot be read, or has fewer bytes than when its content was begun.
    """
    source = TreeSource(root, top)
    for offset in range(0, source.size, _TAR_BLOCK_BYTES):
        yield source.read(offset, _TAR_BLOCK_BYTES)


def file_download(path: Path, name: str, content_type: str = _BINARY) -> Download:
    """Return the present content of a file, without text that is appended later.

    Raises
    ------
    StorageError
        The file cannot be read.
    """
    stream = _opened(path)
    size = os.fstat(stream.fileno()).st_size
    return Download(name=name, content_type=content_type, size=size, chunks=_chunks(stream, path, size))


def content_chunks(handle: Handle, *, start: int = 0) -> tuple[int | None, Iterator[bytes]]:
    """Return the size of the content of a data drop that is not a directory, and its bytes from `start`.

    A content in a store is returned whole and compared at its end. Its size is None, because its size in the store may
    differ. A file of one block is compared with the checksum of its commit; the receiver compares longer files.

    Raises
    ------
    GoneError, StorageError
        See `content_download`.
    """
    if handle.kind in ("bytes", "null"):
        return len(handle.body), iter((handle.body[start:],))
    if handle.kind == "url":
        return None, _stored(handle)
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
    chunks = _chunks(stream, handle.location, size, start)
    if start or size > _DOWNLOAD_BLOCK_BYTES or not handle.checksum:
        return size, chunks
    return size, iter([*_checked(chunks, handle)])


def content_download(handle: Handle, name: str, query: DataQuery = WHOLE) -> Download:
    """Return the content of a data drop, or the part that a query asks for; a directory as a tar file, always whole.

    A file is compared with the checksum of its commit. If it is short and wrong, it is refused before anything is sent.
    The last block of a longer file is sent only if the checksum is right, so that a damaged content is never whole. A
    part is not compared, because this would require to read the rest, too.

    Raises
    ------
    GoneError
        The content is elsewhere, is missing, or differs from the committed one. The chunks raise it, too.
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
        # Read by this node, which has the credentials; always whole, and compared at its end.
        return Download(name=name, content_type=kind, size=handle.size or None, chunks=_stored(handle))
    path = Path(handle.location)
    suffix = path.suffix if handle.kind == "file" else ""
    stream = _opened(path)
    status = os.fstat(stream.fileno())
    etag = _etag(handle.checksum, status.st_size, status.st_ino, status.st_mtime_ns)
    try:
        part = requested_part(query, status.st_size, etag)
    except RangeError:
        stream.close()
        raise
    start, end = (0, status.st_size) if part is None else (part.first, part.last + 1)
    chunks = _chunks(stream, path, end, start)
    if handle.checksum and end - start == status.st_size:
        chunks = _checked(chunks, handle)
        chunks = iter((*chunks,)) if handle.size <= _DOWNLOAD_BLOCK_BYTES else chunks
    offered = name if name.endswith(suffix) else name + suffix
    return Download(name=offered, content_type=kind, size=end - start, chunks=chunks, etag=etag, part=part)


def _stored(handle: Handle) -> Iterator[bytes]:
    """Return the blocks of a content in a store, which is opened now."""
    source = open_remote(handle)

    def blocks() -> Iterator[bytes]:
        with source:
            while block := source.read(_DOWNLOAD_BLOCK_BYTES):
                yield block

    return blocks()


def refuse_changed(handle: Handle) -> None:
    """Refuse a content that is missing, or a file whose size has changed since its commit.

    Raises
    ------
    GoneError
        It is missing or has changed; the error names its place.
    """
    if not handle.location or handle.kind == "url":
        return
    try:
        size = os.stat(handle.location).st_size  # noqa: PTH116 - text, once a content
    except OSError as error:
        raise _missing(handle, error) from error
    if handle.kind != "directory":  # the tree of a directory is not read twice for one answer
        _refuse_size(handle, size)


def _opened(path: Path) -> BinaryIO:
    try:
        return open_file(str(path))
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _etag(*identity: object) -> str:
    """Return a strong ETag: it differs for contents of another identity."""
    digest = content_digest()
    digest.update(repr(identity).encode())
    return f'"{digest.hexdigest()}"'


def _missing(handle: Handle, error: OSError) -> GoneError:
    return GoneError(f"{handle.location} is not there any more: {error.strerror}", hint=_CHANGED)


def _refuse_size(handle: Handle, size: int) -> None:
    if handle.checksum and size != handle.size:
        raise GoneError(f"{handle.location} has {size} bytes where {handle.size} were committed", hint=_CHANGED)


def _chunks(stream: BinaryIO, path: str | Path, size: int, start: int = 0) -> Iterator[bytes]:
    with stream, storage_errors("read", path):
        stream.seek(start)
        left = size - start
        while left and (block := stream.read(min(_DOWNLOAD_BLOCK_BYTES, left))):
            left -= len(block)
            yield block


def _checked(chunks: Iterator[bytes], handle: Handle) -> Iterator[bytes]:
    """Yield `chunks`; yield the last one only if the checksum of all is right."""
    checksum, last = 0, b""
    for block in chunks:
        if last:
            yield last
        checksum, last = zlib.crc32(block, checksum), block
    if checksum != handle.checksum:
        difference = f"CRC-32 {checksum:08x} where {handle.checksum:08x} was committed"
        raise GoneError(f"{handle.location} has {difference}", hint=_CHANGED)
    if last:
        yield last


# Downloads of the contents of many drops, as the records of one response.


def batch(requests: Sequence[ContentRequest], find: Callable[[int], Handle]) -> Iterator[ContentRecord]:
    """Yield the records of the requested contents, in their order.

    Parameters
    ----------
    find : callable
        Returns the content of the drop in a row of the whole graph.
    """
    for index, request in enumerate(requests):
        try:
            handle = find(request.row)
            if request.digest and request.digest == _digest_of(handle):
                yield ContentUnchanged(index)
            else:
                yield from _content(index, request, handle)
        except DropflowError as error:
            yield ContentError(index, to_body(error))


def _content(index: int, request: ContentRequest, handle: Handle) -> Iterator[ContentRecord]:
    if handle.kind == "directory":
        yield from _directory(index, request, handle)
        return
    known, is_stored = known_checksum(handle), handle.kind == "url"
    can_go_on = known is not None and known == request.checksum and request.offset <= handle.size and not is_stored
    start = request.offset if can_go_on else 0
    size, chunks = content_chunks(handle, start=start)
    yield ContentBegin(index, size=size, checksum=known, offset=start)
    # The receiver compares the checksum. To compute it here too would cost a large part of the time to send the bytes.
    checksum, sent = known or 0, start
    for chunk in chunks:
        if known is None:
            checksum = zlib.crc32(chunk, checksum)
        sent += len(chunk)
        # Content in memory is one chunk, of any size.
        for at in range(0, len(chunk), _PIECE_BYTES):
            yield ContentPiece(memoryview(chunk)[at : at + _PIECE_BYTES])
    if size not in (None, sent):
        raise StorageError(f"only {sent} of {size} bytes can be read", where=handle.location)
    yield ContentEnd(checksum)


def _directory(index: int, request: ContentRequest, handle: Handle) -> Iterator[ContentRecord]:
    """Yield the tar file of a directory; without its beginning if the client has it, of the same listing.

    The beginning is packed again, to compute the checksum of all bytes. Meanwhile empty pieces keep the connection
    alive.
    """
    refuse_changed(handle)
    root = Path(handle.location)
    listing = directory_listing(root)
    start = request.offset if request.checksum == listing.checksum else 0
    yield ContentBegin(index, is_directory=True, size=listing.size, checksum=listing.checksum, offset=start)
    checksum = done = 0
    for chunk in directory_tar(root, "."):
        checksum = zlib.crc32(chunk, checksum)
        skipped = min(max(start - done, 0), len(chunk))
        done += len(chunk)
        yield ContentPiece(memoryview(chunk)[skipped:])
    if done < start:
        raise StorageError(f"the directory has become smaller than the {start:,} bytes that are here", where=str(root))
    yield ContentEnd(checksum)


def _digest_of(handle: Handle) -> str:
    if handle.kind == "url":
        return ""
    if handle.kind in ("bytes", "null"):
        digest = content_digest()
        digest.update(handle.body)
        return digest.hexdigest()
    return fingerprint(handle.location)
