"""Sessions that go on after the loss of nodes, in clusters on virtual time."""

from pathlib import Path

import pytest

from managers.machine_calls import Answered
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.test_cluster import _fan


def _cluster(seed: int, directory: Path, seconds: float = 1.0) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, directory, workload=Workload(seconds=seconds))
    assert cluster.wait_for_nodes()
    return cluster


@pytest.mark.parametrize("after", [0.1, 1.0, 2.0, 4.0, 8.0])
def test_a_session_survives_the_loss_of_a_node(after: float, tmp_path: Path) -> None:
    """Whenever one of six nodes is lost, the session finishes on the others, with every drop completed."""
    cluster = _cluster(1, tmp_path)
    assert isinstance(cluster.submit(_fan(8), "s"), Answered)
    cluster.simulation.wait(after)
    cluster.nodes["n1-2"].process.crash()

    ended = cluster.finish("s", seconds=200.0)

    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})
