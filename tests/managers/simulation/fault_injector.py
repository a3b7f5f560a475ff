"""Carries out the faults of a trial in a simulated cluster."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, singledispatchmethod
from typing import Any

from dropflow.api.requests import RetryRequest
from dropflow.execution.tasks import Task
from managers.machine_calls import Answered
from managers.messages import (
    AcceptView,
    AdoptView,
    PartDone,
    PrepareView,
    PromiseView,
    ProposeView,
    RejectView,
    SessionDone,
)
from managers.node.decisions.events import ContinueSession, FinishSession, FreezeSession, PlanNextView
from managers.node.hosted_session import HostedSession
from managers.recovery.vote import SendToPeer
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.network import NetworkFaults
from managers.simulation.simulated_node import SimulatedNode
from managers.simulation.virtual_time import SimulatedProcess
from tests.managers.simulation.checked_history import Gone
from tests.managers.simulation.faults import (
    BadNetwork,
    ClockJump,
    Crash,
    CrashAbove,
    CrashInStep,
    CutInStep,
    CutOneWay,
    DisturbanceRates,
    Disturbances,
    Disturbed,
    DyingWorkers,
    Fault,
    FullDisk,
    SessionRequest,
    SlowDisk,
    SlowLinks,
    Split,
    Stop,
    disturb,
)
from tests.managers.simulation.simulated_disks import SimulatedDisks

__all__ = ["STEPS", "FaultInjector"]

STEPS: tuple[type, ...] = (
    PrepareView,
    PromiseView,
    ProposeView,
    AcceptView,
    RejectView,
    AdoptView,
    PartDone,
    SessionDone,
    PlanNextView,
    ContinueSession,
    FreezeSession,
    FinishSession,
)
"""Messages and actions of a change of view, before or after which a node may crash."""

_ARGUMENTS: dict[str, dict[str, Any]] = {
    "cancel": {"reason": "enough", "grace": 1.0},
    "retry": {"request": RetryRequest(if_running=True)},
}
_USUAL_JOB = 0.002
_STEP_SECONDS = 0.0005
"""In which most of what a node sends in a step arrives."""


@dataclass
class _InStep:
    """A fault that waits for a step, and how often the step is still to be done."""

    fault: CrashInStep | CutInStep
    left: int


class FaultInjector:
    """Has the faults of a trial happen. A crash happens only if the sessions are to survive it.

    Parameters
    ----------
    cluster : SimulatedCluster
        The cluster.
    disks : SimulatedDisks
        Its disks.
    sessions : list of str
        The sessions that can be asked for something.
    chance : Random
        Decides which workers die.

    Attributes
    ----------
    notes : list of str
        What happened, for people.
    crashed : set of str
        Nodes that have crashed, also those that were started again.
    ended : set of (str, int)
        Processes of nodes, islands and the master that have crashed: names and incarnations.
    requests : dict of str to str
        What was asked of sessions. Not to rebalance or retry them: they must end as if that had not been asked for.
    changed : set of str
        Sessions that were rebalanced or retried.
    full : set of str
        Nodes whose disks were full at some time.
    on_crash : callable
        Called before a node crashes.
    """

    def __init__(
        self, cluster: SimulatedCluster, disks: SimulatedDisks, sessions: list[str], chance: random.Random
    ) -> None:
        self.notes: list[str] = []
        self.crashed: set[str] = set()
        self.ended: set[tuple[str, int]] = set()
        self.requests: dict[str, str] = {}
        self.changed: set[str] = set()
        self.full: set[str] = set()
        self.on_crash: Callable[[], None] = lambda: None
        self._cluster = cluster
        self._later = cluster.simulation.call_later
        self._disks = disks
        self._sessions = sessions
        self._chance = chance
        self._names = sorted(cluster.nodes)
        self._in_steps: list[_InStep] = []
        self._disturbances: list[Disturbances] = []
        self._dying: dict[str, float] = {}

    def begin(self, faults: tuple[Fault, ...]) -> float:
        """Schedule the faults; return after how many seconds the last one has ended, except for crashes in steps."""
        for fault in faults:
            if isinstance(fault, CrashInStep | CutInStep):
                self._in_steps.append(_InStep(fault, fault.count))
            else:
                self._cluster.simulation.call_later(fault.at, partial(self._begin, fault))
        return max((fault.at + fault.seconds for fault in faults), default=0.0)

    def stop(self) -> None:
        """End everything that lasts, and begin nothing more."""
        self._in_steps.clear()
        for disturbances in self._disturbances:
            disturbances.stop()
        self._cluster.network.faults = NetworkFaults()

    def dies(self, task: Task, node: str) -> bool:
        """Return whether the worker process of a task dies."""
        del task
        share = self._dying.get(node, 0.0)
        return share > 0.0 and self._chance.random() < share

    def on_action(self, node: str, action: Any) -> None:
        """Crash a node in the step that it is about to do, or cut it off after it."""
        kind = type(action.message) if isinstance(action, SendToPeer) else type(action)
        for step in list(self._in_steps):
            if STEPS[step.fault.step % len(STEPS)] is not kind:
                continue
            step.left -= 1
            if step.left:
                continue
            self._in_steps.remove(step)
            if isinstance(step.fault, CutInStep):
                others = [name for name in self._names if name != node]
                # After what it sends at this moment has arrived.
                cut_off = partial(self._cluster.network.separate, [node], others, step.fault.seconds)
                self._later(_STEP_SECONDS, cut_off)
                self._note(f"{node} is cut off from other nodes after {kind.__name__} for {step.fault.seconds:g} s")
            elif step.fault.is_before:
                self._crash(node, f"crashes before {kind.__name__}", step.fault.seconds)
            else:
                self._later(0.0, partial(self._crash, node, f"crashes after {kind.__name__}", step.fault.seconds))

    def may_lose(self, name: str) -> bool:
        """Return whether the sessions are to survive the loss of a process: a majority of voters is left then.

        Voters whose processes have ended count as lost until a view without them is decided, also if they were started
        again.
        """
        ended = self.ended | {self._cluster.present(name)}
        for node in self._cluster.nodes.values():
            for session in node.sessions.values() if node.process.is_alive else ():
                if isinstance(session, HostedSession) and not session.state.is_terminal:
                    voters = {(place.node, place.incarnation) for place in session.view.voters}
                    if len(ended & voters) > (len(voters) - 1) // 2:
                        return False
        return True

    def _node(self, number: int) -> str:
        return self._names[number % len(self._names)]

    def _processes(self, numbers: tuple[int, ...]) -> list[str]:
        """Return nodes, and perhaps the manager that is a witness."""
        names = [*self._names, self._cluster.above[-1].name]
        return list(dict.fromkeys(names[number % len(names)] for number in numbers))

    def _note(self, text: str) -> None:
        self.notes.append(f"{self._cluster.simulation.time:.1f} s: {text}")

    # Each kind of fault.

    @singledispatchmethod
    def _begin(self, fault: Fault) -> None:
        raise TypeError(fault)

    @_begin.register
    def _crash_node(self, fault: Crash) -> None:
        present = [name for name in self._names if name not in self.crashed]
        if present:
            how = "loses power" if fault.power else "crashes"
            name = present[fault.node % len(present)]
            self._crash(name, how, fault.seconds, power=fault.power)

    def _crash(self, name: str, how: str, restart_after: float, *, power: bool = False) -> None:
        node = self._cluster.nodes[name]
        if name in self.crashed or not node.process.is_alive or not self.may_lose(name):
            return
        self.on_crash()
        self.crashed.add(name)
        self.ended.add(self._cluster.present(name))
        self._note(f"{name} {how}")
        node.process.crash()
        recorder = self._cluster.recorder
        recorder.history.append(Gone(time=recorder.time, node=name))
        if power:
            self._disks.lose_power(name)
            self._cluster.network.dark.add(name)
        if restart_after > 0:
            self._later(restart_after, partial(self._restart, node.process))

    def _restart(self, process: SimulatedProcess) -> None:
        self._note(f"{process.name} is started again")
        self._cluster.restart(process)

    @_begin.register
    def _stop_node(self, fault: Stop) -> None:
        process = self._cluster.nodes[self._node(fault.node)].process
        self._note(f"{process.name} is stopped for {fault.seconds:g} s")
        process.pause()
        self._later(fault.seconds, process.resume)

    @_begin.register
    def _split(self, fault: Split) -> None:
        names = self._processes(fault.nodes)
        apart, others = names[: fault.size], names[fault.size :]
        self._note(f"{', '.join(apart)} are cut off for {fault.seconds:g} s")
        self._cluster.network.separate(apart, others, fault.seconds)

    @_begin.register
    def _slow_links(self, fault: SlowLinks) -> None:
        sender, *receivers = self._processes(fault.nodes)
        self._note(f"what {sender} sends to {', '.join(receivers)} is {fault.delay:g} s late for {fault.seconds:g} s")
        late = self._cluster.network.late
        for receiver in receivers:
            late[sender, receiver] = fault.delay
            self._later(fault.seconds, partial(late.pop, (sender, receiver), None))

    @_begin.register
    def _cut_one_way(self, fault: CutOneWay) -> None:
        sender, *receivers = self._processes(fault.nodes)
        self._note(f"nothing of {sender} arrives at {', '.join(receivers)} for {fault.seconds:g} s")
        for receiver in receivers:
            self._cluster.network.block(sender, receiver, one_way=True)
            self._later(fault.seconds, partial(self._cluster.network.unblock, sender, receiver))

    @_begin.register
    def _disturb(self, fault: Disturbed) -> None:
        self._note(f"cuts, blocks and stops up to {fault.longest:g} s")
        rates = DisturbanceRates(cuts=0.3, blocks=0.2, pauses=0.2, longest=fault.longest)
        disturbances = disturb(self._cluster, rates)
        self._disturbances.append(disturbances)
        self._later(fault.seconds, disturbances.stop)

    @_begin.register
    def _make_network_bad(self, fault: BadNetwork) -> None:
        self._note(f"the network is bad for {fault.seconds:g} s: {fault}")
        network = self._cluster.network
        before = network.faults
        network.faults = bad = NetworkFaults(
            delay=max(fault.delay / 2, before.delay),
            jitter=max(fault.delay, before.jitter),
            lose=fault.lose,
            duplicate=fault.duplicate,
            reorder=fault.reorder,
            cut=fault.cut,
        )

        def end() -> None:
            if network.faults is bad:
                network.faults = NetworkFaults()

        self._later(fault.seconds, end)

    @_begin.register
    def _fill_disk(self, fault: FullDisk) -> None:
        name = self._node(fault.node)
        self._note(f"the disk of {name} is full for {fault.seconds:g} s")
        self.full.add(name)
        self._disks.fill(name)
        self._later(fault.seconds, partial(self._disks.free, name))

    @_begin.register
    def _slow_disk(self, fault: SlowDisk) -> None:
        node = self._cluster.nodes[self._node(fault.node)]
        self._note(f"the disk of {node.name} is slow for {fault.seconds:g} s")
        _set_job_seconds(node, fault.each)
        self._later(fault.seconds, partial(_set_job_seconds, node, _USUAL_JOB))

    @_begin.register
    def _set_clock(self, fault: ClockJump) -> None:
        node = self._cluster.nodes[self._node(fault.node)]
        self._note(f"the clock of {node.name} jumps by {fault.by:g} s")
        node.clock.ahead += fault.by

    @_begin.register
    def _crash_above(self, fault: CrashAbove) -> None:
        above = self._cluster.above
        process = above[fault.which % len(above)].process
        if process.is_alive and self.may_lose(process.name):
            self._note(f"{process.name} crashes")
            self.crashed.add(process.name)
            self.ended.add(self._cluster.present(process.name))  # a witness is none any more then
            process.crash()
            self._later(fault.seconds, partial(self._restart, process))

    @_begin.register
    def _ask(self, fault: SessionRequest) -> None:
        name = self._sessions[fault.session % len(self._sessions)]
        if fault.operation not in ("rebalance", "retry"):
            if name in self.requests:
                return
            self.requests[name] = fault.operation
        else:
            self.changed.add(name)

        def note(answer: Any) -> None:
            outcome = "ok" if isinstance(answer, Answered) else answer.error
            self._note(f"{fault.operation} {name}: {outcome}")

        self._cluster.call_later(fault.operation, note, session=name, **_ARGUMENTS.get(fault.operation, {}))

    @_begin.register
    def _let_workers_die(self, fault: DyingWorkers) -> None:
        name = self._node(fault.node)
        self._note(f"workers of {name} die for {fault.seconds:g} s")
        self._dying[name] = fault.share
        self._later(fault.seconds, partial(self._dying.pop, name, None))


def _set_job_seconds(node: SimulatedNode, seconds: float) -> None:
    node.owner.job_seconds = seconds
