"""Download the contents of many results: many in one request, and several requests at a time."""

import errno
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from dropflow.cli.fetch_reply import FetchedFile, MissedFile
from dropflow.cli.incoming_files import IncomingFile, ResultDirectory
from dropflow.cli.progress import CountFile
from dropflow.data.storage_errors import storage_error
from dropflow.errors import DropflowError, LinkError, ProtocolError
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
from dropflow.rest.schema import ResultInfo

__all__ = ["ResultDownload", "WantedFile"]

_REQUESTS = 8
"""Concurrent requests."""
_BATCH_FILES = 250
_BATCH_BYTES = 64 << 20
_BAD_NAME = frozenset(
    {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EILSEQ, errno.EINVAL}
)


class WantedFile(NamedTuple):
    """A result, and its path in the directory."""

    result: ResultInfo
    path: PurePosixPath

    def fetched(self, size: int, *, was_there: bool = False) -> FetchedFile:
        """Return the record of this result as one that is here."""
        return FetchedFile(
            drop=self.result.oid, node=self.result.node, path=str(self.path), size=size, was_there=was_there
        )

    def missed(self, error: DropflowError, *, is_cut_off: bool = False) -> MissedFile:
        """Return the record of this result as one that could not be fetched."""
        return MissedFile(
            drop=self.result.oid,
            node=self.result.node,
            path=str(self.path),
            code=error.code,
            text=str(error),
            size=self.result.size,
            is_cut_off=is_cut_off,
        )


class ResultDownload:
    """Fetches files, many in one request and several requests at a time."""

    def __init__(self, client: Client, session: str, directory: ResultDirectory, count: CountFile) -> None:
        self._client = client
        self._session = session
        self._directory = directory
        self._count = count
        self._stop = threading.Event()
        self.is_interrupted = False
        """Whether Ctrl-C ended it."""

    def run(self, files: Sequence[WantedFile]) -> dict[WantedFile, FetchedFile | MissedFile]:
        """Return the result for each file. After Ctrl-C, those that had not arrived are missed.

        Raises
        ------
        OSError
            The directory cannot be written; all other requests are stopped.
        """
        found: dict[WantedFile, FetchedFile | MissedFile] = {}
        with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="fetch") as pool:
            running = [pool.submit(self._fetch_batch, batch) for batch in _batches(files)]
            try:
                for one in as_completed(running):
                    found |= one.result()
            except KeyboardInterrupt:
                self.is_interrupted = True
                self._stop.set()
                pool.shutdown(wait=True, cancel_futures=True)  # they end with their next piece
                for one in running:
                    if not one.cancelled() and one.exception() is None:
                        found |= one.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        left = LinkError("interrupted before it was fetched", hint="fetch again")
        return {file: found.get(file) or file.missed(left, is_cut_off=True) for file in files}

    def _fetch_batch(self, files: Sequence[WantedFile]) -> dict[WantedFile, FetchedFile | MissedFile]:
        """Fetch files of one node by one request."""
        found: dict[WantedFile, FetchedFile | MissedFile] = {}
        error: DropflowError = ProtocolError("the response ends before this content", where=self._client.url)
        try:
            wanted = [
                ContentRequest(row=file.result.drop, digest=self._directory.digest(file.path, file.result.size))
                for file in files
            ]
            request = ContentsRequest(node=files[0].result.node, wanted=tuple(wanted))
            chunks = self._client.contents(self._session, request).chunks
            for file, result in self._write(files, read_records(chunks)):
                found[file] = result
                self._count(1, 0 if isinstance(result, MissedFile) or not result.was_there else result.size)
        except DropflowError as raised:
            error = raised
        # The client raises an error of the connection from its cause. An error that the manager sent has none.
        is_cut_off = (isinstance(error, LinkError) and error.__cause__ is not None) or self._stop.is_set()
        return {file: found.get(file) or file.missed(error, is_cut_off=is_cut_off) for file in files}

    def _write(
        self, files: Sequence[WantedFile], records: Iterator[ContentRecord]
    ) -> Iterator[tuple[WantedFile, FetchedFile | MissedFile]]:
        """Write the contents that arrive, and yield the result for each file."""
        file, incoming, error = files[0], None, None
        try:
            for record in records:
                if self._stop.is_set():
                    return
                if isinstance(record, ContentPiece):
                    if incoming is not None:
                        incoming.write(record.data)
                    self._count(0, len(record.data))
                    continue
                if not isinstance(record, ContentEnd):
                    file = self._file(files, record.index)
                if isinstance(record, ContentBegin):
                    incoming, error = self._begin(file, is_directory=record.is_directory)
                elif isinstance(record, ContentUnchanged):
                    yield file, file.fetched(file.result.size, was_there=True)
                else:
                    if isinstance(record, ContentError):
                        error = from_body(500, {"error": msgspec.to_builtins(record.error)})
                    digest = record.digest if isinstance(record, ContentEnd) else ""
                    yield file, _end(file, incoming, digest, error)
                    incoming = error = None
        finally:
            if incoming is not None:
                incoming.close()

    def _file(self, files: Sequence[WantedFile], index: int) -> WantedFile:
        if not 0 <= index < len(files):
            raise ProtocolError(f"content {index} was not requested", where=self._client.url)
        return files[index]

    def _begin(self, file: WantedFile, *, is_directory: bool) -> tuple[IncomingFile | None, DropflowError | None]:
        try:
            return self._directory.begin(file.path, is_directory=is_directory), None
        except DropflowError as error:
            return None, error
        except OSError as error:
            return None, _error_of_name(file, error)


def _end(
    file: WantedFile, incoming: IncomingFile | None, digest: str, error: DropflowError | None
) -> FetchedFile | MissedFile:
    """Move a content to its path, and return the result for its file."""
    if incoming is None:
        return file.missed(error or ProtocolError("the end of the content came before its beginning"))
    try:
        if error is None:
            incoming.finish(digest)
            return file.fetched(incoming.size)
    except DropflowError as raised:
        error = raised
    except OSError as raised:
        error = _error_of_name(file, raised)
    finally:
        incoming.close()
    return file.missed(error)


def _error_of_name(file: WantedFile, error: OSError) -> DropflowError:
    """Return the error for a file whose name is not possible here; raise errors that concern all files."""
    if error.errno not in _BAD_NAME:
        raise error
    return storage_error("write", str(file.path), error)


def _batches(files: Sequence[WantedFile]) -> Iterator[Sequence[WantedFile]]:
    """Yield batches of files, each of one node, the nodes in turns."""
    by_node: dict[str, list[WantedFile]] = defaultdict(list)
    for file in files:
        by_node[file.result.node].append(file)
    for turn in zip_longest(*(_batches_of_node(mine) for mine in by_node.values())):
        yield from (batch for batch in turn if batch is not None)


def _batches_of_node(files: Sequence[WantedFile]) -> Iterator[Sequence[WantedFile]]:
    batch: list[WantedFile] = []
    size = 0
    for file in files:
        if batch and (len(batch) == _BATCH_FILES or size + file.result.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.result.size
    if batch:
        yield batch
