"""Previews and pictures of the contents of drops on this node."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dropflow.data.read_content import open_file
from dropflow.engine.api import Handle
from dropflow.errors import GoneError, StorageError
from dropflow.preview.look import picture, picture_type, preview
from dropflow.preview.records import Preview, PreviewQuery
from dropflow.preview.source import BytesSource, DirectorySource, OpenFileSource, Source
from dropflow.rest.download import Download
from managers.node.downloads import refuse_changed

__all__ = ["content_picture", "content_preview"]


def content_preview(handle: Handle, query: PreviewQuery) -> Preview:
    """Return a bounded part of a content.

    Raises
    ------
    GoneError
        The content is elsewhere, is missing, or has another size than it was committed with.
    StorageError
        It cannot be read.
    """
    with _source(handle) as source:
        return preview(source, query)


def content_picture(handle: Handle, name: str, query: PreviewQuery) -> Download:
    """Return a content as a picture.

    Raises
    ------
    BadFileError
        It has none, or is damaged.
    GoneError, StorageError
        See `content_preview`.
    """
    with _source(handle) as source:
        data = picture(source, query)
    kind = picture_type(data)
    return Download(name=f"{name}.{kind.rpartition('/')[2]}", content_type=kind, size=len(data), chunks=iter((data,)))


@contextmanager
def _source(handle: Handle) -> Iterator[Source | DirectorySource]:
    if handle.kind in ("bytes", "null"):
        yield BytesSource(handle.body)
        return
    if handle.kind == "url":
        raise GoneError(f"the content is at {handle.location}, not on this node")
    refuse_changed(handle)
    if handle.kind == "directory":
        yield DirectorySource(Path(handle.location))
        return
    try:
        stream = open_file(handle.location)
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", where=handle.location) from error
    with stream:
        yield OpenFileSource(stream.fileno(), os.path.basename(handle.location))  # noqa: PTH119 - text, as handles have it
