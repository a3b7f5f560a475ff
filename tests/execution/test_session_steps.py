"""A session without a thread: it is begun, stepped and ended by a driver, in virtual time."""

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np
import pytest

from dropflow.execution.chains import not_begun
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.continuation import Restart, continuation_of
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import Event, Failed, Finished
from dropflow.execution.interfaces import Exchange
from dropflow.execution.session import Instrument
from dropflow.execution.statistics import Attempts, SessionResult, Statistics, StatisticsPublisher
from dropflow.execution.tasks import AttemptResult, StreamOpened, Task
from dropflow.execution.walltime import postponed
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import whole_slice
from dropflow.states import DropState, SessionState
from dropflow.stopping import GRACE_SECONDS, kill_after, stopped_after
from dropflow.testing.conformance import FakeRepository
from dropflow.testing.drawing import draw, row
from tests.execution.sessions import Driver, FakeRunner, build_session
from tests.regular_graphs import fan
from tests.virtual_clock import VirtualClock

BOOM = Failure(code="DF105", kind="ValueError", text="boom", retryable=True)


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
    assert max(statistic.attempts.running for statistic in driver.statistics) == 2


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


def test_the_reason_of_a_cancelled_drop_is_kept_in_the_next_session() -> None:
    """Also when the session goes on with other drops, as after the loss of a node."""
    graph = draw("A -> x, B -> y")
    session = build_session(graph, FakeRepository(), FakeRunner(), clock=VirtualClock())
    session.begin()
    session.cancel_drop(row(graph, "A"), "too slow")
    session.step()
    nothing = np.zeros(graph.drops, dtype=np.bool_)
    following = build_session(
        graph,
        FakeRepository(),
        FakeRunner(),
        clock=VirtualClock(),
        continuation=continuation_of(
            session.hand_over(), whole_slice(graph), Restart(reset=nothing, repeated=nothing, reason="a node is lost")
        ),
    )
    following.begin()

    assert [report.text for report in following.reports()] == ["the drop was cancelled: too slow"]


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


@pytest.mark.slow
class Elsewhere(Exchange):
    """The other nodes of a session, which report nothing."""

    def __init__(self, rows: Sequence[int], remote: Sequence[int]) -> None:
        self.rows, self.remote = np.array(rows, np.int32), np.array(remote, np.int32)


@pytest.mark.parametrize("before", [1.0, 0.0])
def test_a_session_that_waits_for_other_nodes_is_idle_at_its_walltime(before: float) -> None:
    """Also if the walltime passes between a step and the question when the next one is due."""
    clock, idle = VirtualClock(), list[float]()
    session = build_session(
        draw("A -> b -> C -> d"),
        FakeRepository(),
        FakeRunner(),
        clock=clock,
        exchange=Elsewhere(range(4), (0, 1)),
        until=clock.now() + 10.0,
        on_idle=lambda: idle.append(clock.monotonic()),
    )
    session.begin()
    session.step()
    clock.advance(10.0 - before)

    assert session.deadline() == 10.0
    clock.advance(before)
    session.step()
    assert idle == [10.0]
    assert session.deadline() == math.inf
    session.close()


@pytest.mark.slow
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


@pytest.mark.parametrize("is_lost", [False, True])
def test_only_what_runs_is_stopped_one_by_one(*, is_lost: bool) -> None:
    """What waits comes back together: thousands of aborts would take longer than a cancel may, and hold up a pool."""
    graph, runner = draw("A -> x, B -> y, C -> z"), FakeRunner()
    session = build_session(graph, FakeRepository(), runner, clock=VirtualClock())
    session.begin()
    runner.take("drawing_A_0")
    if is_lost:
        session.lose("b", BOOM)
    else:
        session.cancel()
    session.step()
    session.step()

    assert session.is_over
    assert runner.tasks == []
    assert is_lost or runner.aborted == [row(graph, "A")]


class Deaf(FakeRunner):
    """Answers no abort, as a runner that does not have the attempt."""

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Record."""
        self.aborted.append(drop)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_cancel_does_not_wait_for_attempts_that_were_not_begun(*, is_late: bool) -> None:
    """Because of the walltime, or because the chain before them ended: the runner does not have them any more."""
    runner = Deaf()
    session = build_session(
        draw("A -> x"), FakeRepository(), runner, clock=VirtualClock(), until=1e10, on_idle=lambda: None
    )
    session.begin()
    tasks = runner.take("drawing_A_0")
    runner.deliver([postponed(task.drop, task.attempt) for task in tasks] if is_late else not_begun(tasks))
    session.cancel()
    session.step()

    assert session.is_over
    assert session.core.status is SessionState.CANCELLED
    runner.expect_nothing()


def test_an_attempt_too_late_for_the_walltime_waits_in_the_next_session() -> None:
    """The runner has answered it, so that it is not handed over as one that runs."""
    runner = FakeRunner()
    session = build_session(
        draw("A -> x"), FakeRepository(), runner, clock=VirtualClock(), until=1e10, on_idle=lambda: None
    )
    session.begin()
    runner.deliver([postponed(task.drop, task.attempt) for task in runner.take("drawing_A_0")])
    session.step()

    assert not any(session.handover.states())


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


# The session and data that are read while they are written: what it delays, discards and passes on.


Said = StreamOpened | AttemptResult


class Stage(FakeRunner):
    """A runner that delivers what a script has for each attempt, by name and number.

    Attempts without lines succeed at once.
    """

    def __init__(self, script: dict[tuple[str, int], Callable[[Task], Sequence[Said]]]) -> None:
        super().__init__()
        self.script = script
        self.given: dict[tuple[str, int], Task] = {}

    def submit(self, tasks: Sequence[Task]) -> None:
        """Play."""
        for task in tasks:
            key = task.oid.split("_")[1], task.attempt
            self.given[key] = task
            self.deliver(self.script.get(key, lambda task: [success(task)])(task))  # type: ignore[arg-type]


class Camera(Instrument):
    """Records the ends of attempts, in the order in which the core processed them."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def on_events(self, events: Sequence[Event]) -> None:
        """Look."""
        self.seen += [event for event in events if isinstance(event, Finished | Failed)]


def success(task: Task) -> AttemptResult:
    """Return a result whose outputs have the id and the attempt of their producer as content."""
    part = Handle(body=f"{task.oid} {task.attempt}".encode())
    return AttemptResult(task.drop, task.attempt, {output.drop: part for output in task.outputs})


def failure(task: Task) -> AttemptResult:
    """Return a failed result."""
    return AttemptResult(task.drop, task.attempt, failure=BOOM)


def opened(task: Task) -> StreamOpened:
    """Return that the first output of a task is open."""
    return StreamOpened(task.drop, task.attempt, task.outputs[0].drop, stream_of(task.attempt))


def stream_of(attempt: int) -> Handle:
    """Return the stream that an attempt opens."""
    return Handle(kind="stream", location=f"/nowhere/{attempt}")


def run(graph: PhysicalGraph, stage: Stage, repository: FakeRepository, *instruments: Instrument) -> SessionResult:
    """Run a graph whose links all stream, with checks after every step."""
    session = build_session(
        graph,
        repository,
        stage,
        clock=VirtualClock(),
        streams=range(len(graph.links)),
        instruments=instruments,
        check_invariants=True,
    )
    return session.run()


def test_an_early_result_waits_for_its_inputs() -> None:
    """The result of an attempt that ran ahead is committed, and processed, after its inputs are complete."""
    graph = draw("A -> x -> B -> y")
    producer: list[Task] = []
    stage = Stage(
        {
            ("A", 1): lambda task: (producer.append(task), [opened(task)])[1],
            ("B", 1): lambda task: [success(task), success(producer[0])],
        }
    )
    repository, camera = FakeRepository(), Camera()
    result = run(graph, stage, repository, camera)
    (given,) = stage.given["B", 1].inputs

    assert result.status is SessionState.FINISHED
    assert stage.given["B", 1].is_ahead
    assert (given.state, given.handle) == (DropState.WRITING, stream_of(1))
    assert list(repository.committed) == [row(graph, "x"), row(graph, "y")]
    assert camera.seen == [Finished(row(graph, "A"), 1), Finished(row(graph, "B"), 1)]
    assert stream_of(1) in repository.discarded


def test_an_early_failure_counts_when_the_inputs_are_complete() -> None:
    """The failure counts as a try once the inputs are complete, and the next attempt reads complete inputs."""
    graph = draw("A -> x -> B -> y", B={"tries": 2})
    producer: list[Task] = []
    stage = Stage(
        {
            ("A", 1): lambda task: (producer.append(task), [opened(task)])[1],
            ("B", 1): lambda task: [failure(task), success(producer[0])],
        }
    )
    repository, camera = FakeRepository(), Camera()
    result = run(graph, stage, repository, camera)

    assert result.status is SessionState.FINISHED
    assert [(type(event), event.drop) for event in camera.seen] == [  # type: ignore[union-attr]
        (Finished, row(graph, "A")),
        (Failed, row(graph, "B")),
        (Finished, row(graph, "B")),
    ]
    assert not stage.given["B", 2].is_ahead
    assert stage.given["B", 2].inputs[0].handle == Handle(body=b"drawing_A_0 1")


@pytest.mark.parametrize("is_early", [True, False])
def test_a_consumer_starts_over_when_the_attempt_it_reads_fails(*, is_early: bool) -> None:
    """Its result is discarded, or it is aborted; it keeps its tries, and reads the new stream."""
    graph = draw("A -> x -> B -> y", A={"tries": 2})
    writers: list[Task] = []

    def begin(task: Task) -> list[Said]:
        writers.append(task)
        return [opened(task)]

    def read(task: Task) -> list[Said]:
        if task.attempt == 1:
            return [success(task), failure(writers[0])] if is_early else [failure(writers[0])]
        return [success(writers[1]), success(task)]

    stage = Stage({("A", 1): begin, ("A", 2): begin, ("B", 1): read, ("B", 2): read})
    if not is_early:
        # An attempt that is aborted is answered, too.
        stage.abort = lambda drop, attempt, _: stage.deliver([AttemptResult(drop, attempt, failure=BOOM)])  # type: ignore[assignment]
    repository = FakeRepository()
    result = run(graph, stage, repository)

    assert result.status is SessionState.FINISHED
    assert repository.committed[row(graph, "y")] == (2, Handle(body=b"drawing_B_0 2"))
    assert (Handle(body=b"drawing_B_0 1") in repository.discarded) is is_early
    assert {stream_of(1), stream_of(2)} <= set(repository.discarded)
    assert stage.given["B", 2].inputs[0].handle == stream_of(2)


def test_a_consumer_of_a_failed_producer_ends_as_without_streams() -> None:
    """The consumer ends in ERROR with its producer as cause, though its attempt succeeded."""
    graph = draw("A -> x -> B -> y")
    producer: list[Task] = []
    stage = Stage(
        {
            ("A", 1): lambda task: (producer.append(task), [opened(task)])[1],
            ("B", 1): lambda task: [success(task), failure(producer[0])],
        }
    )
    repository = FakeRepository()
    result = run(graph, stage, repository)

    assert result.states["ERROR"] == 4
    assert [(report.drop, report.count) for report in result.failures] == [("drawing_A_0", 4)]
    assert repository.committed == {}


def test_the_stream_of_a_failed_attempt_is_discarded() -> None:
    """A stream that is opened by an attempt that has failed is discarded."""
    graph = draw("A -> x -> B", A={"tries": 2})
    late: list[StreamOpened] = []
    stage = Stage(
        {
            ("A", 1): lambda task: (late.append(opened(task)), [failure(task)])[1],
            ("A", 2): lambda task: [late[0], success(task)],
        }
    )
    repository = FakeRepository()
    result = run(graph, stage, repository)

    assert result.status is SessionState.FINISHED
    assert repository.discarded == [stream_of(1)]


def test_an_attempt_that_does_not_run_ahead_gets_no_stream() -> None:
    """An attempt that does not run ahead gets no stream: its input is WRITING and has no content."""
    graph = draw("A -> x -> B -> y, x -> D, C -> z -> B", B={"effective_inputs": 1})
    producer: list[Task] = []
    stage = Stage(
        {
            ("A", 1): lambda task: (producer.append(task), [opened(task)])[1],
            ("B", 1): lambda task: [success(task), success(producer[0])],
        }
    )
    result = run(graph, stage, FakeRepository())

    assert result.status is SessionState.FINISHED
    assert [(each.state, each.handle is None) for each in stage.given["B", 1].inputs] == [
        (DropState.WRITING, True),
        (DropState.COMPLETED, False),
    ]
    assert stage.given["D", 1].is_ahead
