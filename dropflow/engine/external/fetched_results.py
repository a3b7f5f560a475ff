"""Fetching what attempts have written on a worker that has a directory of its own: outputs and logs."""

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence

import msgspec

from dropflow.engine.api import AttemptResult, ExecutorSpec, Handle
from dropflow.engine.drop_log import DropLog
from dropflow.engine.external.blobs import read_blob
from dropflow.engine.external.content_store import BLOB_BYTES, LEAST_BYTES, ContentStore, StoredContent
from dropflow.engine.external.engine import BatchAnswer
from dropflow.engine.external.fetched_parts import FetchedParts
from dropflow.engine.external.listed_content import ContentEntry, ListedContent, identity_of
from dropflow.engine.external.sent_inputs import FILE_KINDS
from dropflow.engine.external.worker_files import PIECE_BYTES, Get, Move, Remove, Request, SaveBlob
from dropflow.errors import DropflowError, StorageError, TransferError, WorkerDiedError
from dropflow.failure import Failure
from dropflow.fsync import force_to_disk

__all__ = ["FetchedResults", "HeldOutput"]

HeldOutput = tuple[int, str, int]
"""Identity, path on the worker, and bytes of an output that the worker keeps for other attempts."""


class _Fetch:
    """A content or a log on its way: takes its pieces in their order. With a URL, they go through the store."""

    def __init__(
        self, path: str, size: int, take: Callable[[int, bytes], None], end: Callable[[], None], url: str = ""
    ) -> None:
        self.path, self.size, self.url = path, size, url
        self.take, self.end = take, end
        self.checksum = 0

    def next_piece(self, offset: int, most: int) -> Get | SaveBlob:
        """Return the request for the piece at `offset`: of `most` bytes, or a whole blob."""
        if self.url:
            length = min(BLOB_BYTES, self.size - offset)
            return SaveBlob(self.path, offset, length, f"{self.url}/{offset // BLOB_BYTES}")
        return Get(self.path, offset, min(most, self.size - offset))

    def write(self, offset: int, data: bytes) -> None:
        """Take a piece."""
        self.checksum = zlib.crc32(data, self.checksum)
        self.take(offset, data)


class _Group:
    """Results whose contents are fetched together."""

    def __init__(self) -> None:
        self.results: list[AttemptResult] = []
        self.fetches: list[tuple[int, _Fetch]] = []
        """With the position of their result."""
        self.bytes = 0
        self.outputs: list[tuple[int, int, _Fetch, str]] = []
        """Positions of results, with a drop, its fetch, and the name that it should have on the worker."""
        self.removed: list[str] = []
        self.logs: list[DropLog] = []


class FetchedResults:
    """Fetches the contents of results.

    Parameters
    ----------
    spec : ExecutorSpec
        Of the session, here.
    parts : FetchedParts
        Where contents are written.
    ask : callable
        Has the worker process requests, and returns what it reads.
    is_over : callable
        Whether the session does not wait for the results any more.
    numbers : iterator of int
        For names of contents.
    store : ContentStore, optional
        Through which large contents go.
    """

    def __init__(
        self,
        spec: ExecutorSpec,
        parts: FetchedParts,
        ask: Callable[[Sequence[Request]], Sequence[bytes]],
        is_over: Callable[[], bool],
        numbers: Iterator[int],
        *,
        store: ContentStore | None = None,
    ) -> None:
        self._spec, self._parts, self._ask = spec, parts, ask
        self._is_over, self._numbers, self._store = is_over, numbers, store

    def of(
        self, answer: BatchAnswer, left: list[str], *, is_last: bool
    ) -> Iterator[tuple[list[AttemptResult], list[HeldOutput]]]:
        """Yield the results of an answer in their order, with contents here, and what the worker keeps of them.

        Parameters
        ----------
        answer : BatchAnswer
            Of the worker.
        left : list of str
            Paths on the worker that are removed with the last answer. Those of an earlier one are added: an attempt
            that follows in a chain may read them.
        is_last : bool
            Whether the batch has ended.
        """
        logs = {(log.drop, log.attempt): log for log in answer.logs}
        listings = dict(answer.listings)
        group = _Group()
        for result in answer.results:
            contents = {drop: one for drop, one in result.handles.items() if one.kind in FILE_KINDS}
            log = logs.get((result.drop, result.attempt))
            size = sum(sum(entry.size for entry in listings.get(one.location, ())) for one in contents.values())
            if group.results and group.bytes + size > PIECE_BYTES:
                yield self._fetched(group, left, is_last=is_last)
                group = _Group()
            at = len(group.results)
            group.results.append(result)
            group.bytes += size
            if log is not None:
                written = DropLog(f"{self._spec.directory}/logs", log.oid, self._spec.log_limit)
                group.fetches.append((at, _Fetch(log.path, log.size, _writer(written), written.close)))
                group.logs.append(written)
                group.removed.append(log.path)
            for number, (drop, handle) in enumerate(contents.items()):
                try:
                    entries = listings[handle.location]
                    group.fetches.append((at, self._content(group, at, (number, drop), handle, entries)))
                except (DropflowError, OSError) as error:
                    self._fail(group, at, _failure(error))
                    break
        if group.results:
            yield self._fetched(group, left, is_last=is_last)

    def discard(self, results: Sequence[AttemptResult]) -> None:
        """Remove the contents of results that the session does not wait for."""
        for result in results:
            for handle in result.handles.values():
                if handle.kind in FILE_KINDS and handle.location.startswith("/"):
                    self._parts.remove(handle.location)

    def _content(
        self, group: _Group, at: int, output: tuple[int, int], handle: Handle, entries: Sequence[ContentEntry]
    ) -> _Fetch:
        """Return the fetch of an output, and note it as that of its result."""
        number, drop = output
        result = group.results[at]
        final = handle.final
        if final and not final.startswith("/"):
            final = f"{self._spec.directory}/{final}"
        path = self._parts.path(result.drop, result.attempt, number, final)
        group.results[at] = msgspec.structs.replace(
            result, handles={**result.handles, drop: msgspec.structs.replace(handle, location=path, final=final)}
        )
        content = ListedContent(path, entries)
        content.begin()
        wanted = os.path.basename(final or handle.location)  # noqa: PTH119 - text

        def end() -> None:
            if handle.checksum and not content.is_directory and fetch.checksum != handle.checksum:
                text = f"an output has CRC-32 {fetch.checksum:08x} after it was fetched, and another one before"
                raise StorageError(text)
            content.finish()
            if self._spec.durable and not content.is_directory:
                force_to_disk(path)

        url = self._store.new_url() if self._store is not None and content.size >= LEAST_BYTES else ""
        fetch = _Fetch(handle.location, content.size, content.write, end, url)
        group.outputs.append((at, drop, fetch, wanted))
        return fetch

    def _fetched(
        self, group: _Group, left: list[str], *, is_last: bool
    ) -> tuple[list[AttemptResult], list[HeldOutput]]:
        """Fetch what a group has; return its results, and what the worker keeps."""
        held: list[HeldOutput] = []
        try:
            self._pieces(group)
            held = self._settle(group, left, is_last=is_last)
        except (TransferError, WorkerDiedError) as error:
            failure = Failure.of(type(error)(f"its outputs could not be fetched: {error.text}", hint=error.hint))
            for at in {at for at, _, _, _ in group.outputs}:
                if group.results[at].failure is None:
                    self._fail(group, at, failure)
        finally:
            for log in group.logs:
                log.close()
        return group.results, held

    def _pieces(self, group: _Group) -> None:
        """Fetch all contents of a group, in messages of limited size."""
        waiting: list[tuple[int, _Fetch, Get | SaveBlob]] = []
        size = 0
        for at, one in group.fetches:
            offset = 0
            while True:
                piece = one.next_piece(offset, PIECE_BYTES - size)
                waiting.append((at, one, piece))
                offset, size = offset + piece.length, size + piece.length
                if size >= PIECE_BYTES:
                    self._take(group, waiting)
                    waiting, size = [], 0
                if offset == one.size:
                    break
        self._take(group, waiting)

    def _take(self, group: _Group, waiting: Sequence[tuple[int, _Fetch, Get | SaveBlob]]) -> None:
        """Get pieces, and write them."""
        failed = {at for at, result in enumerate(group.results) if result.failure is not None}
        if self._is_over():
            raise WorkerDiedError("the session does not wait for them any more")
        wanted = [one for one in waiting if one[2].length]
        pieces = iter(self._ask([piece for _, _, piece in wanted]) if wanted else ())
        for at, one, piece in waiting:
            data = _blob(piece) if isinstance(piece, SaveBlob) else next(pieces) if piece.length else b""
            try:
                # The log of an attempt that failed is written, its outputs are not.
                if at not in failed or one not in [fetch for _, _, fetch, _ in group.outputs]:
                    one.write(piece.offset, data)
                    if piece.offset + piece.length == one.size:
                        one.end()
            except (DropflowError, OSError) as error:
                self._fail(group, at, _failure(error))
                failed.add(at)

    def _settle(self, group: _Group, left: list[str], *, is_last: bool) -> list[HeldOutput]:
        """Have the worker keep outputs, which others may read, and remove the rest."""
        requests: list[Request] = []
        held: list[HeldOutput] = []
        removed = list(group.removed)
        for at, drop, fetch, name in group.outputs:
            identity = self._identity(group.results[at], drop, fetch)
            if not is_last:
                left.append(fetch.path)
            elif identity is None:
                removed.append(fetch.path)
            else:
                target = f"contents/{next(self._numbers)}/{name}"
                requests.append(Move(fetch.path, target))
                held.append((identity, target, group.results[at].handles[drop].size))
        if is_last:
            removed += left
            left.clear()
        if removed:
            requests.append(Remove(tuple(removed)))
        if requests:
            self._ask(requests)
        return held

    def _identity(self, result: AttemptResult, drop: int, fetch: _Fetch) -> int | None:
        """Return the identity of an output that is here, and note that the store has it; None if it is not here."""
        if result.failure is None:
            handle = result.handles[drop]
            with contextlib.suppress(OSError):  # the session has removed it: it was cancelled
                identity = identity_of(handle.location)
                if self._store is not None and fetch.url:
                    path = handle.final or handle.location
                    self._store.add(identity, StoredContent(fetch.url, path, fetch.size, fetch.checksum))
                return identity
        if self._store is not None and fetch.url:
            self._store.remove(fetch.url)
        return None

    def _fail(self, group: _Group, at: int, failure: Failure) -> None:
        """Give a result a failure, and remove what has come of its contents."""
        result = group.results[at]
        self.discard([result])
        group.results[at] = msgspec.structs.replace(result, handles={}, skipped=(), failure=failure)


def _writer(log: DropLog) -> Callable[[int, bytes], None]:
    def take(_: int, data: bytes) -> None:
        if data:
            log.write_bytes(data)

    return take


def _blob(piece: SaveBlob) -> bytes:
    """Return a piece that the worker has written to the store. A store that fails is no failure of the attempt."""
    try:
        return read_blob(piece.url)
    except StorageError as error:
        raise TransferError(f"{error.where}: {error.text}", hint=error.hint) from error


def _failure(error: BaseException) -> Failure:
    if isinstance(error, OSError):
        text = f"an output cannot be written here: {error.strerror or error}"
        error = StorageError(text, where=str(error.filename or ""))
    return Failure.of(error)
