"""Numbers and pages that a node shows of its sessions, their drops, and its load."""

import heapq
import random
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from threading import Event as Signal
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.drop_queries import order_of
from dropflow.api.drop_records import DropQuery
from dropflow.api.event_stream import read_events
from dropflow.api.node_records import LoadSample
from dropflow.api.requests import QUEUED, RUNNING, DropStates, SubmitQuery
from dropflow.errors import LinkError, ProtocolError, WorldError
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import Begin
from dropflow.execution.interfaces import Arrival, RemoteEvent
from dropflow.execution.statistics import Attempts, snapshot
from dropflow.graph.physical import PhysicalGraph
from dropflow.sessions.summaries import attempts_of, logical_nodes, running_by_node
from dropflow.states import DropState, SessionState
from dropflow.testing.drawing import draw, row
from dropflow.times.octets import NodeReceipts, PeerReceipts
from managers.links import TransferResult, WantedContent
from managers.messages import Events
from managers.node.exchange import NodeExchange
from managers.node.fetch_pool import PendingFetch, Receipts
from managers.node.manager import NodeManager
from managers.node.operations import busy_with
from managers.node.progress import ProgressLog, SettlingRate
from managers.node.resources import LoadHistory, ProcessorUse
from managers.node.session_records import StateLog, StateLogs, page
from managers.routes.session_events import state_events
from managers.state_hub import StateHub
from tests.execution.decisions.core_cluster import CoreCluster, placed
from tests.graph.shapes import slice_by_place
from tests.managers.node.conftest import Cluster, hosted, settle
from tests.regular_graphs import relay, triples
from tests.strategies import graphs
from tests.virtual_clock import VirtualClock


@given(graphs(), st.data())
def test_running_queued_and_ready_are_the_applications_in_writing(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Those of applications add up, in all and by logical node, whatever the runner has begun since the snapshot."""
    core = Core(graph)
    core.handle([Begin()])
    statistics = snapshot(core, 1.0)
    drops = data.draw(st.lists(st.integers(0, graph.drops - 1), unique=True))
    ready = data.draw(st.integers(0, 20))
    running = running_by_node(statistics, graph, drops)
    attempts = attempts_of(statistics, running, Attempts(ready=ready))
    writing = [node.counts[DropState.WRITING] for node in statistics.nodes if node.is_app]

    of_data = sum(count for node, count in zip(statistics.nodes, running, strict=True) if not node.is_app)
    assert attempts.running - of_data + attempts.queued + attempts.ready == sum(writing)
    assert min(attempts.running, attempts.queued, attempts.ready) >= 0
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


# States of drops as columns.


STATES = st.lists(st.integers(0, 3), min_size=5, max_size=5)


def applied(states: dict[int, int], answer: DropStates) -> dict[int, int]:
    """Return the states after an answer."""
    return states | dict(zip(answer.rows.tolist(), answer.values.tolist(), strict=True))


@given(steps=st.lists(st.tuples(STATES, st.sampled_from(["none", "one", "two", "both"])), min_size=1, max_size=30))
def test_clients_that_ask_now_and_then_have_the_present_states(steps: list[tuple[list[int], str]]) -> None:
    """However often each of them asks, and although the log keeps only the latest changes."""
    drops = np.array([7, 3, 20, 1, 0], dtype=np.int32)
    log = StateLog(drops)
    held: dict[str, dict[int, int]] = {"one": {}, "two": {}}
    cursors = {"one": "", "two": ""}
    for states, asking in steps:
        log.update(np.array(states, dtype=np.uint8))
        for client, before in list(held.items()):
            if asking in (client, "both"):
                answer = log.since(cursors[client])
                held[client] = now = applied(before, answer)
                cursors[client] = answer.cursor

                assert now == dict(zip(drops.tolist(), states, strict=True))


def test_only_changes_are_sent() -> None:
    """An answer has the drops that have changed; without a change, none. An unknown cursor gets all."""
    log = StateLog(np.array([4, 9], dtype=np.int32))
    log.update(np.array([0, 0], dtype=np.uint8))
    first = log.since("")
    log.update(np.array([0, 2], dtype=np.uint8))
    second = log.since(first.cursor)

    assert first.rows.tolist() == [4, 9]
    assert (second.rows.tolist(), second.values.tolist()) == ([9], [2])
    assert log.since(second.cursor).rows.tolist() == []
    assert log.since("another.5").rows.tolist() == [4, 9]


# The states of the drops of sessions that node managers run.


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what a test opens."""
    with ExitStack() as opened:
        yield opened


@pytest.mark.slow
def test_each_node_has_the_states_of_its_own_drops(make_cluster: Callable[..., Cluster]) -> None:
    """Those of all nodes together are all drops; without a change an answer is empty."""
    cluster = make_cluster(2)
    cluster.run(triples(300, 2))
    answers = [cluster[name].states("s") for name in "ab"]
    rows = np.concatenate([answer.rows for answer in answers])

    assert sorted(rows.tolist()) == list(range(300))
    assert {state for answer in answers for state in answer.values.tolist()} == {DropState.COMPLETED}
    assert cluster["a"].states("s", since=answers[0].cursor).rows.tolist() == []


@pytest.mark.slow
def test_a_session_is_followed_to_its_end_and_read_after_a_restart(stack: ExitStack, tmp_path: Path) -> None:
    """All changes together lead from the first states to the last ones; another process of the node has the same."""
    first = stack.enter_context(closing(NodeManager("a", root=tmp_path, runner="threads", workers=2)))
    first.submit(triples(3000, 1), SubmitQuery(session="s"))
    hub = StateHub(first)
    names = [event.name for event in read_events(state_events(hub, "s", Signal()) or iter(()))]
    assert (names[0], names[-1], set(names[1:-1]) <= {"change"}) == ("whole", "end", True)
    assert set(hub.states("s").tolist()) == {DropState.COMPLETED}
    settle(first)
    first.close()

    again = stack.enter_context(closing(NodeManager("a", root=tmp_path, runner="threads", workers=2)))
    answer = again.states("s")
    assert answer.rows.tolist() == list(range(3000))
    assert set(answer.values.tolist()) == {DropState.COMPLETED}


# What runs and what is queued has a sign in the states that a node sends.


def _read(logs: StateLogs, piece: Any, core: Core, running: Any, since: str = "") -> DropStates:
    live: Any = SimpleNamespace(core=core)
    session: Any = SimpleNamespace(call=lambda function: function(live))
    return logs.read(session, piece, since, running)


def test_an_application_that_runs_and_one_that_is_queued_have_signs() -> None:
    """A change from queued to running is sent although the state stays WRITING; as states, both are WRITING."""
    piece = slice_by_place(replace(draw("A -> x, B -> y"), places=("n1",)))["n1"]
    core, logs = Core(piece.graph), StateLogs()
    core.handle([Begin()])
    first, second = row(piece.graph, "A"), row(piece.graph, "B")
    before = _read(logs, piece, core, {first})
    after = _read(logs, piece, core, {first, second}, before.cursor)

    assert (before.signs[first], before.signs[second]) == (RUNNING, QUEUED)
    assert set(before.values.tolist()) == {DropState.WRITING, DropState.INITIALIZED}
    assert (after.rows.tolist(), after.signs.tolist()) == ([second], [RUNNING])
    over = _read(StateLogs(), piece, core, None)
    assert np.array_equal(over.signs, over.values)


# How a node finds the drops that messages of other nodes are about.


@pytest.fixture
def exchange(make_cluster: Callable[..., Cluster]) -> NodeExchange:
    """Return the exchange of a session on two nodes that has not started."""
    cluster = make_cluster(2)
    deployment = cluster.cut(relay(100, 2), session="s")
    cluster["a"].prepare(deployment, seconds=10.0)
    return hosted(cluster["a"]).exchange


def _events(drops: list[int]) -> Events:
    ones = [1] * len(drops)
    return Events.of("s", 1, 1, drops=drops, states=[2] * len(drops), attempts=ones, causes=[-1] * len(drops))


def _received(exchange: NodeExchange, drops: list[int]) -> Sequence[tuple[RemoteEvent, object]]:
    """Return the events of a message about these drops."""
    arrivals: list[Arrival] = []
    exchange.attach(arrivals.extend, lambda _drop, _producer: True)
    exchange.receive("b", _events(drops))
    (arrival,) = arrivals
    return arrival.open()


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 16, 17, 40])
def test_rows_are_those_of_the_slice(exchange: NodeExchange, count: int) -> None:
    """Each drop of a message is found under its row of the slice, for messages of any size."""
    ghosts = exchange.remote.tolist()[:count]
    received_rows = [int(exchange.rows[ghost]) for ghost in ghosts]

    assert [event.drop for event, _ in _received(exchange, received_rows)] == ghosts


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("stranger", [-1, 10**6])
def test_drops_that_are_not_in_the_slice_are_refused(exchange: NodeExchange, count: int, stranger: int) -> None:
    """A drop that is not in the slice is a `ProtocolError`, in a short message and in a long one."""
    received_rows = [int(exchange.rows[ghost]) for ghost in exchange.remote.tolist()[: count - 1]]

    with pytest.raises(ProtocolError, match="not in this slice"):
        _received(exchange, [*received_rows, stranger])


# What a session received from other nodes is counted while it comes.


_BEFORE = NodeReceipts(node="a", received=(PeerReceipts(node="b", contents=1, size=10),))


def _pending(got: bytearray) -> PendingFetch:
    return PendingFetch(WantedContent(session="s", drop=1), lambda _, data: got.extend(data), None, lambda: False)


def _fetch(got: bytearray, transfers: int) -> Generator[PendingFetch, TransferResult, str]:
    for _ in range(transfers):
        yield _pending(got)
    return "done"


def _finish(job: Generator[PendingFetch, TransferResult, str], sizes: list[int], receipts: Receipts) -> list[Any]:
    """Carry out a job; return what is counted after each transfer began and the last one ended."""
    seen = []
    pending = next(job)
    try:
        for size in sizes:
            pending.sink(0, memoryview(b"x" * size))
            seen.append(receipts.read("a").received)
            pending = job.send(TransferResult(size, 0))
    except StopIteration as end:
        seen.append(end.value)
    return seen


def test_bytes_count_as_they_arrive() -> None:
    """Also those of a stream that has not ended; contents count at their end, in addition to what was known before."""
    receipts, got = Receipts(_BEFORE), bytearray()
    first, second, result = _finish(receipts.receiving("b", 7, _fetch(got, 2)), [5, 6], receipts)

    assert result == "done"
    assert len(got) == 11
    assert first == (PeerReceipts(node="b", contents=1, size=15),)
    assert second == (PeerReceipts(node="b", contents=2, size=21),)
    assert receipts.read("a") == NodeReceipts(node="a", received=(PeerReceipts(node="b", contents=3, size=21),))


def test_contents_in_messages_and_in_place_are_counted_apart() -> None:
    """What is read where it is was not moved; what cannot be in place is not counted then."""
    receipts, got = Receipts(NodeReceipts()), bytearray()
    receipts.arrived("b", 3)
    for size in (40, None):
        with pytest.raises(StopIteration, match="done"):
            next(receipts.receiving("c", size, _fetch(got, 0)))

    assert receipts.read("a").received == (
        PeerReceipts(node="b", contents=1, size=3),
        PeerReceipts(node="c", shared_contents=1, shared_size=40),
    )


def test_an_interrupted_transfer_is_no_content() -> None:
    """Its bytes were moved all the same, and its error reaches the job."""
    receipts, got = Receipts(NodeReceipts()), bytearray()
    job = receipts.receiving("b", 9, _fetch(got, 1))
    next(job).sink(0, memoryview(b"xyz"))
    with pytest.raises(LinkError, match="cut"):
        job.throw(LinkError("cut"))

    assert receipts.read("a").received == (PeerReceipts(node="b", size=3),)


def test_only_sums_are_kept_of_what_is_done() -> None:
    """However many contents come."""
    receipts, got = Receipts(NodeReceipts()), bytearray()
    for _ in range(1000):
        _finish(receipts.receiving("b", 2, _fetch(got, 1)), [2], Receipts(NodeReceipts()))
        receipts.fold()

    assert len(receipts._receipts) <= 257
    assert receipts.read("a").received == (PeerReceipts(node="b", contents=1000, size=2000),)


# Pages of the list of drops, in any order, on a node and merged from several.


_SORTS = [sign + name for sign in ("", "-") for name in ("row", "id", "name", "state", "node", "attempt", "size")]


class _Live:
    """A session whose core does not change."""

    def __init__(self, core: Any) -> None:
        self.core = core

    def call(self, function: Any) -> Any:
        """Return what a function returns."""
        return function(self)

    def content(self, drop: int) -> Any:
        """Return a content of some size for every third drop."""
        return type("Content", (), {"size": drop % 7, "kind": "memory"}) if drop % 3 == 0 else None


@pytest.mark.slow
@given(graphs(), st.sampled_from(_SORTS), st.integers(0, 2**32), st.integers(0, 10), st.integers(1, 10))
def test_a_page_of_a_sorted_list_is_that_of_the_whole_list(
    graph: PhysicalGraph, sort: str, seed: int, offset: int, limit: int
) -> None:
    """Pages are cut from the list as single rows are compared, whatever the node computes; merged ones are in order."""
    chance = random.Random(seed)
    cluster = CoreCluster(placed(graph, chance, 2), chance)
    cluster.run()
    key, is_reversed = order_of(sort)
    lists = []
    for node in cluster.nodes.values():
        live = _Live(node.core)
        every = page(live, node.piece, DropQuery(limit=1000), whole=graph.drops).drops
        wanted = sorted(every, key=key, reverse=is_reversed)
        page_ = page(live, node.piece, DropQuery(sort=sort, offset=offset, limit=limit), whole=graph.drops)

        assert page_.total == len(every)
        assert list(page_.drops) == wanted[offset : offset + limit]
        for drop in every[:3]:
            for query in (DropQuery(row=drop.drop), DropQuery(oid=drop.oid)):
                assert page(live, node.piece, query, whole=graph.drops).drops == (drop,)
        lists.append(wanted)
    merged = list(heapq.merge(*lists, key=key, reverse=is_reversed))
    assert merged == sorted(merged, key=key, reverse=is_reversed)


# How fast drops settle, and what is left of the time.


def _filled(rates: list[float], *, seconds: float = 30.0) -> SettlingRate:
    """Return what is known after so many seconds with each of these rates, with two samples a second."""
    settling, now, settled = SettlingRate(), 0.0, 0.0
    settling.add(0.0, 0)
    for rate in rates:
        for _ in range(int(2 * seconds)):
            now, settled = now + 0.5, settled + rate / 2
            settling.add(now, round(settled))
    return settling


def test_a_burst_and_a_pause_do_not_change_the_typical_rate() -> None:
    """The median of the last minutes is that of the usual work."""
    assert _filled([10, 10, 400, 10, 0, 10]).typical == pytest.approx(10, rel=0.1)
    assert _filled([10, 10, 10, 10, 10, 400]).recent == pytest.approx(400, rel=0.1)


def test_rare_drops_have_the_mean_rate() -> None:
    """If nothing settles in most spans, the rate is that of the whole time, and not 0."""
    rate = SettlingRate()
    for now, settled in ((0.0, 0), (99.0, 0), (100.0, 5)):
        rate.add(now, settled)

    assert rate.typical == pytest.approx(0.05)


def test_old_times_do_not_count() -> None:
    """After three minutes at a new rate, that is the typical one."""
    assert _filled([100, 100, 5, 5, 5, 5, 5, 5, 5]).typical == pytest.approx(5, rel=0.1)


def test_pauses_up_to_three_times_the_longest_one_are_usual() -> None:
    """Work that settles every half second may be quiet for 10 s, and tasks of a minute, side by side, for three."""
    waves = SettlingRate()
    waves.begin(0.0)
    for minute in range(6):
        for drop in range(4):
            waves.add(60.0 * minute + 0.1 * drop, 4 * minute + drop)

    assert _filled([10, 10]).usual_quiet == 10
    assert waves.usual_quiet == pytest.approx(180, rel=0.01)
    assert waves.changed == pytest.approx(300.3)
    waves.add(330.0, 23)
    assert waves.changed == pytest.approx(300.3)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1000)), max_size=60))
def test_a_rate_is_never_negative_and_within_what_happened(steps: list[tuple[float, int]]) -> None:
    """Whatever the times of the samples are."""
    rate, now, settled = SettlingRate(), 0.0, 0
    for length, more in steps:
        now, settled = now + length, settled + more
        rate.add(now, settled)

        assert rate.recent >= 0
        assert rate.typical >= 0


# The load of a node over time.


@pytest.mark.slow
def test_samples_are_kept_in_a_ring() -> None:
    """The oldest samples go, an error while sampling is survived, and nothing is sampled after the end."""
    taken, enough = [], threading.Event()

    def sample() -> LoadSample:
        taken.append(len(taken))
        if len(taken) == 2:
            raise OSError("the disk is gone")
        if len(taken) == 3:
            raise WorldError("the session does not answer")
        if len(taken) >= 8:
            enough.set()
        return LoadSample(float(len(taken)), 0.0, 0, 0, 0, 0, 0, 0)

    history = LoadHistory("n", sample, every=0.001, kept=3)
    history.start()
    assert enough.wait(60)
    history.close()
    history.close()
    recorded = history.read()

    assert (recorded.node, len(recorded.samples)) == ("n", 3)
    times = [sample.time for sample in recorded.samples]
    assert times == sorted(times)
    assert times[-1] == len(taken)


# How busy the processors of a host are.


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A host with two processors whose times the test sets; a sample of it is 12.5 %."""
    times = SimpleNamespace(user=0.0, system=0.0, idle=0.0, iowait=0.0)

    def now() -> object:
        class Times(tuple):  # type: ignore[type-arg]
            __slots__ = ()
            idle, iowait = times.idle, times.iowait

        return Times((times.user, times.system, times.idle, times.iowait))

    monkeypatch.setattr(psutil, "cpu_times", now)
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 12.5 if interval else 0.0)
    return times


def test_it_is_the_use_since_it_was_asked_last(host: SimpleNamespace) -> None:
    """Of four processor seconds, one was spent in programs, and waiting for disks counts as idle."""
    clock = VirtualClock()
    use = ProcessorUse(clock)
    clock.advance(2.0)
    host.user, host.idle, host.iowait = 1.0, 2.0, 1.0

    assert use.percent() == 25.0


def test_all_threads_get_the_same(host: SimpleNamespace) -> None:
    """The first request in a thread of the server gets the figure of others, and a second one at once does, too."""
    clock = VirtualClock()
    use = ProcessorUse(clock)
    clock.advance(2.0)
    host.system, host.idle = 3.0, 1.0
    values: list[float] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: values.append(use.percent()))
        thread.start()
        thread.join()

    assert values == [75.0, 75.0]


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_it_is_sampled_at_first_and_after_a_pause(host: SimpleNamespace, seconds: float) -> None:
    """An average of a minute is no longer how busy the host is now."""
    clock = VirtualClock()
    use = ProcessorUse(clock)
    clock.advance(seconds)
    host.user, host.idle = 60.0, 60.0

    assert use.percent() == 12.5


class _ClockThatIsSet(VirtualClock):
    """A clock whose time of day can be set."""

    def set(self, seconds: float) -> None:
        """Move the time of day only."""
        self._now += seconds


@pytest.mark.parametrize("jump", [-86400.0, 3600.0])
def test_a_session_takes_the_time_that_passes_though_the_clock_is_set(jump: float) -> None:
    """Before its start it has taken none; while it runs and after its end, the time of day does not matter."""
    clock = _ClockThatIsSet()
    log = ProgressLog(clock, lambda _: None)
    clock.advance(5.0)
    waiting = log.latest.seconds(clock.monotonic())
    log.start()
    clock.advance(10.0)
    clock.set(jump)
    clock.advance(10.0)
    running = log.latest.seconds(clock.monotonic())
    log.end(SessionState.FINISHED, "")
    clock.advance(10.0)

    assert (waiting, running, log.latest.seconds(clock.monotonic())) == (0.0, 20.0, 20.0)


def test_no_change_of_two_threads_is_lost() -> None:
    """The thread of a session and that of its node note changes at the same time; each makes a new version."""
    log = ProgressLog(VirtualClock(), lambda _: None)
    touching = threading.Thread(target=lambda: [log.touch() for _ in range(2_000)])
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        touching.start()
        for _ in range(2_000):
            log.start()
    finally:
        sys.setswitchinterval(before)
        touching.join()

    assert log.latest.version == 4_001


@pytest.mark.parametrize(("ago", "seconds"), [(100.0, 110.0), (-3.0, 10.0)])
def test_a_node_that_joins_takes_over_when_the_session_was_started(ago: float, seconds: float) -> None:
    """It counts from then; from now if the clock of the other node is ahead."""
    clock = _ClockThatIsSet()
    clock.advance(200.0)
    log = ProgressLog(clock, lambda _: None)
    started = clock.now() - ago
    log.start(started)
    clock.advance(10.0)

    assert (log.latest.started, log.latest.seconds(clock.monotonic())) == (started, seconds)
