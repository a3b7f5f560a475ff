"""How many nodes are to have the content of each data drop."""

import numpy as np
import numpy.typing as npt

from dropflow.engine.parameters import Unusable, convert, find, is_empty
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template

__all__ = ["MOST_REPLICAS", "replicas_of", "wanted_copies"]

MOST_REPLICAS = 100
"""Greatest number of nodes that can be asked for."""


def replicas_of(template: Template) -> int:
    """Return on how many nodes the contents of a data node are to be; 0 if it does not say."""
    argument = find(template.arguments, "replicas", type_="Integer") if template.kind is Kind.DATA else None
    if argument is None or is_empty(argument.value, "Integer"):
        return 0
    try:
        return int(convert(argument.value, "Integer"))
    except Unusable:
        return 0


def wanted_copies(graph: PhysicalGraph, kept: bytes, replicas: int) -> npt.NDArray[np.uint8]:
    """Return how many other nodes are to have a copy of the content of each drop, shape (drops,).

    Parameters
    ----------
    kept : bytes
        1 for each result, from `dropflow.engine.content_table.kept_drops`.
    replicas : int
        On how many nodes results are to be whose node does not say.
    """
    named = np.array([replicas_of(template) for template in graph.templates], dtype=np.uint8)[graph.template]
    by_default = np.where(np.frombuffer(kept, dtype=np.uint8) > 0, np.uint8(max(replicas, 1)), np.uint8(1))
    found: npt.NDArray[np.uint8] = np.where(named > 0, named, by_default) - np.uint8(1)
    return found
