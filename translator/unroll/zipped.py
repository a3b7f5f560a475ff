"""Zipped scatters: with the field `zip_with`, a scatter names others whose copies are linked to its own by number."""

from translator.logical import LogicalGraph, LogicalNode, NodeKind
from translator.problem_codes import problem
from translator.unroll.levels import SCATTER, Level, Levels
from translator.unroll.values import Findings, pointer

__all__ = ["why_not_zipped", "zip_hint", "zip_with"]

FIELD = "zip_with"


def zip_with(graph: LogicalGraph, node: LogicalNode, findings: Findings) -> tuple[str, ...]:
    """Return the names or ids of scatters in the field `zip_with` of a scatter; LG087 for those that do not exist."""
    value = node.value(FIELD)
    if node.category != "Scatter" or value is None:
        return ()
    parts = value if isinstance(value, list) else str(value).split(",")
    names = tuple(name for part in parts if (name := str(part).strip()))
    known = {
        key
        for other in graph.nodes
        if other.kind is NodeKind.CONSTRUCT and other.category in ("Scatter", "MKN") and other.id != node.id
        for key in (other.id, other.name)
    }
    for name in names:
        if name not in known:
            text = f"scatter {node.name!r} is to be zipped with {name!r}, which is no other scatter of this graph"
            hint = f"write the name or id of a scatter into its field {FIELD}"
            findings.append(problem("LG087", text, where=pointer(node, FIELD), hint=hint))
    return names


def zip_hint(left: Levels, right: Levels) -> str:
    """Return how to zip the innermost levels of the two ends of a link; empty if they are not equal scatters."""
    one, other = left[-1], right[-1]
    if not (one.kind == other.kind == SCATTER and one.size == other.size):
        return ""
    return f"set the field {FIELD} of {other.label} to {one.name!r}, to link their copies by number"


def why_not_zipped(left: Levels, right: Levels) -> str:
    """Return why levels that are to be zipped cannot be; empty if none are."""
    pairs = [(one, other) for one in left for other in right if one.is_zipped(other)]
    unequal: list[tuple[Level, Level]] = [pair for pair in pairs if pair[0].size != pair[1].size]
    if not unequal:
        return ""
    one, other = unequal[0]
    return f"{one.label} and {other.label} are zipped, but have {one.size} and {other.size} copies"
