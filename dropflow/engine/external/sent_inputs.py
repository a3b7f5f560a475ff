"""Sending the inputs of a batch to a worker that has a directory of its own."""

import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from dropflow.engine.api import AttemptResult, Handle, Input, Task
from dropflow.engine.chained_tasks import not_begun
from dropflow.engine.external.content_store import BLOB_BYTES, LEAST_BYTES, ContentStore
from dropflow.engine.external.held_contents import HeldContents
from dropflow.engine.external.listed_content import ListedContent, identity_of, listing_of
from dropflow.engine.external.worker_files import PIECE_BYTES, LoadBlob, Put, Remove, Request
from dropflow.errors import StorageError
from dropflow.failure import Failure

__all__ = ["FILE_KINDS", "BatchOfWorker", "SentInputs", "identities_of"]

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
