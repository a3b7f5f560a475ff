"""Files and contents of drops on their way to people."""

import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dropflow.data.content import open_file
from dropflow.data.faults import storage
from dropflow.engine.api import Handle
from dropflow.errors import GoneError, StorageError
from dropflow.rest.schema import Download

__all__ = ["content_download", "file_download"]

_BLOCK = 1 << 18
_BINARY = "application/octet-stream"


def file_download(path: Path, name: str, content_type: str = _BINARY) -> Download:
    """A file as it is now; what is appended meanwhile is left out.

    Raises
    ------
    StorageError
        It cannot be read.
    """
    try:
        stream = open_file(str(path))
        size = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return Download(name=name, content_type=content_type, size=size, chunks=_chunks(stream, size))


def content_download(handle: Handle, name: str, *, top: str | None = None) -> Download:
    """Content of a data drop; a directory comes as a tar file.

    Parameters
    ----------
    top : str, optional
        What the directory is called in the tar file; `name` unless given.

    Raises
    ------
    GoneError
        It is somewhere else, or nothing by design.
    StorageError
        It cannot be read.
    """
    if handle.kind == "bytes":
        kind = "text/plain; charset=utf-8" if handle.text else _BINARY
        return Download(name=name, content_type=kind, size=len(handle.body), chunks=iter((handle.body,)))
    if handle.kind == "directory":
        stream = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever exhausts the chunks
        with storage("pack", handle.location), tarfile.open(fileobj=stream, mode="w") as tar:
            tar.add(handle.location, arcname=name if top is None else top)
        size = stream.tell()
        stream.seek(0)
        return Download(name=f"{name}.tar", content_type="application/x-tar", size=size, chunks=_chunks(stream, size))
    if handle.kind == "url":
        raise GoneError(f"the content is not here but at {handle.location}")
    if handle.kind == "null":
        return Download(name=name, content_type=_BINARY, size=0, chunks=iter(()))
    path = Path(handle.location)
    suffix = path.suffix if handle.kind == "file" else ""
    kind = "text/plain; charset=utf-8" if handle.text else _BINARY
    return file_download(path, name if name.endswith(suffix) else name + suffix, kind)


def _chunks(stream: BinaryIO, size: int) -> Iterator[bytes]:
    with stream:
        left = size
        while left and (block := stream.read(min(_BLOCK, left))):
            left -= len(block)
            yield block
