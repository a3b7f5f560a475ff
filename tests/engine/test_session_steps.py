"""A session without a thread: it is begun, stepped and ended by a driver, in virtual time."""

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Mapping

import pytest

from dropflow.engine.api import Handle, Task
from dropflow.engine.core import Core
from dropflow.engine.events import Event
from dropflow.engine.inbox import Inbox
from dropflow.engine.session import Instrument, StatisticsPublisher
from dropflow.engine.session_inputs import SessionInput
from dropflow.engine.statistics import Attempts, SessionResult, Statistics
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import SessionState
from dropflow.stopping import kill_after, stopped_after
from dropflow.testing.conformance import FakeRepository
from dropflow.testing.drawing import draw, fan, row
from dropflow.testing.fake_manager import VirtualClock
from dropflow.testing.virtual import SimulatedRunner
from tests.engine.sessions import build_session

BOOM = Failure(code="DF105", kind="ValueError", text="boom", retryable=True)


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


def test_a_stepped_session_ends_as_one_with_a_thread() -> None:
    """A driver runs a graph to its end; the seconds of the result are virtual."""
    graph = draw("A -> x -> B -> y")
    driver = Driver(graph, content=lambda task, _: Handle(body=task.oid.encode()))
    result = driver.run()

    assert result.status is SessionState.FINISHED
    assert result.seconds == pytest.approx(2.0)
    assert driver.repository.results == {"drawing_y_0": Handle(body=b"drawing_B_0")}
    assert driver.statistics[-1].settled == 4


def test_as_many_attempts_run_as_there_are_workers() -> None:
    """Ten attempts of a second each take five seconds with two workers."""
    driver = Driver(draw(", ".join(f"A{number}" for number in range(10))), workers=2)

    assert driver.run().seconds == pytest.approx(5.0)
    assert max(one.attempts.running for one in driver.statistics) == 2


def test_a_simulated_failure_is_retried() -> None:
    """An attempt fails when the given function says so, and the next one is the second."""
    graph = draw("A -> x", A={"tries": 2})
    driver = Driver(graph, failure=lambda task: BOOM if (task.drop, task.attempt) == (row(graph, "A"), 1) else None)

    assert driver.run().status is SessionState.FINISHED
    assert driver.repository.committed[row(graph, "x")][0] == 2


def test_a_step_without_input_changes_nothing() -> None:
    """A driver may step a session at any time, also when it is over."""
    driver = Driver(draw("A -> x"))
    driver.session.begin()
    before = bytes(driver.session.core.drops.states)
    driver.session.step()

    assert driver.session.core.drops.states == before
    driver.session.cancel("enough")
    driver.session.step()
    driver.session.step()
    assert driver.session.is_over
    assert driver.session.result().status is SessionState.CANCELLED


def test_a_cancelled_attempt_ends_at_once() -> None:
    """The abort of a simulated attempt takes no time, and its end is not reported a second time."""
    driver = Driver(draw("A -> x"), duration=lambda _: 1000.0)
    driver.call_at(3.0, lambda: driver.session.cancel("enough"))
    result = driver.run()

    assert result.status is SessionState.CANCELLED
    assert result.seconds == pytest.approx(3.0)


@pytest.mark.parametrize("grace", [0.0, 5.0, 60.0])
@pytest.mark.parametrize(
    ("stopping", "bound"),
    [
        (lambda _: 0.0, lambda _: 0.0),
        (lambda task: 1.0 + task.drop, lambda grace: min(3.0, kill_after(grace))),
        (lambda _: 1e6, kill_after),
        (lambda _: math.inf, stopped_after),
    ],
    ids=["at once", "in time", "killed", "abandoned"],
)
def test_a_cancel_takes_the_time_that_its_settings_add_up_to(
    stopping: Callable[[Task], float], bound: Callable[[float], float], grace: float
) -> None:
    """The session is CANCELLING until its attempts have ended, and never longer than `stopped_after`."""
    driver = Driver(draw("A -> x, B -> y, C -> z -> D"), duration=lambda _: 1e9, stopping=stopping, workers=2)
    driver.call_at(3.0, lambda: driver.session.cancel("enough", grace))
    seen: list[SessionState] = []
    driver.call_at(3.0, lambda: driver.call_at(3.0, lambda: seen.append(driver.session.core.status)))
    result = driver.run()

    assert result.status is SessionState.CANCELLED
    assert result.states["CANCELLED"] == 7
    assert result.seconds == pytest.approx(3.0 + bound(grace))
    assert bound(grace) <= stopped_after(grace) == grace + 2.5
    assert bool(result.notes) is (bound(grace) == stopped_after(grace))


def test_a_second_cancel_shortens_the_grace_period() -> None:
    """The user may become impatient; a longer period than before changes nothing."""
    driver = Driver(draw("A -> x"), duration=lambda _: 1e9, stopping=lambda _: 1e6)
    for time, grace in ((3.0, 60.0), (4.0, 1.0), (5.0, 100.0)):
        driver.call_at(time, lambda grace=grace: driver.session.cancel("enough", grace))  # type: ignore[misc]
    result = driver.run()

    assert result.status is SessionState.CANCELLED
    assert result.seconds == pytest.approx(4.0 + kill_after(1.0))


def test_results_that_arrive_during_a_cancel_are_discarded() -> None:
    """An attempt that succeeds in its grace period commits nothing; its drop is CANCELLED."""
    driver = Driver(
        draw("A -> x -> B"), duration=lambda _: 4.0, stopping=lambda _: 1e6, content=lambda *_: Handle(body=b"late")
    )
    driver.call_at(3.0, lambda: driver.session.cancel("enough", 5.0))
    result = driver.run()

    assert result.seconds == pytest.approx(4.0)
    assert result.states["CANCELLED"] == 3
    assert driver.repository.committed == {}
    assert driver.repository.discarded == [Handle(body=b"late")]


def test_two_runs_of_the_same_graph_are_equal() -> None:
    """In virtual time the events of a session depend on nothing but the graph and the given functions."""

    def events() -> Collection[Event]:
        seen: list[Event] = []

        class Camera(Instrument):
            def on_events(self, events: object) -> None:
                seen.extend(events)  # type: ignore[arg-type]

        def duration(task: Task) -> float:
            return 0.1 + task.drop * 7 % 5

        driver = Driver(draw(", ".join(f"A{n} -> x{n} -> B -> y" for n in range(9))), duration=duration)
        driver.session._instruments._instruments.append(Camera())
        driver.run()
        return seen

    assert events() == events()


def test_a_cancelled_drop_is_the_root_cause_of_what_depends_on_it() -> None:
    """Its attempt is aborted, others go on, and the report has the reason."""
    graph = draw("A -> x -> B -> y, C -> z")
    driver = Driver(graph, duration=lambda task: 1e6 if task.drop == row(graph, "A") else 4.0)
    driver.call_at(3.0, lambda: driver.session.cancel_drop(row(graph, "A"), "too slow"))
    result = driver.run()

    assert (result.status, result.seconds) == (SessionState.FAILED, pytest.approx(4.0))
    assert {state: count for state, count in result.states.items() if count} == {
        "COMPLETED": 2,
        "ERROR": 3,
        "CANCELLED": 1,
    }
    assert [(report.drop, report.text, report.count, report.took_along) for report in result.failures] == [
        ("drawing_A_0", "the drop was cancelled: too slow", 3, 3)
    ]
    assert (result.counts.failed, result.counts.took_along, result.counts.cancelled) == (0, 3, 1)


def test_what_is_written_to_a_cancelled_data_drop_is_discarded() -> None:
    """Its producer completes, with its other output."""
    graph = draw("A -> x, A -> y")
    driver = Driver(graph, content=lambda _, drop: Handle(body=str(drop).encode()), duration=lambda _: 4.0)
    x, y = row(graph, "x"), row(graph, "y")
    driver.call_at(3.0, lambda: driver.session.cancel_drop(x))
    result = driver.run()

    assert (result.states["COMPLETED"], result.states["CANCELLED"]) == (2, 1)
    assert set(driver.repository.committed) == {y}
    assert driver.repository.discarded == [Handle(body=str(x).encode())]


def test_a_paused_session_starts_nothing() -> None:
    """What runs ends, attempts that were submitted before wait too, and after the pause all runs as before."""
    driver = Driver(draw(", ".join(f"A{number} -> x{number} -> B{number}" for number in range(20))), workers=2)
    driver.call_at(0.5, driver.session.pause)
    driver.call_at(100.0, lambda: driver.session.pause(is_paused=False))
    seen: list[tuple[SessionState, int]] = []

    def look() -> None:
        seen.append((driver.session.core.status, len(driver.runner.running)))

    for time in (0.6, 1.5, 99.0):
        driver.call_at(time, look)
    result = driver.run()

    assert seen == [(SessionState.PAUSED, 2), (SessionState.PAUSED, 0), (SessionState.PAUSED, 0)]
    assert result.status is SessionState.FINISHED
    assert result.seconds == pytest.approx(100.0 + 38 / 2)


def test_a_paused_session_is_cancelled() -> None:
    """It ends without being continued."""
    driver = Driver(draw("A -> x, B, C, D, E, F"), duration=lambda _: 1.0, workers=2)
    driver.call_at(0.5, driver.session.pause)
    driver.call_at(10.0, lambda: driver.session.cancel("enough"))

    assert driver.run().seconds == pytest.approx(10.0)


@pytest.mark.parametrize(("nodes", "published"), [(2, 5), (500, 4), (100_000, 2)])
def test_statistics_of_many_nodes_are_published_less_often(nodes: int, published: int) -> None:
    """Five times a second for small graphs, once a second for those with thousands of logical nodes; always last."""
    clock, found, core = VirtualClock(), list[Statistics](), Core(fan(2))
    publisher = StatisticsPublisher(clock, found.append, nodes)
    for _ in range(65):
        publisher.update(core, 0.0, Attempts)
        clock.advance(1 / 64)
    assert len(found) == published

    publisher.note_change()
    publisher.update(core, 0.0, Attempts, is_last=True)

    assert publisher.deadline == float("inf")
    assert found[-1].seconds == pytest.approx(clock.monotonic())
