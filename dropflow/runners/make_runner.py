"""The runner of a session: threads for applications that wait; worker processes, threads or an engine for all others.

The modules of engines import their packages, so they are imported when a session needs them.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dropflow.apps.needs import with_time_limit
from dropflow.apps.registry import app_class
from dropflow.data.workspace import Workspace
from dropflow.errors import BadParameterError, MissingDependencyError, UnknownComponentError
from dropflow.execution.executor_spec import ExecutorSpec, ReuseSpec
from dropflow.execution.interfaces import Executor, Runner
from dropflow.graph.notes import processors_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template, ranks_per_node
from dropflow.host.memory import host_memory
from dropflow.host.processors import usable_cores
from dropflow.runners.capacity import unusual_needs
from dropflow.runners.engine import Engine
from dropflow.runners.in_process import InlineRunner, MixedRunner, ThreadRunner
from dropflow.runners.limited_runner import LimitedRunner
from dropflow.runners.runner_choice import PROCESSES, RunnerChoice
from dropflow.runners.worker_pool import ProcessRunner, WorkerPool

if TYPE_CHECKING:
    from dropflow.runners.executor import RunApp


_WAITING_THREADS = 64
"""Threads for applications that wait, if the graph has no jobs of MPI with more ranks."""


def make_runner(
    graph: PhysicalGraph,
    workspace: Workspace,
    choice: RunnerChoice = PROCESSES,
    workers: int | None = None,
    *,
    pool: WorkerPool | None = None,
    until: float = 0.0,
    folder: str = "",
    parts: Collection[int] | None = None,
    reuse: ReuseSpec | None = None,
    retry_memory: float = 0.0,
    report_locals: bool = False,
    run_app: "RunApp | None" = None,
) -> Runner:
    """Return the runner of one session.

    If the plan of the graph has a degree of parallelism, the session uses at most as many processors at a time for each
    of its parts.

    Parameters
    ----------
    workspace : Workspace
        The directories of the session's repository.
    choice : RunnerChoice
        The kind of runner; it can run the graph (`RunnerChoice.refuse_unusable`). Unless it is ``inline``, applications
        that only wait run in threads of their own.
    workers : int, optional
        Number of threads or processes; by default one per core that this process may use. For an engine that runs
        already, the number of attempts that it gets at a time; by default as many as its workers take.
    pool : WorkerPool, optional
        Worker processes to share with other sessions, for the kind ``processes``; by default the session has its own.
    until : float
        Walltime, in seconds since the epoch; 0 for none.
    folder : str
        Working directory of worker processes; by default ``files`` in the session directory.
    parts : collection of int, optional
        Parts of the graph on this node of the session; by default all. With a degree of parallelism, the session uses
        at most as many processors at a time as the plan has for these parts, and at least one.
    reuse : ReuseSpec, optional
        How its attempts take results of earlier runs.
    retry_memory : float
        Factor by which the memory of a drop grows when an attempt had too little; 0 if the attempt is not repeated.
    report_locals : bool
        Whether failures have the local variables of the function that raised.
    run_app : callable, optional
        For the kind ``inline``: runs applications, see `dropflow.runners.executor.LocalExecutor`.

    Raises
    ------
    BadParameterError
        Its attempts run on other hosts and cannot reuse results, or a function of the user fails to make it.
    """
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
        reuse=reuse,
        retry_memory=retry_memory,
        report_locals=report_locals,
    )
    if reuse is not None and choice.is_engine:
        raise BadParameterError(
            f"the runner {choice.kind} cannot reuse results: its workers may be on other hosts",
            fields=("reuse",),
            hint="leave out --reuse, or run it with --runner processes",
        )
    if choice.kind == "inline":
        return InlineRunner(_executor(spec, run_app))
    # The places of a graph on several nodes are the nodes, and not workers of an engine.
    places = graph.places if parts is None else ()
    runner = _unlimited(graph, spec, workspace, choice, workers=workers, pool=pool, places=places)
    shares = dict(enumerate(processors_of(graph)))
    if not shares:
        return runner
    own = shares if parts is None else parts
    return LimitedRunner(runner, spec, max(sum(shares.get(part, 0) for part in own), 1))


def _unlimited(
    graph: PhysicalGraph,
    spec: ExecutorSpec,
    workspace: Workspace,
    choice: RunnerChoice,
    *,
    workers: int | None,
    pool: WorkerPool | None,
    places: Sequence[str],
) -> Runner:
    """Return the runner of one session, without the limit of its plan."""
    ranks = max((axis.size for template in graph.templates for axis in template.axes if axis.kind == "mpi"), default=1)
    # The ranks of a job come one after the other, and all of them wait until the job has ended. The ranks of a job over
    # several nodes wait for nodes which may begin with other jobs: each has a thread.
    spread = [row for row, template in enumerate(graph.templates) if ranks_per_node(template)]
    threads = max(_WAITING_THREADS, 2 * ranks) + (int(np.isin(graph.template, spread).sum()) if spread else 0)
    count = workers or usable_cores()
    waits = [template.kind is Kind.APP and _waits(template) for template in graph.templates]
    if all(waits):
        return ThreadRunner(_executor(spec), threads=threads)
    computing: Runner
    if choice.kind == "threads":
        computing = ThreadRunner(_executor(spec), threads=count, templates=spec.templates)
    elif choice.kind == "processes":
        computing = pool.runner(spec) if pool is not None else ProcessRunner(spec, workers=count)
    elif choice.is_engine:
        computing = _external(graph, spec, workspace, choice, workers, places=places, is_node=pool is not None)
        # Initial contents are on this host.
        waits = [
            does_wait or template.kind is Kind.DATA for does_wait, template in zip(waits, graph.templates, strict=True)
        ]
    else:
        computing = choice.custom(spec, workers)
    if not any(waits):
        return computing
    return MixedRunner(waiting=ThreadRunner(_executor(spec), threads=threads), computing=computing, waits=waits)


def _executor(spec: ExecutorSpec, run_app: "RunApp | None" = None) -> Executor:
    from dropflow.runners.executor import LocalExecutor  # noqa: PLC0415 - worker processes have it; few runs need it here

    return LocalExecutor(spec, run_app=run_app)


def _external(
    graph: PhysicalGraph,
    spec: ExecutorSpec,
    workspace: Workspace,
    choice: RunnerChoice,
    workers: int | None,
    *,
    places: Sequence[str],
    is_node: bool,
) -> Runner:
    from dropflow.runners.carried_contents import ContentRelay  # noqa: PLC0415 - other runners need none of these
    from dropflow.runners.external import ExternalRunner  # noqa: PLC0415
    from dropflow.runners.external_store import ContentStore  # noqa: PLC0415

    count = workers or usable_cores()
    engine: Engine
    if choice.kind == "dask":
        from dropflow.runners.dask_engine import DaskEngine  # noqa: PLC0415 - other runners need none of these

        engine = DaskEngine(choice.address, count)
    else:
        from dropflow.runners.ray_engine import RayEngine  # noqa: PLC0415 - other runners need none of these

        engine = RayEngine(choice.address, workers if choice.address else count, is_elastic=is_node)
    engine = ContentRelay(engine, workspace, ContentStore(choice.contents) if choice.contents else None)
    return ExternalRunner(engine, spec, most=workers, places=places, place_of=graph.part if places else None)


def capacity_notes(graph: PhysicalGraph, choice: RunnerChoice, workers: int | None = None) -> tuple[str, ...]:
    """Return a note on each application that declares more resources than its runner has, or a wrong size."""
    if choice.kind not in ("threads", "processes"):
        return ()  # one attempt at a time, or hosts whose resources are not known here
    counts = np.bincount(graph.template, minlength=len(graph.templates)).tolist()  # np.unique imports numpy.ma: 11 ms
    used = [template for template, count in zip(graph.templates, counts, strict=True) if count]
    return unusual_needs(used, workers or usable_cores(), host_memory().limit.bytes)


def _waits(template: Template) -> bool:
    """Return whether the attempts of a node only wait. The class of a node on other hosts may not be installed here."""
    try:
        return app_class(template).waits
    except (UnknownComponentError, MissingDependencyError) as error:
        if error.of_host:
            return False
        raise
