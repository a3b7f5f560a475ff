"""Chains of tasks of dask become one task."""

import operator
from typing import Any

import pytest
from dask.task_spec import Alias, DataNode, GraphNode, Task, TaskRef

from dropflow.dask.translate import with_fused_chains


def _value(nodes: Any, key: str) -> Any:
    node = nodes[key]
    return node({needed: _value(nodes, needed) for needed in node.dependencies})


@pytest.mark.parametrize(
    "middle",
    [Alias("first"), Alias("another", "first"), Task("another", operator.neg, TaskRef("first"))],
    ids=["alias-of-itself", "alias", "task"],
)
def test_chains_whose_nodes_have_keys_of_others(middle: GraphNode) -> None:
    """A node may have another key than the graph has for it, as in data frames made from delayed values."""
    nodes = {
        "first": DataNode("constant", 3),
        "middle": middle,
        "last": Task("last", operator.add, TaskRef("middle"), 1),
    }

    fused = with_fused_chains(nodes, ["last"])

    assert len(fused) <= 2  # dask gives the chain a name of its own, and an alias
    assert _value(fused, "last") == _value(nodes, "last")
