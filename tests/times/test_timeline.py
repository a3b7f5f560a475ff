"""What follows from the times of attempts, compared with slow definitions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import ProtocolError
from dropflow.graph.physical import PhysicalGraph
from dropflow.testing.drawing import draw, row
from dropflow.times.attempts import AttemptColumns, attempts_of, check_rows
from dropflow.times.octets import pack_times, read_sections
from dropflow.times.timeline import (
    BEGINNING,
    DATA,
    REPETITION,
    WORKER,
    Analysis,
    analyse,
    executed_path,
    lanes_of,
    pack_analysis,
    profiles_of,
    statistics_of,
)
from tests.regular_graphs import fan
from tests.strategies import graphs
from tests.times.made_times import executed, records_of, sections_of


def _analysed(graph: PhysicalGraph, seed: int, **settings: int) -> Analysis:
    return analyse(graph, attempts_of(sections_of(executed(graph, seed, **settings))))


def _makers(graph: PhysicalGraph, attempts: AttemptColumns, app: int) -> list[tuple[float, int]]:
    """Return when each input of an application was committed, and the attempt that did it."""
    into, found = graph.predecessors, []
    for data in into.neighbour[into.ptr[app] : into.ptr[app + 1]]:
        makers = into.neighbour[into.ptr[data] : into.ptr[data + 1]]
        ends = [(attempts.committed[one], one) for one in range(len(attempts)) if attempts.drop[one] in makers.tolist()]
        if ends:
            found.append((max(end for end, _ in ends), max(ends)[1]))
    return found


@given(graphs(), st.integers(0, 1000))
def test_an_attempt_waits_for_what_happened_last(graph: PhysicalGraph, seed: int) -> None:
    """It is its last input, its earlier attempt, or the attempt before it on a worker that was not free in time."""
    found = _analysed(graph, seed)
    attempts, waits = found.attempts, found.waits
    for one in range(len(attempts)):
        happened = [(-np.inf, BEGINNING)]
        inputs = _makers(graph, attempts, int(attempts.drop[one]))
        assert waits.inputs[one] == max((end for end, _ in inputs), default=-np.inf)
        happened += [(end, DATA) for end, _ in inputs]
        for other in range(len(attempts)):
            if attempts.drop[other] == attempts.drop[one] and attempts.attempt[other] < attempts.attempt[one]:
                happened.append((attempts.committed[other], REPETITION))
            same = (attempts.node[other], attempts.worker[other]) == (attempts.node[one], attempts.worker[one])
            is_late = attempts.ready[one] < attempts.ended[other] <= attempts.began[one]
            if same and is_late and other != one:
                happened.append((attempts.ended[other], WORKER))
        latest = max(time for time, _ in happened)
        if waits.kind[one] != BEGINNING:
            assert (latest, waits.kind[one]) in happened


@given(graphs(), st.integers(0, 1000))
def test_slack_is_what_no_later_attempt_needs(graph: PhysicalGraph, seed: int) -> None:
    """It equals the definition by recursion, and is zero exactly on paths to the end of the session."""
    found = _analysed(graph, seed)
    attempts, waits = found.attempts, found.waits
    order = sorted(range(len(attempts)), key=lambda one: (attempts.began[one], attempts.committed[one], one))
    place = {one: number for number, one in enumerate(order)}
    last = {int(attempts.drop[one]): one for one in order}
    slack: dict[int, float] = {}
    for one in reversed(order):
        left = attempts.end - attempts.committed[one]
        for later in order[place[one] + 1 :]:
            before = waits.before[later]
            begun = attempts.began[later]
            if before >= 0:
                begun = (attempts.ended if waits.kind[later] == WORKER else attempts.committed)[before]
            needs = []
            if last[int(attempts.drop[one])] == one and _feeds(graph, attempts, one, later):
                needs.append(attempts.committed[one])
            earlier = [
                other for other in order if attempts.drop[other] == attempts.drop[later] and place[other] < place[later]
            ]
            if earlier and earlier[-1] == one:
                needs.append(attempts.committed[one])
            if waits.freer[later] == one:
                needs.append(attempts.ended[one])
            left = min([left, *(slack[later] + begun - need for need in needs)])
        slack[one] = max(left, 0.0)
    assert waits.slack.tolist() == [slack[one] for one in range(len(attempts))]
    assert (waits.slack[waits.path] == 0).all()


def _feeds(graph: PhysicalGraph, attempts: AttemptColumns, one: int, later: int) -> bool:
    out = graph.successors
    data = out.neighbour[out.ptr[attempts.drop[one]] : out.ptr[attempts.drop[one] + 1]]
    return any(attempts.drop[later] in out.neighbour[out.ptr[drop] : out.ptr[drop + 1]] for drop in data)


@pytest.mark.slow
@given(graphs(), st.integers(0, 1000))
def test_lanes_never_overlap_and_gaps_fill_them(graph: PhysicalGraph, seed: int) -> None:
    """Attempts, the pieces of the gaps before them, and the rest after the last add up to the session on each lane."""
    found = _analysed(graph, seed)
    attempts = found.attempts
    for lane in range(len(found.lanes)):
        here = np.flatnonzero(found.lanes.lane == lane)
        assert len(set(attempts.node[here].tolist())) == 1
        filled = (attempts.ended - attempts.began)[here].sum() + found.gaps.seconds[here].sum() + found.gaps.tail[lane]
        assert filled == attempts.end - attempts.start
    assert (found.gaps.seconds >= 0).all()


def test_attempts_without_a_worker_get_as_many_lanes_as_run_together() -> None:
    """Each takes the lowest lane that is free when it begins."""
    rows = [{"drop": 1, "ready": begin, "ran": ran} for begin, ran in ((0, 4), (1, 1), (2, 1), (3, 3), (4, 1))]
    lanes = lanes_of(attempts_of(sections_of([rows])))

    assert lanes.lane.tolist() == [0, 1, 1, 1, 0]
    assert lanes.number.tolist() == [0, 1]


def test_the_critical_path_goes_through_data_workers_and_repetitions() -> None:
    """It begins with the first attempt, and its steps and waits add up to the time of the session."""
    graph = draw("A -> b -> C -> d, E -> f")
    a, c, e = (row(graph, name) for name in "ACE")
    rows = [
        {"drop": a, "attempt": -1, "worker": 1, "ready": 10, "ran": 2},
        {"drop": a, "attempt": 2, "worker": 1, "ready": 13, "ran": 2, "committed": 1},
        {"drop": e, "worker": 1, "ready": 10, "queued": 5, "ran": 3},
        {"drop": c, "worker": 1, "ready": 17, "waited": 1, "queued": 1, "ran": 4},
    ]
    found = analyse(graph, attempts_of(sections_of([rows])))
    told = statistics_of(found, most=2)

    assert found.waits.path.tolist() == [0, 1, 2, 3]
    assert [step.waited_for for step in told.critical] == ["beginning", "repetition", "worker", "worker"]
    assert [(step.waited, step.moved) for step in told.critical] == [(0, 0), (1, 1), (0, 0), (1, 0)]
    assert (told.critical_ran, told.critical_waited, told.critical_moved) == (11, 2, 1)
    assert [(slow.name, slow.ran) for slow in told.slowest] == [("C", 4), ("E", 3)]
    (lane,) = told.lanes
    assert (lane.lane, lane.attempts, lane.busy, lane.data, lane.message, lane.worker) == ("worker 1", 4, 11, 1, 0, 1)
    assert statistics_of(found, most_steps=1).critical[0].name == "C"


@given(st.sampled_from([0.001, 1.0, 3600.0]), st.integers(0, 100))
def test_the_critical_path_of_many_equal_attempts_is_whole(ran: float, seed: int) -> None:
    """It has every attempt of the worker that ended last, whenever results are committed: no wait is left unexplained.

    So what its attempts ran and waited is the time of the session, up to the commit of the last one.
    """
    random = np.random.default_rng(seed)
    rows = [
        {"drop": 1 + drop, "worker": 1, "queued": drop * ran, "ran": ran, "committed": random.uniform(0, 10 * ran)}
        for drop in range(60)
    ]
    found = analyse(fan(200), attempts_of(sections_of([rows])))
    told, last = statistics_of(found), int(np.argmax(found.attempts.committed))

    assert found.waits.path.tolist() == list(range(last + 1))
    assert told.critical_ran == pytest.approx((last + 1) * ran)
    assert told.critical_waited == pytest.approx(0, abs=1e-5 * ran * 60)


def test_a_wait_for_what_a_node_has_is_on_the_critical_path() -> None:
    """An attempt on a free worker, which another worker's attempt left no processors, waited for that one."""
    rows = [
        {"drop": 1, "worker": 1, "ready": 10, "ran": 5},
        {"drop": 2, "worker": 2, "ready": 10, "waited": 6, "ran": 1},
    ]
    found = analyse(fan(8), attempts_of(sections_of([rows])))

    assert found.waits.path.tolist() == [0, 1]
    assert [step.waited_for for step in statistics_of(found).critical] == ["beginning", "worker"]


def test_a_wait_on_the_critical_path_is_told_apart_by_what_it_was_for() -> None:
    """Until the attempt was ready its data moved; from then until it began it waited for a worker."""
    graph = draw("A -> b -> C")
    first, last = row(graph, "A"), row(graph, "C")
    found = analyse(
        graph,
        attempts_of(
            sections_of([[{"drop": first, "worker": 1, "ran": 5}], [{"drop": last, "ready": 7, "queued": 4, "ran": 1}]])
        ),
    )
    step = statistics_of(found).critical[1]

    assert (step.waited_for, step.waited, step.moved) == ("data", 6, 2)
    assert executed_path(graph, found.attempts, found.waits).tolist() == [first, row(graph, "b"), last]


def test_statistics_without_waits_are_the_same_in_what_they_have() -> None:
    """Times by logical node, counts and bounds are those of the whole statistics; lanes and paths are left out."""
    graph = fan(40)
    attempts = attempts_of(sections_of(executed(graph, 3)))
    whole, part = statistics_of(analyse(graph, attempts)), profiles_of(graph, attempts)

    assert (part.templates, part.attempts, part.failed) == (whole.templates, whole.attempts, whole.failed)
    assert (part.began, part.ended) == (whole.began, whole.ended)
    assert (part.lanes, part.critical, part.slowest) == ((), (), ())


def test_waiting_to_be_given_out_is_told_apart_from_queueing() -> None:
    """A template's statistics have the time with the session and the time with the runner, apart from running."""
    graph = fan(8)
    rows = [{"drop": 1 + number, "waited": 2, "queued": 1 + number, "ran": 8} for number in range(3)]
    (told,) = statistics_of(analyse(graph, attempts_of(sections_of([rows])))).templates

    assert (told.attempts, told.waited, told.queued, told.median) == (3, 2, 2, 8)
    assert told.waited_p95 == pytest.approx(4.9)


def test_nothing_follows_from_no_attempts() -> None:
    """A session that has just begun has empty statistics."""
    told = statistics_of(analyse(fan(8), attempts_of([])))

    assert (told.attempts, told.critical, told.lanes, told.templates) == (0, (), (), ())


def test_sections_are_read_as_they_were_written() -> None:
    """Records of several nodes in one stream are equal to those that were sent."""
    sent = sections_of(executed(fan(40), 3))
    got = list(read_sections([pack_times(one) for one in sent]))

    for one, other in zip(sent, got, strict=True):
        assert (one.node, one.total, one.records.tolist()) == (other.node, other.total, other.records.tolist())


@pytest.mark.parametrize("damage", [lambda data: data[:-8], lambda data: data[:5], lambda _: b"x" * 64])
def test_damaged_octets_are_refused(damage: Any) -> None:
    """What is cut off, or is something else, raises an error that names the server."""
    (section,) = sections_of([[{"drop": 1}]])
    with pytest.raises(ProtocolError, match=r"http://h: the times of attempts cannot be read"):
        list(read_sections([damage(pack_times(section))], where="http://h"))


def test_attempts_of_another_graph_are_refused() -> None:
    """A row that the graph does not have raises an error."""
    with pytest.raises(ProtocolError, match="an attempt is of drop 99, but the graph has 9"):
        check_rows(fan(8), attempts_of(sections_of([[{"drop": 99}]])), "s")


def test_the_analysis_of_a_page_has_a_row_for_each_record() -> None:
    """Its columns follow the records of the nodes that its header counts."""
    graph = fan(40)
    found = _analysed(graph, 1)
    packed = pack_analysis(found)
    size = int(np.frombuffer(packed[:4], "<u4")[0])
    header = packed[8 : 8 + size].decode()

    assert '"nodes":["n0","n1"]' in header
    assert f'"length":{len(found.attempts)}' in header
    assert records_of([{"drop": 3}])["attempt"].tolist() == [1]
