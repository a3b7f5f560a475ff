"""The reports of members of a session, live or stopped, and the states with which they continue in the next view."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.api.session_records import SessionDetail
from dropflow.apps.needs import unable_rows
from dropflow.data.repository import LocalRepository
from dropflow.data.survival import is_intact
from dropflow.errors import DropflowError
from dropflow.execution.content_location import Handle
from dropflow.execution.content_table import kept_drops
from dropflow.execution.decisions.continuation import Continuation, FrozenSession, Restart, continuation_of
from dropflow.execution.decisions.drop_table import DropTable
from dropflow.execution.decisions.events import Event
from dropflow.execution.session import Instrument, Session
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice, empty_slice
from dropflow.graph.text_ids import oid
from dropflow.sessions.stopped import StoppedSession
from dropflow.states import DropState, SessionState
from managers.node.contents import still_there
from managers.node.copy_effects import CopyRecords
from managers.node.directory import SessionDirectory
from managers.recovery.records import MemberReport, SharedFile, StoppedPart, ViewDecision, pack_column, unpack_column

BooleanColumn = npt.NDArray[np.bool_]


def report_of(session: Session, piece: Slice, *, workers: float, shared: Mapping[int, SharedFile]) -> MemberReport:
    """Return the report of a session that is frozen. It has no copies yet, except shared files that exist.

    Attempts that the runner has not begun are taken back before, because their drops may move.

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
    available[session.handover.unwritten()] = 1
    pairs = [(producer, drop) for producer, written in session.handover.parts().items() for drop in written]
    report = member_report(rows, states, available, drops, pairs, replaced=session.handover.replaced())
    seen = still_there(shared)
    return msgspec.structs.replace(
        report,
        workers=workers,
        durations=session.handover.durations(),
        unable=unable_rows(piece.graph.templates),
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
        Producers and drops, by rows of the slice, whose part exists here.
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


def _row(rows: npt.NDArray[np.int32], cause: int) -> int:
    """Return the row in the whole graph of a cause, which may be a drop of another slice."""
    return int(rows[cause]) if cause >= 0 else -cause - 2


# The state of a session on this node after its end, for its continuation.


def held_copies(stopped: StoppedSession) -> dict[int, Handle]:
    """Return the unchanged copies of contents of other nodes, by row of the whole graph.

    Copies of contents in memory are in their records. For directories, only the size is compared.
    """
    copies = CopyRecords(stopped.directory).read(stopped.version)
    return {row: copy.handle for row, copy in copies.items() if is_intact(copy.handle)}


def nothing_before(graph: PhysicalGraph, node: str) -> tuple[Slice, FrozenSession]:
    """Return an empty slice and state, for a session that this node had no part in."""
    piece = empty_slice(graph, node)
    return piece, FrozenSession(drops=DropTable(piece.graph, ()), states=b"")


class SessionInstance(Protocol):
    """The parts of the instance of a session that are read here."""

    directory: SessionDirectory

    @property
    def state(self) -> SessionState:
        """State of the session on this node."""
        ...

    def detail(self) -> SessionDetail:
        """Return the session with its notes."""
        ...


def stopped_part(session: SessionInstance, node: str, *, ignore_damage: bool) -> StoppedPart:
    """Return the report about a session here: that it is not over, its state, or why the state cannot be read."""
    status = session.state.name
    if not session.state.is_terminal:
        return StoppedPart(node=node, status=status)
    try:
        stopped = session.directory.stopped(node, ignore_damage=ignore_damage)
        part = _part_of(stopped, session.directory, status)
    except DropflowError as error:
        return StoppedPart(node=node, status=status, finding=f"node {node}: {error}")
    detail = session.detail()
    return msgspec.structs.replace(part, notes=detail.notes, recomputed=detail.recomputed)


def _part_of(stopped: StoppedSession, directory: SessionDirectory, status: str) -> StoppedPart:
    piece, left = stopped.piece, stopped.frozen
    states = np.frombuffer(left.states, dtype=np.uint8)
    available = stopped.available.astype(np.uint8)
    report = member_report(piece.drop, states, available, left.drops, (), replaced=sorted(stopped.replaced))
    held = sorted(held_copies(stopped))
    report = msgspec.structs.replace(
        report,
        copies=pack_column(np.array(held, dtype=np.int32)) if held else b"",
        unable=unable_rows(piece.graph.templates),
    )
    inputs = stopped.outside_inputs()

    def rows(drops: Iterable[int]) -> tuple[int, ...]:
        return tuple(int(piece.drop[drop]) for drop in sorted(drops))

    return StoppedPart(
        node=piece.node,
        status=status,
        deployment=directory.deployment(),
        view=stopped.version[1],
        decision=directory.decision(),
        report=msgspec.msgpack.encode(report),
        paused=stopped.replayed.core.status is SessionState.PAUSED,
        missing_inputs=rows(inputs.missing),
        changed_inputs=rows(inputs.changed),
        replaced_inputs=rows(inputs.replaced),
    )


# The states and contents with which a session continues in the next view.


def adopt_copies(
    repository: LocalRepository, piece: Slice, copies: Mapping[int, Handle]
) -> tuple[dict[int, Handle], list[str]]:
    """Return the copies that become contents of drops now here, by row of the slice, and notes about errors."""
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


def restart_in(decision: ViewDecision) -> Restart:
    """Return the decisions of a view about the drops of its session, by row of the whole graph."""
    drops = len(unpack_column(decision.placement, np.uint16))

    def marked(rows: bytes) -> BooleanColumn:
        marks = np.zeros(drops, dtype=np.bool_)
        marks[unpack_column(rows, np.int32)] = True
        return marks

    taken_over = unpack_column(decision.taken_over, np.uint8).astype(np.uint8)
    return Restart(
        reset=marked(decision.reset),
        repeated=marked(decision.repeated),
        retried=decision.retried,
        reason=decision.why,
        taken_over=taken_over if len(taken_over) else None,
        causes=decision.causes,
        attempts=decision.attempts,
    )


# The continuation of a session that was over, and the move of the files of a view to their places.


@dataclass(frozen=True)
class Beginning:
    """The state with which a session that was over continues.

    Attributes
    ----------
    decision : ViewDecision
        Its next view.
    frozen : FrozenSession
        The state of the session on this node.
    copies : mapping of int to Handle
        The copies here of contents of other nodes, by row of the whole graph.
    """

    decision: ViewDecision
    frozen: FrozenSession
    copies: Mapping[int, Handle] = field(default_factory=dict)

    def _adoptable(self) -> dict[int, Handle]:
        """Return the copies that may become contents: copies of drops that moved and do not run again."""
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
        """Return the states and contents with which the session continues, and notes about errors of copies.

        No process of the session may run. Copies become the contents of drops that are now here. If the session does
        not begin, they are copies again.
        """
        adopted, problems = adopt_copies(repository, piece, self._adoptable())
        records = CopyRecords(directory.path)
        for drop, content in adopted.items():
            records.moved(int(piece.drop[drop]), content)
        return continuation_of(self.frozen, piece, restart_in(self.decision), adopted), problems


class NextViewBegins(Instrument):
    """Moves the files of a view to their places as soon as its journal has begun."""

    def __init__(self, directory: SessionDirectory) -> None:
        self._directory = directory
        self._is_done = False

    def on_events(self, events: Sequence[Event]) -> None:
        """Move the files at the first events, which are in the journal now."""
        del events
        if not self._is_done:
            self._is_done = True
            self._directory.next.settle()
