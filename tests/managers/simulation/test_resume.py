"""Sessions of clusters whose nodes were all switched off, and go on when they are started again; on virtual time."""

import random
from collections import Counter
from pathlib import Path

import pytest

from dropflow.api.records import SessionInfo
from dropflow.api.requests import ResumeRequest
from dropflow.engine.api import Task
from dropflow.errors import ConflictError
from managers.machine_calls import Answered, Unanswered
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.test_cluster import _fan
from tests.nightly import nightly

pytestmark = pytest.mark.slow


class _Attempts:
    """Counts the attempts that were begun."""

    def __init__(self) -> None:
        self.begun: Counter[int] = Counter()

    def note(self, task: Task, node: str) -> bool:
        """Count an attempt; it does not fail."""
        del node
        self.begun[task.drop] += 1
        return False


def _cluster(seed: int, directory: Path, seconds: float = 1.0) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, directory, workload=Workload(seconds=seconds))
    assert cluster.wait_for_nodes()
    return cluster


def _switch_off(cluster: SimulatedCluster) -> None:
    for process in list(cluster.processes):
        if process.is_alive:
            process.crash()


def _switch_on(cluster: SimulatedCluster, *, without: str = "") -> None:
    for name in list(cluster.nodes):
        if name != without:
            cluster.start_node(name)
    for name in list(cluster.islands):
        cluster.start_island(name)
    cluster.start_master()
    if not without:
        assert cluster.wait_for_nodes()
    else:
        cluster.simulation.wait(5.0)


def _resume(cluster: SimulatedCluster, **options: bool) -> Answered | Unanswered:
    return cluster.call("resume", session="s", request=ResumeRequest(**options))


@pytest.mark.parametrize("after", [0.5, 2.0, 3.5])
def test_a_session_goes_on_after_all_nodes_were_switched_off(after: float, tmp_path: Path) -> None:
    """At any moment: the session is FAILED after the restart, and finishes under its name when it is resumed."""
    cluster = _cluster(1, tmp_path)
    assert isinstance(cluster.submit(_fan(8), "s"), Answered)
    cluster.simulation.wait(after)
    _switch_off(cluster)
    _switch_on(cluster)
    stopped = cluster.finish("s")
    assert stopped is not None
    assert stopped.status == "FAILED"

    answer = _resume(cluster)

    assert isinstance(answer, Answered), answer
    info: SessionInfo = answer.value
    assert info.epoch > stopped.epoch
    ended = cluster.finish("s", seconds=200.0)
    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})
    assert ended.notes[-1].startswith("resumed at ")


def test_only_what_was_not_committed_runs_again(tmp_path: Path) -> None:
    """Completed applications whose contents are on a disk run once; of the others, each runs once more at most."""
    attempts = _Attempts()
    workload = Workload(seconds=1.0, fails=attempts.note)
    cluster = SimulatedCluster(4, tmp_path, workload=workload)
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(_fan(8), "s"), Answered)
    cluster.simulation.wait(3.0)
    done = cluster.call("session", session="s")
    assert isinstance(done, Answered)
    _switch_off(cluster)
    _switch_on(cluster)
    before = sum(attempts.begun.values())

    assert isinstance(_resume(cluster), Answered)
    ended = cluster.finish("s")

    assert ended is not None
    assert ended.status == "FINISHED"
    assert sum(attempts.begun.values()) - before <= 36 - done.value.settled
    assert " drops kept" in ended.notes[-1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [0, 1, *nightly(*range(2, 8))])
def test_a_session_that_is_resumed_again_and_again_finishes(seed: int, tmp_path: Path) -> None:
    """All nodes are switched off several times, at any moment, also while the session is being resumed."""
    cluster = _cluster(seed, tmp_path, seconds=2.0)
    assert isinstance(cluster.submit(_fan(8), "s"), Answered)
    chance = random.Random(seed)  # noqa: S311 - the same each time
    for _ in range(4):
        cluster.simulation.wait(chance.choice([0.01, 0.05, 0.2, 1.0, 3.0]))
        _switch_off(cluster)
        _switch_on(cluster)
        _begin_resume(cluster)
    for _ in range(5):
        ended = cluster.finish("s", seconds=100.0)
        assert ended is not None
        if ended.status == "FINISHED":
            break
        answer = _resume(cluster)
        if isinstance(answer, Unanswered):
            assert isinstance(answer.error, ConflictError), answer  # it is being resumed already
            cluster.simulation.wait(5.0)
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})


def _begin_resume(cluster: SimulatedCluster) -> None:
    """Ask for the session to be resumed, and do not wait for the answer."""
    cluster.master.answer("resume", {"session": "s", "request": ResumeRequest()}, lambda _value, _error: None)


@pytest.mark.parametrize("seed", [0, *nightly(1, 2)])
def test_a_session_is_resumed_without_a_node_that_does_not_come_back(seed: int, tmp_path: Path) -> None:
    """Its drops go to the other nodes, what was lost with it runs again, and a note names it."""
    cluster = _cluster(seed, tmp_path)
    assert isinstance(cluster.submit(_fan(8), "s"), Answered)
    cluster.simulation.wait(2.0)
    _switch_off(cluster)
    _switch_on(cluster, without="n1-2")

    answer = _resume(cluster)

    assert isinstance(answer, Answered), answer
    ended = cluster.finish("s")
    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})
    assert "without node n1-2" in ended.notes[-1]
    assert f"{ended.recomputed} completed drop" in ended.notes[-1] or not ended.recomputed
    assert "n1-2" not in ended.members
    cluster.start_node("n1-2")
    cluster.simulation.wait(10.0)
    again = cluster.finish("s")
    assert again is not None
    assert (again.status, again.states) == ("FINISHED", {"COMPLETED": 36})


def test_a_minority_is_refused_unless_the_others_are_given_up(tmp_path: Path) -> None:
    """With one of three nodes, the session may have gone on on the others: --without-missing says that it has not."""
    cluster = SimulatedCluster(2, tmp_path, islands=1, workload=Workload(seconds=1.0))
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(_fan(8), "s"), Answered)
    cluster.simulation.wait(2.0)
    _switch_off(cluster)
    cluster.start_node("n1-3")
    cluster.start_island("i1")
    cluster.start_master()
    cluster.simulation.wait(5.0)

    refused = _resume(cluster)

    assert isinstance(refused, Unanswered)
    assert isinstance(refused.error, ConflictError)
    assert "1 of its 3 nodes are there" in refused.error.text
    assert "--without-missing" in refused.error.hint
    assert isinstance(_resume(cluster, without_missing=True), Answered)
    ended = cluster.finish("s")
    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})


def test_a_session_that_runs_or_has_finished_is_not_resumed(tmp_path: Path) -> None:
    """The error says what it is doing, or that nothing is left to run."""
    cluster = _cluster(5, tmp_path)
    assert isinstance(cluster.submit(_fan(8), "s"), Answered)
    runs = _resume(cluster)
    cluster.finish("s")
    over = _resume(cluster)

    assert isinstance(runs, Unanswered)
    assert "session 's' is not over: it is RUNNING on " in str(runs.error)
    assert isinstance(over, Unanswered)
    assert "nothing is left to run" in str(over.error)
    ended = cluster.finish("s")
    assert ended is not None
    assert ended.status == "FINISHED"


@pytest.mark.parametrize("lost_bytes", [1, 40, 400])
def test_torn_journals_are_cut(lost_bytes: int, tmp_path: Path) -> None:
    """What a journal does not have any more runs again."""
    cluster = _cluster(6, tmp_path)
    assert isinstance(cluster.submit(_fan(8), "s"), Answered)
    cluster.simulation.wait(2.0)
    _switch_off(cluster)
    for journal in tmp_path.glob("*/s/journal.dfj"):
        data = journal.read_bytes()
        journal.write_bytes(data[: max(len(data) - lost_bytes, len(data) // 2)])
    _switch_on(cluster)

    answer = _resume(cluster)

    assert isinstance(answer, Answered), answer
    ended = cluster.finish("s")
    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})
