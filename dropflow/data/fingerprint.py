"""Digests of contents, to compare them between hosts."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from dropflow.content_digest import digest
from dropflow.data.storage_errors import storage_errors

__all__ = ["fingerprint"]

_BLOCK = 1 << 20


def fingerprint(path: str | Path) -> str:
    """Return the digest of a file's bytes, or of the names and contents below a directory, in hexadecimal.

    Raises
    ------
    StorageError
        It cannot be read.
    """
    with storage_errors("read", path):
        if not os.path.isdir(path):  # noqa: PTH112 - once a file
            with open(path, "rb") as stream:  # noqa: PTH123 - as above
                return hashlib.file_digest(stream, digest).hexdigest()
        whole = digest()
        for name, kind, content in _entries(Path(path)):
            whole.update(repr((name, kind, content)).encode(errors="surrogateescape"))
        return whole.hexdigest()


def _entries(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the name, kind and digest (or link target) of everything below a directory, sorted by name."""
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            yield name, "link", str(path.readlink())
        elif path.is_dir():
            yield name, "directory", ""
        else:
            yield name, "file", fingerprint(path)
