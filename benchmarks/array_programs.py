"""Programs on arrays and data frames, each of about a given number of tasks; `arrays.py` measures them.

The graphs are those that dask gives without fusion, so that the number of tasks is known. `side` is the number of rows
and columns of a chunk.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.core import convert_legacy_graph, flatten

__all__ = ["PROGRAMS", "graph_of"]

_SEED = 1
_DIRECT = 10**9
"""Edges from which dask would change chunks in several steps: each chunk is cut for each new one."""
_ROWS = 100
"""Rows of a partition of the data frame, for each row of a chunk of the arrays / 8."""


def _ones(rows: int, columns: int, side: int) -> Any:
    return da.ones((rows * side, columns * side), chunks=side)


def _side_of(tasks: int, each: float, least: int = 2) -> int:
    """Return the number of chunks on each side of a square array, if each chunk makes so many tasks."""
    return max(least, round((tasks / each) ** 0.5))


def chain(tasks: int, side: int) -> Any:
    """Return the sum of an elementwise chain."""
    count = _side_of(tasks, 4.3)
    return ((_ones(count, count, side) + 1) * 2).sum()


def transpose(tasks: int, side: int) -> Any:
    """Return the sum of an array and its transposed one."""
    count = _side_of(tasks, 4.3)
    return (_ones(count, count, side) + _ones(count, count, side).T).sum()


def rechunk(tasks: int, side: int) -> Any:
    """Return the sum of an array in chunks of another size."""
    count = _side_of(tasks, 3.4)
    return _ones(count, count, side).rechunk(side * 3 // 2).sum()


def tensordot(tasks: int, side: int) -> Any:
    """Return the sum of the product of two matrices."""
    count = max(2, round((tasks / 1.95) ** (1 / 3)))
    return da.tensordot(_ones(count, count, side), _ones(count, count, side), axes=1).sum()


def fft(tasks: int, side: int) -> Any:
    """Return the sum of a Fourier transform over both axes: by rows, and, in chunks of columns, by columns."""
    count, width = _side_of(tasks, 1.0), max(2, side // 2)
    rows = da.ones((count * width, count * width), chunks=(width, count * width))
    columns = da.fft.fft(rows, axis=1).rechunk((count * width, width), threshold=_DIRECT)
    return abs(da.fft.fft(columns, axis=0)).sum()


def svd(tasks: int, side: int) -> Any:
    """Return sums of the factors of a tall and skinny matrix: QR of each block, and of what is left."""
    count = max(2, round(tasks / 13))
    tall = da.random.default_rng(_SEED).random((count * side * 4, 8), chunks=(side * 4, 8))
    left, values, right = da.linalg.svd(tall)
    return abs(left).sum() + values.sum() + abs(right).sum()


def channels(tasks: int, side: int) -> Any:
    """Return the mean over time by band of channels, with xarray's groupby."""
    import xarray  # noqa: PLC0415 - only for this program

    count = _side_of(tasks, 3.6, 4)
    array = xarray.DataArray(_ones(count, count, side), dims=("time", "channel"))
    bands = np.arange(count * side) // (side * 2)
    return array.assign_coords(band=("channel", bands)).groupby("band").mean(("time", "channel")).data


def partition(number: int, rows: int) -> Any:
    """Return a partition of the data frame."""
    import pandas as pd  # noqa: PLC0415 - only for this program

    values = np.random.default_rng(number)
    return pd.DataFrame({"name": values.integers(0, 10, rows), "x": values.random(rows), "y": values.random(rows)})


def frame(tasks: int, side: int) -> Any:
    """Return the mean of a column by the values of another one, of a data frame."""
    import dask.dataframe as dd  # noqa: PLC0415 - only for this program

    count, rows = max(2, round(tasks / 10)), _ROWS * max(1, side * side // 64)
    parts = dd.from_map(partition, range(count), rows=rows, meta=partition(0, 1))
    return parts[parts.x > 0.5].groupby("name").x.mean().optimize(fuse=False)


PROGRAMS: Mapping[str, Callable[[int, int], Any]] = {
    "chain and sum": chain,
    "x + x.T": transpose,
    "rechunk": rechunk,
    "tensordot": tensordot,
    "FFT": fft,
    "tall-skinny SVD": svd,
    "groupby (xarray)": channels,
    "groupby (data frame)": frame,
}


def graph_of(program: str, tasks: int, side: int) -> tuple[dict[Hashable, Any], list[Hashable]]:
    """Return the graph of a program, and the keys that are wanted."""
    with dask.config.set({"optimization.fuse.active": False}):
        made = PROGRAMS[program](tasks, side)
        nodes = convert_legacy_graph(dict(made.__dask_graph__()))
    keys: list[Hashable] = list(flatten(made.__dask_keys__()))
    return nodes, keys
