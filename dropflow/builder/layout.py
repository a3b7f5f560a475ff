"""Where the nodes of a graph go: in columns from left to right, as data flow; constructs are circles around theirs."""

from collections import defaultdict
from collections.abc import Mapping

from dropflow.builder.draft import DraftGraph, DraftNode
from palettes.eagle_layout import Circle, WantedPlace, circles

__all__ = ["placed"]


def placed(drawing: DraftGraph) -> Mapping[str, Circle]:
    """Return the circle of each node, by id. Applications of constructs have none of their own."""
    shown = [node for node in drawing.nodes if node.owner is None]
    inside: dict[str, list[DraftNode]] = defaultdict(list)
    for node in shown:
        inside["" if node.inside is None else node.inside.id].append(node)
    before = _before(drawing)
    wanted: dict[str, WantedPlace] = {}
    for around, nodes in inside.items():
        for id_, (column, row) in _grid(nodes, before).items():
            wanted[id_] = WantedPlace(column, row, around)
    return circles(wanted)


def _before(drawing: DraftGraph) -> Mapping[str, set[str]]:
    """Return the nodes that come before each, on the level on which both are in the same construct."""
    found: dict[str, set[str]] = defaultdict(set)
    for link in drawing.links:
        if link.closes_loop:
            continue
        source, target = map(_chain, (link.source, link.target))
        for one, other in zip(source, target, strict=False):
            if one != other:
                found[other].add(one)
                break
    return found


def _chain(node: DraftNode) -> list[str]:
    """Return the ids of the constructs around a node, outermost first, and its own or that of its construct."""
    own = node.owner or node
    chain = [own.id]
    around = own.inside
    while around is not None:
        chain.insert(0, around.id)
        around = around.inside
    return chain


def _grid(nodes: list[DraftNode], before: Mapping[str, set[str]]) -> dict[str, tuple[float, float]]:
    """Return column and row of each node: right of all that come before it, near the middle of their rows."""
    here = {node.id for node in nodes}
    column: dict[str, int] = {}
    for node in nodes:  # a node is added after those that it reads, except through a construct that is written later
        column[node.id] = 1 + max((column.get(one, -1) for one in before.get(node.id, ()) if one in here), default=-1)
    for _ in nodes:
        changed = False
        for node in nodes:
            least = 1 + max((column[one] for one in before.get(node.id, ()) if one in here), default=-1)
            if column[node.id] < least <= len(nodes):
                column[node.id], changed = least, True
        if not changed:
            break
    rows: dict[str, float] = {}
    places: dict[str, tuple[float, float]] = {}
    for number in sorted(set(column.values())):
        ids = [node.id for node in nodes if column[node.id] == number]
        near = {
            id_: [rows[one] for one in before.get(id_, ()) if one in rows] or [float(place)]
            for place, id_ in enumerate(ids)
        }
        ids.sort(key=lambda id_: sum(near[id_]) / len(near[id_]))
        for place, id_ in enumerate(ids):
            rows[id_] = place - (len(ids) - 1) / 2
            places[id_] = (float(number), rows[id_])
    return places
