import contextlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.node_records import Load, NodeInfo
from dropflow.errors import BadFileError, BadGraphError, NotFoundError
from dropflow.failure import Problem
from dropflow.formatting import BANDWIDTH, MEMORY, SECONDS, quantity
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.testing.drawing import draw, row
from dropflow.times.measured_run import MeasuredRun, read_run
from dropflow.times.octets import RECORD
from tests.regular_graphs import fan
from translator.options import PartitionOptions
from translator.plan.machines import Machines, equal_machines, live_machines, parse_machines, read_machines
from translator.plan.measured import measured_nodes, with_measured_nodes
from translator.plan.move_bound import judge
from translator.plan.registry import plan


def _problems(text: str) -> list[tuple[str, str]]:
    with pytest.raises(BadGraphError, match="PT010") as caught:
        parse_machines(text.encode(), where="m.toml")
    return [(problem.code, problem.where) for problem in caught.value.problems if isinstance(problem, Problem)]


def test_a_file_with_all_keys() -> None:
    """Quantities with units become bytes, bytes per second and seconds; keys that are absent have defaults."""
    machines = parse_machines(
        b"""
        [links]
        bandwidth = "128 MiB/s"
        latency = "0 s"
        [links.between_islands]
        bandwidth = "1 Gbit/s"
        latency = "10 ms"
        [[nodes]]
        name = "a"
        cores = 8
        speed = 2
        memory = "64 GiB"
        gpus = 2
        island = "x"
        [[nodes]]
        name = "b"
        """,
        where="m.toml",
    )

    first, second = machines.nodes
    assert (first.name, first.cores, first.speed, first.memory, first.island) == ("a", 8, 2.0, 64 * 2.0**30, "x")
    assert (second.cores, second.speed, second.memory, second.island) == (1, 1.0, math.inf, "")
    assert (first.gpus, second.gpus) == (2, 0)
    assert machines.links.bandwidth == 128 * 2**20
    assert machines.between_islands is not None
    assert (machines.between_islands.bandwidth, machines.between_islands.latency) == (125e6, 0.01)
    assert (machines.bandwidth(0, 1), machines.latency(0, 1)) == (125e6, 0.01)
    assert machines.contention
    assert (machines.power, machines.fastest, machines.islands) == (17.0, 2.0, ("x", ""))


def test_all_problems_are_reported_at_once() -> None:
    """Each problem names the key that is wrong."""
    problems = _problems(
        """
        contention = 1
        color = "red"
        [links]
        bandwidth = "fast"
        latency = "-1 s"
        between_islands = 3
        [[nodes]]
        cores = 0
        [[nodes]]
        name = "b"
        speed = 0
        memory = "64 apples"
        [[nodes]]
        name = "b"
        size = 4
        gpus = -1
        """
    )

    assert sorted(place.removeprefix("m.toml: ") for _, place in problems) == sorted(
        [
            "contention",
            "color",
            "links.bandwidth",
            "links.latency",
            "links.between_islands",
            "nodes[0].cores",
            "nodes[0].name",
            "nodes[1].speed",
            "nodes[1].memory",
            "nodes[2].size",
            "nodes[2].gpus",
            "nodes[2].name",
        ]
    )


_LONG = [f'[[nodes]]\nname = "a"\n{key}' for key in (f"cores = {'9' * 5000}", f"memory = 0x{'f' * 5000}")]


@pytest.mark.parametrize(
    "text", ["", "nodes = []", "nodes = 3", "nodes = [3]", "links = 1", "not toml", "\udcff", *_LONG]
)
def test_files_without_machines_are_refused(text: str) -> None:
    """A file that is not TOML or has no nodes is an error with a place, and no other exception."""
    with pytest.raises(BadGraphError, match="PT010"):
        parse_machines(text.encode(errors="surrogateescape"), where="m.toml")


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(BadFileError, match="cannot be read: No such file"):
        read_machines(tmp_path / "none.toml")


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_machines_or_an_error(content: bytes) -> None:
    """No content of a file raises another exception."""
    with contextlib.suppress(BadGraphError):
        assert isinstance(parse_machines(content, where="m.toml"), Machines)


def test_quantities() -> None:
    """Numbers are in the basic unit; texts have a unit; other values are none."""
    assert quantity("1.5 GiB", MEMORY) == 1.5 * 2**30
    assert quantity("2kB", MEMORY) == 2000
    assert quantity("8 Mbit/s", BANDWIDTH) == 1e6
    assert quantity("5 us", SECONDS) == pytest.approx(5e-6)
    assert quantity(7, MEMORY) == 7.0
    assert [quantity(value, MEMORY) for value in (True, "x", "1 s", None, [], math.nan)] == [None] * 6


# Machines from what managers report.


def node(name: str, host: str = "", **load: float) -> NodeInfo:
    """Return a node manager that is alive, with two cores unless its load has others."""
    return NodeInfo(name=name, host=host or name, load=Load(**{"cores": 2, "workers": 2, **load}))  # type: ignore[arg-type]


@pytest.mark.parametrize(("use", "speed"), [(0, 1), (3, 1), (50, 1 / 1.5), (100, 0.5), (250, 0.5)])
def test_busy_processors_are_shared(use: float, speed: float) -> None:
    """A program beside those of the node takes its share; noise of a few per cent does not count."""
    (capacity,) = live_machines([node("a", processor=use)]).nodes

    assert (capacity.cores, capacity.speed) == (2, pytest.approx(speed))


def test_nodes_on_one_host_share_it() -> None:
    """Two nodes of two workers each on two processors: each is half as fast, and has half of the free memory."""
    first, second, alone = live_machines(
        [
            node("a", "h", memory=1000, memory_free=600),
            node("b", "h", memory=1000, memory_free=500, processor=100),
            node("c", memory=1000, memory_free=700),
        ]
    ).nodes

    assert (first.speed, first.memory) == (second.speed, second.memory) == (pytest.approx(0.5 / 1.5), 250.0)
    assert (alone.speed, alone.memory) == (1.0, 700.0)


def test_gpus_count_while_others_use_them() -> None:
    """Applications wait for GPUs that another session has now; a node that reports none has none."""
    taken, none = live_machines([node("a", gpus=2, gpus_free=0), node("b")]).nodes

    assert (taken.gpus, none.gpus) == (2, 0)


def test_a_smaller_plan_has_a_node_with_the_gpus() -> None:
    """Of the nodes that are used, one has as many GPUs as an application needs, though it has fewer processors."""
    live = live_machines(
        [node("a", gpus=1), node("b", gpus=4), node("c", cores=8, workers=8), node("d", cores=4, workers=4)]
    )
    graph = GraphBuilder().app("A", arguments=(Argument(name="num_gpus", value=2),)).build()

    assert [capacity.name for capacity in live.machines(2).nodes] == ["c", "d"]
    assert [capacity.name for capacity in live.machines(2, graph.templates).nodes] == ["b", "c"]


def test_a_node_of_an_older_version_has_one_core() -> None:
    """Without figures, a node counts as one idle core with all the memory that is asked for."""
    (capacity,) = live_machines([NodeInfo(name="a")]).nodes

    assert (capacity.cores, capacity.speed, capacity.memory) == (1, 1.0, math.inf)


def test_a_node_whose_disk_is_full_is_left_out() -> None:
    """What is full for a large disk may be enough for a small one; a node that tells no disk is not full."""
    nodes = [
        NodeInfo(name="a", load=Load(disk=1 << 40, disk_free=1 << 20)),
        NodeInfo(name="b", load=Load(disk=1 << 24, disk_free=1 << 20)),
        NodeInfo(name="c"),
    ]

    live = live_machines(nodes)

    assert live.names == ("b", "c")
    assert live.left_out == ("the disk of node a is full",)


def test_nodes_that_are_not_alive_are_left_out_with_a_reason() -> None:
    """Suspect, lost and draining nodes are told by name; the others are sorted by name."""
    live = live_machines(
        [
            node("c"),
            NodeInfo(name="b", state="suspect", text="silent for 6 s"),
            node("a"),
            NodeInfo(name="d", state="draining"),
        ]
    )

    assert live.names == ("a", "c")
    assert live.left_out == ("node b is suspect: silent for 6 s", "node d is draining")


def test_islands_are_those_of_the_master() -> None:
    """A node keeps its island."""
    live = live_machines([NodeInfo(name="a", island="x"), NodeInfo(name="b", island="y")])

    assert live.machines(2).islands == ("x", "y")


# Weights that runs have measured.


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
    measured = {node.key: node for node in measured_nodes(run)}

    assert (measured["A"].processor.tolist(), measured["A"].memory.tolist()) == ([0.5], [1e9])
    assert (measured["C"].processor.tolist(), np.isnan(measured["C"].memory).tolist()) == ([0.25], [True])
    assert np.isnan([measured["b"].processor, measured["b"].memory]).all()


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
    local_run.run(graph, tmp_path, RunOptions(runner="inline"))
    weight = _weighted(graph, [read_run(tmp_path)]).weight

    assert weight is not None
    assert (weight[_apps(graph)] > 0).all()
    assert (weight[_apps(graph)] < 1).all()


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    """The error has the directory."""
    with pytest.raises(NotFoundError, match="no run in this directory"):
        read_run(tmp_path)
