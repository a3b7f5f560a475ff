"""Group-bys, the corner turn: the levels that they group by, findings about keys, and their index maps.

The levels of the content are those of the keys; a group has the other levels, row-major. A key names exactly one level
around the input that is not around the group-by: by the id or name of its construct or, if that is a group-by, of the
construct whose level it repeats. The default is the innermost level of a scatter or group-by. Groups are ordered by
their indices as numbers.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from translator.logical import LogicalNode
from translator.options import UnrollOptions
from translator.problem_codes import problem
from translator.unroll.levels import GROUPBY, SCATTER, Findings, Level, Levels, part, pointer, spelled
from translator.unroll.link_maps import IndexMap, Joint, joined, restricted

_NO_KEY = frozenset({"", "none", "-1", "null"})


def group_keys(node: LogicalNode, context: Levels, sources: Sequence[Levels], findings: Findings) -> Levels:
    """Return the levels of the input that distinguish the groups, in their nesting order.

    Parameters
    ----------
    node : LogicalNode
        The group-by.
    context : tuple of Level
        Levels of its context.
    sources : sequence of tuples of Level
        Index spaces of the sources of links into it; there should be exactly one.
    findings : list of Problem
        LG080 to LG084 are added.
    """
    if len(sources) != 1:
        text = f"group-by {node.name!r} has {len(sources)} inputs, not one"
        findings.append(problem("LG082", text, where=node.pointer, hint="link exactly one data node to it"))
    if not sources:
        return ()
    parting = part(sources[0], context)
    shared, around = sources[0][: parting.shared], tuple(sources[0][level] for level in parting.left)
    _warn_of_repetition(node, [context[level] for level in parting.right], findings)
    groupable = tuple(level for level in around if level.kind in (SCATTER, GROUPBY))
    if not groupable:
        text = f"the input of group-by {node.name!r} is in no scatter, except those around the group-by"
        findings.append(problem("LG081", text, where=node.pointer, hint="group data that are inside a scatter"))
        return ()
    wanted = _wanted(node.value("group_key"))
    if not wanted:
        return groupable[-1:]
    chosen: set[Level] = set()
    for key in wanted:
        named = tuple(level for level in around if key in level.group_keys)
        if len(named) == 1:
            chosen.update(named)
        elif named:
            text = f"key {key!r} of group-by {node.name!r} names several levels of its input: {spelled(named)}"
            hint = _keys_of(named, around) or "no key selects only one of them; without a key the innermost is used"
            findings.append(problem("LG083", text, where=pointer(node, "group_key"), hint=hint))
        else:
            text = f"key {key!r} of group-by {node.name!r} {_why_not(key, shared, around)}"
            hint = _keys_of(around, around)
            findings.append(problem("LG080", text, where=pointer(node, "group_key"), hint=hint))
    return tuple(level for level in around if level in chosen)


def _wanted(value: Any) -> list[str]:
    """Return the keys in the field: one, several separated by commas, or a list."""
    parts = value if isinstance(value, list) else str("" if value is None else value).split(",")
    return [key for part in parts if (key := str(part).strip()).casefold() not in _NO_KEY]


def _keys_of(levels: Levels, around: Levels) -> str:
    """Return a hint with a key for each level: the first of its names that selects only this level."""
    keys = []
    for level in levels:
        alone = (
            name
            for name in level.group_keys
            if _wanted(name) == [name] and sum(name in other.group_keys for other in around) == 1
        )
        keys += [repr(name) for name in alone][:1]
    return f"write {' or '.join(keys)}" if keys else ""


def _why_not(key: str, shared: Levels, around: Levels) -> str:
    """Return why no level can be grouped by a key."""
    if any(key in level.group_keys for level in shared):
        return "is around both the group-by and its input, so that it does not distinguish groups"
    return f"names no level of its input, which is in {spelled((*shared, *around))}"


def _warn_of_repetition(node: LogicalNode, repeating: Sequence[Level], findings: Findings) -> None:
    """Add LG084 if other group-bys are around a group-by but not around its input."""
    names = list(dict.fromkeys(repr(level.name) for level in repeating if level.kind == GROUPBY))
    if names:
        outer = " and ".join(names)
        text = f"group-by {node.name!r} is in group-by {outer}, but its input is outside"
        hint = f"each group of {outer} groups the same data again; if that is not intended, link data inside {outer}"
        findings.append(problem("LG084", text, where=node.pointer, hint=hint))


# Index maps of links into group-bys: each key pairs a level of the input with the level that repeats it.
#
# A loop-aware link leaves a loop from its last iteration and enters a loop at its first, as in ordinary links. But a
# loop that is named by a key keeps all its iterations: they are the groups.


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
    keyed = [(level, repeated[source[level].id]) for level in parting.left if source[level].id in repeated]
    paired = {level for level, _ in keyed}, {other for _, other in keyed}
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
    joint = groupby_joint(source, target, position=position, aware=aware, options=options)
    return replace(joined(source, target, joint), is_group=True)
