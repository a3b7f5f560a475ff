"""What nodes moved to each other, as the rows of a table with a shade for each cell."""

import re
from collections.abc import Sequence

import msgspec

from dropflow.times.statistics import NodeTraffic

__all__ = ["TrafficGrid", "traffic_grid"]

_MOST_NODES = 64
_MOST_WIDE = 10
_SHADES = 8
_OTHERS = "other nodes"


class TrafficGrid(msgspec.Struct, frozen=True, kw_only=True):
    """A table of pairs of nodes.

    Attributes
    ----------
    nodes : tuple of str
        Its rows and columns: those that moved most, by name, and at last all others together.
    rows : tuple of (str, tuple, int)
        For each node, what it moved to each of them, or None, and the bytes that it sent to all of them.
    received : tuple of int
        Bytes that each of them got.
    whole : NodeTraffic
        All pairs together.
    most : int
        The most bytes that a cell has.
    is_compact : bool
        Whether there are so many nodes that cells have only a shade.
    has_plan : bool
        Whether it is known what was planned.
    """

    nodes: tuple[str, ...]
    rows: tuple[tuple[str, tuple[NodeTraffic | None, ...], int], ...]
    received: tuple[int, ...]
    whole: NodeTraffic
    most: int
    is_compact: bool
    has_plan: bool

    def shade(self, size: int, most: int) -> int:
        """Return a shade from 1 to 8, in proportion to the bytes."""
        return max(-(-_SHADES * size // max(most, 1)), 1)

    def share(self, cell: NodeTraffic) -> str:
        """Return the share of a cell of all bytes."""
        share = 100 * cell.total / max(self.whole.total, 1)
        return f"{share:.0f} %" if share >= 1 or not cell.total else "less than 1 %"


def traffic_grid(traffic: Sequence[NodeTraffic], most_nodes: int = _MOST_NODES) -> TrafficGrid:
    """Return the table of the nodes that moved most."""
    by_node: dict[str, int] = {}
    for one in traffic:
        for name in (one.source, one.target):
            by_node[name] = by_node.get(name, 0) + max(one.total, one.planned)
    named = sorted(by_node, key=lambda name: (-by_node[name], name))
    # One row for all others, unless it would be of one node.
    kept = named if len(named) <= most_nodes else named[: most_nodes - 1]
    nodes = tuple(sorted(kept, key=_in_words_and_numbers)) + ((_OTHERS,) if len(kept) < len(named) else ())
    cells: dict[tuple[str, str], NodeTraffic] = {}
    known = set(kept)
    for one in traffic:
        source = one.source if one.source in known else _OTHERS
        target = one.target if one.target in known else _OTHERS
        before = cells.get((source, target)) or NodeTraffic(source=source, target=target)
        cells[source, target] = _sum(before, one)
    rows = [(source, tuple(cells.get((source, target)) for target in nodes)) for source in nodes]
    whole = NodeTraffic(source="", target="")
    for one in traffic:
        whole = _sum(whole, one)
    return TrafficGrid(
        nodes=nodes,
        rows=tuple((name, row, sum(one.total for one in row if one is not None)) for name, row in rows),
        received=tuple(sum(cell.total for _, row in rows if (cell := row[at])) for at in range(len(nodes))),
        whole=whole,
        most=max((one.total for one in cells.values()), default=0),
        is_compact=len(nodes) > _MOST_WIDE,
        has_plan=whole.planned > 0,
    )


def _in_words_and_numbers(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key by which node-10 comes after node-9."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


def _sum(one: NodeTraffic, other: NodeTraffic) -> NodeTraffic:
    """Return both together, as the pair of the first."""
    return NodeTraffic(
        source=one.source,
        target=one.target,
        size=one.size + other.size,
        contents=one.contents + other.contents,
        shared_size=one.shared_size + other.shared_size,
        shared_contents=one.shared_contents + other.shared_contents,
        planned=one.planned + other.planned,
    )
