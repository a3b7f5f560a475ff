"""How many drops of a session failed, were taken along, were lost, and so on: the one definition of these numbers.

Pages, commands, the REST interface and ``/metrics`` show what `count_drops` returns. Every drop is in exactly one of
the nine numbers, so they add up to all drops. The words are those of ``docs/reference/glossary.md``.
"""

from collections.abc import Iterable, Mapping

import msgspec

from dropflow.formatting import format_count, plural
from dropflow.states import DropState

MOST_PARTS = 2**20
"""Parts of a graph; in a graph without names of places, a larger number counts as damage."""
# As constants: the counts of thousands of logical nodes are asked for several times a second.
_INITIALIZED, _WRITING, _ERROR = DropState.INITIALIZED.name, DropState.WRITING.name, DropState.ERROR.name
_CANCELLED, _SKIPPED = DropState.CANCELLED.name, DropState.SKIPPED.name
_COMPLETED, _EXPIRED, _DELETED = DropState.COMPLETED.name, DropState.EXPIRED.name, DropState.DELETED.name


class DropCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of drops. Each drop is in one of them.

    Attributes
    ----------
    completed : int
        COMPLETED, also if their content was released or removed since.
    failed : int
        In ERROR, and the root cause of that themselves.
    took_along : int
        In ERROR because of another drop, which failed or was cancelled alone.
    skipped : int
        SKIPPED.
    cancelled : int
        CANCELLED by a user: alone, or with the session.
    lost : int
        Not settled when the session ended because a node was lost.
    running : int
        Their attempt runs in a worker or thread.
    queued : int
        Their attempt waits for a worker.
    waiting : int
        All others: they wait for inputs or producers.
    """

    completed: int = 0
    failed: int = 0
    took_along: int = 0
    skipped: int = 0
    cancelled: int = 0
    lost: int = 0
    running: int = 0
    queued: int = 0
    waiting: int = 0

    @property
    def in_error(self) -> int:
        """Number of drops in ERROR."""
        return self.failed + self.took_along

    @property
    def total(self) -> int:
        """Number of all drops."""
        return sum(msgspec.structs.astuple(self))

    @property
    def settled(self) -> int:
        """Number of drops that do not change any more."""
        return self.total - self.running - self.queued - self.waiting


NO_DROPS = DropCounts()


def count_drops(
    states: Mapping[str, int], *, failed: int, lost: int = 0, running: int = 0, queued: int = 0
) -> DropCounts:
    """Return the numbers of drops that are in these states.

    Parameters
    ----------
    states : mapping of str to int
        Number of drops by the name of their state.
    failed : int
        How many of those in ERROR are their own root cause.
    lost : int
        How many of those in CANCELLED were not cancelled by a user.
    running, queued : int
        How many of those in WRITING run, and wait for a worker. The others, data with some of their contents, wait.
    """
    errors, writing, cancelled = states.get(_ERROR, 0), states.get(_WRITING, 0), states.get(_CANCELLED, 0)
    own, gone, runs = min(failed, errors), min(lost, cancelled), min(running, writing)
    waits = min(queued, writing - runs)
    return DropCounts(
        completed=states.get(_COMPLETED, 0) + states.get(_EXPIRED, 0) + states.get(_DELETED, 0),
        failed=own,
        took_along=errors - own,
        skipped=states.get(_SKIPPED, 0),
        cancelled=cancelled - gone,
        lost=gone,
        running=runs,
        queued=waits,
        waiting=states.get(_INITIALIZED, 0) + writing - runs - waits,
    )


def add_counts(parts: Iterable[DropCounts]) -> DropCounts:
    """Return the sums of the numbers of parts that have no drop in common."""
    columns = zip(*(msgspec.structs.astuple(part) for part in parts), strict=True)
    return DropCounts(**dict(zip(DropCounts.__struct_fields__, map(sum, columns), strict=False)))


def give_up(counts: DropCounts) -> DropCounts:
    """Return the numbers when the drops that are not settled are lost."""
    lost = counts.lost + counts.running + counts.queued + counts.waiting
    return msgspec.structs.replace(counts, lost=lost, running=0, queued=0, waiting=0)


def cancel(counts: DropCounts) -> DropCounts:
    """Return the numbers when the drops that are not settled are cancelled."""
    cancelled = counts.cancelled + counts.running + counts.queued + counts.waiting
    return msgspec.structs.replace(counts, cancelled=cancelled, running=0, queued=0, waiting=0)


def failed_words(counts: DropCounts) -> str:
    """Return how many drops are in error, and how many of them failed or were taken along, and how many are lost."""
    words = []
    if counts.in_error:
        own, along = f"{format_count(counts.failed)} failed", f"{format_count(counts.took_along)} taken along"
        split = f": {own}, {along}" if counts.took_along else ""
        words.append(f"{plural(counts.in_error, 'drop')} in error{split}")
    if counts.lost:
        words.append(f"{plural(counts.lost, 'drop')} lost")
    return "; ".join(words) or "no drop in error"


class IncompleteDrop(msgspec.Struct, frozen=True, kw_only=True):
    """A result that is made from less than all of its data: from a `fraction` of 0 to 1."""

    drop: str
    name: str
    fraction: float
