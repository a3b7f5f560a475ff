"""Many calls, one deadline."""

import threading

import pytest

from dropflow.clock import SystemClock
from dropflow.errors import InternalError, LinkError, NotFoundError
from managers.composite.fanout import Fanout


def _raise(error: Exception) -> None:
    raise error


def test_answers_and_errors_come_back_by_name() -> None:
    """Each call has its own outcome, in the order in which they were given."""
    fanout = Fanout(SystemClock())

    found = fanout.ask({"a": lambda: 1, "b": lambda: _raise(NotFoundError("no")), "c": lambda: 3}, seconds=30)

    assert list(found) == ["a", "b", "c"]
    assert (found["a"].value, found["c"].value) == (1, 3)
    assert isinstance(found["b"].error, NotFoundError)
    fanout.close()


def test_errors_that_are_not_ours_are_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    """A bug in a client does not end the question to the others."""
    fanout = Fanout(SystemClock())

    found = fanout.ask({"a": lambda: _raise(KeyError("x")), "b": lambda: None}, seconds=30)

    assert isinstance(found["a"].error, InternalError)
    assert "KeyError" in found["a"].error.text
    assert found["b"].error is None
    assert "a call to a failed" in caplog.text
    fanout.close()


def test_calls_run_side_by_side_in_threads_that_are_kept() -> None:
    """Two calls that wait for each other both come back; the next ones need no new threads."""
    fanout = Fanout(SystemClock())
    both = threading.Barrier(2)
    threads: set[int] = set()

    def call() -> None:
        threads.add(threading.get_ident())
        both.wait(30)

    for _ in range(20):
        outcomes = fanout.ask({"a": call, "b": call}, seconds=30)
        assert all(outcome.error is None for outcome in outcomes.values())

    assert len(threads) < 20
    fanout.close()


def test_a_call_that_hangs_costs_the_deadline_and_its_late_answer_is_discarded() -> None:
    """Others are answered; what comes too late goes to `discard`, so that nothing stays open."""
    fanout = Fanout(SystemClock())
    free, discarded = threading.Event(), threading.Event()

    found = fanout.ask(
        {"slow": lambda: free.wait(60), "fast": lambda: True}, seconds=0.1, discard=lambda _: discarded.set()
    )

    assert found["fast"].value is True
    assert found["slow"].late
    assert isinstance(found["slow"].error, LinkError)
    free.set()
    assert discarded.wait(30)
    fanout.close()


def test_hanging_calls_are_bounded_for_each_name() -> None:
    """Who hangs cannot use up the threads of all: more calls to it are refused at once, others are not."""
    fanout = Fanout(SystemClock(), limit=2)
    free = threading.Event()
    for _ in range(2):
        fanout.ask({"slow": lambda: free.wait(60)}, seconds=0.01)

    found = fanout.ask({"slow": lambda: True, "fast": lambda: True}, seconds=30)

    assert found["slow"].late
    assert found["fast"].value is True
    free.set()
    fanout.close()


def test_a_slow_call_is_waited_for_while_there_is_hope() -> None:
    """Beyond its deadline a call may go on as long as it is alive, and not for ever."""
    fanout = Fanout(SystemClock())
    free = threading.Event()
    asked: list[str] = []

    def is_alive(name: str) -> bool:
        asked.append(name)
        if len(asked) == 2:
            free.set()
        return True

    found = fanout.ask({"slow": lambda: free.wait(60)}, seconds=0.05, is_alive=is_alive, longest=60.0)
    assert found["slow"].value is True
    assert len(asked) >= 2

    free.clear()
    found = fanout.ask({"slow": lambda: free.wait(60)}, seconds=0.05, is_alive=lambda _: True, longest=0.2)
    assert found["slow"].late
    free.set()
    fanout.close()
