"""Execution of dask's collections (arrays, bags, data frames, delayed functions, xarray) by dropflow.

Dask divides a program on arrays into tasks on chunks. Here, its graph becomes a physical graph, and a session executes
it: `scheduler` for a block of code, `get` for one computation. Read `dropflow.dask.translate` first.

It needs the extra ``dask``. In this process, values are objects (`object_contents`, `task_executor`), and there is no
session directory. In worker processes (`worker_processes`) and on managers (`remote_sessions`), tasks are code in the
templates of a graph (`portable_graph`), which `dropflow.dask_tasks` runs; values are contents.
"""

from dropflow.errors import MissingDependencyError, install_hint

try:
    from dropflow.dask.explain import ExplainedCollection, ExplainedStep, explain
    from dropflow.dask.graph_files import load_value, save_graph
    from dropflow.dask.scheduler import RUNNERS, Scheduler, get, persist, scheduler
except ImportError as error:
    if (error.name or "").startswith("dropflow"):
        raise
    raise MissingDependencyError(
        f"dropflow.dask needs dask 2025.7 or newer: {error}", hint=install_hint("dask")
    ) from error

__all__ = [
    "RUNNERS",
    "ExplainedCollection",
    "ExplainedStep",
    "Scheduler",
    "explain",
    "get",
    "load_value",
    "persist",
    "save_graph",
    "scheduler",
]
