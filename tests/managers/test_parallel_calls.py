"""Parallel calls with one deadline."""

import threading

import pytest

from dropflow.clock import SystemClock
from dropflow.errors import InternalError, LinkError, NotFoundError
from managers.probing import call_in_parallel


def _raise(error: Exception) -> None:
    raise error


def test_results_and_errors_are_returned_by_name() -> None:
    """Each call has its own result, in the order of the calls."""
    found = call_in_parallel(
        {"a": lambda: 1, "b": lambda: _raise(NotFoundError("no")), "c": lambda: 3}, seconds=30, clock=SystemClock()
    )

    assert list(found) == ["a", "b", "c"]
    assert (found["a"].value, found["c"].value) == (1, 3)
    assert isinstance(found["b"].error, NotFoundError)


def test_other_exceptions_become_internal_errors(caplog: pytest.LogCaptureFixture) -> None:
    """A bug in one call does not end the others."""
    found = call_in_parallel({"a": lambda: _raise(KeyError("x")), "b": lambda: None}, seconds=30, clock=SystemClock())

    assert isinstance(found["a"].error, InternalError)
    assert "KeyError" in found["a"].error.text
    assert found["b"].error is None
    assert "a call to a failed" in caplog.text


def test_calls_run_in_parallel() -> None:
    """Two calls that wait for each other both return."""
    both = threading.Barrier(2)

    found = call_in_parallel({"a": lambda: both.wait(30), "b": lambda: both.wait(30)}, seconds=30, clock=SystemClock())

    assert all(result.error is None for result in found.values())


def test_a_call_that_hangs_is_late() -> None:
    """At the deadline the other calls have their results."""
    free = threading.Event()

    found = call_in_parallel({"slow": lambda: free.wait(60), "fast": lambda: True}, seconds=0.1, clock=SystemClock())

    assert found["fast"].value is True
    assert found["slow"].late
    assert isinstance(found["slow"].error, LinkError)
    free.set()
