"""Places the nodes of a drawing as EAGLE shows them: constructs are circles that enclose their nodes, and no others.

The places that are given order the nodes in columns; the distances follow from the sizes of the circles. A node without
children is a circle, too, with room for its name.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import hypot

import msgspec

__all__ = ["Circle", "WantedPlace", "circles"]

NODE_RADIUS = 40.0
"""Of a node with its icon and its name, as EAGLE draws it."""

_PAD = 45.0
"""Between the rim of a construct, where its input application is drawn, and its nodes."""

_GAP = 90.0
"""Between circles side by side, for edges and names of ports."""


class WantedPlace(msgspec.Struct, frozen=True):
    """Where a node is wanted: columns and rows of any unit, and the construct that it is in, if any."""

    column: float
    row: float
    inside: str = ""


class Circle(msgspec.Struct, frozen=True):
    """Where a node is drawn: the centre and the radius of its circle."""

    x: float
    y: float
    radius: float


def circles(wanted: Mapping[str, WantedPlace]) -> dict[str, Circle]:
    """Return the circle of each node.

    Circles of nodes in the same construct are disjoint, and inside that of the construct. The relation "inside" has no
    cycles.
    """
    children: dict[str, list[str]] = defaultdict(list)
    for name, place in wanted.items():
        children[place.inside].append(name)
    found: dict[str, Circle] = {}
    _lay_out("", children, wanted, found)
    return {name: _moved(name, wanted, found) for name in wanted}


def _lay_out(
    parent: str, children: Mapping[str, Sequence[str]], wanted: Mapping[str, WantedPlace], found: dict[str, Circle]
) -> float:
    """Put the circles of the children into `found`, around the origin, and return the radius that encloses them."""
    names = children.get(parent, ())
    if not names:
        return NODE_RADIUS
    sizes = {name: _lay_out(name, children, wanted, found) for name in names}
    columns: dict[float, list[str]] = defaultdict(list)
    for name in names:
        columns[wanted[name].column].append(name)
    x, placed = 0.0, {}
    for column in sorted(columns):
        rows = sorted(columns[column], key=lambda name: wanted[name].row)
        widest = max(sizes[name] for name in rows)
        height = sum(2 * sizes[name] for name in rows) + _GAP * (len(rows) - 1)
        y = -height / 2
        for name in rows:
            placed[name] = (x + widest, y + sizes[name])
            y += 2 * sizes[name] + _GAP
        x += 2 * widest + _GAP
    middle = (x - _GAP) / 2
    for name, (at, down) in placed.items():
        found[name] = Circle(at - middle, down, sizes[name])
    return _PAD + max(hypot(found[name].x, found[name].y) + sizes[name] for name in names)


def _moved(name: str, wanted: Mapping[str, WantedPlace], found: Mapping[str, Circle]) -> Circle:
    """Return the circle of a node, moved to the place of the constructs around it."""
    own, outer = found[name], wanted[name].inside
    x, y = own.x, own.y
    while outer:
        x, y = x + found[outer].x, y + found[outer].y
        outer = wanted[outer].inside
    return Circle(round(x), round(y), own.radius)
