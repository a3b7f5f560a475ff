"""Deploys translated graphs to managers that are configured.

The server calls the manager itself, with a signature of the cluster key. So the browser needs no credential of the
manager, and a request cannot make the server call another address.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

from dropflow import graph_file
from dropflow.errors import UsageError, WorldError
from dropflow.graph.physical import PhysicalGraph
from dropflow.rest.manager_records import NodeInfo
from dropflow.rest.session_records import SessionInfo, SubmitQuery
from translator.web.records import Deployed, DeployRequest

__all__ = ["Deployer", "ManagerClient"]


class ManagerClient(Protocol):
    """The methods of `dropflow.rest.client.Client` that are used."""

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Return all node managers at or below the manager."""
        ...

    def submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Deploy a graph and start it."""
        ...

    def close(self) -> None:
        """Close the connection."""
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
        An address is not a URL such as ``http://host:port``.
    """

    def __init__(self, managers: Sequence[str], connect: Callable[[str], ManagerClient]) -> None:
        self.managers = tuple(dict.fromkeys(_address(manager) for manager in managers))
        self._connect = connect

    def known(self, manager: str) -> str:
        """Return the configured address of a manager.

        Raises
        ------
        UsageError
            It is not configured.
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
        """Return the sorted names of the nodes at or below a manager that are alive. Raises as `nodes`."""
        return tuple(sorted(node.name for node in self.nodes(manager)))

    def nodes(self, manager: str) -> tuple[NodeInfo, ...]:
        """Return the nodes at or below a manager that are alive, with their load now.

        Raises
        ------
        UsageError
            The manager is not configured.
        WorldError
            It cannot be reached, or no node is alive.
        """
        address = self.known(manager)
        with closing(self._connect(address)) as client:
            found = client.nodes()
        alive = tuple(node for node in found if node.state == "alive")
        if not alive:
            hint = "start a node manager, or see the state of its nodes"
            raise WorldError("no node manager is alive at this manager", where=address, hint=hint)
        return alive

    def deploy(self, graph: Path, manager: str, request: DeployRequest) -> Deployed:
        """Start a session with the graph in a ``.dfg`` file.

        Its parts are placed on the nodes of the manager, even if the graph names others.

        Raises
        ------
        DropflowError
            As `managers.api.Manager.submit`.
        """
        address = self.known(manager)
        options = SubmitQuery.of(request, session=request.session, anew=True)
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
    # Addresses are in the Content-Security-Policy of every page, where these characters would end a rule.
    if not usable or parts.query or parts.fragment or any(sign in manager for sign in " ;,'\"<>\r\n"):
        raise UsageError(f"{manager!r} is not a manager URL", hint="give http://HOST:PORT")
    return manager.rstrip("/")
