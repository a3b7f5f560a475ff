import logging
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

import pytest

from dropflow.clock import SystemClock
from dropflow.errors import ConflictError, InternalError, LinkError, NotFoundError
from managers.composite.connections import ChildConnections, WitnessLinks
from managers.composite.machine import CompositeAction
from managers.machine_calls import Call, CallId, Return
from managers.node.decisions.events import Action
from managers.node.decisions.sessions import SessionTable
from managers.node.host import SessionHost
from managers.owner_thread import Owner
from managers.probing import call_in_parallel


class Work(NamedTuple):
    """Action: wait for a gate in another thread, then finish the call."""

    call: int
    is_long: bool


class Worked(NamedTuple):
    """Event: the work for a call is over."""

    call: int


class Break(NamedTuple):
    """Action whose effect raises."""


class Answers:
    """A machine whose operations are answered at once, after a job, in its next tick, or never."""

    def __init__(self) -> None:
        self.late: list[int] = []
        self.threads: set[str] = set()

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """See `managers.owner_thread.Machine`."""
        self.threads.add(threading.current_thread().name)
        if isinstance(event, Worked):
            return [Return(event.call, "worked")]
        assert isinstance(event, Call)
        self.actions: list[Any] = []
        event.operation(event.id, now)
        return self.actions

    def echo(self, call: CallId[object], now: float, value: object) -> None:
        """Return a value."""
        del now
        self.actions.append(Return(call, value))

    def refuse(self, call: CallId[None], now: float) -> None:
        """Raise an error."""
        del now
        self.actions.append(Return(call, error=ConflictError("there is one already")))

    def work(self, call: CallId[str], now: float, *, is_long: bool = False) -> None:
        """Return after a job."""
        del now
        self.actions.append(Work(call, is_long))

    def later(self, call: CallId[float], now: float) -> None:
        """Return in the next tick."""
        del now
        self.late.append(call)

    def never(self, call: CallId[None], now: float) -> None:
        """Do not return."""

    def fail(self, call: CallId[None], now: float) -> None:
        """Raise an error that is a bug."""
        del call
        raise KeyError(f"unknown at {now}")

    def go_on(self, call: CallId[str], now: float) -> None:
        """Return after an effect that raises."""
        del now
        self.actions += [Break(), Return(call, "went on")]

    def tick(self, now: float) -> Sequence[Any]:
        """See `managers.owner_thread.Machine`."""
        late, self.late = self.late, []
        return [Return(call, now) for call in late]

    def deadline(self) -> float:
        """See `managers.owner_thread.Machine`."""
        return 0.0 if self.late else math.inf


class Harness:
    """An owner of `Answers`, whose jobs wait for `gate` and count how many of them run."""

    def __init__(self, idle: float = 60.0) -> None:
        self.machine = Answers()
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)
        self.workers: set[int] = set()
        self.owner = Owner(self.machine, name="x", clock=SystemClock(), jobs=2, long_jobs=2, idle=idle)
        self.owner.start({Work: self.work, Break: lambda _: 1 // 0})

    def work(self, action: Work) -> None:
        """Effect of `Work`."""

        def job() -> Worked:
            self.workers.add(threading.get_ident())
            self.begun.release()
            self.gate.wait(60)
            return Worked(action.call)

        self.owner.work(job, is_long=action.is_long)

    def close(self) -> None:
        """End all jobs and the owner."""
        self.gate.set()
        self.owner.close()


@pytest.fixture
def harness() -> Iterator[Harness]:
    """A harness that is closed after the test."""
    with closing(Harness()) as opened:
        yield opened


@pytest.mark.slow
def test_jobs_wait_for_threads_that_the_system_refuses(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """No job is lost, and as many of them run at a time as before."""
    start, refused = threading.Thread.start, iter("ab")

    def refuse_two(thread: threading.Thread) -> None:
        if thread.name == "job-x" and next(refused, None):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_two)
    futures = [harness.owner.submit(harness.machine.work) for _ in range(3)]
    for _ in range(2):
        assert harness.begun.acquire(timeout=60)
    harness.gate.set()
    assert [future.result(60) for future in futures] == ["worked"] * 3


def test_calls_return_what_the_machine_answers(harness: Harness) -> None:
    """A value is returned, an error is raised, and only the owner's thread runs the machine."""
    assert [harness.owner.call(harness.machine.echo, value=value) for value in (1, 2)] == [1, 2]
    with pytest.raises(ConflictError, match="there is one already"):
        harness.owner.call(harness.machine.refuse)
    assert harness.machine.threads == {"owner-x"}


def test_jobs_run_elsewhere_and_come_back_as_events(harness: Harness) -> None:
    """Calls are answered while jobs run; no more jobs run at a time than allowed, and all of them are done."""
    futures = [harness.owner.submit(harness.machine.work) for _ in range(5)]
    for _ in range(2):
        assert harness.begun.acquire(timeout=60)
    assert harness.owner.call(harness.machine.echo, value="meanwhile") == "meanwhile"
    assert not harness.begun.acquire(blocking=False)
    harness.gate.set()

    assert [future.result(60) for future in futures] == ["worked"] * 5


def test_long_jobs_do_not_delay_others(harness: Harness) -> None:
    """They have threads of their own, also as many as are allowed, and are all done."""
    long = [harness.owner.submit(harness.machine.work, is_long=True) for _ in range(3)]
    short = [harness.owner.submit(harness.machine.work) for _ in range(2)]
    for _ in range(4):
        assert harness.begun.acquire(timeout=60)
    assert not harness.begun.acquire(blocking=False)
    harness.gate.set()

    assert [future.result(60) for future in (*long, *short)] == ["worked"] * 5


def test_jobs_one_after_another_have_one_thread(harness: Harness) -> None:
    """A thread whose job is done takes the next job."""
    harness.gate.set()
    for _ in range(10):
        harness.owner.call(harness.machine.work)

    assert len(harness.workers) == 1


def test_threads_without_jobs_end() -> None:
    """An owner that has had no jobs for a while has one thread, and starts others for later jobs."""
    with closing(Harness(idle=0.0)) as harness:
        harness.gate.set()
        for _ in range(2):
            assert harness.owner.call(harness.machine.work) == "worked"
            _wait_for_job_threads()
            assert [thread.name for thread in threading.enumerate() if thread.name.endswith("-x")] == ["owner-x"]


def test_threads_of_jobs_end_with_the_owner(harness: Harness) -> None:
    """Threads end if they have no job when the owner is closed, and otherwise when their job is done."""
    harness.owner.submit(harness.machine.work)
    assert harness.begun.acquire(timeout=60)
    harness.owner.close()
    harness.gate.set()
    _wait_for_job_threads()


def _wait_for_job_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "job-x":
            thread.join(60)
            assert not thread.is_alive()


def test_the_machine_ticks_at_its_deadline(harness: Harness) -> None:
    """A call that the machine answers in `tick` is answered without another event."""
    assert harness.owner.submit(harness.machine.later).result(60) > 0


def test_a_closed_owner_refuses_calls(harness: Harness) -> None:
    """Waiting and later calls raise LinkError, and closing again does nothing."""
    waiting = harness.owner.submit(harness.machine.never)
    harness.owner.close()
    harness.owner.close()
    harness.owner.post(Worked(1))

    with pytest.raises(LinkError, match="manager x is stopping"):
        waiting.result(60)
    with pytest.raises(LinkError, match="manager x is stopping"):
        harness.owner.call(harness.machine.echo, value=1)


def test_calls_behind_a_close_are_refused() -> None:
    """A call that is in the queue behind the end of the owner raises LinkError."""
    machine = Answers()
    owner = Owner(machine, name="y", clock=SystemClock())
    owner.close()
    late = owner.submit(machine.never)
    owner.start({})

    with pytest.raises(LinkError, match="manager y is stopping"):
        late.result(60)


def test_a_bug_in_a_machine_fails_one_call(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """An exception of a machine or an effect is logged and raised by its call, and other calls go on."""
    with caplog.at_level(logging.ERROR), pytest.raises(InternalError, match="manager x failed: 'unknown at"):
        harness.owner.call(harness.machine.fail)
    with caplog.at_level(logging.ERROR):
        assert harness.owner.call(harness.machine.go_on) == "went on"

    assert ["a bug of dropflow" in record.getMessage() for record in caplog.records] == [True, True]


def _raise(error: Exception) -> None:
    raise error


def test_each_action_of_a_machine_has_an_effect() -> None:
    """The tables of effects have the types of all actions that the machines return, and no others.

    A missing effect would only be seen in the log of the manager, and its session would wait.
    """
    clock = SystemClock()
    unused: Any = SimpleNamespace(links=None, work=None)
    node = SessionHost("n", SessionTable({}), directory=Path(), owner=unused, resources=unused).effects()
    children = ChildConnections("i", pytest.fail, clock, owner=unused).effects()
    island = children | WitnessLinks("i", clock=clock).effects()

    assert {Return, *node} == set(get_args(Action))
    assert {Return, *island} == set(get_args(CompositeAction))


def test_results_and_errors_are_returned_by_name() -> None:
    """Each call has its own result, in the order of the calls."""
    results = call_in_parallel(
        {"a": lambda: 1, "b": lambda: _raise(NotFoundError("no")), "c": lambda: 3}, seconds=30, clock=SystemClock()
    )

    assert list(results) == ["a", "b", "c"]
    assert (results["a"].value, results["c"].value) == (1, 3)
    assert isinstance(results["b"].error, NotFoundError)


def test_other_exceptions_become_internal_errors(caplog: pytest.LogCaptureFixture) -> None:
    """A bug in one call does not end the others."""
    results = call_in_parallel({"a": lambda: _raise(KeyError("x")), "b": lambda: None}, seconds=30, clock=SystemClock())

    assert isinstance(results["a"].error, InternalError)
    assert "KeyError" in results["a"].error.text
    assert results["b"].error is None
    assert "a call to a failed" in caplog.text


def test_calls_run_in_parallel() -> None:
    """Two calls that wait for each other both return."""
    both = threading.Barrier(2)

    results = call_in_parallel(
        {"a": lambda: both.wait(60), "b": lambda: both.wait(60)}, seconds=60, clock=SystemClock()
    )

    assert all(result.error is None for result in results.values())


@pytest.mark.slow
def test_a_call_that_hangs_is_late() -> None:
    """At the deadline the other calls have their results."""
    free = threading.Event()

    results = call_in_parallel({"slow": lambda: free.wait(60), "fast": lambda: True}, seconds=0.1, clock=SystemClock())

    assert results["fast"].value is True
    assert results["slow"].late
    assert isinstance(results["slow"].error, LinkError)
    free.set()
