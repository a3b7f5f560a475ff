"""Attempts that wait with a runner are taken back when the session is frozen, so that another node may run them."""

import threading
from pathlib import Path

import numpy as np
import pytest

from dropflow.runners.in_process import InlineRunner
from dropflow.states import DropState, SessionState
from dropflow.testing.attempts import ScriptedExecutor
from dropflow.testing.drawing import draw
from tests.e2e.cluster import until
from tests.engine.runners.test_runners import make, session_of, spec_of

_COUNT = 40
_WIDE = ", ".join(f"a{number} -> B{number} -> c{number}" for number in range(_COUNT))


@pytest.mark.parametrize(("kind", "workers"), [("threads", 3), ("processes", 2)])
def test_what_has_not_begun_is_taken_back_and_what_runs_goes_on(kind: str, workers: int, tmp_path: Path) -> None:
    """Drops whose attempts were taken back have not begun; no answer of their attempts comes, and none is missed."""
    graph = draw(_WIDE, **{f"B{number}": {"component": "hang"} for number in range(_COUNT)})
    session = session_of(graph, make(kind, graph, tmp_path), tmp_path)
    thread = threading.Thread(target=session.advance)
    thread.start()
    assert until(lambda: len(session.runner.running) == workers)
    given = session.attempts()
    session.freeze()
    thread.join()
    session.handover.take_back()
    now = session.attempts()
    states = np.frombuffer(session.handover.states(), dtype=np.uint8)
    writing = np.flatnonzero(states == DropState.WRITING).tolist()
    session.handover.take_back()

    assert given.queued > 0
    assert {*session.runner.running} <= {*writing}
    assert len(writing) == now.running + now.queued
    assert (now.running + now.queued, now.ready) == (len(writing), _COUNT - len(writing))
    assert now.queued == 0 or kind == "processes", "a worker may have been given some ahead"
    assert session.attempts() == now

    session.is_frozen = False
    session.cancel()
    session.run()
    assert session.core.status is SessionState.CANCELLED


def test_a_runner_without_waiting_attempts_gives_back_none(tmp_path: Path) -> None:
    """One that runs what it gets at once has none, and neither has one that was not started or is closed."""
    graph = draw("A -> b")
    runner = InlineRunner(ScriptedExecutor(spec_of(graph, tmp_path)))
    pooled = make("processes", graph, tmp_path)
    before = (*runner.give_back(), *pooled.give_back())
    session_of(graph, pooled, tmp_path).run()

    assert (before, tuple(pooled.give_back())) == ((), ())
