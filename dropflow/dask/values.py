"""Values of this process within a memory budget: what is needed last is written to files, and read back on use."""

import shutil
import tempfile
import threading
from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import dask
import numpy as np
from dask.sizeof import sizeof

from dropflow.dask.translate import TranslatedGraph
from dropflow.dask_tasks.value_encoding import encode_value, read_value
from dropflow.data.storage_errors import storage_errors
from dropflow.errors import StorageError

_SMALL = 4096
"""Bytes below which a value is not counted, and stays in memory: a file of its own would take as much."""
_SMALL_TYPES = frozenset({int, float, complex, bool, type(None), np.float32, np.float64, np.int64})
"""Types whose values are small. Asking dask for their sizes takes a hundredth of the time of a task."""


# The decision which values leave memory when they are more than a budget. No value and no file is touched here.


class MemoryBudget:
    """Bytes of values that are held, and which of them are needed last.

    A value whose next reader is furthest away in the order of execution leaves first (the rule of Belady, "A study of
    replacement algorithms for a virtual-storage computer", 1966). Results have no reader, and leave before all others.
    A value whose readers have all begun does not leave: it is released when they end.

    Parameters
    ----------
    limit : int
        Bytes.
    tasks : TranslatedGraph
        The graph. Its values are counted by the rows of their data drops.
    """

    def __init__(self, limit: int, tasks: TranslatedGraph) -> None:
        self._limit = limit
        self._sizes: dict[int, int] = {}
        """Bytes of each value that is held."""
        self.held = 0
        """Sum of them."""
        graph, self._first = tasks.graph, tasks.tasks
        self._end = tasks.tasks
        self._results = frozenset(tasks.results.values())
        assert graph.priority is not None  # `translate` always has them
        position = tasks.tasks - graph.priority
        source = np.repeat(np.arange(graph.drops), np.diff(graph.successors.ptr))
        is_read = source >= tasks.tasks
        source, reader = source[is_read], position[graph.successors.neighbour[is_read]]
        order = np.lexsort((reader, source))
        self._readers = np.ascontiguousarray(reader[order]).data
        ends = np.searchsorted(source[order], np.arange(tasks.tasks, graph.drops + 1))
        self._ptr, self._next = ends.tolist(), ends[:-1].tolist()
        """First reader of each value, and the first one that has not begun."""
        self._position = np.ascontiguousarray(position[: tasks.tasks]).data
        self._early: set[tuple[int, int]] = set()
        """Values, and readers of them that have begun before another one with an earlier place in the order."""
        self._queue: list[tuple[int, int]] = []
        """Heap of values with their next readers, negative. Entries that are out of date are skipped."""

    def add(self, drop: int, size: int) -> None:
        """Count a value, once if its task runs again."""
        self.remove(drop)
        self._sizes[drop] = size
        self.held += size
        self._enqueue(drop)

    def begin(self, task: int, drops: Collection[int]) -> None:
        """Note that a task begins, which reads these values."""
        position = self._position[task]
        for drop in drops:
            row = drop - self._first
            at, end = self._next[row], self._ptr[row + 1]
            if at == end:
                continue
            self._early.add((drop, position))
            while at < end and (drop, self._readers[at]) in self._early:
                self._early.discard((drop, self._readers[at]))
                at += 1
            if at != self._next[row]:
                self._next[row] = at
                if drop in self._sizes:
                    self._enqueue(drop)

    def remove(self, drop: int) -> None:
        """Count a value no more, if it is counted: it is released."""
        self.held -= self._sizes.pop(drop, 0)

    def leaving(self) -> list[int]:
        """Return the values that leave memory now. They are counted no more."""
        drops = []
        while self.held > self._limit and self._queue:
            place, drop = heappop(self._queue)
            if drop in self._sizes and -place == self._next_reader(drop):
                drops.append(drop)
                self.remove(drop)
        return drops

    def _enqueue(self, drop: int) -> None:
        place = self._next_reader(drop)
        if place >= 0:
            heappush(self._queue, (-place, drop))

    def _next_reader(self, drop: int) -> int:
        """Return the place of the next reader; the end for a result, and -1 for what is about to be released."""
        row = drop - self._first
        if self._next[row] < self._ptr[row + 1]:
            return int(self._readers[self._next[row]])
        return self._end if drop in self._results else -1


class HeldValue:
    """A value that is in memory, or in a file.

    Parameters
    ----------
    value : object
        The value.
    """

    __slots__ = ("_place",)

    def __init__(self, value: Any) -> None:
        # One attribute, so that a reader in another thread sees either the value or the file.
        self._place: tuple[Any, Path | None] = (value, None)

    @property
    def is_in_memory(self) -> bool:
        """Whether it is not in a file."""
        return self._place[1] is None

    def load(self) -> Any:
        """Return the value. Large arrays of one that is in a file are mapped, and may be written to.

        Raises
        ------
        StorageError
            The file cannot be read.
        """
        value, path = self._place
        if path is None:
            return value
        with storage_errors("read back", str(path)), path.open("rb") as stream:
            return read_value(stream)

    def move(self, path: Path) -> None:
        """Replace the value by a file that has it."""
        self._place = (None, path)


def value_of(content: Any) -> Any:
    """Return the value of a handle's content, which may be held in a `ValueMemory`."""
    return content.load() if type(content) is HeldValue else content


class ValueMemory:
    """The values of one computation. Those above the budget are in files of a temporary directory.

    Any thread may call it: the one that adds a value writes those that leave memory for it, and so waits for the disk.

    Parameters
    ----------
    limit : int
        Bytes of values in memory. What a running task reads is freed when it ends.
    tasks : TranslatedGraph
        The graph.
    """

    def __init__(self, limit: int, tasks: TranslatedGraph) -> None:
        self._budget = MemoryBudget(limit, tasks)
        self._values: dict[int, HeldValue] = {}
        self._lock = threading.Lock()
        """Guards budget and values: threads of tasks and that of the session call."""
        self._directory: Path | None = None
        self.written = 0
        """Bytes that were written to files."""

    def keep(self, drop: int, value: Any) -> Any:
        """Keep the value of a data drop, and return what `value_of` takes: a small value as it is, else a `HeldValue`.

        Others may be written to files for it, or itself.

        Raises
        ------
        StorageError
            The disk is full, for example.
        """
        if type(value) in _SMALL_TYPES or (size := sizeof(value)) < _SMALL:
            return value
        held = HeldValue(value)
        with self._lock:
            self._values[drop] = held
            self._budget.add(drop, size)
            leaving = [(dropped, self._values[dropped]) for dropped in self._budget.leaving()]
            if leaving and self._directory is None:
                self._directory = _temporary_directory()
        try:
            while leaving:
                self._write(*leaving[0])
                del leaving[0]
        except StorageError:
            with self._lock:  # they are in memory still
                for dropped, old in leaving:
                    if self._values.get(dropped) is old:
                        self._budget.add(dropped, sizeof(old.load()))
            raise
        return held

    def begin(self, task: int, drops: Sequence[int]) -> None:
        """Note that a task begins, which reads these values."""
        with self._lock:
            self._budget.begin(task, drops)

    def release(self, drop: int) -> None:
        """Forget a value after its last use, and remove its file."""
        with self._lock:
            self._budget.remove(drop)
            held = self._values.pop(drop, None)
        if held is not None and not held.is_in_memory:
            self._path(drop).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove all files. Values that were loaded from them stay. Idempotent."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _write(self, drop: int, held: HeldValue) -> None:
        try:
            pieces = encode_value(held.load())
        except Exception:  # noqa: BLE001 - pickles raise nearly anything; what cannot be pickled stays in memory
            return
        path = self._path(drop)
        try:
            with storage_errors("write", str(path)), path.open("wb") as stream:
                for piece in pieces:
                    stream.write(piece)
                size = stream.tell()
        except StorageError:
            path.unlink(missing_ok=True)
            raise
        with self._lock:
            self.written += size
            held.move(path)
            is_released = self._values.get(drop) is not held
        if is_released:
            path.unlink(missing_ok=True)

    def _path(self, drop: int) -> Path:
        assert self._directory is not None  # made before the first value is written
        return self._directory / str(drop)


def _temporary_directory() -> Path:
    parent = dask.config.get("temporary-directory", None)
    with storage_errors("make a directory in", str(parent or tempfile.gettempdir())):
        return Path(tempfile.mkdtemp(prefix="dropflow-dask-", dir=parent))
