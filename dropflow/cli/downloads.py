"""Download the contents of many results: a stream from each node, received by a thread each, and written by one.

One thread writes all files, because several would mostly wait for each other: for CPython's global lock, which each of
them gives up and needs again around each of the system calls for a small file, and for the lock of the directory.
"""

import errno
import queue
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from dropflow.api.client import Client
from dropflow.api.contents import (
    MAX_CONTENTS,
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRequest,
    ContentsRequest,
    ContentUnchanged,
    RecordReader,
)
from dropflow.api.error_body import from_body
from dropflow.api.records import ResultInfo
from dropflow.cli.fetch_reply import FetchedFile, MissedFile
from dropflow.cli.incoming_files import IncomingFile, ResultDirectory
from dropflow.cli.progress import CountFile
from dropflow.data.storage_errors import storage_error
from dropflow.errors import DropflowError, LinkError, ProtocolError

__all__ = [
    "ResultDownload",
    "WantedFile",
]


_STREAMS = 8
"""Nodes that send at a time."""
_WAITING = 16
"""Chunks that are here and not written yet."""
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

    def missed(self, error: DropflowError, *, is_cut_off: bool = False, here: int = 0) -> MissedFile:
        """Return the record of this result as one that could not be fetched, but for its first `here` bytes."""
        return MissedFile(
            drop=self.result.oid,
            node=self.result.node,
            path=str(self.path),
            code=error.code,
            text=str(error),
            size=self.result.size,
            here=here,
            is_cut_off=is_cut_off,
        )


_Outcome = FetchedFile | MissedFile


class ResultDownload:
    """Fetches files, many in one request, and from several nodes at a time."""

    def __init__(self, client: Client, session: str, directory: ResultDirectory, count: CountFile) -> None:
        self._client = client
        self._session = session
        self._directory = directory
        self._count = count
        self.is_interrupted = False
        """Whether Ctrl-C or SIGTERM ended it."""
        self.left = 0
        """Bytes that are not here, if the directory cannot be written."""

    def run(self, files: Sequence[WantedFile]) -> dict[WantedFile, _Outcome]:
        """Return the result for each file. After Ctrl-C, those that had not arrived are missed.

        Raises
        ------
        OSError
            The directory cannot be written; all requests are stopped.
        """
        found: dict[WantedFile, _Outcome] = {}
        try:
            self._fetch(files, found)
        except KeyboardInterrupt:
            self.is_interrupted = True
        except OSError:
            missing = [file for file in files if file not in found]
            self.left = sum(max(file.result.size - self._directory.kept(file.path).size, 0) for file in missing)
            raise
        left = LinkError("interrupted before it was fetched", hint="fetch again")
        for file in files:
            if file not in found:
                here = self._directory.kept(file.path).size
                found[file] = file.missed(left, is_cut_off=True, here=here)
        if all(isinstance(one, FetchedFile) for one in found.values()):
            self._directory.discard_parts()
        return found

    def _fetch(self, files: Sequence[WantedFile], found: dict[WantedFile, _Outcome]) -> None:
        """Add the result for each file to `found`."""
        by_node: dict[str, list[WantedFile]] = defaultdict(list)
        for file in files:
            if self._directory.has(file.path, file.result):
                found[file] = file.fetched(file.result.size, was_there=True)
                self._count(1, file.result.size)
            else:
                by_node[file.result.node].append(file)
        batches = {
            node: [
                _Batch(mine[start : start + MAX_CONTENTS], self._directory, found)
                for start in range(0, len(mine), MAX_CONTENTS)
            ]
            for node, mine in by_node.items()
        }
        arrivals = _Arrivals(self._client, self._session, [*batches.values()])
        try:
            for batch, arrival in arrivals:
                if isinstance(arrival, DropflowError):
                    batch.end(arrival)
                    continue
                try:
                    self._count(*batch.write(arrival))
                except ProtocolError as error:
                    batch.end(error)
        finally:
            arrivals.stop()
            for batch in (one for mine in batches.values() for one in mine):
                batch.close()


class _Batch:
    """Files that one request asks for: writes what arrives."""

    def __init__(
        self, files: Sequence[WantedFile], directory: ResultDirectory, found: dict[WantedFile, _Outcome]
    ) -> None:
        self._files = files
        self._directory = directory
        self._found = found
        self._reader = RecordReader()
        self._file = files[0]
        """The one that is being written, with the next two."""
        self._incoming: IncomingFile | None = None
        self._error: DropflowError | None = None
        self._is_over = False

    def request(self) -> ContentsRequest:
        """Return the request."""
        wanted = []
        for file in self._files:
            part = self._directory.kept(file.path)
            digest = self._directory.digest(file.path, file.result)
            wanted.append(ContentRequest(row=file.result.drop, digest=digest, offset=part.size, checksum=part.checksum))
        return ContentsRequest(node=self._files[0].result.node, wanted=tuple(wanted))

    def write(self, chunk: bytes) -> tuple[int, int]:
        """Write the contents in a chunk of the answer; return how many files and bytes are done by it.

        Raises
        ------
        ProtocolError
            The chunk has no records, or those of contents that were not requested.
        """
        files = size = 0
        for record in self._reader.read(chunk) if not self._is_over else ():
            if isinstance(record, ContentPiece):
                if self._incoming is not None:
                    self._incoming.write(record.data)
                size += len(record.data)
                continue
            if not isinstance(record, ContentEnd):
                if not 0 <= record.index < len(self._files):
                    raise ProtocolError(f"content {record.index} was not requested")
                self._file = self._files[record.index]
            if isinstance(record, ContentBegin):
                size += record.offset
                self._begin(record)
                continue
            files += 1
            if isinstance(record, ContentUnchanged):
                size += self._file.result.size
                self._found[self._file] = self._file.fetched(self._file.result.size, was_there=True)
            else:
                self._found[self._file] = self._end(record)
        return files, size

    def end(self, error: DropflowError) -> None:
        """Note why nothing more arrives, or is of use."""
        self._is_over = True
        self.close()
        # The client raises an error of the connection from its cause. An error that the manager sent has none.
        is_cut_off = isinstance(error, LinkError) and error.__cause__ is not None
        for file in self._files:
            if file not in self._found:
                here = self._directory.kept(file.path).size
                self._found[file] = file.missed(error, is_cut_off=is_cut_off, here=here)

    def close(self) -> None:
        """Keep the beginning of a content that broke off."""
        if self._incoming is not None:
            self._directory.keep(self._file.path, self._incoming)
            self._incoming = None

    def _begin(self, record: ContentBegin) -> None:
        self.close()
        self._error = None
        try:
            self._incoming = self._directory.begin(self._file.path, record)
        except DropflowError as error:
            self._error = error
        except OSError as error:
            self._error = _error_of_name(self._file, error)

    def _end(self, record: ContentEnd | ContentError) -> _Outcome:
        """Move a content to its path, and return the result for its file."""
        file, incoming, self._incoming = self._file, self._incoming, None
        error = self._error
        if isinstance(record, ContentError):
            error = from_body(500, {"error": msgspec.to_builtins(record.error)})
        if incoming is None:
            return file.missed(error or ProtocolError("the end of the content came before its beginning"))
        try:
            if isinstance(record, ContentEnd):
                incoming.finish(record.checksum)
                return file.fetched(incoming.size)
        except DropflowError as raised:
            error = raised
        except OSError as raised:
            error = _error_of_name(file, raised)
        incoming.close()
        return file.missed(error or ProtocolError("the content has no end"))


class _Arrivals:
    """The chunks of the answers as they arrive, from a thread for each node, but not for more than `_STREAMS`.

    Iterated by the thread that writes. `stop` lets the threads end with the next chunk.
    """

    def __init__(self, client: Client, session: str, nodes: Sequence[Sequence[_Batch]]) -> None:
        self._client = client
        self._session = session
        self._todo = queue.SimpleQueue[Sequence[_Batch]]()
        self._arrived = queue.SimpleQueue[tuple[_Batch, bytes | DropflowError] | Exception | None]()
        self._free = threading.Semaphore(_WAITING)
        self._is_stopped = False
        for batches in nodes:
            self._todo.put(batches)
        self._threads = [
            threading.Thread(target=self._receive, name=f"fetch-{place}", daemon=True)
            for place in range(min(_STREAMS, len(nodes)))
        ]
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[tuple[_Batch, bytes | DropflowError]]:
        running = len(self._threads)
        while running:
            arrival = self._arrived.get()
            if arrival is None:
                running -= 1
            elif isinstance(arrival, Exception):
                raise arrival
            else:
                yield arrival
                self._free.release()

    def stop(self) -> None:
        """Let the threads end."""
        self._is_stopped = True
        for _ in self._threads:
            self._free.release()

    def _receive(self) -> None:
        try:
            while not self._is_stopped:
                try:
                    batches = self._todo.get_nowait()
                except queue.Empty:
                    break
                for batch in batches:
                    if not self._is_stopped:
                        self._receive_batch(batch)
        except Exception as error:  # noqa: BLE001 - it is raised by the thread that writes
            self._arrived.put(error)
        self._arrived.put(None)

    def _receive_batch(self, batch: _Batch) -> None:
        error: DropflowError = ProtocolError("the response ends before this content", where=self._client.url)
        try:
            download = self._client.contents(self._session, batch.request())
            try:
                for chunk in download.chunks:
                    self._free.acquire()
                    if self._is_stopped:
                        return
                    self._arrived.put((batch, chunk))
            finally:
                download.close()
        except DropflowError as raised:
            error = raised
        self._arrived.put((batch, error))


def _error_of_name(file: WantedFile, error: OSError) -> DropflowError:
    """Return the error for a file whose name is not possible here; raise errors that concern all files."""
    if error.errno not in _BAD_NAME:
        raise error
    return storage_error("write", str(file.path), error)
