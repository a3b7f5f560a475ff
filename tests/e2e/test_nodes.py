"""Graphs placed at random on several node managers have the same results as in one process.

The nodes are real: each has its own root, its own links on real sockets, and no access to the files of the others. They
share a process, and run applications in threads, so that two hundred graphs take minutes instead of hours.
"""

import os
import random
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dropflow.api.contents_answer import Download
from dropflow.api.drop_records import DropQuery
from dropflow.api.requests import SubmitQuery
from dropflow.clock import SystemClock
from dropflow.errors import BadGraphError
from dropflow.execution.session import Session
from dropflow.graph.order import leaves
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import kept_together, placement_groups
from dropflow.graph.templates import Argument, Template
from dropflow.graph.text_ids import oids
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from dropflow.states import DropState, SessionState
from managers.node.downloads import content_download
from managers.node.manager import NodeManager
from managers.planning import plan_deployment
from tests.corpus import corpus_files, daliuge_runs, needs_corpus
from tests.e2e.cluster import pipeline, scattered
from tests.e2e.conftest import FaultyCluster
from tests.faulty_proxy import ConnectionFaults
from tests.nightly import nightly
from tests.streaming_graphs import Picture, alone
from translator.pipeline import translate

pytestmark = pytest.mark.slow


ROOT = Path(__file__).resolve().parents[2]
_RUNNABLE = [path for path in corpus_files() if path.name in daliuge_runs()]
_EXAMPLES = sorted((ROOT / "examples").glob("*.graph"))
_SECONDS = 60.0
_PATIENCE = 100.0 if os.environ.get("DROPFLOW_CORPUS_STEP") == "1" else 3.0
Nodes = list[NodeManager]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Four node managers."""
    root = tmp_path_factory.mktemp("nodes")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                closing(NodeManager(f"n{at}", root=root / f"n{at}", runner="threads", workers=2, in_place=False))
            )
            for at in range(4)
        ]


def _awake(graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph with sleeping times of zero."""

    def awake(template: Template) -> Template:
        if "Sleep" not in template.component and "Sleep" not in template.category:
            return template
        kept = tuple(each for each in template.arguments if each.name not in ("sleep_time", "execution_time"))
        return msgspec.structs.replace(template, arguments=(*kept, Argument(name="sleep_time", value=0.0)))

    return replace(graph, templates=tuple(awake(template) for template in graph.templates))


def _alone(graph: PhysicalGraph, directory: Path) -> Picture:
    """Run a graph in one process; return its outcome."""
    kept: list[Session] = []
    patience: list[threading.Timer] = []

    def watch(session: Session) -> None:
        kept.append(session)
        patience.append(threading.Timer(_PATIENCE, session.cancel))
        patience[0].start()

    result = local_run.run(
        graph,
        local_run.prepare_directory(directory),
        RunOptions(runner="threads", workers=2, check=graph.drops < 2000),
        hooks=RunHooks(on_session=watch),
    )
    patience[0].cancel()
    patience[0].join()
    if result.status is SessionState.CANCELLED:
        pytest.skip(f"takes more than {_PATIENCE:g} s: set DROPFLOW_CORPUS_STEP=1 to run it")
    names = oids(graph, range(graph.drops))
    states = {name: DropState(state).name for name, state in zip(names, kept[0].core.drops.states, strict=True)}
    contents = {}
    for leaf in leaves(graph).tolist():
        handle = kept[0].content(leaf)
        if handle is not None and handle.size:
            contents[names[leaf]] = _checksum(content_download(handle, "x"))
    return states, contents


def _checksum(content: Download) -> int:
    if content.content_type == "application/x-tar":
        return -1  # the times of files in it differ
    checksum = 0
    for chunk in content.chunks:
        checksum = zlib.crc32(chunk, checksum)
    return checksum


def _together(graph: PhysicalGraph, nodes: Nodes, session: str) -> Picture:
    """Run a graph with its drops on random nodes, but for those that must stay together; return its outcome."""
    rng = random.Random(f"{session} {graph.drops}")
    part = np.array([rng.randrange(len(nodes)) for _ in range(graph.drops)], dtype=np.int32)
    if (groups := placement_groups(graph)) is not None:
        part = kept_together(part, groups, len(nodes), np.ones(graph.drops))
    placed = replace(graph, part=part, places=tuple(node.name for node in nodes))
    infos = [info for node in nodes for info in node.nodes()]
    query = SubmitQuery(session=session, check=graph.drops < 2000)
    deployment = plan_deployment(placed, query, infos, clock=SystemClock())
    used = [node for node in nodes if node.name in deployment.nodes]
    for node in used:
        node.prepare(deployment, seconds=_SECONDS)
    for node in used:
        node.start(session, deployment.epoch)
    try:
        for node in used:
            _wait(node, session)
        wanted = set(oids(graph, leaves(graph)))
        states: dict[str, str] = {}
        contents: dict[str, int] = {}
        for node in used:
            for offset in range(0, graph.drops, 1000):
                for drop in node.drops(session, DropQuery(offset=offset, limit=1000)).drops:
                    states[drop.oid] = drop.state
                    if drop.oid in wanted and drop.size:
                        contents[drop.oid] = _checksum(node.data(session, drop.oid))
    finally:
        for node in used:
            node.delete(session)
    return states, contents


def _wait(node: NodeManager, session: str) -> None:
    version, clock = 0, SystemClock()
    deadline = clock.monotonic() + _SECONDS
    while clock.monotonic() < deadline:
        detail = node.watch(session, version=version, seconds=1.0)
        version = detail.version
        if detail.finished:
            return
    stuck = node.drops(session, DropQuery(state="INITIALIZED,WRITING", limit=3)).drops
    reasons = [line for drop in stuck for line in (drop.oid, *node.drop(session, drop.oid).reasons)]
    raise AssertionError(f"{session} on {node.name} does not end: {detail.states} {reasons}")


_known: dict[Path, tuple[PhysicalGraph, Picture] | str] = {}


def _reference(path: Path, directory: Path) -> tuple[PhysicalGraph, Picture]:
    """Return a graph and its outcome in one process, computed once for all numbers of nodes."""
    if path not in _known:
        try:
            graph = _awake(translate(path).graph)
            _known[path] = graph, _alone(graph, directory / "alone")
        except BadGraphError:
            _known[path] = "refused before it runs"
        except pytest.skip.Exception as reason:
            _known[path] = str(reason)
    found = _known[path]
    if isinstance(found, str):
        pytest.skip(found)
    return found


def _compare(path: Path, nodes: Nodes, directory: Path, count: int) -> None:
    graph, alone = _reference(path, directory)
    together = _together(graph, nodes[:count], f"s{count}-{path.stem}"[:80].strip("._-"))
    if _is_random(graph):
        assert together[0].keys() == alone[0].keys()
        assert set(together[0].values()) <= {"COMPLETED", "SKIPPED", "ERROR"}
        return

    assert together[0] == alone[0]
    assert together[1].keys() == alone[1].keys()
    if together[1] != alone[1]:
        # Some contents have the time, a process or a directory in them, and differ from run to run.
        again = _alone(graph, directory / "again")[1]
        steady = {name for name, checksum in alone[1].items() if again[name] == checksum}
        assert {name: together[1][name] for name in steady} == {name: alone[1][name] for name in steady}


def _is_random(graph: PhysicalGraph) -> bool:
    """Return whether an application of the graph uses random numbers, so that results differ from run to run."""
    return any(b"random" in msgspec.json.encode(template).lower() for template in graph.templates)


@pytest.mark.parametrize("count", [2, *nightly(1, 4)])
@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.stem)
def test_examples_have_the_same_outcome_on_any_number_of_nodes(
    path: Path, count: int, nodes: Nodes, tmp_path: Path
) -> None:
    """Every example gives every drop the state, and every leaf the size, that it has in one process."""
    _compare(path, nodes, tmp_path, count)


@needs_corpus
@pytest.mark.parametrize("count", [2, *nightly(1, 4)])
@pytest.mark.parametrize("path", _RUNNABLE, ids=lambda path: path.stem)
def test_graphs_of_the_community_have_the_same_outcome(path: Path, count: int, nodes: Nodes, tmp_path: Path) -> None:
    """Every graph that runs has the same outcome on several nodes, placed at random, as in one process."""
    _compare(path, nodes, tmp_path, count)


# A network between the nodes that delays, stalls, throttles and cuts changes no result.
#
# The faults are drawn from a seed, which is in the test's name. With DROPFLOW_SOAK=1 there are ten seeds for each kind
# of fault.


_NAMES = ("a", "b", "c")
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
"""State of every drop, and CRC-32 of every leaf's content."""


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

        assert together == alone(graph, tmp_path / f"alone-{kind}"), request.node.name
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

    assert outcomes == [alone(graph, tmp_path / "alone")]
    assert {
        drop.attempt for node in faulty.nodes.values() for drop in node.drops("s", DropQuery(limit=1000)).drops
    } == {1}
