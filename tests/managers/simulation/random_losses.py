"""One run of sessions in a cluster with faults, drawn from a seed, and what must hold when it is over."""

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dropflow.errors import InternalError
from dropflow.execution.session import Session
from dropflow.execution.tasks import Task
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.graph.text_ids import oid
from dropflow.states import DropState, SessionState
from managers.machine_calls import Answered
from managers.messages import PartDone, PromiseView
from managers.node.decisions.events import ContinueSession, FinishSession, FreezeSession, SilenceSession
from managers.node.hosted_session import HostedSession
from managers.recovery.records import ViewDecision, unpack_column
from managers.recovery.vote import SendToPeer
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.history import Recorder, content_bytes
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.checked_history import Gone, Promised
from tests.managers.simulation.fault_injector import STEPS, FaultInjector
from tests.managers.simulation.faults import AIMS, Crash, Fault, FullDisk, draw_aimed_faults, draw_faults, happens
from tests.managers.simulation.simulated_disks import SimulatedDisks
from tests.managers.simulation.trial_checks import Expected, KnownAbove, TrialChecks, kept_contents, states_of

__all__ = [
    "AIMED",
    "LossTrial",
    "RandomGraph",
    "RepeatedWork",
    "TrialOutcome",
    "draw_graph",
    "draw_workload",
]


_FILE = "dlg.data.drops.file.FileDROP"
_COMMAND = (Argument(name="command", value="true", type="String"),)


class RandomGraph(msgspec.Struct, frozen=True):
    """A graph, and how its tasks behave.

    Attributes
    ----------
    graph : PhysicalGraph
        Its prefix is the name of its session.
    failing : frozenset of str
        Ids of the applications that always fail.
    failing_once : frozenset of str
        Ids of the applications that fail at their first attempt.
    skipping : frozenset of str
        Ids of the data drops that their producers choose to skip.
    reads_inputs : bool
        Whether contents depend on the inputs of the tasks that write them.
    has_streams : bool
        Whether there are drops that are read while they are written.
    is_noisy : bool
        Whether each attempt writes something else: then reads of two attempts' contents can be told apart.
    """

    graph: PhysicalGraph
    failing: frozenset[str] = frozenset()
    failing_once: frozenset[str] = frozenset()
    skipping: frozenset[str] = frozenset()
    reads_inputs: bool = True
    has_streams: bool = False
    is_noisy: bool = False


def draw_graph(session: str, parts: int, chance: random.Random) -> RandomGraph:
    """Return a graph of a random kind, with every drop in a random part."""
    draw = chance.choice((_fan, _streams, _layers, _layers, _few_inputs))
    drawn = draw(session, chance)
    if not drawn.has_streams and happens(chance, 0.25):
        drawn = msgspec.structs.replace(drawn, is_noisy=True)
    part = np.array([chance.randrange(parts) for _ in range(drawn.graph.drops)], dtype=np.int32)
    placed = replace(drawn.graph, part=part, places=tuple(f"#{number}" for number in range(parts)))
    return msgspec.structs.replace(drawn, graph=placed)


def draw_workload(graphs: Mapping[str, RandomGraph], chance: random.Random) -> Workload:
    """Return what the tasks of all graphs do; attempts take some time, and contents are small or large."""
    failing = frozenset[str]().union(*(graph.failing for graph in graphs.values()))
    once = frozenset[str]().union(*(graph.failing_once for graph in graphs.values()))
    skipping = frozenset[str]().union(*(graph.skipping for graph in graphs.values()))
    reading = {session: drawn.reads_inputs for session, drawn in graphs.items()}
    noisy = {session for session, drawn in graphs.items() if drawn.is_noisy}
    numbers = itertools.count()
    repeats = chance.choice((1, 1, 5000))

    def content(task: Task, drop: int) -> bytes:
        name = next((output.oid for output in task.outputs if output.drop == drop), task.oid)
        digest = hashlib.sha256(name.encode())
        if task.oid.partition("_")[0] in noisy:
            digest.update(b"%d" % next(numbers))
        if reading[task.oid.partition("_")[0]]:
            for task_input in task.inputs:
                digest.update(
                    b"%d" % task_input.state + (b"" if task_input.handle is None else content_bytes(task_input.handle))
                )
        return digest.digest() * repeats

    return Workload(
        seconds=chance.choice((0.05, 1.0, 3.0, 6.0, 12.0)),
        fails=lambda task, _node: task.oid in failing or (task.oid in once and task.attempt == 1),
        skips=lambda task: tuple(output.drop for output in task.outputs if output.oid in skipping),
        content=content,
    )


def _fan(session: str, chance: random.Random) -> RandomGraph:
    """Chains of two applications between a start and an end."""
    builder = GraphBuilder(session).app("root").data("start").app("join").data("end")
    builder.connect("root", "start").connect("join", "end")
    for number in range(chance.randint(1, 8)):
        first, second, third, fourth = (f"{letter}{number}" for letter in "abcd")
        builder.app(first).data(second).app(third).data(fourth)
        builder.connect("start", first).connect(first, second).connect(second, third)
        builder.connect(third, fourth).connect(fourth, "join")
    return RandomGraph(builder.build())


def _streams(session: str, chance: random.Random) -> RandomGraph:
    """Rows of filters over streaming links."""
    builder = GraphBuilder(session).app("join", tries=3).data("end").connect("join", "end")
    once = set()
    for row in range(chance.randint(1, 4)):
        component = "dlg.apps.bash_shell_app.Streaming"
        builder.app(f"make{row}", component=f"{component}OutputBashApp", arguments=_COMMAND, tries=3)
        for name in ("filter", "take"):
            builder.app(f"{name}{row}", component=f"{component}InputOutputBashApp", arguments=_COMMAND, tries=3)
        builder.data(f"a{row}", component=_FILE).data(f"b{row}", component=_FILE).data(f"c{row}")
        builder.connect(f"make{row}", f"a{row}").connect(f"a{row}", f"filter{row}", streaming=True)
        builder.connect(f"filter{row}", f"b{row}").connect(f"b{row}", f"take{row}", streaming=True)
        builder.connect(f"take{row}", f"c{row}").connect(f"c{row}", "join")
        once |= {f"{session}_{name}{row}_0" for name in ("make", "filter", "take") if happens(chance, 0.2)}
    return RandomGraph(builder.build(), failing_once=frozenset(once), reads_inputs=False, has_streams=True)


def _layers(session: str, chance: random.Random) -> RandomGraph:
    """Layers of applications: failures with thresholds, branches, and data drops with several producers."""
    builder = GraphBuilder(session)
    troubled = happens(chance, 0.6)
    before: list[str] = []
    for number in range(chance.randint(0, 2)):
        builder.data(f"root{number}")
        before.append(f"root{number}")
    failing, once, skipping = set[str](), set[str](), set[str]()
    for layer in range(chance.randint(2, 5)):
        apps = [f"A{layer}-{number}" for number in range(chance.randint(1, 4))]
        for app in apps:
            tries = _add_app(builder, app, before, chance)
            if troubled and happens(chance, 0.1):
                failing.add(app)
            elif tries > 1 and happens(chance, 0.3):
                once.add(app)
        written = [name for app in apps for name in _add_outputs(builder, app, apps, chance)]
        skipping.update(name for name in written if troubled and happens(chance, 0.1))
        before = [*written, *chance.sample(before, len(before) // 2)]

    def named(names: set[str]) -> frozenset[str]:
        return frozenset(f"{session}_{name}_0" for name in names)

    return RandomGraph(builder.build(), named(failing), named(once), named(skipping))


def _add_app(builder: GraphBuilder, app: str, before: Sequence[str], chance: random.Random) -> int:
    """Add an application that reads some data; return how many tries it has."""
    tries = chance.choice((1, 2, 3))
    blocks, threshold = happens(chance, 0.3), chance.choice((0.0, 0.0, 50.0, 100.0))
    builder.app(app, tries=tries, block_skip=blocks, error_threshold=threshold)
    for name in chance.sample(before, min(len(before), chance.randint(1, 3))):
        builder.connect(name, app)
    return tries


def _add_outputs(builder: GraphBuilder, app: str, apps: Sequence[str], chance: random.Random) -> list[str]:
    """Add data that an application writes, and sometimes others, too; return their names."""
    names = [f"{app}-d{number}".replace("A", "d", 1) for number in range(chance.randint(1, 2))]
    for name in names:
        builder.data(name, persist=happens(chance, 0.2), block_skip=happens(chance, 0.2)).connect(app, name)
        for other in apps:
            if other != app and happens(chance, 0.15):
                builder.connect(other, name)
    return names


def _few_inputs(session: str, chance: random.Random) -> RandomGraph:
    """Applications that act on some of their inputs, whichever come first."""
    builder = GraphBuilder(session)
    wide, then = chance.randint(2, 6), chance.randint(1, 3)
    for number in range(wide):
        builder.app(f"make{number}").data(f"d{number}").connect(f"make{number}", f"d{number}")
    for number in range(then):
        builder.app(f"some{number}", effective_inputs=chance.randint(1, wide)).data(f"e{number}", persist=True)
        builder.connect(f"some{number}", f"e{number}")
        for other in range(wide):
            builder.connect(f"d{other}", f"some{number}")
    return RandomGraph(builder.build(), reads_inputs=False)


# How much of a session may run again because of losses, and how much did: counted by rules of its own.

_SETTLED = (int(DropState.COMPLETED), int(DropState.ERROR), int(DropState.SKIPPED))


class RepeatedWork:
    """The attempts of one session that have a reason to run again.

    A drop may run again once for each view that resets it, and for each in which it changes its node without being
    known to be settled. One whose failure is tried again has all of its tries again. No view may reset a drop whose
    content is there.

    Parameters
    ----------
    session : str
        Name of the session.
    drawn : RandomGraph
        Its graph.
    starts : mapping of (str, str) to int
        How often each task starts in a run without faults.
    """

    def __init__(self, session: str, drawn: RandomGraph, starts: Mapping[tuple[str, str], int]) -> None:
        self._session = session
        self._drawn = drawn
        self._starts = {drop: count for (name, drop), count in starts.items() if name == session}
        self._reasons: Counter[str] = Counter()

    @property
    def most(self) -> int:
        """How many attempts may have been repeated."""
        return sum(self._reasons.values())

    def decided(self, graph: PhysicalGraph, decision: ViewDecision, hosted: Mapping[str, HostedSession]) -> list[str]:
        """Take in a decision, before it is carried out anywhere; return what is wrong with it.

        Parameters
        ----------
        graph : PhysicalGraph
            The whole graph, as it is placed in the view that ends.
        hosted : mapping of str to HostedSession
            The session on each node that lives.
        """
        members = {place.node for place in decision.view.members}
        is_kept = np.array([place in members for place in graph.places], dtype=np.bool_)[graph.part]
        reset = unpack_column(decision.reset, np.int32).astype(np.int64)
        taken_over = unpack_column(decision.taken_over, np.uint8)
        settled = np.isin(taken_over, _SETTLED) if len(taken_over) else np.ones(graph.drops, dtype=np.bool_)
        again = ~is_kept & ~settled
        again[reset] = True
        self._reasons.update(oid(graph, row) for row in np.flatnonzero(again).tolist())
        for row in unpack_column(decision.repeated, np.int32).tolist():
            self._reasons[oid(graph, row)] += max(1, self._starts.get(oid(graph, row), 1))
        there: dict[int, str] = {}
        for node, session in hosted.items():
            if node in members:
                rows, is_own = session.piece.drop, session.piece.is_own
                contents = session.session.call(Session.contents)
                there |= {int(rows[row]): node for row in contents if is_own[row]}
        names = [f"{oid(graph, row)} on {there[row]}" for row in reset.tolist() if row in there]
        if not names:
            return []
        return [f"session {self._session}: view {decision.view.number} resets drops that are there: {', '.join(names)}"]

    def again(self, recorder: Recorder) -> int:
        """Return how many attempts were repeated."""
        return sum(max(0, self._count(recorder, drop) - count) for drop, count in self._starts.items())

    def excess(self, recorder: Recorder, *, may_fail: bool) -> list[str]:
        """Return which drops ran more often than they had a reason to.

        Parameters
        ----------
        may_fail : bool
            Whether attempts may have failed because of a full disk, and been tried again.
        """
        if may_fail or self._drawn.has_streams:
            return []  # attempts that read a stream start over with the one that writes it
        return [
            f"session {self._session}: {drop} started {self._count(recorder, drop)} times; "
            f"{count} without faults, and {self._reasons[drop]} reasons to run again"
            for drop, count in self._starts.items()
            # The last attempt of a drop that always fails may have no end, and so counts once.
            if self._count(recorder, drop) > count + self._reasons[drop] + (drop in self._drawn.failing)
        ]

    def _count(self, recorder: Recorder, drop: str) -> int:
        return recorder.starts[self._session, drop]


_MOST_CALLS = 10
"""How often a paused session is continued: a fault that lasts may keep a request from a node."""
_MOST_SECONDS = 300.0
"""In which sessions must end after the last fault."""
_QUIET_SECONDS = 40.0
"""After the end of all sessions, for what is still to be removed; more than the time after which a node is lost."""


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
    views : int
        Changes of views.
    again, most_again : int
        Attempts that were repeated because of losses, and how many may have been at most.
    seconds : float
        Of virtual time.
    notes : tuple of str
        What happened to the cluster, for people.
    """

    violations: tuple[str, ...]
    sessions: int = 0
    survived: int = 0
    losses: int = 0
    views: int = 0
    again: int = 0
    most_again: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


class _Shape(msgspec.Struct, frozen=True):
    """How many managers a cluster has."""

    islands: int
    nodes: int
    has_master: bool


_SHAPES = (
    *(_Shape(1, nodes, has_master=False) for nodes in (2, 2, 3, 3, 4, 5, 5, 7)),
    *(_Shape(2, nodes, has_master=True) for nodes in (1, 2, 3, 3)),
)
_LARGE_SHAPES = (_Shape(2, 10, has_master=True), _Shape(5, 10, has_master=True))
_LARGE_SHARE = 0.01
_AIMED_SHAPES = (_Shape(1, 5, has_master=False), _Shape(1, 5, has_master=False), _Shape(2, 2, has_master=True))
"""With which the agreement survives two losses at once: most sessions have five voters."""
_EVEN_SHAPES = (
    _Shape(1, 2, has_master=False),
    _Shape(1, 4, has_master=False),
    _Shape(1, 2, has_master=True),
    _Shape(2, 2, has_master=True),
)
"""With which the loss of a witness matters: most sessions have an even number of members."""
AIMED = 4
"""In every fourth trial, the faults are aimed at the agreement about views: if the seed is 3 modulo 4."""


class LossTrial:
    """Sessions of a simulated cluster whose nodes are lost.

    Parameters
    ----------
    seed : int
        Graphs, workload, faults and their times are drawn from it.
    directory : Path
        For the files of the nodes.
    faults : sequence of Fault or None
        What happens, instead of what the seed says.
    keep_trace : bool
        Whether to keep lines for `trace`.

    Attributes
    ----------
    faults : tuple of Fault
        What happens.
    """

    def __init__(
        self, seed: int, directory: Path, *, faults: Sequence[Fault] | None = None, keep_trace: bool = False
    ) -> None:
        chance = random.Random(seed)
        is_aimed = seed % AIMED == AIMED - 1
        shapes = _LARGE_SHAPES if chance.random() < _LARGE_SHARE else _SHAPES
        if is_aimed:
            shapes = _EVEN_SHAPES if AIMS[seed // AIMED % len(AIMS)] == "lost witness" else _AIMED_SHAPES
        shape = chance.choice(shapes)
        nodes = shape.islands * shape.nodes
        self.graphs: dict[str, RandomGraph] = {
            f"s{number}": draw_graph(f"s{number}", nodes if is_aimed else chance.randint(1, nodes), chance)
            for number in range(chance.choice((1, 1, 1, 2, 3)))
        }
        self._workload = draw_workload(self.graphs, chance)
        self._copies = {name: (chance.choice((1, 1, 2, 3)), chance.choice((0.0, 0.0, 0.05))) for name in self.graphs}
        if faults is None:
            faults = draw_aimed_faults(seed // AIMED, chance, STEPS) if is_aimed else draw_faults(chance, len(STEPS))
        self.faults = tuple(faults)
        self._directory = directory
        root = directory / "cluster"
        root.mkdir()
        self.cluster = SimulatedCluster(
            seed,
            root,
            islands=shape.islands,
            nodes=shape.nodes,
            has_master=shape.has_master,
            workload=msgspec.structs.replace(self._workload, dies=self._dies),
        )
        self._simulation = self.cluster.simulation
        self._disks = SimulatedDisks(root, chance)
        self._injector: FaultInjector = FaultInjector(self.cluster, self._disks, list(self.graphs), chance)
        self._injector.on_crash = self._on_crash
        self._above = KnownAbove(self.cluster, self._injector, random.Random(seed))
        self._keep_trace = keep_trace
        self._lines: list[tuple[float, str]] = []
        self._violations: list[str] = []
        self._decisions: dict[tuple[str, int], bytes] = {}
        self._work: dict[str, RepeatedWork] = {}
        self._ending: set[str] = set()
        self._told: set[tuple[str, str, int]] = set()
        """Nodes that told that their part of a session is finished, and in which view."""
        self._ended_before_loss: set[str] = set()
        self.cluster.on_action = self._on_action

    def run(self) -> TrialOutcome:
        """Run the sessions, disturb them, and return what was found."""
        with ExitStack() as stack:
            if any(isinstance(fault, FullDisk) or (isinstance(fault, Crash) and fault.power) for fault in self.faults):
                stack.enter_context(self._disks)
            try:
                return self._run()
            except Exception as error:  # noqa: BLE001 - a trial that raises has found something
                place = error.__traceback__
                while place is not None and place.tb_next is not None:
                    place = place.tb_next
                where = "" if place is None else f" in {place.tb_frame.f_code.co_qualname}, line {place.tb_lineno}"
                violations = (*self._violations, f"{type(error).__name__}: {error}{where}")
                return TrialOutcome(violations, notes=tuple(self._injector.notes))

    def _run(self) -> TrialOutcome:
        expected = self._without_faults()
        if not self.cluster.wait_for_nodes():
            return TrialOutcome(("the cluster did not come up",))
        accepted = [name for name in self.graphs if self._submit(name)]
        injector = self._injector
        self._above.watch(accepted)
        self._simulation.wait(injector.begin(self.faults) + 1.0)
        self._settle()
        injector.stop()
        self._unpause()
        self._settle()
        checks = TrialChecks(self.cluster, injector, ended_before_loss=self._ended_before_loss)
        checks.acknowledge()
        self._simulation.wait(_QUIET_SECONDS)
        survived = sum(checks.check(name, expected[name]) for name in accepted)
        checks.check_orphans()
        checks.check_history()
        for name in () if checks.violations else accepted:
            self._above.check(name)
        again = [self._work[name] for name in accepted if name in self._work]
        if not self._violations and not checks.violations:
            for name, work in self._work.items():
                if name in accepted and injector.requests.get(name, "pause") == "pause":
                    checks.violations += work.excess(self.cluster.recorder, may_fail=bool(injector.full))
        return TrialOutcome(
            (*self._violations, *checks.violations, *self._above.violations),
            sessions=len(accepted),
            survived=survived,
            losses=len(injector.crashed),
            views=sum(number > 0 for _, number in self._decisions),
            again=sum(work.again(self.cluster.recorder) for work in again),
            most_again=sum(work.most for work in again),
            seconds=self._simulation.time,
            notes=tuple(injector.notes),
        )

    @property
    def trace(self) -> list[str]:
        """What nodes decided about views, what was committed and what was read, for people."""
        records = [(record.time, f"{record.node}: {_text(record)}") for record in self.cluster.recorder.history]
        both = sorted([*self._lines, *records], key=lambda line: line[0])
        return [f"{time:.3f} s: {text}" for time, text in both]

    def _without_faults(self) -> dict[str, Expected]:
        """Return how the sessions end on one node that is not disturbed."""
        directory = self._directory / "alone"
        directory.mkdir()
        quick: Workload = msgspec.structs.replace(self._workload, seconds=0.05)
        alone = SimulatedCluster(0, directory, islands=1, nodes=1, has_master=False, workload=quick)
        alone.wait_for_nodes()
        expected = {}
        for name, drawn in self.graphs.items():
            part = np.zeros(drawn.graph.drops, dtype=np.int32)
            answer = alone.submit(replace(drawn.graph, part=part, places=("#0",)), name)
            if not isinstance(answer, Answered):
                raise answer.error
            alone.finish(name)
            (node,) = alone.nodes.values()
            hosted = node.sessions[name]
            if not isinstance(hosted, HostedSession):
                raise InternalError(f"session {name} is not in memory any more")
            expected[name] = Expected(hosted.info().status, states_of(hosted), kept_contents(hosted), drawn.is_noisy)
            self._work[name] = RepeatedWork(name, drawn, dict(alone.recorder.starts))
        return expected

    def _submit(self, name: str) -> bool:
        replicas, protect = self._copies[name]
        answer = self.cluster.submit(self.graphs[name].graph, name, replicas=replicas, protect=protect)
        return isinstance(answer, Answered)

    def _settle(self) -> None:
        """Let things happen until no session runs, or for some minutes."""
        end = self._simulation.time + _MOST_SECONDS
        while self._simulation.time < end and self._runs():
            self._simulation.wait(2.0)

    def _runs(self) -> bool:
        nodes = [node for node in self.cluster.nodes.values() if node.process.is_alive]
        paused = {name for name, request in self._injector.requests.items() if request == "pause"}
        return any(
            not session.state.is_terminal
            for node in nodes
            for name, session in node.sessions.items()
            if name not in paused
        )

    def _unpause(self) -> None:
        """Continue the sessions that were paused, again for nodes that do not answer yet."""
        for name, request in self._injector.requests.items():
            for _ in range(_MOST_CALLS if request == "pause" else 0):
                answer = self.cluster.call("unpause", session=name)
                self._injector.requests[name] = ""
                # A part that was over when the session was paused is paused in its next view only.
                if isinstance(answer, Answered) and not self._is_paused(name):
                    break
                self._simulation.wait(5.0)

    def _is_paused(self, name: str) -> bool:
        nodes = [node for node in self.cluster.nodes.values() if node.process.is_alive]
        states = [node.sessions[name].state for node in nodes if name in node.sessions]
        return SessionState.PAUSED in states

    def _dies(self, task: Task, node: str) -> bool:
        return self._injector.dies(task, node)

    def _on_crash(self) -> None:
        self._ended_before_loss |= self._ending

    def _on_action(self, node: str, action: Any) -> None:
        """Check and record an action of a node, before it is carried out."""
        if isinstance(action, ContinueSession):
            self._on_decision(action)
        if isinstance(action, SilenceSession):
            recorder = self.cluster.recorder
            recorder.history.append(Gone(time=recorder.time, node=node, session=action.hosted.name))
        if isinstance(action, FinishSession):
            self._ending.add(action.hosted.name)
        message = action.message if isinstance(action, SendToPeer) else action
        if isinstance(message, PartDone):
            told = node, message.session, message.view
            if told in self._told:  # it has confirmed that it is there, so the end may be decided from now on
                self._ending.add(message.session)
            self._told.add(told)
        if isinstance(message, PromiseView):
            recorder = self.cluster.recorder
            promised = Promised(time=recorder.time, node=node, session=message.session, view=message.view)
            recorder.history.append(promised)
        if self._keep_trace and isinstance(message, STEPS):
            to = f" to {action.peer}" if isinstance(action, SendToPeer) else ""
            about: Any = message
            session = about.hosted.name if isinstance(message, FreezeSession | FinishSession) else about.session
            self._lines.append((self._simulation.time, f"{node}: {type(message).__name__}{to}, session {session}"))
        self._injector.on_action(node, action)

    def _on_decision(self, action: ContinueSession) -> None:
        decision = action.decision
        key = action.session, decision.view.number
        decided = msgspec.msgpack.encode(decision)
        is_first = key not in self._decisions
        if self._decisions.setdefault(key, decided) != decided:
            self._violations.append(f"two decisions for view {key[1]} of session {key[0]}")
        if is_first and action.session in self._work:
            graph = action.hosted.directory.graph_in_view()
            hosted = {
                name: session
                for name, simulated in self.cluster.nodes.items()
                if simulated.process.is_alive
                and isinstance(session := simulated.sessions.get(action.session), HostedSession)
            }
            self._violations += self._work[action.session].decided(graph, decision, hosted)


def _text(record: Any) -> str:
    """Return a record of a history in a line."""
    content = f" {record.drop} ({record.digest})" if hasattr(record, "drop") else ""
    return f"{type(record).__name__}{content} in view {record.view} of session {record.session}"
