"""Downloads of the contents of many drops, as the records of one response."""

from collections.abc import Callable, Iterator, Sequence

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
from managers.node.downloads import content_download

__all__ = ["batch"]

_PIECE = 1 << 20


def batch(requests: Sequence[ContentRequest], find: Callable[[int], tuple[str, Handle]]) -> Iterator[ContentRecord]:
    """Yield the records of the requested contents, in their order.

    Parameters
    ----------
    find : callable
        Returns the name and the content of the drop in a row of the whole graph.
    """
    for index, request in enumerate(requests):
        try:
            name, handle = find(request.row)
            if request.digest and request.digest == _digest_of(handle):
                yield ContentUnchanged(index)
            else:
                yield from _content(index, name, handle)
        except DropflowError as error:
            yield ContentError(index, to_body(error))


def _content(index: int, name: str, handle: Handle) -> Iterator[ContentRecord]:
    download = content_download(handle, name, top=".")
    yield ContentBegin(index, handle.kind == "directory")
    found, size = digest(), 0
    for chunk in download.chunks:
        found.update(chunk)
        size += len(chunk)
        # Content in memory is one chunk, of any size.
        for start in range(0, len(chunk), _PIECE):
            yield ContentPiece(chunk[start : start + _PIECE])
    if download.size not in (None, size):
        raise StorageError(f"only {size} of {download.size} bytes can be read", where=name)
    yield ContentEnd(found.hexdigest())


def _digest_of(handle: Handle) -> str:
    if handle.kind == "url":
        return ""
    if handle.kind in ("bytes", "null"):
        found = digest()
        found.update(handle.body)
        return found.hexdigest()
    return fingerprint(handle.location)
