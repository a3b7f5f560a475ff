"""Index maps of links into group-bys: each key pairs a level of the input with the level that repeats it.

A loop-aware link leaves a loop from its last iteration and enters a loop at its first, as in ordinary links. But a loop
that is named by a key keeps all its iterations: they are the groups.
"""

from translator.stage_options import UnrollOptions
from translator.unroll.index_map import IndexMap
from translator.unroll.levels import Levels, part
from translator.unroll.link_maps import Joint, joined, restricted

__all__ = ["groupby_joint", "groupby_map"]


def groupby_joint(source: Levels, target: Levels, *, position: int, aware: bool, options: UnrollOptions) -> Joint:
    """Decide how the link into a group-by maps the levels of its ends.

    Parameters
    ----------
    source, target : tuples of Level
        Index spaces of the input, and of the application of the group-by.
    position : int
        Position of the first level of the group-by among those of the target.
    aware : bool
        Whether the link is loop-aware.
    options : UnrollOptions
        Meaning of loop-aware.
    """
    parting = part(source, target[:position])
    repeated = {level.repeats: other for other, level in enumerate(target) if other >= position and level.repeats}
    keyed = [(one, repeated[source[one].id]) for one in parting.left if source[one].id in repeated]
    paired = {one for one, _ in keyed}, {other for _, other in keyed}
    left = [level for level in parting.left if level not in paired[0]]
    last = restricted(source, left, aware=aware, options=options)
    first = restricted(target[:position], parting.right, aware=aware, options=options)
    unkeyed = [other for other in range(position, len(target)) if other not in paired[1]]
    return Joint(
        shared=parting.shared,
        pairs=keyed,
        left=[level for level in left if level not in last],
        right=[*(level for level in parting.right if level not in first), *unkeyed],
        last=last,
        first=first,
    )


def groupby_map(source: Levels, target: Levels, *, position: int, aware: bool, options: UnrollOptions) -> IndexMap:
    """Return the edges of the link into a group-by; see `groupby_joint`."""
    return joined(source, target, groupby_joint(source, target, position=position, aware=aware, options=options))
