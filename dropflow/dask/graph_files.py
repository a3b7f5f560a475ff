"""Computations of dask as graph files, which any client can submit, and values that were fetched as files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask
from dask.core import convert_legacy_graph

from dropflow.dask.chunk_inputs import with_chunks_of
from dropflow.dask.fused_chains import with_fused_chains
from dropflow.dask.initial_placement import with_parts
from dropflow.dask.layer_volumes import layer_volumes
from dropflow.dask.portable_graph import portable
from dropflow.dask.translate import translate
from dropflow.dask_tasks.value_encoding import read_value
from dropflow.errors import BadFileError, BadParameterError
from dropflow.exception_text import summary_of
from dropflow.graph.text_ids import oid
from dropflow.graph_file import save
from translator.planning.machines import Machines, NodeCapacity

__all__ = ["load_value", "save_graph"]


def save_graph(
    path: str | os.PathLike[str], *collections: Any, nodes: int = 1, optimize_graph: bool = True
) -> tuple[Any, ...]:
    """Write the graph that computes collections to a file, as `scheduler` submits it to managers.

    Parameters
    ----------
    path : path
        The file, a ``.dfg`` container.
    *collections
        Collections of dask, and lists, tuples and dictionaries with some. Values of persisted chunks are fetched, and
        become constants of the graph.
    nodes : int
        Into how many parts of equal nodes it is divided.
    optimize_graph : bool
        Whether dask optimizes it.

    Returns
    -------
    tuple
        What ``dask.compute`` returns, with the id of a data drop in the place of each value.

    Raises
    ------
    BadParameterError
        The number of nodes is not positive.
    AppError
        A task cannot be pickled.
    StorageError
        The file cannot be written.
    """
    if nodes < 1:
        raise BadParameterError(f"the number of nodes is {nodes}", hint="give at least 1")

    def written(dsk: Any, keys: Any, **options: Any) -> list[str]:
        del options
        given = convert_legacy_graph(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
        fused = with_fused_chains(with_chunks_of("", given, keys), keys)
        tasks = translate(fused, keys, layer_volumes(dsk), runs_constants=True)
        graph = portable(tasks)
        if nodes > 1:
            graph = with_parts(graph, Machines(nodes=tuple(NodeCapacity(name=f"n{row}") for row in range(nodes))))
        save(graph, Path(path))
        return [oid(graph, tasks.results[key]) for key in keys]

    found: tuple[Any, ...] = dask.compute(*collections, scheduler=written, optimize_graph=optimize_graph)
    return found


def load_value(path: str | os.PathLike[str]) -> Any:
    """Return the value in a file that was fetched from a session of dask. It is unpickled: trust the session.

    Raises
    ------
    BadFileError
        It is no value, or a module that it needs is missing here.
    OSError
        The file cannot be read.
    """
    with Path(path).open("rb") as stream:
        try:
            return read_value(stream)
        except Exception as problem:
            raise BadFileError(
                f"the file has no value that can be loaded: {summary_of(problem)}",
                where=str(path),
                hint="it is to be the content of a drop that dropflow.dask.save_graph named, and the modules of the "
                "value must be installed",
            ) from problem
