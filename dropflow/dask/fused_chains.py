"""Fusion of tasks that follow each other alone into one task of dask."""

from collections.abc import Collection, Hashable, Mapping
from typing import Any

from dask._task_spec import fuse_linear_task_spec
from dask.task_spec import Alias, GraphNode

__all__ = ["with_fused_chains"]


def with_fused_chains(nodes: Mapping[Hashable, GraphNode], keys: Collection[Hashable]) -> Mapping[Hashable, Any]:
    """Return the part of a dask graph that `keys` need, with one task in the place of each chain.

    A graph in which a key is missing is returned as it is: its translation has an error for that.
    """
    left, needed = list(keys), dict[Hashable, GraphNode]()
    has_chains = False
    while left:
        key = left.pop()
        if key in needed:
            continue
        node = nodes.get(key)
        if node is None:
            return nodes
        needed[key] = node if node.key == key else _renamed(node, key)
        has_chains |= len(node.dependencies) == 1
        left += node.dependencies
    if not has_chains:
        return nodes
    fused: Mapping[Hashable, Any] = fuse_linear_task_spec(needed, keys=set(keys))
    return fused


def _renamed(node: GraphNode, key: Hashable) -> GraphNode:
    """Return a node with another key. Data frames from delayed values have nodes whose own keys are those of others."""
    if isinstance(node, Alias):
        return Alias(key, node.target)
    renamed: GraphNode = node.substitute({}, key=key)
    return renamed
