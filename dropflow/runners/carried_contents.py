"""Contents that travel with batches, where workers of an engine cannot use the directory of the session.

A content is a sequence of pieces of a tar archive, of limited size. `ContentRelay` stands between the runner and an
engine. It makes each piece of an input an object of the engine (a future of Dask, an object reference of Ray), or a
blob in a store. It keeps the objects that were used last for later batches. They are arguments of a batch, so the
engine brings them to its worker. There, `OwnDirectory` unpacks them. Outputs and logs come back with the answer, in
pieces or in blobs, and stand under temporary names where the session commits them. So the session's journal and
directory are complete at any time, and the loss of a worker loses no content.
"""

import contextlib
import fcntl
import io
import logging
import os
import secrets
import shutil
import stat
import tarfile
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dropflow.data.file import part_for, remove_part
from dropflow.data.storage_errors import checksum_of
from dropflow.data.workspace import Workspace
from dropflow.errors import DropflowError, StorageError, TransferError
from dropflow.execution.chains import members, not_begun
from dropflow.execution.content_location import Handle
from dropflow.execution.drop_log import DropLog
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, Input, Task
from dropflow.failure import Failure, summary_of
from dropflow.files import force_to_disk, private_directory
from dropflow.ids import drop_file_name
from dropflow.runners.engine import (
    AttemptKey,
    AttemptLog,
    Batch,
    BatchAnswer,
    Blob,
    CarriedContent,
    Engine,
    EngineEvents,
    Piece,
    WorkerView,
)
from dropflow.runners.external_store import ContentStore, read_blob

_log = logging.getLogger(__name__)

PIECE_BYTES = 16 << 20
"""Bytes of a content in one blob of the store."""
_MOST_BYTES = 1 << 30
"""Most bytes of outputs in one answer of a worker: both sides have them in memory. Without limit if a store is used."""
_KEPT_BYTES = 1 << 30
"""Bytes of objects and blobs that are kept for later batches, besides objects and blobs in use."""
_RECEIVERS = 4
"""Threads that receive contents."""
_FILE_KINDS = ("file", "directory", "shm")
"""Kinds of contents that are at a path. Any worker can read a content at a URL from there."""
_DIRECTORIES = ("files", "logs", "tmp", "contents")
_DIRECTORY_LOCK = ".lock"


# A content as pieces.


class _PieceWriter(io.RawIOBase):
    """A stream that passes the written bytes to `put`, in pieces."""

    def __init__(self, put: Callable[[bytes], object]) -> None:
        super().__init__()
        self._put, self._waiting = put, bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._waiting += data
        while len(self._waiting) >= PIECE_BYTES:
            self._put(bytes(self._waiting[:PIECE_BYTES]))
            del self._waiting[:PIECE_BYTES]
        return len(data)

    def finish(self) -> None:
        if self._waiting:
            self._put(bytes(self._waiting))


class _PieceReader(io.RawIOBase):
    """A stream of pieces that come one after the other."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        super().__init__()
        self._pieces, self._left = iter(pieces), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def pack(path: str, put: Callable[[bytes], object]) -> None:
    """Pass a file, or a directory with all files below it, to `put` in pieces, without sockets, pipes and devices.

    Raises
    ------
    OSError
        It cannot be read.
    """

    def chosen(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return member if member.isreg() or member.isdir() or member.issym() or member.islnk() else None

    writer = _PieceWriter(put)
    with tarfile.open(fileobj=writer, mode="w|", bufsize=1 << 20) as archive:
        archive.add(os.path.realpath(path), arcname="content", filter=chosen)
    writer.finish()


def unpack(pieces: Iterable[bytes], path: str, checksum: int = 0) -> None:
    """Write a content to a path that does not exist; compare a single file with its CRC-32, if it is not 0.

    Raises
    ------
    StorageError
        The checksum differs, or a name in the archive leads out of the content.
    OSError
        It cannot be written.
    """
    folder = f"{path}.unpacked"
    os.mkdir(folder, 0o700)  # noqa: PTH102 - text, as everywhere here
    try:
        with tarfile.open(fileobj=io.BufferedReader(_PieceReader(pieces), 1 << 20), mode="r|") as archive:
            archive.extraction_filter = getattr(tarfile, "tar_filter", lambda member, _: member)
            archive.extractall(folder)  # noqa: S202 - the filter refuses names outside of the folder
        os.rename(f"{folder}/content", path)  # noqa: PTH104
    except tarfile.TarError as error:
        raise StorageError(f"the content cannot be unpacked: {error}", where=path) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if checksum and os.path.isfile(path) and (actual := checksum_of(path)) != checksum:  # noqa: PTH113
        text = f"the content has CRC-32 {actual:08x} after it was sent, and {checksum:08x} before"
        raise StorageError(text, where=path)


def identity_of(path: str) -> int:
    """Return a number that changes when a content is replaced or changed.

    It is made from the inodes, sizes and times of its files.

    Raises
    ------
    OSError
        It cannot be read.
    """
    entries = [(path, os.stat(path))]  # noqa: PTH116
    if stat.S_ISDIR(entries[0][1].st_mode):
        entries += [(entry.path, entry.stat(follow_symlinks=False)) for entry in _below(path)]
    return hash(
        tuple(
            (name[len(path) :], status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            for name, status in entries
        )
    )


def _below(path: str) -> Iterator["os.DirEntry[str]"]:
    with os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda child: child.name):
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path)


def _bytes_of(pieces: Iterable[Piece]) -> Iterator[bytes]:
    """Yield the bytes of pieces."""
    return (read_blob(piece.url) if isinstance(piece, Blob) else piece for piece in pieces)


# The side of the session.


@dataclass
class _SentContent:
    """A content that was made objects of the engine, or blobs in the store."""

    pieces: list[Any]
    size: int
    used_by: set[int] = field(default_factory=set)
    """Numbers of the batches that use it and have not ended."""


class ContentRelay:
    """`dropflow.runners.engine.Engine` that sends contents if its workers cannot use the session directory.

    Parameters
    ----------
    engine : Engine
        Runs batches.
    workspace : Workspace
        The directories of the session, where outputs are written.
    store : ContentStore, optional
        Keeps the pieces; by default, they are objects of the engine.
    """

    def __init__(self, engine: Engine, workspace: Workspace, store: ContentStore | None = None) -> None:
        self._engine, self._workspace, self._store = engine, workspace, store
        self.name = engine.name
        self._events: EngineEvents | None = None
        self._spec: ExecutorSpec | None = None
        self.is_needed = self._has_looked = False
        # One content after another is sent, so that each is sent once.
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="content-out")
        self._receiver = ThreadPoolExecutor(_RECEIVERS, thread_name_prefix="content-in")
        # Guards the attributes below: the thread of the runner, threads of the engine and of both pools use them.
        self._lock = threading.Lock()
        self._open: set[int] = set()
        """Numbers of the batches that are not over."""
        self._kept: OrderedDict[int, _SentContent] = OrderedDict()
        """Contents by `identity_of`; the content that was not used for the longest time is first."""
        self._given_up: list[_SentContent] = []
        """Contents that are not used again, until their last batch has ended."""

    def start(self, spec: ExecutorSpec, factory: str, events: EngineEvents, *, store: str = "") -> Sequence[WorkerView]:
        """Start the engine, and find out whether its workers can use the session directory."""
        self._events, self._spec = events, spec
        store = store if self._store is None else self._store.url
        inner = EngineEvents(self._answered, self._lost, self._on_workers, events.broken)
        views = self._engine.start(spec, factory, inner, store=store)
        self._look_at(views)
        if self.is_needed and self._store is not None:
            self._store.probe()
        return views

    def _look_at(self, views: Sequence[WorkerView]) -> None:
        """Find out from the first workers whether they can use the session directory."""
        if self._has_looked or not views or self._spec is None:
            return
        self._has_looked, self.is_needed = True, any(view.is_detached for view in views)
        if self.is_needed:
            way = f"{self.name}, in memory" if self._store is None else self._store.url
            _log.warning(
                "workers of %s cannot use the session directory %s: contents go by %s",
                self.name,
                self._spec.directory,
                way,
            )

    def _on_workers(self, views: Sequence[WorkerView]) -> None:
        """Pass workers on; try the store before the first contents go to them."""
        was_needed = self.is_needed
        self._look_at(views)
        if self.is_needed and not was_needed and self._store is not None:
            self._sender.submit(self._try_store, self._store)
        self._report().workers(views)

    def _try_store(self, store: ContentStore) -> None:
        try:
            store.probe()
        except DropflowError as error:
            self._report().broken(f"{error.where}: {error.text}")

    def put(self, data: bytes) -> object:
        """Make bytes an object of the engine, or a blob.

        Raises
        ------
        StorageError
            The engine or the store does not take them.
        """
        if self._store is not None:
            return Blob(self._store.put(data))
        try:
            return self._engine.put(data)
        except Exception as error:
            raise StorageError(f"it does not take contents: {summary_of(error)}", where=self.name) from error

    def submit(self, batch: Batch, name: str, workers: Sequence[str], pieces: Sequence[object] = ()) -> None:
        """Send a batch to a worker, with its inputs."""
        if not self.is_needed:
            self._engine.submit(batch, name, workers, pieces)
            return
        with self._lock:
            self._open.add(batch.number)
        self._run(self._sender, batch.number, lambda: self._send(batch, name, workers))

    def abort(self, attempts: Sequence[AttemptKey], grace: float) -> None:
        """Stop attempts, also attempts whose batch has not arrived yet."""
        self._engine.abort(attempts, grace)

    def recall(self, numbers: Sequence[int]) -> None:
        """Ask the workers of batches to return attempts that have not begun."""
        self._engine.recall(numbers)

    def discard(self, number: int) -> None:
        """Forget a batch, and stop its attempts."""
        self._end(number)
        self._engine.discard(number)

    def want(self, seconds: float) -> None:
        """Pass on how much work waits."""
        self._engine.want(seconds)

    def ping(self) -> None:
        """Send all workers a sign that the session is alive."""
        self._engine.ping()

    def close(self) -> None:
        """Stop what runs, and leave the engine."""
        with self._lock:
            self._open.clear()
            self._kept.clear()
            self._given_up.clear()
        self._engine.close()
        self._sender.shutdown(wait=False, cancel_futures=True)
        self._receiver.shutdown(cancel_futures=True)
        if self._store is not None and self.is_needed:
            self._store.close()

    def _run(self, pool: ThreadPoolExecutor, number: int, job: Callable[[], None]) -> None:
        """Run a job of a batch, which is lost if the job fails: the session must not wait forever."""

        def run() -> None:
            try:
                job()
            except Exception as error:  # noqa: BLE001 - the session must not wait for it
                if self._end(number):
                    _log.exception("the transfer of a content failed: this is a bug of dropflow")
                    self._report().lost(number, summary_of(error))

        with contextlib.suppress(RuntimeError):  # the pool is closed
            pool.submit(run)

    def _send(self, batch: Batch, name: str, workers: Sequence[str]) -> None:
        """Send the inputs of a batch with it. Attempts whose inputs cannot be read, or be sent, fail."""
        carried: dict[str, tuple[str, _SentContent]] = {}
        tasks: list[Task] = []
        failed: list[AttemptResult] = []
        for task in batch.tasks:
            if batch.number not in self._open:
                break
            try:
                inputs = tuple([self._input(each, batch.number, carried) for each in task.inputs])
            except OSError as error:
                text = f"the input {error.filename or ''} cannot be sent to a worker: {error.strerror or error}"
                failed += _failed(task, StorageError(text))
            except StorageError as error:
                text = f"its inputs could not be sent: {error.where}: {error.text}"
                failed += _failed(task, TransferError(text, hint=error.hint))
            else:
                tasks.append(msgspec.structs.replace(task, inputs=inputs))
        if failed or not tasks:
            self._report().answered(BatchAnswer(batch.number, "", tuple(failed)), not tasks)
        if not tasks:
            self._end(batch.number)
        elif batch.number in self._open:
            contents = tuple(CarriedContent(path, len(kept.pieces)) for path, kept in carried.values())
            pieces = [piece for _, kept in carried.values() for piece in kept.pieces]
            self._engine.submit(Batch(batch.number, tuple(tasks), contents), name, workers, pieces)
        else:
            self._end(batch.number)

    def _input(self, each: Input, number: int, carried: dict[str, tuple[str, _SentContent]]) -> Input:
        handle = each.handle
        if handle is None or handle.kind not in _FILE_KINDS:
            return each
        if handle.location not in carried:
            name = os.path.basename(handle.location)  # noqa: PTH119
            path = f"contents/{number}/{len(carried)}/{name}"
            carried[handle.location] = path, self._sent(handle.location, number)
        path = carried[handle.location][0]
        return msgspec.structs.replace(each, handle=msgspec.structs.replace(handle, location=path))

    def _sent(self, path: str, number: int) -> _SentContent:
        """Return the pieces of a content; send them if they were not sent before."""
        identity = identity_of(path)
        with self._lock:
            kept = self._kept.get(identity)
        if kept is None:
            kept = _SentContent([], 0)

            def put(data: bytes) -> None:
                kept.pieces.append(self.put(data))
                kept.size += len(data)

            try:
                pack(path, put)
            except BaseException:
                self._remove(kept.pieces)
                raise
        with self._lock:
            kept.used_by.add(number)
            self._kept[identity] = kept
            self._kept.move_to_end(identity)
            excess = (
                sum(kept_content.size for kept_content in self._kept.values() if not kept_content.used_by) - _KEPT_BYTES
            )
            removed = [(key, kept_content) for key, kept_content in self._kept.items() if not kept_content.used_by]
            gone = []
            for key, kept_content in removed:
                if excess > 0:
                    gone.append(self._kept.pop(key))
                    excess -= kept_content.size
        self._remove(piece for content in gone for piece in content.pieces)
        return kept

    def _remove(self, pieces: Iterable[object]) -> None:
        """Remove blobs from the store. Objects of an engine are removed when nothing refers to them."""
        for piece in pieces:
            if self._store is not None and isinstance(piece, Blob):
                self._store.remove(piece.url)

    def _answered(self, answer: BatchAnswer, is_last: bool) -> None:  # noqa: FBT001 - called by the engine
        if not self.is_needed:
            self._report().answered(answer, is_last)
        else:
            self._run(self._receiver, answer.number, lambda: self._receive(answer, is_last=is_last))

    def _receive(self, answer: BatchAnswer, *, is_last: bool) -> None:
        """Write outputs and logs, and report the results."""
        assert self._spec is not None  # it has been started
        for log in answer.logs:
            with contextlib.closing(DropLog(f"{self._spec.directory}/logs", log.oid, self._spec.log_limit)) as written:
                written.write_bytes(log.text)
        contents = dict(answer.contents)
        results = [self._with_outputs(result, contents) for result in answer.results]
        self._remove(piece for pieces in contents.values() for piece in pieces)
        failed = any(attempt.failure is not None and attempt.failure.code == TransferError.code for attempt in results)
        is_open = self._end(answer.number, is_gone=failed) if is_last else answer.number in self._open
        if is_open:
            self._report().answered(
                msgspec.structs.replace(answer, results=tuple(results), contents=(), logs=()), is_last
            )
        else:
            for result in results:
                self._discard(result)

    def _with_outputs(self, result: AttemptResult, contents: dict[str, tuple[Piece, ...]]) -> AttemptResult:
        """Return a result with the paths of its contents on this host."""
        assert self._spec is not None  # as above
        handles = dict(result.handles)
        try:
            for number, (drop, handle) in enumerate(result.handles.items()):
                if handle.kind not in _FILE_KINDS:
                    continue
                final = handle.final
                if final and not final.startswith("/"):
                    final = f"{self._spec.directory}/{final}"
                part = self._workspace.part_name(result.drop, result.attempt, f"fetched-{number}")
                path = part_for(self._workspace, part, final)
                handles[drop] = msgspec.structs.replace(handle, location=path, final=final)
                unpack(_received(contents[handle.location]), path, handle.checksum)
                if self._spec.durable and handle.kind != "directory":
                    force_to_disk(path)
        except (DropflowError, OSError) as error:
            self._discard(msgspec.structs.replace(result, handles=handles))
            if isinstance(error, OSError):
                text = f"an output cannot be written here: {error.strerror or error}"
                error = StorageError(text, where=str(error.filename or ""))
            return msgspec.structs.replace(result, handles={}, skipped=(), failure=Failure.of(error))
        return msgspec.structs.replace(result, handles=handles)

    def _discard(self, result: AttemptResult) -> None:
        """Remove the contents of a result here."""
        for handle in result.handles.values():
            if handle.kind in _FILE_KINDS and handle.location.startswith("/"):
                remove_part(handle.location)

    def _lost(self, number: int, why: str) -> None:
        if not self.is_needed or self._end(number, is_gone=True):
            self._report().lost(number, why)

    def _end(self, number: int, *, is_gone: bool = False) -> bool:
        """Forget a batch, and its objects if a lost worker may have had them; return whether the batch was known."""
        with self._lock:
            used = [(key, content) for key, content in self._kept.items() if number in content.used_by]
            for key, content in used:
                content.used_by.discard(number)
                if is_gone:
                    self._given_up.append(self._kept.pop(key))
            for content in self._given_up:
                content.used_by.discard(number)
            unused = [piece for content in self._given_up if not content.used_by for piece in content.pieces]
            self._given_up = [content for content in self._given_up if content.used_by]
            is_known = number in self._open
            self._open.discard(number)
        if unused:
            with contextlib.suppress(RuntimeError):  # the pool is closed, and the store is emptied
                self._sender.submit(self._remove, unused)
        return is_known

    def _report(self) -> EngineEvents:
        assert self._events is not None  # it has been started
        return self._events


def _received(pieces: Iterable[Piece]) -> Iterator[bytes]:
    """Yield the pieces of an output. An error of the store does not count as a failure of the attempt."""
    try:
        yield from _bytes_of(pieces)
    except StorageError as error:
        text = f"its outputs could not be fetched: {error.where}: {error.text}"
        raise TransferError(text, hint=error.hint) from error


def _failed(task: Task, error: DropflowError) -> list[AttemptResult]:
    return [AttemptResult(task.drop, task.attempt, failure=Failure.of(error)), *not_begun(task.then)]


# The side of a worker.


class OwnDirectory:
    """A new private directory of a worker of an engine for one session, as long as this object is open.

    Directories of processes that were killed are removed: their locks are free.

    Parameters
    ----------
    base : str
        Parent directory; empty for the directory of temporary files.
    store : str
        URL of the session's directory in a store, if outputs go by a store; else empty. The store is tried.

    Raises
    ------
    StorageError
        The directory cannot be made, or the store cannot be used.
    """

    def __init__(self, base: str = "", store: str = "") -> None:
        self._store = ContentStore(store, is_new=False) if store else None
        if self._store is not None:
            self._store.probe()
        parent = private_directory(Path(base or tempfile.gettempdir(), f"dropflow-{os.geteuid()}"))
        _sweep(parent)
        self.path = str(parent / secrets.token_hex(8))
        self._oids: dict[AttemptKey, str] = {}
        try:
            for path in (self.path, *(f"{self.path}/{name}" for name in _DIRECTORIES)):
                os.mkdir(path, 0o700)  # noqa: PTH102
            # Locked before it has its name: another process that starts now would remove the directory.
            unnamed, lock = f"{self.path}/{_DIRECTORY_LOCK}.new", f"{self.path}/{_DIRECTORY_LOCK}"
            self._lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(unnamed, lock)  # noqa: PTH104
        except OSError as error:
            raise StorageError(f"the directory cannot be made: {error.strerror}", where=self.path) from error

    def spec(self, spec: ExecutorSpec) -> ExecutorSpec:
        """Return the specification of executors in this directory."""
        return msgspec.structs.replace(spec, directory=self.path, is_detached=True, durable=False)

    def incoming(self, batch: Batch, pieces: Sequence[Piece]) -> tuple[list[Task], list[AttemptResult]]:
        """Unpack the inputs of a batch; return its attempts with their paths here, or their failures."""
        self._oids.update(
            ((member.drop, member.attempt), member.oid) for task in batch.tasks for member in members(task)
        )
        left = iter(pieces)
        try:
            for content in batch.contents:
                path = f"{self.path}/{content.path}"
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)  # noqa: PTH103, PTH120
                unpack(_bytes_of([next(left) for _ in range(content.pieces)]), path)
        except (OSError, StorageError) as error:
            text = error.strerror or str(error) if isinstance(error, OSError) else f"{error.where}: {error.text}"
            hint = "see the disk of that host" if isinstance(error, OSError) else error.hint
            problem = TransferError(f"its inputs could not be written on a worker: {text}", hint=hint)
            return [], [result for task in batch.tasks for result in _failed(task, problem)]
        return [self._moved(task) for task in batch.tasks], []

    def outgoing(self, answer: BatchAnswer) -> BatchAnswer:
        """Return the last answer for a batch with relative paths, contents and logs, which are removed here."""
        left = _MOST_BYTES
        results, contents, logs = [], [], []
        for result in answer.results:
            sent: list[tuple[str, tuple[Piece, ...]]] = []
            try:
                handles = dict(result.handles)
                for drop, handle in result.handles.items():
                    if handle.kind in _FILE_KINDS:
                        path, pieces = self._relative(handle.location), self._packed(handle.location, left)
                        left -= sum(len(piece) for piece in pieces if isinstance(piece, bytes))
                        handles[drop] = msgspec.structs.replace(
                            handle, location=path, final=self._relative(handle.final)
                        )
                        sent.append((path, pieces))
                results.append(msgspec.structs.replace(result, handles=handles))
                contents += sent
            except DropflowError as error:
                results.append(msgspec.structs.replace(result, handles={}, skipped=(), failure=Failure.of(error)))
            logs += self._log(result)
        for result in answer.results:
            for handle in result.handles.values():
                if handle.kind in _FILE_KINDS:
                    _remove(handle.location)
        return msgspec.structs.replace(answer, results=tuple(results), contents=tuple(contents), logs=tuple(logs))

    def end(self, number: int) -> None:
        """Remove the inputs of a batch."""
        _remove(f"{self.path}/contents/{number}")

    def close(self) -> None:
        """Remove the directory. Idempotent."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def _moved(self, task: Task) -> Task:
        return msgspec.structs.replace(
            task,
            inputs=tuple(
                msgspec.structs.replace(each, handle=self._absolute(each.handle)) if each.handle is not None else each
                for each in task.inputs
            ),
        )

    def _absolute(self, handle: Handle) -> Handle:
        is_carried = handle.kind in _FILE_KINDS and not handle.location.startswith("/")
        return msgspec.structs.replace(handle, location=f"{self.path}/{handle.location}") if is_carried else handle

    def _relative(self, path: str) -> str:
        """Return a path in this directory relative to it, as in the session directory; any other path unchanged."""
        return path.removeprefix(f"{self.path}/")

    def _packed(self, path: str, most: int) -> tuple[Piece, ...]:
        """Return the pieces of an output."""
        pieces: list[Piece] = []
        left = most

        def put(data: bytes) -> None:
            nonlocal left
            left -= len(data)
            if self._store is None and left < 0:
                text = f"the outputs of a batch have more than {_MOST_BYTES >> 20:,} MiB, which do not go by the engine"
                hint = "have its workers see the session directory, or add ,contents=URL of a store to --runner"
                raise StorageError(text, where=path, hint=hint)
            pieces.append(data if self._store is None else Blob(self._store.put(data)))

        try:
            pack(path, put)
        except OSError as error:
            raise StorageError(f"an output cannot be read: {error.strerror}", where=path) from error
        except StorageError as error:
            if error.where == path:
                raise
            text = f"its outputs could not be fetched: {error.where}: {error.text}"
            raise TransferError(text, hint=error.hint) from error
        return tuple(pieces)

    def _log(self, result: AttemptResult) -> list[AttemptLog]:
        """Return the log of an attempt, if it has one, and remove it: the next attempt of the drop begins a new log."""
        oid = self._oids.pop((result.drop, result.attempt), None)
        path = Path(self.path, "logs", f"{drop_file_name(oid or '')}.log")
        with contextlib.suppress(OSError):
            text = path.read_bytes()
            path.unlink()
            return [AttemptLog(result.drop, result.attempt, oid or "", text)]
        return []


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108


def _sweep(parent: Path) -> None:
    """Remove the directories of processes that have ended."""
    for path in parent.iterdir():
        with contextlib.suppress(OSError):
            descriptor = os.open(path / _DIRECTORY_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
