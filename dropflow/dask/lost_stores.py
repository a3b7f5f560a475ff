"""Tasks of `dask.array.store` that would lose what they store, because they run in several processes.

An array of the client is a copy in another process, and a relative path leads elsewhere there. And dask's locks do not
hold between processes, so that two tasks which write into one chunk, or one shard, of a zarr array at the same time
overwrite each other's values.
"""

import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from dask._task_spec import _execute_subgraph
from dask.task_spec import DataNode, GraphNode, Task, TaskRef
from dask.utils import SerializableLock

from dropflow.errors import AppError

__all__ = ["is_store", "refuse_lost_stores"]

_STORE = ("dask.array.core", "load_store_chunk")
_LOCKS = (SerializableLock, type(threading.Lock()), type(threading.RLock()))
"""Those that hold in one process only."""


def is_store(node: Any) -> bool:
    """Return whether a task stores a chunk. Tasks of a template are alike, so one of them tells."""
    return next(_stores(node, {}), None) is not None


def refuse_lost_stores(nodes: Sequence[Any], known: Mapping[Hashable, Any]) -> None:
    """Refuse tasks whose effect would be lost, or a part of it.

    Tasks that also return what they have stored in an array of the client are not refused: their values are right.

    Parameters
    ----------
    nodes : sequence
        What a dask graph has for the tasks of one template, which may be fused from others.
    known : mapping
        The constants of the graph, by key.

    Raises
    ------
    AppError
        A task writes a chunk into an array of this process, into a zarr array in its memory or with a relative path; or
        several tasks may write into one chunk of a zarr array.
    """
    for node in nodes:
        for task, values in _stores(node, known):
            target = _value(task.args[1], values)
            if _is_in_memory(target) and not _keyword(task, "return_stored", values):
                raise AppError(
                    f"chunks cannot be stored in {_described(target)} of this process: tasks run in other processes, "
                    "and would write into copies",
                    hint="compute the array instead, store it in a zarr array with a path, or use the runner 'threads'",
                )
            if path := _relative_path(target):
                raise AppError(
                    f"chunks cannot be stored in the zarr array {_described(target)} at {path}, a relative path: tasks "
                    "run in the directories of other processes, and would write there",
                    hint=f"give an absolute path, such as {Path(path).absolute()}, which leads to the same directory "
                    "wherever tasks run, or use the runner 'threads'",
                )
            lock = _keyword(task, "lock", values)
            if len(nodes) > 1 and (not lock or isinstance(lock, _LOCKS)) and not _is_alone(task, target, values):
                unit = "shard" if getattr(target, "shards", None) else "chunk"
                raise AppError(
                    f"several tasks would write into one {unit} of the zarr array {_described(target)}: they run in "
                    "other processes, and overwrite each other's values there",
                    hint=f"rechunk the array to whole {unit}s, {_unit(target)}, or use the runner 'threads'",
                )


def _stores(node: Any, known: Mapping[Hashable, Any]) -> Iterator[tuple[Task, Mapping[Hashable, Any]]]:
    """Yield the tasks that store a chunk, with the values that they can refer to."""
    if not isinstance(node, Task):
        return
    if node.func is _execute_subgraph:
        tasks, _end, names, *given = node.args
        inside = dict(zip(names, (_value(one, known) for one in given), strict=True))
        for task in tasks.values():
            yield from _stores(task, inside)
    elif (getattr(node.func, "__module__", ""), getattr(node.func, "__name__", "")) == _STORE:
        yield node, known


def _value(argument: Any, known: Mapping[Hashable, Any]) -> Any:
    found = known.get(argument.key) if isinstance(argument, TaskRef) else argument
    return found.value if isinstance(found, DataNode) else None if isinstance(found, GraphNode) else found


def _keyword(task: Task, name: str, known: Mapping[Hashable, Any]) -> Any:
    return _value(task.kwargs.get(name), known)


def _is_in_memory(target: Any) -> bool:
    """Return whether this is an array of NumPy, which is pickled with its values, or one of zarr without a path."""
    store = getattr(target, "store", None)
    return isinstance(target, np.ndarray) or isinstance(store, dict) or type(store).__name__ == "MemoryStore"


def _relative_path(target: Any) -> str:
    """Return the path of a zarr array that is a file or a directory with a relative path; empty for others."""
    store = getattr(target, "store", None)
    path = getattr(store, "root", None) or getattr(store, "path", None)
    # The path of version 2 is a string, as those of stores in objects are.
    is_local = isinstance(path, Path) or any(one.__name__ == "DirectoryStore" for one in type(store).__mro__)
    return str(path) if is_local and path and not Path(path).is_absolute() else ""


def _is_alone(task: Task, target: Any, known: Mapping[Hashable, Any]) -> bool:
    """Return whether a task writes whole chunks, or shards, of a zarr array; True for other targets."""
    unit, index = _unit(target), _value(task.args[2], known)
    if unit is None or not isinstance(index, tuple):
        return True
    if region := _keyword(task, "region", known):
        from dask.array.optimization import fuse_slice  # noqa: PLC0415 - there are arrays

        index = fuse_slice(region, index)
    if len(index) != len(unit) or not all(isinstance(one, slice) for one in index):
        return True  # dask decides what else there is
    return all(
        start % length == 0 and (stop % length == 0 or stop == size)
        for (start, stop, _), length, size in zip(
            (one.indices(size) for one, size in zip(index, target.shape, strict=True)), unit, target.shape, strict=True
        )
    )


def _unit(target: Any) -> tuple[int, ...] | None:
    """Return the shape of what a zarr array writes as a whole; None for another object."""
    if not hasattr(target, "store"):
        return None
    found = getattr(target, "shards", None) or getattr(target, "chunks", None)
    return found if isinstance(found, tuple) else None


def _described(target: Any) -> str:
    return f"{target.dtype}{list(target.shape)}"
