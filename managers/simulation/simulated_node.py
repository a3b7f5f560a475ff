"""A node manager on virtual time: the machine, sessions, exchange and recovery of the product, on simulated links."""

import math
import select
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dropflow.api import operations
from dropflow.api.node_records import Load, ManagerInfo, ManagerStatus, NodeInfo, manager_info
from dropflow.api.session_records import SessionInfo
from dropflow.data.registry import store_for
from dropflow.data.repository import LocalRepository
from dropflow.data.store import Slot
from dropflow.data.streams import StreamedWriter
from dropflow.data.workspace import Workspace
from dropflow.errors import DropflowError, WorkerDiedError
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.continuation import Continuation
from dropflow.execution.inbox import Inbox
from dropflow.execution.session import Session, Watch
from dropflow.execution.session_inputs import SessionInput
from dropflow.execution.tasks import Output, Task
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.sessions.make_session import make_session
from dropflow.version import __version__
from managers.deployment import Deployment
from managers.messages import PROTOCOL
from managers.node.decisions.machine import NodeMachine
from managers.node.exchange import NodeExchange
from managers.node.finished_sessions import recover_all
from managers.node.host import LinkHandlers, SessionHost
from managers.node.operations import NodeOperations, NodeSession, joining_deployment
from managers.node.resources import OnStop
from managers.simulation.history import Recorder
from managers.simulation.network import SimulatedNetwork
from managers.simulation.simulated_links import SimulatedFetchPool, SimulatedLinks
from managers.simulation.simulated_runner import SimulatedRunner
from managers.simulation.virtual_time import OnReturn, SimulatedOwner, SimulatedProcess, SteppedClock, Timer, WorkTime

# Runs a `Session` in a simulated process: each step is an event of the simulation.


class SessionInbox(Inbox[SessionInput]):
    """An inbox that calls `on_put` when something is put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.on_put: Callable[[], None] = lambda: None

    def put(self, items: Iterable[SessionInput]) -> None:
        """Add items."""
        super().put(items)
        self.on_put()


class SessionDriver:
    """Steps a session whenever something is in its inbox and the nodes that it sent to are not too far behind.

    Parameters
    ----------
    process : SimulatedProcess
        The process of the session's node.
    session : Session
        Has `inbox` as its inbox, and has not begun.
    inbox : SessionInbox
        The inbox of the session.
    exchange : NodeExchange
        Exchange of the session. When its links report room, `wake` must be called.
    on_stop : callable
        Called with None when the session is over or frozen.
    """

    def __init__(
        self,
        process: SimulatedProcess,
        session: Session,
        inbox: SessionInbox,
        exchange: NodeExchange,
        on_stop: OnStop,
    ) -> None:
        self._process = process
        self._session = session
        self._inbox = inbox
        self._exchange = exchange
        self._on_stop = on_stop
        self._has_stopped = False
        self._next: Timer | None = None

    def start(self) -> None:
        """Begin the session, unless it has begun."""
        self._session.begin()
        self._inbox.on_put = self.wake
        self.wake()

    def wake(self) -> None:
        """Step the session soon. Idempotent."""
        self._schedule(self._process.simulation.time)

    def _schedule(self, time: float) -> None:
        if self._has_stopped or (self._next is not None and not self._next.is_cancelled and self._next.time <= time):
            return
        if self._next is not None:
            self._next.cancel()
        self._next = self._process.call_at(time, self._step)

    def _step(self) -> None:
        session = self._session
        if not session.is_over and not session.is_frozen:
            if not self._exchange.has_room():
                return
            session.step(0.0)
        if not session.is_over and not session.is_frozen:
            deadline = session.deadline()
            if deadline < math.inf:
                self._schedule(deadline)
        elif not self._has_stopped:
            self._has_stopped = True
            self._on_stop(None)


# A file watcher without a thread: it looks when it is called after a possible write.


class SimulatedFileWatcher:
    """As `managers.node.stream_copies.FileWatcher`, in a simulated process.

    Parameters
    ----------
    process : SimulatedProcess
        In its time the functions are called.
    """

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._functions: dict[int, Callable[[], None]] = {}
        self._is_due = False

    def watch(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` when `descriptor` is found to be readable."""
        self._functions[descriptor] = on_readable
        self.look_soon()

    def unwatch(self, descriptor: int) -> None:
        """Stop watching. Unknown descriptors are ignored."""
        self._functions.pop(descriptor, None)

    def look_soon(self) -> None:
        """Look at all descriptors in the next event."""
        if self._functions and not self._is_due:
            self._is_due = True
            self._process.call_later(0.0, self._look)

    def _look(self) -> None:
        self._is_due = False
        # In the order in which they were watched: the numbers of descriptors differ between runs.
        for descriptor, on_readable in list(self._functions.items()):
            if descriptor in self._functions and _is_readable(descriptor):
                on_readable()


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Times of attempts in the simulation.

    Attributes
    ----------
    seconds : float
        Mean virtual time of an attempt; each takes between nothing and twice as long.
    duration : callable or None
        Returns the time of an attempt instead, given the task and the name of the node; called when it begins.
    ready : callable
        Returns when the inputs of a task are on a node, given both.
    cores : callable
        Returns how many workers a task takes.
    workers : mapping of str to int
        By node: attempts of each session that run there at a time, 4 by default.
    slowness : mapping of str to float
        By node: how many times as long attempts take there, 1 by default.
    fails : callable
        Whether a task fails, given the task and the name of the node.
    dies : callable
        Whether the worker process of a task dies, given the same.
    skips : callable
        Returns the rows of the outputs that a task chooses to skip.
    content : callable
        Returns the bytes that a task writes to an output.
    stopping : float
        Virtual time that an attempt takes to stop when it is aborted.
    work_time : WorkTime or None
        The time of attempts, if it is not that of the managers.
    is_checked : bool
        Whether sessions walk their whole state after each batch; slow.
    """

    seconds: float = 0.05
    duration: Callable[[Task, str], float] | None = None
    ready: Callable[[Task, str], float] = lambda _task, _node: 0.0
    cores: Callable[[Task], int] = lambda _: 1
    workers: Mapping[str, int] = {}
    slowness: Mapping[str, float] = {}
    fails: Callable[[Task, str], bool] = lambda _task, _node: False
    dies: Callable[[Task, str], bool] = lambda _task, _node: False
    skips: Callable[[Task], Collection[int]] = lambda _: ()
    content: Callable[[Task, int], bytes] = lambda _task, _drop: b"content"
    stopping: float = 0.0
    work_time: WorkTime | None = None
    is_checked: bool = True

    def workers_of(self, node: str) -> int:
        """Return how many attempts of each session run at a time on a node."""
        return self.workers.get(node, 4)


class SimulatedNode:
    """One process of a node manager; after a crash, a new one is made with the same directory.

    Parameters
    ----------
    name : str
        Name of the node.
    url : str
        URL at which the manager is called.
    network : SimulatedNetwork
        Carries packets and calls.
    directory : Path
        Directory of the sessions' directories; exists.
    workload : Workload
        Times and results of attempts.
    shared_memory : Path
        Where sessions get their directories in shared memory; exists.
    incarnation : int
        Incarnation of the process.
    address : str
        Address of its links; a new one by default.
    recorder : Recorder
        Gets what sessions commit and read.
    on_action : callable
        Called with each action of its machine before it is carried out.
    """

    def __init__(
        self,
        name: str,
        url: str,
        network: SimulatedNetwork,
        *,
        directory: Path,
        workload: Workload,
        shared_memory: Path,
        incarnation: int,
        recorder: Recorder,
        address: str = "",
        on_action: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.url = url
        self.simulation = network.simulation
        self.process = SimulatedProcess(self.simulation, name)
        self.directory = directory
        self.clock = SteppedClock(self.simulation)
        self._incarnation = incarnation
        self._started = self.clock.now()
        machine = NodeMachine(name, incarnation, recover_all(directory, name), now=self.simulation.monotonic())
        self._machine = machine
        self.owner = SimulatedOwner(machine, process=self.process, on_action=on_action)
        handlers = LinkHandlers(name, machine.table, self.owner.post)
        self.links = SimulatedLinks(
            name,
            network,
            on_message=handlers.on_message,
            on_change=handlers.on_change,
            on_room=self._on_room,
            open_content=handlers.open_content,
            incarnation=incarnation,
            process=self.process,
            address=address,
        )
        self._resources = _SimulatedResources(
            self.links, self.process, self.clock, workload, recorder=recorder, shared_memory=shared_memory
        )
        self._host = SessionHost(name, machine.table, directory=directory, owner=self.owner, resources=self._resources)
        self.owner.start(self._host.effects())
        self._operations = NodeOperations(name, lambda: self._host.sessions)
        self._handlers: Mapping[str, Callable[..., Any]] = {
            **self._operations.handlers(),
            operations.STATUS.name: self._status,
            operations.NODES.name: self._nodes,
            operations.DEPLOYMENT.name: lambda session: joining_deployment(self._operations.find(session)),
            operations.PAUSE.name: partial(self._pause, is_paused=True),
            operations.UNPAUSE.name: partial(self._pause, is_paused=False),
        }

    @property
    def running(self) -> int:
        """Number of sessions that are stepped."""
        return len(self._resources.drivers)

    @property
    def sessions(self) -> Mapping[str, NodeSession]:
        """Sessions by name."""
        return self._host.sessions

    def answer(self, operation: str, arguments: Mapping[str, Any], on_return: OnReturn) -> None:
        """Call an operation of `dropflow.api.manager.Manager`."""
        handler = self._handlers.get(operation)
        if handler is not None:
            on_return(handler(**arguments), None)
            return

        def decided(value: Any, error: Exception | None) -> None:
            try:
                answer = None if error else self._operations.decided(operation, value, **arguments)
            except DropflowError as gone:
                answer, error = None, gone
            on_return(answer, error)

        self.owner.submit(self._machine.operations[operation], decided, **arguments)

    def _pause(self, session: str, *, is_paused: bool) -> SessionInfo:
        instance = self._operations.find(session)
        if isinstance(instance.session, Session):
            instance.session.pause(is_paused=is_paused)
        return instance.info()

    def _status(self) -> ManagerStatus:
        return ManagerStatus.of(self._info(), self._nodes(), self._operations.sessions())

    def _info(self) -> ManagerInfo:
        return manager_info(
            self.name,
            "node",
            url=self.url,
            started=self._started,
            clock=self.clock,
            protocol=PROTOCOL,
            incarnation=self._incarnation,
        )

    def _nodes(self) -> tuple[NodeInfo, ...]:
        running = sum(not session.state.is_terminal for session in self.sessions.values())
        return (
            NodeInfo(
                name=self.name,
                url=self.url,
                state=self._machine.draining.state,
                links=self.links.address,
                incarnation=self._incarnation,
                version=__version__,
                host=self.name,
                sessions=running,
                started=self._started,
                load=Load(cores=self._resources.workers, workers=self._resources.workers),
            ),
        )

    def _on_room(self) -> None:
        self._resources.file_watcher.look_soon()  # what came may belong to a stream that is offered to others
        for driver in self._resources.drivers:
            driver.wake()


class _SimulatedResources:
    """`managers.node.resources.SessionResources` on virtual time."""

    def __init__(
        self,
        links: SimulatedLinks,
        process: SimulatedProcess,
        clock: SteppedClock,
        workload: Workload,
        *,
        recorder: Recorder,
        shared_memory: Path,
    ) -> None:
        self.shared_memory = shared_memory
        self.drivers: list[SessionDriver] = []
        self.links = links
        self.fetch_pool = self.stream_pool = SimulatedFetchPool(links)
        self.file_watcher = SimulatedFileWatcher(process)
        self.in_place = False
        self._parts: dict[int, tuple[SessionInbox, NodeExchange]] = {}
        self._graphs: dict[str, PhysicalGraph] = {}
        """The latest part of the graph of each session: a runner outlives a view, in which its node may get drops."""
        self._process = process
        self.clock = clock
        self._workload = workload
        self._recorder = recorder

    @property
    def workers(self) -> int:
        """Number of attempts of a session that run at a time."""
        return self._workload.workers_of(self._process.name)

    def make_session(
        self,
        graph: PhysicalGraph,
        repository: LocalRepository,
        exchange: NodeExchange,
        deployment: Deployment,
        *,
        watch: Watch,
        continuation: Continuation | None,
        before: Session | None,
    ) -> Session:
        """Return a session whose attempts take virtual time."""
        inbox = SessionInbox() if before is None else self._parts[id(before)][0]
        work, simulation, node = self._workload, self._process.simulation, self._process.name
        recorder, name = self._recorder, deployment.session
        recorder.enter_view(node, name, exchange.view)
        self._graphs[name] = graph

        def failure(task: Task) -> Failure | None:
            text = f"attempt {task.attempt} fails"
            if work.dies(task, node):
                recorder.failed(name, task)
                return Failure.of(WorkerDiedError(f"the worker process of attempt {task.attempt} died"))
            if work.fails(task, node):
                recorder.failed(name, task)
                return Failure(code="DF", kind="SimulatedError", text=text, retryable=True)
            return None

        def duration(task: Task) -> float:
            recorder.started(node, name, task)
            if work.duration is not None:
                return work.duration(task, node)
            return 2 * work.seconds * simulation.random.random() * work.slowness.get(node, 1.0)

        times = work.work_time
        runner = SimulatedRunner(
            times or simulation,
            self._process.call_at if times is None else partial(times.call_at, self._process),
            duration=duration,
            failure=failure,
            skips=work.skips,
            content=lambda task, drop: Handle(body=(body := work.content(task, drop)), size=len(body)),
            stopping=lambda _: work.stopping,
            open_stream=partial(self._open_stream, graph, repository.workspace),
            on_written=self.file_watcher.look_soon,
            sends_late=lambda task: task.drop % 2 == 1,
            on_lost=lambda result: recorder.lost(node, name, oid(self._graphs[name], result.drop), result.attempt),
            ready=lambda task: work.ready(task, node),
            cores=work.cores,
            workers=self.workers,
        )
        session = make_session(
            graph,
            recorder.recorded(repository, graph, node=node, session=name),
            runner if before is None else before.runner,
            clock=self.clock,
            inbox=inbox,
            exchange=exchange,
            epoch=deployment.epoch,
            view=exchange.view,
            watch=replace(watch, check_invariants=work.is_checked),
            infrastructure_retries=deployment.infrastructure_retries,
            continuation=continuation,
            until=deployment.until,
        )
        self._parts[id(session)] = inbox, exchange
        return session

    def _open_stream(
        self, graph: PhysicalGraph, workspace: Workspace, task: Task, output: Output, on_open: Callable[[Handle], None]
    ) -> StreamedWriter | None:
        """Return what a task writes an output with that is read while it grows; None if its class cannot be."""
        grow = store_for(graph.templates[output.template]).growing
        if grow is None:
            return None
        name = f"{output.drop}.part"
        slot = Slot(workspace, output.oid, task.drop, task.attempt, output.drop, kept=output.kept)
        folder = workspace.part_name(task.drop, task.attempt, f"{name}.stream")
        return StreamedWriter(grow(slot), folder, on_open, lambda: None, self._process.simulation)

    def execute(self, session: Session, name: str, on_stop: OnStop) -> None:
        """Step a session when something came in."""
        del name
        inbox, exchange = self._parts[id(session)]

        def stop(error: Exception | None) -> None:
            self.drivers.remove(driver)
            on_stop(error)

        driver = SessionDriver(self._process, session, inbox, exchange, stop)
        self.drivers.append(driver)
        self._process.call_later(0.0, driver.start)
