"""Faults of a simulated cluster that are aimed at the agreement about views, which faults at random times rarely reach.

Each kind needs that several things happen at once: two candidates that do not see each other, a candidate that is lost
right after its decision, a voter that is cut off after its promise, a message that arrives after the view has changed,
a node that is lost after the witness of its session.
"""

import random

from managers.messages import AcceptView, AdoptView, PromiseView, ProposeView
from managers.node.events import ContinueSession
from managers.simulation.faults import (
    BadNetwork,
    Crash,
    CrashAbove,
    CrashInStep,
    CutInStep,
    CutOneWay,
    Fault,
    SessionRequest,
    SlowLinks,
    happens,
    until_restart,
)

__all__ = ["AIMS", "draw_aimed_faults"]

AIMS = ("two candidates", "lost candidate", "cut voter", "late messages", "lost witness")
"""What the faults of trials are aimed at."""
_MANY = 64
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
    return step, _crash(chance, at)


def _cut_voter(chance: random.Random, at: float, steps: tuple[type, ...]) -> tuple[Fault, ...]:
    """After the loss of a member, a voter or candidate is cut off between two steps; often sessions are cancelled."""
    step = CutInStep(
        step=steps.index(chance.choice((PromiseView, PromiseView, PromiseView, AcceptView, ContinueSession))),
        count=chance.choice((1, 1, 2, 3)),
        seconds=chance.choice((20.0, 40.0)),
    )
    requested = at + chance.choice((6.0, 8.0, 15.0))
    cancels = [SessionRequest(at=requested, operation="cancel", session=number) for number in range(_MOST_SESSIONS)]
    return (step, _crash(chance, at), *(cancels if happens(chance, 0.7) else []))


def _late_messages(chance: random.Random, at: float, steps: tuple[type, ...]) -> tuple[Fault, ...]:
    """What one member tells some others arrives after the view has changed because of the loss of another one."""
    del steps
    nodes, delay = _shuffled(chance)[: chance.choice((2, 3, 3, 4))], chance.choice((4.0, 6.0, 10.0, 14.0))
    return SlowLinks(at=max(at - delay, 0.0), nodes=nodes, delay=delay, seconds=delay + 30.0), _crash(chance, at)


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
    faults: list[Fault] = [above, _crash(chance, later)]
    faults += [step] if happens(chance, 0.5) else []
    faults += [more, _crash(chance, later + 50.0)] if happens(chance, 0.5) else []
    faults += [network] if happens(chance, 0.3) else []
    return tuple(faults)


def _crash(chance: random.Random, at: float) -> Crash:
    return Crash(at=at, node=chance.randrange(_MANY), seconds=until_restart(chance))


def _shuffled(chance: random.Random) -> tuple[int, ...]:
    return tuple(chance.sample(range(_MANY), _MANY))
