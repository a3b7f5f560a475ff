"""Where the contents that workers of an engine send are written before they are committed."""

import contextlib
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from dropflow.engine.api import AttemptResult, ExecutorSpec, Handle, Input, Task, not_begun
from dropflow.engine.drop_log import DropLog
from dropflow.errors import DropflowError, StorageError, TransferError, WorkerDiedError
from dropflow.failure import Failure
from dropflow.files import force_to_disk
from dropflow.runners.engine import BatchAnswer
from dropflow.runners.external_store import BLOB_BYTES, LEAST_BYTES, ContentStore, StoredContent, read_blob
from dropflow.runners.listed_content import ContentEntry, ListedContent, identity_of, listing_of
from dropflow.runners.worker_files import PIECE_BYTES, Get, LoadBlob, Move, Put, Remove, Request, SaveBlob

__all__ = [
    "FILE_KINDS",
    "BatchOfWorker",
    "FetchedParts",
    "FetchedResults",
    "HeldContents",
    "HeldOutput",
    "SentInputs",
    "identities_of",
]


class FetchedParts(Protocol):
    """Temporary places for contents of other hosts. Called from any thread."""

    def path(self, drop: int, attempt: int, number: int, final: str) -> str:
        """Return a new temporary path for a content that is `final` after its commit; that may be empty.

        Raises
        ------
        DropflowError
            Nothing can be written there.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove what was written there; never raises."""
        ...


# What the workers of an engine have of the contents of a session, and what they remove to make room.
# Does no I/O.


@dataclass
class _Held:
    path: str
    size: int
    used_by: set[int] = field(default_factory=set)
    """Batches, which need it until they have ended."""


class HeldContents:
    """The contents on each worker, by their identity (`dropflow.runners.listed_content.identity_of`).

    A content is sent to a worker once, as long as it is held there. What no batch uses is removed if there is no room
    for another one, the one that was used longest ago first.
    """

    def __init__(self) -> None:
        self._rooms: Mapping[str, int] = {}
        self._of_worker: dict[str, dict[int, _Held]] = {}
        self._of_batch: dict[int, list[_Held]] = {}
        """What each batch uses, so that its end does not go through all that is held."""

    def set_workers(self, rooms: Mapping[str, int]) -> None:
        """Note which workers there are, and how many bytes each may hold. What others have is forgotten."""
        self._rooms = dict(rooms)
        self._of_worker = {worker: self._of_worker.get(worker, {}) for worker in rooms}

    def bytes_on(self, worker: str, identities: Iterable[int]) -> int:
        """Return how many bytes of some contents a worker has."""
        held = self._of_worker.get(worker, {})
        return sum(held[one].size for one in identities if one in held)

    def use(self, worker: str, identity: int, batch: int) -> str:
        """Return the path of a content on a worker, and note that a batch uses it; empty if it is not there."""
        held = self._of_worker.get(worker, {})
        found = held.pop(identity, None)
        if found is None:
            return ""
        held[identity] = found  # the last one now
        self._note_use(found, batch)
        return found.path

    def add(self, worker: str, identity: int, path: str, size: int, batch: int = 0) -> str:
        """Note a content on a worker, which a batch uses; return the path of an older one to remove, if there is one.

        A batch of 0 is none.
        """
        if worker not in self._of_worker:
            return ""
        before = self._of_worker[worker].pop(identity, None)
        held = self._of_worker[worker][identity] = _Held(path, size)
        if batch:
            self._note_use(held, batch)
        return before.path if before is not None and before.path != path else ""

    def make_room(self, worker: str, size: int) -> list[str]:
        """Forget contents that no batch uses until there is room for `size` more bytes; return their paths.

        If those that are used leave no room, the worker gets more than it should.
        """
        held = self._of_worker.get(worker, {})
        excess = sum(one.size for one in held.values()) + size - self._rooms.get(worker, 0)
        removed = []
        for identity, one in tuple(held.items()):
            if excess <= 0:
                break
            if not one.used_by:
                excess -= one.size
                removed.append(one.path)
                del held[identity]
        return removed

    def end(self, batch: int) -> None:
        """Note that a batch uses nothing any more."""
        for held in self._of_batch.pop(batch, ()):
            held.used_by.discard(batch)

    def _note_use(self, held: _Held, batch: int) -> None:
        held.used_by.add(batch)
        self._of_batch.setdefault(batch, []).append(held)


# Sending the inputs of a batch to a worker that has a directory of its own.

FILE_KINDS = ("file", "directory", "shm")
"""Kinds of contents that are at a path. One at a URL is read from there by any worker."""


class BatchOfWorker(Protocol):
    """A batch, and the worker that gets it."""

    number: int
    worker: str
    tasks: tuple[Task, ...]
    is_over: bool


def identities_of(tasks: Sequence[Task]) -> list[int]:
    """Return the identities of all inputs of attempts that are at paths, without those that cannot be read."""
    found = {}
    for task in tasks:
        for each in task.inputs:
            handle = each.handle
            if handle is not None and handle.kind in FILE_KINDS and handle.location not in found:
                try:
                    found[handle.location] = identity_of(handle.location)
                except OSError:  # its attempt fails when it is to be sent
                    continue
    return list(found.values())


class SentInputs:
    """Sends what a worker does not have of the inputs of a batch.

    Parameters
    ----------
    batch : BatchOfWorker
        The batch, and its worker.
    held : HeldContents
        What workers have.
    lock : threading.Lock
        Guards `held`.
    numbers : iterator of int
        For the names of contents.
    ask : callable
        Has the worker process requests; raises if it does not.
    store : ContentStore, optional
        From which the worker reads large contents.
    """

    def __init__(
        self,
        batch: BatchOfWorker,
        held: HeldContents,
        lock: threading.Lock,
        numbers: Iterator[int],
        ask: Callable[[Sequence[Request]], object],
        *,
        store: ContentStore | None = None,
    ) -> None:
        self._batch, self._held, self._lock, self._store = batch, held, lock, store
        self._numbers, self._ask = numbers, ask
        self._requests: list[Request] = []
        self._bytes = 0
        self._sent: dict[str, str] = {}
        """Paths on the worker, by the paths here."""
        self._arriving: list[tuple[int, str, int]] = []

    def send(self) -> tuple[list[Task], list[AttemptResult]]:
        """Return the attempts with their inputs on the worker, and results for those whose inputs cannot be read here.

        Raises
        ------
        DropflowError
            The worker does not take them.
        """
        tasks: list[Task] = []
        failed: list[AttemptResult] = []
        for task in self._batch.tasks:
            if self._batch.is_over:
                break
            try:
                inputs = tuple([self._input(each) for each in task.inputs])
            except _UnreadableError as error:
                failed += [AttemptResult(task.drop, task.attempt, failure=error.failure), *not_begun(task.then)]
            else:
                tasks.append(msgspec.structs.replace(task, inputs=inputs))
        self._flush()
        return tasks, failed

    def _input(self, each: Input) -> Input:
        handle = each.handle
        if handle is None or handle.kind not in FILE_KINDS:
            return each
        path = self._sent.get(handle.location)
        if path is None:
            path = self._sent[handle.location] = self._content(handle)
        return msgspec.structs.replace(each, handle=msgspec.structs.replace(handle, location=path))

    def _content(self, handle: Handle) -> str:
        """Return the path of a content on the worker, after it has been sent there if necessary."""
        try:
            identity = identity_of(handle.location)
            with self._lock:
                path = self._held.use(self._batch.worker, identity, self._batch.number)
            if path:
                return path
            content = ListedContent(handle.location, listing_of(handle.location))
        except OSError as error:
            raise _UnreadableError(handle.location, error.strerror or str(error)) from error
        with self._lock:
            removed = self._held.make_room(self._batch.worker, content.size + self._bytes)
        if removed:
            self._requests.append(Remove(tuple(removed)))
        path = f"contents/{next(self._numbers)}/{os.path.basename(handle.location)}"  # noqa: PTH119 - text
        if self._store is not None and content.size >= LEAST_BYTES:
            self._loads(content, path, identity, self._store)
        else:
            self._pieces(content, path)
        self._arriving.append((identity, path, content.size))
        return path

    def _pieces(self, content: ListedContent, path: str) -> None:
        offset = checksum = 0
        while True:
            if self._bytes >= PIECE_BYTES:
                self._flush()
            length = min(PIECE_BYTES - self._bytes, content.size - offset)
            try:
                data = content.read(offset, length)
            except (OSError, StorageError) as error:
                self._requests.append(Remove((path,)))
                raise _UnreadableError(content.path, getattr(error, "strerror", "") or str(error)) from error
            checksum = zlib.crc32(data, checksum)
            is_last = offset + length == content.size
            entries = () if offset else content.entries
            self._requests.append(Put(path, offset, data, is_last, entries, checksum if is_last else 0))
            self._bytes += length
            offset += length
            if is_last:
                return

    def _loads(self, content: ListedContent, path: str, identity: int, store: ContentStore) -> None:
        """Have the worker read a content from the store, which has it then."""
        try:
            stored = store.stored(identity, content)
        except OSError as error:
            raise _UnreadableError(content.path, error.strerror or str(error)) from error
        for number, offset in enumerate(range(0, content.size, BLOB_BYTES)):
            is_last = offset + BLOB_BYTES >= content.size
            entries, checksum = () if offset else content.entries, stored.checksum if is_last else 0
            self._flush()  # so that a message takes no longer than one blob does
            self._requests.append(LoadBlob(path, offset, f"{stored.url}/{number}", is_last, entries, checksum))

    def _flush(self) -> None:
        """Have the worker process what has been collected."""
        requests, self._requests, self._bytes = self._requests, [], 0
        arriving, self._arriving = self._arriving, []
        if requests and not self._batch.is_over:
            self._ask(requests)
            with self._lock:
                removed = [
                    self._held.add(self._batch.worker, identity, path, size, self._batch.number)
                    for identity, path, size in arriving
                ]
            if any(removed):
                self._requests.append(Remove(tuple(path for path in removed if path)))


class _UnreadableError(Exception):
    """An input cannot be read here."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path)
        self.failure = Failure.of(StorageError(f"the input {path} cannot be sent to a worker: {why}"))


# Fetching what attempts have written on a worker that has a directory of its own: outputs and logs.

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
