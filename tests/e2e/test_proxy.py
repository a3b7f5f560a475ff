"""A network between the nodes that delays, stalls, throttles and cuts changes no result.

The faults are drawn from a seed, which is in the test's name. With DROPFLOW_SOAK=1 there are ten seeds for each kind of
fault.
"""

import os
import random
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from dropflow.api.records import DropQuery, SubmitQuery
from dropflow.clock import SystemClock
from dropflow.engine.session import Session
from dropflow.graph.order import leaves
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from dropflow.sessions import local_run
from dropflow.states import DropState
from dropflow.testing.faults import ConnectionFaults, FaultyProxy
from managers.links import LinkSettings
from managers.node.downloads import content_download
from managers.node.manager import NodeManager
from managers.planning import plan_deployment
from tests.e2e.cluster import pipeline, scattered

pytestmark = pytest.mark.slow

_NAMES = ("a", "b", "c")
_QUICK = LinkSettings(heartbeat=0.2, receive_timeout=1.0, reconnect_delay=0.02, reconnect_delay_limit=0.1)
_SECONDS = 60.0
_SIZES = {"small": 10, "inline": 3_000, "large": 300_000, "huge": 3_000_000}
_SEEDS = 10 if os.environ.get("DROPFLOW_SOAK") else 1
"""Seeds for each way to be cruel."""
_CRUELTIES = {
    "cuts": ConnectionFaults(cut_every=100_000),
    "large cuts": ConnectionFaults(cut_every=1_000_000),
    "delays": ConnectionFaults(delay=0.02, stall=0.1),
    "stalls": ConnectionFaults(stall=0.5),
    "throttles": ConnectionFaults(rate=8_000_000),
    "everything": ConnectionFaults(cut_every=800_000, delay=0.005, stall=0.1, rate=20_000_000),
}

Picture = tuple[dict[str, str], dict[str, int]]
"""State of every drop, and CRC-32 of every leaf's content."""


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
            _wait(node, session)
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
        rng = random.Random(seed)  # noqa: S311 - to be the same each time
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


def _wait(node: NodeManager, session: str) -> None:
    clock, version = SystemClock(), 0
    deadline = clock.monotonic() + _SECONDS
    detail = node.session(session)
    while not detail.finished:
        assert clock.monotonic() < deadline, f"{session} does not end on {node.name}: {detail}"
        detail = node.watch(session, version=version, seconds=2.0)
        version = detail.version


def _alone(graph: PhysicalGraph, directory: Path) -> Picture:
    kept: list[Session] = []
    local_run.run(graph, directory=local_run.prepare_directory(directory), runner="threads", on_session=kept.append)
    names = oids(graph, range(graph.drops))
    states = {name: DropState(state).name for name, state in zip(names, kept[0].core.drops.states, strict=True)}
    handles = {names[leaf]: kept[0].content(leaf) for leaf in leaves(graph).tolist()}
    contents = {
        name: zlib.crc32(b"".join(content_download(handle, "x").chunks)) for name, handle in handles.items() if handle
    }
    return states, contents


def _cases() -> list[object]:
    return [
        pytest.param(
            (faults, number + 100 * at),
            id=f"{name}, seed {number + 100 * at}",
            marks=[] if name in {"cuts", "everything"} else pytest.mark.exhaustive,
        )
        for number, (name, faults) in enumerate(_CRUELTIES.items())
        for at in range(_SEEDS)
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize("faulty", _cases(), indirect=True)
def test_network_faults_change_no_result(faulty: FaultyCluster, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """States and leaves are those of a run in one process, for small and large contents and all events."""
    for at, (kind, size) in enumerate(_SIZES.items()):
        width, length = (3, 2) if kind == "huge" else (3, 6)
        graph = scattered(pipeline(width=width, length=length, seconds=0.0, size=size), _NAMES, seed=at)
        together = faulty.run(graph, kind)

        assert together == _alone(graph, tmp_path / f"alone-{kind}"), request.node.name
        assert set(together[0].values()) == {"COMPLETED"}
    if "cuts" in request.node.name:
        assert sum(proxy.cuts for proxy in faulty.proxies.values()) > 0


@pytest.mark.parametrize("faulty", [pytest.param((ConnectionFaults(), 0), id="cut by hand")], indirect=True)
def test_connections_that_are_cut_repeatedly_lose_nothing(faulty: FaultyCluster, tmp_path: Path) -> None:
    """If all connections break many times, a running session loses nothing and runs nothing twice."""
    graph = scattered(pipeline(width=4, length=12, seconds=0.02, size=100_000), _NAMES, seed=9)
    outcomes: list[Picture] = []
    runner = threading.Thread(target=lambda: outcomes.append(faulty.run(graph, "s")))
    runner.start()
    while runner.is_alive():
        for proxy in faulty.proxies.values():
            proxy.cut()
        runner.join(0.15)

    assert outcomes == [_alone(graph, tmp_path / "alone")]
    assert {
        drop.attempt for node in faulty.nodes.values() for drop in node.drops("s", DropQuery(limit=1000)).drops
    } == {1}
