"""Persisted chunks in the graph of a computation: which are wanted themselves, and which a session is to read."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from dask._task_spec import _execute_subgraph
from dask.task_spec import Alias, DataNode, Task, TaskRef

from dropflow.dask.lost_chunks import LostChunksError, ask_sessions, compute_again
from dropflow.dask.persisted import PersistedChunk
from dropflow.dask.translate import TranslatedGraph

__all__ = ["chunk_inputs", "described", "read_chunks", "wanted_chunks", "with_chunks_of"]


def wanted_chunks(nodes: Mapping[Hashable, Any], wanted: Iterable[Hashable]) -> dict[Hashable, PersistedChunk]:
    """Return the wanted keys whose values are persisted already, and their chunks."""
    found = {}
    for key in wanted:
        node, passed = nodes.get(key), {key}
        while isinstance(node, Alias) and node.target not in passed:
            passed.add(node.target)
            node = nodes.get(node.target)
        if isinstance(node, PersistedChunk):
            found[key] = node
    return found


def with_chunks_of(address: str, nodes: Mapping[Hashable, Any], wanted: Sequence[Hashable]) -> Mapping[Hashable, Any]:
    """Return the part of a graph that `wanted` needs, in which chunks at `address` are nodes, and no parts of tasks.

    Chunks that are elsewhere are fetched, and become constants. A graph in which a key is missing is returned as it is:
    its translation has an error for that.
    """
    left, needed = list(wanted), dict[Hashable, Any]()
    while left:
        key = left.pop()
        if key in needed:
            continue
        if key not in nodes:
            return nodes
        chunks: dict[Hashable, PersistedChunk] = {}
        node = needed[key] = _without_chunks(nodes[key], chunks)
        for name, chunk in chunks.items():
            needed.setdefault(name, chunk)
        left += [name for name in node.dependencies if name not in chunks]
    elsewhere = {
        key: node
        for key, node in needed.items()
        if isinstance(node, PersistedChunk) and node.session.source.address != address
    }
    for key, value in read_chunks(elsewhere).items():
        needed[key] = DataNode(key, value)
    return needed


def described(
    chunks: Mapping[Hashable, PersistedChunk], arrays: Mapping[str, tuple[tuple[tuple[int, ...], ...], np.dtype[Any]]]
) -> dict[Hashable, PersistedChunk]:
    """Return chunks with shape and data type, where those of their arrays are known: chunks and type, by name."""
    found = dict(chunks)
    for key, chunk in chunks.items():
        if isinstance(key, tuple) and key[0] in arrays and len(key) == len(arrays[key[0]][0]) + 1:
            sizes, dtype = arrays[key[0]]
            shape = tuple(axis[index] for axis, index in zip(sizes, key[1:], strict=True))
            if all(isinstance(size, int) for size in shape):
                found[key] = chunk.described(key, shape, dtype)
    return found


def read_chunks(chunks: Mapping[Hashable, PersistedChunk]) -> dict[Hashable, Any]:
    """Return the values of chunks, by the keys of the mapping; each session is asked once.

    Those that are lost are computed again, once.

    Raises
    ------
    GoneError
        One was released, or is lost and cannot be computed again.
    DropflowError
        One cannot be read.
    """
    try:
        return _read(chunks)
    except LostChunksError as error:
        compute_again(error)
        return _read(chunks)


def _read(chunks: Mapping[Hashable, PersistedChunk]) -> dict[Hashable, Any]:
    where = {key: chunk.where for key, chunk in chunks.items()}
    keys = {place: key for key, place in where.items()}
    found = ask_sessions(
        [(chunks[key], place) for key, place in where.items()],
        lambda session, rows: session.read({row: keys[session, row] for row in rows}),
    )
    return {key: found[session][row] for key, (session, row) in where.items()}


def chunk_inputs(tasks: TranslatedGraph) -> dict[int, PersistedChunk]:
    """Return the chunks that a graph reads, by their data drops.

    Raises
    ------
    GoneError
        One was released.
    """
    found = {
        tasks.tasks + row: node
        for row, node in enumerate(tasks.nodes[tasks.tasks :], start=tasks.tasks)
        if isinstance(node, PersistedChunk)
    }
    for chunk in found.values():
        chunk.session.check(chunk.key)
    return found


def _without_chunks(node: Any, chunks: dict[Hashable, PersistedChunk]) -> Any:
    """Return a node that refers to chunks by key where it contains them; note them in `chunks`.

    Dask does not put chunks into tasks; users, and tools that fuse tasks, may.
    """
    if not isinstance(node, Task):
        return node
    args: tuple[Any, ...] = tuple(_argument(item, chunks) for item in node.args)
    kwargs = {name: _argument(item, chunks) for name, item in node.kwargs.items()}
    if node.func is _execute_subgraph:
        args = _subgraph(args, chunks)
    is_same = len(args) == len(node.args) and all(map(_is, args, node.args))
    if is_same and all(kwargs[name] is item for name, item in node.kwargs.items()):
        return node
    made = copy(node)
    made.args, made.kwargs, made._token, made._repr = args, kwargs, None, None  # noqa: SLF001 - as below
    made._dependencies = frozenset(_needs([*args, *kwargs.values()]))  # noqa: SLF001 - as its constructor does
    return made


def _argument(item: Any, chunks: dict[Hashable, PersistedChunk]) -> Any:
    if isinstance(item, PersistedChunk):
        chunks[item.key] = item
        return TaskRef(item.key)
    return _without_chunks(item, chunks)


def _subgraph(args: tuple[Any, ...], chunks: dict[Hashable, PersistedChunk]) -> tuple[Any, ...]:
    """Return the arguments of a fused task: chunks within it become inputs."""
    inner, outkey, inkeys, *inputs = args
    changed = {key: _without_chunks(node, chunks) for key, node in inner.items()}
    found = {key: node for key, node in changed.items() if isinstance(node, PersistedChunk)}
    if not found and all(changed[key] is node for key, node in inner.items()):
        return args
    chunks.update(found)
    added = [key for key in chunks if key in found or any(key in node.dependencies for node in changed.values())]
    added = [key for key in added if key not in inkeys]
    rest = {key: node for key, node in changed.items() if key not in found}
    return rest, outkey, (*inkeys, *added), *inputs, *(TaskRef(key) for key in added)


def _needs(items: Iterable[Any]) -> Iterable[Hashable]:
    for item in items:
        if isinstance(item, TaskRef):
            yield item.key
        else:
            yield from getattr(item, "dependencies", ())


def _is(one: object, other: object) -> bool:
    return one is other
