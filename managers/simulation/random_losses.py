"""One run of sessions in a cluster that loses nodes, drawn from a seed, and what must hold when it is over."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dropflow.engine.api import Handle
from dropflow.engine.content_table import kept_drops
from dropflow.engine.session import Session
from dropflow.errors import InternalError
from dropflow.states import DropState
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
from managers.node.events import ContinueSession, FinishSession, FreezeSession, PlanNextView, SendToPeer
from managers.node.hosted_session import HostedSession
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.disturbances import DisturbanceRates
from managers.simulation.network import NetworkFaults
from managers.simulation.random_sessions import draw_graph, draw_workload, happens
from managers.simulation.virtual_time import SimulatedProcess

__all__ = ["LossTrial", "TrialOutcome"]

_NODES = 6
_BAD_NETWORK = NetworkFaults(lose=0.02, duplicate=0.02, reorder=0.05, cut=0.005)
_STEPS = (PrepareView, PromiseView, ProposeView, AcceptView, RejectView, AdoptView, PartDone, SessionDone)
_ACTIONS = (PlanNextView, ContinueSession, FreezeSession, FinishSession)
_REQUESTS = ("cancel", "pause", "delete")


class TrialOutcome(msgspec.Struct, frozen=True):
    """How one trial ended.

    Attributes
    ----------
    violations : tuple of str
        What should hold and does not.
    sessions : int
        Sessions that were accepted.
    survived : int
        Sessions that went on after a loss and have ended as they should.
    losses : int
        Nodes that crashed.
    faults : tuple of str
        What happened to the cluster, for people.
    """

    violations: tuple[str, ...]
    sessions: int = 0
    survived: int = 0
    losses: int = 0
    faults: tuple[str, ...] = ()


class _Expected(msgspec.Struct, frozen=True):
    """What a session ends as where nothing is lost."""

    status: str
    states: bytes
    contents: Mapping[int, bytes]


@dataclass
class _CrashAt:
    """The process that does a certain thing for the `left`-th time crashes before it, or just after."""

    kind: type
    left: int
    before: bool
    done: bool = field(default=False)


class LossTrial:
    """Sessions of a simulated cluster whose nodes are lost.

    Parameters
    ----------
    seed : int
        Graphs, workload, faults and their times are drawn from it.
    directory : Path
        For the files of the nodes.
    keep_trace : bool
        Whether to keep lines in `decisions`.

    Attributes
    ----------
    decisions : list of str
        What nodes decided about views, for people.
    """

    def __init__(self, seed: int, directory: Path, *, keep_trace: bool = False) -> None:
        self._chance = chance = random.Random(seed)  # noqa: S311 - not for secrets
        is_small = happens(chance, 0.3)
        nodes = 2 if is_small else _NODES
        self.graphs = {
            f"s{number}": draw_graph(f"s{number}", chance.randint(1, nodes), chance)
            for number in range(chance.choice((1, 1, 1, 2, 3)))
        }
        self._workload = draw_workload(self.graphs, chance)
        self._copies = {name: (chance.choice((1, 1, 2, 3)), chance.choice((0.0, 0.0, 0.05))) for name in self.graphs}
        self._directory = directory
        (directory / "cluster").mkdir()
        self.cluster = SimulatedCluster(
            seed,
            directory / "cluster",
            islands=1 if is_small else 2,
            nodes=2 if is_small else _NODES // 2,
            faults=_BAD_NETWORK if happens(chance, 0.4) else None,
            workload=self._workload,
        )
        self._keep_trace = keep_trace
        self.decisions: list[str] = []
        self._simulation = self.cluster.simulation
        self._faults: list[str] = []
        self._violations: list[str] = []
        self._requests: dict[str, str] = {}
        self._decisions: dict[tuple[str, int], bytes] = {}
        self._crashed: set[str] = set()
        self._ending: set[str] = set()
        self._told: set[tuple[str, str, int]] = set()
        """Nodes that told that their part of a session is finished, and in which view."""
        self._ended_before_loss: set[str] = set()
        self._crash_at: list[_CrashAt] = []
        self._members: set[str] = set()
        self._voters: list[set[str]] = []
        """The first voters of each session."""
        self.cluster.on_action = self._on_action

    def run(self) -> TrialOutcome:
        """Run the sessions, disturb them, and return what was found."""
        try:
            expected = self._without_faults()
            if not self.cluster.wait_for_nodes():
                return TrialOutcome(("the cluster did not come up",))
            accepted = [name for name in self.graphs if self._submit(name)]
            self._disturb()
            self._simulation.wait(300.0)
            for name in [name for name, request in self._requests.items() if request == "pause"]:
                self.cluster.call("unpause", url=self._above(), session=name)
            self._simulation.wait(200.0)
            survived = sum(self._check(name, expected[name]) for name in accepted)
        except Exception as error:  # noqa: BLE001 - a trial that raises has found something
            place = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            where = "" if place is None else f" in {place.tb_frame.f_code.co_qualname}, line {place.tb_lineno}"
            return TrialOutcome(
                (*self._violations, f"{type(error).__name__}: {error}{where}"), faults=tuple(self._faults)
            )
        return TrialOutcome(
            tuple(self._violations), len(accepted), survived, len(self._crashed), faults=tuple(self._faults)
        )

    def _without_faults(self) -> dict[str, _Expected]:
        """Return how the sessions end on one node that is not disturbed."""
        directory = self._directory / "alone"
        directory.mkdir()
        alone = SimulatedCluster(0, directory, islands=1, nodes=1, workload=self._workload)
        alone.wait_for_nodes()
        found = {}
        for name, drawn in self.graphs.items():
            one = np.zeros(drawn.graph.drops, dtype=np.int32)
            answer = alone.submit(replace(drawn.graph, part=one, places=("#0",)), name)
            if not isinstance(answer, Answered):
                raise answer.error
            alone.finish(name)
            (node,) = alone.nodes.values()
            hosted = node.sessions[name]
            if not isinstance(hosted, HostedSession):
                raise InternalError(f"session {name} is not in memory any more")
            found[name] = _Expected(hosted.info().status, _states(hosted), _contents(hosted))
        return found

    def _submit(self, name: str) -> bool:
        replicas, protect = self._copies[name]
        answer = self.cluster.submit(self.graphs[name].graph, name, replicas=replicas, protect=protect)
        return isinstance(answer, Answered)

    # Faults.

    def _disturb(self) -> None:
        """Have things happen to the cluster, some at once and some later."""
        chance, wait = self._chance, self._simulation.wait
        running = [session for node in self.cluster.nodes.values() for session in node.sessions.values()]
        self._members = {member for session in running for member in session.info().members}
        self._voters = [_voters(session) for session in running if isinstance(session, HostedSession)]
        disturbances = None
        if happens(chance, 0.3):
            longest = chance.choice((1.0, 5.0, 25.0))
            self._faults.append(f"cuts, blocks and pauses up to {longest:g} s")
            rates = DisturbanceRates(cuts=0.3, blocks=0.2, pauses=0.2, longest=longest)
            disturbances = self.cluster.disturb(rates)
        for _ in range(chance.randint(0, 3)):
            self._crash_at.append(
                _CrashAt(chance.choice((*_STEPS, *_ACTIONS)), chance.randint(1, 8), happens(chance, 0.5))
            )
        faults = (
            self._lose,
            self._lose,
            self._lose,
            self._split,
            self._cut_one_way,
            self._stop_for,
            self._ask,
            self._lose_above,
        )
        for _ in range(chance.randint(1, 5)):
            wait(chance.choice((0.0, 0.1, 1.0, 5.0, 16.0, 20.0)))
            chance.choice(faults)()
        if happens(chance, 0.3):
            wait(60.0)
            self._lose_again()
        wait(chance.choice((1.0, 20.0, 60.0)))
        if disturbances is not None:
            disturbances.stop()
        self.cluster.network.faults = NetworkFaults()

    def _lose(self) -> None:
        """Crash a node, as long as a majority of the first voters lives."""
        names = sorted(name for name in self._members if name not in self._crashed and self._may_crash(name))
        if names:
            self._crash(self._chance.choice(names), "crashes")

    def _may_crash(self, name: str) -> bool:
        """Return whether each session has a majority of its first voters after the crash of one more process."""
        down = self._crashed | {name}
        return all(len(down & voters) <= (len(voters) - 1) // 2 for voters in self._voters)

    def _lose_again(self) -> None:
        """Crash one more node, after the losses before have been overcome."""
        live = [node for node in self.cluster.nodes.values() if node.name not in self._crashed]
        sessions = [session for node in live for session in node.sessions.values() if not session.state.is_terminal]
        # Voters that are down count, and so do those that were started again, until a view without them is decided.
        groups = [_voters(one) for one in sessions if isinstance(one, HostedSession)]
        if groups and all(len(self._crashed & voters) + 1 <= (len(voters) - 1) // 2 for voters in groups):
            name = self._chance.choice(sorted(node.name for node in live))
            self._crash(name, "crashes after the losses before")

    def _crash(self, name: str, how: str) -> None:
        node = self.cluster.nodes[name]
        self._ended_before_loss |= self._ending
        self._crashed.add(name)
        self._note(f"{name} {how}")
        node.process.crash()
        if happens(self._chance, 0.5):
            self._simulation.call_later(self._chance.choice((0.5, 3.0, 30.0)), partial(self._restart, node.process))

    def _restart(self, process: SimulatedProcess) -> None:
        self._note(f"{process.name} is started again")
        self.cluster.restart(process)

    def _on_action(self, node: str, action: Any) -> None:
        if isinstance(action, ContinueSession):
            key = action.session, action.decision.view.number
            decided = msgspec.msgpack.encode(action.decision)
            if self._decisions.setdefault(key, decided) != decided:
                self._violations.append(f"two decisions for view {key[1]} of session {key[0]}")
        if isinstance(action, FinishSession):
            self._ending.add(action.hosted.name)
        if isinstance(action, SendToPeer) and isinstance(action.message, PartDone):
            told = node, action.message.session, action.message.view
            if told in self._told:  # it has confirmed that it is there, so it may be decided from now on
                self._ending.add(action.message.session)
            self._told.add(told)
        kind = type(action.message) if isinstance(action, SendToPeer) else type(action)
        if self._keep_trace and kind in (*_STEPS, *_ACTIONS):
            to = f" to {action.peer}" if isinstance(action, SendToPeer) else ""
            about = action.message if isinstance(action, SendToPeer) else action
            session = action.hosted.name if isinstance(action, FreezeSession | FinishSession) else about.session
            self.decisions.append(f"{self._simulation.time:.3f} s: {node}: {kind.__name__}{to}, session {session}")
        for crash in self._crash_at:
            if crash.kind is kind and not crash.done:
                crash.left -= 1
                if crash.left == 0:
                    crash.done = True
                    self._crash_here(node, kind, crash)

    def _crash_here(self, node: str, kind: type, crash: _CrashAt) -> None:
        if node in self._crashed or not self._may_crash(node):
            return
        if crash.before:
            self._crash(node, f"crashes before {kind.__name__}")
        else:
            self._simulation.call_later(0.0, lambda: self._crash_after(node, kind))

    def _crash_after(self, node: str, kind: type) -> None:
        if node not in self._crashed and self._may_crash(node):
            self._crash(node, f"crashes after {kind.__name__}")

    def _split(self) -> None:
        """Separate some nodes, and perhaps the master, from the others for a while."""
        names = [*self.cluster.nodes, self.cluster.master.name]
        self._chance.shuffle(names)
        size = self._chance.choice((1, 2, 3))
        seconds = self._chance.choice((3.0, 20.0, 60.0))
        self._note(f"{', '.join(names[:size])} are cut off for {seconds:g} s")
        network = self.cluster.network
        for a in names[:size]:
            for b in names[size:]:
                network.block(a, b)
                self._simulation.call_later(seconds, partial(network.unblock, a, b))

    def _cut_one_way(self) -> None:
        """Drop packets from one process to some others for a while."""
        names = [*self.cluster.nodes, self.cluster.master.name]
        self._chance.shuffle(names)
        sender, *receivers = names[: self._chance.randint(2, 6)]
        seconds = self._chance.choice((3.0, 20.0, 60.0))
        self._note(f"nothing arrives of {sender} at {', '.join(receivers)} for {seconds:g} s")
        for receiver in receivers:
            self.cluster.network.block(sender, receiver, one_way=True)
            self._simulation.call_later(seconds, partial(self.cluster.network.unblock, sender, receiver))

    def _stop_for(self) -> None:
        """Pause a node."""
        process = self.cluster.nodes[self._chance.choice(list(self.cluster.nodes))].process
        seconds = self._chance.choice((1.0, 14.0, 16.0, 25.0, 60.0))
        self._note(f"{process.name} is paused for {seconds:g} s")
        process.pause()
        self._simulation.call_later(seconds, process.resume)

    def _ask(self) -> None:
        """Cancel, pause or delete a session."""
        free = [name for name in self.graphs if name not in self._requests]
        if free and happens(self._chance, 0.5):
            name, request = self._chance.choice(free), self._chance.choice(_REQUESTS)
            answer = self.cluster.call(request, url=self._above(), session=name, **_ARGUMENTS.get(request, {}))
            self._note(f"{request} {name}: {'ok' if isinstance(answer, Answered) else answer.error}")
            self._requests[name] = request

    def _lose_above(self) -> None:
        """Crash an island or the master, and start it again. A witness is none any more then."""
        above = [*self.cluster.islands.values(), self.cluster.master]
        process = self._chance.choice(above).process
        if process.is_alive and self._may_crash(process.name):
            self._note(f"{process.name} crashes")
            self._crashed.add(process.name)
            process.crash()
            self._simulation.call_later(self._chance.choice((0.5, 10.0)), partial(self._restart, process))

    def _above(self) -> str:
        return self.cluster.master.url

    def _note(self, text: str) -> None:
        self._faults.append(f"{self._simulation.time:.1f} s: {text}")

    # Checks.

    def _check(self, name: str, expected: _Expected) -> bool:
        """Check how a session has ended; return whether it had to go on after a loss."""
        live = {node.name: node for node in self.cluster.nodes.values() if node.process.is_alive}
        here = {node: one.sessions[name] for node, one in live.items() if name in one.sessions}
        parts: dict[str, HostedSession] = {n: one for n, one in here.items() if isinstance(one, HostedSession)}
        request = self._requests.get(name, "")
        if self._lacks_majority(parts):
            return False
        for node, session in here.items():
            if not session.state.is_terminal:
                self._wrong(
                    name, f"{session.info().status} on {node}, view {session.info().view}: {session.info().text}"
                )
        if any(node.running for node in live.values()):
            self._wrong(name, f"still stepped on {[node.name for node in live.values() if node.running]}")
        if request in ("cancel", "delete") or not parts or self._violations:
            return False
        views = {session.info().view for session in parts.values()}
        # Some members may have ended with a view that others had to leave: they could not be reached.
        parts = {node: session for node, session in parts.items() if session.info().view == max(views)}
        statuses = {node: session.info().status for node, session in parts.items()}
        if expected.status == "FINISHED" and set(statuses.values()) != {"FINISHED"}:
            texts = {node: session.info().text for node, session in parts.items()}
            self._wrong(name, f"{statuses} instead of {expected.status}: {texts}")
        if expected.status == "FAILED" and "FAILED" not in statuses.values() and name not in self._ended_before_loss:
            self._wrong(name, f"{statuses} instead of {expected.status}")
        self._check_drops(name, expected, parts)
        return views != {0}

    def _lacks_majority(self, parts: Mapping[str, HostedSession]) -> bool:
        """Return whether a session waits with good reason: too few voters of its latest view have never crashed.

        A view may be decided while one member cannot be reached, and another one crashes: then both are lost.
        """
        latest = max(parts.values(), key=lambda session: session.view.number, default=None)
        if latest is None or latest.state.is_terminal:
            return False
        voters = _voters(latest)
        return len(voters - self._crashed) <= len(voters) // 2

    def _check_drops(self, name: str, expected: _Expected, parts: Mapping[str, HostedSession]) -> None:
        owners: Counter[int] = Counter()
        for node, part in parts.items():
            rows, states = part.piece.drop, np.frombuffer(_states(part), dtype=np.uint8)
            for here in np.flatnonzero(part.piece.is_own).tolist():
                row = int(rows[here])
                owners[row] += 1
                if states[here] != expected.states[row]:
                    found, wanted = DropState(int(states[here])).name, DropState(expected.states[row]).name
                    self._wrong(name, f"drop {row} on {node} is {found} instead of {wanted}")
            for row, content in _contents(part).items():
                if row in expected.contents and content != expected.contents[row]:
                    self._wrong(name, f"the content of drop {row} on {node} is another one")
        if any(count > 1 for count in owners.values()):
            self._wrong(name, f"drops with several owners: {[row for row, count in owners.items() if count > 1]}")
        if name not in self._ended_before_loss:
            missing = [row for row in range(len(expected.states)) if not owners[row]]
            if missing:
                self._wrong(name, f"drops without an owner: {missing}")
            there = {row for part in parts.values() for row in _contents(part)}
            lost = sorted(expected.contents.keys() - there)
            if lost:
                self._wrong(name, f"results without content: {lost}")

    def _wrong(self, session: str, text: str) -> None:
        self._violations.append(f"session {session}: {text}")


_ARGUMENTS: Mapping[str, dict[str, Any]] = {"cancel": {"reason": "enough", "grace": 1.0}}


def _voters(hosted: HostedSession) -> set[str]:
    return {place.node for place in hosted.view.voters}


def _states(hosted: HostedSession) -> bytes:
    return hosted.session.call(lambda live: bytes(live.core.drops.states))


def _contents(hosted: HostedSession) -> dict[int, bytes]:
    """Return the results that are left, by row of the whole graph."""
    piece = hosted.piece
    found = hosted.session.call(Session.contents)
    kept = kept_drops(piece.graph)
    return {int(piece.drop[row]): _bytes(handle) for row, handle in found.items() if piece.is_own[row] and kept[row]}


def _bytes(handle: Handle) -> bytes:
    return Path(handle.location).read_bytes() if handle.kind == "file" else handle.body
