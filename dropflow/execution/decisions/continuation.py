"""How a session continues: after its process ended, or in the same process with other drops.

Both work the same way. The state of the session is a `FrozenSession`, from its directory or from memory. The decisions
about its drops are a `Restart`. Together they make the `Continuation` with which a fresh core begins.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.drop_rules import effective_inputs
from dropflow.execution.decisions.drop_table import DropTable
from dropflow.execution.decisions.events import (
    NO_CAUSE,
    Cancel,
    CancelDrop,
    Continue,
    KnownStates,
    Lost,
    Pause,
    foreign,
)
from dropflow.execution.tasks import AttemptResult, StreamOpened
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.graph.templates import Kind
from dropflow.states import DropState

_INITIALIZED, _WRITING, _COMPLETED = int(DropState.INITIALIZED), int(DropState.WRITING), int(DropState.COMPLETED)
_ERROR, _SKIPPED, _CANCELLED = int(DropState.ERROR), int(DropState.SKIPPED), int(DropState.CANCELLED)

BooleanColumn = npt.NDArray[np.bool_]
StateColumn = npt.NDArray[np.uint8]

HandedOver = AttemptResult | StreamOpened | Cancel | CancelDrop | Lost | Pause | Continue
"""Items of the inbox that a continued session takes over: all but those of the exchange with other nodes."""

Parts = Mapping[int, Mapping[int, Handle]]
"""Parts that producers wrote and that are not contents yet: by producer, then by drop."""


class FrozenSession(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a session that does not advance, for the one that continues it.

    Attributes
    ----------
    drops : DropTable
        Its drops. It does not change any more.
    states : bytes
        Their `DropState`. WRITING only where an attempt is with the runner and its result will count.
    contents : mapping of int to Handle
        The contents of its drops, by drop, in the order of their commits.
    unwritten : frozenset of int
        Completed data drops to which nothing was ever written, so that they lack no content.
    released : frozenset of int
        Drops whose content was released after its last consumer, as far as that is known.
    parts : mapping
        Parts of drops here with several producers, and parts that were written here of drops on other nodes.
    failures : mapping of int to Failure
        The last failure of each drop that failed here.
    has_runner : bool
        Whether its runner goes on, in this process.
    in_flight : int
        Number of attempts with the runner, also attempts whose results will not count.
    aborted : frozenset of int
        Drops whose attempt has ended without a result: it was interrupted, or was with the runner ahead of its inputs.
    is_paused : bool
        Whether it was paused.
    durations : mapping of int to (int, float)
        By template: attempts that have succeeded, and how many seconds they took together.
    items : tuple
        Results and streams that came in since the session was frozen, and requests of users.
    """

    drops: DropTable
    states: bytes
    contents: Mapping[int, Handle] = {}
    unwritten: frozenset[int] = frozenset()
    released: frozenset[int] = frozenset()
    parts: Parts = {}
    failures: Mapping[int, Failure] = {}
    has_runner: bool = False
    in_flight: int = 0
    aborted: frozenset[int] = frozenset()
    is_paused: bool = False
    durations: Mapping[int, tuple[int, float]] = {}
    items: tuple[HandedOver, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Restart:
    """Decisions about the drops of a session that continues, by row of its whole graph.

    Attributes
    ----------
    reset : bool array, shape (drops,)
        Completed drops that run again because contents are lost, from `must_run_again`.
    repeated : bool array, shape (drops,)
        Drops that settle again although their state is known.
    retried : collection of int
        Drops among `repeated` whose earlier attempts do not count as tries.
    reason : str
        Why the session continues, for explanations.
    taken_over : uint8 array, shape (drops,), or None
        The states of drops that a node takes over from another node; None if all drops that it takes over begin anew.
    causes : mapping of int to int
        The drop that started the error, for each drop of `taken_over` in ERROR.
    attempts : mapping of int to int
        The number of the last or next attempt of each drop of `taken_over`, if it is not the first.
    """

    reset: BooleanColumn
    repeated: BooleanColumn
    retried: Collection[int] = ()
    reason: str = ""
    taken_over: StateColumn | None = None
    causes: Mapping[int, int] = field(default_factory=dict)
    attempts: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Continuation:
    """The known states and contents with which a session continues.

    Attributes
    ----------
    known : KnownStates
        The states of its drops.
    contents : mapping of int to Handle
        Contents that are still there, by drop, in the order of their commits.
    failures : mapping of int to Failure
        The failures of the drops in ERROR that started an error, and why drops were cancelled alone.
    frozen : FrozenSession or None
        The session that this one continues in the same process, with its runner; None after a restart.
    outdated : tuple of Handle
        Contents of drops that run again although their contents were there, to be removed.
    """

    known: KnownStates
    contents: Mapping[int, Handle]
    failures: Mapping[int, Failure]
    frozen: FrozenSession | None = None
    outdated: tuple[Handle, ...] = ()


def continuation_of(
    before: FrozenSession, piece: Slice, restart: Restart, adopted: Mapping[int, Handle] | None = None
) -> Continuation:
    """Return the known states and contents with which a session continues on one node.

    Drops that had settled keep their states, unless they are reset or repeated.

    Parameters
    ----------
    before : FrozenSession
        The state of the session on this node.
    piece : Slice
        The drops of this node from now on; the drops that it had before come first. If there are no other nodes, it is
        the slice of the whole graph, from `dropflow.graph.slices.whole_slice`.
    restart : Restart
        The decisions about the drops.
    adopted : mapping of int to Handle, optional
        Contents of drops that this node takes over, and had copies of.
    """
    graph, rows, drops = piece.graph, piece.drop, before.drops
    copies = {} if adopted is None else dict(adopted)
    is_own, was_own = piece.is_own, np.zeros(len(rows), dtype=np.bool_)
    was_own[: len(before.states)] = True
    was_own[list(drops.remote)] = False
    is_reset, is_repeated = restart.reset[rows], restart.repeated[rows]
    kept = is_own & was_own & ~is_reset & ~is_repeated
    new = is_own & ~was_own
    states = np.zeros(len(rows), dtype=np.uint8)
    states[: len(before.states)] = np.frombuffer(before.states, dtype=np.uint8)
    states[~kept] = _INITIALIZED
    if restart.taken_over is not None:
        states[new] = restart.taken_over[rows[new]]
    # A drop of another node whose neighbours are not on this node any more: no event about it will come.
    states[~is_own & (np.diff(graph.successors.ptr) == 0) & (np.diff(graph.predecessors.ptr) == 0)] = _COMPLETED
    attempts, uncounted = _attempts(before, piece, restart, was_own=was_own, kept=kept)
    is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    completed = np.flatnonzero(is_own & is_data & (states == _COMPLETED)).tolist()
    lost = [
        completed_drop
        for completed_drop in completed
        if not (completed_drop in before.contents or completed_drop in copies or completed_drop in before.unwritten)
    ]
    reset = np.flatnonzero(is_own & is_reset).tolist()
    is_outdated = was_own & is_repeated & (np.diff(graph.predecessors.ptr) > 0)
    return Continuation(
        known=KnownStates(
            states=states.tobytes(),
            causes=_causes(drops, piece, restart, states, new),
            attempts=attempts,
            uncounted_attempts=uncounted,
            skipped={app: chosen for app, chosen in drops.skipped_outputs.items() if kept[app]},
            reset=tuple(reset),
            lost=tuple(lost),
            reason=restart.reason,
            running=tuple(sorted(drop for drop in drops.running if kept[drop] and states[drop] == _WRITING)),
            faults={drop: count for drop, count in drops.faults.items() if kept[drop] or not is_repeated[drop]},
            released=tuple(sorted(before.released & {*reset, *lost})),
        ),
        contents={drop: content for drop, content in before.contents.items() if kept[drop]} | copies,
        failures={drop: failure for drop, failure in before.failures.items() if states[drop] in (_ERROR, _CANCELLED)},
        frozen=_with_needed_parts(before, is_own & is_reset) if before.has_runner else None,
        outdated=tuple(content for drop, content in before.contents.items() if is_outdated[drop]),
    )


def never_written(
    graph: PhysicalGraph, states: StateColumn, written: Collection[int] | BooleanColumn, known: KnownStates | None
) -> BooleanColumn:
    """Return the completed data drops to which nothing was ever written: they have no content to lose.

    Parameters
    ----------
    states : uint8 array, shape (drops,)
        `DropState` of every drop.
    written : collection of int, or bool array of shape (drops,)
        Drops that have, or had, a content since the session began or continued.
    known : KnownStates or None
        The states with which the session continued; None if it did not.
    """
    unwritten: BooleanColumn = (graph.kinds[graph.template] == np.uint8(Kind.DATA)) & (states == _COMPLETED)
    unwritten[written if isinstance(written, np.ndarray) else list(written)] = False
    if known is not None:
        unwritten[list(known.lost)] = False
    return unwritten


def _causes(
    drops: DropTable, piece: Slice, restart: Restart, states: StateColumn, new: BooleanColumn
) -> dict[int, int]:
    failed = (_ERROR, _CANCELLED)
    causes = {drop: cause for drop, cause in drops.error_causes().items() if states[drop] in failed}
    for drop in np.flatnonzero(new & np.isin(states, failed)).tolist():
        row = restart.causes.get(int(piece.drop[drop]), int(piece.drop[drop]))
        here = piece.local(row)
        causes[drop] = foreign(row) if here is None else here
    return causes


def _attempts(
    before: FrozenSession, piece: Slice, restart: Restart, *, was_own: BooleanColumn, kept: BooleanColumn
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the numbers of attempts, and how many of them do not count as tries."""
    rows, is_own = piece.drop, piece.is_own
    attempts, uncounted = dict(before.drops.attempts), dict(before.drops.uncounted_attempts)
    for drop in before.aborted:
        attempts[drop] = attempts.get(drop, 1) + 1
        uncounted[drop] = uncounted.get(drop, 0) + 1
    # A drop whose error was reported by another node may run again since.
    is_retried = np.isin(rows, list(restart.retried)) & ~kept
    for drop in np.flatnonzero(is_own & ((has_attempts(piece.graph) & restart.reset[rows]) | is_retried)).tolist():
        uncounted[drop] = before.drops.attempt(drop)
        attempts[drop] = uncounted[drop] + 1
    for drop in np.flatnonzero(is_own & ~was_own).tolist() if restart.attempts else ():
        known = restart.attempts.get(int(rows[drop]))
        if known is not None:
            attempts[drop], uncounted[drop] = known, known - 1
    for drop in np.flatnonzero(was_own & ~is_own).tolist():  # another node continues the count
        attempts.pop(drop, None)
        uncounted.pop(drop, None)
    return attempts, uncounted


def _with_needed_parts(frozen: FrozenSession, is_reset: BooleanColumn) -> FrozenSession:
    """Return a session with the parts of producers that do not run again."""
    parts = {producer: dict(written) for producer, written in frozen.parts.items() if not is_reset[producer]}
    return msgspec.structs.replace(frozen, parts=parts)


# The drops that must run again after contents are lost: a drop is *reset* if its content, or the part that it wrote of
# one, is gone and still needed. The functions are pure: they change no running core, and the caller finds out which
# contents are available.


def must_run_again(
    graph: PhysicalGraph,
    states: bytes | bytearray,
    available: BooleanColumn,
    *,
    kept: bytes,
    parts: Collection[tuple[int, int]] = (),
    replaced: Collection[int] = (),
) -> BooleanColumn:
    """Return the completed drops that must run again so that the session can go on: the fewest.

    An application that is not settled needs the content of each of its completed inputs. A completed data drop that is
    needed, or kept as a result, is reset if its content is not available. A data drop that is reset or not settled
    needs a part of each of its completed producers. So a producer without an available part is reset, and needs its own
    inputs. Drops in ERROR or SKIPPED stay as they are, and so do contents that are available.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph that is executed.
    states : bytes, shape (drops,)
        `DropState` of every drop. All states but COMPLETED, ERROR and SKIPPED count as not settled.
    available : bool array, shape (drops,)
        Data drops whose content is at hand.
    kept : bytes, shape (drops,)
        1 for data drops whose content is a result, from `dropflow.execution.content_table.kept_drops`.
    parts : collection of (int, int)
        Producers and drops that are not settled, where the producer need not write again: its part is at hand, or it
        chose to skip the drop.
    replaced : collection of int
        Data drops whose content another drop has replaced, as the next iteration of a loop does with its file. They are
        no results any more. If a drop still needs one of them, it is made again from available contents.

    Returns
    -------
    bool array, shape (drops,)

    Notes
    -----
    The least fixed point of these rules, found upwards from the drops that are not settled, in time linear in drops and
    edges. Mars recovers from lost workers by a similar scan in two passes, down from lost chunks to their unfinished
    successors and up to predecessors whose chunks are lost (the Mars project, "Fault tolerance", https://docs.pymars.org).
    """
    column = np.frombuffer(states, dtype=np.uint8)
    completed = column == _COMPLETED
    unsettled = ~(completed | (column == _ERROR) | (column == _SKIPPED))
    is_data: BooleanColumn = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    lost = completed & is_data & ~available
    before = graph.predecessors
    needed = np.frombuffer(kept, dtype=np.uint8) > 0
    lost[list(replaced)] = completed[list(replaced)]
    needed[list(replaced)] = False
    needed[before.neighbour[np.repeat(unsettled & ~is_data, np.diff(before.ptr))]] = True
    reset: BooleanColumn = lost & needed
    # From here on only drops that run again are visited, each with its predecessors, once.
    waiting: list[int] = np.flatnonzero(reset | (unsettled & is_data)).tolist()
    ptr, neighbour = before.ptr.data, before.neighbour.data
    is_reset, may_reset = reset.view(np.uint8).data, (lost | (completed & ~is_data)).view(np.uint8).data
    there = frozenset(parts)
    while waiting:
        drop = waiting.pop()
        for other in neighbour[ptr[drop] : ptr[drop + 1]]:
            if may_reset[other] and not is_reset[other] and (not there or (other, drop) not in there):
                is_reset[other] = 1
                waiting.append(other)
    return reset


def has_attempts(graph: PhysicalGraph) -> BooleanColumn:
    """Return which drops have attempts: applications, and data without producers."""
    is_attempted: BooleanColumn = graph.kinds[graph.template] == np.uint8(Kind.APP)
    is_attempted[np.diff(graph.predecessors.ptr) == 0] = True
    return is_attempted


def recomputed_drops(graph: PhysicalGraph, known: KnownStates | None) -> int:
    """Return how many drops with attempts run again, although they had completed, because contents are lost."""
    return 0 if known is None else int(np.count_nonzero(has_attempts(graph)[list(known.reset)]))


def known_reports(graph: PhysicalGraph, drops: DropTable, reset: Collection[int], drop: int) -> list[tuple[int, int]]:
    """Return the state and the cause of each settled predecessor of a drop that is not settled.

    If an application acts on some of its inputs only, completed inputs come first, and a place is kept for each input
    that is reset. So an application that ran on such inputs runs on them again, however its other inputs ended.

    Parameters
    ----------
    reset : collection of int
        Drops that had completed, and complete again.
    """
    before = graph.predecessors
    inputs = before.of(drop)
    template = graph.templates[graph.template[drop]]
    states = [_SKIPPED if drop in drops.skipped_outputs.get(other, ()) else drops.states[other] for other in inputs]
    settled = [(state, other) for state, other in zip(states, inputs, strict=True) if state > _WRITING]
    wanted = effective_inputs(template.effective_inputs, len(inputs)) if template.kind is Kind.APP else len(inputs)
    if wanted < len(inputs):
        # In this order most inputs that did not complete are tolerated: some skips with `block_skip`, and none without.
        order = (_COMPLETED, _SKIPPED, _ERROR) if template.block_skip else (_COMPLETED, _ERROR, _SKIPPED)
        settled.sort(key=lambda report: order.index(report[0]) if report[0] in order else len(order))
        completed = sum(state == _COMPLETED for state, _ in settled)
        coming = sum(state <= _WRITING and other in reset for state, other in zip(states, inputs, strict=True))
        settled = settled[: max(completed, wanted - coming)]
    return [(state, drops.causes.get(other, NO_CAUSE)) for state, other in settled]
