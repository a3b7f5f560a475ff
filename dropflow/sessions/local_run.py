"""Running one graph on this machine, in a session directory.

The session directory is described in ``docs/reference/session-directory.md``.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socket import gethostname
from tempfile import TemporaryDirectory
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any

import msgspec

from dropflow.apps.needs import check, note_containers, prepare_containers
from dropflow.clock import Clock, SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.data.storage_errors import storage_error
from dropflow.data.workspace import REMOVED, SHARED_MEMORY
from dropflow.errors import ConflictError, DropflowError, StorageError, UsageError
from dropflow.execution.decisions.continuation import Continuation
from dropflow.execution.executor_spec import ReuseSpec
from dropflow.execution.session import Session, Watch
from dropflow.execution.statistics import SessionResult, Statistics, with_results
from dropflow.failure import refuse_errors, refuse_no_drops, sendable
from dropflow.files import GRAPH_FILE, JOURNAL, LOCK, REUSE_LOG, SUMMARY, SessionLock, refuse_other_directory
from dropflow.formatting import few
from dropflow.graph.codec import is_unfinished, load, save
from dropflow.graph.notes import note_software, repository_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.ids import safe_name
from dropflow.runners.make_runner import capacity_notes, make_runner
from dropflow.runners.runner_choice import RunnerChoice, parse_runner
from dropflow.session_options import RunOptions
from dropflow.sessions.make_session import make_session
from dropflow.states import DropState, SessionState

if TYPE_CHECKING:
    from dropflow.reuse.reasons import NodeForecast
    from dropflow.reuse.result_store import ResultStore
    from dropflow.runners.executor import RunApp
    from dropflow.sessions.retry import Again
    from dropflow.sessions.stopped import StoppedRun
    from dropflow.times.measured_run import MeasuredSeconds

_OURS = (
    JOURNAL,
    f"{JOURNAL}.new",
    "files",
    "inputs",
    "logs",
    "results",
    "tmp",
    "times.dft",
    f"{GRAPH_FILE}.new",
    SUMMARY,
    "containers.json",
    "images",
    "keys.npy",
    REUSE_LOG,
    GRAPH_FILE,
)
"""Files of a session, in the order in which they are removed. The graph, by which a session directory is recognised, is
last: if this process is killed meanwhile, the next one continues the removal."""
_SHOWN_HOSTS = 8
"""Names of hosts in a note."""


@dataclass(frozen=True, kw_only=True)
class RunHooks:
    """The clock of a run on this machine, and the functions that get its session and its progress.

    `on_preparing` is called with lines about long steps before the session begins, such as the pull of an image;
    `on_session` with the session before it runs, `on_statistics` with new statistics at intervals. `run_app` runs each
    application in place of `App.run`, for debuggers; only with the runner ``inline``.
    """

    clock: Clock = field(default_factory=SystemClock)
    on_preparing: Callable[[str], None] = lambda _: None
    on_session: Callable[[Session], None] | None = None
    on_statistics: Callable[[Statistics], None] | None = None
    run_app: "RunApp | None" = None


_DEFAULT, _NO_HOOKS = RunOptions(), RunHooks()


def run(
    graph: PhysicalGraph,
    directory: Path | Callable[[], Path],
    options: RunOptions = _DEFAULT,
    *,
    hooks: RunHooks = _NO_HOOKS,
) -> SessionResult:
    """Execute `graph` to its end, or until its walltime: then it is PAUSED, and can be resumed.

    Parameters
    ----------
    directory : Path or callable
        Session directory, or a function that makes it once the graph is accepted. Its last part is the session's name.
    options : RunOptions
        How the drops are executed. Unless the runner is ``inline``, applications that only wait run in threads of this
        process.
    hooks : RunHooks
        Its clock, and the functions that get its session and its progress.

    Raises
    ------
    BadGraphError
        A component is unknown, a parameter cannot be used, or the graph has a cycle: all problems together, before
        anything runs. Or the runner cannot run its streams or MPI jobs.
    BadParameterError, MissingDependencyError
        There is no such runner, its package is not installed, or an image cannot be pulled.
    LinkError, WorkerStartError
        Its engine cannot be reached, or has no workers.
    ConflictError
        Another process is at work in the directory.
    StorageError
        The session directory cannot be written.
    """
    choice = refuse_unusable(graph, options.runner)
    for note in placement_notes(graph, choice):
        hooks.on_preparing(note)
    run_directory = directory if isinstance(directory, Path) else directory()
    run_directory.mkdir(parents=True, exist_ok=True)
    with SessionLock(run_directory):
        graph = note_software(graph)
        save(graph, run_directory / GRAPH_FILE)
        return execute(graph, run_directory, options, hooks)


def directory_for(
    graph: PhysicalGraph, keep: str | os.PathLike[str] | None, options: RunOptions, *, overwrite: bool
) -> Path:
    """Make the directory `keep` for a run, or a new one; with reuse, an earlier run of the graph in it is replaced."""
    if keep is None:
        return new_directory(graph)
    return prepare_directory(Path(keep), overwrite=overwrite, graph=graph if options.reuse else None)


def execute(
    graph: PhysicalGraph,
    directory: Path,
    options: RunOptions,
    hooks: RunHooks,
    *,
    continuation: Continuation | None = None,
    notes: Sequence[str] = (),
) -> SessionResult:
    """Execute `graph`, which is saved in `directory`, to its end, and write the summary.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph; the runner can execute it (`refuse_unusable`).
    directory : Path
        Session directory, locked by this process.
    options : RunOptions
        How the drops are executed.
    hooks : RunHooks
        Its clock, and the functions that get its session and its progress.
    continuation : Continuation, optional
        The known states and contents of an earlier process of the session; None for a new session.
    notes : sequence of str
        Notes for the summary.

    Raises
    ------
    StorageError
        The session directory cannot be written.
    """
    clock = hooks.clock
    choice = parse_runner(options.runner)
    images: list[str] = []
    if not choice.is_engine:
        images = prepare_containers(graph.templates, directory, engine=options.containers, report=hooks.on_preparing)
    shared_memory = SHARED_MEMORY if choice.shares_memory else None
    repository = LocalRepository(
        directory, directory.name, clock, graph, durable=options.durable, shared_memory=shared_memory
    )
    try:
        reuse = None
        if options.reuse:
            reuse, continuation = _with_reuse(graph, repository, options, clock, continuation)
        # If all drops are known to be COMPLETED, no application runs, and no worker is started.
        is_known = continuation is not None and not bytes(continuation.known.states).strip(bytes([DropState.COMPLETED]))
        workspace = repository.workspace
        session = make_session(
            graph,
            repository,
            make_runner(
                graph,
                workspace,
                RunnerChoice("inline") if is_known else choice,
                options.workers,
                until=options.until,
                reuse=reuse,
                retry_memory=options.retry_memory,
                report_locals=options.report_locals,
                run_app=hooks.run_app,
            ),
            clock=clock,
            retry_memory=options.retry_memory,
            infrastructure_retries=options.infrastructure_retries,
            continuation=continuation,
            watch=Watch(on_statistics=hooks.on_statistics, check_invariants=options.check),
        )
        capacity = capacity_notes(graph, choice, options.workers)
        session.notes += [*placement_notes(graph, choice), *capacity, *images, *notes]
        if hooks.on_session is not None:
            hooks.on_session(session)
        result = session.run()
        result = with_results(result, graph, session.contents())
    finally:
        repository.close()
    if session.missing:
        from dropflow.graph.completeness import incomplete_results  # noqa: PLC0415 - after tolerated failures

        result = msgspec.structs.replace(result, incomplete=incomplete_results(graph, session.missing))
    if options.reuse or continuation is not None:  # a run that began with --reuse may be continued without it
        result = _with_reused(result, directory, options)
    return write_summary(result, directory)


def _with_reuse(
    graph: PhysicalGraph,
    repository: LocalRepository,
    options: RunOptions,
    clock: Clock,
    continuation: Continuation | None,
) -> tuple[ReuseSpec, Continuation | None]:
    """Return how the attempts of a session reuse results, and the states and contents with which it begins."""
    from dropflow.reuse.plan import ReuseChoices, begin_with, plan_reuse, reuse_spec  # noqa: PLC0415 - only with --reuse

    store = _store(options)
    store.check()
    choices = ReuseChoices(options.verify_reuse, options.trust_times)
    if continuation is not None:
        # Its contents may come from other code and parameters, so keys cannot be computed before an attempt.
        return reuse_spec(graph, store, repository.workspace.directory, choices), continuation
    plan = plan_reuse(graph, store, repository, choices)
    return begin_with(plan, store, repository, clock, choices)


def _store(options: RunOptions) -> "ResultStore":
    from dropflow.reuse.result_store import ResultStore, store_place  # noqa: PLC0415 - only with --reuse

    return ResultStore(store_place(options.store))


def foresee(
    graph: PhysicalGraph, options: RunOptions, *, is_here: bool = True, measured: "MeasuredSeconds | None" = None
) -> "tuple[NodeForecast, ...]":
    """Return which applications a run with these options, and reuse, would run and why. Runs nothing.

    Parameters
    ----------
    is_here : bool
        Whether it would run on this machine, and not on nodes that share the result store: their attempts ask one by
        one, and components and images need not be here.
    measured : MeasuredSeconds, optional
        Seconds of drops in earlier runs, for the price.

    Raises
    ------
    BadGraphError, BadParameterError, MissingDependencyError
        See `refuse_unusable`.
    StorageError
        The store cannot be used.
    """
    from dropflow.reuse.plan import ReuseChoices, plan_reuse, take_by_contents  # noqa: PLC0415 - only with --reuse
    from dropflow.reuse.reasons import forecast  # noqa: PLC0415

    if is_here:
        refuse_unusable(graph, options.runner)
    store = _store(options)
    store.check()
    with TemporaryDirectory(prefix="dropflow-") as folder:
        repository = LocalRepository(folder, "forecast", SystemClock(), graph, shared_memory=None)
        try:
            if is_here:
                prepare_containers(graph.templates, Path(folder), engine=options.containers)
            else:
                note_containers(graph.templates, Path(folder), engine=options.containers)
            plan = plan_reuse(graph, store, repository, ReuseChoices(trust_times=options.trust_times), is_checked=False)
            take_by_contents(plan, store)
            return forecast(plan, store, measured)
        finally:
            repository.close()


def _with_reused(result: SessionResult, directory: Path, options: RunOptions) -> SessionResult:
    """Return a result with the counts of reused results, and keep the result store within its bounds."""
    from dropflow.reuse.log import lack_note, taken_results  # noqa: PLC0415 - only with --reuse

    taken = taken_results(directory)
    notes = result.notes
    if options.reuse:
        store = _store(options)
        store.prune_if_due()
        if not taken and not options.verify_reuse:  # verification computes reusable results again
            notes = (*notes, f"nothing was reused: the result store {store.where} had no result that fits")
        lack = lack_note(directory)
        notes = (*notes, lack) if lack else notes
    saved = sum(taken_result.seconds for taken_result in taken.values())
    return msgspec.structs.replace(
        result, notes=notes, computed=result.computed - len(taken), reused=len(taken), saved=saved
    )


def write_summary(result: SessionResult, directory: Path) -> SessionResult:
    """Write the summary of a result, and return the result, with a note if that failed."""
    path = directory / SUMMARY
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(summary(result)), indent=2))
    except OSError as error:
        # The results are kept, and the caller has the summary too: an error would cause a second run.
        return msgspec.structs.replace(result, notes=(*result.notes, f"{storage_error('write', path, error)}"))
    return result


def refuse_unusable(graph: PhysicalGraph, runner: str) -> RunnerChoice:
    """Return the runner of that name; raise if a graph cannot run here, before a directory is made for it.

    Raises
    ------
    BadGraphError
        It has no drops; a component is unknown, or a parameter cannot be used: all problems together; or the runner
        cannot run it.
    BadParameterError, MissingDependencyError
        There is no such runner, or its package is not installed.
    """
    refuse_no_drops(graph.drops, name=graph.name)
    refuse_errors(check(graph.templates, graph.links), name=graph.name)
    choice = parse_runner(runner)
    choice.refuse_unusable(graph)
    return choice


def placement_notes(graph: PhysicalGraph, choice: RunnerChoice) -> tuple[str, ...]:
    """Return notes about the repository of a graph, and about hosts in the graph that are not this machine.

    An engine gets the placement as a hint.
    """
    repository = repository_of(graph)
    origin = () if repository is None else (str(repository),)
    if choice.is_engine:
        return origin
    here = {"localhost", "127.0.0.1", "::1", gethostname()}
    others = sorted({place for place in graph.places if not here & {place, place.partition(":")[0]}})
    if not others:
        return origin
    return (
        *origin,
        f"the graph names other hosts ({few(others, _SHOWN_HOSTS)}): everything runs on this machine",
    )


def summary(result: SessionResult) -> dict[str, Any]:
    """Return the fields of ``summary.json``, which are those of ``dropflow run --output json``."""
    return {
        "ok": result.status is SessionState.FINISHED,
        "session": result.session,
        "status": result.status.name,
        "drops": result.drops,
        "states": result.states,
        "counts": result.counts,
        "seconds": round(result.seconds, 3),
        "failures": result.failures,
        "notes": result.notes,
        "infrastructure_faults": result.infrastructure_faults,
        "computed": result.computed,
        "reused": result.reused,
        "saved": round(result.saved, 3),
        "incomplete": result.incomplete,
        "results": result.results,
        "more_results": result.more_results,
        "output": result.directory,
    }


def new_directory(graph: PhysicalGraph, *, root: Path | None = None, clock: Clock | None = None) -> Path:
    """Create a new session directory: ``<root>/<graph>-<UTC time>``, by default in ``dropflow-runs``.

    Raises
    ------
    StorageError
        It cannot be created.
    """
    parent = _utf8(Path("dropflow-runs").absolute() if root is None else root.absolute())
    stamp = strftime("%Y%m%dT%H%M%S", gmtime((clock or SystemClock()).now()))
    name = f"{safe_name(graph.name)}-{stamp}"
    for number in range(1, 1000):
        directory = parent / (name if number == 1 else f"{name}-{number}")
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise _unwritable(directory, error) from error
        return directory
    raise StorageError("1000 directories of runs that started in this second exist already", where=str(parent))


def prepare_directory(directory: Path, *, overwrite: bool = False, graph: PhysicalGraph | None = None) -> Path:
    """Prepare `directory` for a session: create it, or remove the files of a session and nothing else.

    Parameters
    ----------
    overwrite : bool
        Whether to remove an earlier session in which something has run.
    graph : PhysicalGraph, optional
        Remove also an earlier session of a graph of this name: its results are taken from the result store again.

    Raises
    ------
    UsageError
        It is a file.
    ConflictError
        There are other files than those of a session, or an earlier session, or another process is at work there.
    StorageError
        It cannot be created or emptied.
    """
    path = _utf8(directory.absolute())
    try:
        if path.exists() and not path.is_dir():
            raise UsageError("a file, not a directory", where=str(directory), hint="name a new or an empty directory")
        path.mkdir(parents=True, exist_ok=True)
        names = sorted(entry.name for entry in path.iterdir())
        unfinished = [name for name in names if is_unfinished(name, GRAPH_FILE) or name.startswith(REMOVED)]
        foreign = [name for name in names if name not in (*_OURS, *unfinished, LOCK)]
        if foreign:
            raise ConflictError(
                f"the directory has files that are not of a session: {', '.join(foreign[:3])}",
                where=str(directory),
                hint="give an empty or a new directory",
            )
        if GRAPH_FILE not in names and any(name not in (*unfinished, LOCK) for name in names):
            raise ConflictError(
                "the directory is not empty, and has no session",
                where=str(directory),
                hint="give an empty or a new directory",
            )
        with SessionLock(path):
            if not overwrite and not _is_run_of(graph, path):
                from dropflow.sessions.stopped import refuse_run  # noqa: PLC0415 - most runs have a new directory

                refuse_run(path)
            for name in (*unfinished, *_OURS):
                entry = path / name
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(directory, error) from error
    return path


def _is_run_of(graph: PhysicalGraph | None, directory: Path) -> bool:
    """Return whether a directory has a run of a graph of this name."""
    if graph is None:
        return False
    try:
        return load(directory / GRAPH_FILE).name == graph.name
    except (DropflowError, OSError):
        return False


def _utf8(path: Path) -> Path:
    """Return a path that records of a session can have; raise StorageError if it has bytes that are not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        shown = sendable(str(path))
        raise StorageError("the path is not UTF-8", where=shown, hint="run it in another directory") from error
    return path


def _unwritable(directory: Path, error: OSError) -> StorageError:
    return StorageError(
        f"the session directory cannot be made: {error.strerror}", where=str(directory), hint="choose another --keep"
    )


# Continues a run on this machine whose process was killed or cancelled.


def resume(
    directory: Path,
    options: RunOptions = _DEFAULT,
    *,
    hooks: RunHooks = _NO_HOOKS,
    ignore_damage: bool = False,
) -> SessionResult:
    """Continue the session in `directory` to its end.

    If the session has ended by itself, nothing runs, and the result is that of the session. An exception are drops that
    had no workers, because an engine ended, and drops that failed because of them: these run.

    Parameters
    ----------
    directory : Path
        Session directory of a run whose process was killed at any moment, or that was cancelled.
    options : RunOptions
        How the drops are executed.
    ignore_damage : bool
        Whether to use a journal that is damaged before its end, up to the damage; later drops run again.

    Raises
    ------
    NotFoundError
        There is no session in the directory.
    ConflictError
        Another process is at work in it.
    BadFileError
        The graph or the journal is damaged, or they do not belong together.
    BadGraphError
        A component is not installed any more.
    StorageError
        The session directory cannot be read or written.
    """
    from dropflow.sessions.retry import Again  # noqa: PLC0415 - a run that begins needs neither
    from dropflow.sessions.stopped import StoppedRun  # noqa: PLC0415

    refuse_other_directory(directory)
    path = directory.absolute()
    with SessionLock(path):
        stopped = StoppedRun.read(path, ignore_damage=ignore_damage)
        stranded = stopped.stranded()
        if stopped.is_over and stranded is None:
            return _ended(stopped, hooks.clock)
        return _continue(stopped, stranded or Again(stopped.graph, reason=stopped.reason), options, hooks)


def _ended(stopped: "StoppedRun", clock: Clock) -> SessionResult:
    """Return how a session ended; write its summary if its process was killed after the end of the session."""
    from dropflow.sessions.stopped import ended_as  # noqa: PLC0415 - as in `resume`

    if (stopped.directory / "tmp").exists():
        LocalRepository(stopped.directory, stopped.directory.name, clock).close()
    result = stopped.result()
    if not ended_as(stopped.directory):
        result = write_summary(result, stopped.directory)
    hint = "; 'dropflow retry' tries failed drops again" if result.status is SessionState.FAILED else ""
    return msgspec.structs.replace(result, notes=(*result.notes, f"the run had ended already: nothing was done{hint}"))


# Tries the failed drops of a run on this machine again, or runs it again from some drops, in the same session.


def retry(
    directory: Path,
    drops: Sequence[str] = (),
    options: RunOptions = _DEFAULT,
    *,
    hooks: RunHooks = _NO_HOOKS,
    start: Sequence[str] = (),
    settings: Sequence[str] = (),
    code: Mapping[str, str] | None = None,
) -> SessionResult:
    """Run the failed drops in `directory` again, or from some drops on all that depends on them.

    All other drops are kept. Completed drops whose contents are gone and needed run again, and drops that have not run,
    run.

    Parameters
    ----------
    directory : Path
        Session directory of a run that has ended.
    drops : sequence of str
        Text ids, or ends of them, of the drops in ERROR whose root causes are tried again; all by default. The drops
        that failed or were cancelled because of them settle again.
    options, hooks : RunOptions, RunHooks
        How the drops are executed.
    start : sequence of str
        In place of failed drops: text ids, ends of them, or names of logical nodes, for all of their drops that have
        run.
    settings : sequence of str
        ``name=value``: a parameter of the failed applications, or of the nodes of `start`, for all of their instances
        that run from now on. With ``node.name=value`` only of the node with that name.
    code : mapping of str to str
        New sources of functions, by the key of their logical node, for their drops that run from now on. If no drop has
        failed and `start` is empty, those that were completed run again, and all that depends on them.

    Raises
    ------
    NotFoundError, AmbiguousError
        There is no session in the directory, or no such drop, or there are several.
    ConflictError
        No drop failed, or not the named drops; drops of `start` have not run; an input from outside of the session is
        missing, or has changed since; a setting would also hold for drops whose contents are only made again; or
        another process is at work in the directory.
    BadParameterError, UsageError
        A setting does not fit the applications.
    BadGraphError, BadFileError, StorageError
        See `resume`.
    """
    from dropflow.sessions.retry import choose  # noqa: PLC0415 - as in `resume`
    from dropflow.sessions.stopped import StoppedRun  # noqa: PLC0415

    refuse_other_directory(directory)
    path = directory.absolute()
    with SessionLock(path):
        stopped = StoppedRun.read(path)
        if start and not stopped.has_begun:
            raise ConflictError(
                "nothing of this run has run", where=str(directory), hint="'dropflow resume' runs it from its beginning"
            )
        again = choose(
            stopped.graph,
            stopped.states,
            stopped.causes,
            drops=drops,
            start=start,
            settings=settings,
            code=code or {},
            what="run",
            where=str(path),
            hint="'dropflow resume' continues a run that was killed or cancelled",
        )
        return _continue(stopped, again, options, hooks)


def _continue(stopped: "StoppedRun", again: "Again", options: RunOptions, hooks: RunHooks) -> SessionResult:
    """Continue a session, whose directory is locked, with a graph that may have other parameters."""
    graph = again.graph
    refuse_unusable(graph, options.runner)
    plan = stopped.plan(again)
    saved = stopped.directory / GRAPH_FILE
    replaced = saved.with_name(f"{GRAPH_FILE}.new")
    if graph is not stopped.graph:
        # The journal names the digest of its graph. Until it is replaced, too, the old graph stays.
        save(graph, replaced)
    result = execute(graph, stopped.directory, options, hooks, continuation=plan.continuation, notes=plan.notes)
    if graph is not stopped.graph:
        replaced.replace(saved)
    return result
