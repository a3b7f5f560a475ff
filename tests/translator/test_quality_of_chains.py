"""The quality of a partition counts the chains that run as one unit, and those that it divides."""

from dataclasses import replace

import numpy as np

from dropflow.graph.physical import without_fusion
from dropflow.testing.drawing import draw
from translator.plan.quality import quality_of


def test_chains_of_a_plan_are_counted() -> None:
    """A -> B -> C -> D in two parts: B follows A, D follows C, and C would follow B in one part."""
    graph = draw("A -> x -> B -> y -> C -> z -> D")
    parted = replace(graph, part=np.array([0, 0, 0, 0, 1, 1, 1], dtype=np.int32))
    whole, divided, apart = quality_of(graph), quality_of(parted), quality_of(without_fusion(parted))

    assert (whole.fused, whole.divided) == (3, 0)
    assert (divided.fused, divided.divided) == (2, 1)
    assert (apart.fused, apart.divided) == (0, 0)
