"""When a pool asks for nodes and gives them back: examples, and any batch system with any work."""

from errno import ENOSPC
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.node_records import NodeInfo
from dropflow.api.session_records import SessionInfo
from dropflow.cli.exit_status import Exit
from dropflow.cli.jobs import pool_process
from dropflow.cli.jobs.pool_process import PoolFacts, PoolOrder, run_pool
from dropflow.cli.output import CommandOutput
from dropflow.errors import ConflictError, LinkError
from dropflow.submission.options import ConnectionOptions
from managers.jobs import job_directory
from managers.jobs.batch import Facility, JobState
from managers.jobs.job_directory import JobDirectory, JobRequest
from managers.jobs.pool import Allocation, PoolAction, PoolSettings, PoolState, Seen, decide, refused, submitted
from managers.keys import create
from tests.virtual_clock import VirtualClock

SETTINGS = PoolSettings(least=0, most=3, idle=300.0, seconds=3600.0, margin=60.0, every=30.0)
RUNNING, PENDING, ENDED = (
    JobState(word="RUNNING"),
    JobState(word="PENDING"),
    JobState(word="FAILED", is_over=True),
)


def _pool(*up: str, since: float = 1.0) -> PoolState:
    return PoolState(allocations=tuple(Allocation(job=job, asked=since, started=since, up=since) for job in up))


def _actions(state: PoolState, *seen: Seen, settings: PoolSettings = SETTINGS) -> list[PoolAction]:
    """Return what is done at the last of these times."""
    actions: list[PoolAction] = []
    for moment in seen:
        state, actions = decide(state, settings, moment)
    return actions


def test_a_node_is_asked_for_only_while_work_waits_and_all_nodes_work() -> None:
    """Not without work; not while a node is idle, or asked for; not beyond the limit; not while paused."""
    busy = {"1": 2, "2": 1}
    state = submitted(_pool("1"), "2", 5.0)
    full = _pool("1", "2", "3")

    assert _actions(PoolState(), Seen(5.0, 1, {})) == [PoolAction("submit")]
    assert _actions(PoolState(), Seen(5.0, 0, {})) == []
    assert _actions(_pool("1", "2"), Seen(5.0, 1, busy)) == [PoolAction("submit")]
    assert _actions(_pool("1", "2"), Seen(5.0, 1, busy | {"2": 0})) == []
    assert _actions(_pool("1", "2"), Seen(5.0, 1, {"1": 2})) == [PoolAction("submit")], "node 2 is silent"
    assert _actions(_pool("1", "2"), Seen(5.0, 1, {})) == [], "the island may be silent"
    assert _actions(state, Seen(9.0, 1, {"1": 1})) == []
    assert _actions(full, Seen(5.0, 1, {"1": 1, "2": 1, "3": 1})) == []
    assert _actions(msgspec.structs.replace(PoolState(), paused="why"), Seen(5.0, 1, {})) == []


def test_an_idle_node_is_given_back() -> None:
    """After the idle time without any work, down to the least number."""
    idle = {"1": 0, "2": 0}
    least = msgspec.structs.replace(SETTINGS, least=1)

    assert _actions(_pool("1", "2"), Seen(5.0, 0, idle), Seen(304.0, 0, idle)) == []
    assert _actions(_pool("1", "2"), Seen(5.0, 0, idle), Seen(305.0, 0, idle)) == [
        PoolAction("drain", "1"),
        PoolAction("drain", "2"),
    ]
    assert _actions(_pool("1", "2"), Seen(5.0, 0, idle), Seen(305.0, 0, idle), settings=least) == [
        PoolAction("drain", "1")
    ]
    assert _actions(_pool("1"), Seen(5.0, 0, {"1": 0}), Seen(200.0, 3, {"1": 0}), Seen(305.0, 0, {"1": 0})) == []


def test_an_allocation_is_replaced_before_its_walltime() -> None:
    """While its node works another is asked for two margins before the end, and it is drained one margin before."""
    late, end = Seen(3485.0, 0, {"1": 2}), Seen(3545.0, 0, {"1": 2, "2": 1})
    state, first = decide(_pool("1"), SETTINGS, late)
    state, last = decide(submitted(state, "2", 3485.0), SETTINGS, end)

    assert (first, last) == ([PoolAction("submit")], [PoolAction("drain", "1")])
    assert _actions(state, Seen(3640.0, 0, {"2": 1}, {"1": RUNNING, "2": RUNNING})) == [PoolAction("cancel", "1")]
    assert _actions(_pool("1"), Seen(3485.0, 0, {"1": 0})) == []


def test_a_pool_pauses_with_a_reason() -> None:
    """After three allocations in a row without a node, or ten refusals; a node in between starts the count again."""
    state = PoolState()
    for number in range(3):
        state = submitted(state, f"{number}", 1.0)
        assert state.paused == ""
        state, _ = decide(state, SETTINGS, Seen(100.0 * number, 1, {}, {f"{number}": ENDED}))
    assert state.paused == "3 allocations in a row ended without a node, the last one, job 2: FAILED"

    state = PoolState()
    for _ in range(9):
        state = refused(state, "no such partition")
    assert (state.paused, submitted(state, "1", 1.0).refused) == ("", 0)
    assert refused(state, "no such partition").paused.startswith("10 requests in a row were refused, the last one: no ")


def test_a_removed_pool_has_no_jobs() -> None:
    """Nodes are drained, jobs without one are cancelled, and so are nodes that do not end in time."""
    state = submitted(_pool("1"), "2", 3.0)
    state, actions = decide(state, SETTINGS, Seen(5.0, 9, {"1": 2}, ends=True))
    assert actions == [PoolAction("drain", "1"), PoolAction("cancel", "2")]

    assert _actions(state, Seen(96.0, 9, {}, {"1": RUNNING, "2": RUNNING}, ends=True)) == [
        PoolAction("cancel", "1"),
        PoolAction("cancel", "2"),
    ]
    assert decide(state, SETTINGS, Seen(97.0, 9, {}, {}, ends=True)) == (PoolState(), [])


@pytest.mark.slow
@given(st.data())
def test_limits_hold_with_any_batch_system_and_any_work(data: st.DataObject) -> None:
    """No more nodes than allowed; one request at a time; nodes that work stay; no job of a removed pool."""
    state, jobs, now, last = PoolState(), dict[str, JobState](), 1.0, -1000.0
    for number in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.sampled_from([2.0, 31.0, 400.0]))
        for job in list(jobs):
            jobs[job] = data.draw(st.sampled_from([jobs[job], RUNNING, ENDED])) if not jobs[job].is_over else ENDED
        running = {job: data.draw(st.integers(0, 2)) for job, job_state in jobs.items() if job_state == RUNNING}
        waiting = data.draw(st.integers(0, 3))
        seen = Seen(now, waiting, running, dict(jobs) if data.draw(st.booleans()) else None)
        before = {allocation.job: allocation for allocation in state.allocations}
        state, actions = decide(state, SETTINGS, seen)
        kinds = [action.kind for action in actions]

        assert kinds.count("submit") <= 1
        for action in actions:
            if action.kind == "drain" and running.get(action.job):
                assert now >= (before[action.job].started or before[action.job].up) + SETTINGS.seconds - SETTINGS.margin
        if "submit" in kinds:
            lasting = [
                allocation
                for allocation in state.allocations
                if not allocation.leaving and now < allocation.up + 3480.0
            ]
            assert now - last >= SETTINGS.every
            assert len(lasting) < SETTINGS.most
            assert all(allocation.up for allocation in lasting)
            last = now
            jobs[f"{number}"] = PENDING
            state = submitted(state, f"{number}", now)
    for action in decide(state, SETTINGS, Seen(now + 1, 3, {}, ends=True))[1]:
        assert action.kind in ("drain", "cancel")
    ended = dict.fromkeys(jobs, ENDED)
    assert decide(state, SETTINGS, Seen(now + 2, 3, {}, ended, ends=True)) == (
        msgspec.structs.replace(state, allocations=()),
        [],
    )


@pytest.mark.slow
def test_an_idle_pool_asks_the_batch_system_at_most_twice_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted over an hour of its process, whose nodes are idle, and are kept by --min; without nodes it never asks."""
    clock = VirtualClock()
    times: list[float] = []
    ends: list[float] = []
    path = tmp_path / "pool-p"

    class System:
        """Knows one job, which runs."""

        def states_of_jobs(self, _: object) -> dict[str, JobState]:
            times.append(clock.now())
            return {"1": RUNNING}

    class Island:
        """Has the node of that job, which is idle."""

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def nodes(self) -> list[NodeInfo]:
            return [NodeInfo(name="node-1")]

        def sessions(self) -> list[SessionInfo]:
            return []

    class Pause:
        """Passes the time, and ends the pool after an hour."""

        def wait(self, seconds: float) -> None:
            clock.advance(seconds)
            if clock.monotonic() > ends[-1]:
                raise TimeoutError("the hour is over")

    monkeypatch.setattr(pool_process, "SystemClock", lambda: clock)
    monkeypatch.setattr(pool_process, "SYSTEMS", {"slurm": System()})
    monkeypatch.setattr(pool_process, "Client", Island)
    monkeypatch.setattr(pool_process.threading, "Event", Pause)
    job = _pool_directory(path)
    for wanted, state, most in (("on", _pool("1", since=clock.now()), 120), ("paused", PoolState(), 0)):
        times.clear()
        ends.append(clock.monotonic() + 3600.0)
        job.write_text(path / "wanted", wanted)
        job.write_text(path / "state.json", msgspec.json.encode(PoolFacts(state=state)).decode())
        with pytest.raises(TimeoutError, match="hour"):
            run_pool(CommandOutput(), path)
        assert most - 5 <= len(times) <= most + 1
        assert all(later - earlier >= 30.0 for earlier, later in pairwise(times))


def _pool_directory(path: Path) -> JobDirectory:
    """Make the directory of a pool of at least one node, without its state."""
    path.mkdir()
    create(path / "new-key")
    job = JobDirectory(path)
    job.write(
        JobRequest(
            system="slurm", session="", nodes=1, seconds=7200.0, margin=60.0, goes_on=False, results="", is_pool=True
        )
    )
    job.write_text(job.key, (path / "new-key").read_text())
    settings = msgspec.structs.replace(SETTINGS, least=1, seconds=7200.0)
    order = PoolOrder(name="p", island="http://i", settings=settings, site=Facility(), arguments=())
    job.write_text(path / "pool.json", msgspec.json.encode(order).decode())
    return job


def test_a_pool_with_jobs_is_not_forgotten_although_its_process_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its nodes would belong to no pool, and count in no limit."""
    job = _pool_directory(path := tmp_path / "pool-p")
    job.write_text(path / "state.json", msgspec.json.encode(PoolFacts(state=_pool("1"))).decode())
    monkeypatch.setattr(pool_process, "directory_of_job", {"pool-p": path}.get)

    with pytest.raises(ConflictError, match="there is a pool p") as caught:
        pool_process.add_pool(
            CommandOutput(),
            ConnectionOptions(key=str(path / "new-key")),
            system="slurm",
            name="p",
            settings=SETTINGS,
            site=Facility(directory=str(tmp_path)),
            arguments=(),
            dry_run=False,
        )
    assert "pool resume p" in caught.value.hint


def test_a_pool_ends_when_its_island_has_been_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes after the first request without an answer, also if each one waits for a minute."""
    clock = VirtualClock()
    cancelled: list[float] = []

    class System:
        """Knows one job, which runs until it is cancelled."""

        def states_of_jobs(self, _: object) -> dict[str, JobState]:
            return {"1": ENDED if cancelled else RUNNING}

        def cancel_job(self, _: str) -> None:
            cancelled.append(clock.monotonic())

    class Island:
        """Does not answer."""

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def nodes(self) -> list[NodeInfo]:
            clock.advance(60.0)
            raise LinkError("nothing listens there")

        def drain(self, *_: object) -> None:
            self.nodes()

    monkeypatch.setattr(pool_process, "SystemClock", lambda: clock)
    monkeypatch.setattr(pool_process, "SYSTEMS", {"slurm": System()})
    monkeypatch.setattr(pool_process, "Client", Island)
    monkeypatch.setattr(pool_process.threading, "Event", lambda: SimpleNamespace(wait=clock.advance))
    job = _pool_directory(path := tmp_path / "pool-p")
    job.write_text(path / "wanted", "on")
    job.write_text(path / "state.json", msgspec.json.encode(PoolFacts(state=_pool("1", since=clock.now()))).decode())
    begin = clock.monotonic()

    assert run_pool(CommandOutput(), path) is Exit.FINISHED
    assert 600.0 <= cancelled[0] - begin <= 1000.0


def test_a_pool_outlives_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process goes on, since it gives the nodes back; how the pool is gets written when there is room."""

    def full(*_: object, **__: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    job = _pool_directory(path := tmp_path / "pool-p")
    job.write_text(path / "state.json", msgspec.json.encode(PoolFacts()).decode())
    process = pool_process._PoolProcess(path, CommandOutput())
    with monkeypatch.context() as patch:
        patch.setattr(job_directory, "replace_file", full)
        process._keep(state=_pool("7"))
    process._keep()

    kept = msgspec.json.decode((path / "state.json").read_bytes(), type=PoolFacts)
    assert [allocation.job for allocation in kept.state.allocations] == ["7"]
