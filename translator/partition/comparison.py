"""The plans of several algorithms for one graph, side by side."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from dropflow.errors import UsageError
from dropflow.graph.physical import PhysicalGraph
from translator.partition.kahypar import has_kahypar
from translator.partition.registry import ALGORITHMS, machines_of_plan, plan, promised_imbalance
from translator.planning.judge import Verdict, judge
from translator.planning.machines import Machines
from translator.stage_options import PartitionOptions

__all__ = ["ComparedPlan", "compared", "suitable"]

_LARGE, _HUGE = 60_000, 300_000
"""Drops of graphs for which some algorithms need minutes, and for which most do."""
_SLOW = frozenset({"lookahead", "peft", "kahypar"})
_QUICK = ("auto", "metis", "blocks", "none")


@dataclass(frozen=True)
class ComparedPlan:
    """What an algorithm found.

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
        As for `translator.partition.registry.plan`; the algorithm in the options does not count.
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
    except UsageError as error:
        return ComparedPlan(options.algorithm, None, problem=error.text)
    seconds = time.perf_counter() - begun
    verdict = judge(made.graph, machines_of_plan(graph, options, machines), imbalance=promised_imbalance(options))
    return ComparedPlan(options.algorithm, verdict, seconds)
