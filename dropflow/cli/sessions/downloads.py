"""Download results: many files, with a stream from each node, or one archive; and the answers of ``dropflow fetch``.

Streams are received by a thread each, and written by one.

One thread writes all files, because several would mostly wait for each other: for CPython's global lock, which each of
them gives up and needs again around each of the system calls for a small file, and for the lock of the directory.
"""

import errno
import os
import queue
import secrets
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import msgspec

from dropflow.api.client import Client
from dropflow.api.contents_answer import (
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
from dropflow.api.drop_records import ResultInfo
from dropflow.api.error_body import from_body
from dropflow.api.requests import ArchiveQuery
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import shell_command
from dropflow.cli.sessions.incoming_files import IncomingFile, ResultDirectory
from dropflow.data.storage_errors import storage_error
from dropflow.errors import DropflowError, LinkError, ProtocolError, StorageError
from dropflow.formatting import few, format_size, plural
from dropflow.submission.progress import CountFile, transfer_progress

_SHOWN_FILES = 12
"""Paths of downloaded files in the answer."""
_SHOWN_REFUSED = 50
"""Files that could not be downloaded, in the answer."""
_STREAMS = 8
"""Nodes that send at a time."""
_WAITING = 16
"""Chunks that are here and not written yet."""
_BAD_NAME = frozenset(
    {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EILSEQ, errno.EINVAL}
)

# The answer of ``dropflow fetch``.


class FetchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One result that is here now; `was_there` if it was here before, with the same content.

    If a directory that dropflow did not make was at its path, it is at `kept` now.
    """

    drop: str
    node: str
    path: str
    size: int
    was_there: bool = False
    kept: str = ""


class MissedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One result that could not be fetched, and why; `is_cut_off` if the connection to the manager broke.

    The first `here` of its `size` bytes are kept, and the next fetch continues after them.
    """

    drop: str
    node: str
    path: str
    code: str
    text: str
    size: int = 0
    here: int = 0
    is_cut_off: bool = False


class FetchReply(msgspec.Struct, frozen=True, kw_only=True):
    """The results that are here, and those that could not be fetched.

    Attributes
    ----------
    fetched, were_there, missed : int
        How many results were fetched, were here already, and could not be fetched.
    bytes : int
        Bytes of the results that were fetched.
    missing : tuple of MissedFile
        Results that could not be fetched.
    silent : tuple of str
        Nodes that did not answer the request for their results.
    interrupted : bool
        Whether it ended by Ctrl-C or SIGTERM; `missing` has what was not fetched yet.
    terminated : bool
        Whether that was SIGTERM.
    """

    ok: bool
    session: str
    output: str
    fetched: int
    were_there: int
    missed: int
    bytes: int
    files: tuple[FetchedFile, ...]
    missing: tuple[MissedFile, ...] = ()
    silent: tuple[str, ...] = ()
    interrupted: bool = False
    terminated: bool = False

    @classmethod
    def of(
        cls,
        session: str,
        output: str,
        results: Sequence[FetchedFile | MissedFile],
        silent: tuple[str, ...],
        *,
        is_interrupted: bool = False,
        is_terminated: bool = False,
    ) -> "FetchReply":
        """Return the reply for results that were fetched or missed."""
        files = tuple(result for result in results if isinstance(result, FetchedFile))
        missing = tuple(result for result in results if isinstance(result, MissedFile))
        fresh = [file for file in files if not file.was_there]
        return cls(
            ok=not missing and not silent,
            session=session,
            output=output,
            fetched=len(fresh),
            were_there=len(files) - len(fresh),
            missed=len(missing),
            bytes=sum(file.size for file in fresh),
            files=files,
            missing=missing,
            silent=silent,
            interrupted=is_interrupted,
            terminated=is_interrupted and is_terminated,
        )

    def lines(self) -> Iterator[str]:
        """Yield the files, then what is missing and why."""
        there = f", {self.were_there:,} were there already" if self.were_there else ""
        yield f"{plural(self.fetched, 'result')} ({format_size(self.bytes)}) in {self.output}{there}"
        shown = [file for file in self.files if not file.was_there]
        yield from (f"  {file.path}" for file in shown[:_SHOWN_FILES])
        if len(shown) > _SHOWN_FILES:
            yield f"  ... and {len(shown) - _SHOWN_FILES:,} more (--output json has them all)"
        for file in self.files:
            if file.kept:
                yield f"note: {file.path} was there before: its files are in {file.kept}"
        if self.interrupted:
            left = [missed for missed in self.missing if missed.is_cut_off]
            yield f"interrupted: {plural(len(left), 'result')} left to fetch{_sizes(left)}"
        refused = [missed for missed in self.missing if not missed.is_cut_off]
        for missed in refused[:_SHOWN_REFUSED]:
            yield f"missing: {missed.path} of {missed.drop} on {missed.node}: {missed.text}"
        if len(refused) > _SHOWN_REFUSED:
            yield f"missing: {len(refused) - _SHOWN_REFUSED:,} more (--output json has them all)"
        cut_off = [missed for missed in self.missing if missed.is_cut_off]
        if cut_off and not self.interrupted:
            yield f"error {cut_off[0].code}: {cut_off[0].text}"
            count = plural(len(cut_off), "result")
            yield f"missing: {count}, because the connection to the manager broke{_sizes(cut_off)}"
        yield from (f"missing: results on node {node}, which did not answer or has lost them" for node in self.silent)
        if not self.ok:
            yield f"to fetch missing results: {shell_command('fetch', self.session)} again, with the same -o"

    @property
    def status(self) -> Exit:
        """The exit status."""
        if self.interrupted:
            return Exit.TERMINATED if self.terminated else Exit.INTERRUPTED
        if any(file.is_cut_off for file in self.missing):
            return Exit.UNKNOWN
        return Exit.FINISHED if self.ok else Exit.FAILED


def _sizes(missing: Sequence[MissedFile]) -> str:
    """Return how many bytes are missing, and how many of their results are here."""
    size, here = sum(file.size for file in missing), sum(file.here for file in missing)
    kept = f" more, {format_size(here)} of them are here" if here else ""
    return f" ({format_size(size - here)}{kept})"


# One stream from each node.


class WantedFile(NamedTuple):
    """A result, and its path in the directory."""

    result: ResultInfo
    path: PurePosixPath

    def fetched(self, size: int, *, was_there: bool = False, kept: str = "") -> FetchedFile:
        """Return the record of this result as one that is here."""
        return FetchedFile(
            drop=self.result.oid, node=self.result.node, path=str(self.path), size=size, was_there=was_there, kept=kept
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
        outcomes: dict[WantedFile, _Outcome] = {}
        try:
            self._fetch(files, outcomes)
        except KeyboardInterrupt:
            self.is_interrupted = True
        except OSError:
            missing = [file for file in files if file not in outcomes]
            self.left = sum(max(file.result.size - self._directory.kept(file.path).size, 0) for file in missing)
            raise
        left = LinkError("interrupted before it was fetched", hint="fetch again")
        for file in files:
            if file not in outcomes:
                here = self._directory.kept(file.path).size
                outcomes[file] = file.missed(left, is_cut_off=True, here=here)
        if all(isinstance(outcome, FetchedFile) for outcome in outcomes.values()):
            self._directory.discard_parts()
        return outcomes

    def _fetch(self, files: Sequence[WantedFile], outcomes: dict[WantedFile, _Outcome]) -> None:
        """Add the result for each file to `outcomes`."""
        by_node: dict[str, list[WantedFile]] = defaultdict(list)
        for file in files:
            if self._directory.has(file.path, file.result):
                outcomes[file] = file.fetched(file.result.size, was_there=True)
                self._count(1, file.result.size)
            elif (refusal := self._directory.refusal(file.path, file.result)) is not None:
                outcomes[file] = file.missed(refusal)
                self._count(1, file.result.size)
            else:
                by_node[file.result.node].append(file)
        batches = {
            node: [
                _Batch(mine[start : start + MAX_CONTENTS], self._directory, outcomes)
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
            for batch in (batch_of_node for mine in batches.values() for batch_of_node in mine):
                batch.close()


class _Batch:
    """Files that one request asks for: writes what arrives."""

    def __init__(
        self, files: Sequence[WantedFile], directory: ResultDirectory, outcomes: dict[WantedFile, _Outcome]
    ) -> None:
        self._files = files
        self._directory = directory
        self._found = outcomes
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
                kept = incoming.finish(record.checksum)
                return file.fetched(incoming.size, kept=kept)
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
        self._free.acquire()
        self._arrived.put((batch, error))


def _error_of_name(file: WantedFile, error: OSError) -> DropflowError:
    """Return the error for a file whose name is not possible here; raise errors that concern all files."""
    if error.errno not in _BAD_NAME:
        raise error
    return storage_error("write", str(file.path), error)


# All results in one tar or zip file.


class ArchiveReply(msgspec.Struct, frozen=True, kw_only=True):
    """The archive that is here now; `in_stores` are names of drops whose results are in stores, and not in it."""

    ok: bool = True
    session: str
    output: str
    format: str
    bytes: int
    in_stores: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Its size and place, and what is not in it."""
        yield f"{format_size(self.bytes)} in {self.output}"
        if self.in_stores:
            left_out = f"{plural(len(self.in_stores), 'result')} in stores left out: {few(self.in_stores)}"
            yield f"{left_out}; to fetch them too: {shell_command('fetch', self.session)} -o DIR"


def download_archive(
    client: Client, session: str, format_: Literal["tar", "zip"], target: Path, *, quiet: bool
) -> ArchiveReply:
    """Write an archive of all results; it has its name when it is whole.

    Raises
    ------
    LinkError
        Something is missing, or the connection broke. What arrived is beside it, with ``.incomplete`` appended.
    StorageError
        It cannot be written.
    """
    incomplete = target.with_name(f"{target.name}.incomplete")
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.incomplete")  # another command may write, too
    size = 0
    in_stores = tuple(result.name for result in client.results(session).in_stores)
    try:
        with transfer_progress(0, 0, quiet=quiet) as count:
            chunks = client.archive(session, ArchiveQuery(format=format_)).chunks
            with part.open("xb") as stream:
                try:
                    for chunk in chunks:
                        stream.write(chunk)
                        size += len(chunk)
                        count(0, len(chunk))
                except LinkError as error:
                    os.replace(part, incomplete)  # noqa: PTH105 - over a file that is there
                    raise LinkError(
                        f"the archive is not complete: {error}",
                        where=str(incomplete),
                        hint="MISSING.txt at its end names missing results, if the manager could write it; a fetch "
                        "into a directory gets the rest, and can be continued",
                    ) from error
        os.replace(part, target)  # noqa: PTH105 - over a file that is there
    except OSError as error:
        raise StorageError(f"the archive cannot be stored: {error.strerror}", where=str(target)) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return ArchiveReply(session=session, output=str(target), format=format_, bytes=size, in_stores=in_stores)
