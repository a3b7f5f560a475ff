"""A whole cluster on virtual time: a master, islands and nodes, and a client that submits graphs to them."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from dropflow.api.requests import SubmitQuery
from dropflow.api.session_records import SessionDetail
from dropflow.graph.physical import PhysicalGraph
from managers.machine_calls import Answered, Ask, Unanswered
from managers.simulation.history import Recorder
from managers.simulation.network import NetworkFaults, SimulatedNetwork
from managers.simulation.simulated_composite import ManagerCalls, SimulatedComposite
from managers.simulation.simulated_node import SimulatedNode, Workload
from managers.simulation.virtual_time import SimulatedProcess, Simulation, WorkTime

_MASTER = "http://master:8002"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - trials make directories of their own in it
_ROOM = 1 << 29
"""Bytes that must be free there."""


def memory_directory() -> str | None:
    """Return the directory of shared memory, if there is one with room: no fault needs a real disk."""
    try:
        status = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return None
    is_usable = status.f_bavail * status.f_frsize >= _ROOM and os.access(_SHARED_MEMORY, os.W_OK)
    return _SHARED_MEMORY if is_usable else None


class SimulatedCluster:
    """A master, its islands and their nodes, in one thread. The same seed gives the same run.

    Parameters
    ----------
    seed : int
        Everything that happens by chance is drawn from it.
    directory : Path
        Where nodes keep their sessions; what they have in shared memory is in the directory ``.shm`` in it.
    islands, nodes : int
        Number of islands, and of nodes in each.
    has_master : bool
        Whether there is a master. Without one there is one island, and clients call that.
    faults : NetworkFaults
        Delays and faults of the network.
    workload : Workload
        Times and results of attempts.
    skips_waiting : bool
        Whether attempts have a time of their own, `work_time`.

    Attributes
    ----------
    nodes : dict of str to SimulatedNode
        The nodes by name: the present process of each.
    islands : dict of str to SimulatedComposite
        The islands by name.
    master : SimulatedComposite
        The master, if there is one.
    """

    def __init__(
        self,
        seed: int,
        directory: Path,
        *,
        islands: int = 2,
        nodes: int = 3,
        has_master: bool = True,
        faults: NetworkFaults | None = None,
        workload: Workload | None = None,
        skips_waiting: bool = False,
    ) -> None:
        self.simulation = Simulation(seed)
        self.work_time = WorkTime(self.simulation)
        """Skips what managers wait for attempts, if that was asked for."""
        self.network = SimulatedNetwork(self.simulation, faults)
        self.calls = ManagerCalls(self.network)
        self.recorder = Recorder(self.simulation)
        """The history of all sessions."""
        self._directory = directory
        self._shared_memory = directory / ".shm"
        self._shared_memory.mkdir(exist_ok=True)
        self._workload = workload or Workload()
        if skips_waiting:
            self._workload = msgspec.structs.replace(self._workload, work_time=self.work_time)
        self.on_action: Callable[[str, Any], None] = lambda _node, _action: None
        """Called with the name of a node and an action of its machine before it is carried out."""
        self._islands = {
            f"i{island}": [f"n{island}-{node}" for node in range(1, nodes + 1)] for island in range(1, islands + 1)
        }
        self._incarnations: dict[str, int] = {}
        self._numbers = count(1)
        self.processes: list[SimulatedProcess] = []
        """Processes of all managers, including those that have ended."""
        self.nodes: dict[str, SimulatedNode] = {}
        self.islands: dict[str, SimulatedComposite] = {}
        for island, names in self._islands.items():
            for name in names:
                self.start_node(name)
            self.start_island(island)
        self.top = _MASTER if has_master else _url("i1")
        """URL of the manager above all others."""
        if has_master:
            self.start_master()
        self.client = SimulatedProcess(self.simulation, "client")
        """Calls the managers, and never ends."""

    def start_node(self, name: str) -> SimulatedNode:
        """Start the process of a node, again after a crash: at the same address."""
        directory = self._directory / name
        directory.mkdir(exist_ok=True)
        self.network.dark.discard(name)
        node = self.nodes[name] = SimulatedNode(
            name,
            _url(name),
            self.network,
            directory=directory,
            workload=self._workload,
            shared_memory=self._shared_memory,
            incarnation=self._next_incarnation(name),
            address=self.nodes[name].links.address if name in self.nodes else "",
            recorder=self.recorder,
            on_action=lambda action: self.on_action(name, action),
        )
        self.calls.listen(node.url, node)
        self.processes.append(node.process)
        return node

    def start_island(self, name: str) -> SimulatedComposite:
        """Start the process of an island, again after a crash."""
        island = self.islands[name] = SimulatedComposite(
            name,
            "island",
            _url(name),
            network=self.network,
            calls=self.calls,
            incarnation=self._next_incarnation(name),
            children=[_url(node) for node in self._islands[name]],
        )
        self.calls.listen(island.url, island)
        self.processes.append(island.process)
        return island

    def start_master(self) -> SimulatedComposite:
        """Start the process of the master, again after a crash."""
        self.master = SimulatedComposite(
            "master",
            "master",
            _MASTER,
            network=self.network,
            calls=self.calls,
            incarnation=self._next_incarnation("master"),
            children=[_url(name) for name in self._islands],
        )
        self.calls.listen(_MASTER, self.master)
        self.processes.append(self.master.process)
        return self.master

    def _next_incarnation(self, name: str) -> int:
        self._incarnations[name] = incarnation = self._incarnations.get(name, 0) + 1
        return incarnation

    def present(self, name: str) -> tuple[str, int]:
        """Return the present or last process of a manager: its name and its incarnation."""
        return name, self._incarnations[name]

    @property
    def above(self) -> list[SimulatedComposite]:
        """The islands, and the master if there is one."""
        return [*self.islands.values(), *([self.master] if self.top == _MASTER else [])]

    def restart(self, process: SimulatedProcess) -> None:
        """Start a manager again whose process has crashed."""
        if process.name in self.nodes:
            self.start_node(process.name)
        elif process.name in self.islands:
            self.start_island(process.name)
        else:
            self.start_master()

    # What people do.

    def call(self, operation: str, *, url: str = "", timeout: float = 60.0, **arguments: Any) -> Answered | Unanswered:
        """Call an operation of a manager, by default `top`, and let everything happen until it is answered."""
        answers: list[Answered | Unanswered] = []
        self.call_later(operation, answers.append, url=url, timeout=timeout, **arguments)
        self.simulation.run(lambda: bool(answers))
        return answers[0]

    def call_later(
        self,
        operation: str,
        on_answer: Callable[[Answered | Unanswered], object],
        *,
        url: str = "",
        timeout: float = 60.0,
        **arguments: Any,
    ) -> None:
        """Call an operation of a manager, by default `top`; its answer is passed to `on_answer`."""
        ask = Ask(next(self._numbers), url or self.top, operation, arguments, self.simulation.time + timeout)
        self.calls.ask(self.client, ask, on_answer)

    def submit(
        self,
        graph: PhysicalGraph,
        session: str,
        *,
        url: str = "",
        replicas: int = 1,
        protect: float = 0.0,
        join: bool = True,
    ) -> Answered | Unanswered:
        """Submit a graph."""
        options = SubmitQuery(session=session, replicas=replicas, protect=protect, join=join)
        return self.call("submit", url=url, graph=graph, options=options)

    def finish(self, session: str, *, seconds: float = 600.0) -> SessionDetail | None:
        """Watch a session until it is over; return None if it is not over after `seconds`."""
        end, version = self.simulation.time + seconds, -1
        while self.simulation.time < end:
            answer = self.call("watch", timeout=20.0, session=session, version=version, seconds=10.0)
            if isinstance(answer, Answered):
                detail: SessionDetail = answer.value
                if detail.is_over:
                    return detail
                version = detail.version
            self.simulation.wait(0.5)  # one answer covers many changes, and takes more time than the simulation of one
        return None

    def wait_for_nodes(self) -> bool:
        """Let everything happen until the master has all nodes alive; return whether that is so in time."""
        end = self.simulation.time + 30.0
        while self.simulation.time < end:
            answer = self.call("nodes", timeout=5.0)
            if isinstance(answer, Answered) and len(answer.value) == len(self.nodes):
                return True
            self.simulation.wait(0.2)
        return False


def _url(name: str) -> str:
    return f"http://{name}:8000"
