"""Execution of dask's collections (arrays, bags, data frames, delayed functions, xarray) by dropflow.

Dask divides a program on arrays into tasks on chunks. Here, its graph becomes a physical graph, and a session executes
it: `scheduler` for a block of code, `get` for one computation. It needs the extra ``dask``. In this process, values are
objects, and there is no session directory. In worker processes and on managers, tasks are code in the templates of a
graph, which `dropflow.dask_tasks` runs; values are contents.

=================  ====================================================================================================
`scheduler`        The scheduler that dask calls: ``get``, and the context in which collections are computed by
                   dropflow
`translate`        Translation of a dask graph into a physical graph: one application and one data drop for each task
`values`           Values of this process within a memory budget: what is needed last is written to files, and read
                   back on use
`portable`         A translated dask graph for other processes: its templates carry the code of their tasks
`processes`        Computation of dask graphs in worker processes of this machine
`remote`           Computation of dask graphs as sessions of managers: a node, an island or a master
`persist`          Chunks of persisted collections: references to contents of sessions, and the end of what nothing
                   refers to
`lost_chunks`      Chunks of persisted collections that are lost after the end of their session: they are computed
                   again
`explain`          The graph of a dask collection after each step until it is executed, with counts and bytes
`callbacks`        Dask's callbacks (`dask.callbacks`, `dask.diagnostics`), called while dropflow executes a graph
`chunk_sources`    Places that hold the chunks of persisted collections: a manager, or a directory of this machine
`object_contents`  Contents of drops that are Python objects of this process: values of dask's keys, passed by
                   reference
=================  ====================================================================================================
"""

from dropflow.errors import MissingDependencyError, install_hint

try:
    from dropflow.dask.explain import ExplainedCollection, ExplainedStep, explain
    from dropflow.dask.portable import load_value, save_graph
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
