"""The size of a physical graph, computed from its plan before it is made."""

import msgspec

from dropflow.graph.templates import Kind
from translator.unroll import UnrollPlan

__all__ = ["Estimate", "NodeEstimate", "estimate"]

_DROP_BYTES = 4 + 4 + 4 + 8
_EDGE_BYTES = 4 + 4


class NodeEstimate(msgspec.Struct, frozen=True):
    """One logical node: its key in text ids, its name, and its number of drops."""

    key: str
    name: str
    drops: int


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a physical graph. Numbers are Python integers and never overflow.

    Attributes
    ----------
    drops, data_drops, app_drops : int
        Numbers of drops.
    edges : int
        Number of edges.
    bytes : int
        Memory of the columns: 20 bytes for each drop and 8 for each edge. Unrolling needs about twice as much.
    nodes : tuple of NodeEstimate
        The logical nodes, in the order of the file.
    """

    drops: int
    data_drops: int
    app_drops: int
    edges: int
    bytes: int
    nodes: tuple[NodeEstimate, ...]

    @property
    def largest(self) -> tuple[NodeEstimate, ...]:
        """The nodes by number of drops, largest first."""
        return tuple(sorted(self.nodes, key=lambda node: -node.drops))


def estimate(plan: UnrollPlan) -> Estimate:
    """Return the size of the physical graph of a plan.

    The size is exact. If it exceeds the limits, the plan has the problem LG120.
    """
    sizes = plan.sizes
    data = sum(size for size, template in zip(sizes, plan.templates, strict=True) if template.kind is Kind.DATA)
    return Estimate(
        drops=plan.drops,
        data_drops=data,
        app_drops=plan.drops - data,
        edges=plan.edges,
        bytes=plan.drops * _DROP_BYTES + plan.edges * _EDGE_BYTES,
        nodes=tuple(
            NodeEstimate(template.key, template.name, size)
            for template, size in zip(plan.templates, sizes, strict=True)
        ),
    )
