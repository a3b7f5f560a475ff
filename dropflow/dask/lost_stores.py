"""Tasks of `dask.array.store` whose target is in the client: another process would write into a copy of it."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from dask._task_spec import _execute_subgraph
from dask.task_spec import DataNode, GraphNode, Task, TaskRef

from dropflow.errors import AppError

__all__ = ["refuse_lost_store"]

_STORE = ("dask.array.core", "load_store_chunk")


def refuse_lost_store(node: Any, known: Mapping[Hashable, Any]) -> None:
    """Refuse a task whose only effect would be lost.

    Tasks that also return what they have stored are not refused: their values are right.

    Parameters
    ----------
    node : object
        What a dask graph has for a task, which may be fused from others.
    known : mapping
        The constants of the graph, by key.

    Raises
    ------
    AppError
        The task writes a chunk into an array of this process, or into a zarr array in its memory.
    """
    if not isinstance(node, Task):
        return
    if node.func is _execute_subgraph:
        tasks, _end, names, *given = node.args
        inside = dict(zip(names, (_value(one, known) for one in given), strict=True))
        for task in tasks.values():
            refuse_lost_store(task, inside)
    elif (getattr(node.func, "__module__", ""), getattr(node.func, "__name__", "")) == _STORE:
        target = _value(node.args[1], known)
        if not _value(node.kwargs.get("return_stored"), known) and _is_in_memory(target):
            raise AppError(
                f"chunks cannot be stored in {target.dtype}{list(target.shape)} of this process: tasks run in other "
                "processes, and would write into copies",
                hint="compute the array instead, store it in a zarr array with a path, or use the runner 'threads'",
            )


def _value(argument: Any, known: Mapping[Hashable, Any]) -> Any:
    found = known.get(argument.key) if isinstance(argument, TaskRef) else argument
    return found.value if isinstance(found, DataNode) else None if isinstance(found, GraphNode) else found


def _is_in_memory(target: Any) -> bool:
    """Return whether this is an array of NumPy, which is pickled with its values, or one of zarr without a path."""
    store = getattr(target, "store", None)
    return isinstance(target, np.ndarray) or isinstance(store, dict) or type(store).__name__ == "MemoryStore"
