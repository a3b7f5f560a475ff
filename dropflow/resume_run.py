"""Continuing a run on this machine whose process was killed or cancelled."""

from pathlib import Path

import msgspec

from dropflow import local
from dropflow.clock import Clock, SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.engine.reports import SessionResult
from dropflow.errors import NotFoundError
from dropflow.local import RunOptions
from dropflow.session_lock import SessionLock
from dropflow.states import SessionState
from dropflow.stopped_session import StoppedSession

__all__ = ["resume"]

_DEFAULT = RunOptions()


def resume(
    directory: Path,
    options: RunOptions = _DEFAULT,
    *,
    ignore_damage: bool = False,
) -> SessionResult:
    """Continue the session in `directory` to its end.

    If the session has ended by itself, nothing runs, and the result is how it ended; but drops run that had no workers,
    because an engine ended, and those that failed because of that.

    Parameters
    ----------
    directory : Path
        Session directory of a run whose process was killed at any moment, or that was cancelled.
    options : RunOptions
        How the drops are executed.
    ignore_damage : bool
        Take a journal that is damaged before its end up to the damage; what came later runs again.

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
    path = directory.absolute()
    if not path.is_dir():
        raise NotFoundError("there is no such directory", where=str(directory))
    with SessionLock(path):
        stopped = StoppedSession.read(path, ignore_damage=ignore_damage)
        stranded = stopped.stranded()
        if stopped.is_over and not stranded:
            return _ended(stopped, options.clock or SystemClock())
        local.refuse_unusable(stopped.graph)
        if stranded:
            plan = stopped.plan(repeated=stopped.drops_of(stranded), failed=stranded, reason="there were no workers")
        else:
            plan = stopped.plan(reason=stopped.reason)
        return local.execute(stopped.graph, path, options, continuation=plan.continuation, notes=plan.notes)


def _ended(stopped: StoppedSession, clock: Clock) -> SessionResult:
    """Return how a session ended, and do what its process did not, if it was killed after the end of the session."""
    if (stopped.directory / "tmp").exists():
        LocalRepository(stopped.directory, stopped.directory.name, clock).close()
    result = stopped.result()
    if not (stopped.directory / "summary.json").exists():
        result = local.write_summary(result, stopped.directory)
    hint = "; 'dropflow retry' tries failed drops again" if result.status is SessionState.FAILED else ""
    return msgspec.structs.replace(result, notes=(*result.notes, f"the run had ended already: nothing was done{hint}"))
