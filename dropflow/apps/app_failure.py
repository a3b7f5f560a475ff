"""Conversion of what an application raised into a `Failure`: what happened, where, and what to do."""

from pathlib import Path
from types import TracebackType

import msgspec

from dropflow.errors import AppError, DropflowError, Interrupted
from dropflow.exception_text import sendable, trace_of
from dropflow.failure import Failure

__all__ = ["failure_of", "trace"]

_HOME = str(Path(__file__).resolve().parents[1])
_FROZEN = "<frozen "

_HINTS: dict[type[BaseException], str] = {
    PermissionError: "give this user access to the file, or choose another place",
    FileNotFoundError: "relative paths are below the session's files directory; connect files through ports",
    MemoryError: "split the data into smaller pieces (a Scatter), or use fewer workers",
    RecursionError: "the function calls itself too deeply",
    ConnectionError: "the other side did not answer: try again, or check that it is running",
    TimeoutError: "the other side did not answer in time: try again, or allow more time",
}


def failure_of(error: BaseException, *, log_tail: str = "") -> Failure:
    """Return why an attempt failed.

    Parameters
    ----------
    error : BaseException
        The exception of its application.
    log_tail : str
        End of its log, as the detail of failures that have no traceback.
    """
    try:
        return _failure_of(error, log_tail)
    except Interrupted:
        raise
    except BaseException:  # noqa: BLE001 - attributes of a user's exception may raise anything
        return Failure.of(error)


def _failure_of(error: BaseException, log_tail: str) -> Failure:
    if isinstance(error, Interrupted):
        return Failure(code="DF000", kind="Interrupted", text="the attempt was stopped")
    if isinstance(error, DropflowError):
        cause = error.__cause__
        found = Failure.of(error, detail=trace(cause) if cause is not None else log_tail)
        return msgspec.structs.replace(found, text=f"{sendable(error.where)}: {found.text}") if error.where else found
    if isinstance(error, SystemExit):
        return Failure(
            code=AppError.code,
            kind="SystemExit",
            text=f"the application called sys.exit({'' if error.code is None else repr(error.code)})",
            hint="return from the function instead; raise an exception to fail",
            detail=trace(error),
        )
    found = Failure.of(error, frames=_own(error.__traceback__))
    return msgspec.structs.replace(found, hint=_hint(error)) if not found.hint else found


def trace(error: BaseException) -> str:
    """Return the traceback of `error`, without the outer frames of dropflow."""
    return trace_of(error, _own(error.__traceback__))


def _own(frames: TracebackType | None) -> TracebackType | None:
    """Return the frames from the first one outside dropflow, or all frames."""
    here = frames
    while here is not None:
        file = here.tb_frame.f_code.co_filename
        if not file.startswith((_HOME, _FROZEN)):
            return here
        here = here.tb_next
    return frames


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        return f"install '{package}' in the environment that runs dropflow" if package else ""
    if isinstance(error, ImportError):
        return f"another version of '{error.name}' may be needed" if error.name else ""
    return next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), "")
