"""Deploys translated graphs to managers that are configured.

The server calls the manager itself, with a signature of the cluster key. So the browser needs no credential of the
manager, and a request cannot make the server call another address.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from dropflow.api.addresses import http_parts
from dropflow.api.client import Client
from dropflow.api.node_records import NodeInfo
from dropflow.api.requests import SubmitQuery
from dropflow.errors import UsageError, WorldError
from dropflow.graph import codec
from dropflow.graph.physical import PhysicalGraph
from translator.web.records import (
    Deployed,
    DeployRequest,
)


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

    def __init__(self, managers: Sequence[str], connect: Callable[[str], Client]) -> None:
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
            nodes = client.nodes()
        alive = tuple(node for node in nodes if node.state == "alive")
        if not alive:
            hint = "start a node manager, or see the state of its nodes"
            raise WorldError("no node manager is alive at this manager", where=address, hint=hint)
        return alive

    def graph(self, manager: str, session: str) -> PhysicalGraph:
        """Return the graph of a session of a manager that is configured."""
        with closing(self._connect(self.known(manager))) as client:
            return client.graph(session)

    def deploy(self, graph: Path, manager: str, request: DeployRequest) -> Deployed:
        """Start a session with the graph in a ``.dfg`` file.

        Its parts are placed on the nodes of the manager, even if the graph names others.

        Raises
        ------
        DropflowError
            As `dropflow.api.manager.Manager.submit`.
        """
        address = self.known(manager)
        options = SubmitQuery.of(request, session=request.session, anew=True)
        with closing(self._connect(address)) as client:
            started = client.submit(codec.load(graph), options)
        return Deployed(
            session=started.session,
            manager=address,
            url=f"{address}/sessions/{quote(started.session, safe='')}",
            nodes=started.nodes,
        )


def _address(manager: str) -> str:
    parts = http_parts(manager)
    # Addresses are in the Content-Security-Policy of every page, where these characters would end a rule.
    if parts is None or parts.query or parts.fragment or any(sign in manager for sign in " ;,'\"<>\r\n"):
        raise UsageError(f"{manager!r} is not a manager URL", hint="give http://HOST:PORT")
    return manager.rstrip("/")
