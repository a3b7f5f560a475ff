"""Whether a session directory has a run, so that it is not replaced by accident."""

from pathlib import Path

import msgspec

from dropflow.engine.journal import is_blank
from dropflow.errors import ConflictError, DropflowError
from dropflow.states import SessionState
from dropflow.stopped_session import StoppedSession

__all__ = ["refuse_run"]

_ENDED = (SessionState.FINISHED.name, SessionState.FAILED.name)


class _Summary(msgspec.Struct, frozen=True):
    """The field of ``summary.json`` that is read."""

    status: str = ""


def refuse_run(directory: Path) -> None:
    """Raise if something has run in a directory: its results are kept unless the caller wants to replace them.

    Parameters
    ----------
    directory : Path
        Absolute. The caller holds its lock.

    Raises
    ------
    ConflictError
        There is a run, which has ended or can be continued; or its journal cannot be read.
    """
    journal = directory / "journal.dfj"
    hint = f"'dropflow resume {directory}' continues it"
    try:
        if is_blank(journal):
            return
        status = _ended_as(directory)
        stopped = None if status else StoppedSession.read(directory)
        if stopped is None or stopped.is_over:
            what = f"the directory has the results of a run that {status or 'is over'}"
            hint = f"'dropflow retry {directory}' tries failed drops again" if status == "FAILED" else ""
        else:
            settled = 0 if stopped.replayed is None else stopped.graph.drops - stopped.replayed.core.drops.unsettled
            what = f"the directory has a run that is not finished: {settled} of {stopped.graph.drops} drops are settled"
    except DropflowError as error:
        what = f"the directory has a run that cannot be read: {error.text}"
    replace = "--overwrite (overwrite=True in Python) replaces it"
    other = f"{hint}; {replace}" if hint else f"name another directory; {replace}"
    raise ConflictError(what, where=str(directory), hint=other)


def _ended_as(directory: Path) -> str:
    """Return the status that the summary has of a run that has ended by itself; empty if something has run since."""
    try:
        if (directory / "summary.json").stat().st_mtime_ns < (directory / "journal.dfj").stat().st_mtime_ns:
            return ""
        summary = msgspec.json.decode((directory / "summary.json").read_bytes(), type=_Summary)
    except (OSError, ValueError):
        return ""
    return summary.status if summary.status in _ENDED else ""
