"""The parts that all planners share: signature, result, weights of drops and edges, islands and nodes of parts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dropflow.failure import Problem, refuse_errors
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind, Template
from translator.options import PartitionOptions
from translator.plan.machines import Machines
from translator.problem_codes import BAD_PARTITION, problem

Floats = npt.NDArray[np.float64]


# The one signature of all algorithms: graph, options and machines in, an assignment out.


@dataclass(frozen=True)
class PlannedParts:
    """The part of each drop, and its priority, as an algorithm chose them.

    Attributes
    ----------
    part : int32 array, shape (drops,)
        Part of each drop; part k is on the k-th machine.
    priority : int32 array, shape (drops,), or None
        Among the ready applications of a node, the highest number starts first. If it is None, `plan` sets priorities.
    note : str
        Why this plan was chosen, in one line; empty without a reason.
    """

    part: IntColumn
    priority: IntColumn | None = None
    note: str = ""


Planner = Callable[[PhysicalGraph, PartitionOptions, Machines], PlannedParts]
"""Makes an assignment. There are as many machines as parts, and at most as many as drops; parts may stay empty."""


def shares_of(machines: Machines) -> npt.NDArray[np.float64]:
    """Return the share of the work that each machine should get, shape (parts,); the sum is 1."""
    power = np.array([node.cores * node.speed for node in machines.nodes], dtype=np.float64)
    shares: npt.NDArray[np.float64] = power / power.sum()
    return shares


# Weights for partitioners: loads of drops, and volumes of edges.


def check_weights(graph: PhysicalGraph) -> list[Problem]:
    """Return PT001 for every template with a negative or infinite weight, or if all weights add up to infinity."""
    problems = [
        problem(
            "PT001",
            f"the weight of {template.name!r} is {template.weight}",
            where=template.key,
            hint="execution_time and data_volume are finite numbers from 0",
        )
        for template in graph.templates
        if not (math.isfinite(template.weight) and template.weight >= 0)
    ]
    if not problems and graph.templates:
        heaviest = max(graph.templates, key=_work)
        if not math.isfinite(_work(heaviest) * max(graph.drops, len(graph.successors.neighbour))):
            sums = f"weights of {graph.drops} drops have no finite sum"
            text = f"the weight of {heaviest.name!r} is {heaviest.weight:g}: {sums}"
            hint = "execution_time is in seconds, and data_volume in the unit of the graph"
            problems.append(problem("PT001", text, where=heaviest.key, hint=hint))
    return problems


def _work(template: Template) -> float:
    return template.weight * max(template.cpus, 1)


def loads(graph: PhysicalGraph) -> Floats:
    """Return the work of every drop in core seconds, shape (drops,).

    The work of an application is its seconds times its cores, and the work of a data drop is 0. If no application has a
    weight, the work of every drop is 1.
    """
    cores = [max(template.cpus, 1) if template.kind is Kind.APP else 0 for template in graph.templates]
    load: Floats = graph.drop_weights * np.array(cores, dtype=np.float64)[graph.template]
    return load if load.any() else np.ones(graph.drops)


def edge_volumes(graph: PhysicalGraph) -> Floats:
    """Return the volume of the data drop of every edge, shape (edges,), in the unit of the graph."""
    source, target = edge_sources(graph), graph.successors.neighbour
    from_data = graph.kinds[graph.template[source]] == Kind.DATA
    volumes: Floats = graph.drop_weights[np.where(from_data, source, target)]
    return volumes


def edge_sources(graph: PhysicalGraph) -> IntColumn:
    """Return the source of every edge, shape (edges,)."""
    return np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(graph.successors.ptr))


def scaled(values: Floats, *, least: int, most: int) -> npt.NDArray[np.int64]:
    """Return `values` scaled to integers, the largest being `most` and none below `least`."""
    top = float(values.max(initial=0.0))
    if top <= 0:
        return np.full(len(values), max(least, 1), dtype=np.int64)
    are_integers = bool((values == np.floor(values)).all()) and top <= most
    # Integers are not scaled, so that a result can be checked by hand.
    integers = values if are_integers else np.rint(values * (most / top))
    return np.maximum(integers.astype(np.int64), least)


# Numbers the parts so that parts which exchange much data are in one island.


def island_of(part: int, parts: int, islands: int) -> int:
    """Return the island of a part: islands have consecutive parts, and differ by one part at most."""
    return part * min(islands, parts) // parts


def grouped_in_islands(graph: PhysicalGraph, part: IntColumn, parts: int, islands: int) -> IntColumn:
    """Return the same partition with other numbers of the parts.

    An island begins with the part that exchanges most with all remaining parts. It grows by the part that exchanges
    most with the island. Only for equal machines, on which parts can be renumbered freely.
    """
    if islands <= 1 or parts <= 2 or not graph.edges:
        return part
    source, target, traffic = _exchanges(graph, part, parts)
    begin = np.searchsorted(source, np.arange(parts + 1))
    number = np.empty(parts, dtype=np.int32)
    left = np.ones(parts, dtype=np.bool_)
    inside: npt.NDArray[np.float64] = np.zeros(parts)
    for position in range(parts):
        is_first = position == 0 or island_of(position, parts, islands) != island_of(position - 1, parts, islands)
        pull = np.bincount(source, weights=traffic * left[target], minlength=parts) if is_first else inside
        chosen = int(np.where(left, pull, -1.0).argmax())
        inside = np.zeros(parts) if is_first else inside
        own = slice(begin[chosen], begin[chosen + 1])
        inside[target[own]] += traffic[own]
        number[chosen] = position
        left[chosen] = False
    return number[part]


def _exchanges(graph: PhysicalGraph, part: IntColumn, parts: int) -> tuple[IntColumn, IntColumn, Floats]:
    """Return each part, each other part that it exchanges data with, and how much; sorted by the parts."""
    one, other = part[edge_sources(graph)], part[graph.successors.neighbour]
    crosses = one != other
    low, high = (end(one, other)[crosses].astype(np.int64) for end in (np.minimum, np.maximum))
    pairs, row = np.unique(low * parts + high, return_inverse=True)
    volume = np.bincount(row, weights=edge_volumes(graph)[crosses], minlength=len(pairs))
    low, high = np.divmod(pairs, parts)
    source, target = np.concatenate([low, high]), np.concatenate([high, low])
    order = np.argsort(source, kind="stable")
    return source[order], target[order], np.concatenate([volume, volume])[order]


# Placement: the node of each part.


def place(graph: PhysicalGraph, nodes: Sequence[str]) -> PhysicalGraph:
    """Return the graph with part k on the k-th node.

    Nodes after the last part are not used and not in the graph.

    Raises
    ------
    BadGraphError
        PT002: there are fewer nodes than parts, a node is named twice, or has no name.
    """
    problems = []
    if len(nodes) < graph.parts:
        text = f"{graph.parts} parts cannot be placed on {len(nodes)} nodes"
        problems.append(
            problem(BAD_PARTITION, text, where="nodes", hint=f"name {graph.parts} nodes, or partition into fewer")
        )
    twice = sorted({node for node in nodes if list(nodes).count(node) > 1})
    if twice:
        text = f"node {twice[0]!r} is named more than once"
        problems.append(problem(BAD_PARTITION, text, where="nodes", hint="each node takes one part"))
    if not all(nodes):
        problems.append(problem(BAD_PARTITION, "a node has no name", where="nodes", hint="give each node a name"))
    refuse_errors(problems)
    return replace(graph, places=tuple(nodes[: graph.parts]))
