"""Contracts groups of tasks to one task each, so that a refinement moves whole groups."""

import random

import numpy as np
import numpy.typing as npt

from translator.planning.graph_work import Floats
from translator.planning.task_graph import Nets

__all__ = ["contracted_nets", "contracted_parts", "contracted_weights", "paired_tasks"]

_Wide = npt.NDArray[np.int64]
_WIDE = 64
"""The tasks of larger nets are not paired because of them."""


def contracted_nets(nets: Nets, group: _Wide, groups: int) -> Nets:
    """Return the nets with groups in place of tasks, without those that are within one group."""
    key = np.unique(nets.net * max(groups, 1) + group[nets.task])
    net, task = key // max(groups, 1), key % max(groups, 1)
    size = np.bincount(net, minlength=len(nets.volume))
    kept = size[net] > 1
    names, count = np.unique(net[kept], return_counts=True)
    ptr = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum(count, out=ptr[1:])
    return Nets(ptr=ptr, task=task[kept], volume=nets.volume[names])


def contracted_weights(weights: Floats, group: _Wide, groups: int) -> Floats:
    """Return the sums of the weights of each group, shape (constraints, groups)."""
    return np.array([np.bincount(group, weights=one, minlength=groups) for one in weights])


def contracted_parts(part: _Wide, group: _Wide, groups: int) -> _Wide:
    """Return the part of each group: that of its first task."""
    first = np.empty(groups, dtype=np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return part[first]


def paired_tasks(nets: Nets, part: _Wide, weights: Floats, heaviest: float, draw: random.Random) -> tuple[_Wide, int]:
    """Return groups of at most two tasks of one part that share much data, and the number of groups.

    Tasks are taken in random order, and each goes with the free one that shares the most bytes with it, where a net
    counts less the larger it is (heavy-edge matching: G. Karypis and V. Kumar, VLSI Design 11, 2000). Random factors
    make the groups differ from one call to the next.

    Parameters
    ----------
    heaviest : float
        Largest first weight of a group of two.
    draw : random.Random
        Source of random numbers.
    """
    tasks = len(part)
    first, nets_of = (one.tolist() for one in nets.of_tasks(tasks))
    ptr, pins, volume = nets.ptr.tolist(), nets.task.tolist(), nets.volume.tolist()
    where, weight = part.tolist(), weights[0].tolist()
    group, groups = [-1] * tasks, 0
    order = list(range(tasks))
    draw.shuffle(order)
    for task in order:
        if group[task] >= 0:
            continue
        shared: dict[int, float] = {}
        for net in nets_of[first[task] : first[task + 1]]:
            begin, end = ptr[net], ptr[net + 1]
            if end - begin > _WIDE:
                continue
            each = volume[net] / (end - begin - 1)
            for other in pins[begin:end]:
                if group[other] < 0 and where[other] == where[task] and other != task:
                    shared[other] = shared.get(other, 0.0) + each
        group[task] = groups
        fitting = [other for other in shared if weight[other] + weight[task] <= heaviest]
        if fitting:
            group[max(fitting, key=lambda other: shared[other] * (0.5 + draw.random()))] = groups
        groups += 1
    return np.array(group, dtype=np.int64), groups
