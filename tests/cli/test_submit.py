"""How a graph is fitted to the nodes that there are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dropflow.cli.submit import PlacementOptions, fit
from dropflow.errors import UsageError
from dropflow.graph.physical import PhysicalGraph
from dropflow.testing.shapes import fan
from translator.options import PartitionOptions
from translator.partition.registry import partition

NODES = ("a", "b", "c")


def fitted(graph: PhysicalGraph, **options: Any) -> PhysicalGraph:
    """The graph as it is deployed."""
    return fit(graph, NODES, PlacementOptions(**options))


def test_a_whole_graph_is_cut_for_all_nodes() -> None:
    """One part on each node."""
    assert fitted(fan(30)).places == NODES


def test_a_graph_smaller_than_the_cluster_uses_fewer_nodes() -> None:
    """There are no empty parts."""
    small = fitted(fan(0))

    assert small.parts == len(small.places) < len(NODES)


def test_what_is_placed_already_stays_there() -> None:
    """The nodes that a graph names are those it goes to, whether they are here or not."""
    placed = replace(partition(fan(30), PartitionOptions(parts=2)), places=("x", "y"))

    assert fitted(placed) is placed


def test_what_is_placed_already_can_be_placed_anew() -> None:
    """With --anew the parts stay and the places are ours; with --parts the parts are new, too."""
    placed = replace(partition(fan(30), PartitionOptions(parts=2)), places=("x", "y"))
    anew = fitted(placed, anew=True)

    assert anew.places == NODES[:2]
    assert np.array_equal(anew.part, placed.part)
    assert fitted(placed, parts=3).places == NODES


def test_what_is_cut_already_stays_cut() -> None:
    """The parts of an earlier command are placed as they are."""
    cut = partition(fan(30), PartitionOptions(parts=2, algorithm="blocks"))

    assert np.array_equal(fitted(cut).part, cut.part)


def test_more_parts_than_nodes_are_left_to_the_manager() -> None:
    """It knows best how to go around its nodes."""
    many = fitted(fan(30), parts=7)

    assert (many.parts, many.places) == (7, ())


def test_random_parts_and_an_algorithm_exclude_each_other() -> None:
    """Both at once are refused."""
    with pytest.raises(UsageError, match="--random and --algorithm"):
        fitted(fan(30), seed=1, algorithm="blocks")
