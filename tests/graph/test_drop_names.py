"""Drops that are found by the names that people see."""

import numpy as np
import pytest

from dropflow.errors import AmbiguousError, NotFoundError
from dropflow.graph.text_ids import drops_named, find_drop, oid
from dropflow.testing.drawing import fan


def test_a_name_with_indices_names_one_drop() -> None:
    """As pages write it, as ids end, and with or without the root level, in any case."""
    graph = fan(12)
    drop = next(row for row in range(graph.drops) if oid(graph, row) == "fan_a_0-3")
    name = graph.templates[graph.template[drop]].name

    for text in (f"{name} 3", f"{name.upper()} 3", f"{name}_3", f"{name}_0-3", f"{name} 0-3"):
        assert drops_named(graph, text).tolist() == [drop], text
        assert find_drop(graph, text) == drop


def test_the_name_of_a_logical_node_names_all_its_drops() -> None:
    """With a single drop that is the one; of several, the error names some of them."""
    graph = fan(12)
    name = graph.templates[graph.template[1]].name

    assert drops_named(graph, name).tolist() == np.flatnonzero(graph.template == graph.template[1]).tolist()
    with pytest.raises(AmbiguousError, match=f"{len(drops_named(graph, name))} drops are named '{name}'"):
        find_drop(graph, name)


def test_other_texts_name_no_drop() -> None:
    """Nor do indices that the node does not have."""
    graph = fan(12)
    name = graph.templates[graph.template[1]].name

    assert drops_named(graph, "").tolist() == drops_named(graph, "_").tolist() == []
    with pytest.raises(NotFoundError, match="there is no drop"):
        find_drop(graph, f"{name} 77")
