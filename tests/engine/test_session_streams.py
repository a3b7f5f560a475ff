"""The session and data that are read while they are written: what it delays, discards and passes on."""

from collections.abc import Callable, Sequence

import pytest

from dropflow.engine.api import AttemptResult, Handle, StreamOpened, Task
from dropflow.engine.events import Event, Failed, Finished
from dropflow.engine.session import Instrument
from dropflow.engine.statistics import SessionResult
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import DropState, SessionState
from dropflow.testing.conformance import FakeRepository, FakeRunner
from dropflow.testing.drawing import draw, row
from dropflow.testing.fake_manager import VirtualClock
from tests.engine.sessions import build_session

BOOM = Failure(code="DF105", kind="ValueError", text="boom", retryable=True)
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
        # Whoever is aborted is answered all the same.
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
