"""Clusters of real processes that tests may kill, and graphs that take some seconds and cross nodes."""

import random
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

import msgspec
import numpy as np

from dropflow.api.client import Client
from dropflow.api.node_records import Load
from dropflow.api.requests import SubmitQuery
from dropflow.api.session_records import SessionDetail
from dropflow.clock import SystemClock
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from tests.processes import Running

SUSPECT_AFTER, LOST_AFTER = 1.0, 3.0
TIMES = ("--suspect-after", SUSPECT_AFTER, "--lost-after", LOST_AFTER)
PATIENT = ("--suspect-after", 20.0, "--lost-after", 60.0)
"""For tests that lose no node: a busy machine must not lose one either."""

_STEP = """
def step(data=b"", salt="", size=10, seconds=0.0, gate=""):
    import hashlib, pathlib, random, time
    time.sleep(seconds)
    while gate and not pathlib.Path(gate).exists():
        time.sleep(0.1)
    return random.Random(hashlib.sha256(salt.encode() + data).digest()).randbytes(size)
"""


class Cluster:
    """Managers as processes of their own, stopped when the context ends.

    Parameters
    ----------
    home : Path
        Their directories and keys; managers with the same home have the same key.
    node_program : sequence of str
        Arguments of the Python interpreter that stand for ``dropflow`` in the commands of nodes.
    """

    def __init__(
        self, home: Path, *, node_program: Sequence[str] = ("-m", "dropflow"), times: Sequence[object] = TIMES
    ) -> None:
        self.home = home
        self.python: str | Path = sys.executable
        """The interpreter of the managers that are started from now on."""
        self._times = times
        self._node_program = node_program
        self._stack = ExitStack()
        self._entering = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def node(self, name: str, *more: object, home: Path | None = None, port: int = 0) -> Running:
        """Start a node manager with two workers."""
        arguments = ("--name", name, "--links-port", 0, "--workers", 2, *self._times, *more)
        return self._start("node", *arguments, home=home, port=port)

    def nodes(self, *names: str) -> list[Running]:
        """Start several nodes in parallel."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(self.node, names))

    def island(self, *nodes: Running, name: str = "island", port: int = 0, more: Sequence[object] = ()) -> Running:
        """Start an island over nodes."""
        return self._start("island", "--name", name, "--nodes", _urls(nodes), *self._times, *more, port=port)

    def master(self, *islands: Running, port: int = 0) -> Running:
        """Start a master over islands."""
        return self._start("master", "--name", "master", "--islands", _urls(islands), *self._times, port=port)

    def client(self, running: Running, *, timeout: float = 60.0) -> Client:
        """Return a client of a manager."""
        ready = running.ready
        return self._stack.enter_context(Client(ready["url"], token=ready["token"], timeout=timeout))

    def _start(self, role: str, *arguments: object, port: int = 0, home: Path | None = None) -> Running:
        program = self._node_program if role == "node" else ("-m", "dropflow")
        running = Running(home or self.home, role, "--port", port, *arguments, program=program, python=self.python)
        with self._entering:
            return self._stack.enter_context(running)


def port_of(running: Running) -> int:
    """Return the port of a manager."""
    return int(running.ready["url"].rpartition(":")[2])


def pipeline(
    *,
    width: int = 2,
    length: int = 6,
    seconds: float = 0.3,
    size: int = 10,
    tries: int = 1,
    gates: Mapping[int, Path] = MappingProxyType({}),
) -> PhysicalGraph:
    """Return chains of functions that sleep, and a function that hashes their results. Steps with a gate wait for it.

    Applications are called ``S<chain>-<step>``, contents ``d<chain>-<step>``; the last ones are ``Join`` and ``end``.
    """
    builder = GraphBuilder("pipeline")
    for chain in range(width):
        for at in range(length):
            fields = (
                _field("salt", f"{chain}.{at}"),
                _field("size", size, "Integer"),
                _field("seconds", seconds, "Float"),
                _field("gate", str(gates.get(at, ""))),
            )
            function = (*_function("step", _STEP), *fields)
            app, data = f"S{chain}-{at}", f"d{chain}-{at}"
            builder.app(app, component="dlg.apps.pyfunc.PyFuncApp", arguments=function, tries=tries).data(data)
            if at:
                builder.connect(f"d{chain}-{at - 1}", app, target_port="data")
            builder.connect(app, data, source_port="out")
    names = [f"p{chain}" for chain in range(width)]
    code = (
        f"def join({', '.join(names)}):\n    import hashlib\n    return hashlib.sha256({' + '.join(names)}).hexdigest()"
    )
    builder.app("Join", component="dlg.apps.pyfunc.PyFuncApp", arguments=_function("join", code)).data("end")
    for chain, name in enumerate(names):
        builder.connect(f"d{chain}-{length - 1}", "Join", target_port=name)
    return builder.connect("Join", "end", source_port="out").build()


def scattered(graph: PhysicalGraph, nodes: Sequence[str], seed: int) -> PhysicalGraph:
    """Return the graph with every drop on a random one of these nodes."""
    rng = random.Random(seed)
    part = np.array([rng.randrange(len(nodes)) for _ in range(graph.drops)], dtype=np.int32)
    part[: len(nodes)] = range(len(nodes))  # every node has drops
    return replace(graph, part=part, places=tuple(nodes))


def placed(graph: PhysicalGraph, nodes: Mapping[str, str], other: str) -> PhysicalGraph:
    """Return the graph with the drops of these names on these nodes, and the others on the node `rest`."""
    places = tuple(dict.fromkeys([other, *nodes.values()]))
    part = np.array([places.index(nodes.get(each.name, other)) for each in graph.templates], dtype=np.int32)
    return replace(graph, part=part, places=places)


def submit(client: Client, graph: PhysicalGraph, session: str, *, retries: int = 5) -> None:
    """Run a graph on the nodes that it names; each drop may have so many infrastructure faults."""
    client.submit(graph, SubmitQuery(session=session, infrastructure_retries=retries))


def load(client: Client, node: str = "dask") -> Load:
    """Return the load of a node."""
    return next(info.load for info in client.nodes() if info.name == node)


def until(holds: Callable[[], bool], seconds: float = 120.0) -> bool:
    """Return whether a condition becomes true in time."""
    pause, clock = threading.Event(), SystemClock()
    deadline = clock.monotonic() + seconds
    while not holds():
        if clock.monotonic() > deadline:
            return False
        pause.wait(0.1)
    return True


def is_whole(file: Path) -> bool:
    """Return whether a file that another process writes has all of its JSON."""
    try:
        msgspec.json.decode(file.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return False
    return True


def underway(client: Client, session: str, settled: int = 3) -> bool:
    """Return whether a session completes so many drops, and is still running then."""
    version, detail = 0, client.session(session)
    while not detail.finished and detail.settled < settled:
        detail = client.watch(session, version=version, seconds=5.0)
        version = detail.version
    return not detail.finished


def finished(client: Client, session: str, seconds: float = 120.0) -> SessionDetail:
    """Return the session when it is over. Each question costs all managers some milliseconds: not at every change."""
    pause, clock, version = threading.Event(), SystemClock(), 0
    deadline = clock.monotonic() + seconds
    while not (detail := client.watch(session, version=version, seconds=2.0)).finished:
        assert clock.monotonic() < deadline, f"{session} does not end: {detail}"
        version = detail.version
        pause.wait(0.3)
    return detail


def expected_end(directory: Path, **shape: int) -> bytes:
    """Return the result of a `pipeline` of this shape in one process."""
    local_run.run(pipeline(seconds=0.0, **shape), local_run.prepare_directory(directory), RunOptions(runner="threads"))
    return next((directory / "results").glob("pipeline_end_0*")).read_bytes()


def content(client: Client, session: str, drop: str = "pipeline_end_0") -> bytes:
    """Return the content of a data drop."""
    return b"".join(client.data(session, drop).chunks)


def _urls(managers: Sequence[Running]) -> str:
    return ",".join(manager.ready["url"] for manager in managers)


def _field(name: str, value: object, kind: str = "String") -> Argument:
    return Argument(name=name, value=value, type=kind, parameter_type="ApplicationArgument")


def _function(name: str, code: str) -> tuple[Argument, ...]:
    return (Argument(name="func_name", value=name), Argument(name="func_code", value=code))
