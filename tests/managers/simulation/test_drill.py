"""Drills: a graph on simulated nodes that fail, by the engine's core and the managers' recovery on virtual time."""

import logging
import random
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from managers.simulation import drill as drilled
from managers.simulation.drill import ANY, Cut, Drill, DrilledNode, NodeLoss, recomputations, run_trial, run_trials
from tests.graph.shapes import chain, scatter
from translator.options import PartitionOptions
from translator.plan.judge import simulate
from translator.plan.machines import equal_machines
from translator.plan.registry import plan
from translator.plan.task_graph import work_of

HOUR = 3600.0


def _layers() -> PhysicalGraph:
    """Return layers of applications, of one to three cores, that each read some large contents of the layer before."""
    chance, builder = random.Random(7), GraphBuilder("layers")
    for layer in range(6):
        for at in range(8):
            name = f"{layer}-{at}"
            builder.app(f"a{name}", weight=chance.uniform(100, 300), cpus=chance.choice((1, 1, 3)))
            builder.data(f"d{name}", weight=2.0e9).connect(f"a{name}", f"d{name}")
            for before in chance.sample(range(8), 2) if layer else ():
                builder.connect(f"d{layer - 1}-{before}", f"a{name}")
    return builder.build()


def _weighted(graph: PhysicalGraph) -> PhysicalGraph:
    """Return a graph whose applications take between half an hour and one and a half."""
    chance, work = np.random.default_rng(1), work_of(graph)
    return replace(graph, weight=np.where(work.is_app, chance.uniform(0.5, 1.5, graph.drops) * HOUR, 0.0))


def _drill(graph: PhysicalGraph, *, nodes: int = 3, cores: int = 4, bandwidth: float = 1e8) -> Drill:
    """Return a drill of a graph as `heft` plans it."""
    machines = equal_machines(nodes, cores=cores)
    machines = msgspec.structs.replace(machines, links=msgspec.structs.replace(machines.links, bandwidth=bandwidth))
    made = plan(graph, PartitionOptions(algorithm="heft", parts=nodes), machines).graph
    work = work_of(made)
    return Drill(
        graph=made,
        seconds=work.seconds,
        volume=work.volume,
        cores=work.cpus,
        hosts=tuple(DrilledNode(node.name, node.cores) for node in machines.nodes),
        bandwidth=bandwidth,
        planned=simulate(work, machines, made.part, made.priority).completion,
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape", [lambda: _weighted(scatter(40)), lambda: _weighted(chain(16)), _layers])
def test_a_trial_without_faults_ends_when_it_is_planned_to(shape: Callable[[], PhysicalGraph]) -> None:
    """The simulated end differs from the planned one by at most 10 %, and nothing is repeated."""
    drill = _drill(shape())

    trial = run_trial(drill, 1)

    assert trial.status == "FINISHED"
    assert trial.end == pytest.approx(drill.planned, rel=0.1)
    assert trial.repeated == 0


@pytest.mark.slow
def test_what_managers_wait_for_is_skipped_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial with a loss is the same whether the waiting of managers is skipped or simulated."""
    short = scatter(24)
    drill = _drill(replace(short, weight=np.where(work_of(short).is_app, 2.0, 0.0)))
    drill = msgspec.structs.replace(drill, faults=(NodeLoss("#1", 3.0),))
    skipped = run_trial(drill, 5)
    monkeypatch.setattr(drilled._Trial, "_may_skip", lambda _: False)

    simulated = run_trial(drill, 5)

    assert skipped.repeated > 0
    assert skipped.repeated == simulated.repeated
    assert skipped.end == pytest.approx(simulated.end, abs=0.5)  # messages take other drawn times


@pytest.mark.slow
def test_trials_are_drawn_from_their_seeds() -> None:
    """The same seed gives the same trial, in one process or several; other seeds lose other nodes at other times."""
    drill = msgspec.structs.replace(_drill(_weighted(scatter(6))), faults=(NodeLoss(ANY),), spread=0.1)

    trials = run_trials([(drill, seed) for seed in range(2)], jobs=2)

    assert trials == [run_trial(drill, seed) for seed in range(2)]
    assert len({trial.end for trial in trials}) == len(trials)
    assert {trial.status for trial in trials} == {"FINISHED"}


@pytest.mark.slow
def test_trials_leave_the_log_of_their_process_on() -> None:
    """Warnings are off while trials run in this process, and on afterwards."""
    run_trials([(_drill(chain(4)), 1)])

    assert logging.getLogger("dropflow").isEnabledFor(logging.WARNING)


@pytest.mark.slow
def test_a_cut_and_a_slow_node_make_a_session_later() -> None:
    """A minority that is cut off computes without a result or waits; a slow node takes as long as it is slow."""
    drill = _drill(_weighted(scatter(36)))
    cut = msgspec.structs.replace(drill, faults=(Cut(("#0",), ("#1", "#2"), 0.3 * drill.planned, 60.0),))
    slow = msgspec.structs.replace(drill, hosts=(DrilledNode("#0", 4, 0.5), *drill.hosts[1:]))

    trial = run_trial(cut, 1)

    assert (trial.status, trial.repeated > 0) == ("FINISHED", True)
    assert drill.planned < trial.end < 3 * drill.planned
    assert run_trial(slow, 1).end == pytest.approx(2 * drill.planned, rel=0.2)


@pytest.mark.slow
def test_what_a_lost_content_costs() -> None:
    """The work of its producer counts, and that of the producers of what was released when it is needed last."""
    builder = GraphBuilder("g").app("a").data("x").app("b").data("y").app("c").data("z")
    builder.connect("a", "x").connect("x", "b").connect("b", "y").connect("y", "c").connect("c", "z")
    graph = builder.build()
    names = [template.name for template in graph.templates]
    work = np.array([{"a": 5.0, "b": 2.0, "c": 1.0}.get(name, 0.0) for name in names])
    end = np.array([{"a": 5.0, "x": 5.0, "b": 7.0, "y": 7.0, "c": 8.0, "z": 8.0}[name] for name in names])

    costs = recomputations(graph, work, end)

    assert {names[drop]: cost for drop, cost in costs.items()} == {"x": 5.0, "y": 7.0, "z": 8.0}
