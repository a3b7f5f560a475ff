"""Deploying a translated graph: only to managers that the translator was started with, and never by the browser.

The server calls the manager itself, signed with the cluster key, so that no page needs rights at two servers and
nobody can make the server call an address of their choice.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

from dropflow import graph_file
from dropflow.errors import UsageError, WorldError
from dropflow.graph.physical import PhysicalGraph
from dropflow.rest.schema import NodeInfo, SessionInfo, SubmitQuery
from translator.web.records import Deployed

__all__ = ["Deployer", "ManagerClient"]


class ManagerClient(Protocol):
    """What is needed of `dropflow.rest.client.Client`."""

    def nodes(self) -> tuple[NodeInfo, ...]:
        """All node managers at or below the manager."""
        ...

    def submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Deploy a graph and start it."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class Deployer:
    """The managers that may be called.

    Parameters
    ----------
    managers : sequence of str
        Their addresses.
    connect : callable
        Makes a client for one of them.

    Raises
    ------
    UsageError
        An address is no ``http://host:port``.
    """

    def __init__(self, managers: Sequence[str], connect: Callable[[str], ManagerClient]) -> None:
        self.managers = tuple(dict.fromkeys(_address(manager) for manager in managers))
        self._connect = connect

    def known(self, manager: str) -> str:
        """The address of `manager` as it was configured.

        Raises
        ------
        UsageError
            It is none of those.
        """
        wanted = manager.rstrip("/")
        if wanted in self.managers:
            return wanted
        allowed = ", ".join(self.managers)
        raise UsageError(
            f"this translator does not deploy to {manager!r:.200}",
            where="manager",
            hint=f"choose one of {allowed}" if allowed else "start it with --to and the addresses of managers",
        )

    def alive(self, manager: str) -> tuple[str, ...]:
        """Names of the nodes at or below `manager` that are alive, sorted.

        Raises
        ------
        UsageError
            It is no manager that may be called.
        WorldError
            It cannot be reached, or no node is alive.
        """
        address = self.known(manager)
        with closing(self._connect(address)) as client:
            found = client.nodes()
        names = tuple(sorted(node.name for node in found if node.state == "alive"))
        if not names:
            hint = "start a node manager, or see what became of those that there were"
            raise WorldError("no node manager is alive there", where=address, hint=hint)
        return names

    def deploy(self, graph: Path, manager: str, session: str) -> Deployed:
        """Start a session with the graph in a ``.dfg`` file.

        Its parts go to the nodes that there are, whatever places the graph names.

        Raises
        ------
        DropflowError
            As `managers.api.Manager.submit`.
        """
        address = self.known(manager)
        options = SubmitQuery(session=session, anew=True)
        with closing(self._connect(address)) as client:
            started = client.submit(graph_file.load(graph), options)
        return Deployed(
            session=started.session,
            manager=address,
            url=f"{address}/sessions/{quote(started.session, safe='')}",
            nodes=started.nodes,
        )


def _address(manager: str) -> str:
    try:
        parts = urlsplit(manager)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or True)
    except ValueError:
        usable = False
    # Addresses stand in a header of every page (its content security policy), where these would end a rule.
    if not usable or parts.query or parts.fragment or any(sign in manager for sign in " ;,'\"<>\r\n"):
        raise UsageError(f"{manager!r} is no address of a manager", hint="give http://HOST:PORT")
    return manager.rstrip("/")
