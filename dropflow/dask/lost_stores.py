"""Tasks of `dask.array.store` that do not store where they should if they run in other processes.

An array of the client is a copy there, and dask's locks do not hold between processes: two tasks that write into one
HDF5 file, or into one chunk or shard of a zarr array, at the same time would damage it. On nodes, a relative path leads
elsewhere.

The tasks of `stores_here` run in the process of the client, after the others have computed what they store; those of
`refuse_lost_stores` are refused.
"""

import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from dask._task_spec import _execute_subgraph
from dask.task_spec import DataNode, GraphNode, Task, TaskRef
from dask.utils import SerializableLock

from dropflow.errors import AppError

__all__ = ["is_store", "refuse_lost_stores", "stores_here"]

_STORE = ("dask.array.core", "load_store_chunk")
_LOCKS = (SerializableLock, type(threading.Lock()), type(threading.RLock()))
"""Those that hold in one process only."""
_FILES = ("h5py", "netCDF4", "xarray")
"""Packages whose objects, and locks, are open files of this process."""
_VALUES = "-values"


def is_store(node: Any) -> bool:
    """Return whether a task stores a chunk. Tasks of a template are alike, so one of them tells."""
    return next(_stores(node, {}), None) is not None


def stores_here(nodes: Mapping[Hashable, Any]) -> tuple[Mapping[Hashable, Any], set[Hashable]]:
    """Return a graph, and the keys of it that the process of the client has to compute.

    They store chunks in arrays in its memory, or in files that only one process at a time may write, and they need what
    such tasks return. If a task also computes what it stores, the graph that is returned has two in its place.
    """
    stores: set[Hashable] = set()
    names: dict[Hashable, bool] = {}
    for key, node in nodes.items():
        name = key[0] if isinstance(key, tuple) else key
        is_one = names.get(name)
        if is_one is None:
            is_one = names[name] = any(_is_here(task, values) for task, values in _stores(node, nodes))
        if is_one:
            stores.add(key)
    if not stores:
        return nodes, stores
    found = dict(nodes)
    for key in stores:
        found.update(_divided(key, nodes[key]))
    readers: dict[Hashable, list[Hashable]] = {}
    for key, node in found.items():
        for other in node.dependencies:
            readers.setdefault(other, []).append(key)
    left, here = list(stores), set(stores)
    while left:
        more = [key for key in readers.get(left.pop(), ()) if key not in here]
        here.update(more)
        left += more
    return found, here


def _is_here(task: Task, known: Mapping[Hashable, Any]) -> bool:
    """Return whether a task that stores a chunk has to do so in this process."""
    target, lock = _value(task.args[1], known), _keyword(task, "lock", known)
    if _is_in_memory(target) or isinstance(lock, _LOCKS) or _unit(target) is not None:
        # Tasks that write whole chunks of zarr arrays need no lock.
        return _is_in_memory(target) or _unit(target) is None
    if any(one.__module__.partition(".")[0] in _FILES for one in (type(target), type(lock))):
        return True
    try:
        cloudpickle.dumps((target, lock))
    except Exception:  # noqa: BLE001 - whatever its class raises
        return True
    return False


def _divided(key: Hashable, node: Any) -> Mapping[Hashable, Any]:
    """Return the tasks for one that computes a value and stores it: as one task, if that cannot be divided."""
    block = _unwrapped(node)
    if block.func is not _execute_subgraph:
        return {key: node}
    tasks, end, names, *given = block.args
    store = next(one for one, task in tasks.items() if next(_stores(task, {}), None) is not None)
    after, size = {store}, 0
    while size < len(after):
        size = len(after)
        after |= {one for one, task in tasks.items() if not after.isdisjoint(task.dependencies)}
    before = {one: task for one, task in tasks.items() if one not in after and not isinstance(task, DataNode)}
    needed = {one for row in after for one in tasks[row].dependencies if one in before}
    if len(needed) != 1:
        return {key: node}
    (value,) = needed
    name = (f"{key[0]}{_VALUES}", *key[1:]) if isinstance(key, tuple) else f"{key}{_VALUES}"
    constants = {one: task for one, task in tasks.items() if isinstance(task, DataNode)}
    rest = {one: tasks[one] for one in after}
    return {
        name: _block(name, {**constants, **before}, value, zip(names, given, strict=True)),
        key: _block(key, {**constants, **rest}, end, [*zip(names, given, strict=True), (value, TaskRef(name))]),
    }


def _block(key: Hashable, tasks: Mapping[Hashable, Any], end: Hashable, given: Iterable[tuple[Hashable, Any]]) -> Task:
    """Return a task of several ones, with those of the given values that they need."""
    needed = {one for task in tasks.values() for one in task.dependencies}
    used = [(name, value) for name, value in given if name in needed]
    return Task(
        key, _execute_subgraph, dict(tasks), end, tuple(name for name, _ in used), *(value for _, value in used)
    )


def refuse_lost_stores(nodes: Sequence[Any], known: Mapping[Hashable, Any], *, is_elsewhere: bool = True) -> None:
    """Refuse tasks whose effect would be lost, or a part of it.

    Parameters
    ----------
    nodes : sequence
        What a dask graph has for the tasks of one template, which may be fused from others.
    known : mapping
        The constants of the graph, by key.
    is_elsewhere : bool
        Whether they run in another directory than this process.

    Raises
    ------
    AppError
        A task writes a chunk into a zarr array with a relative path, which is another one elsewhere; or several tasks
        may write into one chunk of a zarr array.
    """
    for node in nodes:
        for task, values in _stores(node, known):
            target = _value(task.args[1], values)
            if is_elsewhere and (path := _relative_path(target)):
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
    node = _unwrapped(node)
    if not isinstance(node, Task):
        return
    if node.func is _execute_subgraph:
        tasks, _end, names, *given = node.args
        inside = dict(zip(names, (_value(one, known) for one in given), strict=True))
        for task in tasks.values():
            yield from _stores(task, inside)
    elif (getattr(node.func, "__module__", ""), getattr(node.func, "__name__", "")) == _STORE:
        yield node, known


def _unwrapped(node: Any) -> Any:
    """Return a task without those around it that return its value, which dask adds to give it another key."""
    while isinstance(node, Task) and len(node.args) == 1 and isinstance(node.args[0], Task) and not node.kwargs:
        if getattr(node.func, "__name__", "") != "_identity":
            break
        node = node.args[0]
    return node


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
