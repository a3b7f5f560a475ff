"""Weights that runs have measured."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dropflow.errors import NotFoundError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.sessions import local_run
from dropflow.testing.drawing import draw, fan, row
from dropflow.times.measured_run import MeasuredRun, read_run
from dropflow.times.octets import RECORD
from translator.options import PartitionOptions
from translator.plan.machines import equal_machines
from translator.plan.measured import measured_nodes, with_measured_nodes
from translator.plan.move_bound import judge
from translator.plan.registry import plan


def _measured(graph: PhysicalGraph, ran: dict[int, float], written: dict[int, float] | None = None) -> MeasuredRun:
    records = np.zeros(len(ran), RECORD)
    records["drop"], records["ran"], records["attempt"] = list(ran), list(ran.values()), 1
    records["written"] = [(written or {}).get(drop, 0.0) for drop in ran]
    return MeasuredRun(graph, records)


def _weighted(graph: PhysicalGraph, runs: list[MeasuredRun]) -> PhysicalGraph:
    return with_measured_nodes(graph, [node for run in runs for node in measured_nodes(run)])


def _apps(graph: PhysicalGraph) -> list[int]:
    is_app = graph.kinds[graph.template] == Kind.APP
    return np.flatnonzero(is_app).tolist()


def test_each_instance_gets_its_mean() -> None:
    """With as many instances as a run had, each drop has the mean of its own measurements."""
    graph = fan(8)
    apps = _apps(graph)
    first = _measured(graph, {app: float(number) for number, app in enumerate(apps)})
    second = _measured(graph, {apps[0]: 4.0})
    weight = _weighted(graph, [first, second]).weight

    assert weight is not None
    assert weight[apps].tolist() == [2.0, 1.0, 2.0, 3.0]


def test_another_number_of_instances_gets_the_mean_of_the_node() -> None:
    """If a run had fewer copies of a scatter, all drops of a node have its mean."""
    before, graph = fan(4), fan(8)
    weight = _weighted(graph, [_measured(before, dict(zip(_apps(before), (1.0, 5.0), strict=True)))]).weight

    assert weight is not None
    assert weight[_apps(graph)].tolist() == [3.0] * 4


def test_failed_attempts_and_unknown_nodes_do_not_count() -> None:
    """A node keeps its estimate if no attempt of it has succeeded, or the run had other nodes."""
    graph = draw("A -> b", A={"weight": 7.0})
    failed = _measured(graph, {row(graph, "A"): 3.0})
    failed.records["attempt"] = -1
    other = draw("C -> d")
    weight = _weighted(graph, [failed, _measured(other, {row(other, "C"): 2.0})]).weight

    assert weight is not None
    assert weight[row(graph, "A")] == 7.0


def test_what_an_application_wrote_is_divided_among_its_outputs() -> None:
    """Data have the bytes that were written; without a producer, those of their initial content."""
    graph = draw("r -> A -> b, A -> c")
    run = _measured(graph, {row(graph, "A"): 1.0, row(graph, "r"): 0.1}, {row(graph, "A"): 100.0, row(graph, "r"): 8.0})
    weight = _weighted(graph, [run]).weight

    assert weight is not None
    assert [weight[row(graph, name)] for name in "rbc"] == [8.0, 50.0, 50.0]


def test_processor_time_and_memory_are_kept() -> None:
    """An application keeps both, of attempts that succeeded; a process that is not its own gives no memory."""
    graph = draw("A -> b, C -> d")
    run = _measured(graph, {row(graph, "A"): 1.0, row(graph, "C"): 1.0})
    run.records["processor"], run.records["memory"] = [0.5, 0.25], [1e9, 0]
    found = {node.key: node for node in measured_nodes(run)}

    assert (found["A"].processor.tolist(), found["A"].memory.tolist()) == ([0.5], [1e9])
    assert (found["C"].processor.tolist(), np.isnan(found["C"].memory).tolist()) == ([0.25], [True])
    assert np.isnan([found["b"].processor, found["b"].memory]).all()


@pytest.mark.parametrize("algorithm", ["auto", "blocks", "breadth_first", "metis"])
def test_the_second_plan_is_faster_on_unequal_work(algorithm: str) -> None:
    """A graph that is planned with measured times completes sooner than with equal estimates, as it really runs."""
    graph = fan(32)
    apps = _apps(graph)
    seconds = [30.0 if number < 4 else 1.0 for number in range(len(apps))]
    real = _weighted(graph, [_measured(graph, dict(zip(apps, seconds, strict=True)))])
    machines, options = equal_machines(4), PartitionOptions(parts=4, algorithm=algorithm)
    first, second = plan(graph, options, machines).graph, plan(real, options, machines).graph
    times = [
        judge(replace(real, part=made.part), machines, priority=made.priority).makespan_s for made in (first, second)
    ]

    assert times[1] < 0.75 * times[0]


@pytest.mark.slow
def test_a_run_can_be_read(tmp_path: Path) -> None:
    """What a run has recorded becomes the weights of its graph."""
    graph = fan(20)
    local_run.run(graph, directory=tmp_path, runner="inline")
    weight = _weighted(graph, [read_run(tmp_path)]).weight

    assert weight is not None
    assert (weight[_apps(graph)] > 0).all()
    assert (weight[_apps(graph)] < 1).all()


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    """The error has the directory."""
    with pytest.raises(NotFoundError, match="no run in this directory"):
        read_run(tmp_path)
