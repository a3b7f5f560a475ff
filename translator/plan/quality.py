"""The quality of a partition: cut edges, moved volume and balance, for all partitioners."""

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.apps.registry import fusible_templates
from dropflow.graph.physical import IntColumn, PhysicalGraph, follower_column
from dropflow.graph.templates import Kind
from translator.plan.planner import edge_sources, loads


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """The quality of a partition.

    Attributes
    ----------
    parts : int
        Number of parts.
    edges, cut_edges : int
        Edges of the graph, and those that join two parts.
    volume_moved : float
        Sum over the data drops of their volume times the number of transfers: one from each other part with producers,
        one to each other part with consumers, for any number of drops there.
    loads : tuple of float
        Core seconds of the applications of each part (number of drops, if no application has a weight).
    drops : tuple of int
        Number of drops of each part.
    imbalance : float
        Excess of the largest load over the mean, in percent.
    acyclic : bool
        Whether the graph of parts has no cycle, so that parts could run one after the other.
    fused : int
        Applications that run as one unit with the application before them (`dropflow.graph.physical`).
    divided : int
        Applications that would run so if they were in the same part as the application before them.
    """

    parts: int
    edges: int
    cut_edges: int
    volume_moved: float
    loads: tuple[float, ...]
    drops: tuple[int, ...]
    imbalance: float
    acyclic: bool
    fused: int = 0
    divided: int = 0


def quality_of(graph: PhysicalGraph) -> Quality:
    """Return the quality of the partition of a graph."""
    parts = graph.parts
    source = graph.part[edge_sources(graph)]
    target = graph.part[graph.successors.neighbour]
    cut = source != target
    groups = fusible_templates(graph)
    fused = _followers(graph, groups, graph.part)
    load = np.bincount(graph.part, weights=loads(graph), minlength=parts)
    mean = float(load.mean())
    return Quality(
        parts=parts,
        edges=graph.edges,
        cut_edges=int(np.count_nonzero(cut)),
        volume_moved=_volume_moved(graph, cut),
        loads=tuple(load.tolist()),
        drops=tuple(np.bincount(graph.part, minlength=parts).tolist()),
        imbalance=100.0 * (float(load.max()) / mean - 1.0) if mean > 0 else 0.0,
        acyclic=_is_acyclic(parts, source[cut], target[cut]),
        fused=fused,
        divided=_followers(graph, groups, None) - fused,
    )


def _followers(graph: PhysicalGraph, groups: tuple[int, ...], part: IntColumn | None) -> int:
    """Return how many applications follow another one in a chain; with parts, within one of them."""
    column = follower_column(graph, groups, part)
    return 0 if column is None else int(np.count_nonzero(column >= 0))


def _volume_moved(graph: PhysicalGraph, cut: npt.NDArray[np.bool_]) -> float:
    out = graph.successors
    source, target = edge_sources(graph)[cut], out.neighbour[cut]
    from_data = graph.kinds[graph.template[source]] == Kind.DATA
    data = np.where(from_data, source, target).astype(np.int64)
    other = graph.part[np.where(from_data, target, source)]
    # One transfer for each data drop, direction and other part.
    transfers = np.unique((data * 2 + from_data) * graph.parts + other)
    moved = transfers // (2 * graph.parts)
    return float(graph.drop_weights[moved].sum())


def _is_acyclic(parts: int, source: npt.NDArray[np.int32], target: npt.NDArray[np.int32]) -> bool:
    """Return whether the graph of parts has no cycle (Kahn's algorithm, with one edge for each pair of parts)."""
    pairs = np.unique(source.astype(np.int64) * parts + target)
    following: dict[int, list[int]] = {}
    waiting = np.bincount(pairs % parts, minlength=parts).tolist()
    for before, after in zip((pairs // parts).tolist(), (pairs % parts).tolist(), strict=True):
        following.setdefault(before, []).append(after)
    ready = [part for part in range(parts) if not waiting[part]]
    done = 0
    while ready:
        done += 1
        for after in following.get(ready.pop(), ()):
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return done == parts
