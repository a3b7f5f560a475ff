"""Positions of the nodes of a logical graph in EAGLE, by the keys of their drops.

An application of a construct has no position of its own: EAGLE draws it in the construct. It gets one at the left of
what is in the construct if it is the input application, and at the right if it is the output application.
"""

from dropflow.graph.notes import Position
from translator.logical import LogicalGraph, LogicalNode, NodeKind, Role

_BESIDE = 120.0
"""About the distance of two nodes that are joined, in units of EAGLE."""


def drawn_positions(graph: LogicalGraph) -> dict[str, Position]:
    """Return the position of each node that has drops, by its key; empty if the file has no positions.

    Nodes that are all at one position, as in files that programs wrote, have not been drawn.
    """
    shown = [node for node in graph.nodes if node.kind in (NodeKind.DATA, NodeKind.APP)]
    positions = {node.key or node.id: node.position for node in shown if node.position is not None}
    if len(set(positions.values())) < min(len(positions), 2):
        return {}
    inside: dict[str, list[Position]] = {}
    for node in shown:
        if node.position is None:
            continue
        around, seen = node.parent, set[str]()
        while around is not None and around not in seen:
            seen.add(around)
            inside.setdefault(around, []).append(node.position)
            owner = graph.by_id.get(around)
            around = None if owner is None else owner.parent
    for node in shown:
        owner = graph.by_id.get(node.embedded_in or "")
        position = None if owner is None else _beside(node, owner, inside.get(owner.id, []))
        if position is not None:
            positions[node.key or node.id] = position
    return positions


def _beside(app: LogicalNode, construct: LogicalNode, inside: list[Position]) -> Position | None:
    """Return a position left or right of what is in a construct; of an empty one, its own."""
    if not inside:
        if construct.position is None:
            return None
        x, y = construct.position
        return (x + _BESIDE, y) if app.role is Role.OUTPUT else (x, y)
    xs, ys = zip(*inside, strict=True)
    middle = (min(ys) + max(ys)) / 2
    return (max(xs) + _BESIDE, middle) if app.role is Role.OUTPUT else (min(xs) - _BESIDE, middle)
