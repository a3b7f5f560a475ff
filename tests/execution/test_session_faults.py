"""Infrastructure faults of attempts in a session: delays in virtual time, suspects, and what users are told."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.execution.content_location import Handle
from dropflow.execution.drop_explanation import explain
from dropflow.execution.journal import Journal, JournalHeader, replay
from dropflow.execution.statistics import SessionResult
from dropflow.execution.tasks import Task
from dropflow.failure import Failure
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph, follower_column
from dropflow.states import DropState, SessionState
from dropflow.testing.drawing import draw, row
from tests.execution.sessions import Driver

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


# Chains of applications that run as one unit, in sessions on virtual time: the same results as without chains.


BOOM = Failure(code="DF105", kind="ValueError", text="boom", retryable=True)
SESSION_CHAINS_DIED = Failure(code="DF202", kind="WorkerDiedError", text="died", retryable=True, infrastructure=True)


class Work:
    """What applications do: some fail, some skip an output, and some end their worker."""

    def __init__(self, *, failing: Counter[int], dying: Counter[int], skipping: set[int]) -> None:
        self.driver: Driver | None = None
        self.executed: list[tuple[int, int]] = []
        self._failing, self._dying, self._skipping = failing, dying, skipping

    def failure(self, task: Task) -> Failure | None:
        """Fail the first tries of some, and the first attempts that can have a fault of others."""
        assert self.driver is not None
        drops = self.driver.session.core.drops
        assert task.attempt == drops.attempt(task.drop)
        self.executed.append((task.drop, task.attempt))
        if drops.faults.get(task.drop, 0) < self._dying[task.drop]:
            return SESSION_CHAINS_DIED
        tried = task.attempt - drops.uncounted_attempts.get(task.drop, 0)
        return BOOM if tried <= self._failing[task.drop] else None

    def skips(self, task: Task) -> set[int]:
        """Skip some outputs."""
        return {output.drop for output in task.outputs} & self._skipping

    @staticmethod
    def content(task: Task, drop: int) -> Handle:
        """Write what was read, in brackets."""
        read = b",".join(b"-" if one.handle is None else one.handle.body for one in task.inputs)
        return Handle(body=b"%s(%s)" % (str(drop).encode(), read))


def run(
    graph: PhysicalGraph, work: Work, *, fuse: bool, late: Callable[[Task], bool] = lambda _: False, retries: int = 2
) -> tuple[SessionResult, Driver]:
    """Run a graph, and check that nothing is left with the runner."""
    chains = follower_column(graph, [1] * len(graph.templates)) if fuse else None
    driver = work.driver = Driver(
        graph,
        {"chains": chains, "infrastructure_retries": retries},
        failure=work.failure,
        skips=work.skips,
        content=work.content,
        sends_late=late,
        workers=2,
    )
    return driver.run(), driver


def outcome(graph: PhysicalGraph, found: tuple[SessionResult, Driver]) -> dict[str, object]:
    """Return everything about a session that must not depend on chains."""
    result, driver = found
    return {
        "status": result.status,
        "states": [driver.session.core.drops.state(drop) for drop in range(graph.drops)],
        "causes": driver.session.core.drops.error_causes(),
        "contents": {drop: part for drop, (_, part) in driver.repository.committed.items()},
        "results": driver.repository.results,
        "released": sorted(driver.repository.released),
        "failures": sorted((failure.drop, failure.code, failure.count) for failure in result.failures),
        "faults": result.infrastructure_faults,
    }


@st.composite
def chained(draw: st.DrawFn) -> PhysicalGraph:
    """Draw graphs of chains that branch, join and end."""
    builder = GraphBuilder("random")
    data: list[str] = []
    app = 0
    for _ in range(draw(st.integers(1, 5))):
        sources = draw(st.lists(st.sampled_from(data), max_size=2, unique=True)) if data else []
        for _ in range(draw(st.integers(1, 6))):
            builder.app(
                f"A{app}",
                tries=draw(st.sampled_from([1, 1, 2])),
                error_threshold=draw(st.sampled_from([0.0, 0.0, 0.0, 50.0, 100.0])),
                block_skip=draw(st.booleans()),
            )
            builder.data(f"d{app}", persist=draw(st.sampled_from([None, None, True])))
            for source in sources:
                builder.connect(source, f"A{app}")
            builder.connect(f"A{app}", f"d{app}")
            sources = [f"d{app}"]
            app += 1
        data += sources
        if draw(st.booleans()):
            data.append(f"d{draw(st.integers(0, app - 1))}")
    return builder.build()


def counts(graph: PhysicalGraph) -> st.SearchStrategy[Counter[int]]:
    """Draw how often a few drops do something."""
    return st.dictionaries(st.integers(0, graph.drops - 1), st.integers(1, 4), max_size=3).map(Counter)


@pytest.mark.slow
@given(data=st.data(), graph=chained())
def test_chains_change_no_result(data: st.DataObject, graph: PhysicalGraph) -> None:
    """States, contents, causes and faults are those of a run without chains: with retries, skips and dead workers.

    A worker that dies takes with it the results that it had not sent yet, in half of the runs.
    """
    failing, dying = data.draw(counts(graph)), data.draw(counts(graph))
    skipping = data.draw(st.sets(st.integers(0, graph.drops - 1), max_size=2))
    late = data.draw(st.sets(st.integers(0, graph.drops - 1)))
    plain = run(graph, Work(failing=failing, dying=dying, skipping=skipping), fuse=False)
    work = Work(failing=failing, dying=dying, skipping=skipping)
    fused = run(graph, work, fuse=True, late=lambda task: task.drop in late)

    assert outcome(graph, fused) == outcome(graph, plain)
    assert fused[1].session.attempts().running == 0


@pytest.mark.slow
@given(data=st.data(), graph=chained())
def test_chains_can_be_paused_and_drops_of_them_cancelled(data: st.DataObject, graph: PhysicalGraph) -> None:
    """Whatever is cancelled, and whenever the session pauses, every drop settles, and each is committed once."""
    late = data.draw(st.sets(st.integers(0, graph.drops - 1)))
    work = Work(failing=Counter(), dying=data.draw(counts(graph)), skipping=set())
    chains = follower_column(graph, [1] * len(graph.templates))
    driver = work.driver = Driver(
        graph,
        {"chains": chains},
        failure=work.failure,
        content=work.content,
        sends_late=lambda task: task.drop in late,
        workers=2,
    )
    times = st.floats(0.0, 12.0).map(lambda time: round(time * 4) / 4)
    cancels = data.draw(st.lists(st.tuples(times, st.integers(0, graph.drops - 1)), max_size=4))
    for time, drop in cancels:
        driver.call_at(time, lambda drop=drop: driver.session.cancel_drop(drop))  # type: ignore[misc]
    pauses = data.draw(st.lists(times, max_size=2))
    for time in pauses:
        driver.call_at(time, driver.session.pause)
        driver.call_at(time + 3, lambda: driver.session.pause(is_paused=False))
    result = driver.run()

    assert result.status in {SessionState.FINISHED, SessionState.FAILED}
    assert all(driver.session.core.drops.state(drop).is_terminal for drop in range(graph.drops))
    # Cancels of drops that had settled, and pauses and their ends while the session was paused, or ran, already.
    assert driver.session.core.refused <= len(cancels) + 2 * len(pauses)


def test_a_chain_is_one_dispatch() -> None:
    """The runner gets one task, and each drop has its state and its time when its own attempt ends."""
    graph = draw("r -> A -> x -> B -> y -> C -> z")
    work = Work(failing=Counter(), dying=Counter(), skipping=set())
    chains = follower_column(graph, [1] * len(graph.templates))
    driver = work.driver = Driver(graph, {"chains": chains}, failure=work.failure, content=work.content)
    tasks: list[Task] = []
    submit = driver.runner.submit
    driver.runner.submit = lambda batch: (tasks.extend(batch), submit(batch))[1]  # type: ignore[method-assign,func-returns-value]
    states = driver.session.core.drops.states
    seen = []
    for time in (1.5, 2.5, 3.5):
        driver.call_at(time, lambda: seen.append([DropState(states[row(graph, name)]) for name in "AxByC"]))
    driver.run()

    assert [[task.oid, *(one.oid for one in task.then)] for task in tasks] == [
        ["drawing_r_0"],
        ["drawing_A_0", "drawing_B_0", "drawing_C_0"],
    ]
    i, w, c = DropState.INITIALIZED, DropState.WRITING, DropState.COMPLETED
    assert seen == [[w, i, i, i, i], [c, c, w, i, i], [c, c, c, c, w]]


def test_a_paused_chain_goes_on_where_it_was() -> None:
    """The attempt that runs ends; the next one begins when the session continues, with what was committed."""
    graph = draw("A -> x -> B -> y -> C -> z")
    work = Work(failing=Counter(), dying=Counter(), skipping=set())
    chains = follower_column(graph, [1] * len(graph.templates))
    driver = work.driver = Driver(graph, {"chains": chains}, failure=work.failure, content=work.content)
    driver.call_at(0.5, driver.session.pause)
    driver.call_at(9.0, lambda: driver.session.pause(is_paused=False))
    result = driver.run()

    assert (result.status, result.seconds) == (SessionState.FINISHED, pytest.approx(11.0))
    assert work.executed == [(row(graph, name), 1) for name in "ABC"]


def test_a_cancelled_session_stops_its_chains() -> None:
    """After a cancel no attempt of a chain begins."""
    graph = draw("A -> x -> B -> y -> C -> z")
    work = Work(failing=Counter(), dying=Counter(), skipping=set())
    chains = follower_column(graph, [1] * len(graph.templates))
    driver = work.driver = Driver(graph, {"chains": chains}, failure=work.failure, sends_late=lambda _: True)
    driver.call_at(1.5, lambda: driver.session.cancel("enough"))

    assert driver.run().status is SessionState.CANCELLED
    assert [drop for drop, _ in work.executed] == [row(graph, "A")]


def test_a_worker_that_dies_in_a_chain_is_blamed_on_the_right_application() -> None:
    """B ends its worker: A, whose result was lost with it, runs again at no cost; B has the fault, and runs alone."""
    graph = draw("A -> x -> B -> y -> C -> z")
    work = Work(failing=Counter(), dying=Counter({row(graph, "B"): 1}), skipping=set())
    result, driver = run(graph, work, fuse=True, late=lambda _: True)

    assert result.status is SessionState.FINISHED
    assert [(fault.attempt, fault.failure.code) for fault in driver.session.faults(row(graph, "B"))] == [(1, "DF202")]
    assert all(fault.failure.is_innocent for fault in driver.session.faults(row(graph, "A")))
    assert result.infrastructure_faults == 1
    assert work.executed == [
        (row(graph, name), attempt) for name, attempt in (("A", 1), ("B", 1), ("A", 2), ("B", 2), ("C", 1))
    ]
