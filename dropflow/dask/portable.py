"""A translated dask graph for other processes: its templates carry the code of their tasks."""

import os
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import msgspec
import numpy as np
from dask._task_spec import _execute_subgraph
from dask.core import convert_legacy_graph
from dask.task_spec import DataNode, GraphNode, Task, TaskRef
from dask.utils import SerializableLock

from dropflow.dask.lost_chunks import chunk_inputs, with_chunks_of
from dropflow.dask.translate import TranslatedGraph, layer_volumes, translate, with_fused_chains, with_parts
from dropflow.dask_tasks.task_app import DASK_TASK, KEYS_FIELD, TASKS_FIELD
from dropflow.dask_tasks.task_pages import TaskEntry, encode_pages
from dropflow.dask_tasks.value_encoding import read_value
from dropflow.data.kept_content import KEPT_CONTENT, KeptContent, kept_contents_field
from dropflow.errors import AppError, BadFileError, BadParameterError
from dropflow.failure import summary_of
from dropflow.graph.build import from_columns
from dropflow.graph.codec import save
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Argument, Kind, Link
from dropflow.graph.text_ids import oid, oids
from translator.plan.machines import Machines, NodeCapacity

_STORE = ("dask.array.core", "load_store_chunk")
_LOCKS = (SerializableLock, type(threading.Lock()), type(threading.RLock()))
"""Those that hold in one process only."""
_FILES = ("h5py", "netCDF4", "xarray")
"""Packages whose objects, and locks, are open files of this process."""
_VALUES = "-values"
_KEPT = "~kept"

# Tasks of `dask.array.store` that do not store where they should if they run in other processes.
#
# An array of the client is a copy there, and dask's locks do not hold between processes: two tasks that write into one
# HDF5 file, or into one chunk or shard of a zarr array, at the same time would damage it. On nodes, a relative path
# leads elsewhere.
#
# The tasks of `stores_here` run in the process of the client, after the others have computed what they store; those of
# `refuse_lost_stores` are refused.


def is_store(node: Any) -> bool:
    """Return whether a task stores a chunk. Tasks of a template are alike: one of them decides for all."""
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
    divided = dict(nodes)
    for key in stores:
        divided.update(_divided(key, nodes[key]))
    readers: dict[Hashable, list[Hashable]] = {}
    for key, node in divided.items():
        for other in node.dependencies:
            readers.setdefault(other, []).append(key)
    left, here = list(stores), set(stores)
    while left:
        more = [key for key in readers.get(left.pop(), ()) if key not in here]
        here.update(more)
        left += more
    return divided, here


def _is_here(task: Task, known: Mapping[Hashable, Any]) -> bool:
    """Return whether a task that stores a chunk has to do so in this process."""
    target, lock = _value(task.args[1], known), _keyword(task, "lock", known)
    if _is_in_memory(target) or isinstance(lock, _LOCKS) or _unit(target) is not None:
        # Tasks that write whole chunks of zarr arrays need no lock.
        return _is_in_memory(target) or _unit(target) is None
    if any(part.__module__.partition(".")[0] in _FILES for part in (type(target), type(lock))):
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
    store = next(task_key for task_key, task in tasks.items() if next(_stores(task, {}), None) is not None)
    after, size = {store}, 0
    while size < len(after):
        size = len(after)
        after |= {task_key for task_key, task in tasks.items() if not after.isdisjoint(task.dependencies)}
    before = {
        task_key: task for task_key, task in tasks.items() if task_key not in after and not isinstance(task, DataNode)
    }
    needed = {dependency for row in after for dependency in tasks[row].dependencies if dependency in before}
    if len(needed) != 1:
        return {key: node}
    (value,) = needed
    name = (f"{key[0]}{_VALUES}", *key[1:]) if isinstance(key, tuple) else f"{key}{_VALUES}"
    constants = {task_key: task for task_key, task in tasks.items() if isinstance(task, DataNode)}
    rest = {task_key: tasks[task_key] for task_key in after}
    return {
        name: _block(name, {**constants, **before}, value, zip(names, given, strict=True)),
        key: _block(key, {**constants, **rest}, end, [*zip(names, given, strict=True), (value, TaskRef(name))]),
    }


def _block(key: Hashable, tasks: Mapping[Hashable, Any], end: Hashable, given: Iterable[tuple[Hashable, Any]]) -> Task:
    """Return a task of several ones, with those of the given values that they need."""
    needed = {dependency for task in tasks.values() for dependency in task.dependencies}
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
        inside = dict(zip(names, (_value(argument, known) for argument in given), strict=True))
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
    value = known.get(argument.key) if isinstance(argument, TaskRef) else argument
    return value.value if isinstance(value, DataNode) else None if isinstance(value, GraphNode) else value


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
    is_local = isinstance(path, Path) or any(base.__name__ == "DirectoryStore" for base in type(store).__mro__)
    return str(path) if is_local and path and not Path(path).is_absolute() else ""


def _is_alone(task: Task, target: Any, known: Mapping[Hashable, Any]) -> bool:
    """Return whether a task writes whole chunks, or shards, of a zarr array; True for other targets."""
    unit, index = _unit(target), _value(task.args[2], known)
    if unit is None or not isinstance(index, tuple):
        return True
    if region := _keyword(task, "region", known):
        from dask.array.optimization import fuse_slice  # noqa: PLC0415 - there are arrays

        index = fuse_slice(region, index)
    if len(index) != len(unit) or not all(isinstance(part, slice) for part in index):
        return True  # dask decides what else there is
    return all(
        start % length == 0 and (stop % length == 0 or stop == size)
        for (start, stop, _), length, size in zip(
            (part.indices(size) for part, size in zip(index, target.shape, strict=True)),
            unit,
            target.shape,
            strict=True,
        )
    )


def _unit(target: Any) -> tuple[int, ...] | None:
    """Return the shape of what a zarr array writes as a whole; None for another object."""
    if not hasattr(target, "store"):
        return None
    shape = getattr(target, "shards", None) or getattr(target, "chunks", None)
    return shape if isinstance(shape, tuple) else None


def _described(target: Any) -> str:
    return f"{target.dtype}{list(target.shape)}"


_MEMORY, _CATEGORY = "dlg.data.drops.memory.InMemoryDROP", "Memory"


def portable(tasks: TranslatedGraph, *, is_elsewhere: bool = True) -> PhysicalGraph:
    """Return a graph whose attempts can run in any process that has the modules that its tasks need.

    The drops are those of `tasks`, which has no constants (``runs_constants``). The values of wanted keys are kept,
    even if there are readers. Persisted chunks are contents of their sessions, in the places that they have now.

    Parameters
    ----------
    is_elsewhere : bool
        Whether tasks run in another directory than this process.

    Raises
    ------
    AppError
        A task cannot be pickled, or would lose what it stores.
    GoneError
        A persisted chunk was released.
    """
    graph = _with_kept(tasks.graph, _read_results(tasks))
    fields = _fields(tasks, graph, is_elsewhere=is_elsewhere)
    given = _given_contents(tasks, graph)
    templates = []
    for row, template in enumerate(graph.templates):
        if template.kind is Kind.APP:
            made = msgspec.structs.replace(template, component=DASK_TASK, arguments=fields[row])
        elif row in given:
            name, category = KEPT_CONTENT.dropclass, KEPT_CONTENT.category
            made = msgspec.structs.replace(template, component=name, category=category, arguments=(given[row],))
        else:
            made = msgspec.structs.replace(template, component=_MEMORY, category=_CATEGORY)
        templates.append(made)
    return replace(graph, templates=tuple(templates))


def _given_contents(tasks: TranslatedGraph, graph: PhysicalGraph) -> dict[int, Argument]:
    """Return the field of each template whose drops are persisted chunks."""
    chunks = chunk_inputs(tasks)
    drops = np.fromiter(chunks, dtype=np.int32, count=len(chunks))
    contents_of: dict[int, dict[str, KeptContent]] = {}
    for (drop, chunk), name in zip(chunks.items(), oids(graph, drops), strict=True):
        session, row = chunk.where
        place = session.places[row]
        content = KeptContent(session.name, row, place.oid, place.path, place.size, place.checksum)
        contents_of.setdefault(int(graph.template[drop]), {})[name] = content
    return {row: kept_contents_field(contents) for row, contents in contents_of.items()}


def _read_results(tasks: TranslatedGraph) -> IntColumn:
    """Return the data drops of wanted keys that have readers, ascending."""
    wanted = np.unique(np.fromiter(tasks.results.values(), dtype=np.int32))
    ptr = tasks.graph.successors.ptr
    return wanted[ptr[wanted] < ptr[wanted + 1]]


def _with_kept(graph: PhysicalGraph, kept: IntColumn) -> PhysicalGraph:
    """Return a graph in which these data drops have templates of their own, and persist."""
    if not len(kept):
        return graph
    templates = list(graph.templates)
    names = {template.key for template in templates}
    template = graph.template.copy()
    for row in np.unique(template[kept]).tolist():
        key = templates[row].key + _KEPT
        while key in names:
            key += "~"
        names.add(key)
        template[kept[graph.template[kept] == row]] = len(templates)
        templates.append(msgspec.structs.replace(templates[row], key=key, persist=True))
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(graph.successors.ptr))
    target = graph.successors.neighbour
    pairs, link = np.unique(template[source].astype(np.int64) * len(templates) + template[target], return_inverse=True)
    made = from_columns(
        name=graph.name,
        prefix=graph.prefix,
        templates=templates,
        links=[Link(source=pair // len(templates), target=pair % len(templates)) for pair in pairs.tolist()],
        template=template,
        instance=graph.instance,
        source=source,
        target=target,
        link=link,
        meta=graph.meta,
    )
    return replace(made, priority=graph.priority)


def _fields(tasks: TranslatedGraph, graph: PhysicalGraph, *, is_elsewhere: bool) -> dict[int, tuple[Argument, ...]]:
    """Return the fields of each application template."""
    count, template = tasks.tasks, graph.template
    inputs = _named_inputs(tasks, graph)
    order = np.lexsort((graph.instance[:count], template[:count]))
    ends = np.cumsum(np.bincount(template[:count], minlength=len(tasks.labels))).tolist()
    labels = _labels(tasks, graph)
    instance = graph.instance[:count].tolist()
    fields: dict[int, tuple[Argument, ...]] = {}
    start = 0
    for row, end in enumerate(ends):
        members = order[start:end].tolist()
        start = end
        nothing: dict[Any, Any] = {}
        entries = [
            TaskEntry(instance[drop], tasks.nodes[drop], *inputs.get(drop, (nothing, nothing))) for drop in members
        ]
        if entries and is_store(entries[0].node):
            refuse_lost_stores([entry.node for entry in entries], _constants(tasks), is_elsewhere=is_elsewhere)
        pages = encode_pages(entries, graph.templates[row].name)
        fields[row] = (
            Argument(name=TASKS_FIELD, type="Object", value=pages),
            Argument(name=KEYS_FIELD, type="Object", value=labels.get(row, {})),
        )
    return fields


def _constants(tasks: TranslatedGraph) -> dict[Hashable, DataNode]:
    return {key: node for key, node in zip(tasks.keys, tasks.nodes, strict=True) if isinstance(node, DataNode)}


def _labels(tasks: TranslatedGraph, graph: PhysicalGraph) -> dict[int, dict[str, str]]:
    """Return the first part of the keys of inputs, by the beginning of their ids, for each application template."""
    made = _group_of(tasks, graph)
    labels: dict[int, dict[str, str]] = {}
    for link in graph.links:
        if link.source in made and graph.templates[link.target].kind is Kind.APP and tasks.labels[made[link.source]]:
            head = f"{graph.prefix}_{graph.templates[link.source].key}"
            labels.setdefault(link.target, {})[head] = tasks.labels[made[link.source]]
    return labels


def _group_of(tasks: TranslatedGraph, graph: PhysicalGraph) -> dict[int, int]:
    """Return the application template whose tasks make the data of each data template."""
    return {link.target: link.source for link in graph.links if graph.templates[link.source].kind is Kind.APP} | {
        row: row - len(tasks.labels) for row in range(len(tasks.labels), 2 * len(tasks.labels))
    }


def _named_inputs(
    tasks: TranslatedGraph, graph: PhysicalGraph
) -> dict[int, tuple[Mapping[str, Hashable], Mapping[Hashable, Hashable]]]:
    """Return the keys of inputs that their ids do not tell, and aliases, of each task that has some."""
    plain = {row for row, label in enumerate(tasks.labels) if not label}
    count, keys = tasks.tasks, tasks.keys
    if not plain and not tasks.aliases and len(keys) == count:
        return {}
    group = graph.template[:count]
    odd = np.flatnonzero(np.isin(group, np.fromiter(plain, dtype=np.int32))).astype(np.int32)
    # Persisted chunks have no task whose template has the name of their keys.
    odd = np.concatenate([odd, np.arange(count, len(keys), dtype=np.int32)])
    names = {keys[row]: name for row, name in zip(odd.tolist(), oids(graph, odd + count), strict=True)}
    named_of: dict[int, tuple[Mapping[str, Hashable], Mapping[Hashable, Hashable]]] = {}
    for drop in range(count):
        named: dict[str, Hashable] = {}
        aliases: dict[Hashable, Hashable] = {}
        for key in tasks.nodes[drop].dependencies:
            target = tasks.aliases.get(key, key)
            if target is not key and target != key:
                aliases[key] = target
            if target in names:
                named[names[target]] = target
        if named or aliases:
            named_of[drop] = (named, aliases)
    return named_of


# Computations of dask as graph files, which any client can submit, and values that were fetched as files.


def save_graph(
    path: str | os.PathLike[str], *collections: Any, nodes: int = 1, optimize_graph: bool = True
) -> tuple[Any, ...]:
    """Write the graph that computes collections to a file, as `scheduler` submits it to managers.

    Parameters
    ----------
    path : path
        The file, a ``.dfg`` container.
    *collections
        Collections of dask, and lists, tuples and dictionaries with some. Values of persisted chunks are fetched, and
        become constants of the graph.
    nodes : int
        Into how many parts of equal nodes it is divided.
    optimize_graph : bool
        Whether dask optimizes it.

    Returns
    -------
    tuple
        What ``dask.compute`` returns, with the id of a data drop in the place of each value.

    Raises
    ------
    BadParameterError
        The number of nodes is not positive.
    AppError
        A task cannot be pickled.
    StorageError
        The file cannot be written.
    """
    if nodes < 1:
        raise BadParameterError(f"the number of nodes is {nodes}", hint="give at least 1")

    def written(dsk: Any, keys: Any, **options: Any) -> list[str]:
        del options
        given = convert_legacy_graph(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
        fused = with_fused_chains(with_chunks_of("", given, keys), keys)
        tasks = translate(fused, keys, layer_volumes(dsk), runs_constants=True)
        graph = portable(tasks)
        if nodes > 1:
            graph = with_parts(graph, Machines(nodes=tuple(NodeCapacity(name=f"n{row}") for row in range(nodes))))
        save(graph, Path(path))
        return [oid(graph, tasks.results[key]) for key in keys]

    results: tuple[Any, ...] = dask.compute(*collections, scheduler=written, optimize_graph=optimize_graph)
    return results


def load_value(path: str | os.PathLike[str]) -> Any:
    """Return the value in a file that was fetched from a session of dask. It is unpickled: trust the session.

    Raises
    ------
    BadFileError
        It is not a value, or a module that it needs is missing here.
    OSError
        The file cannot be read.
    """
    with Path(path).open("rb") as stream:
        try:
            return read_value(stream)
        except Exception as problem:
            raise BadFileError(
                f"the file has no value that can be loaded: {summary_of(problem)}",
                where=str(path),
                hint="it is to be the content of a drop that dropflow.dask.save_graph named, and the modules of the "
                "value must be installed",
            ) from problem
