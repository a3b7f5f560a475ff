"""Directories as tar files that exist only during a transfer: read and written while they are sent."""

import io
import os
import stat
import tarfile
import zlib
from bisect import bisect_right
from pathlib import Path

from dropflow.data.storage_errors import below, file_entry, storage_errors, tree_checksum
from dropflow.errors import StorageError
from managers.archives import ArchiveMember, TarWriter

_BLOCK = tarfile.BLOCKSIZE
_KIND = 156
"""Offset of a member's kind in its header."""
_EXTENSIONS = (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_MODES = 0o755
"""Bits of the mode that a file keeps."""


class TreeSource:
    """The tar file of a directory. Any range can be read; a file is opened when its bytes are read.

    It contains all entries below the directory, in the order of the names. Links are stored as links; sockets, pipes
    and devices are left out.

    Parameters
    ----------
    root : Path
        The directory. It must not change until the tar file has been read.
    top : str
        Its name in the tar file.

    Raises
    ------
    StorageError
        It cannot be read.
    """

    def __init__(self, root: Path, top: str = ".") -> None:
        self._starts: list[int] = []
        self._pieces: list[tuple[bytes, str, int]] = []
        """The data from each start on: bytes, then the file at a path and how many of its bytes follow."""
        self._writer = TarWriter()
        self._size = 0
        with storage_errors("pack", root):
            self._add(top, str(root), root.stat())
            for name, path, status in below(str(root)):
                self._add(f"{top}/{name}", path, status)
        self._append(self._writer.finish(), "", 0)

    @property
    def size(self) -> int:
        """Size of the tar file in bytes."""
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        """Return a range.

        Raises
        ------
        StorageError
            A file cannot be read, or has fewer bytes than it had.
        """
        parts = []
        index = bisect_right(self._starts, offset) - 1
        end = min(offset + length, self._size)
        while offset < end:
            head, path, size = self._pieces[index]
            at = offset - self._starts[index]
            part = head[at : at + end - offset]
            if at >= len(head):
                part = _read(path, at - len(head), min(size - at + len(head), end - offset))
            parts.append(part)
            offset += len(part)
            index += at + len(part) == len(head) + size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _add(self, name: str, path: str, status: os.stat_result) -> None:
        mode, size, target = status.st_mode, 0, ""
        if stat.S_ISREG(mode):
            size = status.st_size
        elif stat.S_ISLNK(mode):
            target = os.readlink(path)  # noqa: PTH115 - text, once a file
        elif not stat.S_ISDIR(mode):
            return
        self._append(
            self._writer.begin(ArchiveMember(name, size=size, mode=mode, time=status.st_mtime, target=target)),
            path,
            size,
        )
        if padding := self._writer.end():
            self._append(padding, "", 0)

    def _append(self, head: bytes, path: str, size: int) -> None:
        self._starts.append(self._size)
        self._pieces.append((head, path, size))
        self._size += len(head) + size


def _read(path: str, offset: int, length: int) -> bytes:
    with storage_errors("pack", path):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(file, length, offset)
        finally:
            os.close(file)
    if len(data) < length:
        raise StorageError(f"{length - len(data)} bytes less than a moment ago can be read", where=path)
    return data


class TreeWriter:
    """Writes a directory while its tar file arrives, and computes the checksum of its tree.

    Names that leave the directory are refused. Links are made last, so that nothing is written through them.

    Parameters
    ----------
    root : str
        Path that does not exist yet.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._headers = bytearray()
        self._headers_size = _BLOCK
        self._name = ""
        self._member = tarfile.TarInfo()
        self._left = self._padding = self._checksum = self._size = 0
        self._file = -1
        self._entries: dict[str, tuple[int, str]] = {}
        self._ended = False

    def write(self, _offset: int, data: memoryview) -> None:
        """Take the next bytes of the tar file.

        Raises
        ------
        StorageError
            They are not the tar file of a directory, or cannot be written.
        """
        with storage_errors("write fetched data to", self._root):
            while data and not self._ended:
                data = data[self._take(data) :]

    def finish(self) -> tuple[int, int]:
        """Return the bytes of the files and the checksum of the tree, equal to `tree_of` the directory.

        Raises
        ------
        StorageError
            The tar file was not whole, or links cannot be made.
        """
        if not self._ended:
            raise StorageError("the end of a directory did not come", where=self._root)
        with storage_errors("write fetched data to", self._root):
            for name, (kind, target) in self._entries.items():
                if kind == stat.S_IFLNK:
                    os.symlink(target, f"{self._root}/{name}")  # noqa: PTH211 - text, once a link
        entries = sorted(self._entries.items(), key=lambda entry: entry[0].split("/"))
        return self._size, tree_checksum((name, *entry) for name, entry in entries)

    def close(self) -> None:
        """Close the open file; idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _take(self, data: memoryview) -> int:
        """Process some of the bytes; return how many."""
        if self._left:
            part = data[: self._left]
            self._checksum = zlib.crc32(part, self._checksum)
            done = os.write(self._file, part)
            while done < len(part):
                done += os.write(self._file, part[done:])
            self._left -= done
            if not self._left:
                self._end_file()
            return done
        part = data[: self._padding or self._headers_size - len(self._headers)]
        if self._padding:
            self._padding -= len(part)
            return len(part)
        self._headers += part
        if len(self._headers) == self._headers_size:
            self._read_headers()
        return len(part)

    def _read_headers(self) -> None:
        """Begin the next member once its headers are here; wait for an extension and the header after it."""
        last = self._headers[-_BLOCK:]
        if not any(last):
            self._ended = True
            return
        try:
            if last[_KIND : _KIND + 1] in _EXTENSIONS:
                size = tarfile.TarInfo.frombuf(bytes(last), "utf-8", "surrogateescape").size
                self._headers_size += size + -size % _BLOCK + _BLOCK
                return
            member = tarfile.TarFile(
                fileobj=io.BytesIO(self._headers), encoding="utf-8", errors="surrogateescape"
            ).firstmember  # type: ignore[attr-defined] # public, but not in typeshed
        except tarfile.TarError as error:
            raise StorageError(f"a directory did not come as a tar file: {error}", where=self._root) from error
        self._headers.clear()
        self._headers_size = _BLOCK
        self._begin(member)

    def _begin(self, member: tarfile.TarInfo) -> None:
        name = member.name.removeprefix("./")
        if name.startswith("/") or ".." in name.split("/"):
            raise StorageError(f"the name {name!r} leaves the directory that is fetched", where=self._root)
        path = f"{self._root}/{name}"
        if name == ".":
            os.mkdir(self._root)  # noqa: PTH102 - text, as the others
        elif member.isdir():
            os.mkdir(path)  # noqa: PTH102 - once a directory
            self._entries[name] = stat.S_IFDIR, ""
        elif member.issym():
            self._entries[name] = stat.S_IFLNK, member.linkname
        elif member.isreg():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(path, flags, (member.mode & _MODES) | stat.S_IRUSR | stat.S_IWUSR)
            self._name, self._member, self._left, self._checksum = name, member, member.size, 0
            self._padding = -member.size % _BLOCK
            if not member.size:
                self._end_file()
        else:
            raise StorageError(f"{name} is neither a file nor a directory, and cannot be fetched", where=self._root)

    def _end_file(self) -> None:
        member = self._member
        os.utime(self._file, (member.mtime, member.mtime))
        self.close()
        self._size += member.size
        self._entries[self._name] = stat.S_IFREG, file_entry(member.mode, self._checksum)
