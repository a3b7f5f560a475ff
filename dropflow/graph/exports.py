"""Physical graphs for other programs: Graphviz's DOT, GraphML, and tables of comma-separated values."""

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from io import StringIO
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dropflow.errors import BadGraphError
from dropflow.graph.daliuge_write import ByteSink
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind, Link, Template
from dropflow.graph.text_ids import oids

_BLOCK_ROWS = 16_384
"""Drops or edges that are written at once."""
DROP_COLUMNS = ("oid", "kind", "name", "component", "weight", "part", "node", "priority")
EDGE_COLUMNS = ("source", "target", "source_port", "target_port", "streaming")
_DOT_SPECIAL = re.compile('["\\\\\n\r\x00]')
_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""
_KEYS = (
    ("node", "oid", "string"),
    ("node", "kind", "string"),
    ("node", "name", "string"),
    ("node", "component", "string"),
    ("node", "weight", "double"),
    ("node", "part", "int"),
    ("node", "node", "string"),
    ("node", "priority", "int"),
    ("edge", "source_port", "string"),
    ("edge", "target_port", "string"),
    ("edge", "streaming", "boolean"),
    ("graph", "title", "string"),
)
# Characters that XML 1.0 cannot have, also not as references; halves of surrogate pairs are an error of their own.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_GRAPHML_SPECIAL = re.compile("[&<>\r\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
Writer = Callable[[PhysicalGraph, ByteSink], None]

# The drops and the edges of a graph in blocks, as lists of Python values, for programs that write text.


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
    for first in range(0, graph.drops if order is None else len(order), _BLOCK_ROWS):
        last = first + _BLOCK_ROWS
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
    for first in range(0, graph.edges, _BLOCK_ROWS):
        here = slice(first, first + _BLOCK_ROWS)
        yield EdgeBlock(source[here], out.neighbour[here], out.link[here].tolist())


def has_parts(graph: PhysicalGraph) -> bool:
    """Return whether the graph has been partitioned or placed."""
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


# Writing a physical graph as two tables of comma-separated values (RFC 4180): its drops, and its edges.


def write_csv_drops(graph: PhysicalGraph, stream: ByteSink) -> None:
    """Write the table of drops, in UTF-8. What a graph does not have (parts, nodes, priorities) is empty.

    Raises
    ------
    BadGraphError
        A text of the graph has half of a surrogate pair.
    """
    write_texts(graph, stream, _drops(graph))


def write_csv_edges(graph: PhysicalGraph, stream: ByteSink) -> None:
    """Write the table of edges, in UTF-8, with the text ids of the drops at their ends.

    Raises
    ------
    BadGraphError
        A text of the graph has half of a surrogate pair.
    """
    write_texts(graph, stream, _edges(graph))


def _drops(graph: PhysicalGraph) -> Iterator[str]:
    yield _lines([DROP_COLUMNS])
    names = [template.name for template in graph.templates]
    components = [template.component for template in graph.templates]
    kinds = ["application" if template.kind is Kind.APP else "data" for template in graph.templates]
    is_parted, nodes = has_parts(graph), node_names(graph)
    for block in drop_blocks(graph):
        yield _lines(
            zip(
                block.oid,
                [kinds[row] for row in block.template],
                [names[row] for row in block.template],
                [components[row] for row in block.template],
                block.weight,
                block.part if is_parted else [""] * len(block.part),
                [nodes[part] for part in block.part],
                block.priority,
                strict=True,
            )
        )


def _edges(graph: PhysicalGraph) -> Iterator[str]:
    yield _lines([EDGE_COLUMNS])
    ends = [
        (graph_link.source_port, graph_link.target_port, "true" if graph_link.streaming else "false")
        for graph_link in graph.links
    ]
    for edges in edge_blocks(graph):
        names = zip(oids(graph, edges.source), oids(graph, edges.target), edges.link, strict=True)
        yield _lines([(source, target, *ends[link]) for source, target, link in names])


def _lines(rows: Iterable[tuple[Any, ...]]) -> str:
    text = StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()


# Writing a physical graph in DOT, the language of Graphviz (https://graphviz.org/doc/info/lang.html), as a stream.


def write_dot(graph: PhysicalGraph, stream: ByteSink) -> None:
    """Write a physical graph in DOT, in UTF-8.

    A node is called ``n`` and its row, and shows its text id; applications are boxes, data drops are ellipses. Each
    part is a cluster, with the name of its node. Edges of streams are dashed.

    Raises
    ------
    BadGraphError
        A text of the graph has half of a surrogate pair.
    """
    write_texts(graph, stream, _dot_texts(graph))


def _dot_texts(graph: PhysicalGraph) -> Iterator[str]:
    yield f"digraph {_quoted(graph.name)} {{\n"
    if has_parts(graph):
        yield from _clusters(graph)
    else:
        yield from _nodes(graph)
    ends = [" [style=dashed];\n" if link.streaming else ";\n" for link in graph.links]
    for edges in edge_blocks(graph):
        yield "".join(
            [
                f"n{source} -> n{target}{ends[link]}"
                for source, target, link in zip(edges.source.tolist(), edges.target.tolist(), edges.link, strict=True)
            ]
        )
    yield "}\n"


def _clusters(graph: PhysicalGraph) -> Iterator[str]:
    by_part = np.argsort(graph.part, kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(graph.part, minlength=graph.parts)).tolist()
    first = 0
    for part, (node, last) in enumerate(zip(node_names(graph), ends, strict=True)):
        if last > first:
            label = f"part {part} on {node}" if node else f"part {part}"
            yield f'subgraph "cluster_{part}" {{\nlabel={_quoted(label)};\n'
            yield from _nodes(graph, by_part[first:last])
            yield "}\n"
        first = last


def _nodes(graph: PhysicalGraph, order: IntColumn | None = None) -> Iterator[str]:
    shared = [_dot_of_template(template) for template in graph.templates]
    for block in drop_blocks(graph, order):
        names = block.oid
        if _DOT_SPECIAL.search("".join(names)):
            names = [_dot_escaped(name) for name in names]
        extras = [
            f'"{weight!r}"];\n' if priority is None else f'"{weight!r}",priority={priority}];\n'
            for weight, priority in zip(block.weight, block.priority, strict=True)
        ]
        yield "".join(
            [
                f'n{row} [label="{name}",{shared[template]}{extra}'
                for row, name, template, extra in zip(block.row, names, block.template, extras, strict=True)
            ]
        )


def _dot_of_template(template: Template) -> str:
    """Return the attributes that all drops of a template share, and the beginning of that of their weight."""
    is_app = template.kind is Kind.APP
    kind, shape = ("application", "box") if is_app else ("data", "ellipse")
    name, component = _quoted(template.name), _quoted(template.component)
    return f"shape={shape},kind={kind},name={name},component={component},weight="


def _quoted(text: str) -> str:
    return f'"{_dot_escaped(text)}"'


def _dot_escaped(text: str) -> str:
    """Return a text for inside double quotes, where Graphviz reads a backslash and a letter as a command."""
    if not _DOT_SPECIAL.search(text):
        return text
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r\n", "\n")
    return plain.replace("\n", "\\n").replace("\r", "\\n").replace("\x00", "\ufffd")


# Writing a physical graph as GraphML (http://graphml.graphdrawing.org/), as a stream.


def write_graphml(graph: PhysicalGraph, stream: ByteSink) -> None:
    """Write a physical graph as GraphML, in UTF-8.

    A node's id is ``n`` and its row, because XML limits ids to few characters; its text id is in the key ``oid``. What
    the graph does not have (parts, nodes, priorities, ports) is left out. Control characters that XML cannot have
    become U+FFFD.

    Raises
    ------
    BadGraphError
        A text of the graph has half of a surrogate pair.
    """
    write_texts(graph, stream, _graphml_texts(graph))


def _graphml_texts(graph: PhysicalGraph) -> Iterator[str]:
    yield _HEAD
    for what, name, kind in _KEYS:
        yield f'<key id="{what}_{name}" for="{what}" attr.name="{name}" attr.type="{kind}"/>\n'
    yield f'<graph edgedefault="directed">\n{_data("graph_title", graph.name)}\n'
    shared = [_graphml_of_template(template) for template in graph.templates]
    homes = _homes(graph)
    for block in drop_blocks(graph):
        names = block.oid
        if _GRAPHML_SPECIAL.search("".join(names)):
            names = [_graphml_escaped(name) for name in names]
        extras = [
            f"{_number(weight)}</data>{homes[part]}"
            + ("" if priority is None else f'<data key="node_priority">{priority}</data>')
            for weight, part, priority in zip(block.weight, block.part, block.priority, strict=True)
        ]
        yield "".join(
            [
                f'<node id="n{row}"><data key="node_oid">{name}</data>{shared[template]}{extra}</node>\n'
                for row, name, template, extra in zip(block.row, names, block.template, extras, strict=True)
            ]
        )
    ends = [_of_link(link) for link in graph.links]
    for edges in edge_blocks(graph):
        yield "".join(
            [
                f'<edge source="n{source}" target="n{target}"{ends[link]}\n'
                for source, target, link in zip(edges.source.tolist(), edges.target.tolist(), edges.link, strict=True)
            ]
        )
    yield "</graph>\n</graphml>\n"


def _graphml_of_template(template: Template) -> str:
    """Return the data that all drops of a template share, and the beginning of that of their weight."""
    kind = "application" if template.kind is Kind.APP else "data"
    texts = (_data("node_kind", kind), _data("node_name", template.name), _data("node_component", template.component))
    return "".join(texts) + '<data key="node_weight">'


def _homes(graph: PhysicalGraph) -> list[str]:
    if not has_parts(graph):
        return [""] * graph.parts
    return [
        f'<data key="node_part">{part}</data>' + (_data("node_node", node) if node else "")
        for part, node in enumerate(node_names(graph))
    ]


def _of_link(link: Link) -> str:
    """Return the end of the element of an edge, with the data of its link."""
    texts = [_data("edge_source_port", link.source_port)] if link.source_port else []
    texts += [_data("edge_target_port", link.target_port)] if link.target_port else []
    texts += [_data("edge_streaming", "true")] if link.streaming else []
    return f">{''.join(texts)}</edge>" if texts else "/>"


def _data(key: str, text: str) -> str:
    return f'<data key="{key}">{_graphml_escaped(text)}</data>'


def _graphml_escaped(text: str) -> str:
    # A carriage return would be read as the end of a line, which is a line feed.
    return escape(_NOT_XML.sub("\ufffd", text), quote=False).replace("\r", "&#13;")


def _number(number: float) -> str:
    """Return a number as XML Schema's double spells it."""
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else "INF" if number > 0 else "-INF"


WRITERS: Mapping[str, Writer] = MappingProxyType(
    {"dot": write_dot, "graphml": write_graphml, "csv": write_csv_drops, "edges.csv": write_csv_edges}
)
"""The function that writes each format; a table of edges is the other half of a table of drops."""
