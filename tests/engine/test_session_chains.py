"""Chains of applications that run as one unit, in sessions on virtual time: the same results as without chains."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.engine.api import Handle, Task
from dropflow.engine.statistics import SessionResult
from dropflow.failure import Failure
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph, follower_column
from dropflow.states import DropState, SessionState
from dropflow.testing.drawing import draw, row
from tests.engine.test_session_steps import Driver

BOOM = Failure(code="DF105", kind="ValueError", text="boom", retryable=True)
DIED = Failure(code="DF202", kind="WorkerDiedError", text="died", retryable=True, infrastructure=True)


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
            return DIED
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
        "failures": sorted((one.drop, one.code, one.count) for one in result.failures),
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
