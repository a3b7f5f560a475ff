"""Node managers for benchmarks, each in its own process, without REST servers and islands."""

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dropflow.clock import SystemClock
from dropflow.graph.codec import dump
from dropflow.graph.physical import PhysicalGraph
from managers.deployment import Deployment, Place, pack, unpack
from managers.keys import ClusterKey
from managers.node.manager import NodeManager

__all__ = ["Nodes", "Run", "Watcher", "nodes"]

_SECONDS = 600

Watcher = Callable[[], Callable[[], Any]]
"""Called once in the process of a node. Returns a function that is called after each run and returns what was seen."""


class Run:
    """The result of a run.

    Parameters
    ----------
    seconds : float
        Its duration.
    finished : float
        When it ended, in seconds since the epoch.
    results : dict of str to bytes
        By file name.
    seen : list
        What the watcher of each node saw.
    """

    def __init__(self, seconds: float, finished: float, results: dict[str, bytes], seen: list[Any]) -> None:
        self.seconds = seconds
        self.finished = finished
        self.results = results
        self.seen = seen


def _node(  # noqa: PLR0917 - arguments of a process
    pipe: Connection,
    root: Path,
    key: ClusterKey | None,
    runner: str,
    watcher: Watcher | None,
    options: dict[str, Any],
) -> None:
    """Run a node manager that receives deployments from a pipe, and runs them."""
    seen = None if watcher is None else watcher()
    name = root.name
    manager = NodeManager(name, root=root, key=key, runner=runner, **options)
    pipe.send(Place(name, manager.links_address, manager.info().incarnation))
    while data := pipe.recv():
        deployment = unpack(data)
        manager.prepare(deployment, seconds=60.0)
        pipe.send(None)
        pipe.recv()
        manager.start(deployment.session, deployment.epoch)
        detail = manager.session(deployment.session)
        while not detail.finished:
            detail = manager.watch(deployment.session, version=detail.version, seconds=30.0)
        results = root / "sessions" / deployment.session / "results"
        files = {file.name: file.read_bytes() for file in results.iterdir()} if results.exists() else {}
        pipe.send((detail, files, None if seen is None else seen()))
        pipe.recv()
        manager.delete(deployment.session)
    manager.close()


class Nodes:
    """A number of node managers, each in its own process; see `nodes`."""

    def __init__(
        self,
        count: int,
        key: ClusterKey | None,
        root: Path,
        *,
        runner: str,
        watcher: Watcher | None,
        workers: int | Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        self.processes = []
        for number in range(count):
            ours, theirs = context.Pipe()
            own = options | {"workers": workers[number] if isinstance(workers, Sequence) else workers}
            arguments = (theirs, root / f"node{number}", key, runner, watcher, own)
            process = context.Process(target=_node, args=arguments)
            process.start()
            theirs.close()  # so that the pipe ends when the process does
            self.pipes.append(ours)
            self.processes.append(process)
        self.places = tuple(_answer(pipe) for pipe in self.pipes)
        self._sessions = 0

    def run(self, graph: PhysicalGraph, *, interfere: Callable[[], int] | None = None) -> Run:
        """Run a graph whose parts are the nodes.

        Parameters
        ----------
        graph : PhysicalGraph
            The graph.
        interfere : callable, optional
            Called once the session has begun. Kills one node, and returns its number; there is no run after this one.
        """
        self._sessions += 1
        placed = replace(graph, places=tuple(place.node for place in self.places))
        deployment = Deployment(
            session=f"s{self._sessions}",
            epoch=1,
            graph=graph.name,
            drops=graph.drops,
            created=SystemClock().now(),
            places=self.places,
            dfg=b"".join(dump(placed)),
        )
        packed = pack(deployment)
        for pipe in self.pipes:
            pipe.send(packed)
        self._all()
        if interfere is not None:
            del self.pipes[interfere()]
        answers = self._all()
        results: dict[str, bytes] = {}
        for detail, files, _ in answers:
            if detail.status != "FINISHED":
                raise SystemExit(f"the session ended {detail.status}: {detail.text}")
            results.update(files)
        finished = max(detail.finished for detail, *_ in answers)
        seconds = finished - min(detail.started for detail, *_ in answers)
        return Run(seconds, finished, results, [seen for *_, seen in answers])

    def close(self) -> None:
        """Stop the node managers."""
        for pipe in self.pipes:
            with suppress(OSError):  # it has ended
                pipe.send(None)
        for process in self.processes:
            process.join(30)
            process.kill()

    def _all(self) -> list[Any]:
        """Wait for one answer of each node manager, let all continue, and return the answers."""
        answers = [_answer(pipe) for pipe in self.pipes]
        for pipe in self.pipes:
            pipe.send(True)
        return answers


def _answer(pipe: Connection) -> Any:
    if not pipe.poll(_SECONDS):
        raise SystemExit(f"a node manager has not answered for {_SECONDS} s")
    try:
        return pipe.recv()
    except EOFError:
        raise SystemExit("a node manager ended; see its error above") from None


@contextmanager
def nodes(
    count: int,
    key: ClusterKey | None,
    *,
    runner: str = "processes",
    watcher: Watcher | None = None,
    workers: int | Sequence[int] | None = None,
    **options: Any,
) -> Iterator[Nodes]:
    """Run `count` node managers, and remove all their files afterwards.

    `workers` is the number of worker processes of each, or has one for each. `options` are those of `NodeManager`, for
    all.
    """
    with tempfile.TemporaryDirectory() as root:
        found = Nodes(count, key, Path(root), runner=runner, watcher=watcher, workers=workers, **options)
        try:
            yield found
        finally:
            found.close()
