"""Combines partitions: tasks that are together in two good ones stay together, and only such groups move.

The graph of these groups is much smaller, and a move of a group does what many moves of tasks would do. Most of those
make a partition worse. The better of the two is refined there, then task by task (P. Sanders and C. Schulz,
"Distributed Evolutionary Graph Partitioning", ALENEX 2012). The number of rounds is given, so a seed decides the
result.
"""

import random

import numpy as np
import numpy.typing as npt

from translator.partition.refinement import PartLimits, refined
from translator.planning.task_graph import Nets

__all__ = ["recombined"]

_Parts = npt.NDArray[np.int64]
Found = tuple[_Parts, float]
"""A partition and the bytes that move."""
_SAME = 1e-6
_MOST = 8
"""Partitions that are kept."""


def recombined(nets: Nets, found: list[Found], limits: PartLimits, *, rounds: int, seed: int) -> Found:
    """Return the best partition after some rounds; each combines two of those that are kept.

    Parameters
    ----------
    found : list of pairs
        Refined partitions.
    rounds : int
        How often two are combined.
    """
    draw = random.Random(seed)  # noqa: S311 - repeatable, not secret
    kept: list[Found] = []
    for one in sorted(found, key=lambda one: _price(one, limits)):
        if not _is_there(kept, one, limits) and len(kept) < _MOST:
            kept.append(one)
    for _ in range(rounds):
        if len(kept) < 2:  # noqa: PLR2004 - a pair
            break
        first, second = sorted(draw.sample(range(len(kept)), 2))
        child = _combined(nets, kept[first][0], kept[second][0], limits)
        worse = [one for one in range(len(kept)) if _price(kept[one], limits) > _price(child, limits)]
        if worse and not _is_there(kept, child, limits):
            # The one that is most like it goes, so that the others stay different.
            kept[max(worse, key=lambda one: int((kept[one][0] == child[0]).sum()))] = child
            kept.sort(key=lambda one: _price(one, limits))
    return kept[0]


def _price(one: Found, limits: PartLimits) -> tuple[float, float]:
    return round(limits.excess(one[0]), 6), one[1]


def _is_there(kept: list[Found], one: Found, limits: PartLimits) -> bool:
    excess, moved = _price(one, limits)
    return any(
        _price(other, limits)[0] == excess and abs(other[1] - moved) <= _SAME * max(moved, 1.0) for other in kept
    )


def _combined(nets: Nets, best: _Parts, other: _Parts, limits: PartLimits) -> Found:
    """Return the first partition, refined with the groups of tasks that both keep together, then with single tasks."""
    pair = best * (int(other.max(initial=0)) + 1) + other
    names, group = np.unique(pair, return_inverse=True)
    group = group.reshape(-1)
    first = np.empty(len(names), dtype=np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    weights = np.array([np.bincount(group, weights=one, minlength=len(names)) for one in limits.weights])
    coarse, _ = refined(_contracted(nets, group, len(names)), best[first], PartLimits(weights, limits.most))
    return refined(nets, coarse[group], limits)


def _contracted(nets: Nets, group: npt.NDArray[np.int64], groups: int) -> Nets:
    """Return the nets with groups in place of tasks, without those that are within one group."""
    net = np.repeat(np.arange(len(nets.volume)), np.diff(nets.ptr))
    key = np.unique(net * max(groups, 1) + group[nets.task])
    net, task = key // max(groups, 1), key % max(groups, 1)
    size = np.bincount(net, minlength=len(nets.volume))
    kept = size[net] > 1
    names, count = np.unique(net[kept], return_counts=True)
    ptr = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum(count, out=ptr[1:])
    return Nets(ptr=ptr, task=task[kept], volume=nets.volume[names])
