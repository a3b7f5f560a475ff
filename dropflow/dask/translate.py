"""Translation of a dask graph into a physical graph: one application and one data drop for each task.

The drops are columns (`dropflow.graph.physical`). Tasks stay the objects of dask that they are: nothing else is made
for each of them but its place in a list. Keys of one name share a template, see `dropflow.dask.key_groups`.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from dask.task_spec import Alias, DataNode
from dask.utils import key_split

from dropflow.dask.key_groups import KeyGroups, group_keys
from dropflow.dask.object_contents import size_of
from dropflow.dask.persisted import PersistedChunk
from dropflow.dask.visiting_order import best_order
from dropflow.errors import BadGraphError
from dropflow.graph.builder import from_columns
from dropflow.graph.order import levels
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Axis, Kind, Link, Template

__all__ = ["TASK", "VALUE", "TranslatedGraph", "translate", "with_annotations"]

TASK = "dropflow.dask.Task"
"""Component of the applications: a task of dask."""
VALUE = "dropflow.dask.Value"
"""Component of the data: the value of a key."""

_APP_KEY = ".task"
_NAME = "dask"


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
    found = [nodes[key] for key in ordered]
    labels = tuple(group.name if group.is_indexed else "" for group in made.groups)
    return TranslatedGraph(replace(graph, priority=priority), ordered, found, count, aliases, results, labels)


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
        graph = replace(graph, templates=tuple(msgspec.structs.replace(one, tries=count) for one, count in templates))
    if priority and graph.priority is not None:
        asked = np.array([priority.get(key, 0) for key in keys])
        order = np.lexsort((graph.priority[: tasks.tasks], asked))
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
    found = []
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
        found.append(Template(key=key, name=name, kind=kind, component=component, axes=axes, weight=weight))
    return found


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
