"""A directory as a tar file, read while it is sent."""

import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dropflow.data.read_content import open_file
from dropflow.data.storage_errors import storage_errors
from dropflow.errors import StorageError
from managers.archive_writers import ArchiveMember, TarWriter

__all__ = ["DirectoryListing", "directory_listing", "directory_tar"]

_BLOCK = 1 << 18


class DirectoryListing(NamedTuple):
    """What is in a directory, without reading its files.

    Attributes
    ----------
    size : int
        Bytes of the files together.
    checksum : int
        CRC-32 of what a tar file has of them besides their bytes: names, kinds, sizes, times and targets of links. As
        long as it is the same, so is the tar file, unless a file was changed without a trace; never 0.
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
    for path in (root, *_below(root)):
        with storage_errors("pack", path):
            found = path.lstat()
            target = str(path.readlink()) if stat.S_ISLNK(found.st_mode) else ""
        is_file = stat.S_ISREG(found.st_mode)
        size += found.st_size if is_file else 0
        entry = (str(path.relative_to(root)), found.st_mode, found.st_mtime_ns, found.st_size * is_file, target)
        checksum = zlib.crc32(repr(entry).encode(errors="surrogateescape"), checksum)
    return DirectoryListing(size, checksum or 1)


def directory_tar(root: Path, top: str) -> Iterator[bytes]:
    """Yield a tar file with `root` and everything below it, sorted by name, as `top`.

    Links are stored as links; sockets, pipes and devices are left out.

    Raises
    ------
    StorageError
        Something cannot be read, or has fewer bytes than when its content was begun.
    """
    writer = TarWriter()
    for path in (root, *_below(root)):
        name = top if path == root else f"{top}/{path.relative_to(root)}"
        yield from _member(writer, path, name)
    yield writer.finish()


def _below(root: Path) -> Iterator[Path]:
    with storage_errors("pack", root):
        for path in sorted(root.iterdir()):
            yield path
            if path.is_dir() and not path.is_symlink():
                yield from _below(path)


def _member(writer: TarWriter, path: Path, name: str) -> Iterator[bytes]:
    with storage_errors("pack", path):
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode):
            target = str(path.readlink()) if stat.S_ISLNK(found.st_mode) else ""
            yield writer.begin(ArchiveMember(name, mode=found.st_mode, time=found.st_mtime, target=target))
        elif stat.S_ISREG(found.st_mode):
            with open_file(str(path)) as stream:
                left = os.fstat(stream.fileno()).st_size
                yield writer.begin(ArchiveMember(name, size=left, mode=found.st_mode, time=found.st_mtime))
                while left and (block := stream.read(min(_BLOCK, left))):
                    left -= len(block)
                    yield writer.write(block)
            if left:
                raise StorageError(f"{left} bytes less than a moment ago can be read", where=str(path))
            yield writer.end()
