"""The times and the priority of attempts, and what they used."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.clock import SystemClock
from dropflow.execution.attempt_times import AttemptTimes
from dropflow.execution.decisions.events import Run
from dropflow.execution.ready_attempts import attempt_priority
from dropflow.execution.tasks import AttemptResult, Usage
from dropflow.graph.physical import Adjacency, PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.runners.attempt_limits import UsageMeter
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.testing.drawing import draw, row
from dropflow.times.attempts import attempts_of
from dropflow.times.octets import RECORD, TIMES_FILE, TimesSection, read_times
from dropflow.times.timeline import profile, slowest
from tests.graph.shapes import graphs
from tests.regular_graphs import fan
from tests.virtual_clock import VirtualClock


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["inline", "threads", "processes"])
def test_each_attempt_has_one_record(runner: str, tmp_path: Path) -> None:
    """Each application has a record whose times are in order, within those of the run, and add up."""
    graph, clock = fan(30), SystemClock()
    before = clock.now()
    local_run.run(graph, tmp_path, RunOptions(runner=runner, workers=2))
    after = clock.now()
    records = read_times(tmp_path / TIMES_FILE)

    apps = np.flatnonzero(graph.kinds[graph.template] == 1)
    assert sorted(set(records["drop"].tolist()) & set(apps.tolist())) == apps.tolist()
    assert len(records) == len(set(records["drop"].tolist()))
    assert (records["attempt"] == 1).all()
    for name in ("waited", "queued", "ran", "committed"):
        assert (records[name] > -0.05).all(), name
    ends = records["ready"] + records["waited"] + records["queued"] + records["ran"] + records["committed"]
    assert (records["ready"] >= before - 0.05).all()
    assert (ends <= after + 0.05).all()
    assert set(records["worker"].tolist()) <= ({1, 2} if runner == "processes" else {0})


def test_bytes_are_those_of_inputs_and_outputs(tmp_path: Path) -> None:
    """The bytes that attempts wrote are those that their consumers have read."""
    graph = draw(
        "A -> b -> C -> d", A={"component": "dlg.apps.simple.HelloWorldApp"}, C={"component": "dlg.apps.simple.CopyApp"}
    )
    local_run.run(graph, tmp_path, RunOptions(runner="inline"))
    found = {int(time["drop"]): time for time in read_times(tmp_path / TIMES_FILE)}
    first, second = found[row(graph, "A")], found[row(graph, "C")]

    assert first["written"] == second["read"] == second["written"] > 0


def test_a_failed_attempt_has_a_negative_number(tmp_path: Path) -> None:
    """Each try is recorded; those that failed have negative numbers."""
    graph = draw("A -> b", A={"component": "tests.execution.test_attempt_times.Missing", "tries": 2})
    records = _recorded(tmp_path, [AttemptResult(row(graph, "A"), 1), AttemptResult(row(graph, "A"), 2)], failed=True)

    assert records["attempt"].tolist() == [-1, -2]


def _recorded(
    directory: Path, results: list[AttemptResult], *, failed: bool = False
) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    times = AttemptTimes(directory / TIMES_FILE, 8, VirtualClock())
    for result in results:
        times.ready([Run(result.drop, result.attempt)])
        times.given([Run(result.drop, result.attempt)])
        times.ended(result, failed=failed)
    times.close()
    return read_times(directory / TIMES_FILE)


def test_a_torn_record_is_cut_before_others_follow(tmp_path: Path) -> None:
    """What a killed process has left of its last record does not damage the records of the next one."""
    _recorded(tmp_path, [AttemptResult(1, 1)])
    with (tmp_path / TIMES_FILE).open("ab") as file:
        file.write(b"x" * (RECORD.itemsize - 1))
    records = _recorded(tmp_path, [AttemptResult(2, 1)])

    assert records["drop"].tolist() == [1, 2]


def test_a_full_disk_stops_the_recording_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A session goes on without records if they cannot be written, and has a note."""

    def refuse(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    graph = fan(5)
    real = AttemptTimes._flush

    def flush(times: AttemptTimes) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", refuse)
            real(times)

    monkeypatch.setattr(AttemptTimes, "_flush", flush)
    result = local_run.run(graph, tmp_path, RunOptions(runner="inline"))

    assert result.status.name == "FINISHED"
    assert any("times of attempts are not recorded" in note for note in result.notes)


def test_a_profile_adds_up() -> None:
    """Counts, sums and extremes of a node are those of its records."""
    graph = draw("A -> b, C -> d")
    records = np.zeros(4, RECORD)
    records["drop"] = [row(graph, "A"), row(graph, "A"), row(graph, "A"), row(graph, "C")]
    records["attempt"] = [-1, -2, 3, 1]
    records["ran"] = [1, 2, 6, 4]
    records["read"], records["memory"] = [10, 10, 10, 5], [100, 300, 200, 50]
    first, second = profile(graph, records)

    assert (first.name, first.attempts, first.failed, first.seconds) == ("A", 3, 2, 9.0)
    assert (first.median, first.longest, first.read, first.memory) == (2.0, 6.0, 30, 300)
    assert (second.name, second.attempts) == ("C", 1)
    attempts = attempts_of([TimesSection(node="n0", total=4, records=records)])
    assert [(one.attempt, one.ran) for one in slowest(graph, attempts, 2)] == [(3, 6.0), (1, 4.0)]


def test_an_attempt_in_a_process_of_its_own_is_measured() -> None:
    """Processor time of a long attempt is about what it computed, and memory is that of the process."""
    meter, clock = UsageMeter(owns_process=True), SystemClock()
    began = clock.monotonic()
    while clock.monotonic() - began < 0.02:
        sum(range(1000))
    processor, memory = meter.end(0.02)

    assert 0 < processor < 5
    assert memory > 1 << 20


def test_a_short_attempt_counts_as_if_it_had_computed() -> None:
    """The system is not asked after attempts of less than a millisecond."""
    assert UsageMeter(owns_process=True).end(0.0004)[0] == 0.0004


def test_an_attempt_that_was_made_ready_in_an_earlier_view_begins_its_record_with_its_begin(tmp_path: Path) -> None:
    """A session that goes on in another view does not know when attempts were ready that ran on."""
    times = AttemptTimes(tmp_path / TIMES_FILE, 1, VirtualClock())
    times.ended(AttemptResult(0, 1, seconds=2.0, usage=Usage(100.0)), failed=False)
    times.close()
    (record,) = read_times(tmp_path / TIMES_FILE)

    assert [record[name] for name in ("ready", "waited", "queued", "ran")] == [98.0, 0.0, 0.0, 2.0]


def test_usage_is_recorded_with_the_drop_of_the_whole_graph(tmp_path: Path) -> None:
    """A session that has some drops of a graph records their rows in the whole graph."""
    times = AttemptTimes(tmp_path / TIMES_FILE, 2, VirtualClock(), np.array([40, 30], dtype=np.int32))
    times.ended(AttemptResult(1, 1, seconds=2.0, usage=Usage(10.0, 1.5, 77, 5, 6, 3)), failed=False)
    times.close()
    (record,) = read_times(tmp_path / TIMES_FILE)

    assert [record[name] for name in ("drop", "ran", "processor", "memory", "read", "written", "worker")] == [
        30,
        2.0,
        1.5,
        77.0,
        5.0,
        6.0,
        3,
    ]


# The priority of attempts.


@given(graphs(), st.integers(0, 100))
def test_data_without_producers_are_as_urgent_as_their_consumers(graph: PhysicalGraph, seed: int) -> None:
    """Their attempts have the greatest priority of their consumers; all others have that of their drop."""
    priority = np.random.default_rng(seed).integers(-5, 5, graph.drops, dtype=np.int32)
    found = attempt_priority(replace(graph, priority=priority))

    assert found is not None
    for drop in range(graph.drops):
        is_data = graph.templates[graph.template[drop]].kind is Kind.DATA
        consumers, producers = _neighbours(graph.successors, drop), _neighbours(graph.predecessors, drop)
        wanted = max(priority[consumers]) if is_data and len(consumers) and not len(producers) else priority[drop]
        assert found[drop] == wanted


@given(graphs())
def test_without_priorities_nothing_is_stored(graph: PhysicalGraph) -> None:
    """Attempts of a graph without priorities have none."""
    assert attempt_priority(replace(graph, priority=None)) is None


def _neighbours(adjacency: Adjacency, drop: int) -> list[int]:
    return adjacency.neighbour[adjacency.ptr[drop] : adjacency.ptr[drop + 1]].tolist()
