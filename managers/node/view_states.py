"""What a member of a session reports when a view ends, and with which states it continues in the next one."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.data.repository import LocalRepository
from dropflow.engine.api import Handle
from dropflow.engine.content_table import Continuation, FrozenSession, kept_drops
from dropflow.engine.drop_table import DropTable
from dropflow.engine.events import Event, KnownStates, foreign
from dropflow.engine.recovery import has_attempts
from dropflow.engine.session import Instrument, Session
from dropflow.errors import DropflowError
from dropflow.graph.slices import Slice
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid
from dropflow.states import DropState
from managers.node.copy_effects import CopyRecords
from managers.node.directory import SessionDirectory
from managers.node.shared_files import SharedFile, still_there
from managers.recovery.records import MemberReport, ViewDecision, pack_column, unpack_column

__all__ = [
    "Beginning",
    "NextViewBegins",
    "continuation_in_view",
    "member_report",
    "report_of",
]


_INITIALIZED, _WRITING = int(DropState.INITIALIZED), int(DropState.WRITING)
_COMPLETED, _ERROR = int(DropState.COMPLETED), int(DropState.ERROR)
_CANCELLED = int(DropState.CANCELLED)

BooleanColumn = npt.NDArray[np.bool_]


def report_of(session: Session, piece: Slice, *, workers: float, shared: Mapping[int, SharedFile]) -> MemberReport:
    """Return the report of a session that is frozen. Of copies, it has only shared files that are there.

    Attempts that its runner has not begun are taken back before: their drops may move.

    Parameters
    ----------
    workers : float
        Attempts that this node can run at a time.
    shared : mapping of int to SharedFile
        Files of other members, by row.
    """
    session.handover.take_back()
    drops, rows = session.core.drops, piece.drop
    states = np.frombuffer(session.handover.states(), dtype=np.uint8)
    available = np.zeros(len(rows), dtype=np.uint8)
    available[[drop for drop in session.contents() if drop not in drops.remote]] = 1
    pairs = [(producer, drop) for producer, written in session.handover.parts().items() for drop in written]
    report = member_report(rows, states, available, drops, pairs, replaced=session.handover.replaced())
    seen = still_there(shared)
    return msgspec.structs.replace(
        report,
        workers=workers,
        durations=session.handover.durations(),
        copies=pack_column(np.array(seen, dtype=np.int32)) if seen else b"",
    )


def member_report(
    rows: npt.NDArray[np.int32],
    states: npt.NDArray[np.uint8],
    available: npt.NDArray[np.uint8],
    drops: DropTable,
    parts: Iterable[tuple[int, int]],
    *,
    replaced: Sequence[int],
) -> MemberReport:
    """Return the report about drops in a slice.

    Parameters
    ----------
    rows, states, available : array
        The columns of the report, not packed.
    drops : DropTable
        The drops.
    parts : iterable of (int, int)
        Producers and drops, by rows of the slice, whose part is there.
    replaced : sequence of int
        Drops whose content another drop has replaced.
    """
    pairs = [*parts]
    pairs += [(producer, drop) for producer, skipped in drops.skipped_outputs.items() for drop in skipped]
    return MemberReport(
        rows=pack_column(rows),
        states=pack_column(states),
        available=pack_column(available),
        parts=pack_column(rows[np.array(pairs, dtype=np.int32).reshape(-1)]) if pairs else b"",
        attempts={int(rows[drop]): attempt for drop, attempt in drops.attempts.items()},
        causes={int(rows[drop]): _row(rows, cause) for drop, cause in drops.error_causes().items()},
        replaced=pack_column(rows[list(replaced)]) if replaced else b"",
    )


def adopt_copies(
    repository: LocalRepository, piece: Slice, copies: Mapping[int, Handle]
) -> tuple[dict[int, Handle], list[str]]:
    """Return the contents that copies of drops become that are now here, by row of the slice, and what went wrong."""
    adopted: dict[int, Handle] = {}
    problems: list[str] = []
    graph, kept = piece.graph, kept_drops(piece.graph)
    for row, copy in copies.items():
        drop = piece.local(row)
        if drop is None or not piece.is_own[drop]:
            continue
        name, template = oid(graph, drop), graph.templates[graph.template[drop]]
        try:
            adopted[drop] = repository.adopt_copy(drop, name, template, copy, is_kept=bool(kept[drop]))
        except DropflowError as error:
            problems.append(f"the copy of the content of {name} is lost: {error}")
    return adopted, problems


def continuation_in_view(
    frozen: FrozenSession, decision: ViewDecision, piece: Slice, adopted: Mapping[int, Handle]
) -> Continuation:
    """Return with what a member continues in the next view.

    Parameters
    ----------
    frozen : FrozenSession
        The session in the view before.
    decision : ViewDecision
        The next view.
    piece : Slice
        The drops of this member in the next view; those of the view before come first.
    adopted : mapping of int to Handle
        Contents of drops that this member takes over, and had copies of.
    """
    graph, rows, before = piece.graph, piece.drop, len(frozen.states)
    is_own, was_own = piece.is_own, np.zeros(len(rows), dtype=np.bool_)
    was_own[:before] = True
    was_own[list(frozen.drops.remote)] = False
    is_reset = np.isin(rows, unpack_column(decision.reset, np.int32))
    is_repeated = np.isin(rows, unpack_column(decision.repeated, np.int32))
    kept = is_own & was_own & ~is_reset & ~is_repeated
    states = np.zeros(len(rows), dtype=np.uint8)
    states[:before] = np.frombuffer(frozen.states, dtype=np.uint8)
    taken_over = unpack_column(decision.taken_over, np.uint8)
    new = is_own & ~was_own
    states[~kept] = _INITIALIZED
    if len(taken_over):
        states[new] = taken_over[rows[new]]
    # A drop of another node whose neighbours have left this one as well: nothing will be reported of it.
    states[~is_own & (np.diff(graph.successors.ptr) == 0) & (np.diff(graph.predecessors.ptr) == 0)] = _COMPLETED
    running = [drop for drop in frozen.drops.running if kept[drop] and states[drop] == _WRITING]
    # A drop whose error was told by another node may run again since.
    retried = np.isin(rows, decision.retried) & ~kept
    again = np.flatnonzero(is_own & ((has_attempts(graph) & is_reset) | retried)).tolist()
    attempts, uncounted = _attempts(frozen, decision, rows, again, np.flatnonzero(new).tolist())
    for drop in np.flatnonzero(was_own & ~is_own).tolist():  # another node goes on counting
        attempts.pop(drop, None)
        uncounted.pop(drop, None)
    is_outdated = was_own & is_repeated & (np.diff(graph.predecessors.ptr) > 0)
    return Continuation(
        known=KnownStates(
            states=states.tobytes(),
            causes=_causes(frozen, decision, piece, states, new),
            attempts=attempts,
            uncounted_attempts=uncounted,
            skipped={app: chosen for app, chosen in frozen.drops.skipped_outputs.items() if kept[app]},
            reset=tuple(np.flatnonzero(is_own & is_reset).tolist()),
            lost=_without_content(frozen.contents.keys() | adopted.keys(), piece, states, is_own),
            reason=decision.why,
            running=tuple(sorted(running)),
            faults={drop: count for drop, count in frozen.drops.faults.items() if kept[drop] or not is_repeated[drop]},
        ),
        contents={drop: content for drop, content in frozen.contents.items() if kept[drop]} | dict(adopted),
        failures={drop: failure for drop, failure in frozen.failures.items() if states[drop] == _ERROR},
        frozen=msgspec.structs.replace(frozen, parts=_needed_parts(frozen.parts, is_own, is_reset)),
        outdated=tuple(content for drop, content in frozen.contents.items() if is_outdated[drop]),
    )


def _row(rows: npt.NDArray[np.int32], cause: int) -> int:
    """Return the row in the whole graph of a cause, which may be one of another slice."""
    return int(rows[cause]) if cause >= 0 else -cause - 2


def _causes(
    frozen: FrozenSession, decision: ViewDecision, piece: Slice, states: npt.NDArray[np.uint8], new: BooleanColumn
) -> dict[int, int]:
    failed = (_ERROR, _CANCELLED)
    causes = {drop: cause for drop, cause in frozen.drops.error_causes().items() if states[drop] in failed}
    for drop in np.flatnonzero(new & np.isin(states, failed)).tolist():
        row = decision.causes.get(int(piece.drop[drop]), int(piece.drop[drop]))
        here = piece.local(row)
        causes[drop] = foreign(row) if here is None else here
    return causes


def _attempts(
    frozen: FrozenSession, decision: ViewDecision, rows: npt.NDArray[np.int32], again: Sequence[int], new: Sequence[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the numbers of attempts, and how many of them do not count as tries.

    Parameters
    ----------
    again, new : sequence of int
        Drops that run again because contents are lost, and drops that this node takes over.
    """
    attempts, uncounted = dict(frozen.drops.attempts), dict(frozen.drops.uncounted_attempts)
    for drop in again:
        uncounted[drop] = attempts.get(drop, 1)
        attempts[drop] = attempts.get(drop, 1) + 1
    for drop in frozen.aborted:
        attempts[drop] = attempts.get(drop, 1) + 1
        uncounted[drop] = uncounted.get(drop, 0) + 1
    for drop in new:
        known = decision.attempts.get(int(rows[drop]))
        if known is not None:
            attempts[drop], uncounted[drop] = known, known - 1
    return attempts, uncounted


def _without_content(
    contents: Collection[int], piece: Slice, states: npt.NDArray[np.uint8], is_own: BooleanColumn
) -> tuple[int, ...]:
    graph = piece.graph
    is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    found = np.flatnonzero(is_own & is_data & (states == _COMPLETED)).tolist()
    return tuple(drop for drop in found if drop not in contents)


def _needed_parts(
    parts: Mapping[int, Mapping[int, Handle]], is_own: BooleanColumn, is_reset: BooleanColumn
) -> dict[int, dict[int, Handle]]:
    """Return the parts of producers that do not run again."""
    return {
        producer: dict(written) for producer, written in parts.items() if not (is_own[producer] and is_reset[producer])
    }


# How a session begins that was over, and how the files of a view take their places.


@dataclass(frozen=True)
class Beginning:
    """With what a session continues that was over.

    Attributes
    ----------
    decision : ViewDecision
        Its next view.
    frozen : FrozenSession
        What this node has of it.
    copies : mapping of int to Handle
        The copies that it has of contents of other nodes, by row of the whole graph.
    """

    decision: ViewDecision
    frozen: FrozenSession
    copies: Mapping[int, Handle] = field(default_factory=dict)

    def _adoptable(self) -> dict[int, Handle]:
        """Return the copies that may become contents: those of drops that moved, and are kept."""
        states = unpack_column(self.decision.taken_over, np.uint8)
        reset = {*unpack_column(self.decision.reset, np.int32).tolist()}
        if not len(states):
            return {}
        return {
            row: copy for row, copy in self.copies.items() if states[row] == DropState.COMPLETED and row not in reset
        }

    def continuation(
        self, piece: Slice, repository: LocalRepository, directory: SessionDirectory
    ) -> tuple[Continuation, list[str]]:
        """Return the states and contents with which the session continues, and what went wrong with copies.

        No process of the session is left. Copies become the contents of drops that are now here; if the session does
        not begin, they are copies again.
        """
        adopted, problems = adopt_copies(repository, piece, self._adoptable())
        records = CopyRecords(directory.path)
        for drop, content in adopted.items():
            records.moved(int(piece.drop[drop]), content)
        return replace(continuation_in_view(self.frozen, self.decision, piece, adopted), frozen=None), problems


class NextViewBegins(Instrument):
    """Puts the files of a view in their place as soon as its journal has begun."""

    def __init__(self, directory: SessionDirectory) -> None:
        self._directory = directory
        self._is_done = False

    def on_events(self, events: Sequence[Event]) -> None:
        """Do it with the first events, which are in the journal now."""
        del events
        if not self._is_done:
            self._is_done = True
            self._directory.next.settle()
