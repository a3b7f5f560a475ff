"""What DALiuGE 6.7 would make of an outline: our edges, with its known ways of going wrong put back in.

Used to show that a difference from DALiuGE is explained by a defect and by nothing else: the numbers must add up.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from dropflow.graph.physical import PhysicalGraph
from translator.logical import LogicalGraph, NodeKind
from translator.options import UnrollOptions
from translator.unroll import GraphOutline, outline_of, unroll
from translator.unroll.layout import Layout, lay_out
from translator.unroll.levels import LOOP, is_on


class Difference(NamedTuple):
    """How DALiuGE's numbers of drops and unique edges differ from ours, by cause."""

    adapter_drops: int
    adapter_edges: int
    loop_aware: int
    carries: int
    entries: int

    @property
    def reasons(self) -> str:
        """Codes as the table of differences spells them: numbers of spec 9.2, ``adapter`` or ``entry``."""
        causes = (
            ("3", self.carries),
            ("5", self.loop_aware),
            ("adapter", self.adapter_drops),
            ("entry", self.entries),
        )
        return " ".join(code for code, number in causes if number)


def unique_edges(graph: PhysicalGraph) -> int:
    """Number of pairs of drops that some edge joins."""
    return len(np.unique(_pairs(graph)))


def explain(graph: LogicalGraph) -> Difference:
    """How many drops and edges DALiuGE 6.7 makes more than we do, by cause."""
    ours, theirs = outline_of(graph), outline_of(graph, UnrollOptions(loop_aware="innermost"))
    drops, edges = _adapters(ours)
    plain = unique_edges(unroll(ours)) - edges
    innermost = unique_edges(unroll(theirs)) - _adapters(theirs)[1]
    return Difference(-drops, -edges, innermost - plain, _carries(graph, ours), _entries(graph, ours))


def _pairs(graph: PhysicalGraph) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    source = np.repeat(np.arange(graph.drops, dtype=np.int64), np.diff(graph.successors.ptr))
    return source * max(graph.drops, 1) + graph.successors.neighbour


def _adapters(made: GraphOutline) -> tuple[int, int]:
    """Drops of the adapters, and the edges that they cost: all around them, but those they stand for."""
    graph = unroll(made)
    rows = [row for row, template in enumerate(made.templates) if template.artificial and template.name != "grpdata"]
    among = np.isin(graph.template, rows)
    source, target = np.divmod(_pairs(graph), max(graph.drops, 1))
    around = int((among[source] | among[target]).sum())
    into = np.bincount(target[among[target]], minlength=graph.drops)
    out = np.bincount(source[among[source]], minlength=graph.drops)
    return int(among.sum()), around - int((into * out).sum())


def _carries(graph: LogicalGraph, ours: GraphOutline) -> int:
    """Edges of the carries between all ends and all starts of each loop that we do not have, less those turned."""
    layout = lay_out(graph, UnrollOptions(), [])
    rows = {template.key: row for row, template in enumerate(ours.templates)}
    links = {
        (link.source, link.target, link.carry): index_map.edges
        for link, index_map in zip(ours.links, ours.maps, strict=True)
    }
    more = 0
    for loop in graph.nodes:
        if loop.kind is NodeKind.CONSTRUCT and loop.category == "Loop":
            for end, start in _ends_and_starts(layout, loop.id):
                pair = rows[graph.by_id[end].key], rows[graph.by_id[start].key]
                levels = layout.content[loop.id]
                if (*pair, True) not in links:
                    more += prod(level.size for level in levels[:-1]) * max(levels[-1].size - 1, 0)
                more -= links.get((*pair, False), 0)
    return more


def _entries(graph: LogicalGraph, ours: GraphOutline) -> int:
    """Edges into the later iterations of a loop, at a port that a carry feeds there."""
    layout = lay_out(graph, UnrollOptions(), [])
    links = {link.pointer: link for link in graph.links}
    more = 0
    for link in [links[finding.where] for finding in ours.problems if finding.code == "LG063"]:
        level = next(level for level in reversed(layout.levels_of(link.target)) if level.kind == LOOP)
        ends = graph.by_id[link.source].key, graph.by_id[link.target].key
        for made, index_map in zip(ours.links, ours.maps, strict=True):
            if (ours.templates[made.source].key, ours.templates[made.target].key) == ends and not made.carry:
                more += index_map.edges * (level.size - 1)
    return more


def _ends_and_starts(layout: Layout, loop: str) -> list[tuple[str, str]]:
    children = layout.children.get(loop, [])
    ends = [node.id for node in children if is_on(node.value("group_end"))]
    starts = [node.id for node in children if is_on(node.value("group_start"))]
    return [(end, start) for end in ends for start in starts]
