"""What a graph plans for its attempts, as far as it is declared."""

from dropflow.graph.physical import PhysicalGraph

__all__ = ["planned_seconds"]

_DEFAULT = 1.0
"""Seconds of a node without a declared time: what the translator assumes, and what palettes begin with."""


def planned_seconds(graph: PhysicalGraph) -> list[float]:
    """Return the planned seconds of an attempt of each template; 0 if no time was declared.

    A node with the time of new nodes counts as one without: the two are the same in the graph.
    """
    return [0.0 if seconds == _DEFAULT else float(seconds) for seconds in graph.template_seconds]
