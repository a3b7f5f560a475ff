"""The algorithms by name, and the stage of a translation that runs one."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from dropflow.errors import UsageError, WorldError, install_hint
from dropflow.failure import Problem, refuse_errors
from dropflow.formatting import few, plural
from dropflow.graph.notes import note_planning, note_processors
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.slices import placement_groups
from dropflow.graph.templates import Kind, needs_of
from translator.options import PartitionOptions
from translator.plan.auto import auto
from translator.plan.heft import heft, lookahead, min_parts, priorities, upward_ranks
from translator.plan.judge import simulate
from translator.plan.kahypar import has_kahypar, kahypar
from translator.plan.machines import Machines, equal_machines
from translator.plan.metis import blocks, breadth_first, check_exclusive, metis, partition_groups
from translator.plan.move_bound import Verdict, judge
from translator.plan.planner import PlannedParts, Planner, check_weights, grouped_in_islands, island_of
from translator.plan.refine import fitting, limits_for, refined
from translator.plan.task_graph import task_graph, work_of
from translator.problem_codes import BAD_PARTITION, problem

BALANCED = ("metis", "kahypar")
"""Algorithms that keep an imbalance."""
ALIASES: Mapping[str, str] = MappingProxyType({"mysarkar": "auto", "min_num_parts": "min_parts", "pso": "auto"})
"""Names of DALiuGE, and the algorithms that serve the same purpose here."""
_SLOW = frozenset({"lookahead", "kahypar"})
_QUICK = ("auto", "metis", "blocks", "none")


def _none(graph: PhysicalGraph, _options: PartitionOptions, _machines: Machines) -> PlannedParts:
    return PlannedParts(np.zeros(graph.drops, dtype=np.int32))


ALGORITHMS: Mapping[str, Planner] = MappingProxyType(
    {
        "auto": auto,
        "metis": metis,
        "kahypar": kahypar,
        "breadth_first": breadth_first,
        "min_parts": min_parts,
        "heft": heft,
        "lookahead": lookahead,
        "blocks": blocks,
        "none": _none,
    }
)
"""Algorithms by name. ``metis``, ``kahypar`` and ``blocks`` leave no part empty; ``none`` makes one part.

`plan` keeps the constraints of placement groups for them.
"""


@dataclass(frozen=True)
class PlannedGraph:
    """The result of `plan`.

    Attributes
    ----------
    graph : PhysicalGraph
        The graph with its parts and priorities, without places.
    algorithm : str
        The algorithm that was used.
    note : str
        Why this plan, in one line; empty if there is nothing to tell.
    """

    graph: PhysicalGraph
    algorithm: str
    note: str = ""


def algorithm_named(name: str) -> str:
    """Return the name of an algorithm here, for one of DALiuGE's; others stay as they are."""
    return ALIASES.get(name, name)


def machines_for(
    graph: PhysicalGraph, options: PartitionOptions, machines: Machines | None = None, *, least: int = 1
) -> Machines:
    """Return the machines that a plan of a graph uses: of those given or of equal ones, `least` or at most one a drop.

    With `dop`, each has its share of the processors of its island, and those without one are left out.
    """
    count = max(min(options.parts, graph.drops), least)
    if machines is None:
        chosen = equal_machines(count, cores=max(options.dop, 1))
        if options.islands > 1:
            named = [
                (node, f"island {island_of(part, count, options.islands)}") for part, node in enumerate(chosen.nodes)
            ]
            nodes = tuple(msgspec.structs.replace(node, island=name) for node, name in named)
            chosen = msgspec.structs.replace(chosen, nodes=nodes)
    else:
        chosen = machines.first(count)
    least = max((template.cpus for template in graph.templates if template.kind is Kind.APP), default=1)
    return chosen.limited(options.dop, options.memory, least=max(least, 1))


def check_partition(
    graph: PhysicalGraph, options: PartitionOptions, machines: Machines | None = None
) -> tuple[Problem, ...]:
    """Return all problems of partitioning a graph: errors PT001, PT002 and PT013, warnings PT003, PT004 and PT012."""
    problems = [*check_weights(graph), *_wrong_options(options, machines)]
    if options.parts > max(graph.drops, 1):
        text = f"{graph.drops} drops cannot fill {options.parts} parts"
        hint = f"the graph is partitioned into {graph.drops} parts"
        problems.append(problem("PT003", text, where="parts", hint=hint))
    wanted = max(min(options.parts, graph.drops), 1)
    parts = wanted if options.dop < 1 else len(machines_for(graph, options, machines).nodes)
    if parts < wanted:
        text = f"{options.dop} processors of an island are too few for {wanted} parts"
        hint = f"the graph is partitioned into {parts} parts; give a larger dop to use more nodes"
        problems.append(problem("PT003", text, where="dop", hint=hint))
    if options.algorithm != "none":
        problems += check_exclusive(graph, parts)
    if machines is not None:
        problems += _too_demanding(graph, machines)
        problems += _without_gpus(graph, machines_for(graph, options, machines))
    return tuple(problems)


def _wrong_options(options: PartitionOptions, machines: Machines | None) -> list[Problem]:
    """Return PT002 for each option that cannot be used."""
    problems = []
    names = ", ".join(ALGORITHMS)
    algorithm = algorithm_named(options.algorithm)
    if algorithm not in ALGORITHMS:
        text = f"partitioner {options.algorithm!r} is unknown"
        problems.append(problem(BAD_PARTITION, text, where="algorithm", hint=f"choose one of {names}"))
    if algorithm == "kahypar" and not has_kahypar():
        hint = f"{install_hint('kahypar')}, or choose metis"
        text = "the partitioner kahypar needs the package mtkahypar, which is not installed"
        problems.append(problem(BAD_PARTITION, text, where="algorithm", hint=hint))
    if options.parts < 1:
        problems.append(problem(BAD_PARTITION, f"{options.parts} parts", where="parts", hint="give at least 1 part"))
    if machines is not None and options.parts > len(machines.nodes):
        text = f"{options.parts} parts for {len(machines.nodes)} nodes"
        problems.append(problem(BAD_PARTITION, text, where="parts", hint="describe a node for each part"))
    if not (math.isfinite(options.allowed_imbalance) and options.allowed_imbalance >= 0):
        text = f"imbalance {options.imbalance}"
        problems.append(problem(BAD_PARTITION, text, where="imbalance", hint="give a percentage from 0"))
    if options.deadline is not None and not options.deadline > 0:
        text = f"deadline {options.deadline}"
        problems.append(problem(BAD_PARTITION, text, where="deadline", hint="give a number of seconds above 0"))
    if options.dop < 0:
        problems.append(
            problem(BAD_PARTITION, f"dop {options.dop}", where="dop", hint="give a number of processors, or 0")
        )
    return problems


def _too_demanding(graph: PhysicalGraph, machines: Machines) -> list[Problem]:
    """Return PT012 for each template that asks for more processors or memory than any node has."""
    work = work_of(graph)
    cores = max((node.cores for node in machines.nodes), default=1)
    memory = max((node.memory for node in machines.nodes), default=math.inf)
    problems = []
    for row in np.unique(graph.template[(work.cpus > cores) | (work.memory > memory)]).tolist():
        template = graph.templates[row]
        text = (
            f"{template.name!r} asks for more processors or memory than any node has ({cores} cores, {memory:g} bytes)"
        )
        hint = "it is planned to run alone on its node; describe a larger node, or lower its needs"
        problems.append(problem("PT012", text, where=template.key, hint=hint))
    return problems


def _without_gpus(graph: PhysicalGraph, machines: Machines) -> list[Problem]:
    """Return PT013 for each template that asks for more GPUs than any node of a plan has: it can run on none."""
    most = max((node.gpus for node in machines.nodes), default=0)
    holders = [node.name for node in machines.nodes if node.gpus == most]
    has = (
        f"no node of the plan has more than {most:g}, as {few(holders)} has" if most else "no node of the plan has any"
    )
    problems = []
    for row in np.unique(graph.template[work_of(graph).gpus > most]).tolist():
        template = graph.templates[row]
        text = f"{template.name!r} asks for {plural(needs_of(template).gpus, 'GPU')}, and {has}"
        hint = "plan for a node with as many (gpus in a file of machines, --gpus of a node manager), or lower num_gpus"
        problems.append(problem("PT013", text, where=template.key, hint=hint))
    return problems


def plan(graph: PhysicalGraph, options: PartitionOptions, machines: Machines | None = None) -> PlannedGraph:
    """Partition a graph for machines; by default for equal nodes of one core. An earlier placement is removed.

    If there are fewer drops than parts, there are as many parts as drops. The drops of an ExclusiveForceNode share
    their part with no others, if there are enough parts; the ranks of an MPI job are in one part. Applications get
    priorities: those of the algorithm, or their upward ranks.

    Raises
    ------
    BadGraphError
        PT001 (a weight), PT002 (the options), PT011 (no plan keeps the deadline), PT013 (more GPUs than any node has),
        or LG050 (a cycle).
    """
    refuse_errors(check_partition(graph, options, machines))
    algorithm = algorithm_named(options.algorithm)
    requested = options
    where = machines_for(graph, options, machines)
    parts = len(where.nodes)
    options = msgspec.structs.replace(options, parts=parts, algorithm=algorithm)
    chosen = ALGORITHMS[algorithm] if parts > 1 or (algorithm in ("min_parts", "auto") and options.deadline) else _none
    if chosen is _none:
        made = chosen(graph, options, where)
    elif placement_groups(graph) is None:
        made = _within_limits(graph, options, where, chosen(graph, options, where), are_equal=machines is None)
    else:
        made = PlannedParts(
            partition_groups(
                graph,
                options,
                lambda group, group_options: _fitting(group, group_options, where.first(group_options.parts), chosen),
            )
        )
    work = work_of(graph)
    priority = made.priority
    if priority is None:
        priority = priorities(upward_ranks(graph, work, where, made.part), work)
    if options.deadline is not None:
        _refuse_late(simulate(work, where, made.part, priority).completion, options.deadline)
    made.part.flags.writeable = False
    planned = replace(graph, part=made.part, places=(), priority=priority)
    noted = note_planning(planned, _for_another(requested))
    if requested.dop:
        noted = note_processors(noted, [node.cores for node in where.nodes])
    return PlannedGraph(noted, algorithm, made.note)


def promised_imbalance(options: PartitionOptions) -> float | None:
    """Return the imbalance that a plan has to keep or to report: that asked for, or that of algorithms that balance."""
    algorithm = algorithm_named(options.algorithm)
    balances = algorithm in BALANCED or (algorithm == "auto" and options.objective == "movement")
    return options.allowed_imbalance if balances or options.imbalance is not None else None


def _fitting(graph: PhysicalGraph, options: PartitionOptions, machines: Machines, chosen: Planner) -> IntColumn:
    return fitting(work_of(graph), machines, chosen(graph, options, machines)).part


def _within_limits(
    graph: PhysicalGraph, options: PartitionOptions, machines: Machines, made: PlannedParts, *, are_equal: bool
) -> PlannedParts:
    """Return a plan whose applications fit, and whose islands are balanced if the algorithm balances.

    Parameters
    ----------
    are_equal : bool
        Whether parts may be exchanged between nodes, so that those that exchange much are in one island.
    """
    work = work_of(graph)
    made = fitting(work, machines, made)
    if len(machines.islands) < 2:
        return made
    if are_equal:
        made = replace(made, part=grouped_in_islands(graph, made.part, len(machines.nodes), len(machines.islands)))
    if (balance := promised_imbalance(options)) is None or options.algorithm not in (*BALANCED, "auto"):
        return made
    tasks = task_graph(work)
    limits = limits_for(tasks, machines, balance)
    part = made.part[tasks.row].astype(np.int64)
    if not limits.excess(part):
        return made
    after, _ = refined(tasks.nets, part, limits)
    return PlannedParts(tasks.expanded(after), note=made.note) if limits.excess(after) < limits.excess(part) else made


def _for_another(options: PartitionOptions) -> dict[str, Any]:
    """Return the options that another plan of the graph is to have too, without those that are the default."""
    usual = PartitionOptions()
    given = {name: value for name, value in msgspec.structs.asdict(options).items() if value != getattr(usual, name)}
    return {"algorithm": options.algorithm} | {name: value for name, value in given.items() if name != "parts"}


def _refuse_late(completion: float, deadline: float) -> None:
    if completion > deadline * (1 + 1e-9):
        text = f"the plan takes {completion:.6g} s, the deadline is {deadline:.6g} s"
        hint = "give a later deadline, or more or faster nodes, or let auto plan"
        refuse_errors([problem("PT011", text, where="deadline", hint=hint)])


def partition(graph: PhysicalGraph, options: PartitionOptions, machines: Machines | None = None) -> PhysicalGraph:
    """Return the graph with its parts and priorities; see `plan`.

    Raises
    ------
    BadGraphError
        PT001 (a weight), PT002 (the options), PT011 (no plan keeps the deadline), or LG050 (a cycle).
    """
    return plan(graph, options, machines).graph


# The plans of several algorithms for one graph, side by side.

_LARGE, _HUGE = 60_000, 300_000
"""Drops of graphs for which some algorithms need minutes, and for which most do."""


@dataclass(frozen=True)
class ComparedPlan:
    """The plan that one algorithm made, and how good it is.

    Attributes
    ----------
    algorithm : str
        Its name.
    verdict : Verdict or None
        How good its plan is; None if it made none.
    seconds : float
        Seconds that it took.
    problem : str
        Why it made no plan; empty if it did.
    """

    algorithm: str
    verdict: Verdict | None
    seconds: float = 0.0
    problem: str = ""


def suitable(drops: int) -> tuple[str, ...]:
    """Return the algorithms that plan a graph of so many drops within a minute or so."""
    if drops > _HUGE:
        return _QUICK
    return tuple(name for name in ALGORITHMS if drops <= _LARGE or name not in _SLOW)


def compared(
    graph: PhysicalGraph,
    options: PartitionOptions,
    machines: Machines | None = None,
    *,
    tried: Sequence[str] = tuple(ALGORITHMS),
    on_algorithm: Callable[[str], object] = lambda _: None,
) -> Iterator[ComparedPlan]:
    """Yield the plan of each algorithm, in the order of the registry.

    Parameters
    ----------
    graph, options, machines
        As for `plan`; the algorithm in the options does not count.
    tried : sequence of str
        The algorithms that are run; the others are reported as not tried.
    on_algorithm : callable
        Called with the name of each before it runs.
    """
    for name in ALGORITHMS:
        if name == "kahypar" and not has_kahypar():
            yield ComparedPlan(name, None, problem="the package mtkahypar is not installed")
        elif name not in tried:
            yield ComparedPlan(name, None, problem=f"not tried on a graph of {graph.drops:,} drops")
        else:
            on_algorithm(name)
            yield _planned(graph, msgspec.structs.replace(options, algorithm=name), machines)


def _planned(graph: PhysicalGraph, options: PartitionOptions, machines: Machines | None) -> ComparedPlan:
    begun = time.perf_counter()
    try:
        made = plan(graph, options, machines)
    except (UsageError, WorldError) as error:
        return ComparedPlan(options.algorithm, None, problem=error.text)
    seconds = time.perf_counter() - begun
    verdict = judge(made.graph, machines_for(graph, options, machines), imbalance=promised_imbalance(options))
    return ComparedPlan(options.algorithm, verdict, seconds)
