"""A number for the origin of each drop: a Merkle digest over its component, its values, and those of its inputs.

Two drops with the same digest have (but for collisions) the same component, index and parameters, and their inputs come
from drops with the same digests by the same ports. Partition, nodes, plan, ids, names and the order of drops do not
count. Digests of templates are BLAKE2b. They are passed along the edges in columns, by level, as two independent 64-bit
numbers for each drop, mixed by the finalizer of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable
pseudorandom number generators", OOPSLA 2014). So the digests find differences, but are no protection against a user
who constructs a graph with the digest of another one.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.order import leaves, levels
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import ORDER_PORT, Argument, Kind, Link, Template

_Lanes = npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1
"""Bits of a number of 64 bits: Python's integers do not overflow, as those of numpy do."""
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_OUT, _IN = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
"""Odd constants, so that a port's first and second edge, and its two ends, count differently."""
_NARROW = 16
"""Levels with fewer drops are computed drop by drop."""
_PLANNING = frozenset(("execution_time", "num_cpus", "num_gpus", "data_volume", "memory", "weight", "dropclass"))
"""Fields that change how a graph is planned, and the component, which is counted by itself."""


@dataclass(frozen=True)
class DropDigests:
    """Digests of all drops of a graph.

    Attributes
    ----------
    graph : uint64 array, shape (drops, 2)
        Digests of components, indices and edges.
    parameters : uint64 array, shape (drops, 2)
        Digests of these and of parameters.
    """

    graph: _Lanes
    parameters: _Lanes


def drop_digests(graph: PhysicalGraph) -> DropDigests:
    """Return the digests of all drops.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    sweep = _Sweep(graph)
    return DropDigests(sweep.digests(_of_component), sweep.digests(_of_values))


def propagated(graph: PhysicalGraph, described: Sequence[object], own: _Lanes) -> _Lanes:
    """Return the digests of all drops, shape (drops, 2), from what counts of each template, and of each drop by itself.

    Parameters
    ----------
    described : sequence
        For each template, what can be written as JSON.
    own : uint64 array, shape (drops, 2)
        Numbers that count for single drops, such as the digest of a content; 0 for nothing.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    return _Sweep(graph).propagated(_lanes(described, lambda description: description), own)


def signature_of(graph: PhysicalGraph, digests: _Lanes) -> str:
    """Return the signature of a graph with these digests: BLAKE2b of those of its leaves, in ascending order."""
    last = digests[leaves(graph)]
    return _signed(last[np.lexsort((last[:, 1], last[:, 0]))])


def digest_text(lanes: _Lanes) -> str:
    """Return the digest of one drop, as 32 hexadecimal digits."""
    return "".join(f"{int(lane):016x}" for lane in lanes)


def _signed(rows: _Lanes) -> str:
    return hashlib.blake2b(np.ascontiguousarray(rows, "<u8").tobytes(), digest_size=16).hexdigest()


def _of_component(template: Template) -> object:
    return int(template.kind), template.component, template.category, sorted(template.collects)


def _of_values(template: Template) -> object:
    rules = template.error_threshold, template.effective_inputs, template.block_skip
    counted = [argument for argument in template.arguments if _counts(argument)]
    values = sorted(
        ((member.name, member.encoding, member.usage, member.value) for member in counted), key=lambda row: row[:3]
    )
    return _of_component(template), rules, [member.name for member in counted if member.positional], values


def _counts(argument: Argument) -> bool:
    is_planning = argument.name in _PLANNING and argument.parameter_type != "ApplicationArgument"
    return argument.parameter_type != "ConstraintParameter" and not is_planning


def _of_link(link: Link) -> object:
    # Not whether it streams: that changes when applications run, and never their results.
    return link.source_port, link.target_port, link.carry


def _lanes(things: Sequence[Any], described: Callable[[Any], object]) -> _Lanes:
    """Return the digest of each template or link, shape (things, 2)."""
    digests = [
        hashlib.blake2b(msgspec.json.encode(described(element), order="deterministic"), digest_size=16).digest()
        for element in things
    ]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64).reshape(len(things), 2)


def _mixed(values: _Lanes) -> _Lanes:
    """Mix the bits of numbers, in place."""
    values ^= values >> np.uint64(30)
    values *= np.uint64(_FIRST)
    values ^= values >> np.uint64(27)
    values *= np.uint64(_SECOND)
    values ^= values >> np.uint64(31)
    return values


def _mixed_one(value: int) -> int:
    """Return a number mixed as `_mixed` does."""
    value ^= value >> 30
    value = value * _FIRST & _MASK
    value ^= value >> 27
    value = value * _SECOND & _MASK
    return value ^ value >> 31


class _Sweep:
    """The columns that all digests of one graph need: its levels, and its edges sorted by their targets."""

    def __init__(self, graph: PhysicalGraph) -> None:
        self._graph = graph
        level = levels(graph)
        self._order = np.argsort(level, kind="stable").astype(np.int32)
        self._width = np.bincount(level) if graph.drops else np.zeros(0, np.int64)
        out = graph.successors
        source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(out.ptr))
        # The order in which applications see their inputs, and drops their producers: as in `predecessors`.
        by_target = np.lexsort((source if graph.rank is None else graph.rank[source], out.link, out.neighbour))
        self._ptr = graph.predecessors.ptr
        self._source = source[by_target]
        self._edge = self._edges(source, by_target)
        self._index = self._indices()

    def _edges(self, source: IntColumn, by_target: npt.NDArray[np.int64]) -> _Lanes:
        """Return what each edge adds to the digest of its source, shape (edges, 2): link, and places at ports."""
        graph = self._graph
        out, links = graph.successors, graph.links
        at_source = _places(source, _ports([edge_link.source_port for edge_link in links])[out.link])
        # All consumers of a content read the same, however many there are; outputs at a port of an application differ.
        at_source[graph.kinds[graph.template[source]] == Kind.DATA] = 0
        target, link = out.neighbour[by_target], out.link[by_target]
        at_target = _places(target, _ports([edge_link.target_port for edge_link in links])[link])
        is_order = np.array(
            [ORDER_PORT in (edge_link.source_port, edge_link.target_port) for edge_link in links], np.bool_
        )[link]
        places = at_source[by_target] * np.uint64(_OUT) + at_target * np.uint64(_IN)
        places[is_order] = 0  # only when the drops run depends on the edge
        return _mixed(_lanes(links, _of_link)[link] + places[:, None])

    def _indices(self) -> _Lanes:
        """Return a number for the index tuple of each drop, shape (drops,)."""
        graph = self._graph
        depth = max((len(template.axes) for template in graph.templates), default=0)
        sizes = np.ones((len(graph.templates), depth), np.int64)
        for row, node in enumerate(graph.templates):
            sizes[row, depth - len(node.axes) :] = node.shape
        numbers, rest = np.zeros(graph.drops, np.uint64), graph.instance.astype(np.int64)
        for axis in reversed(range(depth)):
            rest, index = np.divmod(rest, np.maximum(sizes[graph.template, axis], 1))
            numbers = _mixed(numbers + (index.astype(np.uint64) + np.uint64(1)) * np.uint64(_OUT))
        return _mixed(numbers + rest.astype(np.uint64) * np.uint64(_IN))

    def digests(self, described: Callable[[Any], object]) -> _Lanes:
        """Return the digests of all drops, shape (drops, 2), with templates that count by what `described` returns."""
        return self.propagated(_lanes(self._graph.templates, described), None)

    def propagated(self, templates: _Lanes, own: _Lanes | None) -> _Lanes:
        """Return the digests of all drops from those of the templates, and what counts for single drops."""
        graph, ptr = self._graph, self._ptr
        digests = _mixed(templates[graph.template] + self._index[:, None])
        if own is not None:
            digests = _mixed(digests + _mixed(own.copy()))
        end = np.cumsum(self._width)
        start = 0
        for wide in np.flatnonzero(self._width >= _NARROW).tolist():
            first, last = int(end[wide] - self._width[wide]), int(end[wide])
            self._narrow(digests, self._order[start:first])
            start = last
            drops = self._order[first:last]
            if not wide:
                continue  # roots have no inputs
            begin, count = ptr[drops], ptr[drops + 1] - ptr[drops]
            places = np.cumsum(count) - count
            edges = np.arange(int(count.sum()), dtype=np.int64) + np.repeat(begin - places, count)
            added = _mixed(digests[self._source[edges]] ^ self._edge[edges])
            digests[drops] = _mixed(digests[drops] + np.add.reduceat(added, places, axis=0))
        self._narrow(digests, self._order[start:])
        return digests

    def _narrow(self, digests: _Lanes, drops: IntColumn) -> None:
        """Compute the digests of drops, which are in topological order, one by one."""
        # Elements of a memoryview are plain ints, and much faster to read than elements of an array.
        ptr, source = self._ptr.data, self._source.data
        edge, own = self._edge.data, digests.data
        for drop in drops.tolist():
            begin, end = ptr[drop], ptr[drop + 1]
            if begin == end:
                continue
            for lane in (0, 1):
                total = own[drop, lane]
                for row in range(begin, end):
                    total += _mixed_one(own[source[row], lane] ^ edge[row, lane])
                own[drop, lane] = _mixed_one(total & _MASK)


def _ports(names: Sequence[str]) -> IntColumn:
    """Return a number for each name, the same for equal names."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], np.int32)


def _places(drop: IntColumn, port: IntColumn) -> _Lanes:
    """Return the place of each edge among those at the same port of the same drop; `drop` is ascending."""
    key = drop.astype(np.int64) * (int(port.max(initial=0)) + 1) + port
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    begins = (
        np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(key) else np.zeros(0, np.int64)
    )
    count = np.diff(np.append(begins, len(key)))
    places = np.empty(len(key), np.uint64)
    places[order] = (np.arange(len(key)) - np.repeat(begins, count)).astype(np.uint64)
    return places
