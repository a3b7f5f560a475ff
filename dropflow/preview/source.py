"""Contents whose parts can be read one by one: bytes in memory, a file, or the files of a directory.

Files are read, and not mapped: a mapped file that another process makes shorter ends this process.
"""

import os
import stat
from pathlib import Path
from typing import Protocol

from dropflow.errors import BadFileError

__all__ = ["BytesSource", "DirectorySource", "OpenFileSource", "Source"]


class Source(Protocol):
    """A content of known size."""

    name: str
    size: int

    def read(self, at: int, count: int) -> bytes:
        """Return `count` bytes from `at` on.

        Raises
        ------
        BadFileError
            There are fewer.
        """
        ...

    def start(self, count: int) -> bytes:
        """Return the first `count` bytes, or all if there are fewer."""
        ...


class BytesSource:
    """A content in memory.

    Parameters
    ----------
    content : bytes
        The content.
    name : str
        Its name; the suffix may tell the format.
    """

    def __init__(self, content: bytes, name: str = "") -> None:
        self.name = name
        self.size = len(content)
        self._content = content

    def read(self, at: int, count: int) -> bytes:
        """Return `count` bytes from `at` on."""
        found = self._content[at : at + count]
        return _checked(found, at, count, self.size)

    def start(self, count: int) -> bytes:
        """Return the first bytes."""
        return self._content[:count]


class OpenFileSource:
    """An open file. The caller closes the descriptor.

    Parameters
    ----------
    descriptor : int
        Of a regular file.
    name : str
        Its name.
    """

    def __init__(self, descriptor: int, name: str = "") -> None:
        self.name = name
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    def read(self, at: int, count: int) -> bytes:
        """Return `count` bytes from `at` on."""
        return _checked(self._some(at, count), at, count, self.size)

    def start(self, count: int) -> bytes:
        """Return the first bytes."""
        return self._some(0, min(count, self.size))

    def _some(self, at: int, count: int) -> bytes:
        if at + count > self.size:
            return b""
        pieces, left = [], count
        try:
            while left and (piece := os.pread(self._descriptor, min(left, 1 << 24), at + count - left)):
                pieces.append(piece)
                left -= len(piece)
        except OSError as error:
            raise BadFileError(f"it cannot be read: {error.strerror}", where=self.name) from error
        return b"".join(pieces)


class DirectorySource:
    """The files below a directory. Symbolic links are not followed.

    Parameters
    ----------
    root : Path
        The directory.
    """

    def __init__(self, root: Path) -> None:
        self.name = root.name
        self._root = root.resolve()

    def read(self, name: str, most: int) -> bytes | None:
        """Return the content of the file `name` below the directory; None if there is none.

        Raises
        ------
        BadFileError
            It has more than `most` bytes, is not a regular file, or cannot be read.
        """
        path = self._root.joinpath(name)
        try:
            if path.parent.resolve() != path.parent or self._root not in (path.parent, *path.parent.parents):
                raise BadFileError(f"{name} is behind a symbolic link, which is not followed")
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BadFileError(f"{name} cannot be read: {error}") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadFileError(f"{name} is not a regular file")
            source = OpenFileSource(descriptor, name)
            if source.size > most:
                raise BadFileError(f"{name} has {source.size} bytes; at most {most} are read")
            return source.start(most)
        finally:
            os.close(descriptor)

    def entries(self, most: int) -> list[tuple[str, int]]:
        """Return names and sizes of at most `most` files below the directory, sorted within each directory."""
        found: list[tuple[str, int]] = []
        waiting = [self._root]
        while waiting and len(found) < most:
            folder = waiting.pop()
            try:
                with os.scandir(folder) as listing:
                    entries = sorted((entry for entry, _ in zip(listing, range(most), strict=False)), key=_name)
            except OSError:
                continue
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif len(found) < most:
                        name = str(Path(entry.path).relative_to(self._root))
                        found.append((name, entry.stat(follow_symlinks=False).st_size))
                except OSError:
                    continue  # it is deleted meanwhile
        return sorted(found)


def _name(entry: "os.DirEntry[str]") -> str:
    return entry.name


def _checked(found: bytes, at: int, count: int, size: int) -> bytes:
    if len(found) != count:
        raise BadFileError(f"it is cut off: it has {size} bytes, and should have {at + count} at least")
    return found
