"""What `dropflow doctor` finds out on other hosts: each manager connects to others and reports the results.

Nodes need the links of other nodes, islands and masters the REST servers of their children. A node also connects to the
REST servers of other nodes, which no session needs: the results show managers that cannot be asked from this host.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Literal

import msgspec

from dropflow.cli.doctor.evidence import Connection, ManagerReport
from dropflow.errors import DropflowError
from dropflow.rest.client import Client
from dropflow.rest.manager_records import NodeInfo, ProbeResult

__all__ = ["ProbePlan", "ProbeTarget", "plan_probes", "probe"]

_ADDRESSES = 32
"""Addresses in one request to a manager."""
_LONGEST = 10.0
"""Seconds that a manager may take for one request."""


class ProbeTarget(msgspec.Struct, frozen=True, kw_only=True):
    """An address to which a manager connects; see `Connection`."""

    far: str
    means: Literal["links", "rest"]
    address: str


class ProbePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses to which each manager connects.

    Attributes
    ----------
    targets : mapping
        By the URL of the manager that connects.
    planned, possible : int
        Connections between the links of nodes that are planned, and all that are possible.
    peers : int
        To how many other nodes each node connects at most.
    is_bounded : bool
        Whether there are more nodes than that.
    """

    targets: Mapping[str, tuple[ProbeTarget, ...]]
    planned: int
    possible: int
    peers: int
    is_bounded: bool


def plan_probes(reports: Sequence[ManagerReport], *, peers: int) -> ProbePlan:
    """Plan connections: each node to the `peers` nodes after it in a ring by name, islands and masters to children.

    So each node connects to as many nodes as connect to it, and in a cluster of up to ``peers + 1`` nodes all pairs of
    nodes are covered.
    """
    ring = sorted(_nodes(reports).values(), key=lambda node: (node.name, node.url))
    places = {node.url: place for place, node in enumerate(ring)}
    targets: dict[str, tuple[ProbeTarget, ...]] = {}
    planned = 0
    for report in reports:
        if report.info is None:
            continue
        found = [ProbeTarget(far=child.url, means="rest", address=child.url) for child in report.children]
        if report.info.role == "node" and report.url in places:
            start = places[report.url] + 1
            others = [ring[(start + step) % len(ring)] for step in range(min(peers, len(ring) - 1))]
            links = [ProbeTarget(far=node.url, means="links", address=node.links) for node in others if node.links]
            planned += len(links)
            found += links
            found += [ProbeTarget(far=node.url, means="rest", address=node.url) for node in others]
        if found:
            targets[report.url] = tuple(found)
    possible = len(ring) * (len(ring) - 1)
    return ProbePlan(targets=targets, planned=planned, possible=possible, peers=peers, is_bounded=peers < len(ring) - 1)


def probe(
    plan: ProbePlan, connect: Callable[[str], Client], *, timeout: float, pool: Executor
) -> tuple[tuple[Connection, ...], Mapping[str, str]]:
    """Make the managers connect as planned; return the connections, and the errors of managers that did not report."""
    answers = pool.map(lambda near: _probe_from(near, plan.targets[near], connect, timeout), plan.targets)
    found = dict(zip(plan.targets, answers, strict=True))
    connections = tuple(connection for some, _ in found.values() for connection in some)
    return connections, {near: error for near, (_, error) in found.items()}


def _nodes(reports: Iterable[ManagerReport]) -> dict[str, NodeInfo]:
    """Return all nodes that any manager reports, by URL; what a node reports about itself has precedence."""
    found: dict[str, NodeInfo] = {}
    for report in reports:
        for node in report.nodes:
            if node.url and (node.url == report.url or node.url not in found):
                found[node.url] = node
    return found


def _probe_from(
    near: str, targets: Sequence[ProbeTarget], connect: Callable[[str], Client], timeout: float
) -> tuple[list[Connection], str]:
    """Return the connections that a manager reports, and why some are missing, if some are."""
    results: dict[str, ProbeResult] = {}
    addresses = list(dict.fromkeys(target.address for target in targets))
    error_text = ""
    try:
        with connect(near) as client:
            for start in range(0, len(addresses), _ADDRESSES):
                some = addresses[start : start + _ADDRESSES]
                results |= {found.address: found for found in client.probe(some, seconds=min(timeout, _LONGEST))}
    except DropflowError as error:
        error_text = error.text
    connections = [
        Connection(near=near, far=target.far, means=target.means, result=results[target.address])
        for target in targets
        if target.address in results
    ]
    return connections, error_text
