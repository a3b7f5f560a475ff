"""Sessions of tests, made from options of their parts, and a runner whose tasks a test takes and answers."""

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dropflow.execution.inbox import Inbox
from dropflow.execution.interfaces import ContentRepository, Runner
from dropflow.execution.session import Execution, Resources, Session, Watch
from dropflow.execution.session_inputs import SessionInput
from dropflow.execution.statistics import SessionResult, Statistics
from dropflow.execution.tasks import AttemptResult, Task
from dropflow.graph.physical import PhysicalGraph
from dropflow.runners.in_process import aborted
from dropflow.stopping import GRACE_SECONDS
from dropflow.testing.conformance import FakeRepository
from managers.simulation.simulated_runner import SimulatedRunner
from tests.virtual_clock import VirtualClock

_KINDS = (Execution, Resources, Watch)


def build_session(graph: PhysicalGraph, repository: ContentRepository, runner: Runner, **options: Any) -> Session:
    """Return a session that has not begun; options are fields of its parts, and its continuation."""
    given = {"graph": graph, "repository": repository, "runner": runner, "session": "s", "directory": "/nowhere"}
    given |= options
    continuation = given.pop("continuation", None)
    work, place, watch = (
        kind(**{name: given.pop(name) for name in tuple(given) if name in kind.__dataclass_fields__}) for kind in _KINDS
    )
    assert not given, f"no part of a session has the options {', '.join(given)}"
    return Session(work, place, watch=watch, continuation=continuation)


class FakeRunner:
    """Does not run tasks: a test takes and answers them.

    Parameters
    ----------
    answer : callable or None
        If given, answers each task when it is submitted, in that thread.
    """

    def __init__(self, answer: Callable[[Task], AttemptResult] | None = None, *, window: int = 1000) -> None:
        self.window = window
        self.running: Mapping[int, int] = {}
        self.tasks: list[Task] = []
        self.aborted: list[int] = []
        self.closed = False
        self.is_held = False
        self._answer = answer
        self._deliver: Callable[[Sequence[AttemptResult]], None] | None = None

    def start(self, deliver: Callable[[Sequence[AttemptResult]], None]) -> None:
        """Remember where results go."""
        self._deliver = deliver

    def submit(self, tasks: Sequence[Task]) -> None:
        """Record tasks, and answer them if there is an answer."""
        self.tasks += tasks
        if self._answer is not None:
            self.deliver([self._answer(task) for task in tasks])

    def deliver(self, results: Sequence[AttemptResult]) -> None:
        """Hand results to the session."""
        if self._deliver is None:
            raise AssertionError("the runner was not started")
        self._deliver(results)

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Record, and answer."""
        self.aborted.append(drop)
        self.deliver([aborted(drop, attempt)])

    def hold(self, *, is_held: bool) -> None:
        """Record."""
        self.is_held = is_held

    def give_back(self) -> Sequence[Task]:
        """Return the tasks that were not taken."""
        tasks, self.tasks = self.tasks, []
        return tasks

    def interrupt(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Record."""
        self.closed = True

    def take(self, *oids: str) -> list[Task]:
        """Consume the next tasks, which must be those of these drops in this order."""
        taken, self.tasks = self.tasks[: len(oids)], self.tasks[len(oids) :]
        found = tuple(task.oid for task in taken)
        if found != oids:
            raise AssertionError(f"expected tasks of {oids}, there were {found}")
        return taken

    def expect_nothing(self) -> None:
        """Refuse tasks that were not taken."""
        if self.tasks:
            raise AssertionError(f"unexpected tasks of {[task.oid for task in self.tasks]}")


class Driver:
    """Steps one session whenever something came in, and lets virtual time pass when nothing did."""

    def __init__(
        self, graph: PhysicalGraph, session_options: Mapping[str, object] | None = None, **options: object
    ) -> None:
        self.clock = VirtualClock()
        self.repository = FakeRepository()
        self.inbox: Inbox[SessionInput] = Inbox()
        self.statistics: list[Statistics] = []
        self._order = itertools.count()
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.runner = SimulatedRunner(self.clock, self.call_at, **options)  # type: ignore[arg-type]
        self.session = build_session(
            graph,
            self.repository,
            self.runner,
            clock=self.clock,
            on_statistics=self.statistics.append,
            inbox=self.inbox,
            check_invariants=True,
            **(session_options or {}),  # type: ignore[arg-type]
        )

    def call_at(self, time: float, callback: Callable[[], None]) -> None:
        """Call back at a virtual time."""
        heapq.heappush(self.due, (time, next(self._order), callback))

    def run(self) -> SessionResult:
        """Drive the session to its end."""
        self.session.begin()
        while not self.session.is_over:
            due = self.due[0][0] if self.due else math.inf
            until = min(due, self.session.deadline())
            assert until < math.inf, "nothing can happen any more"
            self.clock.advance(max(0.0, until - self.clock.monotonic()))
            if due <= until:
                heapq.heappop(self.due)[2]()
            self.session.step()
            self.session.step()  # aborts are answered within a step
        self.session.close()
        return self.session.result()
