"""The plan of a graph, with which timelines compare what is executed."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from dropflow.errors import BadFileError
from dropflow.graph.codec import digest, dump, parse
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import slice_by_place
from dropflow.graph.templates import Kind
from dropflow.testing.drawing import fan
from dropflow.times.attempts import attempts_of
from dropflow.times.octets import RUNNING, TimesSection, pack_times, read_sections
from dropflow.times.timeline import analyse, statistics_of
from tests.times.made_times import executed, records_of, sections_of
from translator.plan.judge import simulate, with_schedule
from translator.plan.machines import equal_machines
from translator.plan.task_graph import work_of


def _timed(drops: int = 40) -> PhysicalGraph:
    graph = fan(drops)
    part = (np.arange(graph.drops) % 2).astype(np.int32)
    templates = [msgspec.structs.replace(one, weight=2.5 if one.kind is Kind.APP else 1.0) for one in graph.templates]
    return replace(graph, templates=tuple(templates), part=part, places=("a", "b"))


def test_the_plan_is_the_simulated_run() -> None:
    """Its columns have the begin and the end of each application, and pass through files; slices have none."""
    graph, machines = _timed(), equal_machines(2, cores=2)
    found = with_schedule(graph, machines)
    run = simulate(work_of(graph), machines, graph.part)
    assert found.planned is not None
    is_app = graph.template == 1
    for column, times in zip(found.planned, (run.start, run.end), strict=True):
        assert column[is_app] == pytest.approx(times[: graph.drops][is_app])
        assert np.isnan(column[~is_app]).all()

    again = parse(b"".join(dump(found)))
    assert again.planned is not None
    assert all(np.array_equal(one, two, equal_nan=True) for one, two in zip(again.planned, found.planned, strict=True))
    assert parse(b"".join(dump(graph))).planned is None
    assert digest(found) == digest(graph)
    assert all(piece.graph.planned is None for piece in slice_by_place(found).values())
    short = replace(found, planned=(found.planned[0][1:], found.planned[1]))
    with pytest.raises(BadFileError, match="column planned_begin has 40 rows, not 41"):
        parse(b"".join(dump(short)))


def test_there_is_no_plan_without_times_and_machines() -> None:
    """If no application has a declared or measured time, or parts have no machine."""
    graph = _timed()
    untimed = replace(graph, templates=fan(40).templates)
    assert with_schedule(untimed, equal_machines(2)).planned is None
    assert with_schedule(replace(untimed, weight=np.ones(graph.drops)), equal_machines(2)).planned is not None
    assert with_schedule(graph, equal_machines(1)).planned is None


@pytest.mark.parametrize("seed", range(5))
def test_lanes_are_compared_with_the_plan(seed: int) -> None:
    """Each lane has the time between its last end and the last planned end of its attempts; None without a plan."""
    graph = with_schedule(_timed(), equal_machines(2))
    assert graph.planned is not None
    attempts = attempts_of(sections_of(executed(graph, seed)))
    found = analyse(graph, attempts)
    for lane, use in enumerate(statistics_of(found).lanes):
        mine = np.flatnonzero(found.lanes.lane == lane)
        planned = max(float(graph.planned[1][attempts.drop[one]]) for one in mine)
        ended = max(float(attempts.ended[one]) for one in mine) - attempts.start
        assert use.late == pytest.approx(ended - planned, abs=1e-5)
    without = statistics_of(analyse(replace(graph, planned=None), attempts))
    assert {use.late for use in without.lanes} == {None}


def test_attempts_that_run_are_sent_beside_those_that_have_ended() -> None:
    """They are read as they were, and sections without them have no such columns."""
    running = np.array([(3, 1, 2, 1e9), (4, 1, 0, 0.0)], RUNNING)
    section = TimesSection(node="a", total=1, records=records_of([{"drop": 1}]), running=running, now=1e9 + 5)
    (found,) = read_sections([pack_times(section)])
    assert found.running.tolist() == running.tolist()
    assert found.now == 1e9 + 5
    assert b"running" not in pack_times(msgspec.structs.replace(section, running=running[:0]))
