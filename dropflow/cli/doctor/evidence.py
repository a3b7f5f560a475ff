"""What `dropflow doctor` collects about a cluster, and what it finds wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import msgspec

from dropflow.api.records import Child, ManagerInfo, NodeInfo, ProbeResult

__all__ = ["Connection", "Evidence", "Finding", "ManagerReport"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong: where, what, and what to do."""

    where: str
    text: str
    hint: str


class ManagerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one manager to this host.

    Attributes
    ----------
    url : str
        The address at which it was asked.
    info : ManagerInfo or None
        Its name, version, key and so on; None if it did not answer.
    skew : float
        Seconds by which its clock is ahead of the clock of this host.
    delay : float
        Seconds that it took to answer.
    children, nodes : tuples
        The managers below it.
    links : str
        Why the port of its links cannot be reached from this host; empty if it can, or if it has none.
    code, trouble, hint : str
        Stable code of the error, why it did not answer, and what to do.
    probe_error : str
        Why it did not report its connections; empty if it did, or was not asked.
    """

    url: str
    info: ManagerInfo | None = None
    skew: float = 0.0
    delay: float = 0.0
    children: tuple[Child, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    links: str = ""
    code: str = ""
    trouble: str = ""
    hint: str = ""
    probe_error: str = msgspec.field(default="", name="mute")


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that one manager tried to make to another.

    Attributes
    ----------
    near, far : str
        URLs of the manager that connected and of the other one.
    means : str
        ``links`` between nodes, ``rest`` for requests.
    result : ProbeResult
        What the near manager reported.
    """

    near: str
    far: str
    means: Literal["links", "rest"]
    result: ProbeResult = msgspec.field(name="reach")


@dataclass(frozen=True)
class Evidence:
    """Everything that the checks judge: the reports of all managers, the one that was asked first, and connections."""

    managers: tuple[ManagerReport, ...]
    connections: tuple[Connection, ...] = ()

    @cached_property
    def identities(self) -> Mapping[str, tuple[str, str]]:
        """Role and name of the manager at each URL; what a manager reports about itself has precedence."""
        found: dict[str, tuple[str, str]] = {}
        for report in self.managers:
            for child in report.children:
                found.setdefault(child.url, (child.role, child.name or child.url))
            for node in report.nodes:
                found.setdefault(node.url, ("node", node.name))
        own = {report.url: (report.info.role, report.info.name) for report in self.managers if report.info}
        return found | own

    @cached_property
    def links(self) -> tuple[Connection, ...]:
        """The connections between the links of nodes."""
        return tuple(connection for connection in self.connections if connection.means == "links")

    @cached_property
    def requests_of_nodes(self) -> tuple[Connection, ...]:
        """The connections from nodes to REST servers of other nodes, which no session needs."""
        return tuple(connection for connection in self._requests if self._is_node(connection.near))

    @cached_property
    def requests_to_children(self) -> tuple[Connection, ...]:
        """The connections from islands and masters to the REST servers of their children."""
        return tuple(connection for connection in self._requests if not self._is_node(connection.near))

    def label(self, url: str) -> str:
        """Return the role and name of the manager at `url`."""
        return " ".join(self.identities.get(url, (url,)))

    @property
    def _requests(self) -> tuple[Connection, ...]:
        return tuple(connection for connection in self.connections if connection.means == "rest")

    def _is_node(self, url: str) -> bool:
        return url in self.identities and self.identities[url][0] == "node"
