"""A session whose process has ended: its state in its directory, and how a run on this machine continues.

Used by ``dropflow resume`` and ``dropflow retry``, and by node managers for their parts of sessions. How a session
continues is described in ``docs/adr/0011-a-session-continues-from-known-states.md``.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.data.survival import changed_inputs, replaced_contents, surviving_contents
from dropflow.errors import BadFileError, ConflictError, DropflowError, WorkerStartError
from dropflow.execution.content_location import ContentRecord
from dropflow.execution.content_table import kept_drops
from dropflow.execution.decisions.continuation import (
    Continuation,
    FrozenSession,
    Restart,
    continuation_of,
    must_run_again,
    never_written,
    recomputed_drops,
)
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import KnownStates
from dropflow.execution.journal import JournalHeader, ReplayedSession, is_blank, read, replay
from dropflow.execution.statistics import SessionResult, applications_run, cause_reports, snapshot, totals, with_results
from dropflow.files import GRAPH_FILE, JOURNAL, SUMMARY, refuse_other_directory
from dropflow.formatting import few, plural
from dropflow.graph.codec import digest, load
from dropflow.graph.completeness import incomplete_results
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice, whole_slice
from dropflow.graph.templates import Kind
from dropflow.reuse.log import taken_results
from dropflow.sessions.retry import Again, OutsideInputs
from dropflow.states import KEPT_STATES, DropState, SessionState

"""States that stay when a session continues. Drops that were cancelled or running run again."""
_SHOWN_CONTENTS = 5
"""Contents in a note."""
_ENDED = (SessionState.FINISHED.name, SessionState.FAILED.name)


@dataclass(frozen=True)
class ContinuationPlan:
    """How a session continues.

    Attributes
    ----------
    continuation : Continuation or None
        The known states and contents; None to start from the beginning, if nothing has run.
    notes : tuple of str
        How many drops are kept and how many run again, for the summary.
    """

    continuation: Continuation | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class StoppedSession:
    """The state of a session in its directory. No process is at work in it.

    Attributes
    ----------
    directory : Path
        The session directory, absolute.
    piece : Slice
        The drops that were here: all drops, or those of a node.
    replayed : ReplayedSession
        The session at the end of its journal.
    """

    directory: Path
    piece: Slice
    replayed: ReplayedSession

    @property
    def version(self) -> tuple[int, int]:
        """Deployment and view of the journal."""
        return self.replayed.header.epoch, self.replayed.header.view

    @property
    def is_over(self) -> bool:
        """Whether the session has ended by itself. A session that was cancelled can continue."""
        return self.replayed.core.status in (SessionState.FINISHED, SessionState.FAILED)

    @property
    def reason(self) -> str:
        """Why the session is not over, in words for an explanation."""
        status = self.replayed.core.status
        if status is SessionState.PAUSED:
            return "the run was stopped at its walltime"
        was_cancelled = status in (SessionState.CANCELLING, SessionState.CANCELLED)
        return "the run was cancelled" if was_cancelled else "the process of the run ended"

    @cached_property
    def records(self) -> dict[int, ContentRecord]:
        """The records of the contents of drops that are here, in the order of their commits."""
        return {drop: record for drop, record in self.replayed.contents.items() if self.piece.is_own[drop]}

    @cached_property
    def replaced(self) -> frozenset[int]:
        """The drops whose content another drop has replaced."""
        return frozenset(replaced_contents(self.records))

    @cached_property
    def frozen(self) -> FrozenSession:
        """The state for a session that continues this one. The contents are compared with their records."""
        replayed, drops, states = self.replayed, self.replayed.core.drops, self.settled
        surviving = surviving_contents(self.records, self.directory)
        known = replayed.known or KnownStates(b"")
        return FrozenSession(
            drops=drops,
            states=states.tobytes(),
            contents={drop: content for drop, content in surviving.items() if states[drop] == DropState.COMPLETED},
            unwritten=frozenset(np.flatnonzero(self.unwritten & self.piece.is_own).tolist()),
            released=frozenset(replayed.released | ({*known.released} - {*known.reset})),
            failures=replayed.failures,
            aborted=frozenset(replayed.interrupted),
        )

    @cached_property
    def settled(self) -> npt.NDArray[np.uint8]:
        """The state of each settled drop, and INITIALIZED for all others."""
        states = np.frombuffer(self.replayed.core.drops.states, dtype=np.uint8).copy()
        states[~np.isin(states, KEPT_STATES)] = DropState.INITIALIZED
        return states

    @cached_property
    def unwritten(self) -> npt.NDArray[np.bool_]:
        """The completed data drops that lack no content, because nothing was ever written to them."""
        return never_written(self.piece.graph, self.settled, self.replayed.contents, self.replayed.known)

    @cached_property
    def available(self) -> npt.NDArray[np.bool_]:
        """Whether data drops here still have their content, shape (drops here,)."""
        is_available = np.zeros(self.piece.graph.drops, dtype=np.bool_)
        is_available[[*self.frozen.contents, *self.frozen.unwritten]] = True
        return is_available

    def outside_inputs(self) -> OutsideInputs:
        """Return which inputs that existed before the session are missing or have changed."""
        is_input = np.diff(self.piece.graph.predecessors.ptr) == 0
        inputs = {drop: record for drop, record in self.records.items() if is_input[drop]}
        missing, changed = changed_inputs(inputs, self.directory, self.replayed.started)
        return OutsideInputs(
            missing, changed, frozenset(drop for drop in self.replaced & self.frozen.contents.keys() if is_input[drop])
        )


@dataclass(frozen=True)
class StoppedRun(StoppedSession):
    """A stopped session with all drops on this machine. The caller holds the lock of its directory.

    Attributes
    ----------
    graph : PhysicalGraph
        Its graph, with its placement.
    """

    graph: PhysicalGraph

    @classmethod
    def read(cls, directory: Path, *, ignore_damage: bool = False) -> Self:
        """Read the graph and the journal in a directory.

        Parameters
        ----------
        directory : Path
            The session directory, absolute.
        ignore_damage : bool
            Whether to use a journal that is damaged before its end, up to the damage.

        Raises
        ------
        NotFoundError
            There is no session in the directory.
        BadFileError
            The graph or the journal is damaged, or they do not belong together.
        """
        refuse_other_directory(directory)
        journal = directory / JOURNAL
        graph = load(directory / GRAPH_FILE)
        if is_blank(journal):
            nothing = ReplayedSession(Core(graph), JournalHeader(directory.name, digest(graph), 0.0))
            return cls(directory, whole_slice(graph), nothing, graph)
        header, _ = read(journal)
        if digest(graph) != header.graph:
            graph = _replaced_graph(directory, header)
        return cls(directory, whole_slice(graph), _replay(graph, journal, cut=ignore_damage), graph)

    @property
    def has_begun(self) -> bool:
        """Whether anything has run."""
        return self.replayed.core.status is not SessionState.PRISTINE

    @property
    def states(self) -> npt.NDArray[np.uint8]:
        """State of each drop at the end of the journal."""
        return np.frombuffer(self.replayed.core.drops.states, dtype=np.uint8)

    @property
    def causes(self) -> dict[int, int]:
        """The drop that started the error, by drop in ERROR; a drop that was cancelled alone has itself."""
        return self.replayed.core.drops.error_causes()

    def result(self) -> SessionResult:
        """Return how the session ended, from its journal."""
        core = self.replayed.core
        ended = (self.directory / JOURNAL).stat().st_mtime
        reused = taken_results(self.directory)
        result = SessionResult(
            session=self.directory.name,
            status=core.status,
            drops=self.graph.drops,
            states=totals(core.drops.counts),
            counts=snapshot(core, 0.0).drop_counts,
            seconds=max(0.0, ended - self.replayed.started),
            failures=tuple(cause_reports(self.graph, core, str(self.directory), self.replayed.failures)),
            directory=str(self.directory),
            infrastructure_faults=sum(
                not fault.failure.is_innocent for faults in self.replayed.faults.values() for fault in faults
            ),
            computed=applications_run(snapshot(core, 0.0)) - len(reused),
            reused=len(reused),
            saved=sum(taken.seconds for taken in reused.values()),
            incomplete=incomplete_results(self.graph, self.replayed.missing),
        )
        records = self.replayed.contents.items()
        there = {drop: content for drop, record in records if (content := record.in_directory(self.directory))}
        return with_results(result, self.graph, there)

    def stranded(self) -> Again | None:
        """Return the drops that had no workers because an engine ended, and the drops that failed because of them."""
        failures, causes = self.replayed.failures, self.causes
        not_started = {
            drop for drop in causes.values() if drop in failures and failures[drop].code == WorkerStartError.code
        }
        repeated = tuple(sorted(drop for drop, cause in causes.items() if cause in not_started))
        return Again(self.graph, repeated, tuple(sorted(not_started)), "there were no workers") if not_started else None

    def plan(self, again: Again) -> ContinuationPlan:
        """Return how the session continues. Reads the contents that it has committed.

        Parameters
        ----------
        again : Again
            The drops that run again although their state is known.

        Raises
        ------
        ConflictError
            See `dropflow.sessions.retry.Again.refuse`.
        """
        if not self.has_begun:
            return ContinuationPlan(None, ("nothing had run before: the session starts from its beginning",))
        graph, before = self.piece.graph, self.frozen
        is_repeated = np.zeros(graph.drops, dtype=np.bool_)
        is_repeated[list(again.repeated)] = True
        states = np.frombuffer(before.states, dtype=np.uint8).copy()
        states[is_repeated] = DropState.INITIALIZED
        parts = [(app, drop) for app, chosen in before.drops.skipped_outputs.items() for drop in chosen]
        reset = must_run_again(
            graph, states.tobytes(), self.available, kept=kept_drops(graph), parts=parts, replaced=self.replaced
        )
        if again.is_named:
            again.refuse(self.graph, self.states, reset, self.outside_inputs(), where=str(self.directory))
        restart = Restart(reset=reset, repeated=is_repeated, retried=again.retried, reason=again.reason)
        continuation = continuation_of(before, self.piece, restart)
        known = continuation.known
        gone = reset & (graph.kinds[graph.template] == np.uint8(Kind.DATA))
        is_input = np.diff(graph.predecessors.ptr) == 0
        lost = np.flatnonzero(gone & ~is_input).tolist()
        inputs = sorted(drop for drop in known.reset if is_input[drop])
        why = "run again as was asked for" if again.is_named else "tried again after a failure or a cancellation"
        cancelled = np.flatnonzero(self.states == DropState.CANCELLED).tolist() if again.retried else ()
        reasons = {
            why: len({*again.repeated, *cancelled}),
            f"run again because contents {_gone(lost, known.released)}": recomputed_drops(graph, known) - len(inputs),
            "read again as an input": len(inputs),
        }
        kept = sum(state > DropState.WRITING for state in known.states)
        contents = {
            "contents that were lost and are needed": [drop for drop in lost if drop not in known.released],
            "contents that were released and are needed again": [drop for drop in lost if drop in known.released],
            "inputs that are read again": inputs,
        }
        notes = self._notes(kept, reasons, contents, len(before.aborted))
        return ContinuationPlan(continuation, tuple(notes))

    def _notes(
        self, kept: int, reasons: Mapping[str, int], contents: Mapping[str, Sequence[int]], interrupted: int
    ) -> Iterator[str]:
        """Yield how many drops are kept, and how many run again, by reason."""
        parts = [f"{plural(kept, 'drop')} kept"]
        parts += [f"{plural(count, 'drop')} {reason}" for reason, count in reasons.items() if count]
        if interrupted:
            parts.append(f"{plural(interrupted, 'attempt')} that had not ended, or waited for a worker, begun again")
        yield f"continued: {', '.join(parts)}"
        for what, drops in contents.items():
            counts = Counter(self.graph.templates[self.graph.template[drop]].name for drop in drops)
            shown = [name if count == 1 else f"{name} ({count} drops)" for name, count in counts.items()]
            if shown:
                yield f"{what}: {few(shown, _SHOWN_CONTENTS)}"


def _gone(lost: Collection[int], released: Collection[int]) -> str:
    """Return, in words, why contents that are made again do not exist, in the plural."""
    by_design = sum(drop in released for drop in lost)
    if not by_design:
        return "are lost"
    return "were released" if by_design == len(lost) else "are lost or were released"


def _replaced_graph(directory: Path, header: JournalHeader) -> PhysicalGraph:
    """Return the graph of a journal if the process ended between the two renames with which a retry changes it."""
    saved, replaced = directory / GRAPH_FILE, directory / f"{GRAPH_FILE}.new"
    if replaced.exists():
        graph = load(replaced)
        if digest(graph) == header.graph:
            replaced.replace(saved)
            return graph
    raise BadFileError(
        "the graph is not that of the journal beside it: one of them was replaced",
        where=str(saved),
        hint=f"put the {GRAPH_FILE} of that run back, or run the graph again",
    )


def _replay(graph: PhysicalGraph, journal: Path, *, cut: bool) -> ReplayedSession:
    try:
        return replay(graph, journal, cut=cut)
    except BadFileError as error:
        raise BadFileError(
            error.text,
            where=error.where,
            hint="'dropflow resume --ignore-damage' continues from before the damage; later attempts run again",
        ) from error


# Whether a session directory has a run, so that it is not replaced by accident.


class _Summary(msgspec.Struct, frozen=True):
    """The field of ``summary.json`` that is read."""

    status: str = ""


def refuse_run(directory: Path) -> None:
    """Raise if something has run in a directory: its results are kept, unless the caller asks to replace them.

    Parameters
    ----------
    directory : Path
        Absolute path. The caller holds the lock of the directory.

    Raises
    ------
    ConflictError
        There is a run, which has ended or can be continued; or its journal cannot be read.
    """
    journal = directory / JOURNAL
    hint = f"'dropflow resume {directory}' continues it"
    try:
        if is_blank(journal):
            return
        status = ended_as(directory)
        stopped = None if status else StoppedRun.read(directory)
        if stopped is not None and not stopped.has_begun:
            return
        if stopped is None or stopped.is_over:
            what = f"the directory has the results of a run that {status or 'is over'}"
            hint = f"'dropflow retry {directory}' tries failed drops again" if status == "FAILED" else ""
        else:
            settled = stopped.graph.drops - stopped.replayed.core.drops.unsettled
            what = f"the directory has a run that is not finished: {settled} of {stopped.graph.drops} drops are settled"
    except DropflowError as error:
        what = f"the directory has a run that cannot be read: {error.text}"
    replace = "--overwrite (overwrite=True in Python) replaces it"
    other = f"{hint}; {replace}" if hint else f"name another directory; {replace}"
    raise ConflictError(what, where=str(directory), hint=other)


def ended_as(directory: Path) -> str:
    """Return the status in the summary of a run that has ended by itself; empty if drops have run since."""
    try:
        if (directory / SUMMARY).stat().st_mtime_ns < (directory / JOURNAL).stat().st_mtime_ns:
            return ""
        summary = msgspec.json.decode((directory / SUMMARY).read_bytes(), type=_Summary)
    except (OSError, ValueError):
        return ""
    return summary.status if summary.status in _ENDED else ""
