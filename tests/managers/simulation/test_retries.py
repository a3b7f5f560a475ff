"""Failed drops that are tried again while their session runs, in clusters on virtual time."""

from pathlib import Path

import pytest

from dropflow.api.records import SessionDetail, SubmitQuery
from dropflow.api.requests import RetryRequest
from dropflow.engine.api import Task
from dropflow.errors import ConflictError
from managers.machine_calls import Answered, Unanswered
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.test_moves import rows

pytestmark = pytest.mark.slow


class _Repairable:
    """Has the first applications of some rows fail until they are repaired."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def fails(self, task: Task, node: str) -> bool:
        """Return whether an attempt fails."""
        del node
        return any(f"_{name}_" in task.oid for name in self.names)


def _cluster(tmp_path: Path, broken: _Repairable, *, nodes: int) -> SimulatedCluster:
    cluster = SimulatedCluster(5, tmp_path, islands=1, nodes=nodes, workload=Workload(seconds=4.0, fails=broken.fails))
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(rows(40, nodes), "s"), Answered)
    cluster.simulation.wait(25.0)
    return cluster


def _ended(cluster: SimulatedCluster) -> SessionDetail:
    ended = cluster.finish("s", seconds=1000.0)
    assert ended is not None
    return ended


@pytest.mark.parametrize("nodes", [1, 3])
def test_failed_drops_are_tried_again_while_the_session_runs(nodes: int, tmp_path: Path) -> None:
    """What failed runs again with what hangs on it, and nothing else; attempts that run go on."""
    broken = _Repairable("a0", "a1")
    cluster = _cluster(tmp_path, broken, nodes=nodes)
    before = cluster.call("session", session="s")
    assert isinstance(before, Answered)
    assert (before.value.status, before.value.states["ERROR"]) == ("RUNNING", 8)
    broken.names.clear()
    assert isinstance(cluster.call("retry", session="s", request=RetryRequest()), Answered)
    ended = _ended(cluster)

    assert (ended.status, ended.states, ended.view) == ("FINISHED", {"COMPLETED": 160}, 1)
    assert any("2 failed drops tried again, as was asked for" in note for note in ended.notes)
    assert set(cluster.recorder.starts.values()) == {1}, "attempts that failed are not counted"


def test_named_drops_are_tried_again(tmp_path: Path) -> None:
    """Only what failed because of their root causes; the session fails because of the others."""
    broken = _Repairable("a0", "a1")
    cluster = _cluster(tmp_path, broken, nodes=3)
    broken.names.clear()
    assert isinstance(cluster.call("retry", session="s", request=RetryRequest(drops=("d1_0",))), Answered)
    ended = _ended(cluster)

    assert (ended.status, ended.states) == ("FAILED", {"COMPLETED": 156, "ERROR": 4})
    assert [cluster.recorder.starts["s", f"rows_{name}_0"] for name in ("a0", "a1", "c1")] == [0, 1, 1]


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_retry_that_cannot_be_made_is_refused(nodes: int, tmp_path: Path) -> None:
    """The session goes on, and the answer tells which drop did not fail, or that none did."""
    cluster = _cluster(tmp_path, _Repairable("a0"), nodes=nodes)

    def refusal(request: RetryRequest) -> str:
        answer = cluster.call("retry", session="s", request=request)
        assert isinstance(answer, Unanswered)
        assert isinstance(answer.error, ConflictError)
        return str(answer.error)

    assert "rows_a5_0 did not fail: it is " in refusal(RetryRequest(drops=("a5_0",)))
    assert "9_9" in refusal(RetryRequest(drops=("9_9",)))
    assert "parameters cannot be changed before it is over" in refusal(RetryRequest(settings=("a=b",)))
    ended = _ended(cluster)
    assert ended.states == {"COMPLETED": 156, "ERROR": 4}


def test_a_retry_with_a_loss_at_the_same_time(tmp_path: Path) -> None:
    """A node is killed while the members agree: both changes are made, and the session finishes."""
    broken = _Repairable("a0", "a39")
    cluster = _cluster(tmp_path, broken, nodes=3)
    broken.names.clear()
    answers: list[Answered | Unanswered] = []
    cluster.nodes["n1-1"].process.crash()
    cluster.call_later("retry", answers.append, session="s", request=RetryRequest(), timeout=100.0)
    ended = _ended(cluster)

    assert [type(answer) for answer in answers] == [Answered]
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 160})


def test_a_retry_of_a_session_that_is_over_continues_it(tmp_path: Path) -> None:
    """The same request works on both sides of the end."""
    broken = _Repairable("a0")
    cluster = _cluster(tmp_path, broken, nodes=3)
    assert _ended(cluster).status == "FAILED"
    broken.names.clear()
    assert isinstance(cluster.call("retry", session="s", request=RetryRequest()), Answered)
    assert _ended(cluster).status == "FINISHED"
    none = cluster.call("retry", session="s", request=RetryRequest())
    assert isinstance(none, Unanswered)
    assert "no drop of this session failed" in str(none.error)
    assert isinstance(cluster.call("submit", graph=rows(40, 3), options=SubmitQuery(session="t")), Answered)
    early = cluster.call("retry", session="t", request=RetryRequest())
    assert isinstance(early, Unanswered)
    assert "no drop of session 't' has failed so far" in str(early.error)
