"""The graph that a simulation runs: applications, moves of data between nodes, and data that must be waited for.

A data drop on the node of its only producer is complete when that ends, so the simulation needs no vertex for it. The
content of a data drop moves once to each other node with a consumer. A data drop that is not on the node of a producer
gets its content by a move from that node.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn
from translator.planning.graph_work import Floats, GraphWork

__all__ = ["EventGraph", "event_graph"]

Wide = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EventGraph:
    """Vertices and edges for one assignment. Vertices are the drops, then the moves.

    Attributes
    ----------
    vertices : int
        Number of vertices. Data that complete with their producer are vertices without edges.
    stands_for : int64 array, shape (drops,)
        The vertex with whose end a drop is complete: its producer, or itself.
    ptr, successors : int64 arrays
        Edges in compressed sparse rows.
    waiting : int64 array, shape (vertices,)
        Number of edges into each vertex.
    begins : int64 array
        Vertices without edges into them that have to be simulated.
    move_drop, move_from, move_to : int64 arrays, shape (moves,)
        The data drop of each move, and the parts at its ends.
    volume : float array, shape (moves,)
        Bytes of each move.
    """

    vertices: int
    stands_for: Wide
    ptr: Wide
    successors: Wide
    waiting: Wide
    begins: Wide
    move_drop: Wide
    move_from: Wide
    move_to: Wide
    volume: Floats


def event_graph(work: GraphWork, part: IntColumn) -> EventGraph:
    """Return what happens if each drop is on the node of its part."""
    drops = work.drops
    source, target = work.source.astype(np.int64), work.target.astype(np.int64)
    home = part.astype(np.int64)
    parts = int(home.max(initial=0)) + 1
    into_data = ~work.is_app[target]
    crosses = home[source] != home[target]
    producers = np.bincount(target[into_data], minlength=drops)
    is_remote = np.zeros(drops, dtype=np.bool_)
    is_remote[target[into_data & crosses]] = True
    follows = ~work.is_app & (producers == 1) & ~is_remote
    stands_for = np.arange(drops, dtype=np.int64)
    inner = into_data & follows[target]
    stands_for[target[inner]] = source[inner]

    local = ~crosses & ~inner
    edges_from, edges_to = [stands_for[source[local]]], [target[local]]
    # One move for each data drop and receiving node, and one for each data drop and node that writes it elsewhere.
    outward, inward = crosses & ~into_data, crosses & into_data
    key = np.concatenate(
        [
            2 * (source[outward] * parts + home[target[outward]]),
            2 * (target[inward] * parts + home[source[inward]]) + 1,
        ]
    )
    moved, number = np.unique(key, return_inverse=True)
    number = number.reshape(-1) + drops
    drop, other, writes = (moved // 2) // parts, (moved // 2) % parts, moved % 2 == 1
    moves = np.arange(len(moved), dtype=np.int64) + drops
    out = number[: int(outward.sum())]
    back = number[len(out) :]
    edges_from += [stands_for[drop[~writes]], out, source[inward], moves[writes]]
    edges_to += [moves[~writes], target[outward], back, drop[writes]]
    before, after = np.concatenate(edges_from), np.concatenate(edges_to)
    vertices = drops + len(moved)
    order = np.argsort(before, kind="stable")
    ptr = np.zeros(vertices + 1, dtype=np.int64)
    np.cumsum(np.bincount(before, minlength=vertices), out=ptr[1:])
    waiting = np.bincount(after, minlength=vertices)
    is_simulated = np.ones(vertices, dtype=np.bool_)
    is_simulated[:drops] = ~follows
    return EventGraph(
        vertices=vertices,
        stands_for=stands_for,
        ptr=ptr,
        successors=after[order],
        waiting=waiting,
        begins=np.flatnonzero((waiting == 0) & is_simulated),
        move_drop=drop,
        move_from=np.where(writes, other, home[drop]),
        move_to=np.where(writes, home[drop], other),
        volume=work.volume[drop],
    )
