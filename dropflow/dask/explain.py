"""The graph of a dask collection after each step until it is executed, with counts and bytes."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import dask
import numpy as np
from dask.core import convert_legacy_graph, flatten

from dropflow.dask.translate import (
    BREADTH_FIRST,
    TranslatedGraph,
    layer_volumes,
    switch,
    translate,
    with_fused_chains,
    with_parts,
)
from dropflow.errors import BadParameterError
from dropflow.formatting import format_size, plural
from dropflow.graph.order import levels
from dropflow.graph.physical import IntColumn, PhysicalGraph, follower_column, without_fusion
from translator.options import PartitionOptions

_SHOWN = 12
"""Kinds of tasks that are listed for each step."""


@dataclass(frozen=True)
class ExplainedStep:
    """The graph after one step.

    Attributes
    ----------
    name : str
        ``given``, ``optimized``, ``fused``, ``placed`` or ``ordered``.
    text : str
        What the step has done.
    tasks, edges : int
        Tasks, and how often a task reads the value of another one. After ``fused``, a chain that runs as one unit is
        one task.
    size : float
        Bytes of all values, as far as dask knows shapes and types.
    kinds : mapping of str to int
        Number of tasks by name. Tasks of one unit are joined by ``+``.
    facts : mapping of str to object
        Further figures of the step.
    """

    name: str
    text: str
    tasks: int
    edges: int
    size: float
    kinds: Mapping[str, int]
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class ExplainedCollection:
    """The steps of a collection, in their order. Printed as text, and shown as a table by notebooks.

    Attributes
    ----------
    steps : tuple of ExplainedStep
        The steps.
    """

    steps: tuple[ExplainedStep, ...]

    def __getitem__(self, name: str) -> ExplainedStep:
        """Return the step with a name.

        Raises
        ------
        KeyError
            There is none.
        """
        explained = next((step for step in self.steps if step.name == name), None)
        if explained is None:
            raise KeyError(f"there is no step {name!r}, only {', '.join(step.name for step in self.steps)}")
        return explained

    def __str__(self) -> str:
        return "\n".join(line for step in self.steps for line in _lines(step))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><b>{step.name}</b><br>{escape(step.text)}</td><td>{step.tasks:,}</td><td>{step.edges:,}</td>"
            f"<td>{format_size(round(step.size))}</td><td>{escape(_kinds(step))}</td><td>{escape(_facts(step))}</td></tr>"
            for step in self.steps
        )
        head = "".join(f"<th>{title}</th>" for title in ("step", "tasks", "edges", "values", "kinds", "figures"))
        return f'<table class="dropflow"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def explain(
    collection: Any,
    *,
    nodes: int = 2,
    algorithm: str = BREADTH_FIRST,
    optimize_tileable_graph: bool | None = None,
    optimize_chunk_graph: bool | None = None,
    fuse_enabled: bool | None = None,
) -> ExplainedCollection:
    """Return the graph of a collection after each step until it is executed. Nothing is computed.

    Parameters
    ----------
    collection : object
        A collection of dask, such as an array.
    nodes : int
        For how many nodes it is placed.
    algorithm : str
        The algorithm that places it, as in `dropflow.dask.scheduler`.
    optimize_tileable_graph : bool, optional
        Whether dask optimizes layers: operations block by block become one. By default the value of dask's
        configuration ``dropflow.optimize_tileable_graph``, or else True; so the following ones.
    optimize_chunk_graph : bool, optional
        Whether dask fuses tasks in a row (its ``optimization.fuse.active``).
    fuse_enabled : bool, optional
        Whether chains of tasks run as one unit of dropflow.

    Raises
    ------
    BadParameterError
        It is not a collection of dask, or the number of nodes is not positive.
    BadGraphError
        There is no such algorithm, or tasks wait for each other.

    Examples
    --------
    >>> import dask.array as da
    >>> import dropflow.dask
    >>> x = da.ones((400, 400), chunks=100)
    >>> dropflow.dask.explain((x + x.T).sum())["optimized"].tasks
    21
    """
    if not dask.is_dask_collection(collection):
        raise BadParameterError(f"a {type(collection).__name__} is not a collection of dask", hint="give an array")
    if nodes < 1:
        raise BadParameterError(f"the number of nodes is {nodes}", hint="give at least 1")
    tileable = switch("optimize_tileable_graph", optimize_tileable_graph)
    chunk = switch("optimize_chunk_graph", optimize_chunk_graph)
    fused = switch("fuse_enabled", fuse_enabled)
    keys = list(flatten(collection.__dask_keys__()))
    given = collection.__dask_graph__()
    volumes = layer_volumes(given)
    tasks = _translated(_optimized(collection, tileable=tileable, chunk=chunk), keys, volumes)
    if not fused:
        tasks = replace(tasks, graph=without_fusion(tasks.graph))
    units = _units(tasks)
    return ExplainedCollection(
        (
            _given(convert_legacy_graph(given), volumes),
            _step("optimized", _optimization(tileable=tileable, chunk=chunk), tasks),
            _fused(tasks, units, is_on=fused),
            _placed(tasks, units, nodes, algorithm),
            _ordered(tasks),
        )
    )


def _optimized(collection: Any, *, tileable: bool, chunk: bool) -> Any:
    """Return the graph of a collection after the optimizations of dask that are on."""
    settings = {} if chunk else {"optimization.fuse.active": False}
    with dask.config.set(settings):
        if hasattr(collection, "expr") and hasattr(collection, "optimize"):  # its graph is made from an expression
            return (collection.optimize(fuse=chunk) if tileable else collection).__dask_graph__()
        keys = list(flatten(collection.__dask_keys__()))
        graph = collection.__dask_graph__()
        if tileable:
            return collection.__dask_optimize__(graph, keys)
        if not chunk:
            return graph
        return with_fused_chains(convert_legacy_graph(graph), keys)


def _optimization(*, tileable: bool, chunk: bool) -> str:
    done = ["layers by blocks"] * tileable + ["tasks in a row"] * chunk
    return f"without tasks that are not needed; dask fuses {' and '.join(done) or 'nothing'}"


def _translated(graph: Any, keys: Iterable[Hashable], volumes: Mapping[str, float]) -> TranslatedGraph:
    known = {**volumes, **layer_volumes(graph)}
    nodes = convert_legacy_graph(graph if isinstance(graph, Mapping) else dict(graph))
    return translate(nodes, keys, known, runs_constants=True)


def _given(nodes: Mapping[Hashable, Any], volumes: Mapping[str, float]) -> ExplainedStep:
    """Return the first step: everything in the graph of the collection, also what is not needed."""
    tasks = translate(nodes, nodes, volumes, runs_constants=True)
    return _step("given", "as the collection has it, with all constants as tasks", tasks)


def _names(graph: PhysicalGraph) -> list[str]:
    return [template.name for template in graph.templates]


def _step(name: str, text: str, tasks: TranslatedGraph, **facts: Any) -> ExplainedStep:
    names, count = _names(tasks.graph), tasks.tasks
    kinds = Counter[str]()
    for row, number in enumerate(np.bincount(tasks.graph.template[:count], minlength=len(names)).tolist()):
        if number:
            kinds[names[row]] += number
    return ExplainedStep(name, text, count, _edges(tasks), _size(tasks), kinds, facts)


def _edges(tasks: TranslatedGraph) -> int:
    return tasks.graph.edges - tasks.tasks  # each task has an edge to its value


def _volumes(tasks: TranslatedGraph) -> Any:
    """Return the bytes of the value of each task."""
    weights = np.array([template.weight for template in tasks.graph.templates], dtype=np.float64)
    return weights[tasks.graph.template[tasks.tasks :]]


def _size(tasks: TranslatedGraph) -> float:
    return float(_volumes(tasks).sum())


def _units(tasks: TranslatedGraph) -> IntColumn:
    """Return the first task of the unit of each task."""
    unit = np.arange(tasks.tasks, dtype=np.int32)
    wanted = np.fromiter(tasks.results.values(), dtype=np.int32)
    followers = follower_column(tasks.graph, [1] * len(tasks.graph.templates))
    if followers is None:
        return unit
    column = followers[: tasks.tasks]
    for task in np.argsort(levels(tasks.graph)[: tasks.tasks], kind="stable").tolist():
        if column[task] >= 0 and task + tasks.tasks not in wanted:
            unit[column[task]] = unit[task]
    return unit


def _fused(tasks: TranslatedGraph, units: IntColumn, *, is_on: bool) -> ExplainedStep:
    names, template = _names(tasks.graph), tasks.graph.template
    members: dict[int, list[str]] = {}
    for task in np.argsort(levels(tasks.graph)[: tasks.tasks], kind="stable").tolist():
        members.setdefault(int(units[task]), []).append(names[template[task]])
    kinds = Counter("+".join(kinds_of_unit) for kinds_of_unit in members.values())
    inside = tasks.tasks - len(members)
    text = "tasks that follow each other alone run as one unit" if is_on else "switched off: each task is a unit"
    followers = np.flatnonzero(units != np.arange(tasks.tasks))
    # The value before a follower goes from one task of the unit to the next.
    producers = _producers(tasks)[followers]
    kept = _size(tasks) - float(_volumes(tasks)[producers].sum())
    facts = {"joined tasks": inside}
    return ExplainedStep("fused", text, len(members), _edges(tasks) - inside, kept, kinds, facts)


def _producers(tasks: TranslatedGraph) -> IntColumn:
    """Return the task that makes the first input of each task; -1 for those without inputs."""
    before, count = tasks.graph.predecessors, tasks.tasks
    first = np.full(count, -1, dtype=np.int32)
    has = np.flatnonzero(np.diff(before.ptr)[:count])
    first[has] = before.neighbour[before.ptr[has]] - count
    return first


def _placed(tasks: TranslatedGraph, units: IntColumn, nodes: int, algorithm: str) -> ExplainedStep:
    from translator.plan.machines import equal_machines  # noqa: PLC0415
    from translator.plan.registry import partition  # noqa: PLC0415 - the planner is large

    count = tasks.tasks
    machines = equal_machines(nodes)
    if algorithm == BREADTH_FIRST:
        placed = with_parts(tasks.graph, machines)
    else:
        placed = partition(tasks.graph, PartitionOptions(algorithm=algorithm, parts=nodes), machines)
    part = placed.part[:count]
    initial = np.diff(tasks.graph.predecessors.ptr)[:count] == 0
    source, target = _needs(tasks)
    # A value moves once to each other node that has a consumer.
    moves = np.unique(np.stack([source, part[target]])[:, part[source] != part[target]], axis=1)
    facts = {
        "initial tasks by node": np.bincount(part[initial], minlength=nodes).tolist(),
        "tasks by node": np.bincount(part, minlength=nodes).tolist(),
        "values that move": moves.shape[1],
        "bytes that move": float(_volumes(tasks)[moves[0]].sum()),
    }
    kinds: Mapping[str, int] = {}
    text = f"on {plural(nodes, 'node')} by {algorithm}"
    count = len(np.unique(units))
    return ExplainedStep("placed", text, count, _edges(tasks) - (tasks.tasks - count), _size(tasks), kinds, facts)


def _needs(tasks: TranslatedGraph) -> tuple[IntColumn, IntColumn]:
    """Return the tasks at both ends of each edge: the one that makes a value, and the one that reads it."""
    before, count = tasks.graph.predecessors, tasks.tasks
    end = int(before.ptr[count])
    target = np.repeat(np.arange(count, dtype=np.int32), np.diff(before.ptr[: count + 1]))
    return before.neighbour[:end] - count, target


def _ordered(tasks: TranslatedGraph) -> ExplainedStep:
    priority = tasks.graph.priority
    assert priority is not None  # `translate` always has them
    count = tasks.tasks
    position = count - priority[:count].astype(np.int64)
    by_level = np.empty(count, dtype=np.int64)
    by_level[np.argsort(levels(tasks.graph)[:count], kind="stable")] = np.arange(count)
    values, size = _held(tasks, position)
    plain_values, plain_size = _held(tasks, by_level)
    facts = {
        "values held at most": values,
        "bytes held at most": size,
        "values held by level": plain_values,
        "bytes held by level": plain_size,
    }
    text = "depth first, so that values are released early"
    return ExplainedStep("ordered", text, count, _edges(tasks), _size(tasks), {}, facts)


def _held(tasks: TranslatedGraph, position: Any) -> tuple[int, float]:
    """Return how many values, and bytes of them, are held at a time if tasks run one after another in an order."""
    count = tasks.tasks
    if not count:
        return 0, 0.0
    last = position.copy()
    source, target = _needs(tasks)
    np.maximum.at(last, source, position[target])
    wanted = np.fromiter(tasks.results.values(), dtype=np.int64) - count
    last[wanted] = count
    number, size = np.zeros(count + 2), np.zeros(count + 2)
    volumes = _volumes(tasks)
    for column, weight in ((number, np.ones(count)), (size, volumes)):
        np.add.at(column, position, weight)
        np.subtract.at(column, last + 1, weight)
    return int(np.cumsum(number).max()), float(np.cumsum(size).max())


def _kinds(step: ExplainedStep) -> str:
    ordered = sorted(step.kinds.items(), key=lambda pair: -pair[1])
    more = f", and {len(ordered) - _SHOWN} more kinds" if len(ordered) > _SHOWN else ""
    return ", ".join(f"{number:,} {name}" for name, number in ordered[:_SHOWN]) + more


def _facts(step: ExplainedStep) -> str:
    return "; ".join(f"{name} {_shown(name, value)}" for name, value in step.facts.items())


def _shown(name: str, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"{number:,}" for number in value)
    return format_size(round(value)) if name.startswith("bytes") else f"{value:,}"


def _lines(step: ExplainedStep) -> list[str]:
    size = f", values of {format_size(round(step.size))}" if step.size else ""
    lines = [
        f"{step.name}: {step.text}",
        f"  {plural(step.tasks, 'task')}, {plural(step.edges, 'edge')}{size}",
        f"  {_kinds(step)}",
        f"  {_facts(step)}",
    ]
    return [line for line in lines if line.strip()]
