"""Writing a physical graph in DOT, the language of Graphviz (https://graphviz.org/doc/info/lang.html), as a stream."""

import re
from collections.abc import Iterator

import numpy as np

from dropflow.graph.exports.drop_rows import drop_blocks, edge_blocks, has_parts, node_names, write_texts
from dropflow.graph.interchange_write import ByteSink
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind, Template

__all__ = ["write_dot"]

_SPECIAL = re.compile('["\\\\\n\r\x00]')


def write_dot(graph: PhysicalGraph, stream: ByteSink) -> None:
    """Write a physical graph in DOT, in UTF-8.

    A node is called ``n`` and its row, and shows its text id; applications are boxes, data drops are ellipses. Each
    part is a cluster, with the name of its node. Edges of streams are dashed.

    Raises
    ------
    BadGraphError
        A text of the graph has half of a surrogate pair.
    """
    write_texts(graph, stream, _texts(graph))


def _texts(graph: PhysicalGraph) -> Iterator[str]:
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
    shared = [_of_template(template) for template in graph.templates]
    for block in drop_blocks(graph, order):
        names = block.oid
        if _SPECIAL.search("".join(names)):
            names = [_escaped(name) for name in names]
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


def _of_template(template: Template) -> str:
    """Return the attributes that all drops of a template share, and the beginning of that of their weight."""
    is_app = template.kind is Kind.APP
    kind, shape = ("application", "box") if is_app else ("data", "ellipse")
    name, component = _quoted(template.name), _quoted(template.component)
    return f"shape={shape},kind={kind},name={name},component={component},weight="


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Return a text for inside double quotes, where Graphviz reads a backslash and a letter as a command."""
    if not _SPECIAL.search(text):
        return text
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r\n", "\n")
    return plain.replace("\n", "\\n").replace("\r", "\\n").replace("\x00", "\ufffd")
