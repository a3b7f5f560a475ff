"""Failures of tasks in other processes, as the exceptions that they were."""

from contextlib import suppress

from dropflow.dask_tasks.logged_exceptions import exception_in_log, without_exceptions
from dropflow.failure import Failure
from dropflow.notebook import last_lines

__all__ = ["add_log", "task_error"]


def task_error(failure: Failure, log: bytes, drop: str, node: str = "") -> BaseException:
    """Return what a task has raised, with its traceback and the end of its log as notes.

    Parameters
    ----------
    failure : Failure
        The failure, for the case that the exception is not in the log.
    log : bytes
        Log of the drop, or its end.
    drop : str
        Id of the application drop.
    node : str
        Where it ran, if that is another machine or process of managers.
    """
    found = exception_in_log(log)
    error = failure.as_error() if found is None else found
    text = last_lines(without_exceptions(log).replace(failure.detail.strip().encode() or b"\0", b""))
    with suppress(Exception):  # the class of the exception may be anything
        error.add_note(f"raised by {drop}{f' on {node}' if node else ''}")
        if found is not None and failure.detail:
            error.add_note(failure.detail)
        add_log(error, text)
    return error


def add_log(error: BaseException, text: str) -> None:
    """Add the last lines of a log to the notes of an exception, if there are some."""
    if text.strip():
        error.add_note(f"the end of its log:\n{text.strip()}")
