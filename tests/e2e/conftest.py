"""Node managers in one process, with networks between them that fail."""

import random
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from dropflow.api.drop_records import DropQuery
from dropflow.api.requests import SubmitQuery
from dropflow.clock import SystemClock
from dropflow.graph.order import leaves
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from managers.links import LinkSettings
from managers.node.manager import NodeManager
from managers.planning import plan_deployment
from tests.faulty_proxy import FaultyProxy
from tests.streaming_graphs import Picture

_SECONDS = 60.0
_NAMES = ("a", "b", "c")
_QUICK = LinkSettings(heartbeat=0.2, receive_timeout=1.0, reconnect_delay=0.02, reconnect_delay_limit=0.1)


@dataclass
class FaultyCluster:
    """Three node managers, with a faulty proxy between each pair of them in each direction."""

    nodes: dict[str, NodeManager]
    proxies: dict[tuple[str, str], FaultyProxy]

    def run(self, graph: PhysicalGraph, session: str) -> Picture:
        """Run a graph; each node reaches the others through its proxies."""
        infos = [info for node in self.nodes.values() for info in node.nodes()]
        deployment = plan_deployment(graph, SubmitQuery(session=session, check=True), infos, clock=SystemClock())
        for name, node in self.nodes.items():
            places = tuple(
                msgspec.structs.replace(place, address=f"tcp://127.0.0.1:{self.proxies[name, place.node].port}")
                if place.node != name
                else place
                for place in deployment.places
            )
            mine = msgspec.structs.replace(deployment, places=places)
            node.prepare(mine, seconds=_SECONDS)
        for node in self.nodes.values():
            node.start(session, deployment.epoch)
        for node in self.nodes.values():
            _proxy_wait(node, session)
        return self._picture(graph, session)

    def _picture(self, graph: PhysicalGraph, session: str) -> Picture:
        wanted = set(oids(graph, leaves(graph)))
        states, contents = {}, {}
        for node in self.nodes.values():
            for drop in node.drops(session, DropQuery(limit=1000)).drops:
                states[drop.oid] = drop.state
                if drop.oid in wanted:
                    contents[drop.oid] = zlib.crc32(b"".join(node.data(session, drop.oid).chunks))
        return states, contents


@pytest.fixture
def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultyCluster]:
    """Return three node managers without common files, with faulty proxies between them."""
    faults, seed = request.param
    with ExitStack() as stack:
        nodes = {
            name: stack.enter_context(
                closing(
                    NodeManager(
                        name,
                        root=tmp_path / name,
                        runner="threads",
                        workers=2,
                        suspect_after=10.0,
                        lost_after=40.0,
                        in_place=False,
                        link_settings=_QUICK,
                    )
                )
            )
            for name in _NAMES
        }
        rng = random.Random(seed)
        proxies = {
            (near, far): stack.enter_context(FaultyProxy(_address(nodes[far]), rng.randrange(2**32), faults))
            for near in _NAMES
            for far in _NAMES
            if near != far
        }
        yield FaultyCluster(nodes, proxies)


def _address(node: NodeManager) -> tuple[str, int]:
    parts = urlsplit(node.links_address)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def _proxy_wait(node: NodeManager, session: str) -> None:
    clock, version = SystemClock(), 0
    deadline = clock.monotonic() + _SECONDS
    detail = node.session(session)
    while not detail.finished:
        assert clock.monotonic() < deadline, f"{session} does not end on {node.name}: {detail}"
        detail = node.watch(session, version=version, seconds=2.0)
        version = detail.version
