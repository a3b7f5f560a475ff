"""All results of a session as one archive, written while the contents arrive from their nodes.

Memory does not depend on the size of the results, and there are no temporary files. A content up to `_HELD_BYTES` is
written when all of it is here, so a node that fails costs the results that it has, and the others follow. The archive
then has a file ``MISSING.txt`` and the stream is cut off after it. A larger content that breaks off in its middle cuts
the stream off at once.
"""

import logging
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from io import RawIOBase
from itertools import chain, groupby
from pathlib import PurePosixPath
from time import gmtime
from typing import IO, Any, Literal, Protocol, cast

import msgspec

from dropflow.api.contents_answer import (
    MAX_CONTENTS,
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentRequest,
    ContentsRequest,
    ContentUnchanged,
    Download,
    read_records,
    result_paths,
)
from dropflow.api.drop_records import ResultInfo
from dropflow.api.error_body import from_body
from dropflow.api.manager import Manager
from dropflow.api.requests import ArchiveQuery
from dropflow.errors import DropflowError, GoneError, NotFoundError, ProtocolError
from dropflow.formatting import few

MISSING = "MISSING.txt"
"""Path of the member that names what is missing; only there if something is."""

_log = logging.getLogger(__name__)

_HELD_BYTES = 4 << 20
"""Bytes up to which a content is written when all of it is here: a node that fails then costs no half member."""
_BATCH_BYTES = 256 << 20
"""Bytes of contents that one request asks a node for; a larger content is asked for alone."""
_TAR_READ_BYTES = 1 << 18
"""Bytes that are read at once from a file in the tar file of a directory."""
_TYPES = {"tar": "application/x-tar", "zip": "application/zip"}
_Wanted = tuple[ResultInfo, PurePosixPath]


ArchiveFormat = Literal["tar", "zip"]

_BLOCK = tarfile.BLOCKSIZE
_OLDEST = 315532800.0
"""Seconds of 1980-01-01, the first day that a zip file can name."""
_NEWEST = 4354819198.0
"""Seconds of 2107-12-31 23:59:58, the last time that a zip file can name."""
_ZIP64_BYTES = 1 << 31
"""Bytes of a member from which its header has sizes of 64 bits: 2 GiB, the limit of `zipfile` without them."""

# Archives written as a stream: each call returns the bytes that come next, and no content is kept.
#
# A file is begun with its size, written in pieces, and ended. Nothing here reads files.


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
        Target of a link.
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
        moment = gmtime(min(max(member.time, _OLDEST), _NEWEST))[:6]
        info = zipfile.ZipInfo(f"{name}/" if is_directory else name, moment)
        info.external_attr = member.mode << 16 | (0x10 if is_directory else 0)
        self._open = self._zip.open(info, "w", force_zip64=member.size >= _ZIP64_BYTES)
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


def results_archive(manager: Manager, session: str, query: ArchiveQuery) -> Download:
    """Return the results of a session that match, as one archive.

    Raises
    ------
    NotFoundError
        There is no such session, or none of its results matches.
    """
    listing = manager.results(session)
    silent = [node for node in listing.missing if query.node in ("", node)]
    wanted = [pair for pair in result_paths(listing.results) if query.matches(pair[0])]
    if not wanted and not silent:
        raise NotFoundError(f"no result of session {session!r} matches", hint="see 'dropflow fetch', or its page")
    archive = _Archive(manager, session, archive_writer(query.format), silent)
    return Download(
        name=f"{session}.{query.format}",
        content_type=_TYPES[query.format],
        size=None,
        chunks=archive.chunks(wanted),
    )


class _Archive:
    """One archive that is being written."""

    def __init__(self, manager: Manager, session: str, writer: ArchiveWriter, silent: Sequence[str]) -> None:
        self._manager = manager
        self._session = session
        self._writer = writer
        self._missing = [f"all results on node {node}: it did not answer" for node in silent]

    def chunks(self, wanted: Sequence[_Wanted]) -> Iterator[bytes]:
        """Yield the bytes of the archive.

        Raises
        ------
        DropflowError
            Something is missing; the bytes are not a whole archive.
        """
        try:
            for batch in _batches(wanted):
                yield from self._batch(batch)
            if not self._missing:
                yield self._writer.finish()
                return
            yield self._report()
        finally:
            self._writer.cut_off()
        _log.warning("the archive of results is not complete: %s", self._missing[0], extra={"session": self._session})
        raise GoneError(f"the archive is not complete: {few(self._missing, 1)}")

    def _report(self) -> bytes:
        """Return the last bytes of an archive that is not whole: a member with what is missing."""
        text = "".join(f"{line}\n" for line in self._missing).encode(errors="replace")
        return self._whole(ArchiveMember(MISSING, size=len(text)), text) + self._writer.cut_off()

    def _batch(self, batch: Sequence[_Wanted]) -> Iterator[bytes]:
        """Yield the members of results on one node."""
        done: set[int] = set()
        request = ContentsRequest(
            node=batch[0][0].node, wanted=tuple(ContentRequest(row=result.drop) for result, _ in batch)
        )
        error: DropflowError = ProtocolError("the answer of its node ends before it")
        try:
            download = self._manager.contents(self._session, request)
            records = cast(Generator[ContentRecord], read_records(download.chunks))
            try:
                yield from self._members(batch, records, done)
            finally:
                records.close()
                download.close()
        except _Broken as broken:
            raise broken.error from broken
        except DropflowError as raised:
            error = raised
        for index, (result, path) in enumerate(batch):
            if index not in done:
                self._miss(result, path, error)

    def _members(self, batch: Sequence[_Wanted], records: Iterator[ContentRecord], done: set[int]) -> Iterator[bytes]:
        for record in records:
            if isinstance(record, ContentBegin | ContentError | ContentUnchanged) and record.index >= len(batch):
                raise ProtocolError(f"content {record.index} was not requested")
            if isinstance(record, ContentError):
                self._miss(*batch[record.index], from_body(500, {"error": msgspec.to_builtins(record.error)}))
                done.add(record.index)
            elif isinstance(record, ContentBegin):
                result, path = batch[record.index]
                pieces = _Pieces(records)
                try:
                    yield from (
                        self._directory(path, pieces) if record.is_directory else self._file(result, path, pieces)
                    )
                except _Unsent as unsent:
                    self._miss(result, path, unsent.error)
                    done.add(record.index)
                    if pieces.is_cut_off:
                        raise unsent.error from unsent
                done.add(record.index)

    def _file(self, result: ResultInfo, path: PurePosixPath, pieces: "_Pieces") -> Iterator[bytes]:
        held, size = [], 0
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size > _HELD_BYTES:
                break
        else:
            if pieces.error is not None:
                raise _Unsent(pieces.error)
            yield self._whole(ArchiveMember(str(path), size=size), b"".join(held))
            return
        yield self._writer.begin(ArchiveMember(str(path), size=result.size))
        sent = 0
        for piece in chain(held, pieces):
            sent += len(piece)
            if sent > result.size:
                break
            yield self._writer.write(piece)
        error = pieces.error
        if error is None and sent != result.size:
            error = GoneError(f"it has another size than the {result.size} bytes that were committed")
        if error is not None:
            raise self._broken(path, error)
        yield self._writer.end()

    def _directory(self, path: PurePosixPath, pieces: "_Pieces") -> Iterator[bytes]:
        """Yield the members of a directory, which arrives as a tar file, below its path."""
        begun = False
        try:
            with tarfile.open(fileobj=cast(Any, _PiecesFile(pieces)), mode="r|") as inner:
                for info in inner:
                    inner.members = []  # type: ignore[attr-defined] # it would keep them all
                    member = ArchiveMember(
                        str(path / info.name), size=info.size, mode=_mode(info), time=info.mtime, target=info.linkname
                    )
                    begun = True
                    yield self._writer.begin(member)
                    content = inner.extractfile(info) if info.isreg() else None
                    while content is not None and (data := content.read(_TAR_READ_BYTES)):
                        yield self._writer.write(data)
                    yield self._writer.end()
        except (tarfile.TarError, EOFError) as error:
            cause = pieces.error or ProtocolError(f"the directory cannot be read: {error}")
            if begun:
                raise self._broken(path, cause) from error
            raise _Unsent(cause) from error
        for _ in pieces:  # zeros at the end of the tar file
            pass
        if pieces.error is not None:
            raise self._broken(path, pieces.error)

    def _whole(self, member: ArchiveMember, data: bytes) -> bytes:
        return b"".join((self._writer.begin(member), self._writer.write(data), self._writer.end()))

    def _miss(self, result: ResultInfo, path: PurePosixPath, error: DropflowError) -> None:
        self._missing.append(f"{path} of {result.oid} on node {result.node}: {error}")

    def _broken(self, path: PurePosixPath, error: DropflowError) -> "_Broken":
        _log.warning("the archive of results ends within %s: %s", path, error, extra={"session": self._session})
        return _Broken(error)


class _Unsent(Exception):  # noqa: N818 - for this module alone
    """A content is missing, and nothing of it was written."""

    def __init__(self, error: DropflowError) -> None:
        self.error = error


class _Broken(Exception):  # noqa: N818 - for this module alone
    """A content broke off after its beginning was written."""

    def __init__(self, error: DropflowError) -> None:
        self.error = error


class _Pieces:
    """The pieces of one content. After the last one, `error` is why it is not complete; None if it is.

    `is_cut_off` is whether nothing else can follow.
    """

    def __init__(self, records: Iterator[ContentRecord]) -> None:
        self.error: DropflowError | None = None
        self.is_cut_off = False
        self._records = records
        self._checksum = 0
        self._ended = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if not self._ended:
            record = self._next()
            if isinstance(record, ContentPiece):
                self._checksum = zlib.crc32(record.data, self._checksum)
                return bytes(record.data)
            self._ended = True
            if isinstance(record, ContentError):
                self.error = from_body(500, {"error": msgspec.to_builtins(record.error)})
            elif isinstance(record, ContentEnd) and record.checksum != self._checksum:
                self.error = ProtocolError("it was damaged on its node or during the transfer")
            elif not isinstance(record, ContentEnd):
                self.is_cut_off = True
                self.error = self.error or ProtocolError("the answer of its node ends within it")
        raise StopIteration

    def _next(self) -> ContentRecord | None:
        try:
            return next(self._records, None)
        except DropflowError as error:
            self.error = error
            return None


class _PiecesFile(RawIOBase):
    """The pieces of a content as a file that is read once."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts, left = [], size
        while left:
            self._left = self._left or next(self._pieces, b"")
            if not self._left:
                break
            part = self._left if left < 0 else self._left[:left]
            self._left = self._left[len(part) :]
            parts.append(part)
            left -= len(part) if left > 0 else 0
        return b"".join(parts)


def _mode(info: tarfile.TarInfo) -> int:
    kind = stat.S_IFDIR if info.isdir() else stat.S_IFLNK if info.issym() else stat.S_IFREG
    return kind | stat.S_IMODE(info.mode)


def _batches(wanted: Sequence[_Wanted]) -> Iterator[Sequence[_Wanted]]:
    """Yield runs of results on one node, in their order, of a limited number and size."""
    for _, run in groupby(sorted(wanted, key=lambda pair: pair[0].node), key=lambda pair: pair[0].node):
        batch: list[_Wanted] = []
        size = 0
        for pair in run:
            if batch and (len(batch) == MAX_CONTENTS or size + pair[0].size > _BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(pair)
            size += pair[0].size
        yield batch
