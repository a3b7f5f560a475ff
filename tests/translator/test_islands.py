import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from tests.graph.shapes import graphs
from translator.options import PartitionOptions
from translator.plan.registry import partition
from translator.plan.steering import grouped_in_islands, island_of


@given(graphs(), st.integers(1, 9), st.integers(1, 4))
def test_only_the_numbers_of_parts_change(graph: PhysicalGraph, parts: int, islands: int) -> None:
    """Drops that shared a part share one afterwards, and others do not."""
    part = np.arange(graph.drops, dtype=np.int32) % parts
    made = grouped_in_islands(graph, part, parts, islands)

    assert len(set(zip(part.tolist(), made.tolist(), strict=True))) == len(set(part.tolist()))
    assert set(made.tolist()) <= set(range(parts))
    sizes = [sum(island_of(one, parts, islands) == number for one in range(parts)) for number in range(islands)]
    assert max(sizes) - min(sizes) <= 1


def test_parts_that_exchange_much_are_in_one_island() -> None:
    """Two pairs of parts with heavy traffic inside each pair become the two islands."""
    builder = GraphBuilder()
    for number, other in ((0, 2), (1, 3)):
        builder.app(f"A{number}", part=number).data(f"d{number}", weight=100, part=number)
        builder.app(f"A{other}", part=other)
        builder.connect(f"A{number}", f"d{number}").connect(f"d{number}", f"A{other}")
    graph = builder.build()
    made = grouped_in_islands(graph, graph.part, 4, 2).tolist()

    assert island_of(made[0], 4, 2) == island_of(made[2], 4, 2)
    assert island_of(made[0], 4, 2) != island_of(made[3], 4, 2)
    assert partition(graph, PartitionOptions(algorithm="blocks", parts=4, islands=2)).parts == 4
