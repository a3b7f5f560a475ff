"""The runner of a session: threads for applications that wait, worker processes or threads for the others."""

import os

import numpy as np

from dropflow.apps.component_findings import with_time_limit
from dropflow.apps.execute import LocalExecutor
from dropflow.apps.registry import app_class
from dropflow.data.workspace import Workspace
from dropflow.engine.api import ExecutorSpec, Runner
from dropflow.engine.runners.capacity import memory_of_host, unusual_needs
from dropflow.engine.runners.inline import InlineRunner
from dropflow.engine.runners.mixed import MixedRunner
from dropflow.engine.runners.pool import WorkerPool
from dropflow.engine.runners.processes import ProcessRunner
from dropflow.engine.runners.threads import ThreadRunner
from dropflow.errors import BadGraphError, MissingDependencyError, UnknownComponentError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template

__all__ = ["RUNNERS", "capacity_notes", "make_runner"]

RUNNERS = ("inline", "threads", "processes")
_WAITING_THREADS = 64


def make_runner(
    graph: PhysicalGraph,
    workspace: Workspace,
    kind: str = "processes",
    workers: int | None = None,
    *,
    pool: WorkerPool | None = None,
    until: float = 0.0,
) -> Runner:
    """Return the runner of one session.

    Parameters
    ----------
    workspace : Workspace
        Of the session's repository.
    kind : str
        One of `RUNNERS`. With worker processes or threads, applications that only wait run in threads of their own.
    workers : int, optional
        Threads or processes; by default one per core that this process may use.
    pool : WorkerPool, optional
        Worker processes to share with other sessions, for the kind ``processes``; by default the session has its own.
    until : float
        Walltime, in seconds since the epoch; 0 for none.

    Raises
    ------
    BadGraphError
        There is no such kind, or it cannot run the MPI jobs of the graph.
    """
    if kind not in RUNNERS:
        raise BadGraphError(f"there is no runner {kind!r}", hint=f"one of {', '.join(RUNNERS)}")
    spec = ExecutorSpec(
        session=workspace.session,
        directory=workspace.directory,
        templates=tuple(with_time_limit(template) for template in graph.templates),
        links=graph.links,
        prefix=graph.prefix,
        durable=workspace.durable,
        until=until,
        tag=workspace.tag,
    )
    ranks = max((one.size for template in graph.templates for one in template.axes if one.kind == "mpi"), default=1)
    if kind == "inline" and ranks > 1:
        text = f"the runner 'inline' runs one attempt at a time, and an MPI job has {ranks} ranks that run at once"
        raise BadGraphError(text, hint="choose the runner threads or processes")
    # The ranks of a job come one after the other, and all of them wait until the job has ended.
    threads = max(_WAITING_THREADS, 2 * ranks)
    if kind == "inline":
        return InlineRunner(LocalExecutor(spec))
    count = workers or len(os.sched_getaffinity(0))
    waits = [template.kind is Kind.APP and _waits(template) for template in graph.templates]
    if all(waits):
        return ThreadRunner(LocalExecutor(spec), threads=threads)
    computing: Runner
    if kind == "threads":
        computing = ThreadRunner(LocalExecutor(spec), threads=count, templates=spec.templates)
    else:
        computing = pool.runner(spec) if pool is not None else ProcessRunner(spec, workers=count)
    if not any(waits):
        return computing
    return MixedRunner(waiting=ThreadRunner(LocalExecutor(spec), threads=threads), computing=computing, waits=waits)


def capacity_notes(graph: PhysicalGraph, kind: str, workers: int | None = None) -> tuple[str, ...]:
    """Return a note on each application that declares more processors or memory than its runner has, or no size."""
    if kind == "inline":
        return ()  # one attempt at a time
    used = [graph.templates[row] for row in np.unique(graph.template).tolist()]
    return unusual_needs(used, workers or len(os.sched_getaffinity(0)), memory_of_host())


def _waits(template: Template) -> bool:
    """Whether the attempts of a node only wait. The class of a node on other hosts may not be installed here."""
    try:
        return app_class(template).waits
    except (UnknownComponentError, MissingDependencyError) as error:
        if error.of_host:
            return False
        raise
