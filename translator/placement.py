"""Placement: the node of each part."""

from collections.abc import Sequence
from dataclasses import replace

from dropflow.failure import refuse_errors
from dropflow.graph.physical import PhysicalGraph
from translator.problem_codes import problem


def place(graph: PhysicalGraph, nodes: Sequence[str]) -> PhysicalGraph:
    """Return the graph with part k on the k-th node.

    Nodes after the last part are not used and not in the graph.

    Raises
    ------
    BadGraphError
        PT002: there are fewer nodes than parts, a node is named twice, or has no name.
    """
    found = []
    if len(nodes) < graph.parts:
        text = f"{graph.parts} parts cannot be placed on {len(nodes)} nodes"
        found.append(problem("PT002", text, where="nodes", hint=f"name {graph.parts} nodes, or partition into fewer"))
    twice = sorted({node for node in nodes if list(nodes).count(node) > 1})
    if twice:
        text = f"node {twice[0]!r} is named more than once"
        found.append(problem("PT002", text, where="nodes", hint="each node takes one part"))
    if not all(nodes):
        found.append(problem("PT002", "a node has no name", where="nodes", hint="give each node a name"))
    refuse_errors(found)
    return replace(graph, places=tuple(nodes[: graph.parts]))
