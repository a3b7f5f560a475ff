"""Faults of a simulated cluster as data: drawn from a seed, so that a trial can be repeated without some of them.

Times are seconds after the faults begin. Nodes, processes and sessions are numbers, which count modulo how many there
are: so the same fault means something in every cluster. What a fault does at most, its record says; a crash that would
take away the majority of a session that must survive does nothing.
"""

import math
import random
from collections.abc import Callable
from functools import partial

import msgspec

from managers.messages import AcceptView, AdoptView, PromiseView, ProposeView
from managers.node.decisions.events import ContinueSession
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.network import SimulatedNetwork
from managers.simulation.virtual_time import SimulatedProcess

__all__ = [
    "AIMS",
    "DisturbanceRates",
    "Disturbances",
    "Fault",
    "draw_aimed_faults",
    "draw_faults",
    "happens",
    "until_restart",
]


class _Fault(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something bad that begins at a time and may last some seconds."""

    at: float = 0.0
    seconds: float = 0.0


class Crash(_Fault, frozen=True, kw_only=True):
    """A node ends as with SIGKILL, and starts again after `seconds`, if they are positive.

    Attributes
    ----------
    node : int
        Which one.
    power : bool
        Whether its host loses power: what was not forced to the disk is lost.
    is_later : bool
        Whether the other losses are overcome before.
    """

    node: int
    power: bool = False
    is_later: bool = False


class CrashInStep(_Fault, frozen=True, kw_only=True):
    """The node crashes that is the `count`-th to do a certain step of a change of view.

    Attributes
    ----------
    step : int
        Which step.
    is_before : bool
        Whether it crashes before the step, or right after it.
    """

    step: int
    count: int
    is_before: bool


class CutInStep(_Fault, frozen=True, kw_only=True):
    """The node that is the `count`-th to do a certain step of a change of view is cut off from other nodes after it.

    Managers reach it, so what users ask for arrives.
    """

    step: int
    count: int


class Stop(_Fault, frozen=True, kw_only=True):
    """A node is stopped as with SIGSTOP, and continues."""

    node: int


class Split(_Fault, frozen=True, kw_only=True):
    """Some nodes are cut off from the others.

    Attributes
    ----------
    nodes : tuple of int
        A permutation of numbers. The first `size` are cut off.
    """

    nodes: tuple[int, ...]
    size: int


class CutOneWay(_Fault, frozen=True, kw_only=True):
    """Nothing of the first of some nodes arrives at the others."""

    nodes: tuple[int, ...]


class SlowLinks(_Fault, frozen=True, kw_only=True):
    """What the first of some nodes sends to the others of them takes `delay` seconds more."""

    nodes: tuple[int, ...]
    delay: float


class Disturbed(_Fault, frozen=True, kw_only=True):
    """Connections are cut and blocked, and processes stopped, again and again, each up to `longest` seconds."""

    longest: float


class BadNetwork(_Fault, frozen=True, kw_only=True):
    """Packets are late, lost, duplicated and reordered, as far as `managers.simulation.network` allows it."""

    delay: float = 0.0
    lose: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    cut: float = 0.0


class FullDisk(_Fault, frozen=True, kw_only=True):
    """The disk of a node is full."""

    node: int


class SlowDisk(_Fault, frozen=True, kw_only=True):
    """Everything that a node does with its disk takes up to twice `each` seconds."""

    node: int
    each: float


class ClockJump(_Fault, frozen=True, kw_only=True):
    """The wall clock of a node jumps."""

    node: int
    by: float


class CrashAbove(_Fault, frozen=True, kw_only=True):
    """An island or the master crashes, and starts again after `seconds`."""

    which: int


class SessionRequest(_Fault, frozen=True, kw_only=True):
    """A user cancels, pauses, deletes or rebalances a session, or has its failed drops tried again while it runs."""

    operation: str
    session: int


class DyingWorkers(_Fault, frozen=True, kw_only=True):
    """A share of the attempts that end on a node ends with the death of its worker process."""

    node: int
    share: float


Fault = (
    Crash
    | CrashInStep
    | CutInStep
    | Stop
    | Split
    | CutOneWay
    | SlowLinks
    | Disturbed
    | BadNetwork
    | FullDisk
    | SlowDisk
    | ClockJump
    | CrashAbove
    | SessionRequest
    | DyingWorkers
)

_MANY = 64
_LONG = (3.0, 14.0, 16.0, 20.0, 25.0, 40.0, 60.0)
_PAUSES = (0.0, 0.1, 1.0, 5.0, 16.0, 20.0)


def draw_faults(chance: random.Random, steps: int) -> tuple[Fault, ...]:
    """Return the faults of one trial.

    Parameters
    ----------
    steps : int
        How many steps of a change of view there are, for `CrashInStep`.
    """
    faults: list[Fault] = []
    if happens(chance, 0.3):
        faults.append(Disturbed(seconds=60.0, longest=chance.choice((1.0, 5.0, 25.0))))
    if happens(chance, 0.4):
        faults.append(BadNetwork(seconds=120.0, lose=0.02, duplicate=0.02, reorder=0.05, cut=0.005))
    faults += [
        CrashInStep(
            step=chance.randrange(steps),
            count=chance.choice((1, 1, 1, 2, 2, 3, 5, 8)),
            is_before=happens(chance, 0.5),
            seconds=until_restart(chance),
        )
        for _ in range(chance.choice((0, 1, 1, 2, 3)))
    ]
    at = 0.0
    for _ in range(chance.randint(1, 5)):
        at += chance.choice(_PAUSES)
        faults.append(_draw(chance, at))
    if happens(chance, 0.3):
        at += 60.0
        later = Crash(
            at=at,
            node=chance.randrange(_MANY),
            seconds=until_restart(chance),
            is_later=True,
            power=happens(chance, 0.3),
        )
        faults.append(later)
    return tuple(faults)


def happens(chance: random.Random, share: float) -> bool:
    """Return true in this share of all cases."""
    return chance.random() < share


def until_restart(chance: random.Random) -> float:
    """Return after how many seconds a node is started again that crashed; 0 for never."""
    return chance.choice((0.0, 0.0, 0.0, 0.5, 3.0, 30.0))


def _draw(chance: random.Random, at: float) -> Fault:
    return _KINDS[chance.randrange(len(_KINDS))](chance, at)


def _faults_crash(chance: random.Random, at: float) -> Fault:
    return Crash(at=at, node=_number(chance), seconds=until_restart(chance), power=happens(chance, 0.3))


def _stop(chance: random.Random, at: float) -> Fault:
    return Stop(at=at, node=_number(chance), seconds=chance.choice(_LONG))


def _split(chance: random.Random, at: float) -> Fault:
    return Split(at=at, nodes=_shuffled(chance), size=chance.choice((1, 2, 3)), seconds=chance.choice(_LONG))


def _cut_one_way(chance: random.Random, at: float) -> Fault:
    return CutOneWay(at=at, nodes=_shuffled(chance)[: chance.randint(2, 6)], seconds=chance.choice(_LONG))


def _slow_network(chance: random.Random, at: float) -> Fault:
    delay = chance.choice((0.05, 0.5, 2.0, 6.0))
    return BadNetwork(at=at, delay=delay, seconds=chance.choice(_LONG), duplicate=0.05, cut=0.01)


def _full_disk(chance: random.Random, at: float) -> Fault:
    return FullDisk(at=at, node=_number(chance), seconds=chance.choice(_LONG))


def _slow_disk(chance: random.Random, at: float) -> Fault:
    return SlowDisk(at=at, node=_number(chance), each=chance.choice((0.1, 1.0, 5.0)), seconds=chance.choice(_LONG))


def _clock_jump(chance: random.Random, at: float) -> Fault:
    return ClockJump(at=at, node=_number(chance), by=chance.choice((-86400.0, -10.0, 10.0, 86400.0)))


def _crash_above(chance: random.Random, at: float) -> Fault:
    return CrashAbove(at=at, which=_number(chance), seconds=chance.choice((0.5, 10.0)))


def _dying_workers(chance: random.Random, at: float) -> Fault:
    return DyingWorkers(at=at, node=_number(chance), share=0.2, seconds=chance.choice(_LONG))


def _request(chance: random.Random, at: float) -> Fault:
    return SessionRequest(at=at, operation=chance.choice(("cancel", "pause", "delete")), session=_number(chance))


def _rebalance(chance: random.Random, at: float) -> Fault:
    return SessionRequest(at=at, operation="rebalance", session=_number(chance))


def _retry(chance: random.Random, at: float) -> Fault:
    return SessionRequest(at=at, operation="retry", session=_number(chance))


def _number(chance: random.Random) -> int:
    return chance.randrange(_MANY)


def _shuffled(chance: random.Random) -> tuple[int, ...]:
    return tuple(chance.sample(range(_MANY), _MANY))


_KINDS = (
    *(_faults_crash,) * 5,
    *(_stop, _split, _cut_one_way) * 2,
    _slow_network,
    _full_disk,
    _slow_disk,
    _clock_jump,
    _crash_above,
    _dying_workers,
    _request,
    *(_rebalance, _retry) * 2,
)


# Faults of a simulated cluster that are aimed at the agreement about views, which faults at random times rarely reach.
#
# Each kind needs that several things happen at once: two candidates that do not see each other, a candidate that is
# lost right after its decision, a voter that is cut off after its promise, a message that arrives after the view has
# changed, a node that is lost after the witness of its session.

AIMS = ("two candidates", "lost candidate", "cut voter", "late messages", "lost witness")
"""What the faults of trials are aimed at."""
_MOST_SESSIONS = 3


def draw_aimed_faults(number: int, chance: random.Random, steps: tuple[type, ...]) -> tuple[Fault, ...]:
    """Return the faults of one trial.

    Parameters
    ----------
    number : int
        Which of `AIMS`, modulo their number.
    steps : tuple of type
        The steps of a change of view, as `CrashInStep` counts them.
    """
    at = chance.choice((2.0, 5.0, 8.0, 12.0, 20.0))
    draw = (_two_candidates, _lost_candidate, _cut_voter, _late_messages, _lost_witness)[number % len(AIMS)]
    return draw(chance, at, steps)


def _two_candidates(chance: random.Random, at: float, steps: tuple[type, ...]) -> tuple[Fault, ...]:
    """Two neighbours in the order of members lose each other, and both ask the others, which reach both.

    The second one finds out first. All that they send takes so long that their candidacies overlap: it asks before the
    other one does, and proposes after that one's proposal has arrived, and before the decision does.
    """
    del steps
    first, late = chance.randrange(_MANY), chance.choice((1.0, 1.5, 2.0))
    pair, all_numbers = (first, first + 1), range(_MANY)
    is_slow, lasts = at + 10.0, chance.choice((30.0, 50.0))
    return (
        CutOneWay(at=at, nodes=pair, seconds=late + lasts),
        CutOneWay(at=at + late, nodes=pair[::-1], seconds=lasts),
        SlowLinks(at=is_slow, nodes=(pair[0], *all_numbers), delay=late, seconds=lasts),
        SlowLinks(at=is_slow, nodes=(pair[1], *all_numbers), delay=1.75 * late, seconds=lasts),
    )


def _lost_candidate(chance: random.Random, at: float, steps: tuple[type, ...]) -> tuple[Fault, ...]:
    """After the loss of a member, the candidate is lost too, about when the others accept its decision."""
    step = CrashInStep(
        step=steps.index(chance.choice((ProposeView, AcceptView, AdoptView, ContinueSession))),
        count=chance.choice((1, 1, 1, 2, 3)),
        is_before=happens(chance, 0.3),
        seconds=until_restart(chance),
    )
    return step, _aimed_faults_crash(chance, at)


def _cut_voter(chance: random.Random, at: float, steps: tuple[type, ...]) -> tuple[Fault, ...]:
    """After the loss of a member, a voter or candidate is cut off between two steps; often sessions are cancelled."""
    step = CutInStep(
        step=steps.index(chance.choice((PromiseView, PromiseView, PromiseView, AcceptView, ContinueSession))),
        count=chance.choice((1, 1, 2, 3)),
        seconds=chance.choice((20.0, 40.0)),
    )
    requested = at + chance.choice((6.0, 8.0, 15.0))
    cancels = [SessionRequest(at=requested, operation="cancel", session=number) for number in range(_MOST_SESSIONS)]
    return (step, _aimed_faults_crash(chance, at), *(cancels if happens(chance, 0.7) else []))


def _late_messages(chance: random.Random, at: float, steps: tuple[type, ...]) -> tuple[Fault, ...]:
    """What one member tells some others arrives after the view has changed because of the loss of another one."""
    del steps
    nodes, delay = _shuffled(chance)[: chance.choice((2, 3, 3, 4))], chance.choice((4.0, 6.0, 10.0, 14.0))
    return SlowLinks(at=max(at - delay, 0.0), nodes=nodes, delay=delay, seconds=delay + 30.0), _aimed_faults_crash(
        chance, at
    )


def _lost_witness(chance: random.Random, at: float, steps: tuple[type, ...]) -> tuple[Fault, ...]:
    """A manager is lost, and then a node, often after another witness has replaced it, or while it does."""
    again = chance.choice((0.5, 2.0, 10.0))
    step = CrashInStep(
        step=steps.index(chance.choice((PromiseView, ProposeView, AcceptView, AdoptView, ContinueSession))),
        count=chance.choice((1, 1, 2, 3)),
        is_before=happens(chance, 0.3),
        seconds=until_restart(chance),
    )
    later = at + again + chance.choice((2.0, 6.0, 20.0, 30.0))
    above = CrashAbove(at=at, which=chance.randrange(_MANY), seconds=again)
    more = CrashAbove(at=later + 20.0, which=chance.randrange(_MANY), seconds=again)
    network = BadNetwork(seconds=120.0, delay=0.2, lose=0.02, duplicate=0.05, reorder=0.05, cut=0.02)
    faults: list[Fault] = [above, _aimed_faults_crash(chance, later)]
    faults += [step] if happens(chance, 0.5) else []
    faults += [more, _aimed_faults_crash(chance, later + 50.0)] if happens(chance, 0.5) else []
    faults += [network] if happens(chance, 0.3) else []
    return tuple(faults)


def _aimed_faults_crash(chance: random.Random, at: float) -> Crash:
    return Crash(at=at, node=chance.randrange(_MANY), seconds=until_restart(chance))


# Faults that last: cuts of connections, blocked connections, pauses and crashes of processes, drawn from a seed.


class DisturbanceRates(msgspec.Struct, frozen=True, kw_only=True):
    """How often disturbances happen, and how long they last.

    Attributes
    ----------
    cuts, blocks, pauses, crashes : float
        Mean number per second of virtual time, in the whole cluster.
    longest : float
        Seconds; blocks and pauses last up to this long.
    """

    cuts: float = 0.0
    blocks: float = 0.0
    pauses: float = 0.0
    crashes: float = 0.0
    longest: float = 1.0


class Disturbances:
    """Disturbs processes and their connections, at times and places drawn from the seed of the simulation.

    Parameters
    ----------
    network : SimulatedNetwork
        The network.
    processes : list of SimulatedProcess
        What may be disturbed; processes can be added while the simulation runs.
    rates : DisturbanceRates
        How often.
    may_crash : callable
        Whether a process may crash now.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        processes: list[SimulatedProcess],
        rates: DisturbanceRates,
        *,
        may_crash: Callable[[SimulatedProcess], bool] = lambda _: True,
    ) -> None:
        self._network = network
        self._simulation = network.simulation
        self._processes = processes
        self._longest = rates.longest
        self._may_crash = may_crash
        self._is_over = False
        kinds = (
            (rates.cuts, self._cut),
            (rates.blocks, self._block),
            (rates.pauses, self._pause),
            (rates.crashes, self._crash),
        )
        for rate, disturb in kinds:
            self._schedule(rate, disturb)

    def stop(self) -> None:
        """Begin no more disturbances; those that last end by themselves."""
        self._is_over = True

    def _schedule(self, rate: float, disturb: Callable[[], None]) -> None:
        if rate <= 0:
            return
        pause = -math.log(1.0 - self._simulation.random.random()) / rate
        self._simulation.call_later(pause, lambda: self._happen(rate, disturb))

    def _happen(self, rate: float, disturb: Callable[[], None]) -> None:
        if not self._is_over:
            disturb()
            self._schedule(rate, disturb)

    def _draw(self, count: int) -> list[SimulatedProcess]:
        alive = [process for process in self._processes if process.is_alive]
        return self._simulation.random.sample(alive, count) if len(alive) >= count else []

    def _duration(self) -> float:
        return self._simulation.random.random() * self._longest

    def _cut(self) -> None:
        names = [process.name for process in self._draw(2)]
        if names:
            self._network.cut(*names)

    def _block(self) -> None:
        names = [process.name for process in self._draw(2)]
        if names:
            a, b = names
            self._simulation.record(f"block {a} {b}")
            self._network.block(a, b)
            self._simulation.call_later(self._duration(), lambda: self._network.unblock(a, b))

    def _pause(self) -> None:
        for process in self._draw(1):
            process.pause()
            self._simulation.call_later(self._duration(), process.resume)

    def _crash(self) -> None:
        for process in self._draw(1):
            if self._may_crash(process):
                process.crash()


def disturb(cluster: SimulatedCluster, rates: DisturbanceRates, *, restart_after: float = 1.0) -> Disturbances:
    """Begin to disturb the managers of a cluster; those that crash are started again after a while."""

    def on_crash(process: SimulatedProcess) -> bool:
        cluster.simulation.call_later(restart_after, partial(cluster.restart, process))
        return True

    return Disturbances(cluster.network, cluster.processes, rates, may_crash=on_crash)
