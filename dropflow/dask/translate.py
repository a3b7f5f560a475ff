"""Translation of a dask graph into a physical graph: one application and one data drop for each task.

The drops are columns (`dropflow.graph.physical`). Tasks stay the objects of dask that they are: nothing else is made
for each of them but its place in a list. Keys of one name share a template.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import dask
import msgspec
import numpy as np
import numpy.typing as npt
from dask._task_spec import fuse_linear_task_spec
from dask.core import convert_legacy_graph, flatten
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import Alias, DataNode, GraphNode
from dask.utils import key_split

from dropflow.dask.object_contents import size_of
from dropflow.dask.persist import PersistedChunk
from dropflow.errors import BadGraphError, BadParameterError
from dropflow.graph.build import from_columns
from dropflow.graph.order import levels
from dropflow.graph.physical import MOST_ROWS, IntColumn, PhysicalGraph, PointerColumn
from dropflow.graph.reassign import app_weights, reassign
from dropflow.graph.templates import Axis, Kind, Link, Template
from translator.plan.judge import with_schedule
from translator.plan.machines import Machines
from translator.plan.planner import place

TASK = "dropflow.dask.Task"
"""Component of the applications: a task of dask."""
VALUE = "dropflow.dask.Value"
"""Component of the data: the value of a key."""
_APP_KEY = ".task"
_NAME = "dask"
BREADTH_FIRST = "breadth_first"
"""Name of the algorithm."""

# Division of dask's keys into groups of one name, whose members differ by their indices.
#
# A key such as ``("add-1f3", 0, 2)`` is member (0, 2) of the group ``add-1f3``. Other keys are numbered within the
# group of their prefix: ``inc-7d1`` and ``inc-902`` are the members 0 and 1 of the group ``inc``.


@dataclass(frozen=True)
class KeyGroup:
    """Keys of one name.

    Attributes
    ----------
    name : str
        First part of the keys, or their common prefix.
    shape : tuple of int
        Number of indices on each axis; empty for a single key without indices.
    is_indexed : bool
        Whether the keys are tuples of the name and the indices; else the index of a key is its number in the group.
    """

    name: str
    shape: tuple[int, ...]
    is_indexed: bool


@dataclass(frozen=True)
class KeyGroups:
    """Keys in groups.

    Attributes
    ----------
    groups : tuple of KeyGroup
        The groups, in the order of their first keys.
    group : int32 array, shape (keys,)
        Row of each key's group.
    instance : int32 array, shape (keys,)
        Position of each key in the row-major index space of its group.
    """

    groups: tuple[KeyGroup, ...]
    group: IntColumn
    instance: IntColumn


def group_keys(keys: Sequence[Hashable]) -> KeyGroups:
    """Return the groups of different keys."""
    rows: dict[Hashable, int] = {}
    group = np.fromiter((rows.setdefault(_label(key), len(rows)) for key in keys), dtype=np.int32, count=len(keys))
    instance = np.zeros(len(keys), dtype=np.int32)
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=len(rows))).tolist()
    groups: list[KeyGroup] = []
    start = 0
    for label, end in zip(rows, ends, strict=True):
        members = order[start:end]
        start = end
        name, axes = label if isinstance(label, tuple) else (label, 0)
        grid = _indices([keys[row] for row in members.tolist()]) if axes else None
        if grid is None:
            shape: tuple[int, ...] = () if len(members) == 1 else (len(members),)
            instance[members] = np.arange(len(members), dtype=np.int32)
        else:
            shape, instance[members] = grid
        groups.append(KeyGroup(str(name), shape, grid is not None))
    return KeyGroups(tuple(groups), group, instance)


def _label(key: Any) -> Hashable:
    """Return what the keys of a group have in common: name and number of indices, or a prefix."""
    if type(key) is tuple and len(key) > 1 and type(key[0]) is str:
        return key[0], len(key) - 1
    return str(key_split(key))


def _indices(keys: Sequence[Any]) -> tuple[tuple[int, ...], npt.NDArray[np.integer[Any]]] | None:
    """Return the shape of the index space of keys, and the position of each; None if an index is not an integer."""
    try:
        index = np.array([key[1:] for key in keys])
    except (ValueError, OverflowError):  # nested indices, or integers beyond 64 bits
        return None
    if index.ndim != 2 or index.dtype.kind != "i" or index.min() < 0:
        return None
    shape = tuple(int(last) + 1 for last in index.max(axis=0))
    size = 1
    for length in shape:
        size *= length
    if size > MOST_ROWS:
        return None
    return shape, np.ravel_multi_index(tuple(index.T), shape)


# The order in which tasks are best executed, so that few results are held at a time.


def best_order(ptr: PointerColumn, inputs: IntColumn, ends: IntColumn, sorted_tasks: IntColumn) -> IntColumn:
    """Return the position of each task in an order that computes depth first, and releases results early.

    The inputs of a task are computed before anything else starts. Of several, those come first whose own computation
    holds the most results at a time (the rule of Sethi and Ullman for expressions): while the others are computed, only
    one result is held of it. After each task, those follow at once that can run and are the last consumer of a result.

    Parameters
    ----------
    ptr : int64 array, shape (tasks + 1,)
        The inputs of task ``i`` are ``inputs[ptr[i]:ptr[i + 1]]``.
    inputs : int32 array
        Tasks, each at most once and ascending for each task.
    ends : int32 array
        Tasks whose results are wanted, in this order. Every task is an input of one of them, directly or not.
    sorted_tasks : int32 array, shape (tasks,)
        All tasks in a topological order.
    """
    walk = _Walk(ptr, inputs, ends, sorted_tasks)
    for end in ends.tolist():
        walk.reach(end)
    return walk.position


class _Walk:
    """A walk over all tasks, from results to their inputs."""

    def __init__(self, ptr: PointerColumn, inputs: IntColumn, ends: IntColumn, sorted_tasks: IntColumn) -> None:
        tasks = len(ptr) - 1
        consumers = np.repeat(np.arange(tasks, dtype=np.int32), np.diff(ptr))
        uses = np.bincount(inputs, minlength=tasks)
        after = np.zeros(tasks + 1, dtype=np.int64)
        np.cumsum(uses, out=after[1:])
        uses[ends] += 1  # what is wanted is never released
        self.position = np.full(tasks, -1, dtype=np.int32)
        # Elements of lists and memoryviews are plain ints, and much faster to read than elements of an array.
        self._position = self.position.data
        self._inputs, self._first = inputs.tolist(), ptr.tolist()
        self._consumers, self._after = consumers[np.argsort(inputs, kind="stable")].tolist(), after.tolist()
        self._uses: list[int] = uses.tolist()
        """Consumers of each result that have not run."""
        self._missing: list[int] = np.diff(ptr).tolist()
        """Inputs of each task that have not run."""
        self._held = _held(self._first, self._inputs, sorted_tasks.tolist())
        self._count = 0

    def reach(self, end: int) -> None:
        """Run a task, and before it those that it needs."""
        position, first, near, held = self._position, self._first, self._inputs, self._held
        stack = [end]
        while stack:
            task = stack[-1]
            if position[task] >= 0:
                stack.pop()
            elif not self._missing[task]:
                stack.pop()
                self._run(task)
            else:
                waiting = [other for other in near[first[task] : first[task + 1]] if position[other] < 0]
                if len(waiting) > 1:
                    waiting.sort(key=lambda other: (held[other], -other))
                stack += waiting  # the last one is next

    def _run(self, task: int) -> None:
        """Run a task, and then those that can run now and release a result."""
        position, uses, missing = self._position, self._uses, self._missing
        candidates = [task]
        while candidates:
            task = candidates.pop()
            if position[task] >= 0:
                continue
            position[task] = self._count
            self._count += 1
            inputs = self._inputs[self._first[task] : self._first[task + 1]]
            consumers = self._consumers[self._after[task] : self._after[task + 1]]
            for other in inputs:
                uses[other] -= 1
            for other in consumers:
                missing[other] -= 1
            for other in inputs:
                if uses[other] == 1:
                    last = self._consumers[self._after[other] : self._after[other + 1]]
                    candidates += [each for each in last if position[each] < 0 and not missing[each]]
            for other in consumers:
                if not missing[other] and self._releases(other):
                    candidates.append(other)

    def _releases(self, task: int) -> bool:
        """Return whether a task is the last consumer of one of its inputs."""
        uses = self._uses
        return any(uses[other] == 1 for other in self._inputs[self._first[task] : self._first[task + 1]])


def _held(first: list[int], near: list[int], sorted_tasks: list[int]) -> list[int]:
    """Return how many results the computation of each task holds at a time, as if none had several consumers."""
    held = [1] * len(sorted_tasks)
    for task in sorted_tasks:
        inputs = near[first[task] : first[task + 1]]
        if len(inputs) == 1:
            held[task] = max(held[inputs[0]], 2)
        elif inputs:
            needs = sorted([held[other] for other in inputs], reverse=True)
            held[task] = max(len(inputs) + 1, *[need + done for done, need in enumerate(needs)])
    return held


@dataclass(frozen=True)
class TranslatedGraph:
    """A dask graph as a physical graph.

    With T tasks and C constants, drop t < T is the application of task t, and drop T + n the data of node n.

    Attributes
    ----------
    graph : PhysicalGraph
        The drops.
    keys : list, shape (T + C,)
        Keys of the tasks, and then of the constants, as the dask graph has them.
    nodes : list, shape (T + C,)
        What the dask graph has for them. A node's own ``key`` may be another one.
    tasks : int
        Number of tasks.
    aliases : dict
        Keys that are other names of a node, and its key.
    results : dict
        For each key that is wanted, the data drop with its value.
    labels : tuple of str
        For each template of tasks, the first part of its keys, if the rest is the indices of a drop; else empty.
    """

    graph: PhysicalGraph
    keys: list[Hashable]
    nodes: list[Any]
    tasks: int
    aliases: Mapping[Hashable, Hashable]
    results: Mapping[Hashable, int]
    labels: tuple[str, ...]


def translate(
    nodes: Mapping[Hashable, Any],
    keys: Iterable[Hashable],
    volumes: Mapping[str, float],
    *,
    runs_constants: bool = False,
) -> TranslatedGraph:
    """Return a dask graph as a physical graph, as far as the values of `keys` need it.

    Parameters
    ----------
    nodes : mapping
        The nodes of the graph by key.
    keys : iterable
        Keys whose values are wanted.
    volumes : mapping of str to float
        Bytes of a value, by the name of its keys, where they are known.
    runs_constants : bool
        Whether constants are tasks, too: their values are not in the process that reads them. Persisted chunks are
        data without producers then, which are read where they are; otherwise they are tasks, which fetch them.

    Raises
    ------
    BadGraphError
        A key is not in the graph, or tasks wait for each other.
    """
    wanted = list(dict.fromkeys(keys))
    aliases: dict[Hashable, Hashable] = {}
    reached = _reached(nodes, wanted, aliases)
    # In the order of the graph, and not in that of sets, which differs between processes.
    tasks: list[Hashable] = []
    constants: list[Hashable] = []
    is_given = PersistedChunk if runs_constants else DataNode
    for key in nodes:
        if key in reached:
            (constants if isinstance(nodes[key], is_given) else tasks).append(key)
    ordered = tasks + constants
    rows = dict(zip(ordered, range(len(ordered)), strict=True))
    for alias, key in aliases.items():
        rows[alias] = rows[key]
    count = len(tasks)
    needed = [nodes[key].dependencies for key in tasks]
    lengths = np.fromiter(map(len, needed), dtype=np.int64, count=count)
    inputs = np.fromiter(map(rows.__getitem__, chain.from_iterable(needed)), dtype=np.int32, count=int(lengths.sum()))
    consumers = np.repeat(np.arange(count, dtype=np.int32), lengths)
    given = group_keys(constants)
    weights = _constant_weights(given, [nodes[key] if runs_constants else nodes[key].value for key in constants])
    made = group_keys(tasks)
    if runs_constants:
        volumes = {**_constant_volumes(made, [nodes[key] for key in tasks]), **volumes}
    graph = _graph(made, given, weights, volumes, (inputs, consumers))
    results = {key: count + rows[key] for key in wanted}
    ends = np.array([drop - count for drop in results.values() if drop < 2 * count], dtype=np.int32)
    priority = np.zeros(graph.drops, dtype=np.int32)
    priority[:count] = count - _positions(graph, count, inputs, consumers, ends)
    priority[count : 2 * count] = priority[:count]
    priority.flags.writeable = False
    ordered_nodes = [nodes[key] for key in ordered]
    labels = tuple(group.name if group.is_indexed else "" for group in made.groups)
    return TranslatedGraph(replace(graph, priority=priority), ordered, ordered_nodes, count, aliases, results, labels)


def with_annotations(
    tasks: TranslatedGraph, retries: Mapping[Hashable, int], priority: Mapping[Hashable, int]
) -> TranslatedGraph:
    """Return a graph whose tasks are tried again, and run in the order of a priority, as their keys are annotated.

    Tasks of a template are alike: they have the most retries of one of them. Those of equal priority keep their order.
    """
    graph, keys = tasks.graph, tasks.keys[: tasks.tasks]
    if retries:
        tries = [1] * len(graph.templates)
        for row, key in zip(graph.template[: tasks.tasks].tolist(), keys, strict=True):
            tries[row] = max(tries[row], 1 + retries.get(key, 0))
        templates = zip(graph.templates, tries, strict=True)
        graph = replace(
            graph, templates=tuple(msgspec.structs.replace(template, tries=count) for template, count in templates)
        )
    if priority and graph.priority is not None:
        priorities = np.array([priority.get(key, 0) for key in keys])
        order = np.lexsort((graph.priority[: tasks.tasks], priorities))
        ranks = np.zeros(graph.drops, dtype=np.int32)
        ranks[order] = np.arange(1, tasks.tasks + 1, dtype=np.int32)
        ranks[tasks.tasks : 2 * tasks.tasks] = ranks[: tasks.tasks]
        ranks.flags.writeable = False
        graph = replace(graph, priority=ranks)
    return replace(tasks, graph=graph)


def _reached(
    nodes: Mapping[Hashable, Any], wanted: Sequence[Hashable], aliases: dict[Hashable, Hashable]
) -> set[Hashable]:
    """Return the keys that `wanted` needs, without aliases, which are added to `aliases`."""
    reached: set[Hashable] = set()
    left = [_target(nodes, key, None, aliases) for key in wanted]
    while left:
        key = left.pop()
        if key in reached:
            continue
        reached.add(key)
        for other in nodes[key].dependencies:
            if other in reached:
                continue
            node = nodes.get(other)
            left.append(_target(nodes, other, key, aliases) if node is None or isinstance(node, Alias) else other)
    return reached


def _target(
    nodes: Mapping[Hashable, Any], key: Hashable, consumer: Hashable, aliases: dict[Hashable, Hashable]
) -> Hashable:
    """Return the key of the node behind a key, and note it in `aliases`."""
    target, passed = key, set[Hashable]()
    while True:
        node = nodes.get(target)
        if node is None:
            needs = "is wanted" if consumer is None else f"is needed by {consumer!r}"
            raise BadGraphError(
                f"the key {target!r} {needs}, and is not in the dask graph",
                hint="was a part of the graph left out, or does it belong to another scheduler?",
            )
        if not isinstance(node, Alias):
            break
        passed.add(target)
        target = node.target
        if target in passed:
            raise BadGraphError(f"the key {target!r} of the dask graph is an alias of itself")
    if target is not key:
        aliases[key] = target
    return target


def _graph(
    made: KeyGroups,
    given: KeyGroups,
    given_weights: Sequence[float],
    volumes: Mapping[str, float],
    needs: tuple[IntColumn, IntColumn],
) -> PhysicalGraph:
    """Return the drops and their edges.

    Parameters
    ----------
    made, given : KeyGroups
        Keys of tasks and of constants.
    given_weights : sequence of float
        Bytes of a constant of each group.
    volumes : mapping of str to float
        As in `translate`.
    needs : two int32 arrays, shape (dependencies,)
        Node, and the task that needs it.
    """
    names: set[str] = set()
    data = [
        *_templates(made, Kind.DATA, names, _volumes(made, volumes)),
        *_templates(given, Kind.DATA, names, given_weights),
    ]
    apps = _templates(made, Kind.APP, names, [1.0] * len(made.groups))
    tasks, templates = len(made.group), len(apps) + len(data)
    own = np.arange(tasks, dtype=np.int32)
    template = np.concatenate([made.group, len(apps) + made.group, 2 * len(apps) + given.group])
    source, target = np.concatenate([own, tasks + needs[0]]), np.concatenate([tasks + own, needs[1]])
    pairs, link = np.unique(template[source].astype(np.int64) * templates + template[target], return_inverse=True)
    return from_columns(
        name=_NAME,
        prefix=_NAME,
        templates=[*apps, *data],
        links=[Link(source=pair // templates, target=pair % templates) for pair in pairs.tolist()],
        template=template,
        instance=np.concatenate([made.instance, made.instance, given.instance]),
        source=source,
        target=target,
        link=link,
    )


def _templates(groups: KeyGroups, kind: Kind, names: set[str], weights: Sequence[float]) -> list[Template]:
    """Return one template for each group; add their keys to `names`."""
    templates = []
    for group, weight in zip(groups.groups, weights, strict=True):
        key = plain = group.name + (_APP_KEY if kind is Kind.APP else "")
        number = 1
        while key in names:
            number += 1
            key = f"{plain}~{number}"
        names.add(key)
        axes = tuple(
            Axis(construct=key, name=str(axis), kind="chunk", size=size) for axis, size in enumerate(group.shape)
        )
        component, name = (TASK if kind is Kind.APP else VALUE), str(key_split(group.name))
        templates.append(Template(key=key, name=name, kind=kind, component=component, axes=axes, weight=weight))
    return templates


def _volumes(groups: KeyGroups, known: Mapping[str, float]) -> list[float]:
    """Return the bytes of a value of each group; 0 where they are unknown.

    Fused tasks have the name of the last layer, with others in front of it, so that the last part of it is compared.
    """
    by_token: dict[str, float] = {}
    for layer, size in known.items():
        _, dash, token = layer.rpartition("-")
        if dash and token:
            by_token.setdefault(token, size)
    return [
        known[group.name] if group.name in known else by_token.get(group.name.rpartition("-")[2], 0.0)
        for group in groups.groups
    ]


def _constant_weights(groups: KeyGroups, values: Sequence[Any]) -> list[float]:
    """Return the mean bytes of the constants of each group."""
    return _mean_weights(groups, [size_of(value) for value in values])


def _mean_weights(groups: KeyGroups, sizes: Sequence[float]) -> list[float]:
    """Return the mean of what the members of each group have."""
    count = np.bincount(groups.group, minlength=len(groups.groups))
    total = np.bincount(groups.group, weights=sizes, minlength=len(groups.groups))
    mean: list[float] = (total / np.maximum(count, 1)).tolist()
    return mean


def _constant_volumes(groups: KeyGroups, nodes: Sequence[Any]) -> dict[str, float]:
    """Return the mean bytes of the constants of each group that has some, by its name."""
    sizes = [size_of(node.value) if isinstance(node, DataNode) else 0 for node in nodes]
    means = _mean_weights(groups, sizes)
    return {group.name: mean for group, mean in zip(groups.groups, means, strict=True) if mean}


def _positions(graph: PhysicalGraph, count: int, inputs: IntColumn, consumers: IntColumn, ends: IntColumn) -> IntColumn:
    """Return the position of each task in the order of execution."""
    topological = np.argsort(levels(graph)[:count], kind="stable").astype(np.int32)
    made = inputs < count  # constants take part in no order
    order = np.lexsort((inputs[made], consumers[made]))
    ptr = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(consumers[made], minlength=count), out=ptr[1:])
    return best_order(ptr, inputs[made][order], ends, topological)


# Volumes of chunks, from what dask's layers tell about shape, chunks and data type of their array.


def layer_volumes(graph: Any) -> dict[str, float]:
    """Return the mean bytes of a chunk of each array in a dask graph, by the name of its layer, where they are known.

    Parameters
    ----------
    graph : object
        A `dask.highlevelgraph.HighLevelGraph`, or an expression of dask that holds some; others have no layers.
    """
    volumes: dict[str, float] = {}
    for layers in _layers(graph):
        for name, layer in layers.items():
            known = getattr(layer, "collection_annotations", None) or {}
            size = _mean_bytes(known.get("dtype"), known.get("shape"), known.get("chunks"))
            if size is not None:
                volumes[str(name)] = size
    return volumes


def layer_chunks(graph: Any) -> dict[str, tuple[tuple[tuple[int, ...], ...], np.dtype[Any]]]:
    """Return chunks and data type of each array in a dask graph, by the name of its layer, where they are known."""
    chunks_of = {}
    for layers in _layers(graph):
        for name, layer in layers.items():
            known = getattr(layer, "collection_annotations", None) or {}
            chunks, dtype = known.get("chunks"), known.get("dtype")
            if chunks is not None and isinstance(dtype, np.dtype):
                chunks_of[str(name)] = (chunks, dtype)
    return chunks_of


def _layers(graph: Any) -> Iterator[Mapping[Any, Any]]:
    """Yield the layers of all graphs in an expression.

    Attributes are looked for in classes and in ``__dict__`` only: an expression of a data frame looks for unknown ones
    in its columns, for which it needs metadata that it may not be able to compute.
    """
    left = [graph]
    while left:
        part = left.pop()
        if isinstance(part, HighLevelGraph):
            yield part.layers
        elif hasattr(type(part), "hlg"):
            left.append(part.hlg)
        else:
            operands = getattr(part, "__dict__", {}).get("operands", ())
            left += [each for each in operands if hasattr(type(each), "__dask_graph__")]


def _mean_bytes(dtype: Any, shape: Any, chunks: Any) -> float | None:
    """Return the mean bytes of a chunk; None if the size of an axis is unknown, or values are objects."""
    if not isinstance(dtype, np.dtype) or dtype.hasobject or shape is None or chunks is None:
        return None
    total, count = float(dtype.itemsize), 1
    for length, pieces in zip(shape, chunks, strict=True):
        total *= length
        count *= len(pieces)
    return total / count if count and np.isfinite(total) else None


# Fusion of tasks that follow each other alone into one task of dask.


def with_fused_chains(nodes: Mapping[Hashable, GraphNode], keys: Collection[Hashable]) -> Mapping[Hashable, Any]:
    """Return the part of a dask graph that `keys` need, with one task in the place of each chain.

    A graph in which a key is missing is returned as it is: its translation has an error for that.
    """
    left, needed = list(keys), dict[Hashable, GraphNode]()
    has_chains = False
    while left:
        key = left.pop()
        if key in needed:
            continue
        node = nodes.get(key)
        if node is None:
            return nodes
        needed[key] = node if node.key == key else _renamed(node, key)
        has_chains |= len(node.dependencies) == 1
        left += node.dependencies
    if not has_chains:
        return nodes
    fused: Mapping[Hashable, Any] = fuse_linear_task_spec(needed, keys=set(keys))
    return fused


def _renamed(node: GraphNode, key: Hashable) -> GraphNode:
    """Return a node with another key. Data frames from delayed values have nodes whose own keys are those of others."""
    if isinstance(node, Alias):
        return Alias(key, node.target)
    renamed: GraphNode = node.substitute({}, key=key)
    return renamed


# The optimizations that dask makes before it calls a scheduler, and how they are switched off.


def switch(name: str, value: bool | None) -> bool:  # noqa: FBT001 - the value of a switch
    """Return a switch: `value`, or else ``dropflow.<name>`` of dask's configuration, or else True.

    Raises
    ------
    BadParameterError
        The configuration has no boolean there.
    """
    chosen = dask.config.get(f"dropflow.{name}", True) if value is None else value
    if not isinstance(chosen, bool):
        raise BadParameterError(f"{name} is {chosen!r}", hint="give True or False")
    return chosen


def optimization_settings(*, tileable: bool, chunk: bool) -> Mapping[str, Any]:
    """Return the configuration of dask with which it makes these optimizations of arrays only.

    Parameters
    ----------
    tileable : bool
        Whether layers are optimized: operations block by block become one. Bags and data frames keep their own steps,
        which they need to be computed at all, or which are part of their expressions.
    chunk : bool
        Whether tasks in a row are fused.
    """
    settings: dict[str, Any] = {}
    if not tileable:
        settings["array_optimize"] = _fused if chunk else False
    if not chunk:
        settings["optimization.fuse.active"] = False
    return settings


def _fused(graph: Any, keys: Any, **_: Any) -> Mapping[Hashable, Any]:
    """Return a graph of arrays with one task in the place of each chain; dask calls this for its own optimization."""
    return with_fused_chains(convert_legacy_graph(dict(graph)), list(flatten([keys])))


# The nodes of tasks: initial tasks breadth-first, equally many for each core, and the others near their data.


def with_parts(graph: PhysicalGraph, machines: Machines, fixed: Mapping[int, str] | None = None) -> PhysicalGraph:
    """Return a graph with one part for each machine; on these machines, if some drops are `fixed`.

    `translator.plan.metis` gives nodes equal work as far as weights tell it. The weights of tasks of dask are not
    known, so here the numbers of initial tasks are equal: on equal nodes they differ by one at most.

    Parameters
    ----------
    graph : PhysicalGraph
        All drops.
    machines : Machines
        Where they may be.
    fixed : mapping of int to str, optional
        Data without producers that are on machines already, and the names of those. Tasks that read them go there,
        unless a machine would have much more to do than the others.

    Notes
    -----
    After the Mars project, "Graph preparation", https://docs.pymars.org.
    """
    count = len(machines.nodes)
    capacities = [node.cores * node.speed for node in machines.nodes]
    is_app = graph.kinds[graph.template] == np.uint8(Kind.APP)
    initial = is_app & (np.diff(graph.predecessors.ptr) == 0)
    everything = np.ones(graph.drops, dtype=np.bool_)
    names = [node.name for node in machines.nodes]
    start = np.zeros(graph.drops, dtype=np.int32)
    for drop, name in (fixed or {}).items():
        if name in names:
            start[drop] = names.index(name)
            everything[drop] = False
    first = reassign(
        graph,
        start,
        everything,
        range(count),
        [0.0] * count,
        capacities=capacities,
        work=initial.astype(np.float64),
    )
    load = np.bincount(first[initial], minlength=count).astype(np.float64).tolist()
    part = reassign(
        graph, first, everything & ~initial, range(count), load, capacities=capacities, work=app_weights(graph)
    )
    parted = replace(graph, part=part)
    # Without fixed drops, parts may go to any machines.
    return with_schedule(place(parted, names), machines) if fixed else parted


def with_drops_on(graph: PhysicalGraph, fixed: Mapping[int, str]) -> PhysicalGraph:
    """Return a placed graph with these drops on these nodes, and all others where they are."""
    if not fixed or not graph.places:
        return graph
    places = list(dict.fromkeys([*graph.places, *fixed.values()]))
    part = graph.part.copy()
    for drop, name in fixed.items():
        part[drop] = places.index(name)
    part.flags.writeable = False
    return replace(graph, part=part, places=tuple(places[: int(part.max()) + 1]))
