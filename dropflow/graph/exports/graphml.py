"""Writing a physical graph as GraphML (http://graphml.graphdrawing.org/), as a stream."""

import math
import re
from collections.abc import Iterator
from xml.sax.saxutils import escape

from dropflow.graph.exports.drop_rows import drop_blocks, edge_blocks, has_parts, node_names, write_texts
from dropflow.graph.interchange_write import ByteSink
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Link, Template

__all__ = ["write_graphml"]

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
_SPECIAL = re.compile("[&<>\r\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


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
    write_texts(graph, stream, _texts(graph))


def _texts(graph: PhysicalGraph) -> Iterator[str]:
    yield _HEAD
    for what, name, kind in _KEYS:
        yield f'<key id="{what}_{name}" for="{what}" attr.name="{name}" attr.type="{kind}"/>\n'
    yield f'<graph edgedefault="directed">\n{_data("graph_title", graph.name)}\n'
    shared = [_of_template(template) for template in graph.templates]
    homes = _homes(graph)
    for block in drop_blocks(graph):
        names = block.oid
        if _SPECIAL.search("".join(names)):
            names = [_escaped(name) for name in names]
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


def _of_template(template: Template) -> str:
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
    return f'<data key="{key}">{_escaped(text)}</data>'


def _escaped(text: str) -> str:
    # A carriage return would be read as the end of a line, which is a line feed.
    return escape(_NOT_XML.sub("\ufffd", text), {"\r": "&#13;"})


def _number(number: float) -> str:
    """Return a number as XML Schema's double spells it."""
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else "INF" if number > 0 else "-INF"
