"""Chunks of persisted collections that are lost after the end of their session: they are computed again.

A chunk keeps the tasks of its `persist` (`Recipe`), and a recipe those of the chunks that it began with, which may be
released. What is lost is computed from there, as one session. Chunks that still exist are read, and not computed again.
Afterwards all references to a lost chunk have the new content.
"""

import logging
import threading
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple, TypeVar

import numpy as np
from dask._task_spec import _execute_subgraph
from dask.task_spec import Alias, DataNode, GraphNode, Task, TaskRef

from dropflow.dask.persist import Hold, LostContentsError, PersistedChunk, PersistedSession
from dropflow.dask.translate import TranslatedGraph, translate
from dropflow.errors import GoneError
from dropflow.formatting import plural

_Answer = TypeVar("_Answer")

MOST_EARLIER_TASKS = 250_000
"""Most tasks of earlier collections that a recipe refers to. Beyond that, it keeps the chunks that it begins with."""

_log = logging.getLogger(__name__)

_LOCK = threading.RLock()
"""Held while chunks are computed again: another thread that needs them waits, and does not compute them, too."""
_ACTIVE: list[int] = []
"""Not empty while the thread that has `_LOCK` computes chunks again."""


class LostChunksError(GoneError):
    """Chunks of persisted collections are lost.

    Parameters
    ----------
    text, hint : str
        As in `dropflow.errors.DropflowError`.
    chunks : iterable of PersistedChunk
        The chunks that are lost.
    """

    code = "DF124"

    def __init__(self, text: str, *, chunks: Iterable[PersistedChunk], hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.chunks = [(chunk, chunk.where) for chunk in chunks]
        """Each with its session and drop: by the time that it is computed again, another thread may have done so."""

    @classmethod
    def of(
        cls, chunks: Iterable[PersistedChunk], lost: Mapping[PersistedSession, LostContentsError]
    ) -> "LostChunksError":
        """Return the error for those chunks whose contents are among the lost ones of sessions."""
        first = next(iter(lost.values()))
        more = f"; {plural(len(lost) - 1, 'other session')} lost chunks, too" if len(lost) > 1 else ""
        affected = [chunk for chunk in chunks if chunk.session in lost and chunk.row in lost[chunk.session].rows]
        return cls(first.text + more, chunks=affected, hint=first.hint)


def ask_sessions(
    chunks: Iterable[tuple[PersistedChunk, tuple[PersistedSession, int]]],
    ask: Callable[[PersistedSession, Collection[int]], _Answer],
) -> dict[PersistedSession, _Answer]:
    """Return what `ask` answers for each session that has chunks, and their drops there.

    Parameters
    ----------
    chunks : iterable of (PersistedChunk, (PersistedSession, int))
        The chunks, and where each is: another thread may replace that meanwhile.
    ask : callable
        Takes a session and drops.

    Raises
    ------
    LostChunksError
        `ask` has raised a `LostContentsError` for sessions; the others were asked all the same.
    """
    given = list(chunks)
    sessions: dict[PersistedSession, dict[int, None]] = {}
    for _, (session, row) in given:
        sessions.setdefault(session, {})[row] = None
    answers: dict[PersistedSession, _Answer] = {}
    lost: dict[PersistedSession, LostContentsError] = {}
    for session, rows in sessions.items():
        try:
            answers[session] = ask(session, rows)
        except LostContentsError as error:
            lost[session] = error
    if lost:
        raise LostChunksError.of([chunk for chunk, _ in given], lost)
    return answers


class _Earlier(NamedTuple):
    """A chunk that a recipe begins with: its own recipe, and its key there. It may be released."""

    recipe: "Recipe"
    key: Hashable


class Recipe:
    """The tasks of one `persist`, as they were executed.

    Parameters
    ----------
    tasks : TranslatedGraph
        The tasks.
    leave : callable
        Executes a graph, and leaves its results in a session.
    """

    def __init__(self, tasks: TranslatedGraph, leave: Callable[[TranslatedGraph], PersistedSession]) -> None:
        self.leave = leave
        self.nodes: dict[Hashable, Any] = dict(zip(tasks.keys, tasks.nodes, strict=True))
        self.nodes |= {key: Alias(key, target) for key, target in tasks.aliases.items()}
        self.holds: weakref.WeakValueDictionary[Hashable, Hold] = weakref.WeakValueDictionary()
        """Objects that keep results from being released, by key."""
        given = {key: node for key, node in self.nodes.items() if isinstance(node, PersistedChunk)}
        self.earlier = {node.recipe for node in given.values() if node.recipe is not None}
        """The recipes of the chunks that it begins with."""
        is_long = sum(len(recipe.nodes) for recipe in _all_earlier(self.earlier)) > MOST_EARLIER_TASKS
        if is_long:
            self.earlier = set()
        for key, node in given.items():
            if is_long or node.recipe is None or node.hold.origin is None:
                self.nodes[key] = PersistedChunk(key, *node.where)
            else:
                self.nodes[key] = _Earlier(node.recipe, node.hold.origin[1])

    def note(self, key: Hashable, chunk: PersistedChunk) -> None:
        """Note that a chunk has the value of a key."""
        self.holds[key] = chunk.hold
        chunk.hold.origin = weakref.ref(self), key
        chunk.recipe = self


def _all_earlier(recipes: Collection[Recipe]) -> set[Recipe]:
    """Return recipes, and all that they refer to."""
    earlier, left = set[Recipe](), list(recipes)
    while left:
        recipe = left.pop()
        if recipe not in earlier:
            earlier.add(recipe)
            left += recipe.earlier
    return earlier


def persisted_chunks(
    tasks: TranslatedGraph,
    session: PersistedSession,
    leave: Callable[[TranslatedGraph], PersistedSession] | None,
) -> dict[Hashable, PersistedChunk]:
    """Return references to the results of a graph, by key.

    Parameters
    ----------
    tasks : TranslatedGraph
        The graph.
    session : PersistedSession
        The session with the results.
    leave : callable, optional
        As in `Recipe`; without it, lost chunks are not computed again.
    """
    persisted = {key: PersistedChunk(key, session, drop) for key, drop in tasks.results.items()}
    if leave is not None:
        recipe = Recipe(tasks, leave)
        for chunk in persisted.values():
            recipe.note(tasks.keys[chunk.row - tasks.tasks], chunk)
    return persisted


def compute_again(error: LostChunksError) -> None:
    """Compute lost chunks again, and all others of the same `persist` that were on the same nodes, in one session.

    Chunks that it begins with may be lost, too: then they are computed in the same session.

    Raises
    ------
    LostChunksError
        There are no tasks for one; or this is called for the inputs of such a session, whose caller computes them, too.
    BaseException
        The exception of a task, or why the tasks cannot be executed.
    """
    with _LOCK:
        if _ACTIVE:
            raise error
        _ACTIVE.append(1)
        try:
            left = _found_lost(error)
            while left:
                try:
                    _compute(left, error)
                except LostChunksError as more:
                    added = {hold: recipe for hold, recipe in _found_lost(more).items() if hold not in left}
                    if not added:
                        raise
                    left |= added
        finally:
            _ACTIVE.clear()


def _found_lost(error: LostChunksError) -> dict[Hold, Recipe]:
    """Return the contents to compute again, with their tasks: none that was since the error was noticed.

    Raises
    ------
    LostChunksError
        There are no tasks for one that is needed: `error`.
    """
    nodes: dict[PersistedSession, set[str]] = {}
    for chunk, where in error.chunks:
        if chunk.where == where:
            if _recipe_of(chunk.hold) is None:
                raise error
            nodes.setdefault(chunk.session, set()).add(chunk.place.node)
    holds = (hold for session, names in nodes.items() for hold in session.holds_on(names))
    return {hold: recipe for hold in holds if (recipe := _recipe_of(hold)) is not None}


def _compute(left: dict[Hold, Recipe], error: LostChunksError) -> None:
    """Compute contents again: those of each scheduler in one session. What is done is removed from `left`."""
    groups: dict[Callable[[TranslatedGraph], PersistedSession], dict[Hold, Recipe]] = {}
    for hold, recipe in left.items():
        groups.setdefault(recipe.leave, {})[hold] = recipe
    for leave, group in groups.items():
        _log.warning("computing %s again: %s", plural(len(group), "persisted chunk"), error.text)
        nodes, wanted = _tasks_again(group, left)
        tasks = translate(nodes, wanted, {}, runs_constants=True)
        session = leave(tasks)
        for key, drop in tasks.results.items():
            session.adopt(drop, wanted[key])
            del left[wanted[key]]


def _recipe_of(hold: Hold) -> Recipe | None:
    return None if hold.origin is None else hold.origin[0]()


def _tasks_again(
    wanted: Mapping[Hold, Recipe], lost: Collection[Hold]
) -> tuple[dict[Hashable, Any], dict[Hashable, Hold]]:
    """Return a dask graph that computes contents again, and what keeps them, by key of the graph.

    Other contents that are not lost are read. Keys of different recipes may be the same, and mean different values:
    then one gets another name.
    """
    names: dict[_Earlier, Hashable] = {}
    taken: set[Hashable] = set()

    def name_of(task: _Earlier) -> Hashable:
        if task not in names:
            names[task] = _free(task.key, taken)
            taken.add(names[task])
        return names[task]

    nodes: dict[Hashable, Any] = {}
    starts = {_Earlier(recipe, hold.origin[1]): hold for hold, recipe in wanted.items() if hold.origin is not None}
    left = list(starts)
    while left:
        task = left.pop()
        key = name_of(task)
        if key in nodes:
            continue
        hold, node = task.recipe.holds.get(task.key), task.recipe.nodes[task.key]
        if hold is not None and hold not in lost:
            nodes[key] = PersistedChunk(key, *hold.where, recipe=task.recipe)
        elif isinstance(node, PersistedChunk):
            nodes[key] = node.renamed(key)
        elif isinstance(node, _Earlier):
            nodes[key] = Alias(key, name_of(node))
            left.append(node)
        else:
            needed = [_Earlier(task.recipe, other) for other in node.dependencies]
            nodes[key] = _renamed(node, key, {other.key: name_of(other) for other in needed})
            left += needed
    return nodes, {names[task]: hold for task, hold in starts.items()}


def _free(key: Hashable, taken: Collection[Hashable]) -> Hashable:
    """Return a key that no other task has: `key` itself, or with a number."""
    free, number = key, 1
    while free in taken:
        number += 1
        if isinstance(key, tuple) and key and isinstance(key[0], str):
            free = (f"{key[0]}~{number}", *key[1:])
        else:
            free = f"{key}~{number}"
    return free


def _renamed(node: GraphNode, key: Hashable, names: Mapping[Hashable, Hashable]) -> GraphNode:
    """Return a node that needs the same values under other keys."""
    if isinstance(node, Alias):
        return Alias(key, names[node.target])
    changed = {old: new for old, new in names.items() if old != new}
    return node.substitute(changed) if changed else node


# Persisted chunks in the graph of a computation: which are wanted themselves, and which a session is to read.


def wanted_chunks(nodes: Mapping[Hashable, Any], wanted: Iterable[Hashable]) -> dict[Hashable, PersistedChunk]:
    """Return the wanted keys whose values are persisted already, and their chunks."""
    persisted = {}
    for key in wanted:
        node, passed = nodes.get(key), {key}
        while isinstance(node, Alias) and node.target not in passed:
            passed.add(node.target)
            node = nodes.get(node.target)
        if isinstance(node, PersistedChunk):
            persisted[key] = node
    return persisted


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
    with_shapes = dict(chunks)
    for key, chunk in chunks.items():
        if isinstance(key, tuple) and key[0] in arrays and len(key) == len(arrays[key[0]][0]) + 1:
            sizes, dtype = arrays[key[0]]
            shape = tuple(axis[index] for axis, index in zip(sizes, key[1:], strict=True))
            if all(isinstance(size, int) for size in shape):
                with_shapes[key] = chunk.described(key, shape, dtype)
    return with_shapes


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
    values = ask_sessions(
        [(chunks[key], place) for key, place in where.items()],
        lambda session, rows: session.read({row: keys[session, row] for row in rows}),
    )
    return {key: values[session][row] for key, (session, row) in where.items()}


def chunk_inputs(tasks: TranslatedGraph) -> dict[int, PersistedChunk]:
    """Return the chunks that a graph reads, by their data drops.

    Raises
    ------
    GoneError
        One was released.
    """
    inputs = {
        tasks.tasks + row: node
        for row, node in enumerate(tasks.nodes[tasks.tasks :], start=tasks.tasks)
        if isinstance(node, PersistedChunk)
    }
    for chunk in inputs.values():
        chunk.session.check(chunk.key)
    return inputs


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
    nested = {key: node for key, node in changed.items() if isinstance(node, PersistedChunk)}
    if not nested and all(changed[key] is node for key, node in inner.items()):
        return args
    chunks.update(nested)
    added = [key for key in chunks if key in nested or any(key in node.dependencies for node in changed.values())]
    added = [key for key in added if key not in inkeys]
    rest = {key: node for key, node in changed.items() if key not in nested}
    return rest, outkey, (*inkeys, *added), *inputs, *(TaskRef(key) for key in added)


def _needs(items: Iterable[Any]) -> Iterable[Hashable]:
    for item in items:
        if isinstance(item, TaskRef):
            yield item.key
        else:
            yield from getattr(item, "dependencies", ())


def _is(first: object, second: object) -> bool:
    return first is second
