"""A file or directory as a listing and one sequence of bytes, which travels in pieces of any size.

The bytes are those of all regular files, one after another in the order of the listing. Links are listed with their
targets; sockets, pipes and devices are left out.
"""

import os
import stat
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec

from dropflow.errors import StorageError

__all__ = [
    "ContentEntry",
    "ListedContent",
    "identity_of",
    "listing_of",
]


_BLOCK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS = 0o777


class ContentEntry(msgspec.Struct, frozen=True, array_like=True):
    """A file, directory or link of a content.

    Attributes
    ----------
    name : str
        Relative to the content; empty for the content itself.
    mode : int
        Kind and permissions, as `os.stat` returns them.
    size : int
        Bytes of a file.
    target : str
        Of a link.
    """

    name: str
    mode: int
    size: int = 0
    target: str = ""


def listing_of(path: str) -> tuple[ContentEntry, ...]:
    """Return what a content consists of: the file, or the directory and everything below it, sorted by name.

    Raises
    ------
    OSError
        It cannot be read.
    """
    return tuple(_entry(path, name, found) for name, found in _walk(path))


def identity_of(path: str) -> int:
    """Return a number that is another one as soon as a content is replaced or changed.

    It is made from what the file system knows of its files: inodes, sizes and times.

    Raises
    ------
    OSError
        It cannot be read.
    """
    parts = [(name, one.st_dev, one.st_ino, one.st_mode, one.st_size, one.st_mtime_ns) for name, one in _walk(path)]
    return hash(tuple(parts))


class ListedContent:
    """A content at a path: one that is there and is read, or one that is written.

    Parameters
    ----------
    path : str
        Of the file or directory.
    entries : sequence of ContentEntry
        Its listing.

    Raises
    ------
    StorageError
        The listing has names that are not below the content, or twice the same one.
    """

    def __init__(self, path: str, entries: Sequence[ContentEntry]) -> None:
        self.path = path
        self.entries = tuple(entries)
        _refuse_bad(path, self.entries)
        self._files = [entry for entry in self.entries if stat.S_ISREG(entry.mode)]
        self._ends = list(accumulate(entry.size for entry in self._files))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return self._ends[-1] if self._ends else 0

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.entries[0].mode)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on.

        Raises
        ------
        StorageError
            A file has fewer bytes than the listing says.
        OSError
            It cannot be read.
        """
        pieces = []
        for path, start, count in self._ranges(offset, length):
            links = 0 if path == self.path else os.O_NOFOLLOW  # the content itself may be a link to a file
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links)
            try:
                data = os.pread(descriptor, count, start)
                while len(data) < count and (more := os.pread(descriptor, count - len(data), start + len(data))):
                    data += more
            finally:
                os.close(descriptor)
            if len(data) < count:
                raise StorageError("a file became shorter while it was sent", where=path)
            pieces.append(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def begin(self) -> None:
        """Make the directories and the files, which are empty and private so far.

        Raises
        ------
        OSError
            They cannot be made.
        """
        for entry in self.entries:
            path = self._at(entry)
            if stat.S_ISDIR(entry.mode):
                os.mkdir(path, 0o700)  # noqa: PTH102 - text, as everywhere here
            elif stat.S_ISREG(entry.mode):
                os.close(os.open(path, _NEW, 0o600))

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes at `offset`.

        Raises
        ------
        OSError
            They cannot be written.
        """
        block = memoryview(data)
        for path, start, count in self._ranges(offset, len(data)):
            descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                done = 0
                while done < count:
                    done += os.pwrite(descriptor, block[done:count], start + done)
            finally:
                os.close(descriptor)
            block = block[count:]

    def finish(self, checksum: int = 0) -> None:
        """Make the links, set the permissions, and compare the content of a single file with its CRC-32, if given.

        Raises
        ------
        StorageError
            The checksum is another one.
        OSError
            Something cannot be made.
        """
        # Links come last, so that nothing is written through them.
        for entry in self.entries:
            if stat.S_ISLNK(entry.mode):
                os.symlink(entry.target, self._at(entry))  # noqa: PTH211 - text, as everywhere here
        if checksum and not self.is_directory and (found := self._checksum()) != checksum:
            raise StorageError(
                f"the content has CRC-32 {found:08x} after it was sent, and {checksum:08x} before", where=self.path
            )
        for entry in reversed(self.entries):
            if not stat.S_ISLNK(entry.mode):
                os.chmod(self._at(entry), stat.S_IMODE(entry.mode) & _PERMISSIONS)  # noqa: PTH101

    def _checksum(self) -> int:
        found = 0
        for offset in range(0, self.size, _BLOCK):
            found = zlib.crc32(self.read(offset, min(_BLOCK, self.size - offset)), found)
        return found

    def _ranges(self, offset: int, length: int) -> Iterator[tuple[str, int, int]]:
        """Yield the path, the begin and the length of each part of a range of bytes."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise StorageError(f"{length} bytes from {offset} on are not in a content of {self.size}", where=self.path)
        row = bisect_right(self._ends, offset)
        while length:
            entry, end = self._files[row], self._ends[row]
            count = min(length, end - offset)
            if count:
                yield self._at(entry), offset - (end - entry.size), count
            offset, length, row = offset + count, length - count, row + 1

    def _at(self, entry: ContentEntry) -> str:
        return f"{self.path}/{entry.name}" if entry.name else self.path


def _walk(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the name and the state of a content, and of everything below it, directories before what is in them."""
    found = os.stat(path)  # noqa: PTH116 - a content may be a link to a file
    yield "", found
    waiting = [""] if stat.S_ISDIR(found.st_mode) else []
    while waiting:
        folder = waiting.pop()
        with os.scandir(f"{path}/{folder}") as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            below = f"{folder}/{name}" if folder else name
            found = os.lstat(f"{path}/{below}")
            kind = stat.S_IFMT(found.st_mode)
            if kind in (stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK):
                yield below, found
            if kind == stat.S_IFDIR:
                waiting.append(below)


def _entry(path: str, name: str, found: os.stat_result) -> ContentEntry:
    if stat.S_ISREG(found.st_mode):
        return ContentEntry(name, found.st_mode, found.st_size)
    target = os.readlink(f"{path}/{name}") if stat.S_ISLNK(found.st_mode) else ""  # noqa: PTH115 - text
    return ContentEntry(name, found.st_mode, 0, target)


def _refuse_bad(path: str, entries: Sequence[ContentEntry]) -> None:
    """Raise for a listing that does not begin with the content, or has names outside of it, or below no directory."""
    kinds = (stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK)
    folders: set[str] = set()
    seen: set[str] = set()
    for row, entry in enumerate(entries):
        parent, _, last = entry.name.rpartition("/")
        is_below = bool(row) and last not in ("", ".", "..") and parent in folders
        bad = entry.name in seen or entry.size < 0 or stat.S_IFMT(entry.mode) not in kinds or "\0" in entry.name
        if bad or not (is_below or (not row and not entry.name and not stat.S_ISLNK(entry.mode))):
            raise StorageError(
                f"the listing of a content has the entry {entry.name!r}, which is not below it", where=path
            )
        seen.add(entry.name)
        if stat.S_ISDIR(entry.mode):
            folders.add(entry.name)
    if not entries:
        raise StorageError("the listing of a content is empty", where=path)
