"""Small files with a checksum, each replaced as a whole. A damaged file is an error when it is read.

The suffix of the name determines the encoding: ``.json`` or ``.msgpack``.
"""

import os
import zlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dropflow.data.storage_errors import storage_errors
from dropflow.errors import BadFileError

__all__ = ["read_checksummed", "write_checksummed"]

_CODECS: dict[str, Any] = {".json": msgspec.json, ".msgpack": msgspec.msgpack}

T = TypeVar("T")


class _Checksummed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    crc32: int
    """Of `content`, as it is encoded."""
    content: msgspec.Raw


def write_checksummed(path: Path, content: object, *, durable: bool = False) -> None:
    """Write `content` to `path`; on failure, the old file stays.

    Parameters
    ----------
    durable : bool
        Whether to force it to the disk, so that it survives the end of the machine.

    Raises
    ------
    StorageError
        The file cannot be written.
    """
    codec = _CODECS[path.suffix]
    body = codec.encode(content)
    part = path.with_name(f"{path.name}.part")
    with storage_errors("write", path):
        try:
            part.write_bytes(codec.encode(_Checksummed(crc32=zlib.crc32(body), content=msgspec.Raw(body))))
            if durable:
                _force(part)
            part.replace(path)
            if durable:
                _force(path.parent)
        finally:
            part.unlink(missing_ok=True)


def _force(path: Path) -> None:
    """Force a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_checksummed(path: Path, kind: type[T]) -> T:
    """Return what `write_checksummed` wrote.

    Raises
    ------
    BadFileError
        The file is not there, cannot be read, is damaged, or was written by another version.
    """
    codec = _CODECS[path.suffix]
    try:
        stored = codec.decode(path.read_bytes(), type=_Checksummed)
        if zlib.crc32(stored.content) != stored.crc32:
            raise BadFileError("the file is damaged: a checksum is wrong", where=str(path))
        found: T = codec.decode(stored.content, type=kind)
    except OSError as error:
        raise BadFileError(f"the file cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, RecursionError) as error:  # msgspec raises UnicodeDecodeError, too
        raise BadFileError(f"the file is damaged, or of another version: {error}", where=str(path)) from error
    return found
