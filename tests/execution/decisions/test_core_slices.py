"""Cores of several nodes, each with a slice, that exchange events without order, together behave as one core."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import (
    NO_CAUSE,
    Abort,
    Begin,
    Finish,
    Finished,
    Lost,
    Publish,
    Release,
    Reported,
    foreign,
    row_of_foreign,
)
from dropflow.execution.decisions.invariants import check
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.states import DropState, SessionState
from dropflow.testing.drawing import draw, row
from tests.execution.decisions.core_cluster import CoreCluster, faults, patient, placed
from tests.graph.shapes import slice_by_place
from tests.strategies import expected_states, graphs, pipelines

GONE = Failure(code="DF220", kind="NodeLost", text="node b is lost")


@given(graphs(), st.integers(0, 2**32), st.integers(2, 4))
def test_the_final_states_of_many_nodes_follow_the_rules(graph: PhysicalGraph, seed: int, nodes: int) -> None:
    """For any partition and any order of events, every drop runs on one node and ends as the rules say."""
    graph = patient(graph)
    chance = random.Random(seed)
    fails, leaves_out = faults(graph, chance, 0.3)
    cluster = CoreCluster(placed(graph, chance, nodes), chance, fails=fails, leaves_out=leaves_out)
    cluster.run()
    wanted = expected_states(graph, fails=fails, leaves_out=leaves_out)

    assert cluster.states() == dict(enumerate(wanted))
    assert all(node.core.status.is_terminal for node in cluster.nodes.values())
    assert max((cluster.runs.count(drop) for drop in cluster.runs), default=0) <= 3


@pytest.mark.slow
@given(graphs() | pipelines(), st.integers(0, 2**32), st.integers(1, 4))
def test_streaming_changes_no_final_state(graph: PhysicalGraph, seed: int, nodes: int) -> None:
    """With streaming and without, with failures or not, applications end in the same state."""
    graph = patient(graph)
    chance = random.Random(seed)
    fails, leaves_out = faults(graph, chance, 0.2)
    wanted = expected_states(graph, fails=fails, leaves_out=leaves_out)
    streams = [number for number in range(len(graph.links)) if chance.random() < 0.8]
    cluster = CoreCluster(placed(graph, chance, nodes), chance, fails=fails, leaves_out=leaves_out, streams=streams)
    cluster.run()

    assert cluster.states() == dict(enumerate(wanted))
    assert all(node.core.status.is_terminal for node in cluster.nodes.values())
    assert not any(node.early for node in cluster.nodes.values())
    before = graph.predecessors
    for app, attempt in cluster.done.items():
        for data, written_by in cluster.read[app, attempt].items():
            assert cluster.done[before.neighbour[before.ptr[data]]] == written_by, "what was read became the content"


@given(graphs(), st.integers(0, 2**32), st.integers(2, 4))
def test_contents_and_their_copies_are_released(graph: PhysicalGraph, seed: int, nodes: int) -> None:
    """Without failures, every data drop with consumers is released on its node and on the nodes of its consumers."""
    chance = random.Random(seed)
    cluster = CoreCluster(placed(graph, chance, nodes), chance)
    cluster.run()
    for node in cluster.nodes.values():
        here = node.piece.graph
        read = [
            int(node.piece.drop[drop])
            for drop in range(here.drops)
            if not here.templates[here.template[drop]].kind
            and here.successors.ptr[drop + 1] > here.successors.ptr[drop]
            and node.core.drops.state(drop) is DropState.COMPLETED
        ]
        assert sorted(node.released) == sorted(read)


def _two(text: str, there: str) -> tuple[PhysicalGraph, Slice, Core]:
    """Return a drawn graph with one drop on another node, the slice of this node, and its core."""
    graph = draw(text)
    part = np.array([int(drop == row(graph, there)) for drop in range(graph.drops)], dtype=np.int32)
    piece = slice_by_place(replace(graph, part=part, places=("a", "b")))["a"]
    return piece.graph, piece, Core(piece.graph, remote=piece.ghosts.tolist())


def test_a_node_goes_on_while_other_nodes_have_consumers() -> None:
    """A session does not end on a node while a consumer elsewhere is not settled."""
    graph, _, core = _two("a -> B", "B")
    core.handle([Begin()])
    actions = core.handle([Finished(row(graph, "a"), 1)])

    assert Publish(row(graph, "a"), DropState.COMPLETED, NO_CAUSE, 1) in actions
    assert core.status is SessionState.RUNNING
    end = core.handle([Reported(row(graph, "B"), DropState.COMPLETED)])
    assert end == [Release(row(graph, "a")), Finish(SessionState.FINISHED)]


def test_an_output_skipped_elsewhere_is_skipped_here() -> None:
    """The output that a Branch on another node skips is SKIPPED, and the other one COMPLETED."""
    graph, _, core = _two("a -> B -> x, B -> y", "B")
    core.handle([Begin(), Finished(row(graph, "a"), 1)])
    core.handle([Reported(row(graph, "B"), DropState.COMPLETED, NO_CAUSE, 1, (row(graph, "x"),))])

    assert core.drops.state(row(graph, "x")) is DropState.SKIPPED
    assert core.drops.state(row(graph, "y")) is DropState.COMPLETED


def test_a_foreign_cause_is_kept() -> None:
    """An error that started at a drop outside of this slice has the row of that drop in the whole graph."""
    graph, _, core = _two("x -> A -> b", "x")
    core.handle([Begin()])
    core.handle([Reported(row(graph, "x"), DropState.ERROR, foreign(77))])

    assert {row_of_foreign(cause) for cause in core.drops.error_causes().values()} == {77}


def test_content_that_another_node_cannot_get_is_a_cause() -> None:
    """A drop that completed here is a cause of errors if another node could not fetch its content."""
    graph, _, core = _two("a -> B -> x", "B")
    core.handle([Begin(), Finished(row(graph, "a"), 1)])
    core.handle([Reported(row(graph, "B"), DropState.ERROR, row(graph, "a"))])

    assert core.drops.cause(row(graph, "x")) == row(graph, "a")
    assert core.drops.state(row(graph, "a")) is DropState.COMPLETED
    check(core)


def test_a_lost_node_ends_the_session() -> None:
    """What runs is aborted, what is not settled is CANCELLED, and the session is FAILED."""
    graph, _, core = _two("x -> A -> b, C -> d", "x")
    core.handle([Begin()])
    actions = core.handle([Lost("b", GONE)])

    assert actions == [Abort(row(graph, "C"), 1), Finish(SessionState.FAILED)]
    assert core.drops.state(row(graph, "A")) is DropState.CANCELLED


@pytest.mark.parametrize("state", [DropState.COMPLETED, DropState.ERROR])
def test_a_repeated_report_counts_once(state: DropState) -> None:
    """The second report of a drop is refused."""
    graph, _, core = _two("x -> A -> b", "x")
    core.handle([Begin()])
    news = Reported(row(graph, "x"), state)
    core.handle([news])
    core.handle([news])

    assert core.refused == 1
    assert core.drops.unsettled_remote == 0
