"""Volumes of chunks, from what dask's layers tell about shape, chunks and data type of their array."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from dask.highlevelgraph import HighLevelGraph

__all__ = ["layer_chunks", "layer_volumes"]


def layer_volumes(graph: Any) -> dict[str, float]:
    """Return the mean bytes of a chunk of each array in a dask graph, by the name of its layer, where they are known.

    Parameters
    ----------
    graph : object
        A `dask.highlevelgraph.HighLevelGraph`, or an expression of dask that holds some; others have no layers.
    """
    volumes: dict[str, float] = {}
    for layers in _layers(graph):
        for name, layer in layers.items():
            known = getattr(layer, "collection_annotations", None) or {}
            size = _mean_bytes(known.get("dtype"), known.get("shape"), known.get("chunks"))
            if size is not None:
                volumes[str(name)] = size
    return volumes


def layer_chunks(graph: Any) -> dict[str, tuple[tuple[tuple[int, ...], ...], np.dtype[Any]]]:
    """Return chunks and data type of each array in a dask graph, by the name of its layer, where they are known."""
    found = {}
    for layers in _layers(graph):
        for name, layer in layers.items():
            known = getattr(layer, "collection_annotations", None) or {}
            chunks, dtype = known.get("chunks"), known.get("dtype")
            if chunks is not None and isinstance(dtype, np.dtype):
                found[str(name)] = (chunks, dtype)
    return found


def _layers(graph: Any) -> Iterator[Mapping[Any, Any]]:
    """Yield the layers of all graphs in an expression.

    Attributes are looked for in classes and in ``__dict__`` only: an expression of a data frame looks for unknown ones
    in its columns, for which it needs metadata that it may not be able to compute.
    """
    left = [graph]
    while left:
        found = left.pop()
        if isinstance(found, HighLevelGraph):
            yield found.layers
        elif hasattr(type(found), "hlg"):
            left.append(found.hlg)
        else:
            operands = getattr(found, "__dict__", {}).get("operands", ())
            left += [each for each in operands if hasattr(type(each), "__dask_graph__")]


def _mean_bytes(dtype: Any, shape: Any, chunks: Any) -> float | None:
    """Return the mean bytes of a chunk; None if the size of an axis is unknown, or values are objects."""
    if not isinstance(dtype, np.dtype) or dtype.hasobject or shape is None or chunks is None:
        return None
    total, count = float(dtype.itemsize), 1
    for length, pieces in zip(shape, chunks, strict=True):
        total *= length
        count *= len(pieces)
    return total / count if count and np.isfinite(total) else None
