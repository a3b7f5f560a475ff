"""A pool of worker processes that several sessions share."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dropflow.clock import SystemClock
from dropflow.engine.api import ExecutorSpec
from dropflow.engine.runners.pool import WorkerPool
from dropflow.engine.session import Session, SessionResult
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import SessionState
from dropflow.testing.drawing import draw
from dropflow.testing.recorder import FakeKeeper

FACTORY = "dropflow.testing.executors:build"
WIDE = ", ".join(f"a{number} -> B{number} -> c{number}" for number in range(20))


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    """Two workers."""
    found = WorkerPool(2, logs=tmp_path, factory=FACTORY)
    yield found
    found.close()


def _session(graph: PhysicalGraph, pool: WorkerPool, directory: Path) -> Session:
    for name in ("files", "logs"):
        (directory / name).mkdir(parents=True)
    spec = ExecutorSpec(session="s", directory=str(directory), templates=graph.templates, links=graph.links)
    return Session(graph, FakeKeeper(), pool.runner(spec), session="s", directory=str(directory), clock=SystemClock())


def _start(session: Session, results: list[SessionResult]) -> threading.Thread:
    thread = threading.Thread(target=lambda: results.append(session.run()))
    thread.start()
    return thread


def _pids(session: Session) -> set[bytes]:
    keeper: FakeKeeper = session._keeper  # type: ignore[assignment]
    return {handle.body for handle in keeper.results.values()}


def test_sessions_share_the_same_processes(pool: WorkerPool, tmp_path: Path) -> None:
    """One after another or side by side, sessions run in as many processes as the pool has."""
    graph = draw(WIDE, **{f"B{number}": {"component": "pid"} for number in range(20)})
    sessions = [_session(graph, pool, tmp_path / f"s{number}") for number in range(6)]
    results: list[SessionResult] = []
    for group in (sessions[:1], sessions[1:]):
        for thread in [_start(session, results) for session in group]:
            thread.join(30)

    assert [result.status for result in results] == [SessionState.FINISHED] * 6
    assert len(set().union(*(_pids(session) for session in sessions))) <= 2


def test_a_session_is_cancelled_without_harm_to_the_others(pool: WorkerPool, tmp_path: Path) -> None:
    """An attempt that takes no abort costs its worker, and the other sessions nothing."""
    stubborn = _session(draw("A -> b", A={"component": "deaf"}), pool, tmp_path / "stubborn")
    results: list[SessionResult] = []
    one = _start(stubborn, results)
    stubborn.ask(lambda live: live.core.running)
    other: list[SessionResult] = []
    two = _start(_session(draw(WIDE), pool, tmp_path / "other"), other)
    stubborn.cancel()
    one.join(30)
    two.join(30)

    assert [result.status for result in results + other] == [SessionState.CANCELLED, SessionState.FINISHED]


def test_an_outcome_that_cannot_be_sent_is_a_failure(pool: WorkerPool, tmp_path: Path) -> None:
    """An application whose failure no message can hold fails all the same, and says so."""
    result = _session(draw("A -> b, C -> d", A={"component": "mumble"}), pool, tmp_path / "s").run()

    assert result.states == {"COMPLETED": 2, "ERROR": 2, "SKIPPED": 0}
    assert "cannot be sent: UnicodeEncodeError" in result.failures[0].text


def test_a_broken_pool_fails_its_sessions(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong in the pool itself, nobody waits for ever: sessions fail and say why, later ones too."""
    fine = _session(draw(WIDE), pool, tmp_path / "fine").run()
    monkeypatch.setattr(pool, "_assign", lambda: 1 // 0)
    results: list[SessionResult] = []
    for name in ("first", "second"):
        _start(_session(draw("A -> b"), pool, tmp_path / name), results).join(30)

    assert fine.status is SessionState.FINISHED
    assert [result.status for result in results] == [SessionState.FAILED] * 2
    assert "cannot be served any more: integer division" in results[0].failures[0].text
    assert "this is a bug of dropflow" in caplog.text
