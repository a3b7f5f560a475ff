"""Bytes that were moved between nodes, and those that the plan moves.

What was moved is counted by the receiving nodes. What the plan moves follows from the graph: the content of a data drop
goes once from each other node with a producer of it to its own node, and from there once to each other node with a
consumer, with the volume that the graph declares for it.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.times.octets import TimesSection
from dropflow.times.statistics import NodeTraffic

_Ints = npt.NDArray[np.int64]
_UNDECLARED = (1.0, 5.0)
"""Volumes of a node without a declared one: what the translator assumes, and what palettes begin with."""


def traffic_of(graph: PhysicalGraph, sections: Sequence[TimesSection]) -> tuple[NodeTraffic, ...]:
    """Return what was moved between each two nodes, and what was planned; most bytes first."""
    answered = {section.received.node or section.node for section in sections if not section.missing}
    traffic = {
        pair: NodeTraffic(source=pair[0], target=pair[1], planned=size)
        for pair, size in planned_traffic(graph).items()
        if pair[1] in answered
    }
    for section in sections:
        target = section.received.node or section.node
        for amount in section.received.received:
            before = traffic.get((amount.node, target)) or NodeTraffic(source=amount.node, target=target)
            traffic[amount.node, target] = msgspec.structs.replace(
                before,
                size=before.size + amount.size,
                contents=before.contents + amount.contents,
                shared_size=before.shared_size + amount.shared_size,
                shared_contents=before.shared_contents + amount.shared_contents,
            )
    return tuple(sorted(traffic.values(), key=lambda entry: (-entry.total, -entry.planned, entry.source, entry.target)))


def uncounted_nodes(sections: Sequence[TimesSection]) -> tuple[str, ...]:
    """Return the nodes whose own counts are not known: they do not answer, or only others know that they sent."""
    answered = {section.received.node or section.node for section in sections if not section.missing}
    known = {section.node for section in sections} | {
        amount.node for each in sections for amount in each.received.received
    }
    return tuple(sorted(known - answered))


def planned_traffic(graph: PhysicalGraph) -> dict[tuple[str, str], int]:
    """Return the bytes that the plan moves between each two nodes; none without places or without declared volumes."""
    places = len(graph.places)
    volumes = np.array(
        [0.0 if template.weight in _UNDECLARED else max(template.weight, 0.0) for template in graph.templates]
    )
    is_data = graph.kinds == Kind.DATA
    if places < 2 or not (volumes[is_data] > 0).any():
        return {}
    out = graph.successors
    source = np.repeat(np.arange(graph.drops), np.diff(out.ptr))
    target = out.neighbour.astype(np.int64)
    part = graph.part.astype(np.int64)
    crosses = part[source] != part[target]
    source, target = source[crosses], target[crosses]
    from_data = is_data[graph.template[source]]
    content = np.where(from_data, source, target)
    # One row for each content and pair of nodes.
    moves = np.unique(np.stack([content, part[source] * places + part[target]], axis=1), axis=0)
    sizes = volumes[graph.template[moves[:, 0]]] if len(moves) else np.zeros(0)
    pair = moves[:, 1]
    # Several parts may be on one node.
    bytes_by_pair: dict[tuple[str, str], int] = {}
    totals = np.bincount(pair, sizes, minlength=1)
    for pair_of_places in np.flatnonzero(totals).tolist():
        names = graph.places[pair_of_places // places], graph.places[pair_of_places % places]
        if names[0] != names[1]:
            bytes_by_pair[names] = bytes_by_pair.get(names, 0) + round(float(totals[pair_of_places]))
    return bytes_by_pair
