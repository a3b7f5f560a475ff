"""Batches and answers in a worker that has a directory of its own: which paths they have on the way."""

import contextlib
import os
import threading
from collections.abc import Sequence

import msgspec

from dropflow.engine.api import AttemptResult, ExecutorSpec, Handle, Task
from dropflow.engine.chained_tasks import members
from dropflow.engine.external.engine import AttemptKey, AttemptLog, BatchAnswer
from dropflow.engine.external.listed_content import ContentEntry
from dropflow.engine.external.sent_inputs import FILE_KINDS
from dropflow.engine.external.worker_files import WorkerFiles
from dropflow.errors import DropflowError
from dropflow.failure import Failure
from dropflow.ids import drop_file_name

__all__ = ["OwnDirectory"]


class _Exported(msgspec.Struct, frozen=True):
    """A result as it leaves the worker."""

    result: AttemptResult
    listings: tuple[tuple[str, tuple[ContentEntry, ...]], ...]
    log: AttemptLog | None


class OwnDirectory:
    """The directory of a worker of an engine for one session.

    Parameters
    ----------
    base : str
        Where it is made; empty for the directory of temporary files.

    Raises
    ------
    StorageError
        It cannot be made.
    """

    def __init__(self, base: str = "") -> None:
        self._files = WorkerFiles(base)
        self._number = 0
        # Results are exported once, in any thread of the engine.
        self._lock = threading.Lock()
        self._exported: dict[int, dict[AttemptKey, _Exported]] = {}
        self._oids: dict[AttemptKey, str] = {}

    def spec(self, spec: ExecutorSpec) -> ExecutorSpec:
        """Return what executors here are built from."""
        return msgspec.structs.replace(spec, directory=self._files.path, is_detached=True, durable=False)

    def serve(self, data: bytes) -> bytes:
        """Do what the session asks for; see `WorkerFiles.serve`."""
        return self._files.serve(data)

    def incoming(self, number: int, tasks: Sequence[Task]) -> list[Task]:
        """Return attempts of a batch with the paths that their inputs have here."""
        with self._lock:
            self._exported[number] = {}
            self._oids.update(((one.drop, one.attempt), one.oid) for task in tasks for one in members(task))
        return [self._moved(task) for task in tasks]

    def outgoing(self, answer: BatchAnswer) -> BatchAnswer:
        """Return an answer with relative paths, listings and logs."""
        with self._lock:
            known = self._exported.setdefault(answer.number, {})
            for result in answer.results:
                key = result.drop, result.attempt
                if key not in known:
                    known[key] = self._export(result)
            found = [known[result.drop, result.attempt] for result in answer.results]
        return msgspec.structs.replace(
            answer,
            results=tuple(one.result for one in found),
            listings=tuple(listing for one in found for listing in one.listings),
            logs=tuple(one.log for one in found if one.log is not None),
        )

    def end(self, number: int) -> None:
        """Forget a batch that has ended."""
        with self._lock:
            for key in self._exported.pop(number, {}):
                self._oids.pop(key, None)

    def close(self) -> None:
        """Remove the directory. Idempotent."""
        self._files.close()

    def _moved(self, task: Task) -> Task:
        inputs = tuple(
            msgspec.structs.replace(each, handle=self._absolute(each.handle))
            if each.handle is not None and each.handle.kind in FILE_KINDS
            else each
            for each in task.inputs
        )
        return msgspec.structs.replace(task, inputs=inputs)

    def _absolute(self, handle: Handle) -> Handle:
        return msgspec.structs.replace(handle, location=self._files.absolute(handle.location))

    def _export(self, result: AttemptResult) -> _Exported:
        listings = []
        handles = dict(result.handles)
        try:
            for drop, handle in result.handles.items():
                if handle.kind in FILE_KINDS:
                    entries = self._files.listing(handle.location)
                    location, final = self._files.relative(handle.location), self._files.relative(handle.final)
                    handles[drop] = msgspec.structs.replace(handle, location=location, final=final)
                    listings.append((location, entries))
        except DropflowError as error:
            result = msgspec.structs.replace(result, failure=Failure.of(error), skipped=())
            handles, listings = {}, []
        return _Exported(msgspec.structs.replace(result, handles=handles), tuple(listings), self._log(result))

    def _log(self, result: AttemptResult) -> AttemptLog | None:
        """Return the log of an attempt, which is moved away: that of another attempt of the drop is a new one."""
        oid = self._oids.get((result.drop, result.attempt))
        if oid is None:
            return None
        self._number += 1
        path = f"tmp/log-{self._number}"
        with contextlib.suppress(OSError):  # it has none
            os.rename(f"{self._files.path}/logs/{drop_file_name(oid)}.log", self._files.absolute(path))  # noqa: PTH104
            (entry,) = self._files.listing(path)
            return AttemptLog(result.drop, result.attempt, oid, path, entry.size)
        return None
