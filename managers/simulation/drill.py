"""Runs of one graph on a simulated cluster with faults: when it ends, what is repeated, and what would help.

The core of sessions and the managers' own recovery run the graph on virtual time. An attempt takes the time that was
measured or declared, at the speed of its node, and begins when its inputs from other nodes have moved at the speed of
its link. Contents are empty, memory is not limited, and what is read while it is written counts as read afterwards.
"""

import logging
import math
import multiprocessing
import random
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.execution.tasks import Task
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oids
from managers.machine_calls import Answered
from managers.node.hosted_session import HostedSession
from managers.simulation.cluster import SimulatedCluster, memory_directory
from managers.simulation.simulated_node import SimulatedNode, Workload
from managers.simulation.virtual_time import WorkTime

ANY = ""
"""Name that stands for a node that is drawn."""
_SESSION = "drill"
_COMPONENTS = {Kind.APP: "dlg.apps.simple.NullBarrierApp", Kind.DATA: "dlg.data.drops.memory.InMemoryDROP"}
"""They run everywhere and need no software: what attempts do is simulated."""
_STEP = 0.5
"""Seconds of the managers after which it is looked whether a session is over."""
_RECOVERY_SECONDS = 60.0
"""Seconds of the managers after a fault, in which nothing is skipped unless the session has gone on before."""


class DrilledNode(msgspec.Struct, frozen=True):
    """A node: its name, how many attempts run there at a time, and its speed, by which times are divided."""

    name: str
    cores: int = 1
    speed: float = 1.0


class NodeLoss(msgspec.Struct, frozen=True):
    """A node ends as with SIGKILL, and does not come back.

    Attributes
    ----------
    node : str
        Its name, or `ANY`.
    at : float
        Seconds after the session begins; NaN for a time that is drawn.
    """

    node: str = ANY
    at: float = math.nan


class Cut(msgspec.Struct, frozen=True):
    """Nodes of two groups do not reach each other from a time on, for some seconds; NaN for a time that is drawn."""

    one: tuple[str, ...]
    other: tuple[str, ...]
    at: float = math.nan
    seconds: float = 600.0


class Drill(msgspec.Struct, frozen=True, kw_only=True):
    """The graph, nodes and faults of one simulated run.

    Attributes
    ----------
    graph : PhysicalGraph
        Placed: part k is on the k-th host.
    seconds : float array, shape (drops,)
        Time of each application at speed 1; 0 for data.
    volume : float array, shape (drops,)
        Bytes of each data drop.
    cores : int array, shape (drops,)
        How many of the attempts that run at a time an application takes the place of.
    hosts : tuple of DrilledNode
        The nodes.
    bandwidth : float
        Bytes per second between two nodes.
    planned : float
        Seconds that the plan takes; faults whose times are drawn happen in them.
    faults : tuple of NodeLoss and Cut
        Losses of nodes, and cuts of links.
    spread : float
        Attempts take between ``1 - spread`` and ``1 + spread`` times their time.
    replicas : int
        Copies of each result, as of a submitted session.
    protect : float
        Seconds from which on the time of an attempt has its contents copied; 0 for never.
    """

    graph: PhysicalGraph
    seconds: npt.NDArray[np.float64]
    volume: npt.NDArray[np.float64]
    cores: npt.NDArray[np.int32]
    hosts: tuple[DrilledNode, ...]
    bandwidth: float = math.inf
    planned: float
    faults: tuple[NodeLoss | Cut, ...] = ()
    spread: float = 0.0
    replicas: int = 1
    protect: float = 0.0


class Trial(msgspec.Struct, frozen=True):
    """How one run ended.

    Attributes
    ----------
    seed : int
        From which it was drawn.
    status : str
        State of the session, or ``UNFINISHED`` if it did not end in a hundred times the planned time.
    end : float
        Seconds from its begin to the end of its last attempt.
    spent, repeated : float
        Core seconds that attempts took, and those of them that would not have been without faults.
    """

    seed: int
    status: str
    end: float
    spent: float
    repeated: float


def run_trials(orders: Sequence[tuple[Drill, int]], *, jobs: int = 1) -> list[Trial]:
    """Run drills with their seeds, in several processes; the trials are in the order of `orders`."""
    if jobs == 1:
        _be_quiet()
        try:
            return [run_trial(drill, seed) for drill, seed in orders]
        finally:
            logging.disable(logging.NOTSET)
    with multiprocessing.get_context("spawn").Pool(jobs, _be_quiet) as pool:
        return pool.starmap(run_trial, orders, chunksize=4)


def _be_quiet() -> None:
    logging.disable(logging.WARNING)


def run_trial(drill: Drill, seed: int) -> Trial:
    """Run a drill once; the same seed gives the same trial."""
    with tempfile.TemporaryDirectory(dir=memory_directory()) as directory:
        return _Trial(drill, seed, Path(directory)).run()


class _DrilledAttempt(msgspec.Struct):
    """An attempt that has begun: its drop and node, when it begins and ends, and its cores."""

    drop: str
    node: str
    begin: float
    end: float
    cores: int


class _Trial:
    """One run of a drill."""

    def __init__(self, drill: Drill, seed: int, directory: Path) -> None:
        self._drill, self._seed = drill, seed
        self._chance = random.Random(seed)  # noqa: S311 - not for secrets
        graph = drill.graph
        self._names = {host.name: f"n1-{number}" for number, host in enumerate(drill.hosts, 1)}
        """Names of nodes in the simulated cluster."""
        self._speed = {self._names[host.name]: host.speed for host in drill.hosts}
        self._rows = dict(zip(oids(graph, range(graph.drops)), range(graph.drops), strict=True))
        self._attempts: list[_DrilledAttempt] = []
        self._made: dict[str, tuple[str, float]] = {}
        """The node where a data drop was made last, and when, by drop."""
        self._moved: dict[tuple[str, str], float] = {}
        """Arrival times of data drops at nodes, by drop and node."""
        self._links = dict.fromkeys(self._names.values(), 0.0)
        """Times until which links receive, by node."""
        self._busy = 0.0
        self._views = 0
        workload = Workload(
            duration=self._begin,
            ready=self._ready,
            cores=lambda task: int(drill.cores[self._rows[task.oid]]),
            workers={self._names[host.name]: host.cores for host in drill.hosts},
            content=lambda _task, _drop: b"",
            is_checked=False,
        )
        self._cluster = SimulatedCluster(
            seed, directory, islands=1, nodes=len(drill.hosts), has_master=False, workload=workload, skips_waiting=True
        )
        self._time: WorkTime = self._cluster.work_time
        self._time.may_skip = self._may_skip

    def run(self) -> Trial:
        """Run the session and return how it ended."""
        drill, cluster = self._drill, self._cluster
        places = tuple(self._names[host.name] for host in drill.hosts[: drill.graph.parts])
        cluster.wait_for_nodes()
        submitted = cluster.submit(
            _light(drill.graph, places), _SESSION, replicas=drill.replicas, protect=drill.protect
        )
        if not isinstance(submitted, Answered):
            raise submitted.error
        begin = self._time.now()
        for fault in drill.faults:
            at = self._chance.uniform(0.0, drill.planned) if math.isnan(fault.at) else fault.at
            happen = partial(self._lose, fault) if isinstance(fault, NodeLoss) else partial(self._cut, fault)
            self._time.call_at(cluster.client, begin + at, happen)
        last = begin + 100 * drill.planned + 3600.0
        while not self._is_over() and self._time.now() < last:
            cluster.simulation.wait(_STEP)
        status = {part.state.name for part in self._parts()} if self._is_over() else {"UNFINISHED"}
        spent = {attempt.drop: 0.0 for attempt in self._attempts}
        needed = dict(spent)
        for attempt in self._attempts:
            spent[attempt.drop] += (attempt.end - attempt.begin) * attempt.cores
            needed[attempt.drop] = (attempt.end - attempt.begin) * attempt.cores
        return Trial(
            seed=self._seed,
            status="FINISHED" if status == {"FINISHED"} else min(status - {"FINISHED"}, default="LOST"),
            end=max((attempt.end for attempt in self._attempts), default=begin) - begin,
            spent=sum(spent.values()),
            repeated=sum(spent.values()) - sum(needed.values()),
        )

    def _begin(self, task: Task, node: str) -> float:
        """Note an attempt that begins; return how long it takes."""
        drill, row = self._drill, self._rows[task.oid]
        seconds = float(drill.seconds[row]) / self._speed[node]
        if drill.spread:
            seconds *= self._chance.uniform(1 - drill.spread, 1 + drill.spread)
        begin = self._time.now()
        self._made.update((output.oid, (node, begin + seconds)) for output in task.outputs)
        if seconds:
            self._attempts.append(_DrilledAttempt(task.oid, node, begin, begin + seconds, int(drill.cores[row])))
        return seconds

    def _ready(self, task: Task, node: str) -> float:
        """Return when the inputs of a task are on a node. They move one after another, as soon as they are made."""
        arrivals = [0.0]
        for task_input in task.inputs:
            where, made = self._made.get(task_input.oid, (node, 0.0))
            if where != node:
                arrived = self._moved.get((task_input.oid, node), 0.0)
                if arrived < made:
                    seconds = float(self._drill.volume[self._rows[task_input.oid]]) / self._drill.bandwidth
                    arrived = max(made, self._links[node]) + seconds
                    self._moved[task_input.oid, node] = self._links[node] = arrived
                arrivals.append(arrived)
        return max(arrivals)

    # The state of the session.

    def _alive(self) -> list[SimulatedNode]:
        return [node for node in self._cluster.nodes.values() if node.process.is_alive]

    def _parts(self) -> list[HostedSession]:
        parts = [node.sessions.get(_SESSION) for node in self._alive()]
        return [part for part in parts if isinstance(part, HostedSession)]

    def _is_over(self) -> bool:
        return all(part.state.is_terminal for part in self._parts())

    def _may_skip(self) -> bool:
        """Return whether the session has gone on after the last fault, or there is nothing more to wait for."""
        now = self._cluster.simulation.time
        if now < self._busy:
            views = min((part.view.number for part in self._parts()), default=0)
            if views > self._views:
                self._busy, self._views = min(self._busy, now + 1.0), views
        return now >= self._busy

    # Faults.

    def _happens(self) -> None:
        self._busy = self._cluster.simulation.time + _RECOVERY_SECONDS
        self._views = max((part.view.number for part in self._parts()), default=0)

    def _lose(self, fault: NodeLoss) -> None:
        node = self._names.get(fault.node) or self._names[self._chance.choice(self._drill.hosts).name]
        process = self._cluster.nodes[node].process
        if self._is_over() or not process.is_alive:
            return
        self._happens()
        now = self._time.now()
        for attempt in self._attempts:
            if attempt.node == node:
                attempt.end = min(attempt.end, now)
        process.crash()

    def _cut(self, fault: Cut) -> None:
        pairs = [(self._names[one], self._names[other]) for one in fault.one for other in fault.other]
        network = self._cluster.network
        self._happens()
        for one, other in pairs:
            network.block(one, other)

        def end() -> None:
            self._happens()
            for one, other in pairs:
                network.unblock(one, other)

        self._time.call_at(self._cluster.client, self._time.now() + fault.seconds, end)


def _light(graph: PhysicalGraph, places: Sequence[str]) -> PhysicalGraph:
    """Return a graph of the same shape whose components run everywhere."""
    templates = tuple(
        msgspec.structs.replace(template, component=_COMPONENTS[template.kind], category="", arguments=(), weight=0.0)
        for template in graph.templates
    )
    links = tuple(msgspec.structs.replace(link, streaming=False) for link in graph.links)
    return replace(graph, templates=templates, links=links, places=tuple(places), planned=None)


# What the loss of a content costs.


def recomputations(
    graph: PhysicalGraph, work: npt.NDArray[np.float64], end: npt.NDArray[np.float64]
) -> Mapping[int, float]:
    """Return the core seconds that it takes to make each content again which is lost when it is needed last.

    That is the work of its producer, and of the producers of what that reads and was released before.

    Parameters
    ----------
    work : float array, shape (drops,)
        Core seconds of each application.
    end : float array, shape (drops,)
        When each drop is complete in the plan.
    """
    is_app = graph.kinds[graph.template] == Kind.APP
    before, after = graph.predecessors, graph.successors
    needed = np.zeros(graph.drops)
    """Time at which the last consumer of a content ends; the end of the session for results."""
    for drop in np.flatnonzero(~is_app).tolist():
        readers = after.of(drop)
        needed[drop] = max((end[reader] for reader in readers), default=math.inf)
    seconds = defaultdict[int, float](float)
    for drop in np.flatnonzero(~is_app).tolist():
        again, seen = list(before.of(drop)), set[int]()
        while again:
            app = int(again.pop())
            if app not in seen:
                seen.add(app)
                seconds[drop] += float(work[app])
                for read in before.of(app):
                    if needed[read] < needed[drop]:
                        again += before.of(read)
    return seconds
