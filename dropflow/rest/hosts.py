"""The hosts of node managers: several of them on one host share its processors, which count once."""

from collections.abc import Iterable

from dropflow.rest.manager_records import NodeInfo

__all__ = ["cores_of_hosts"]


def cores_of_hosts(nodes: Iterable[NodeInfo]) -> dict[str, int]:
    """Return the processors of each host with a node that is not lost: the most that one of its nodes may use.

    A node whose host is not known is a host of its own.
    """
    found: dict[str, int] = {}
    for node in nodes:
        if node.state != "lost":
            host = node.host or node.name
            found[host] = max(found.get(host, 0), node.load.cores)
    return found
