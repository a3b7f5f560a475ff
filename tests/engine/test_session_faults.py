"""Infrastructure faults of attempts in a session: delays in virtual time, suspects, and what users are told."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dropflow.engine.api import Handle, Task
from dropflow.engine.explain import explain
from dropflow.engine.journal import Journal, JournalHeader, replay
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import SessionState
from dropflow.testing.drawing import draw, row
from tests.engine.test_session_steps import Driver

SEGFAULT = "the worker process was killed by signal 11 (SIGSEGV)"
DIED = Failure(code="DF202", kind="WorkerDiedError", text=SEGFAULT, hint="look", retryable=True, infrastructure=True)
LOST = Failure(code="DF203", kind="ResultLostError", text="the result was lost", infrastructure=True, is_innocent=True)


def drive(
    graph: PhysicalGraph, failures: Mapping[tuple[str, int], Failure], *, retries: int = 5, **options: object
) -> tuple[Driver, list[Task]]:
    """Return a driver whose attempts, given by drop and number, fail so; and the tasks that its runner will get."""
    by_row = {(row(graph, name), attempt): failure for (name, attempt), failure in failures.items()}
    driver = Driver(
        graph,
        {"infrastructure_retries": retries, **options},
        failure=lambda task: by_row.get((task.drop, task.attempt)),
        content=lambda task, _: Handle(body=task.oid.encode()),
    )
    tasks: list[Task] = []
    submit = driver.runner.submit

    def note(batch: object) -> None:
        tasks.extend(batch)  # type: ignore[arg-type]
        submit(batch)  # type: ignore[arg-type]

    driver.runner.submit = note  # type: ignore[method-assign]
    return driver, tasks


def test_an_attempt_is_repeated_after_a_delay() -> None:
    """After faults the attempts begin 0.1, 0.2 and 0.4 seconds later, marked as suspects; others go on meanwhile."""
    graph = draw("A -> b, C -> d -> E -> f")
    driver, tasks = drive(graph, {("A", attempt): DIED for attempt in (1, 2, 3)})
    result = driver.run()

    assert result.status is SessionState.FINISHED
    assert result.seconds == pytest.approx(4 + 0.1 + 0.2 + 0.4)
    assert [(task.attempt, task.is_suspect) for task in tasks if task.oid == "drawing_A_0"] == [
        (1, False),
        (2, True),
        (3, True),
        (4, True),
    ]
    assert not any(task.is_suspect for task in tasks if task.oid != "drawing_A_0")
    assert driver.repository.discarded_attempts == [(row(graph, "A"), attempt) for attempt in (1, 2, 3)]
    assert driver.repository.committed[row(graph, "b")][0] == 4


def test_a_lost_result_costs_nothing() -> None:
    """An innocent attempt is repeated immediately, is no suspect, and is no fault in the result."""
    graph = draw("A -> b")
    driver, tasks = drive(graph, {("A", 1): LOST}, retries=0)
    result = driver.run()

    assert (result.status, result.seconds) == (SessionState.FINISHED, 2.0)
    assert not tasks[1].is_suspect
    assert result.infrastructure_faults == 0
    assert result.notes == ("0 infrastructure faults; 1 result lost with a process and computed again",)


def test_an_application_that_ends_its_workers_is_named() -> None:
    """When the retries are used up, the reason names the application and how often it ended its worker process."""
    graph = draw("A -> b, C -> d")
    driver, _ = drive(graph, {("A", attempt): DIED for attempt in range(1, 9)}, retries=2)
    result = driver.run()
    (failure,) = result.failures

    assert result.status is SessionState.FAILED
    assert failure.text == f"application 'A' ended its worker process 3 times; the last time, {SEGFAULT}"
    assert (failure.hint, failure.attempts, failure.count) == ("look", 3, 2)
    assert failure.detail.splitlines()[1] == f"attempt 2: infrastructure fault: {SEGFAULT}"
    assert (result.infrastructure_faults, result.notes) == (3, ("3 infrastructure faults",))


def test_without_retries_the_first_fault_fails_the_drop() -> None:
    """With no retries the reason is that of the one fault."""
    driver, _ = drive(draw("A -> b"), {("A", 1): DIED}, retries=0)

    assert [failure.text for failure in driver.run().failures] == [SEGFAULT]


def test_a_session_without_faults_has_no_note() -> None:
    """Nothing is said about faults if there was none."""
    driver, _ = drive(draw("A -> b"), {})

    assert driver.run().notes == ()


def test_a_cancelled_session_does_not_wait_for_a_delay() -> None:
    """A cancel ends a session at once whose only attempt is delayed."""
    driver, tasks = drive(draw("A -> b"), {("A", 1): DIED})
    session = driver.session
    driver.session.begin()
    driver.clock.advance(1.0)
    driver.due.pop()[2]()
    session.step()
    assert (session.attempts().ready, len(tasks)) == (1, 1)
    session.cancel()
    session.step()

    assert session.is_over
    assert session.core.status is SessionState.CANCELLED
    assert session.attempts().ready == 0


def test_explain_shows_each_fault(tmp_path: Path) -> None:
    """The explanation from the running session, and from its journal, has one line for each fault with its reason.

    The last one is the reason of the failure, and not repeated.
    """
    graph = draw("A -> b")
    journal = Journal(tmp_path / "journal.dfj", JournalHeader("s", "", 0.0, infrastructure_retries=2))
    driver, _ = drive(
        graph, {("A", 1): DIED, ("A", 2): LOST, ("A", 3): DIED, ("A", 4): DIED}, retries=2, journal=journal
    )
    driver.run()
    drop = row(graph, "A")
    replayed = replay(graph, tmp_path / "journal.dfj")

    assert explain(replayed.core, drop, replayed.faults[drop]).lines[1:] == (
        "it failed itself",
        f"attempt 1: infrastructure fault: {SEGFAULT}",
        "attempt 2: repeated, innocent: the result was lost",
        f"attempt 3: infrastructure fault: {SEGFAULT}",
    )
    live = explain(driver.session.core, drop, driver.session.faults(drop))
    assert live == explain(replayed.core, drop, replayed.faults[drop])
    assert replayed.core.drops.attempt(drop) == 4
