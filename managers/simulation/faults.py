"""Faults of a simulated cluster as data: drawn from a seed, so that a trial can be repeated without some of them.

Times are seconds after the faults begin. Nodes, processes and sessions are numbers, which count modulo how many there
are: so the same fault means something in every cluster. What a fault does at most, its record says; a crash that would
take away the majority of a session that must survive does nothing.
"""

import random

import msgspec

__all__ = ["Fault", "draw_faults", "happens", "until_restart"]


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


def _crash(chance: random.Random, at: float) -> Fault:
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
    *(_crash,) * 5,
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
