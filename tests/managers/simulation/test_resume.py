"""Sessions of clusters on virtual time: resumed, tried again while they run, and run again."""

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dropflow.api.requests import ResumeRequest, RetryRequest, SubmitQuery
from dropflow.api.session_records import SessionDetail, SessionInfo
from dropflow.errors import ConflictError, LinkError
from dropflow.execution.tasks import Task
from dropflow.graph.physical import PhysicalGraph
from managers.machine_calls import Answered, Unanswered
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.history import content_bytes
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.graphs import fan, rows
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


@pytest.mark.parametrize("after", [2.0, *nightly(0.5, 3.5)])
def test_a_session_goes_on_after_all_nodes_were_switched_off(after: float, tmp_path: Path) -> None:
    """At any moment: the session is FAILED after the restart, and finishes under its name when it is resumed."""
    cluster = _cluster(1, tmp_path)
    assert isinstance(cluster.submit(fan(8), "s"), Answered)
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
    assert isinstance(cluster.submit(fan(8), "s"), Answered)
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
@pytest.mark.parametrize("seed", [0, *nightly(*range(1, 8))])
def test_a_session_that_is_resumed_again_and_again_finishes(seed: int, tmp_path: Path) -> None:
    """All nodes are switched off several times, at any moment, also while the session is being resumed."""
    cluster = _cluster(seed, tmp_path, seconds=2.0)
    assert isinstance(cluster.submit(fan(8), "s"), Answered)
    chance = random.Random(seed)
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
    assert isinstance(cluster.submit(fan(8), "s"), Answered)
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
    assert isinstance(cluster.submit(fan(8), "s"), Answered)
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
    assert isinstance(cluster.submit(fan(8), "s"), Answered)
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


@pytest.mark.parametrize("lost_bytes", [40, *nightly(1, 400)])
def test_torn_journals_are_cut(lost_bytes: int, tmp_path: Path) -> None:
    """What a journal does not have any more runs again."""
    cluster = _cluster(6, tmp_path)
    assert isinstance(cluster.submit(fan(8), "s"), Answered)
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


# Failed drops that are tried again while their session runs, in clusters on virtual time.


class _Repairable:
    """Has the first applications of some rows fail until they are repaired."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def fails(self, task: Task, node: str) -> bool:
        """Return whether an attempt fails."""
        del node
        return any(f"_{name}_" in task.oid for name in self.names)


def _retries_cluster(tmp_path: Path, broken: _Repairable, *, nodes: int) -> SimulatedCluster:
    cluster = SimulatedCluster(5, tmp_path, islands=1, nodes=nodes, workload=Workload(seconds=4.0, fails=broken.fails))
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(rows(40, nodes), "s"), Answered)
    cluster.simulation.wait(25.0)
    return cluster


def _ended(cluster: SimulatedCluster) -> SessionDetail:
    ended = cluster.finish("s", seconds=1000.0)
    assert ended is not None
    return ended


@pytest.mark.parametrize("nodes", [3, *nightly(1)])
def test_failed_drops_are_tried_again_while_the_session_runs(nodes: int, tmp_path: Path) -> None:
    """What failed runs again with what hangs on it, and nothing else; attempts that run go on."""
    broken = _Repairable("a0", "a1")
    cluster = _retries_cluster(tmp_path, broken, nodes=nodes)
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
    cluster = _retries_cluster(tmp_path, broken, nodes=3)
    broken.names.clear()
    assert isinstance(cluster.call("retry", session="s", request=RetryRequest(drops=("d1_0",))), Answered)
    ended = _ended(cluster)

    assert (ended.status, ended.states) == ("FAILED", {"COMPLETED": 156, "ERROR": 4})
    assert [cluster.recorder.starts["s", f"rows_{name}_0"] for name in ("a0", "a1", "c1")] == [0, 1, 1]


@pytest.mark.parametrize("nodes", [3, *nightly(1)])
def test_a_retry_that_cannot_be_made_is_refused(nodes: int, tmp_path: Path) -> None:
    """The session goes on, and the answer tells which drop did not fail, or that none did."""
    cluster = _retries_cluster(tmp_path, _Repairable("a0"), nodes=nodes)

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
    cluster = _retries_cluster(tmp_path, broken, nodes=3)
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
    cluster = _retries_cluster(tmp_path, broken, nodes=3)
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


# Sessions of clusters that run again from some drops, also if nodes die in the middle; on virtual time.


class _Versions:
    """Contents that tell what their producers have read, and which version of a producer wrote them."""

    def __init__(self) -> None:
        self.version: dict[str, int] = {}
        self.written: dict[str, list[str]] = {}

    def content(self, task: Task, drop: int) -> bytes:
        """Return what an attempt writes."""
        read = sorted(
            b"" if task_input.handle is None else content_bytes(task_input.handle) for task_input in task.inputs
        )
        name = next((output.oid for output in task.outputs if output.drop == drop), task.oid)
        text = f"{name}:{self.version.get(task.oid, 0)}({b','.join(read).decode()})"
        self.written.setdefault(name, []).append(text)
        return text.encode()


def _run_again_cluster(tmp_path: Path, versions: _Versions, *, nodes: int, seed: int = 3) -> SimulatedCluster:
    workload = Workload(seconds=1.0, content=versions.content)
    cluster = SimulatedCluster(seed, tmp_path, islands=1, nodes=nodes, workload=workload)
    assert cluster.wait_for_nodes()
    return cluster


def _graph(nodes: int, seed: int) -> PhysicalGraph:
    """Return eight branches of two applications between a start and an end, with each drop on a random node."""
    chance = random.Random(seed)
    graph = fan(8)
    part = np.array([chance.randrange(nodes) for _ in range(graph.drops)], dtype=np.int32)
    return replace(graph, part=part, places=tuple(f"#{number}" for number in range(nodes)))


def _result(directory: Path) -> str:
    """Return the content of the last drop of the session: a node that is lost may still have an older one."""
    paths = directory.rglob("s/results/fan_end_0*")
    return max(paths, key=lambda path: path.stat().st_mtime_ns).read_text()


def test_a_session_runs_again_from_a_drop(tmp_path: Path) -> None:
    """What depends on it is made anew, on all nodes; the others do not run, as far as their contents are there."""
    versions = _Versions()
    cluster = _run_again_cluster(tmp_path, versions, nodes=3)
    assert isinstance(cluster.submit(_graph(3, 1), "s"), Answered)
    early = cluster.call("retry", session="s", request=RetryRequest(start=("c3",)))
    assert isinstance(early, Unanswered)
    assert "session 's' is not over" in str(early.error)
    assert _ended(cluster).status == "FINISHED"
    before, attempts = _result(tmp_path), {name: len(made) for name, made in versions.written.items()}
    versions.version["fan_c3_0"] = 1
    answer = cluster.call("retry", session="s", request=RetryRequest(start=("c3",)))
    assert isinstance(answer, Answered), answer
    ended = _ended(cluster)

    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})
    assert _result(tmp_path) == before.replace("fan_d3_0:0", "fan_d3_0:1")
    again = {name for name, made in versions.written.items() if len(made) > attempts[name]}
    assert again == {"fan_d3_0", "fan_end_0"}
    assert "4 drops run again as was asked for" in ended.notes[-1]


def _trial(seed: int, tmp_path: Path) -> None:
    """Run again, and kill nodes in the middle: all, or one. Then resume until it is over; old and new never mix."""
    chance = random.Random(seed)
    versions, nodes = _Versions(), chance.choice((2, 3))
    cluster = _run_again_cluster(tmp_path, versions, nodes=nodes, seed=seed)
    assert isinstance(cluster.submit(_graph(nodes, seed), "s"), Answered)
    assert _ended(cluster).status == "FINISHED"
    before = _result(tmp_path)
    for name in ("root", "a1", "c2"):
        versions.version[f"fan_{name}_0"] = 1
    after = re.sub(r"fan_(start|b1|d2)_0:0", r"fan_\1_0:1", before)
    request = RetryRequest(start=("root", "a1", "c2"))
    cluster.master.answer("retry", {"session": "s", "request": request}, lambda _value, _error: None)
    cluster.simulation.wait(chance.choice((0.01, 0.02, 0.03, 0.05, 0.1, 0.5, 2.0, 3.5)))
    killed = list(cluster.nodes) if chance.random() < 0.5 else [chance.choice(list(cluster.nodes))]
    for name in killed:
        cluster.nodes[name].process.crash()
        cluster.simulation.wait(chance.choice((0.0, 0.01, 1.0)))
    for name in killed:
        cluster.start_node(name)
    assert cluster.wait_for_nodes()
    for _ in range(5):
        ended = _ended(cluster)
        answer = cluster.call("resume", session="s", request=ResumeRequest())
        if ended.status == "FINISHED":
            assert isinstance(answer, Unanswered), "nothing is left to run"
            break
        # It goes on already, or the island has not seen yet that the nodes are there again.
        assert isinstance(answer, Answered) or isinstance(answer.error, ConflictError | LinkError), answer
        cluster.simulation.wait(5.0)
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})
    assert _result(tmp_path) in (before, after)


@pytest.mark.parametrize("seed", [11, 30, 34, *nightly(*(seed for seed in range(60) if seed not in (11, 30, 34)))])
def test_nodes_that_die_while_drops_run_again(seed: int, tmp_path: Path) -> None:
    """The session is then as it was, or goes on with the drops that run again: all results are old, or all new."""
    _trial(seed, tmp_path)
