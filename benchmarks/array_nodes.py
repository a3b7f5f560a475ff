"""Tiling of arrays: time and memory for 1,000 to 100,000 chunks, and for the same graph made by dask.

The graph is a source, an elementwise function, and the sum over one axis in a tree. With dask, its graph is made by
`dask.array`, and becomes columns by `dropflow.dask.translate`.
"""

import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind
from translator.unroll import plan, unroll

SIZES = (1_000, 10_000, 100_000)
COLUMNS = 100


def array(name: str, shape: list[int], chunks: list[int]) -> LogicalNode:
    """Return an array node."""
    values = {"dropclass": "dropflow.data.Array", "shape": shape, "chunks": chunks}
    return _node(name, NodeKind.DATA, values)


def application(name: str, kind: str, labels: str) -> LogicalNode:
    """Return an application on arrays."""
    return _node(name, NodeKind.APP, {"dropclass": f"dropflow.apps.{kind}", "labels": labels, "func_name": "abs"})


def _node(name: str, kind: NodeKind, values: dict[str, Any]) -> LogicalNode:
    fields = tuple(Field(id=f"{name}.{key}", name=key, value=value) for key, value in values.items())
    return LogicalNode(id=name, key=name, name=name, category="Memory", kind=kind, fields=fields)


def drawn(chunks: int) -> LogicalGraph:
    """Return a graph with arrays of so many chunks."""
    shape, one = [10 * chunks // COLUMNS, COLUMNS * 10], [10, 10]
    nodes = [
        *(array("x", shape, one), array("y", shape, one), array("z", shape[:1], one[:1])),
        application("make", "ArraySource", ""),
        application("f", "ArrayBlockwise", "ij -> ij"),
        application("sum", "ArrayReduction", "ij -> i"),
    ]
    ends = [("make", "x"), ("x", "f"), ("f", "y"), ("y", "sum"), ("sum", "z")]
    links = tuple(LogicalLink(source=source, target=target) for source, target in ends)
    return LogicalGraph(name="arrays", family="benchmark", nodes=tuple(nodes), links=links)


def tiled(chunks: int) -> int:
    """Tile and unroll a graph, and return its drops."""
    return unroll(plan(drawn(chunks))).drops


def by_dask(chunks: int) -> int:
    """Make the same graph with dask, and return its drops."""
    import dask.array as da  # noqa: PLC0415 - optional
    import numpy as np  # noqa: PLC0415
    from dask.task_spec import convert_legacy_graph  # noqa: PLC0415

    from dropflow.dask.translate import translate  # noqa: PLC0415

    shape, one = (10 * chunks // COLUMNS, COLUMNS * 10), (10, 10)
    made = da.map_blocks(np.abs, da.zeros(shape, chunks=one), meta=np.empty((0, 0))).sum(axis=1, split_every=8)
    return translate(convert_legacy_graph(dict(made.__dask_graph__())), made.__dask_keys__(), {}).graph.drops


def measure(run: Callable[[int], int], chunks: int) -> tuple[int, float, float]:
    """Return drops, seconds of processor time, and the largest memory in MB."""
    run(100)
    seconds = min(_timed(run, chunks) for _ in range(3))
    tracemalloc.start()
    drops = run(chunks)
    memory = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return drops, seconds, memory


def _timed(run: Callable[[int], int], chunks: int) -> float:
    start = time.process_time()
    run(chunks)
    return time.process_time() - start


def main() -> None:
    """Print the figures of each size as JSON."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for chunks in SIZES:
        for name, run in (("dropflow", tiled), ("dask.array", by_dask)):
            drops, seconds, memory = measure(run, chunks)
            figures = {"drops": drops, "seconds": round(seconds, 4), "megabytes": round(memory, 1)}
            found.setdefault(str(chunks), {})[name] = figures
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
