"""Whether a session directory has a run that can be continued, so that it is not replaced by accident."""

from pathlib import Path

import msgspec

from dropflow.engine.journal import is_blank
from dropflow.errors import ConflictError, DropflowError
from dropflow.states import SessionState
from dropflow.stopped_session import StoppedSession

__all__ = ["refuse_unfinished"]

_ENDED = (SessionState.FINISHED.name, SessionState.FAILED.name)


class _Summary(msgspec.Struct, frozen=True):
    """The field of ``summary.json`` that is read."""

    status: str = ""


def refuse_unfinished(directory: Path) -> None:
    """Raise if the run in a directory was killed, cancelled, or stopped at its walltime after something had run.

    Parameters
    ----------
    directory : Path
        Absolute. The caller holds its lock.

    Raises
    ------
    ConflictError
        It was; or its journal cannot be read, so that this is not known.
    """
    journal = directory / "journal.dfj"
    try:
        if is_blank(journal) or _has_ended(directory):
            return
        stopped = StoppedSession.read(directory)
        if stopped.is_over:
            return
        settled = 0 if stopped.replayed is None else stopped.graph.drops - stopped.replayed.core.drops.unsettled
        what = f"the directory has a run that is not finished: {settled} of {stopped.graph.drops} drops are settled"
    except DropflowError as error:
        what = f"the directory has a run that cannot be read: {error.text}"
    raise ConflictError(
        what,
        where=str(directory),
        hint=f"'dropflow resume {directory}' continues it; --overwrite replaces it",
    )


def _has_ended(directory: Path) -> bool:
    """Return whether the summary says that the run has ended by itself, and nothing has run since."""
    try:
        if (directory / "summary.json").stat().st_mtime_ns < (directory / "journal.dfj").stat().st_mtime_ns:
            return False
        summary = msgspec.json.decode((directory / "summary.json").read_bytes(), type=_Summary)
    except (OSError, ValueError):
        return False
    return summary.status in _ENDED
