"""Improves partitions by moving groups of tasks, which does what many moves of single tasks would do.

Most of those moves make a partition worse, so that a refinement by single tasks does not find them. Two kinds of groups
are used. Tasks that are together in two good partitions stay together, and the better of the two is refined with such
groups (P. Sanders and C. Schulz, "Distributed Evolutionary Graph Partitioning", ALENEX 2012). And the tasks of each
part are paired again and again, by the data that they share and at random; the partition is refined with the largest
groups first, within looser limits, and with single tasks last (iterated multilevel refinement: C. Walshaw, Annals of
Operations Research 131, 2004). The number of rounds is given, so a seed decides the result.
"""

import random

import numpy as np
import numpy.typing as npt

from translator.partition.contraction import contracted_nets, contracted_parts, contracted_weights, paired_tasks
from translator.partition.refinement import PartLimits, refined
from translator.planning.graph_work import Floats
from translator.planning.task_graph import Nets

__all__ = ["recombined"]

_Parts = npt.NDArray[np.int64]
Found = tuple[_Parts, float]
"""A partition and the bytes that move."""
_SAME = 1e-6
_MOST = 8
"""Partitions that are kept."""
_COMBINED = 0.1
"""Share of the rounds that combine two partitions."""
_SLACKS = (1.02, 1.1, 1.3, 2.0)
"""Factors of the looser limits of a refinement with groups; one is drawn for each round."""
_FEWEST_GROUPS = 4
"""Groups are paired until there are so many for each part."""
_LARGEST_GROUP = 1 / 3
"""Largest share of the smallest part that a group of tasks may have."""
_SHRINKS = 0.95
"""Pairing ends when the number of groups falls by a smaller factor."""


def recombined(nets: Nets, found: list[Found], limits: PartLimits, *, rounds: int, seed: int) -> Found:
    """Return the best partition after some rounds; each improves one of those that are kept, or combines two.

    Parameters
    ----------
    found : list of pairs
        Refined partitions.
    rounds : int
        How often a partition is improved.
    """
    draw = random.Random(seed)  # noqa: S311 - repeatable, not secret
    kept: list[Found] = []
    for one in sorted(found, key=lambda one: _price(one, limits)):
        if not _is_there(kept, one, limits) and len(kept) < _MOST:
            kept.append(one)
    for _ in range(rounds):
        if len(kept) > 1 and draw.random() < _COMBINED:
            first, second = sorted(draw.sample(range(len(kept)), 2))
            child = _combined(nets, kept[first][0], kept[second][0], limits)
        else:
            child = _regrouped(nets, kept[draw.randrange(len(kept))][0], limits, draw)
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
    group, groups = group.reshape(-1), len(names)
    few = PartLimits(contracted_weights(limits.weights, group, groups), limits.most)
    coarse, _ = refined(contracted_nets(nets, group, groups), contracted_parts(best, group, groups), few)
    return refined(nets, coarse[group], limits)


def _regrouped(nets: Nets, part: _Parts, limits: PartLimits, draw: random.Random) -> Found:
    """Return the partition, refined with groups of its tasks within looser limits, then with single tasks."""
    slack = draw.choice(_SLACKS)
    heaviest = float(limits.most[0].min()) * _LARGEST_GROUP
    levels: list[tuple[Nets, _Parts, Floats]] = []
    weights = limits.weights
    while len(part) > _FEWEST_GROUPS * limits.most.shape[1]:
        group, groups = paired_tasks(nets, part, weights, heaviest, draw)
        if groups > _SHRINKS * len(part):
            break
        levels.append((nets, group, weights))
        part = contracted_parts(part, group, groups)
        weights = contracted_weights(weights, group, groups)
        nets = contracted_nets(nets, group, groups)
    # Where the limits are kept from is drawn, too: to restore them, groups may be better to move than single tasks.
    kept_from = draw.randint(1, max(len(levels), 1))
    part, moved = refined(nets, part, PartLimits(weights, limits.most * slack if levels else limits.most))
    for number, (finer, group, few) in reversed(list(enumerate(levels))):
        most = limits.most if number < kept_from else limits.most * slack
        part, moved = refined(finer, part[group], PartLimits(few, most))
    return part, moved
