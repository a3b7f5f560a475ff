"""Group-bys: the corner turn. Content levels are those of the keys; a group holds what remains, row-major.

Keys are levels around the input: scatters by id or name, or group-bys met before. Without a key the innermost scatter
is meant. Groups count by the number of their index, whatever its text sorts like.
"""

from collections.abc import Sequence
from typing import Any

from translator.logical import LogicalNode
from translator.problems import problem
from translator.unroll.index_map import IndexMap
from translator.unroll.levels import GROUPBY, SCATTER, Level, Levels, part
from translator.unroll.links import assemble
from translator.unroll.values import Findings, pointer

__all__ = ["group_keys", "groupby_map"]

_NO_KEY = frozenset({"", "none", "-1", "null"})


def group_keys(node: LogicalNode, context: Levels, sources: Sequence[Levels], findings: Findings) -> list[Level]:
    """Levels of the input that tell the groups apart, in their nesting order.

    Parameters
    ----------
    node : LogicalNode
        The group-by.
    context : tuple of Level
        Levels of the place where it stands.
    sources : sequence of tuples of Level
        Of the links that enter it; there should be exactly one.
    findings : list of Problem
        LG080, LG081 and LG082 are added.
    """
    if len(sources) != 1:
        text = f"group-by {node.name!r} has {len(sources)} inputs, not one"
        findings.append(problem("LG082", text, where=node.pointer, hint="link exactly one data node to it"))
    if not sources:
        return []
    around = [sources[0][level] for level in part(sources[0], context).left]
    groupable = [level for level in around if level.kind in (SCATTER, GROUPBY)]
    if not groupable:
        text = f"the input of group-by {node.name!r} stands in no scatter that the group-by does not stand in too"
        findings.append(problem("LG081", text, where=node.pointer, hint="group data that a scatter made"))
        return []
    wanted = _wanted(node.value("group_key"))
    if not wanted:
        return groupable[-1:]
    chosen: set[Level] = set()
    for key in wanted:
        named = [level for level in around if key in (level.origin, level.construct, level.name)]
        chosen.update(named)
        if not named:
            known = ", ".join(repr(level.name) for level in around)
            text = f"key {key!r} of group-by {node.name!r} is no construct around its input"
            findings.append(
                problem("LG080", text, where=pointer(node, "group_key"), hint=f"use the id or the name of {known}")
            )
    return [level for level in around if level in chosen]


def _wanted(value: Any) -> list[str]:
    """Keys as the field spells them: one, or several with commas between them, or a list."""
    parts = value if isinstance(value, list) else str("" if value is None else value).split(",")
    return [key for part in parts if (key := str(part).strip()).casefold() not in _NO_KEY]


def groupby_map(source: Levels, target: Levels, *, position: int) -> IndexMap:
    """The edges of the link that enters a group-by.

    Parameters
    ----------
    source, target : tuples of Level
        Index spaces of the input, and of the application of the group-by.
    position : int
        Where the first level of the group-by stands among those of the target.
    """
    parting = part(source, target[:position])
    keyed: list[tuple[int, int]] = []
    for other in range(position, len(target)):
        match = [one for one in parting.left if source[one].origin == target[other].origin]
        keyed += [(one, other) for one in match[:1]]
    taken = {one for one, _ in keyed}
    matched = {other for _, other in keyed}
    return assemble(
        source,
        target,
        pairs=[*((level, level) for level in range(parting.shared)), *keyed],
        left=[level for level in parting.left if level not in taken],
        right=[*parting.right, *(other for other in range(position, len(target)) if other not in matched)],
    )
