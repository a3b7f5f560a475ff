"""Exceptions of tasks in the logs of their drops, so that the client can raise them again."""

import base64
import pickle

from dropflow.apps.api import Context

__all__ = ["exception_in_log", "log_exception", "without_exceptions"]

_EXCEPTION = "exception as a pickle: "
_LONGEST = 1 << 16
"""Bytes of the largest pickle of an exception that is written to the log."""


def log_exception(context: Context, error: BaseException) -> None:
    """Write an exception to the log of the drop, so that the client can raise it again."""
    try:
        body = _pickled(error)
        if len(body) <= _LONGEST:
            context.log(_EXCEPTION + base64.b64encode(body).decode(), "DEBUG")
    except Exception:  # noqa: BLE001 - the class of the exception may do anything; then its text has to do
        return


def _pickled(error: BaseException) -> bytes:
    """Return a pickle of an exception that can be loaded."""
    import cloudpickle  # noqa: PLC0415 - only for exceptions

    for dumps in (pickle.dumps, cloudpickle.dumps):
        try:
            body: bytes = dumps(error, protocol=5)
            pickle.loads(body)  # noqa: S301 - some classes cannot be loaded
        except Exception:  # noqa: BLE001, S112 - as above
            continue
        return body
    raise ValueError("it cannot be pickled")


def exception_in_log(log: bytes) -> BaseException | None:
    """Return the last exception in the log of a drop; None if there is none that can be loaded here."""
    _, found, rest = log.rpartition(_EXCEPTION.encode())
    if not found:
        return None
    try:
        error = pickle.loads(base64.b64decode(rest.split(b"\n", 1)[0]))  # noqa: S301 - from a task of the same user
    except Exception:  # noqa: BLE001 - its module may be missing here; then its text has to do
        return None
    return error if isinstance(error, BaseException) else None


def without_exceptions(log: bytes) -> bytes:
    """Return a log without the lines that have exceptions."""
    return b"".join(line for line in log.splitlines(keepends=True) if _EXCEPTION.encode() not in line)
