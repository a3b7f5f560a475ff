"""Many sessions, one after another and in parallel: nothing grows, and deleted sessions leave nothing behind.

A short version runs with the other tests; DROPFLOW_SOAK=1 runs two hundred sessions of a thousand drops.
"""

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import pytest

from dropflow.api.client import Client
from dropflow.api.requests import SubmitQuery
from dropflow.clock import SystemClock
from dropflow.errors import LinkError
from dropflow.graph.build import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Axis, Kind, Link, Template
from managers.node.manager import NodeManager
from managers.planning import plan_deployment
from tests.e2e.cluster import Cluster, finished, submit, until
from tests.processes import Running

pytestmark = pytest.mark.slow

_FULL = bool(os.environ.get("DROPFLOW_SOAK"))
_SESSIONS, _DROPS = (200, 1000) if _FULL else (40, 200)
_AT_A_TIME = 20
_MARGIN = 32 << 20
"""Bytes by which memory may differ: what allocators keep, and pictures of sessions that were just deleted."""

T = TypeVar("T")

_MAKE = "def f(): return bytes(20_000)"
_WORK = "def f(data): return len(data)"


def _fan(drops: int, seed: int) -> PhysicalGraph:
    """Return a graph with one content of 20 kB that many functions read, each drop on a random one of two nodes."""
    copies = (drops - 2) // 2
    axes = (Axis("s", "s", "scatter", copies),)
    row = np.arange(copies, dtype=np.int32)
    rng = np.random.default_rng(seed)
    graph = from_columns(
        name="fan",
        prefix="fan",
        templates=[
            _function("MAKE", _MAKE),
            Template(key="seed", name="seed", kind=Kind.DATA, component="dlg.data.drops.memory.InMemoryDROP"),
            msgspec.structs.replace(_function("WORK", _WORK), axes=axes),
            Template(key="out", name="out", kind=Kind.DATA, component="dlg.data.drops.memory.InMemoryDROP", axes=axes),
        ],
        links=[
            Link(source=0, target=1, source_port="out"),
            Link(source=1, target=2, target_port="data"),
            Link(source=2, target=3, source_port="out"),
        ],
        template=np.concatenate([[0, 1], np.full(copies, 2), np.full(copies, 3)]),
        instance=np.concatenate([[0, 0], row, row]),
        source=np.concatenate([[0], np.full(copies, 1), row + 2]),
        target=np.concatenate([[1], row + 2, row + 2 + copies]),
        link=np.concatenate([[0], np.full(copies, 1), np.full(copies, 2)]),
        part=rng.integers(0, 2, 2 + 2 * copies),
    )
    return replace(graph, places=("a", "b"))


def _function(name: str, code: str) -> Template:
    arguments = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    return Template(key=name, name=name, kind=Kind.APP, component="dlg.apps.pyfunc.PyFuncApp", arguments=arguments)


def _once(client: Client, number: int) -> None:
    """Run a graph and delete its session; repeat a request that got no answer in time."""
    session = f"s{number}"
    _patiently(lambda: submit(client, _fan(_DROPS, number), session))
    detail = _patiently(lambda: finished(client, session, 60.0))
    with contextlib.suppress(LinkError):  # the answer is that it will be deleted later; the end of the test checks that
        client.delete(session)

    assert (detail.status, detail.settled) == ("FINISHED", detail.drops)


def _patiently(ask: Callable[[], T]) -> T:
    for _ in range(20):
        with contextlib.suppress(LinkError):
            return ask()
        threading.Event().wait(0.5)
    return ask()


class _Use(msgspec.Struct, frozen=True):
    """Resources of a manager and its workers: bytes and counts."""

    memory: int
    workers: int
    threads: int
    files: int
    sockets: int


def _use(running: Running) -> _Use:
    top, *below = running.family()
    return _Use(
        memory=top.memory_info().rss,
        workers=len(below),
        threads=top.num_threads(),
        files=top.num_fds(),
        sockets=len(top.net_connections("inet")),
    )


@pytest.mark.exhaustive
def test_nothing_grows_with_the_number_of_sessions(tmp_path: Path) -> None:
    """Memory, processes, threads, files and sockets of nodes and island do not grow after the first sessions."""
    patient = ("--suspect-after", 10, "--lost-after", 60)
    with Cluster(tmp_path) as cluster:
        managers = [cluster.node("a", *patient), cluster.node("b", *patient)]
        managers.append(cluster.island(*managers, more=patient))
        client = cluster.client(managers[-1], timeout=60.0)

        def together(numbers: Sequence[int], at_a_time: int = _AT_A_TIME) -> None:
            with ThreadPoolExecutor(at_a_time) as pool:
                for _ in pool.map(lambda number: _once(client, number), numbers):
                    pass

        warm_up = _SESSIONS // 4
        for number in range(warm_up):
            _once(client, number)
        # Servers keep the threads of the moment when they had most to do, so that this is more than what follows.
        together(range(1000, 1000 + 2 * _AT_A_TIME), _AT_A_TIME + 5)
        before = [_use(manager) for manager in managers]
        for number in range(warm_up, _SESSIONS):
            _once(client, number)
        together(range(2000, 2000 + max(_SESSIONS // 2, 2 * _AT_A_TIME)))
        settled = until(lambda: all(_is_like(_use(now), then) for now, then in zip(managers, before, strict=True)))
        after = [_use(manager) for manager in managers]

        assert settled, "\n".join(f"{then} -> {now}" for then, now in zip(before, after, strict=True))
        assert until(lambda: client.sessions() == ())
        assert until(lambda: [list(path.iterdir()) for path in tmp_path.rglob("sessions") if path.is_dir()] == [[], []])
        assert _segments(managers) == []


def _is_like(now: _Use, then: _Use) -> bool:
    grown = [getattr(now, name) - getattr(then, name) for name in ("workers", "files", "sockets")]
    # Servers and fetch_pool keep the threads of their busiest moment; one a session would be far more than this.
    return now.memory < then.memory + _MARGIN and max(grown) <= 8 and now.threads <= then.threads + 48


def _segments(managers: Sequence[Running]) -> list[Path]:
    pids = {str(manager.process.pid) for manager in managers}
    return [path for path in Path("/dev/shm").glob("dropflow-*") if path.name.split("-")[2] in pids]  # noqa: S108


def _sizes(node: NodeManager) -> dict[str, int]:
    """Return the sizes of the tables of a node, by name."""
    links, pool, machine = node._links, node._resources.pool, node._owner._machine
    return {
        "sessions": len(tuple(machine.table)),
        "timers": len(machine._timers._timers),
        "transfers": links.statistics().transfers,
        "pending": sum(peer.pending for peer in links.statistics().peers),
        "sources": len(links._server._cache._sources),
        "runners": len(pool._dispatcher._runners) + len(pool._dispatcher._turns),
        "watched": len(machine.peers.needed),
        "members": len(machine.peers._members.members),
        "threads": len([each for each in threading.enumerate() if each.name.startswith("session-")]),
    }


def test_tables_are_empty_after_the_last_session(tmp_path: Path) -> None:
    """Links, membership and worker pool have no entries of deleted sessions, whatever their end was."""
    with ExitStack() as stack:
        nodes = {
            name: stack.enter_context(closing(NodeManager(name, root=tmp_path / name, workers=2, in_place=False)))
            for name in "ab"
        }
        for number in range(6):
            _run_and_delete(nodes, number, cancelled=number % 2 == 1)
        gc.collect()
        empty = dict.fromkeys(_sizes(nodes["a"]), 0)
        assert until(lambda: [_sizes(node) for node in nodes.values()] == [empty, empty]), [
            _sizes(node) for node in nodes.values()
        ]


def _run_and_delete(nodes: dict[str, NodeManager], number: int, *, cancelled: bool) -> None:
    infos = [info for node in nodes.values() for info in node.nodes()]
    session = f"s{number}"
    deployment = plan_deployment(_fan(200, number), SubmitQuery(session=session), infos, clock=SystemClock())
    for node in nodes.values():
        node.prepare(deployment, seconds=20.0)
    for node in nodes.values():
        node.start(session, deployment.epoch)
    if cancelled:
        nodes["a"].cancel(session)
    for node in nodes.values():
        assert _over(node, session)
        node.delete(session)


def _over(node: NodeManager, session: str) -> bool:
    return until(lambda: bool(node.session(session).finished), 60.0)
