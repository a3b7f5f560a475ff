"""Which contents outlive their session."""

import numpy as np
import numpy.typing as npt

from dropflow.graph.order import leaves
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind

__all__ = ["kept_drops"]


def kept_drops(graph: PhysicalGraph) -> bytes:
    """Return one byte a drop: 1 for data that nothing in the graph reads, and for data that is to persist."""
    persists = np.array([template.persist is True for template in graph.templates], dtype=np.bool_)[graph.template]
    persists[leaves(graph)] = True
    kept: npt.NDArray[np.bool_] = persists & (graph.kinds[graph.template] == np.uint8(Kind.DATA))
    return kept.tobytes()
