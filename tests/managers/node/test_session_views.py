"""Numbers that a node shows of its sessions."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dropflow.engine.core import Core
from dropflow.engine.events import Begin
from dropflow.engine.statistics import Attempts, snapshot
from dropflow.graph.physical import PhysicalGraph
from dropflow.sessions.shown import attempts_of, logical_nodes, running_by_node
from dropflow.states import DropState
from dropflow.testing.strategies import graphs
from managers.node.operations import busy_with


@given(graphs(), st.data())
def test_running_queued_and_ready_are_the_applications_in_writing(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Those of applications add up, in all and by logical node, whatever the runner has begun since the snapshot."""
    core = Core(graph)
    core.handle([Begin()])
    statistics = snapshot(core, 1.0)
    drops = data.draw(st.lists(st.integers(0, graph.drops - 1), unique=True))
    ready = data.draw(st.integers(0, 20))
    running = running_by_node(statistics, graph, drops)
    found = attempts_of(statistics, running, Attempts(ready=ready))
    writing = [node.counts[DropState.WRITING] for node in statistics.nodes if node.is_app]

    of_data = sum(count for node, count in zip(statistics.nodes, running, strict=True) if not node.is_app)
    assert found.running - of_data + found.queued + found.ready == sum(writing)
    assert min(found.running, found.queued, found.ready) >= 0
    nodes = logical_nodes(statistics, running)
    assert sum(node.counts.running + node.counts.queued for node in nodes if node.is_app) == sum(writing)


def test_attempts_that_wait_for_workers_of_other_sessions_have_a_reason() -> None:
    """The sessions that worker processes run are named while attempts wait and none runs; those in threads are not."""

    def session(attempts: Attempts, running: dict[int, int]) -> Any:
        return SimpleNamespace(attempts=lambda: attempts, runner=SimpleNamespace(running=running))

    others = {
        "second": session(Attempts(running=1), {7: 2}),
        "first": session(Attempts(running=2), {3: 0, 4: 1}),
        "in threads": session(Attempts(running=1), {5: 0}),
        "idle": session(Attempts(), {}),
    }

    assert busy_with(session(Attempts(queued=3), {}), others) == ("first", "second")
    assert busy_with(session(Attempts(ready=1), {}), others) == ("first", "second")
    assert busy_with(session(Attempts(running=1, queued=3), {1: 3}), others) == ()
    assert busy_with(session(Attempts(), {}), others) == ()
