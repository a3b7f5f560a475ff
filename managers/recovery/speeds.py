"""How long drops take, and how fast members are, from the attempts that have succeeded: pure functions."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph

__all__ = ["Durations", "Speeds", "measure"]

Durations = Mapping[int, tuple[int, float]]
"""By template: attempts that have succeeded on a member, and how many seconds they took together."""

_ROUNDS = 5
_SLOWEST, _FASTEST = 0.05, 20.0
"""Limits on a speed in relation to the mean, so that a few odd attempts do not empty a member."""

FloatColumn = npt.NDArray[np.float64]


class Speeds(NamedTuple):
    """What was measured.

    Attributes
    ----------
    seconds : float array, shape (templates,)
        How long an attempt of each template takes at the mean speed; 0 for data. In the unit of the weights if nothing
        was measured.
    capacities : list of float
        How much of that each member does in a second.
    """

    seconds: FloatColumn
    capacities: list[float]


def measure(graph: PhysicalGraph, workers: Sequence[float], durations: Sequence[Durations]) -> Speeds:
    """Return how long attempts take, and the capacities of members.

    Parameters
    ----------
    graph : PhysicalGraph
        For the weights of its templates.
    workers : sequence of float
        Attempts that each member runs at a time.
    durations : sequence of mapping
        What was measured on each member.

    Notes
    -----
    Speeds follow from the durations of templates, and these from speeds, so both are improved in turn, from speeds that
    assume durations in proportion to weights. These stay decisive for templates that ran on one member only. Each
    template and each member counts as if it had one more attempt that took as long as expected.
    """
    weights = graph.template_seconds
    counts = np.zeros((len(durations), len(weights)))
    spent = np.zeros_like(counts)
    for member, found in enumerate(durations):
        for template, (count, seconds) in found.items():
            if 0 <= template < len(weights) and weights[template] > 0:
                counts[member, template], spent[member, template] = count, max(seconds, 0.0)
    cores = [max(one, 1.0) for one in workers]
    done = float((counts * weights).sum())
    if not (spent.sum() > 0 and done > 0):
        return Speeds(weights, cores)
    expected = weights * float(spent.sum()) / done
    speed = _speeds(counts, spent, expected)
    estimate = expected
    for _ in range(_ROUNDS):
        estimate = np.where(weights > 0, ((spent.T * speed).sum(axis=1) + expected) / (counts.sum(axis=0) + 1), 0.0)
        speed = _speeds(counts, spent, estimate)
    return Speeds(estimate, [core * float(one) for core, one in zip(cores, speed, strict=True)])


def _speeds(counts: FloatColumn, spent: FloatColumn, seconds: FloatColumn) -> FloatColumn:
    """Return the speed of each member, given how long each template takes at speed 1."""
    wanted, taken, attempts = (counts * seconds).sum(axis=1), spent.sum(axis=1), counts.sum(axis=1)
    one = np.divide(wanted, attempts, out=np.zeros_like(wanted), where=attempts > 0)
    found = np.divide(wanted + one, taken + one, out=np.ones_like(wanted), where=(taken + one) > 0)
    limited: FloatColumn = np.clip(found, _SLOWEST, _FASTEST)
    return limited
