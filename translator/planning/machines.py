"""The machines that a plan is made for: nodes of different capacity, and the links between them."""

import math
from collections.abc import Sequence

import msgspec

__all__ = ["DEFAULT_BANDWIDTH", "LinkSpeed", "Machines", "NodeCapacity", "equal_machines"]

DEFAULT_BANDWIDTH = 128.0 * 1024 * 1024
"""Bytes per second of a link whose bandwidth is not given: about that of gigabit Ethernet."""


class NodeCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """The capacity of a node.

    Attributes
    ----------
    name : str
        Its name, unique among the nodes of a plan.
    cores : int
        Processors, at least 1.
    speed : float
        Execution times are divided by it.
    memory : float
        Bytes for applications that declare what they need; infinite if it is not limited.
    island : str
        Name of its data island. Nodes without one are in an island together.
    """

    name: str
    cores: int = 1
    speed: float = 1.0
    memory: float = math.inf
    island: str = ""


class LinkSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of links: bytes per second, and seconds before the first byte arrives."""

    bandwidth: float = DEFAULT_BANDWIDTH
    latency: float = 0.0


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes and links.

    Attributes
    ----------
    nodes : tuple of NodeCapacity
        At least one; part k of a plan is on the k-th.
    links : LinkSpeed
        Speed of the link of each node, in each direction.
    between_islands : LinkSpeed or None
        Speed of the link of each island to the others, in each direction; None if only the links of nodes count.
    contention : bool
        Whether moves share links. Otherwise each has the bandwidth of its links to itself, as in most papers.
    """

    nodes: tuple[NodeCapacity, ...]
    links: LinkSpeed = LinkSpeed()
    between_islands: LinkSpeed | None = None
    contention: bool = True

    @property
    def islands(self) -> tuple[str, ...]:
        """The names of the islands, in the order of their first nodes."""
        return tuple(dict.fromkeys(node.island for node in self.nodes))

    @property
    def fastest(self) -> float:
        """The largest speed of a node."""
        return max(node.speed for node in self.nodes)

    @property
    def power(self) -> float:
        """The work that all cores do in a second."""
        return sum(node.cores * node.speed for node in self.nodes)

    def first(self, count: int) -> "Machines":
        """Return these machines with their first `count` nodes only."""
        return msgspec.structs.replace(self, nodes=self.nodes[:count])

    def limited(self, dop: int, memory: float) -> "Machines":
        """Return these machines with at most `dop` cores (0 for all) and so many bytes of memory each."""
        nodes = tuple(
            msgspec.structs.replace(
                node, cores=min(node.cores, dop) if dop else node.cores, memory=min(node.memory, memory)
            )
            for node in self.nodes
        )
        return msgspec.structs.replace(self, nodes=nodes)

    def bandwidth(self, source: int, target: int) -> float:
        """Return the bytes per second of a move that has its links to itself."""
        between = self.between_islands
        if between is None or self.nodes[source].island == self.nodes[target].island:
            return self.links.bandwidth
        return min(self.links.bandwidth, between.bandwidth)

    def latency(self, source: int, target: int) -> float:
        """Return the seconds before a move begins."""
        between = self.between_islands
        if between is None or self.nodes[source].island == self.nodes[target].island:
            return self.links.latency
        return between.latency


def equal_machines(count: int, *, cores: int = 1, names: Sequence[str] = ()) -> Machines:
    """Return `count` equal nodes of speed 1, called ``#0``, ``#1``... if they are not named."""
    given = names or tuple(f"#{number}" for number in range(count))
    return Machines(nodes=tuple(NodeCapacity(name=name, cores=cores) for name in given))
