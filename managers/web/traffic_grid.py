"""What nodes moved to each other, as the rows of a table with a shade for each cell."""

from collections.abc import Sequence

import msgspec

from dropflow.times.statistics import NodeTraffic

__all__ = ["TrafficGrid", "traffic_grid"]

_MOST_NODES = 24
_SHADES = 8


class TrafficGrid(msgspec.Struct, frozen=True):
    """A table of pairs of nodes.

    Attributes
    ----------
    nodes : tuple of str
        Those that moved most, in alphabetical order: its columns.
    rows : tuple of (str, tuple, int)
        For each node, what it moved to each of them, or None, and the bytes that it sent to all of them.
    received : tuple of int
        Bytes that each of them got.
    total : int
        Bytes of all pairs, also of those that have no cell.
    left_out : int
        Number of nodes that have no row.
    """

    nodes: tuple[str, ...]
    rows: tuple[tuple[str, tuple[NodeTraffic | None, ...], int], ...]
    received: tuple[int, ...]
    total: int
    left_out: int
    most: int

    def shade(self, cell: NodeTraffic) -> int:
        """Return the shade of a cell, from 1 to 8, in proportion to its bytes."""
        return max(-(-_SHADES * cell.size // max(self.most, 1)), 1)


def traffic_grid(traffic: Sequence[NodeTraffic]) -> TrafficGrid:
    """Return the table of the 24 nodes that moved most."""
    by_node: dict[str, int] = {}
    for one in traffic:
        for name in (one.source, one.target):
            by_node[name] = by_node.get(name, 0) + one.size
    nodes = tuple(sorted(sorted(by_node, key=lambda name: (-by_node[name], name))[:_MOST_NODES]))
    cells = {(one.source, one.target): one for one in traffic}
    rows = [(source, tuple(cells.get((source, target)) for target in nodes)) for source in nodes]
    return TrafficGrid(
        nodes=nodes,
        rows=tuple((name, row, sum(one.size for one in row if one is not None)) for name, row in rows),
        received=tuple(sum(cell.size for _, row in rows if (cell := row[at])) for at in range(len(nodes))),
        total=sum(one.size for one in traffic),
        left_out=len(by_node) - len(nodes),
        most=max((one.size for one in traffic), default=0),
    )
