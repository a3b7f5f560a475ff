"""Real node managers in this process, with real sockets, each with its own root, which the others do not read."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from dropflow.api.requests import SubmitQuery
from dropflow.api.session_records import SessionDetail
from dropflow.clock import SystemClock
from dropflow.graph.physical import PhysicalGraph
from managers.deployment import Deployment
from managers.links import LinkSettings
from managers.node.hosted_session import HostedSession
from managers.node.manager import NodeManager
from managers.planning import plan_deployment

SECONDS = 60.0


class Cluster:
    """Node managers ``a``, ``b``..., with the steps of a deployment that an island would do."""

    def __init__(self, nodes: dict[str, NodeManager]) -> None:
        self.nodes = nodes

    def __getitem__(self, name: str) -> NodeManager:
        return self.nodes[name]

    def cut(self, graph: PhysicalGraph, session: str = "s") -> Deployment:
        """Return the deployment of a graph whose parts are on these nodes, in their order."""
        placed = replace(graph, places=tuple(self.nodes)[: graph.parts])
        infos = [info for node in self.nodes.values() for info in node.nodes()]
        return plan_deployment(placed, SubmitQuery(session=session, check=True), infos, clock=SystemClock())

    def prepare(self, deployment: Deployment, seconds: float = SECONDS) -> None:
        """Prepare a deployment on all nodes."""
        for name in deployment.nodes:
            self.nodes[name].prepare(deployment, seconds=seconds)

    def start(self, graph: PhysicalGraph, session: str = "s") -> Deployment:
        """Prepare and start a session, and return its deployment."""
        deployment = self.cut(graph, session)
        self.prepare(deployment)
        for name in deployment.nodes:
            self.nodes[name].start(session, deployment.epoch)
        return deployment

    def end(self, session: str = "s") -> dict[str, SessionDetail]:
        """Wait until a session is over on every node that has it, and return its details by node."""
        details = {}
        for name, node in self.nodes.items():
            if any(info.session == session for info in node.sessions()):
                details[name] = until(node, session, lambda detail: bool(detail.finished))
        return details

    def run(self, graph: PhysicalGraph, session: str = "s") -> dict[str, SessionDetail]:
        """Run a session from its graph to its end."""
        self.start(graph, session)
        return self.end(session)


def hosted(node: NodeManager, session: str = "s") -> HostedSession:
    """Return the session whose engine runs in a node manager of this process."""
    session_ = node._host.sessions[session]
    assert isinstance(session_, HostedSession)
    return session_


def session_threads(node: NodeManager, session: str = "s") -> list[threading.Thread]:
    """Return the thread that executes a session on a node, if it has not ended."""
    return [thread for thread in threading.enumerate() if thread.name == f"session-{session}@{node.name}"]


def handled(node: NodeManager, session: str = "s") -> None:
    """Wait until the node has handled all events that were posted to it so far."""
    node.watch(session, version=-1, seconds=0.0)


def settle(node: NodeManager, session: str = "s") -> None:
    """Wait until a session that is over has written all to its directory, and its node has noticed."""
    assert hosted(node, session).state.is_terminal
    for thread in session_threads(node, session):
        thread.join()
    handled(node, session)


def soon(holds: Callable[[], bool]) -> bool:
    """Wait until `holds`, and return whether it does."""
    pause = threading.Event()
    return any(holds() or pause.wait(0.01) for _ in range(6000))


def until(node: NodeManager, session: str, is_so: Callable[[SessionDetail], bool]) -> SessionDetail:
    """Wait until the details of a session on a node fulfil a condition."""
    version, clock = 0, SystemClock()
    deadline = clock.monotonic() + SECONDS
    while clock.monotonic() < deadline:
        detail = node.watch(session, version=version, seconds=1.0)
        if is_so(detail):
            return detail
        version = detail.version
    raise AssertionError(f"{session} on {node.name} did not come so far: {msgspec.to_builtins(detail)}")


@pytest.fixture(autouse=True)
def _short_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the use of processors in a hundredth of a second: few tests are about its value."""
    monkeypatch.setattr("managers.node.resources._SAMPLE_SECONDS", 0.01)


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Return a function that starts a cluster with a number of nodes."""
    quick = LinkSettings(heartbeat=0.1, receive_timeout=1.0, reconnect_delay_limit=0.1, last_acks=0.05)
    with ExitStack() as stack:

        def make(count: int, *, in_place: bool = False, lost_after: float = 10.0, workers: int = 2) -> Cluster:
            nodes = {}
            for name in "abcd"[:count]:
                manager = NodeManager(
                    name,
                    root=tmp_path / name,
                    runner="threads",
                    workers=workers,
                    in_place=in_place,
                    suspect_after=lost_after / 4,
                    lost_after=lost_after,
                    link_settings=quick,
                )
                nodes[name] = stack.enter_context(closing(manager))
            return Cluster(nodes)

        yield make
