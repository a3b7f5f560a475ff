"""Trying the failed drops of a run on this machine again, or running it again from some drops, in the same session."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dropflow import local
from dropflow.engine.recovery import has_attempts
from dropflow.engine.reports import SessionResult
from dropflow.errors import ConflictError, NotFoundError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph_file import save
from dropflow.local import RunOptions
from dropflow.repeated_drops import AGAIN_REASON, drops_to_repeat
from dropflow.retried_drops import RETRY_REASON, causes_to_retry
from dropflow.retry_settings import refuse_unwanted_settings, with_settings
from dropflow.session_lock import SessionLock
from dropflow.stopped_session import ContinuationPlan, StoppedSession

__all__ = ["retry", "run_again"]

_DEFAULT = RunOptions()


def retry(
    directory: Path,
    drops: Sequence[str] = (),
    options: RunOptions = _DEFAULT,
    *,
    settings: Sequence[str] = (),
) -> SessionResult:
    """Run the failed drops in `directory` again, and the drops that failed or were cancelled because of them.

    Completed drops are kept, as `dropflow.resume_run.resume` keeps them; so are drops that were skipped.

    Parameters
    ----------
    directory : Path
        Session directory of a run that has ended.
    drops : sequence of str
        Text ids, or ends of them, of the drops in ERROR whose root causes are tried again; all by default.
    options : RunOptions
        How the drops are executed.
    settings : sequence of str
        ``name=value``: a parameter of the failed applications, for all of their instances that run from now on. With
        ``node.name=value`` only of the node with that name.

    Raises
    ------
    NotFoundError
        There is no session in the directory, or no such drop.
    ConflictError
        No drop failed, or not those that are named; or another process is at work in the directory.
    BadParameterError, UsageError
        A setting does not fit the failed applications.
    BadGraphError, BadFileError, StorageError
        See `dropflow.resume_run.resume`.
    """
    path = directory.absolute()
    if not path.is_dir():
        raise NotFoundError("there is no such directory", where=str(directory))
    with SessionLock(path):
        stopped = StoppedSession.read(path)
        causes = _causes(stopped, drops)
        graph = with_settings(stopped.graph, causes, settings)
        plan = stopped.plan(
            repeated=stopped.drops_of(causes),
            failed=[drop for drop in causes if has_attempts(graph)[drop]],
            reason=RETRY_REASON,
        )
        return _execute(stopped, graph, plan, options)


def run_again(
    directory: Path,
    drops: Sequence[str],
    options: RunOptions = _DEFAULT,
    *,
    settings: Sequence[str] = (),
) -> SessionResult:
    """Run drops of an ended run in `directory` again, and all that depends on them; the others stay as they are.

    Completed drops whose contents are gone and are needed run again, too. What has not run, runs.

    Parameters
    ----------
    directory : Path
        Session directory of a run.
    drops : sequence of str
        Text ids, ends of them, or names of logical nodes, for all of their drops that have run.
    options, settings :
        As for `retry`; settings are parameters of the nodes of `drops`.

    Raises
    ------
    ConflictError
        Drops with one of the names have not run; an input from outside of the session is missing, or has changed since;
        a setting would also hold for drops whose contents are only made again; or another process is at work in it.
    NotFoundError, AmbiguousError
        There is no session in the directory, or no such drop, or there are several.
    BadParameterError, UsageError, BadGraphError, BadFileError, StorageError
        See `retry`.
    """
    path = directory.absolute()
    if not path.is_dir():
        raise NotFoundError("there is no such directory", where=str(directory))
    with SessionLock(path):
        stopped = StoppedSession.read(path)
        if stopped.replayed is None:
            raise ConflictError(
                "nothing of this run has run", where=str(directory), hint="'dropflow resume' runs it from its beginning"
            )
        table = stopped.replayed.core.drops
        states = np.frombuffer(bytes(table.states), dtype=np.uint8)
        again = drops_to_repeat(stopped.graph, states, table.error_causes(), drops, where=str(directory))
        graph = with_settings(stopped.graph, again.starts, settings, what="run again")
        plan = stopped.plan(again=again, reason=AGAIN_REASON)
        assert plan.continuation is not None  # noqa: S101 - something has run
        refuse_unwanted_settings(stopped.graph, graph, plan.continuation.known.reset, where=str(directory))
        return _execute(stopped, graph, plan, options)


def _execute(
    stopped: StoppedSession, graph: PhysicalGraph, plan: ContinuationPlan, options: RunOptions
) -> SessionResult:
    """Continue a session, whose directory is locked, with a graph that may have other parameters."""
    local.refuse_unusable(graph)
    saved = stopped.directory / "graph.dfg"
    replaced = saved.with_name("graph.dfg.new")
    if graph is not stopped.graph:
        # The journal names the digest of its graph. Until it is replaced, too, the old graph stays.
        save(graph, replaced)
    result = local.execute(graph, stopped.directory, options, continuation=plan.continuation, notes=plan.notes)
    if graph is not stopped.graph:
        replaced.replace(saved)
    return result


def _causes(stopped: StoppedSession, drops: Sequence[str]) -> list[int]:
    """Return the root causes that are tried again, ascending."""
    table = None if stopped.replayed is None else stopped.replayed.core.drops
    return causes_to_retry(
        stopped.graph,
        b"" if table is None else table.states,
        {} if table is None else table.error_causes(),
        drops,
        what="run",
        where=str(stopped.directory),
        hint="'dropflow resume' continues a run that was killed or cancelled",
    )
