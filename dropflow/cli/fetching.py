"""The bodies of ``dropflow log`` and ``dropflow fetch``."""

import errno
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from dropflow.cli.arrivals import Arrival, Folder, named
from dropflow.cli.exits import Exit
from dropflow.cli.manager_replies import FetchedFile, FetchReply, MissedFile
from dropflow.cli.output import Output, OutputKind
from dropflow.cli.suggestion import suggestion
from dropflow.cli.transfers import Count, transfer_progress
from dropflow.data.storage_errors import storage_error
from dropflow.errors import DropflowError, NotFoundError, ProtocolError, StorageError
from dropflow.ids import drop_file_name, safe_name
from dropflow.rest.client import Client
from dropflow.rest.content_records import (
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentRequest,
    ContentsRequest,
    ContentUnchanged,
    read_records,
)
from dropflow.rest.error_body import from_body
from dropflow.rest.list_records import ResultList
from dropflow.rest.schema import ResultInfo

__all__ = ["fetch_results", "print_log"]

_ABREAST = 8
"""Requests that are under way at a time."""
_BATCH_FILES = 250
_BATCH_BYTES = 64 << 20
_BAD_NAME = frozenset(
    {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EILSEQ, errno.EINVAL}
)


class LogReply(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one drop."""

    ok: bool = True
    session: str
    drop: str
    log: str

    def lines(self) -> Iterator[str]:
        """The log as it is."""
        yield from self.log.splitlines()


def print_log(output: Output, client: Client, session: str, drop: str) -> Exit:
    """Print a drop's log to standard output, piece by piece; as JSON in one piece."""
    download = client.log(session, drop)
    if output.kind is OutputKind.TABLE:
        for chunk in download.chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return Exit.FINISHED
    text = b"".join(download.chunks).decode(errors="replace")
    output.answer(LogReply(session=session, drop=drop, log=text))
    return Exit.FINISHED


def fetch_results(output: Output, client: Client, session: str, drop: str | None, directory: str | None) -> Exit:
    """Bring all results of a session, or one drop, into a directory; what is there already stays.

    Raises
    ------
    NotFoundError
        There is no such session, or no such drop.
    StorageError
        The directory cannot be written.
    """
    found = client.results(session) if drop is None else _one(client, session, drop)
    root = Path(directory or safe_name(session, fallback="session")).absolute()
    files = [_File(result, path) for result, path in named(found.results)]
    try:
        with Folder(root) as folder, transfer_progress(len(files), quiet=output.kind is OutputKind.QUIET) as count:
            fetched = _Fetch(client, session, folder, count).run(files)
    except OSError as error:
        raise StorageError(f"results cannot be stored: {error.strerror}", where=str(root)) from error
    reply = FetchReply.of(session, str(root), [fetched[file] for file in files], silent=found.missing)
    output.answer(reply)
    return Exit.FINISHED if reply.ok else Exit.FAILED


def _one(client: Client, session: str, drop: str) -> ResultList:
    """Return the drop as a result: under its path if it is one, else under its id."""
    detail = client.drop(session, drop)
    if detail.is_app:
        hint = f"see {suggestion('log', session, detail.oid)}"
        raise NotFoundError(f"{detail.oid} is an application, and has no content", hint=hint)
    known = next((result for result in client.results(session).results if result.oid == detail.oid), None)
    return ResultList(
        results=(
            known
            or ResultInfo(
                drop=detail.drop,
                oid=detail.oid,
                name=detail.name,
                node=detail.node,
                path=f"results/{drop_file_name(detail.oid)}",
                size=detail.size or 0,
                is_directory=detail.category == "Directory",
            ),
        )
    )


class _File(NamedTuple):
    """A result, and where it is to be in the directory."""

    result: ResultInfo
    path: PurePosixPath

    def fetched(self, size: int, *, was_there: bool = False) -> FetchedFile:
        return FetchedFile(
            drop=self.result.oid, node=self.result.node, path=str(self.path), size=size, was_there=was_there
        )

    def missed(self, error: DropflowError) -> MissedFile:
        return MissedFile(
            drop=self.result.oid, node=self.result.node, path=str(self.path), code=error.code, text=str(error)
        )


class _Fetch:
    """Brings files, many at a time in one request and several requests at a time."""

    def __init__(self, client: Client, session: str, folder: Folder, count: Count) -> None:
        self._client = client
        self._session = session
        self._folder = folder
        self._count = count
        self._stop = threading.Event()

    def run(self, files: Sequence[_File]) -> dict[_File, FetchedFile | MissedFile]:
        """Return what became of each file.

        Raises
        ------
        OSError
            The directory cannot be written; everything else is stopped.
        """
        found: dict[_File, FetchedFile | MissedFile] = {}
        with ThreadPoolExecutor(_ABREAST, thread_name_prefix="fetch") as pool:
            try:
                for became in pool.map(self._batch, _batches(files)):
                    found |= became
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return found

    def _batch(self, files: Sequence[_File]) -> dict[_File, FetchedFile | MissedFile]:
        """Bring files that are on one node by one request."""
        found: dict[_File, FetchedFile | MissedFile] = {}
        error: DropflowError = ProtocolError("the answer ends before it", where=self._client.url)
        try:
            wanted = [
                ContentRequest(row=file.result.drop, digest=self._folder.digest(file.path, file.result.size))
                for file in files
            ]
            request = ContentsRequest(node=files[0].result.node, wanted=tuple(wanted))
            chunks = self._client.contents(self._session, request).chunks
            for file, became in self._received(files, read_records(chunks)):
                found[file] = became
                self._count(became.size)
        except DropflowError as raised:
            error = raised
        return {file: found.get(file) or file.missed(error) for file in files}

    def _received(
        self, files: Sequence[_File], records: Iterator[ContentRecord]
    ) -> Iterator[tuple[_File, FetchedFile | MissedFile]]:
        """Write the contents that come, and yield what became of each."""
        file, arrival, error = files[0], None, None
        try:
            for record in records:
                if self._stop.is_set():
                    return
                if isinstance(record, ContentPiece):
                    if arrival is not None:
                        arrival.write(record.data)
                    continue
                if not isinstance(record, ContentEnd):
                    file = self._file(files, record.index)
                if isinstance(record, ContentBegin):
                    arrival, error = self._begin(file, is_directory=record.is_directory)
                elif isinstance(record, ContentUnchanged):
                    yield file, file.fetched(file.result.size, was_there=True)
                else:
                    if isinstance(record, ContentError):
                        error = from_body(500, {"error": msgspec.to_builtins(record.error)})
                    digest = record.digest if isinstance(record, ContentEnd) else ""
                    yield file, _end(file, arrival, digest, error)
                    arrival = error = None
        finally:
            if arrival is not None:
                arrival.close()

    def _file(self, files: Sequence[_File], index: int) -> _File:
        if not 0 <= index < len(files):
            raise ProtocolError(f"content {index} was not asked for", where=self._client.url)
        return files[index]

    def _begin(self, file: _File, *, is_directory: bool) -> tuple[Arrival | None, DropflowError | None]:
        try:
            return self._folder.begin(file.path, is_directory=is_directory), None
        except DropflowError as error:
            return None, error
        except OSError as error:
            return None, _of_name(file, error)


def _end(file: _File, arrival: Arrival | None, digest: str, error: DropflowError | None) -> FetchedFile | MissedFile:
    """Put a content in its place; what became of it."""
    if arrival is None:
        return file.missed(error or ProtocolError("the content ends before it begins"))
    try:
        if error is None:
            arrival.finish(digest)
            return file.fetched(arrival.size)
    except DropflowError as raised:
        error = raised
    except OSError as raised:
        error = _of_name(file, raised)
    finally:
        arrival.close()
    return file.missed(error)


def _of_name(file: _File, error: OSError) -> DropflowError:
    """Return the error for a file that cannot have its name; what concerns all files is raised."""
    if error.errno not in _BAD_NAME:
        raise error
    return storage_error("write", str(file.path), error)


def _batches(files: Sequence[_File]) -> Iterator[Sequence[_File]]:
    """Yield files of one node at a time, the nodes in turns."""
    by_node: dict[str, list[_File]] = defaultdict(list)
    for file in files:
        by_node[file.result.node].append(file)
    for turn in zip_longest(*(_cut(mine) for mine in by_node.values())):
        yield from (batch for batch in turn if batch is not None)


def _cut(files: Sequence[_File]) -> Iterator[Sequence[_File]]:
    batch: list[_File] = []
    size = 0
    for file in files:
        if batch and (len(batch) == _BATCH_FILES or size + file.result.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.result.size
    if batch:
        yield batch
