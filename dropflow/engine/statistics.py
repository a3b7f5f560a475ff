"""Snapshots of a session: how many drops are in each state, and where attempts are."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.drop_counts import DropCounts, add_counts, count_drops
from dropflow.engine.core import Core
from dropflow.states import DropState, SessionState

__all__ = [
    "Attempts",
    "ErrorCauses",
    "NodeStatistics",
    "Statistics",
    "by_name",
    "errors_by_cause",
    "given_up",
    "snapshot",
    "totals",
]


class NodeStatistics(msgspec.Struct, frozen=True):
    """The drops of one logical node: how many there are in each state (index: `DropState`).

    `failed` of those in ERROR are their own root cause, and `lost` of those in CANCELLED were given up because a node
    was lost.
    """

    key: str
    name: str
    category: str
    is_app: bool
    artificial: bool
    counts: tuple[int, ...]
    failed: int = 0
    lost: int = 0

    @property
    def total(self) -> int:
        """Number of drops."""
        return sum(self.counts)

    @property
    def settled(self) -> int:
        """Number of drops in a terminal state."""
        return self.total - self.counts[DropState.INITIALIZED] - self.counts[DropState.WRITING]

    def drop_counts(self, *, running: int = 0, queued: int = 0) -> DropCounts:
        """Return its drops by what has become of them; `running` and `queued` of those in WRITING are attempts."""
        return count_drops(by_name(self.counts), failed=self.failed, lost=self.lost, running=running, queued=queued)


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
    quiet : float
        For how many seconds no drop has settled, if that is known and unusually long; otherwise 0.
    """

    status: SessionState
    seconds: float
    drops: int
    settled: int
    attempts: Attempts
    nodes: tuple[NodeStatistics, ...]
    quiet: float = 0.0

    @property
    def drop_counts(self) -> DropCounts:
        """Its drops by what has become of them, as if no attempt ran."""
        return add_counts(node.drop_counts() for node in self.nodes)

    @property
    def rate(self) -> float:
        """Drops settled per second, since the beginning."""
        return self.settled / self.seconds if self.seconds > 0 else 0.0


def snapshot(core: Core, seconds: float, attempts: Attempts = _NO_ATTEMPTS) -> Statistics:
    """Return the statistics of a core. Takes time per logical node, not per drop."""
    drops = core.graph.drops - len(core.drops.remote)
    lost = _lost_by_template(core)
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
                failed=failed,
                lost=gone,
            )
            for template, row, failed, gone in zip(
                core.graph.templates, core.drops.counts, core.drops.failed, lost, strict=True
            )
        ),
    )


def totals(counts: Sequence[Sequence[int]]) -> dict[str, int]:
    """Return the number of drops by the name of their state. COMPLETED, ERROR and SKIPPED are there even if 0."""
    sums = [sum(column) for column in zip(*counts, strict=True)] or [0] * len(DropState)
    always = (DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED)
    return {state.name: sums[state] for state in DropState if sums[state] or state in always}


def by_name(counts: Sequence[int]) -> dict[str, int]:
    """Return the number of drops by the name of their state, without zeros."""
    return {DropState(state).name: count for state, count in enumerate(counts) if count}


class ErrorCauses(NamedTuple):
    """Root causes as columns: the drop that failed, and the local drops that are in ERROR because of it.

    Attributes
    ----------
    causes : array of int64
        Rows of drops; of causes on other nodes as `dropflow.engine.events.foreign` has them.
    counts, took_along : array of int64
        How many drops are in ERROR because of each, and how many of those are others.
    """

    causes: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    took_along: npt.NDArray[np.int64]


def errors_by_cause(core: Core) -> ErrorCauses:
    """Return the number of local drops in ERROR by their root cause, and how many of them it took along.

    The numbers add up to the local drops in ERROR. The drops that are in ERROR because of a cause on
    another node are counted here, so the sums over all nodes of a session add up too. A drop that was cancelled alone
    is a cause too; it is not in ERROR itself.
    """
    table = core.drops
    drops = np.fromiter(table.causes, np.int64, len(table.causes))
    causes = np.fromiter(table.causes.values(), np.int64, len(table.causes))
    cancelled = np.fromiter(table.cancelled, np.int64, len(table.cancelled))
    states = np.frombuffer(bytes(table.states), np.uint8)
    is_error = (states[drops] == DropState.ERROR) & ~np.isin(drops, cancelled)
    drops, causes = np.append(drops[is_error], cancelled), np.append(causes[is_error], cancelled)
    remote = table.remote
    is_local = np.fromiter((drop not in remote for drop in drops.tolist()), bool, len(drops))
    drops, causes = drops[is_local], causes[is_local]
    found, places = np.unique(causes, return_inverse=True)
    in_error = states[drops] == DropState.ERROR
    counts = np.bincount(places[in_error], minlength=len(found))
    along = np.bincount(places[in_error & (drops != causes)], minlength=len(found))
    return ErrorCauses(found, counts, along)


def given_up(core: Core) -> int:
    """Return the number of local drops that were cancelled because a node was lost."""
    return sum(_lost_by_template(core))


def _lost_by_template(core: Core) -> list[int]:
    if core.status is not SessionState.FAILED:
        return [0] * len(core.drops.counts)
    lost = [row[DropState.CANCELLED] for row in core.drops.counts]
    for drop in core.drops.cancelled:
        if core.drops.states[drop] == DropState.CANCELLED:
            lost[core.graph.template[drop]] -= 1
    return lost
