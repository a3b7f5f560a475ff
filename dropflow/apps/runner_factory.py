"""The runner of a session: threads for applications that wait; for the others worker processes, threads or an engine.

The modules of engines import their packages, so they are imported when a session needs them.
"""

import os

import numpy as np

from dropflow.apps.component_findings import with_time_limit
from dropflow.apps.execute import LocalExecutor
from dropflow.apps.registry import app_class
from dropflow.apps.runner_choice import RUNNERS, RunnerChoice, parse_runner
from dropflow.data.workspace import Workspace
from dropflow.data.workspace_parts import WorkspaceParts
from dropflow.engine.api import ExecutorSpec, Runner
from dropflow.engine.external.content_relay import ContentRelay
from dropflow.engine.external.content_store import ContentStore
from dropflow.engine.external.engine import Engine
from dropflow.engine.external.external_runner import ExternalRunner
from dropflow.engine.host_memory import host_memory
from dropflow.engine.runners.capacity import unusual_needs
from dropflow.engine.runners.inline import InlineRunner
from dropflow.engine.runners.limited import LimitedRunner
from dropflow.engine.runners.mixed import MixedRunner
from dropflow.engine.runners.pool import WorkerPool
from dropflow.engine.runners.processes import ProcessRunner
from dropflow.engine.runners.threads import ThreadRunner
from dropflow.errors import MissingDependencyError, UnknownComponentError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.planning_note import planning_of
from dropflow.graph.templates import Kind, Template

__all__ = ["RUNNERS", "capacity_notes", "make_runner"]

_WAITING_THREADS = 64


def make_runner(
    graph: PhysicalGraph,
    workspace: Workspace,
    kind: str = "processes",
    workers: int | None = None,
    *,
    pool: WorkerPool | None = None,
    until: float = 0.0,
    folder: str = "",
    parts: int | None = None,
) -> Runner:
    """Return the runner of one session.

    If the plan of the graph was given a degree of parallelism, the session uses at most so many processors at a time
    for each part that it has.

    Parameters
    ----------
    workspace : Workspace
        Of the session's repository.
    kind : str
        One of `RUNNERS`, an engine with its address, or a function that makes a runner: see `parse_runner`. Unless it
        is ``inline``, applications that only wait run in threads of their own.
    workers : int, optional
        Threads or processes; by default one per core that this process may use. Of an engine that is there, how many
        attempts it gets at a time; by default as many as its workers take.
    pool : WorkerPool, optional
        Worker processes to share with other sessions, for the kind ``processes``; by default the session has its own.
    until : float
        Walltime, in seconds since the epoch; 0 for none.
    folder : str
        Working directory of worker processes; by default ``files`` in the session directory.
    parts : int, optional
        How many parts of the graph the session has; by default all of them.

    Raises
    ------
    BadParameterError
        There is no such kind.
    MissingDependencyError
        The package of an engine is not installed.
    BadGraphError
        It cannot run the MPI jobs or the streams of the graph.
    """
    choice = parse_runner(kind)
    choice.refuse_unusable(graph)
    spec = ExecutorSpec(
        session=workspace.session,
        directory=workspace.directory,
        templates=tuple(with_time_limit(template) for template in graph.templates),
        links=graph.links,
        prefix=graph.prefix,
        folder=folder,
        durable=workspace.durable,
        until=until,
        tag=workspace.tag,
    )
    runner = _unlimited(graph, spec, workspace, choice, workers=workers, pool=pool)
    dop = planning_of(graph).get("dop")
    if not isinstance(dop, int) or dop < 1 or choice.kind == "inline":
        return runner
    return LimitedRunner(runner, spec, dop * (graph.parts if parts is None else max(parts, 1)))


def _unlimited(
    graph: PhysicalGraph,
    spec: ExecutorSpec,
    workspace: Workspace,
    choice: RunnerChoice,
    *,
    workers: int | None,
    pool: WorkerPool | None,
) -> Runner:
    """Return the runner of one session, whatever its plan was given."""
    ranks = max((one.size for template in graph.templates for one in template.axes if one.kind == "mpi"), default=1)
    # The ranks of a job come one after the other, and all of them wait until the job has ended.
    threads = max(_WAITING_THREADS, 2 * ranks)
    if choice.kind == "inline":
        return InlineRunner(LocalExecutor(spec))
    count = workers or len(os.sched_getaffinity(0))
    waits = [template.kind is Kind.APP and _waits(template) for template in graph.templates]
    if all(waits):
        return ThreadRunner(LocalExecutor(spec), threads=threads)
    computing: Runner
    if choice.kind == "threads":
        computing = ThreadRunner(LocalExecutor(spec), threads=count, templates=spec.templates)
    elif choice.kind == "processes":
        computing = pool.runner(spec) if pool is not None else ProcessRunner(spec, workers=count)
    elif choice.is_engine:
        computing = _external(graph, spec, workspace, choice, workers)
        # Initial contents are on this host.
        waits = [found or template.kind is Kind.DATA for found, template in zip(waits, graph.templates, strict=True)]
    else:
        computing = choice.factory()(spec, workers)
    if not any(waits):
        return computing
    return MixedRunner(waiting=ThreadRunner(LocalExecutor(spec), threads=threads), computing=computing, waits=waits)


def _external(
    graph: PhysicalGraph, spec: ExecutorSpec, workspace: Workspace, choice: RunnerChoice, workers: int | None
) -> ExternalRunner:
    count = workers or len(os.sched_getaffinity(0))
    engine: Engine
    if choice.kind == "dask":
        from dropflow.engine.external.dask_engine import DaskEngine  # noqa: PLC0415 - see above

        engine = DaskEngine(choice.address, count)
    else:
        from dropflow.engine.external.ray_engine import RayEngine  # noqa: PLC0415 - see above

        engine = RayEngine(choice.address, workers if choice.address else count)
    places = graph.places
    engine = ContentRelay(engine, WorkspaceParts(workspace), ContentStore(choice.contents) if choice.contents else None)
    return ExternalRunner(engine, spec, most=workers, places=places, place_of=graph.part if places else None)


def capacity_notes(graph: PhysicalGraph, kind: str, workers: int | None = None) -> tuple[str, ...]:
    """Return a note on each application that declares more processors or memory than its runner has, or no size."""
    if parse_runner(kind).kind not in ("threads", "processes"):
        return ()  # one attempt at a time, or hosts that are not known here
    used = [graph.templates[row] for row in np.unique(graph.template).tolist()]
    return unusual_needs(used, workers or len(os.sched_getaffinity(0)), host_memory().limit.bytes)


def _waits(template: Template) -> bool:
    """Whether the attempts of a node only wait. The class of a node on other hosts may not be installed here."""
    try:
        return app_class(template).waits
    except (UnknownComponentError, MissingDependencyError) as error:
        if error.of_host:
            return False
        raise
