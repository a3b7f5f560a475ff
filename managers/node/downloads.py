"""Files and contents of drops as downloads."""

import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from dropflow.data.read_content import open_file
from dropflow.engine.api import Handle
from dropflow.errors import GoneError, StorageError
from dropflow.rest.schema import Download
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
    try:
        stream = open_file(str(path))
        size = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return Download(name=name, content_type=content_type, size=size, chunks=_chunks(stream, size))


def content_chunks(handle: Handle, *, start: int = 0) -> tuple[int | None, Iterator[bytes]]:
    """Return the size of the content of a data drop, and its bytes from `start`; None and a tar file for a directory.

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
    if handle.kind == "directory":
        refuse_changed(handle)
        return None, directory_tar(Path(handle.location), ".")
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


def content_download(handle: Handle, name: str) -> Download:
    """Return the content of a data drop; a directory as a tar file.

    A file is compared with the checksum that it was committed with. A short one is refused before anything is sent. The
    last block of a longer one is sent only if the checksum is right, so that a damaged content is never whole.

    Raises
    ------
    GoneError
        The content is elsewhere, is missing, or is not what was committed. The chunks raise it, too.
    StorageError
        The content cannot be read.
    """
    if handle.kind == "bytes":
        kind = "text/plain; charset=utf-8" if handle.text else _BINARY
        return Download(name=name, content_type=kind, size=len(handle.body), chunks=iter((handle.body,)))
    refuse_changed(handle)
    if handle.kind == "directory":
        chunks = directory_tar(Path(handle.location), name)
        return Download(name=f"{name}.tar", content_type="application/x-tar", size=None, chunks=chunks)
    if handle.kind == "url":
        raise GoneError(f"the content is at {handle.location}, not on this node")
    if handle.kind == "null":
        return Download(name=name, content_type=_BINARY, size=0, chunks=iter(()))
    path = Path(handle.location)
    suffix = path.suffix if handle.kind == "file" else ""
    kind = "text/plain; charset=utf-8" if handle.text else _BINARY
    download = file_download(path, name if name.endswith(suffix) else name + suffix, kind)
    if not handle.checksum:
        return download
    chunks = _checked(download.chunks, handle)
    return replace(download, chunks=iter((*chunks,)) if handle.size <= _BLOCK else chunks)


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
