"""A session on this machine whose process has ended: what is left of it, and how it goes on.

Used by ``dropflow resume`` and ``dropflow retry``. How a session continues is described in
``docs/adr/0011-a-session-continues-from-known-states.md``.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.data.survival import changed_inputs, replaced_contents, surviving_contents
from dropflow.engine.content_table import Continuation, kept_drops
from dropflow.engine.journal import JournalHeader, ReplayedSession, is_blank, read, replay
from dropflow.engine.recovery import has_attempts, known_states, must_run_again
from dropflow.engine.statistics import SessionResult, cause_reports, snapshot, totals
from dropflow.errors import BadFileError, ConflictError, DropflowError, NotFoundError, WorkerStartError
from dropflow.formatting import plural
from dropflow.graph.codec import digest, load
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.sessions.again import OutsideInputs, RepeatedDrops, refuse_mixed_results
from dropflow.states import DropState, SessionState

__all__ = [
    "ContinuationPlan",
    "StoppedSession",
    "refuse_run",
]


_SHOWN = 5


@dataclass(frozen=True)
class ContinuationPlan:
    """How a session continues.

    Attributes
    ----------
    continuation : Continuation or None
        None to start from the beginning, if nothing has run.
    notes : tuple of str
        How many drops are kept and how many run again, for the summary.
    """

    continuation: Continuation | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class StoppedSession:
    """What a process has left in a session directory. The caller holds the lock of the directory.

    Attributes
    ----------
    directory : Path
        The session directory, absolute.
    graph : PhysicalGraph
        Its graph.
    replayed : ReplayedSession or None
        Its state at the end of its journal; None if nothing has run.
    """

    directory: Path
    graph: PhysicalGraph
    replayed: ReplayedSession | None

    @classmethod
    def read(cls, directory: Path, *, ignore_damage: bool = False) -> Self:
        """Read the graph and the journal in a directory.

        Parameters
        ----------
        directory : Path
            The session directory, absolute.
        ignore_damage : bool
            Take a journal that is damaged before its end up to the damage.

        Raises
        ------
        NotFoundError
            There is no session in the directory.
        BadFileError
            The graph or the journal is damaged, or they do not belong together.
        """
        saved, journal = directory / "graph.dfg", directory / "journal.dfj"
        if not saved.exists():
            raise NotFoundError(
                "there is no session in this directory",
                where=str(directory),
                hint="give the directory of a run: the argument of --keep, or one below dropflow-runs",
            )
        graph = load(saved)
        if is_blank(journal):
            return cls(directory, graph, None)
        header, _ = read(journal)
        if digest(graph) != header.graph:
            graph = _replaced_graph(directory, header)
        return cls(directory, graph, _replay(graph, journal, cut=ignore_damage))

    @property
    def is_over(self) -> bool:
        """Whether the session has ended by itself. One that was cancelled can go on."""
        return self.replayed is not None and self.replayed.core.status in (SessionState.FINISHED, SessionState.FAILED)

    @property
    def reason(self) -> str:
        """Why the session is not over, in words for an explanation."""
        cancelled = (SessionState.CANCELLING, SessionState.CANCELLED)
        was_cancelled = self.replayed is not None and self.replayed.core.status in cancelled
        if self.replayed is not None and self.replayed.core.status is SessionState.PAUSED:
            return "the run was stopped at its walltime"
        return "the run was cancelled" if was_cancelled else "the process of the run ended"

    def result(self) -> SessionResult:
        """Return how the session ended, from its journal."""
        assert self.replayed is not None  # noqa: S101 - is_over
        core = self.replayed.core
        ended = (self.directory / "journal.dfj").stat().st_mtime
        return SessionResult(
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
        )

    def plan(
        self,
        *,
        repeated: Collection[int] = (),
        failed: Collection[int] = (),
        again: RepeatedDrops | None = None,
        reason: str,
    ) -> ContinuationPlan:
        """Return how the session continues. Reads the contents that it has committed.

        Parameters
        ----------
        repeated : collection of int
            Drops that have to settle again though their outcome is known.
        failed : collection of int
            Those of them whose own attempts failed.
        again : RepeatedDrops or None
            Drops that run again because a user wants that, whatever their outcome was.
        reason : str
            Why the session continues, for explanations.

        Raises
        ------
        ConflictError
            Drops cannot run `again`, see `dropflow.sessions.again.refuse_mixed_results`.
        """
        if self.replayed is None:
            return ContinuationPlan(None, ("nothing had run before: the session starts from its beginning",))
        graph, drops, replayed = self.graph, self.replayed.core.drops, self.replayed
        states = bytearray(drops.states)
        for drop in (*repeated, *(() if again is None else again.drops)):
            states[drop] = DropState.INITIALIZED
        surviving = surviving_contents(replayed.contents, self.directory)
        contents = {drop: content for drop, content in surviving.items() if states[drop] == DropState.COMPLETED}
        available = np.zeros(graph.drops, dtype=np.bool_)
        available[list(contents)] = True
        available |= self._without_content()
        replaced = replaced_contents(replayed.contents)
        parts = [(app, drop) for app, chosen in replayed.skipped.items() for drop in chosen]
        reset = must_run_again(graph, states, available, kept=kept_drops(graph), parts=parts, replaced=replaced)
        if again is not None:
            before = np.frombuffer(bytes(drops.states), dtype=np.uint8)
            inputs = self._outside_inputs(replaced & surviving.keys())
            refuse_mixed_results(graph, before, again.drops, reset, inputs, where=str(self.directory))
        known = known_states(
            graph,
            drops,
            states,
            reset,
            available,
            interrupted=replayed.interrupted,
            failed=failed if again is None else again.begun,
            skipped=replayed.skipped,
            reason=reason,
        )
        gone = {*known.reset, *known.lost}
        earlier = set() if replayed.known is None else {*replayed.known.released} - {*replayed.known.reset}
        known = msgspec.structs.replace(known, released=tuple(sorted(gone & (replayed.released | earlier))))
        failures = {drop: replayed.failures[drop] for drop in set(known.causes.values()) if drop in replayed.failures}
        recomputed = np.flatnonzero(reset & has_attempts(graph)).tolist()
        lost = np.flatnonzero(reset & (graph.kinds[graph.template] == np.uint8(Kind.DATA))).tolist()
        kept = sum(state > DropState.WRITING for state in known.states)
        remaining = {drop: content for drop, content in contents.items() if not reset[drop]}
        is_written = np.diff(graph.predecessors.ptr) > 0
        named = () if again is None else again.drops
        outdated = tuple(surviving[drop] for drop in named if drop in surviving and is_written[drop])
        reasons = {
            "tried again after a failure or a cancellation": len(repeated),
            "run again as was asked for": len(named),
            f"run again because contents {_gone(lost, known.released)}": len(recomputed),
        }
        return ContinuationPlan(
            Continuation(known, remaining, failures, outdated=outdated),
            tuple(self._notes(kept, reasons, lost, known.released, len(set(replayed.interrupted)))),
        )

    def stranded(self) -> list[int]:
        """Return the root causes that had no workers to run on: those of an engine that ended during the session."""
        if self.replayed is None:
            return []
        failures = self.replayed.failures
        causes = set(self.replayed.core.drops.error_causes().values())
        return sorted(one for one in causes if one in failures and failures[one].code == WorkerStartError.code)

    def drops_of(self, causes: Collection[int]) -> list[int]:
        """Return the drops that must settle again if these causes do: in ERROR because of them, or cancelled."""
        assert self.replayed is not None  # noqa: S101 - there are failed drops
        table = self.replayed.core.drops
        again = {drop for drop, cause in table.error_causes().items() if cause in set(causes)}
        cancelled = np.flatnonzero(np.frombuffer(bytes(table.states), dtype=np.uint8) == DropState.CANCELLED).tolist()
        return sorted(again.union(cancelled))

    def _outside_inputs(self, replaced: Collection[int]) -> OutsideInputs:
        """Return which contents that existed before the session are not as they were."""
        assert self.replayed is not None  # noqa: S101 - plan
        is_written = np.diff(self.graph.predecessors.ptr) > 0
        inputs = {drop: record for drop, record in self.replayed.contents.items() if not is_written[drop]}
        missing, changed = changed_inputs(inputs, self.directory, self.replayed.started)
        return OutsideInputs(missing, changed, frozenset(drop for drop in replaced if not is_written[drop]))

    def _without_content(self) -> npt.NDArray[np.bool_]:
        """Return the drops that never had a content, because nothing was written to them."""
        assert self.replayed is not None  # noqa: S101 - plan
        found = np.ones(self.graph.drops, dtype=np.bool_)
        found[list(self.replayed.contents)] = False
        if self.replayed.known is not None:
            found[list(self.replayed.known.lost)] = False
        return found

    def _notes(
        self, kept: int, reasons: Mapping[str, int], lost: Sequence[int], released: Collection[int], interrupted: int
    ) -> Iterator[str]:
        """Yield how many drops are kept, and how many run again for which reason."""
        parts = [f"{plural(kept, 'drop')} kept"]
        parts += [f"{plural(count, 'drop')} {reason}" for reason, count in reasons.items() if count]
        if interrupted:
            parts.append(f"{plural(interrupted, 'attempt')} that had not ended, or waited for a worker, begun again")
        yield f"continued: {', '.join(parts)}"
        for word, drops in (
            ("lost and are needed", [drop for drop in lost if drop not in released]),
            ("released and are needed again", [drop for drop in lost if drop in released]),
        ):
            counts = Counter(self.graph.templates[self.graph.template[drop]].name for drop in drops)
            shown = [name if count == 1 else f"{name} ({count} drops)" for name, count in counts.items()]
            more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
            if shown:
                yield f"contents that were {word}: {', '.join(shown[:_SHOWN])}{more}"


def _gone(lost: Collection[int], released: Collection[int]) -> str:
    """Return how the contents that are made again went, in the plural."""
    by_design = sum(drop in released for drop in lost)
    if not by_design:
        return "are lost"
    return "were released" if by_design == len(lost) else "are lost or were released"


def _replaced_graph(directory: Path, header: JournalHeader) -> PhysicalGraph:
    """Return the graph of a journal if the process ended between the two renames with which a retry changes it."""
    saved, replaced = directory / "graph.dfg", directory / "graph.dfg.new"
    if replaced.exists():
        graph = load(replaced)
        if digest(graph) == header.graph:
            replaced.replace(saved)
            return graph
    raise BadFileError(
        "the graph is not that of the journal beside it: one of them was replaced",
        where=str(saved),
        hint="put the graph.dfg of that run back, or run the graph again",
    )


def _replay(graph: PhysicalGraph, journal: Path, *, cut: bool) -> ReplayedSession:
    try:
        return replay(graph, journal, cut=cut)
    except BadFileError as error:
        raise BadFileError(
            error.text,
            where=error.where,
            hint="'dropflow resume --ignore-damage' continues from before the damage; what came later runs again",
        ) from error


# Whether a session directory has a run, so that it is not replaced by accident.

_ENDED = (SessionState.FINISHED.name, SessionState.FAILED.name)


class _Summary(msgspec.Struct, frozen=True):
    """The field of ``summary.json`` that is read."""

    status: str = ""


def refuse_run(directory: Path) -> None:
    """Raise if something has run in a directory: its results are kept unless the caller wants to replace them.

    Parameters
    ----------
    directory : Path
        Absolute. The caller holds its lock.

    Raises
    ------
    ConflictError
        There is a run, which has ended or can be continued; or its journal cannot be read.
    """
    journal = directory / "journal.dfj"
    hint = f"'dropflow resume {directory}' continues it"
    try:
        if is_blank(journal):
            return
        status = _ended_as(directory)
        stopped = None if status else StoppedSession.read(directory)
        if stopped is None or stopped.is_over:
            what = f"the directory has the results of a run that {status or 'is over'}"
            hint = f"'dropflow retry {directory}' tries failed drops again" if status == "FAILED" else ""
        else:
            settled = 0 if stopped.replayed is None else stopped.graph.drops - stopped.replayed.core.drops.unsettled
            what = f"the directory has a run that is not finished: {settled} of {stopped.graph.drops} drops are settled"
    except DropflowError as error:
        what = f"the directory has a run that cannot be read: {error.text}"
    replace = "--overwrite (overwrite=True in Python) replaces it"
    other = f"{hint}; {replace}" if hint else f"name another directory; {replace}"
    raise ConflictError(what, where=str(directory), hint=other)


def _ended_as(directory: Path) -> str:
    """Return the status that the summary has of a run that has ended by itself; empty if something has run since."""
    try:
        if (directory / "summary.json").stat().st_mtime_ns < (directory / "journal.dfj").stat().st_mtime_ns:
            return ""
        summary = msgspec.json.decode((directory / "summary.json").read_bytes(), type=_Summary)
    except (OSError, ValueError):
        return ""
    return summary.status if summary.status in _ENDED else ""
