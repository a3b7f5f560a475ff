"""A digest of what a graph says, the same on every machine."""

import hashlib

import msgspec
import numpy as np

from dropflow.graph.physical import PhysicalGraph

__all__ = ["digest"]

_VERSION = b"dropflow graph 2\n"


def digest(graph: PhysicalGraph) -> str:
    """SHA-256 of a graph's ids, templates, links, columns and places, in 64 hexadecimal digits.

    Two graphs with the same digest have (but for collisions) the same rows: the same drops in the same order, with the
    same text ids and parameters, joined by the same edges, in the same parts and places. The name of the graph and its
    `meta` notes do not count, nor does the order of keys in JSON objects among the parameters.
    """
    shared = (graph.prefix, graph.templates, graph.links, graph.places, graph.oids)
    found = hashlib.sha256(_VERSION)
    # JSON, since parameters may hold integers of any size; the order of keys must not depend on the file read.
    found.update(msgspec.json.encode(shared, order="deterministic"))
    out = graph.successors
    for column in (graph.template, graph.instance, graph.part, out.ptr, out.neighbour, out.link):
        little = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<"))
        found.update(len(little).to_bytes(8, "little"))
        found.update(little.data)
    return found.hexdigest()
