"""A digest of a graph, the same on every machine."""

import hashlib
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph

__all__ = ["digest"]

_VERSION = b"dropflow graph 2\n"


def digest(graph: PhysicalGraph) -> str:
    """Return the SHA-256 of ids, templates, links, columns and places of a graph, as 64 hexadecimal digits.

    Two graphs with the same digest have (except for collisions) the same drops in the same order, with the same text
    ids and parameters, the same edges, parts, places and priorities. The digest does not include the name of the graph,
    its `meta` notes, and the order of keys in JSON objects among the parameters.
    """
    shared = (graph.prefix, graph.templates, graph.links, graph.places, graph.oids)
    found = hashlib.sha256(_VERSION)
    # JSON, because parameters may have integers of any size. The order of keys must not depend on the file.
    found.update(msgspec.json.encode(shared, order="deterministic"))
    out = graph.successors
    columns: list[npt.NDArray[Any]] = [graph.template, graph.instance, graph.part, out.ptr, out.neighbour, out.link]
    # Absent from graphs without priorities, whose digests stay those of earlier versions.
    columns += [] if graph.priority is None else [graph.priority]
    for column in columns:
        little = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<"))
        found.update(len(little).to_bytes(8, "little"))
        found.update(little.data)
    return found.hexdigest()
