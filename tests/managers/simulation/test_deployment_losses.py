"""Nodes that are lost or stopped while a session is deployed: it runs on those that are left, or nowhere."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from dropflow.api.records import SubmitQuery
from dropflow.errors import LinkError, NotFoundError
from managers.machine_calls import Answered, Unanswered
from managers.membership import LOST_AFTER
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.test_cluster import _fan


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("has_master", [False, True])
@pytest.mark.parametrize("is_placed", [False, True])
def test_the_answer_to_a_submission_is_definite_although_a_node_is_lost_meanwhile(
    tmp_path: Path, *, stops: bool, has_master: bool, is_placed: bool
) -> None:
    """Soon after a node counts as lost, the session runs on the other nodes, or is refused and left nowhere.

    A repeated submission gets the same answer, and a node that was only stopped keeps nothing either.
    """
    for seed in range(3):
        chance = random.Random(seed)  # noqa: S311 - not for secrets
        directory = tmp_path / str(seed)
        directory.mkdir()
        cluster = SimulatedCluster(
            seed, directory, islands=1, nodes=3, has_master=has_master, workload=Workload(seconds=0.5)
        )
        assert cluster.wait_for_nodes()
        graph = _fan(4, parts=3)
        graph = replace(graph, places=tuple(cluster.nodes)) if is_placed else graph
        lost = cluster.nodes[chance.choice(list(cluster.nodes))]
        cluster.simulation.call_later(chance.uniform(0.0, 0.012), lost.process.pause if stops else lost.process.crash)
        began = cluster.simulation.time
        options = SubmitQuery(session="s", request_id="r")
        answer = cluster.call("submit", graph=graph, options=options)
        assert cluster.simulation.time - began < LOST_AFTER + 10.0
        others = [node for node in cluster.nodes.values() if node is not lost]
        if isinstance(answer, Answered):
            detail = cluster.finish("s", seconds=60.0)
            assert detail is not None
            assert detail.status == "FINISHED"
            continue
        assert is_placed
        assert lost.name in str(answer.error)
        cluster.simulation.wait(1.0)
        assert not any("s" in node.sessions for node in others)
        looked_up = cluster.call("session", session="s")
        assert isinstance(looked_up, Unanswered)
        assert isinstance(looked_up.error, NotFoundError)
        again = cluster.call("submit", graph=graph, options=options)
        assert isinstance(again, Unanswered)
        assert not isinstance(again.error, LinkError)
        if stops:
            lost.process.resume()
            cluster.simulation.wait(30.0)
            assert "s" not in lost.sessions
