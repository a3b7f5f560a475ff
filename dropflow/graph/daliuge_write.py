"""Writing a physical graph as DALiuGE's JSON: one dictionary for each drop, as a stream.

The shared part of all instances of a template is encoded once and copied, so that the time is that of writing bytes and
the memory is that of a block of drops. The file is a list with one dictionary for each drop, and a reproducibility
record at its end.

Only for exchange with DALiuGE, EAGLE and old files: `.dfg` (`dropflow.graph.codec`) is a hundred times smaller. Three
things are lost in it: the names of the axes of index spaces, the marks of loop carries, and values of parameters that
JSON does not have (NaN becomes null). Drops that must stay together keep their axes, in a key ``placement_axes`` that
DALiuGE ignores.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec
import numpy as np

from dropflow.errors import BadGraphError
from dropflow.graph.daliuge_fields import CONTAINERS, STRUCTURAL, record_of
from dropflow.graph.physical import Adjacency, PhysicalGraph
from dropflow.graph.slices import binding
from dropflow.graph.templates import Kind, Template
from dropflow.graph.text_ids import index_of, oids

_BLOCK_DROPS = 2048
"""Drops that are written at once."""
_encode = msgspec.json.encode
_Edges = list[tuple[str, str, str, bool]]


class ByteSink(Protocol):
    """A binary stream to write to, such as a file or ``sys.stdout.buffer``."""

    def write(self, data: bytes, /) -> object:
        """Write these bytes."""
        ...


def write_pg(graph: PhysicalGraph, stream: ByteSink, *, places: Sequence[str] | None = None) -> None:
    """Write a physical graph as DALiuGE's JSON list of drops, ended by an empty reproducibility record.

    Parameters
    ----------
    graph : PhysicalGraph
        Any graph; its drops are written in the order of its rows.
    stream : ByteSink
        Stream for the UTF-8 text, which is written in blocks of drops.
    places : sequence of str, optional
        Name of the node of each part, instead of the places of the graph. A partitioned graph without places gets the
        placeholders ``#k``; a graph that is not partitioned has no ``node``.

    Raises
    ------
    BadGraphError
        A text of the graph has half of a surrogate pair.
    """
    try:
        stream.write(b"[\n")
        for block in _blocks(graph, graph.places if places is None else places):
            stream.write(block)
        stream.write(b"{}\n]\n")
    except UnicodeEncodeError as error:
        text = f"a text has half of a surrogate pair: {ascii(error.object)[:80]}"
        raise BadGraphError(text, where=graph.name, hint="remove that character") from error


def _blocks(graph: PhysicalGraph, places: Sequence[str]) -> Iterator[bytes]:
    has_priority = graph.priority is not None
    shared = [_shared(template, has_priority=has_priority) for template in graph.templates]
    homes = _homes(graph, places)
    for first in range(0, graph.drops, _BLOCK_DROPS):
        rows = range(first, min(first + _BLOCK_DROPS, graph.drops))
        names = oids(graph, rows)
        after = _Relations(graph, graph.successors, rows)
        before = _Relations(graph, graph.predecessors, rows)
        lines = []
        for row, name in zip(rows, names, strict=True):
            template = graph.templates[graph.template[row]]
            own = _identity(graph, row, name, template) | _relations(template.kind, after.of(row), before.of(row))
            # Joins the contents of two encoded JSON objects to one object.
            lines.append(b"%b,%b%b},\n" % (_encode(own)[:-1], shared[graph.template[row]], homes[graph.part[row]]))
        yield b"".join(lines)


def _homes(graph: PhysicalGraph, places: Sequence[str]) -> list[bytes]:
    """Return the encoded keys ``node`` and ``island`` of each part, with a comma in front."""
    islands: list[str] = []
    with suppress(msgspec.MsgspecError):  # a note that cannot be read is like none
        islands = msgspec.json.decode(graph.meta.get("islands", "[]"), type=list[str])
    if not places and graph.parts == 1 and not islands and graph.priority is None:
        return [b""]
    encoded = []
    is_plain = not places and not islands and not (graph.part == 0).any()  # with island #0, node #1 would be part 0
    for part in range(graph.parts):
        node = places[part] if places else f"#{part}"
        island = islands[part] if part < len(islands) else (places[0] if places else "#0")
        encoded.append(b"," + _encode({"node": node} if is_plain else {"node": node, "island": island})[1:-1])
    return encoded


def _shared(template: Template, *, has_priority: bool) -> bytes:
    """Return the encoded keys that all instances share, without braces."""
    is_app = template.kind is Kind.APP
    keys: dict[str, Any] = {
        "lg_key": template.key,
        "name": template.name,
        "category": template.category,
        "categoryType": "Application" if is_app else "Data",
        "dropclass": template.component,
        "storage": template.category,
        # Weights are integers in DALiuGE; rounding up avoids a weight of zero.
        "weight": math.ceil(template.weight) if math.isfinite(template.weight) else None,
    }
    if is_app:
        keys["num_cpus"] = template.cpus
    keys |= _rules(template)
    if binding(template.axes) is not None:
        keys["placement_axes"] = msgspec.to_builtins(template.axes)
    records = {argument.name: record_of(argument) for argument in template.arguments}
    for container, parameter_type in CONTAINERS.items():
        inside = {a.name: records[a.name] for a in template.arguments if a.parameter_type == parameter_type}
        keys[container] = inside
    keys["fields"] = list(records.values())
    taken = keys.keys() | ({"priority"} if is_app and has_priority else set()) | STRUCTURAL
    keys |= {a.name: a.value for a in template.arguments if a.name not in taken}
    return _encode(keys)[1:-1]


def _rules(template: Template) -> dict[str, Any]:
    """Return the settings of the execution: those that a field of the node sets, and those without their default."""
    plain = Template(key="", name="", kind=template.kind)
    rules = {
        "input_error_threshold": ("error_threshold", template.error_threshold),
        "n_tries": ("tries", template.tries),
        "n_effective_inputs": ("effective_inputs", template.effective_inputs),
        "block_skip": ("block_skip", template.block_skip),
        "persist": ("persist", template.persist),
        "app_name": ("app_name", template.app_name),
        "artificial": ("artificial", template.artificial),
        "origin": ("origin", template.origin),
        "collects": ("collects", template.collects),
    }
    return {
        key: value
        for key, (attribute, value) in rules.items()
        if value is not None and (value != getattr(plain, attribute) or template.argument(key) is not None)
    }


def _identity(graph: PhysicalGraph, row: int, name: str, template: Template) -> dict[str, Any]:
    index = index_of(graph, row)
    keys: dict[str, Any] = {
        "oid": name,
        "iid": "-".join(map(str, (0, *index))),
        "rank": [0, *index],
        "loop_ctx": None,
    }
    loops = [str(at) for at, axis in zip(index, template.axes, strict=True) if axis.kind == "loop"]
    if loops:
        keys["loop_ctx"] = "-".join(loops)
    if graph.priority is not None and template.kind is Kind.APP:
        keys["priority"] = int(graph.priority[row])
    if template.axes and template.axes[-1].kind == "mpi":
        keys["proc_index"] = index[-1]
    return keys


class _Relations:
    """Neighbours of a block of drops, by name."""

    def __init__(self, graph: PhysicalGraph, edges: Adjacency, rows: range) -> None:
        self._links = graph.links
        self._start = edges.ptr[rows.start : rows.stop + 1].tolist()
        self._first = rows.start
        here = slice(self._start[0], self._start[-1])
        self._names = oids(graph, np.asarray(edges.neighbour[here]))
        self._link = edges.link[here].tolist()

    def of(self, row: int) -> "_Edges":
        """Return (neighbour, source port, target port, streaming) for every edge of a drop."""
        edges = []
        offset = self._start[0]
        for edge in range(self._start[row - self._first] - offset, self._start[row - self._first + 1] - offset):
            link = self._links[self._link[edge]]
            edges.append((self._names[edge], link.source_port, link.target_port, link.streaming))
        return edges


def _relations(kind: Kind, after: _Edges, before: _Edges) -> dict[str, Any]:
    """Return the keys for the edges of a drop. Each entry has the other drop and the port on this one."""
    keys: dict[str, Any] = {}
    ports = []
    is_app = kind is Kind.APP
    for name, port, _, streaming in after:
        streams = streaming and not is_app
        key = "outputs" if is_app else "streamingConsumers" if streams else "consumers"
        keys.setdefault(key, []).append({name: port} if port else name)
        if port:
            ports.append({"name": port, "oid": name, "direction": "output"})
    for name, other_port, port, streaming in before:
        streams = streaming and is_app
        key = "streamingInputs" if streams else "inputs" if is_app else "producers"
        keys.setdefault(key, []).append({name: port} if port else name)
        if port:
            ports.append({"name": port, "oid": name, "direction": "input"})
        if port and other_port and not is_app:
            keys.setdefault("port_map", {})[port] = other_port
    if ports:
        keys["ports"] = ports
    return keys
