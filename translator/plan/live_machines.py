"""Machines as the managers report them now: their capacities, and what is left of them beside other load."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from dropflow.api.records import NodeInfo
from dropflow.graph.templates import Template, needs_of
from translator.plan.machines import Machines, NodeCapacity

_USE_STEP = 0.1
"""Use of processors is rounded to tenths, so that nodes that are idle but for noise are equal."""


class LiveMachines(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a cluster that can be planned for.

    Attributes
    ----------
    nodes : tuple of NodeCapacity
        Those that are alive, sorted by name; none if no node is.
    left_out : tuple of str
        Why the others are left out, a text for each.
    """

    nodes: tuple[NodeCapacity, ...]
    left_out: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(node.name for node in self.nodes)

    def machines(self, count: int, templates: Iterable[Template] = ()) -> Machines:
        """Return at most `count` nodes, those with the most free capacity, sorted by name.

        If there is a node with as many GPUs as any of these templates needs, such a node is among them.
        """
        gpus = max((needs_of(template).gpus for template in templates), default=0)
        best = sorted(self.nodes, key=lambda node: (-node.cores * node.speed, node.name))
        able = next((node for node in best if node.gpus >= gpus), None)
        if able is not None and able not in best[:count]:
            best = [*best[: count - 1], able]
        return Machines(nodes=tuple(sorted(best[:count], key=lambda node: node.name)))


def live_machines(nodes: Sequence[NodeInfo]) -> LiveMachines:
    """Return what the nodes of a cluster can do now.

    A node has as many cores as workers. Its speed is 1 if its host is idle. Busy processors are shared with what runs
    on them: if all are busy the speed is 1/2. Node managers on one host share its processors and its free memory.
    GPUs count also while other sessions use them: applications wait for them.
    """
    alive = sorted((node for node in nodes if node.state == "alive"), key=lambda node: node.name)
    hosts: dict[str, list[NodeInfo]] = {}
    for node in alive:
        hosts.setdefault(node.host or node.name, []).append(node)
    return LiveMachines(
        nodes=tuple(_capacity(node, hosts[node.host or node.name]) for node in alive),
        left_out=tuple(
            f"node {node.name} is {node.state}" + (f": {node.text}" if node.text else "")
            for node in sorted(nodes, key=lambda node: node.name)
            if node.state != "alive"
        ),
    )


def _capacity(node: NodeInfo, neighbours: Sequence[NodeInfo]) -> NodeCapacity:
    """Return the capacity of a node; `neighbours` are all on its host, with itself."""
    used = sum(one.load.processor for one in neighbours) / len(neighbours) / 100.0
    used = min(max(round(used / _USE_STEP) * _USE_STEP, 0.0), 1.0)
    wanted = sum(_cores(one) for one in neighbours)
    share = min(1.0, node.load.cores / wanted) if node.load.cores else 1.0
    memory = min(one.load.memory_free for one in neighbours) / len(neighbours) if node.load.memory else math.inf
    return NodeCapacity(
        name=node.name,
        cores=_cores(node),
        speed=share / (1.0 + used),
        memory=memory,
        gpus=node.load.gpus,
        island=node.island,
    )


def _cores(node: NodeInfo) -> int:
    return max(node.load.workers or node.load.cores, 1)
