"""Reads what a session has left in its directory on this node, for its continuation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.api.records import SessionDetail
from dropflow.data.survival import changed_inputs, is_intact, replaced_contents, surviving_contents
from dropflow.engine.api import ContentRecord, Handle
from dropflow.engine.content_table import FrozenSession
from dropflow.engine.drop_table import DropTable
from dropflow.engine.journal import ReplayedSession
from dropflow.errors import DropflowError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice, slice_for
from dropflow.graph.templates import Kind
from dropflow.states import DropState, SessionState
from managers.node.copy_effects import CopyRecords
from managers.node.directory import SessionDirectory
from managers.node.view_states import member_report
from managers.recovery.records import StoppedPart, pack_column

__all__ = ["StoppedCopy", "nothing_before", "stopped_part"]

_SETTLED = (DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED)
"""States that stay when a session continues. Drops that were cancelled, or were running, run again."""


@dataclass(frozen=True)
class StoppedCopy:
    """A session in whose directory no process is at work.

    Attributes
    ----------
    directory : SessionDirectory
        Its directory.
    piece : Slice
        The drops of this node.
    replayed : ReplayedSession
        The session at the end of its journal.
    """

    directory: SessionDirectory
    piece: Slice
    replayed: ReplayedSession

    @classmethod
    def read(cls, directory: SessionDirectory, node: str, *, ignore_damage: bool = False) -> "StoppedCopy":
        """Read a directory.

        Parameters
        ----------
        ignore_damage : bool
            Take a journal that is damaged before its end up to the damage.

        Raises
        ------
        DropflowError
            It cannot be read.
        """
        piece = directory.slice(node)
        return cls(directory, piece, directory.replay(piece, cut=ignore_damage))

    @property
    def version(self) -> tuple[int, int]:
        """Deployment and view that the journal is of."""
        return self.replayed.header.epoch, self.replayed.header.view

    def frozen(self) -> FrozenSession:
        """Return what a session that continues this one needs. The contents are compared with their records."""
        replayed = self.replayed
        return FrozenSession(
            drops=replayed.core.drops,
            states=self._states().tobytes(),
            contents=self._contents(),
            parts={},
            failures=replayed.failures,
            in_flight=0,
            aborted=frozenset(replayed.interrupted),
        )

    def part(self, status: str) -> StoppedPart:
        """Return what this node reports. The contents are compared with their records."""
        available = np.zeros(self.piece.graph.drops, dtype=np.uint8)
        available[list(self._contents())] = 1
        available[self._never_written()] = 1
        replaced = [drop for drop in replaced_contents(self._records()) if available[drop]]
        report = member_report(
            self.piece.drop, self._states(), available, self.replayed.core.drops, (), replaced=replaced
        )
        held = sorted(self.held())
        report = msgspec.structs.replace(report, copies=pack_column(np.array(held, dtype=np.int32)) if held else b"")
        is_input = np.diff(self.piece.graph.predecessors.ptr) == 0
        inputs = {drop: record for drop, record in self._records().items() if is_input[drop]}
        missing, changed = changed_inputs(inputs, self.directory.path, self.replayed.started)
        return StoppedPart(
            node=self.piece.node,
            status=status,
            deployment=self.directory.deployment(),
            view=self.version[1],
            decision=self.directory.decision(),
            report=msgspec.msgpack.encode(report),
            paused=self.replayed.core.status is SessionState.PAUSED,
            missing_inputs=self._rows(missing),
            changed_inputs=self._rows(changed),
            replaced_inputs=self._rows(drop for drop in replaced if is_input[drop]),
        )

    def held(self) -> dict[int, Handle]:
        """Return the copies of contents of other nodes that are as they were made, by row of the whole graph.

        Those of contents in memory are in their record; of directories, the size is compared.
        """
        copies = CopyRecords(self.directory.path).read(self.version)
        return {row: copy.handle for row, copy in copies.items() if is_intact(copy.handle)}

    def _rows(self, drops: Iterable[int]) -> tuple[int, ...]:
        """Return the rows of drops in the whole graph."""
        return tuple(int(self.piece.drop[drop]) for drop in sorted(drops))

    def _states(self) -> npt.NDArray[np.uint8]:
        states = np.frombuffer(self.replayed.core.drops.states, dtype=np.uint8).copy()
        states[~np.isin(states, [int(state) for state in _SETTLED])] = DropState.INITIALIZED
        return states

    def _contents(self) -> Mapping[int, Handle]:
        """Return the contents that are as they were committed, of completed drops of this node."""
        states = self._states()
        found = surviving_contents(self._records(), self.directory.path)
        return {row: content for row, content in found.items() if states[row] == DropState.COMPLETED}

    def _records(self) -> dict[int, ContentRecord]:
        """Return the records of the contents of drops of this node, in the order of their commits."""
        return {row: record for row, record in self.replayed.contents.items() if self.piece.is_own[row]}

    def _never_written(self) -> npt.NDArray[np.intp]:
        """Return the completed data drops of this node to which nothing was written: nothing is lost with them."""
        graph = self.piece.graph
        is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
        found = is_data & self.piece.is_own & (self._states() == DropState.COMPLETED)
        found[list(self.replayed.contents)] = False
        if self.replayed.known is not None:
            found[list(self.replayed.known.lost)] = False
        return np.flatnonzero(found)


def nothing_before(graph: PhysicalGraph, node: str) -> tuple[Slice, FrozenSession]:
    """Return the slice, and what is left, of a session that this node had no part of."""
    piece = slice_for(replace(graph, places=("",) * graph.parts), node)
    frozen = FrozenSession(
        drops=DropTable(piece.graph, ()), states=b"", contents={}, parts={}, failures={}, in_flight=0
    )
    return piece, frozen


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
    """Return what this node reports about a session: that it is not over, what it has, or why that cannot be read."""
    status = session.state.name
    if not session.state.is_terminal:
        return StoppedPart(node=node, status=status)
    try:
        part = StoppedCopy.read(session.directory, node, ignore_damage=ignore_damage).part(status)
    except DropflowError as error:
        return StoppedPart(node=node, status=status, finding=f"node {node}: {error}")
    detail = session.detail()
    return msgspec.structs.replace(part, notes=detail.notes, recomputed=detail.recomputed)
