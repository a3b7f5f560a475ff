"""Downloads of the contents of many drops, as the records of one response."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dropflow.content_digest import digest
from dropflow.data.fingerprint import fingerprint
from dropflow.engine.api import Handle
from dropflow.errors import DropflowError, StorageError
from dropflow.rest.content_records import (
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentRequest,
    ContentUnchanged,
)
from dropflow.rest.error_body import to_body
from managers.node.directory_tar import directory_listing, directory_tar
from managers.node.downloads import content_chunks, refuse_changed

__all__ = ["batch"]

_PIECE = 1 << 22


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
    known = handle.checksum or None
    start = request.offset if known is not None and known == request.checksum and request.offset <= handle.size else 0
    size, chunks = content_chunks(handle, start=start)
    yield ContentBegin(index, size=size, checksum=known, offset=start)
    # The receiver compares the checksum. To compute it here too would cost a large part of the time to send the bytes.
    checksum, sent = known or 0, start
    for chunk in chunks:
        if known is None:
            checksum = zlib.crc32(chunk, checksum)
        sent += len(chunk)
        # Content in memory is one chunk, of any size.
        for at in range(0, len(chunk), _PIECE):
            yield ContentPiece(memoryview(chunk)[at : at + _PIECE])
    if size != sent:
        raise StorageError(f"only {sent} of {size} bytes can be read", where=handle.location)
    yield ContentEnd(checksum)


def _directory(index: int, request: ContentRequest, handle: Handle) -> Iterator[ContentRecord]:
    """Yield the tar file of a directory; without its beginning if the client has that of the same listing.

    The beginning is packed again, to compute the checksum of all bytes. Meanwhile empty pieces tell that it goes on.
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
        found = digest()
        found.update(handle.body)
        return found.hexdigest()
    return fingerprint(handle.location)
