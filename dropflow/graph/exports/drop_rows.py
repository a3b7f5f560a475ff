"""The drops and the edges of a graph in blocks, as lists of Python values, for programs that write text."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dropflow.errors import BadGraphError
from dropflow.graph.interchange_write import ByteSink
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oids

__all__ = ["DropBlock", "EdgeBlock", "drop_blocks", "edge_blocks", "has_parts", "node_names", "write_texts"]

_BLOCK = 16_384


class DropBlock(NamedTuple):
    """Some drops of a graph, with one value for each of them.

    Attributes
    ----------
    row : list of int
        Their rows in the graph.
    oid : list of str
        Their text ids.
    template, part : list of int
        Rows of their templates, and their parts.
    weight : list of float
        Seconds of applications, bytes of data.
    priority : list
        Priorities of applications; None for data, and in a graph without priorities.
    """

    row: list[int]
    oid: list[str]
    template: list[int]
    part: list[int]
    weight: list[float]
    priority: list[int | None]


class EdgeBlock(NamedTuple):
    """Some edges of a graph: the rows of the drops at their ends, and of their links."""

    source: IntColumn
    target: IntColumn
    link: list[int]


def drop_blocks(graph: PhysicalGraph, order: IntColumn | None = None) -> Iterator[DropBlock]:
    """Yield the drops of a graph in blocks, in the order of their rows, or of `order`, which has rows."""
    is_app = graph.kinds == Kind.APP
    for first in range(0, graph.drops if order is None else len(order), _BLOCK):
        last = first + _BLOCK
        rows = np.arange(first, min(last, graph.drops), dtype=np.int32) if order is None else order[first:last]
        template = graph.template[rows]
        priority: list[int | None] = [None] * len(rows)
        if graph.priority is not None:
            numbers = graph.priority[rows].tolist()
            priority = [number if app else None for number, app in zip(numbers, is_app[template].tolist(), strict=True)]
        yield DropBlock(
            row=rows.tolist(),
            oid=oids(graph, rows),
            template=template.tolist(),
            part=graph.part[rows].tolist(),
            weight=graph.drop_weights[rows].tolist(),
            priority=priority,
        )


def edge_blocks(graph: PhysicalGraph) -> Iterator[EdgeBlock]:
    """Yield the edges of a graph in blocks, sorted by source."""
    out = graph.successors
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(out.ptr))
    for first in range(0, graph.edges, _BLOCK):
        here = slice(first, first + _BLOCK)
        yield EdgeBlock(source[here], out.neighbour[here], out.link[here].tolist())


def has_parts(graph: PhysicalGraph) -> bool:
    """Whether the graph has been partitioned or placed."""
    return graph.parts > 1 or bool(graph.places) or graph.priority is not None


def node_names(graph: PhysicalGraph) -> list[str]:
    """Return the name of the node of each part; empty where a part has none."""
    places = graph.places[: graph.parts]
    return [*places, *[""] * (graph.parts - len(places))]


def write_texts(graph: PhysicalGraph, stream: ByteSink, texts: Iterable[str]) -> None:
    """Write texts to a stream, in UTF-8.

    Raises
    ------
    BadGraphError
        A text of the graph has half of a surrogate pair.
    """
    try:
        for text in texts:
            stream.write(text.encode())
    except UnicodeEncodeError as error:
        text = f"a text has half of a surrogate pair: {error.object[error.start : error.start + 20]!a}"
        raise BadGraphError(text, where=graph.name, hint="remove that character") from error
