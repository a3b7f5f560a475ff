"""Bytes that were moved between nodes, from the records of attempts and the graph.

A record has the bytes of all inputs and of all outputs of an attempt. If an application has several outputs, each is
counted with an equal share. Data without producers have the bytes that a consumer read which has no other inputs. A
content is moved once to each node, however many of its consumers are there.
"""

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.times.attempts import AttemptColumns
from dropflow.times.statistics import NodeTraffic

__all__ = ["traffic_of"]

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]
_NOWHERE = -1


def traffic_of(graph: PhysicalGraph, attempts: AttemptColumns) -> tuple[NodeTraffic, ...]:
    """Return the bytes that were moved between each two nodes, most first.

    None are known if all attempts are of one node, or if the graph names no nodes.
    """
    count = len(attempts.nodes)
    if count < 2 or not len(attempts) or not graph.places:  # noqa: PLR2004 - a pair
        return ()
    done = ~attempts.failed
    ran_at = np.full(graph.drops, _NOWHERE, np.int64)
    ran_at[attempts.drop[done]] = attempts.node[done]
    read, written = np.zeros(graph.drops), np.zeros(graph.drops)
    read[attempts.drop[done]] = attempts.records["read"][done]
    written[attempts.drop[done]] = attempts.records["written"][done]
    source, target = _ends(graph)
    sizes = _sizes(graph, (source, target), ran_at, (read, written))
    home = _home(graph, attempts)
    got = _moves(source, home[source], ran_at[target])
    wrote = _moves(target, ran_at[source], home[target])
    moves = np.concatenate([got, wrote])
    if not len(moves):
        return ()
    # One row for each content and pair of nodes.
    moves = np.unique(moves, axis=0)
    pair = moves[:, 1] * count + moves[:, 2]
    moved = np.bincount(pair, sizes[moves[:, 0]], minlength=count * count)
    contents = np.bincount(pair, minlength=count * count)
    found = np.flatnonzero(contents)
    order = found[np.argsort(-moved[found], kind="stable")]
    return tuple(
        NodeTraffic(
            source=attempts.nodes[one // count],
            target=attempts.nodes[one % count],
            size=round(float(moved[one])),
            contents=int(contents[one]),
        )
        for one in order.tolist()
    )


def _ends(graph: PhysicalGraph) -> tuple[_Ints, _Ints]:
    """Return the source and the target of each edge."""
    out = graph.successors
    return np.repeat(np.arange(graph.drops), np.diff(out.ptr)), out.neighbour.astype(np.int64)


def _sizes(graph: PhysicalGraph, ends: tuple[_Ints, _Ints], ran_at: _Ints, octets: tuple[_Floats, _Floats]) -> _Floats:
    """Return the bytes of the content of each data drop, as far as they follow from what drops read and wrote."""
    (source, target), (read, written) = ends, octets
    outputs, inputs = np.diff(graph.successors.ptr), np.diff(graph.predecessors.ptr)
    sizes = np.zeros(graph.drops)
    is_app = (graph.kinds[graph.template] == Kind.APP)[source]
    ran = is_app & (ran_at[source] >= 0)
    np.add.at(sizes, target[ran], written[source[ran]] / outputs[source[ran]])
    alone = ~is_app & (ran_at[target] >= 0) & (inputs[target] == 1) & (inputs[source] == 0)
    np.maximum.at(sizes, source[alone], read[target[alone]])
    return sizes


def _home(graph: PhysicalGraph, attempts: AttemptColumns) -> _Ints:
    """Return the node of the part of each drop; -1 if none of its attempts is known.

    Sections of directories have other names than nodes: the place of a node is then that of most of its attempts.
    """
    rows = {name: row for row, name in enumerate(attempts.nodes)}
    by_place = [rows.get(name, _NOWHERE) for name in graph.places]
    if max(by_place) < 0:
        parts = graph.part[attempts.drop].astype(np.int64)
        for node in range(len(attempts.nodes)):
            here = np.bincount(parts[attempts.node == node], minlength=len(graph.places))
            by_place[int(here.argmax())] = node
    return np.array(by_place, np.int64)[graph.part]


def _moves(content: _Ints, here: _Ints, there: _Ints) -> _Ints:
    """Return the contents that were moved from one node to another one: data drop, from where, to where."""
    moved = (here >= 0) & (there >= 0) & (here != there)
    return np.stack([content[moved], here[moved], there[moved]], axis=1)
