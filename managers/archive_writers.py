"""Archives written as a stream: each call returns the bytes that come next, and no content is kept.

A file is begun with its size, written in pieces, and ended. Nothing here reads files.
"""

import stat
import tarfile
import zipfile
from dataclasses import KW_ONLY, dataclass
from io import RawIOBase
from time import gmtime
from typing import IO, Any, Literal, Protocol

ArchiveFormat = Literal["tar", "zip"]

_BLOCK = tarfile.BLOCKSIZE
_OLDEST = 315532800.0
"""Seconds of 1980-01-01, the first day that a zip file can name."""
_ZIP64 = 1 << 31


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One file, directory or link of an archive.

    Attributes
    ----------
    path : str
        Relative, with slashes.
    size : int
        Bytes of a file.
    mode : int
        Type and permissions, as of `os.stat`.
    time : float
        Seconds since 1970.
    target : str
        Of a link.
    """

    path: str
    _: KW_ONLY
    size: int = 0
    mode: int = stat.S_IFREG | 0o644
    time: float = 0.0
    target: str = ""


class ArchiveWriter(Protocol):
    """An archive of one format."""

    def begin(self, member: ArchiveMember) -> bytes:
        """Return the bytes before the content of a member."""
        ...

    def write(self, data: bytes) -> bytes:
        """Return the bytes for the next piece of the content."""
        ...

    def end(self) -> bytes:
        """Return the bytes after the content."""
        ...

    def finish(self) -> bytes:
        """Return the bytes after the last member."""
        ...

    def cut_off(self) -> bytes:
        """Return the bytes that may follow the last member of an archive that is not whole. Also after `finish`."""
        ...


def archive_writer(format_: ArchiveFormat) -> ArchiveWriter:
    """Return a writer of one format."""
    return TarWriter() if format_ == "tar" else ZipWriter()


class TarWriter:
    """A tar file (POSIX.1-2001), of any size and with any names."""

    def __init__(self) -> None:
        self._size = 0

    def begin(self, member: ArchiveMember) -> bytes:
        """Return the header of a member."""
        info = tarfile.TarInfo(member.path)
        info.mode, info.mtime = stat.S_IMODE(member.mode), int(member.time)
        if stat.S_ISDIR(member.mode):
            info.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(member.mode):
            info.type, info.linkname = tarfile.SYMTYPE, member.target
        else:
            info.size = member.size
        self._size = info.size
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")

    def write(self, data: bytes) -> bytes:
        """Return `data`."""
        return data

    def end(self) -> bytes:
        """Return the zeros up to the next block."""
        return bytes(-self._size % _BLOCK)

    def finish(self) -> bytes:
        """Return the two empty blocks that end the file."""
        return bytes(2 * _BLOCK)

    def cut_off(self) -> bytes:
        """Return nothing: without the empty blocks, readers see that the end is missing."""
        return b""


class ZipWriter:
    """A zip file whose members are stored as they are; sizes are behind the contents, and in the directory."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._zip = zipfile.ZipFile(self._sink, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._open: IO[bytes] | None = None

    def begin(self, member: ArchiveMember) -> bytes:
        """Return the header of a member."""
        is_directory = stat.S_ISDIR(member.mode)
        name = member.path.encode(errors="replace").decode()
        moment = gmtime(max(member.time, _OLDEST))[:6]
        info = zipfile.ZipInfo(f"{name}/" if is_directory else name, moment)
        info.external_attr = member.mode << 16 | (0x10 if is_directory else 0)
        self._open = self._zip.open(info, "w", force_zip64=member.size >= _ZIP64)
        if stat.S_ISLNK(member.mode):
            self._open.write(member.target.encode(errors="surrogateescape"))
        return self._sink.taken()

    def write(self, data: bytes) -> bytes:
        """Return the bytes for a piece."""
        if self._open is not None:
            self._open.write(data)
        return self._sink.taken()

    def end(self) -> bytes:
        """Return the checksum and sizes."""
        if self._open is not None:
            self._open.close()
            self._open = None
        return self._sink.taken()

    def finish(self) -> bytes:
        """Return the directory of the archive."""
        self._zip.close()
        return self._sink.taken()

    def cut_off(self) -> bytes:
        """Return the directory of the archive, without which the members could not be read."""
        return self.end() + self.finish()


class _Sink(RawIOBase):
    """Collects what is written until it is taken; cannot seek, so that `zipfile` writes a stream."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        return len(part)

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)
