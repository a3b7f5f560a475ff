"""What a drill says about a session is what happens to it on real nodes, without faults and with the loss of one."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from managers.simulation.drill import Drill, DrilledNode, NodeLoss, run_trial
from tests.e2e.cluster import Cluster, finished, pipeline, submit, underway
from translator.plan.judge import simulate
from translator.plan.machines import equal_machines
from translator.plan.task_graph import work_of

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

_SECONDS = 3.0
_USUAL: tuple[object, ...] = ()
"""Nodes are lost after the time that the simulated ones have, too."""


def _graph(nodes: tuple[str, str]) -> PhysicalGraph:
    """Return eight chains of four steps that sleep, half of them on each node, with the times that they take."""
    graph = pipeline(width=8, length=4, seconds=_SECONDS)
    chain = [int(template.name[1:].partition("-")[0]) if "-" in template.name else 0 for template in graph.templates]
    sleeps = np.array(
        [_SECONDS * (template.kind is Kind.APP and template.name != "Join") for template in graph.templates]
    )
    part = (np.array(chain, dtype=np.int32) // 4)[graph.template]
    return replace(graph, part=part, places=nodes, weight=sleeps[graph.template])


def _drill(graph: PhysicalGraph) -> Drill:
    work, machines = work_of(graph), equal_machines(2, cores=2, names=graph.places)
    planned = simulate(work, machines, graph.part).completion
    hosts = tuple(DrilledNode(node.name, node.cores) for node in machines.nodes)
    return Drill(graph=graph, seconds=work.seconds, volume=work.volume, cores=work.cpus, hosts=hosts, planned=planned)


def test_a_session_without_faults_takes_the_time_of_its_drill(tmp_path: Path) -> None:
    """Planned, simulated and executed time differ by at most 10 %."""
    graph = _graph(("a", "b"))
    drill = _drill(graph)
    with Cluster(tmp_path, times=_USUAL) as cluster:
        client = cluster.client(cluster.island(*cluster.nodes("a", "b")))
        submit(client, graph, "calm")
        executed = finished(client, "calm", 90.0).seconds

    assert run_trial(drill, 1).end == pytest.approx(drill.planned, rel=0.1)
    assert executed == pytest.approx(drill.planned, rel=0.1)


def test_a_session_that_loses_a_node_takes_the_time_of_its_drill(tmp_path: Path) -> None:
    """With the same loss at the same time, simulated and executed time differ by at most 20 %."""
    graph = _graph(("a", "b"))
    with Cluster(tmp_path, times=_USUAL) as cluster:
        a, b = cluster.nodes("a", "b")
        client = cluster.client(cluster.island(a, b))
        submit(client, graph, "lossy")
        assert underway(client, "lossy", settled=16)
        lost_at = client.session("lossy").seconds
        b.process.kill()
        detail = finished(client, "lossy", 180.0)

    trial = run_trial(msgspec.structs.replace(_drill(graph), faults=(NodeLoss("b", lost_at),)), 1)

    assert (trial.status, detail.status) == ("FINISHED", "FINISHED")
    assert trial.end == pytest.approx(detail.seconds, rel=0.2)
