"""Snapshots of a session: how many drops are in each state, and where attempts are."""

from collections.abc import Sequence

import msgspec

from dropflow.engine.core import Core
from dropflow.states import DropState, SessionState

__all__ = ["Attempts", "NodeStatistics", "Statistics", "errors_by_cause", "given_up", "snapshot", "totals"]


class NodeStatistics(msgspec.Struct, frozen=True):
    """The drops of one logical node: how many there are in each state (index: `DropState`)."""

    key: str
    name: str
    category: str
    is_app: bool
    artificial: bool
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """Number of drops."""
        return sum(self.counts)

    @property
    def settled(self) -> int:
        """Number of drops in a terminal state."""
        return self.total - self.counts[DropState.INITIALIZED] - self.counts[DropState.WRITING]


class Attempts(msgspec.Struct, frozen=True):
    """Attempts that have not ended, by where they are.

    Attributes
    ----------
    running : int
        With a worker process or thread.
    queued : int
        With the runner, and waiting for a worker.
    ready : int
        With the session, and waiting until the runner has room.
    """

    running: int = 0
    queued: int = 0
    ready: int = 0


_NO_ATTEMPTS = Attempts()


class Statistics(msgspec.Struct, frozen=True):
    """A snapshot of a session.

    Attributes
    ----------
    status : SessionState
    seconds : float
        Since the session began.
    drops, settled : int
        All local drops, and those in a terminal state.
    attempts : Attempts
    nodes : tuple of NodeStatistics
        By logical node, in the order of the graph's templates.
    """

    status: SessionState
    seconds: float
    drops: int
    settled: int
    attempts: Attempts
    nodes: tuple[NodeStatistics, ...]

    @property
    def rate(self) -> float:
        """Drops settled per second, since the beginning."""
        return self.settled / self.seconds if self.seconds > 0 else 0.0


def snapshot(core: Core, seconds: float, attempts: Attempts = _NO_ATTEMPTS) -> Statistics:
    """Return the statistics of a core. Takes time per logical node, not per drop."""
    drops = core.graph.drops - len(core.drops.remote)
    return Statistics(
        status=core.status,
        seconds=seconds,
        drops=drops,
        settled=drops - core.drops.unsettled,
        attempts=attempts,
        nodes=tuple(
            NodeStatistics(
                key=template.key,
                name=template.name,
                category=template.category,
                is_app=bool(template.kind),
                artificial=template.artificial,
                counts=tuple(row),
            )
            for template, row in zip(core.graph.templates, core.drops.counts, strict=True)
        ),
    )


def totals(counts: Sequence[Sequence[int]]) -> dict[str, int]:
    """Return the number of drops by the name of their state. COMPLETED, ERROR and SKIPPED are there even if 0."""
    sums = [sum(column) for column in zip(*counts, strict=True)] or [0] * len(DropState)
    always = (DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED)
    return {state.name: sums[state] for state in DropState if sums[state] or state in always}


def errors_by_cause(core: Core) -> dict[int, int]:
    """Return the number of local drops in ERROR by their root cause.

    The numbers add up to the local drops in ERROR. The drops that are in ERROR because of a cause on
    another node are counted here, so the sums over all nodes of a session add up too.
    """
    found: dict[int, int] = {}
    for drop, cause in core.drops.error_causes().items():
        if drop not in core.drops.remote:
            found[cause] = found.get(cause, 0) + 1
    return found


def given_up(core: Core) -> int:
    """Return the number of local drops that were cancelled because a node was lost."""
    return sum(row[DropState.CANCELLED] for row in core.drops.counts) if core.status is SessionState.FAILED else 0
