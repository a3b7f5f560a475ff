"""Random graphs with streaming links, partitioned at random, end as in one process without streams."""

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from dropflow.api.records import DropQuery
from dropflow.data import streams
from dropflow.engine.session import Session
from dropflow.graph.order import leaves
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from dropflow.sessions import local_run
from dropflow.states import DropState
from managers.node.downloads import content_download
from managers.node.manager import NodeManager
from tests.managers.node.conftest import Cluster
from tests.streaming_graphs import random_graph, scattered, unstreamed

pytestmark = pytest.mark.slow

Picture = tuple[dict[str, str], dict[str, int]]
"""State of every drop, and CRC-32 of the content of every leaf that has one."""

Make = Callable[[int], Cluster]

_SEEDS = 300 if os.environ.get("DROPFLOW_SOAK") else 12


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Return clusters of one to four nodes that do not use each other's files."""
    root = tmp_path_factory.mktemp("nodes")
    with ExitStack() as stack:
        nodes = {
            name: stack.enter_context(
                closing(NodeManager(name, root=root / name, runner="threads", workers=2, in_place=False))
            )
            for name in "abcd"
        }
        yield lambda count: Cluster({name: nodes[name] for name in "abcd"[:count]})


def alone(graph: PhysicalGraph, directory: Path) -> Picture:
    """Run a graph in one process, without streams; return the states and contents."""
    kept: list[Session] = []
    plain = unstreamed(graph)
    local_run.run(plain, directory=local_run.prepare_directory(directory), runner="threads", on_session=kept.append)
    names = oids(graph, range(graph.drops))
    states = {name: DropState(state).name for name, state in zip(names, kept[0].core.drops.states, strict=True)}
    handles = {names[leaf]: kept[0].content(leaf) for leaf in leaves(graph).tolist()}
    contents = {
        name: zlib.crc32(b"".join(content_download(handle, "x").chunks)) for name, handle in handles.items() if handle
    }
    return states, contents


def together(cluster: Cluster, graph: PhysicalGraph, session: str) -> Picture:
    """Run a graph on nodes; return the states and contents. No streams are left."""
    cluster.run(graph, session)
    wanted = set(oids(graph, leaves(graph)))
    states, contents = {}, {}
    for node in cluster.nodes.values():
        if session not in [info.session for info in node.sessions()]:
            continue
        for drop in node.drops(session, DropQuery(limit=1000)).drops:
            states[drop.oid] = drop.state
            if drop.oid in wanted and drop.state == "COMPLETED":
                contents[drop.oid] = zlib.crc32(b"".join(node.data(session, drop.oid).chunks))
        directory = node._root / "sessions" / session
        assert not list(directory.glob("tmp/*"))
    return states, contents


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_streams_change_no_result(seed: int, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random graphs on one, two and four nodes, some of whose applications fail at first or for good in mid-stream."""
    if seed % 4 > 1:  # writers wait again and again
        monkeypatch.setattr(streams, "AHEAD", 4096)
        monkeypatch.setattr(streams, "PATIENCE", 0.05)
    failing = (0.0, 0.3)[seed % 2]
    nodes = (1, 2, 4)[seed % 3]
    marks = [tmp_path / "alone", tmp_path / "together"]
    for folder in marks:
        folder.mkdir()
    graphs = [random_graph(seed, 4 + seed % 10, marks=folder, failing=failing) for folder in marks]
    expected = alone(graphs[0], tmp_path / "s")

    assert together(make(nodes), scattered(graphs[1], nodes, seed), f"s{seed}") == expected


def test_two_hundred_drops_on_three_nodes(make: Make, tmp_path: Path) -> None:
    """Many streams at once, each across other nodes, end as in one process without streams."""
    graph = random_graph(1000, 100, marks=tmp_path)

    assert together(make(3), scattered(graph, 3, 1000), "many") == alone(graph, tmp_path / "s")
