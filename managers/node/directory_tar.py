"""A directory as a tar file, read while it is sent."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dropflow.data.read_content import open_file
from dropflow.data.storage_errors import storage_errors
from dropflow.errors import StorageError
from dropflow.rest.archive_writers import ArchiveMember, TarWriter

__all__ = ["directory_tar"]

_BLOCK = 1 << 18


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
