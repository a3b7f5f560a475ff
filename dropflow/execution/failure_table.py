"""Why drops of a running session failed, which infrastructure faults they had, and which nodes it has lost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from dropflow.errors import DropflowError, OutOfMemoryError, WorkerDiedError
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.drop_rules import NextAttempt
from dropflow.execution.decisions.events import CancelDrop, Lost
from dropflow.execution.interfaces import Exchange
from dropflow.execution.statistics import FailureReport, RankedCauses, cause_reports, given_up, ranked_causes
from dropflow.failure import Failure
from dropflow.formatting import plural
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template
from dropflow.graph.text_ids import oid

_REPEATED = {WorkerDiedError.code: "ended its worker process", OutOfMemoryError.code: "had too little memory"}
"""How each attempt of a drop ended before the drop is given up, by the code of its last failure."""
_MOST_LOST_DROPS = 20
"""Drops that the report of a lost node names."""


# Infrastructure faults of drops, in words: for reports, for `dropflow explain`, and for the end of a session.


class Fault(msgspec.Struct, frozen=True):
    """An attempt that ended because its process failed, and why."""

    attempt: int
    failure: Failure


def culprit(template: Template, faults: Sequence[Fault]) -> Failure:
    """Return the failure of a drop of `template` that is given up after these faults: the last fault, and how often."""
    last = faults[-1].failure
    what = _REPEATED.get(last.code)
    count = sum(fault.failure.code == last.code for fault in faults)
    if what is None or count == 1:
        return last
    noun = "application" if template.kind is Kind.APP else "data drop"
    text = f"{noun} {template.name!r} {what} {count} times; the last time, {last.text}"
    return msgspec.structs.replace(last, text=text, detail="\n".join(fault_lines(faults)))


def fault_lines(faults: Iterable[Fault]) -> Iterator[str]:
    """Yield a line for each fault of a drop, oldest first."""
    for fault in faults:
        kind = "repeated, innocent" if fault.failure.is_innocent else "infrastructure fault"
        kind = "too little memory" if fault.failure.code == OutOfMemoryError.code else kind
        yield f"attempt {fault.attempt}: {kind}: {fault.failure.text}"


def fault_note(faults: Iterable[Fault]) -> str:
    """Return how many faults a session had, and how many results were lost with them; empty if there was none."""
    innocent = [fault.failure.is_innocent for fault in faults]
    if not innocent:
        return ""
    lost = sum(innocent)
    text = plural(len(innocent) - lost, "infrastructure fault")
    return f"{text}; {plural(lost, 'result')} lost with a process and computed again" if lost else text


class FailureTable:
    """The last failure of each drop, and the lost nodes. Used by the session's thread.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph that is executed.
    core : Core
        The core of the session.
    directory : str
        Directory of the session, where the logs of its drops are.
    exchange : Exchange or None
        The other nodes of the session.
    """

    def __init__(self, graph: PhysicalGraph, core: Core, directory: str, exchange: Exchange | None) -> None:
        self._graph = graph
        self._core = core
        self._directory = directory
        self._exchange = exchange
        self._failures: dict[int, Failure] = {}
        self._unrecorded: dict[int, Failure] = {}
        self.faults: dict[int, list[Fault]] = {}
        """The infrastructure faults of drops that live here; read-only for other objects."""
        self.lost: list[Lost] = []
        """Lost nodes, in the order of the losses; the first one ended the session."""

    def add(self, drop: int, failure: Failure) -> None:
        """Add the failure of a drop that lives here; its event contains the failure, too."""
        self._failures[drop] = failure

    def add_cancelled(self, event: CancelDrop) -> None:
        """Add why the drops of an event are root causes, for the journal too."""
        text = f"the drop was cancelled: {event.reason}" if event.reason else "the drop was cancelled"
        failure = Failure(code=DropflowError.code, kind="Cancelled", text=text)
        for drop in event.drops:
            if not self._core.drops.state(drop).is_terminal:
                self.add_remote(drop, failure)

    def add_fault(self, drop: int, attempt: int, failure: Failure) -> Failure:
        """Add an infrastructure fault of a drop; return why the attempt failed.

        This is `failure`. If the drop may have no more faults, it is one failure that lists all of them.
        """
        faults = self.faults.setdefault(drop, [])
        faults.append(Fault(attempt, failure))
        if self._core.next_attempt(drop, failure) is NextAttempt.NONE:
            failure = culprit(self._graph.templates[self._graph.template[drop]], faults)
        return failure

    @property
    def fault_count(self) -> int:
        """The number of infrastructure faults, without attempts that were innocent."""
        return sum(not fault.failure.is_innocent for faults in self.faults.values() for fault in faults)

    def fault_note(self) -> str:
        """Return how many infrastructure faults there were; empty if there was none."""
        return fault_note(fault for faults in self.faults.values() for fault in faults)

    def failures(self) -> dict[int, Failure]:
        """Return the last failure of each drop."""
        return dict(self._failures)

    def restore(self, failures: Mapping[int, Failure]) -> None:
        """Add failures from before the session continued; the journal records them again."""
        self._failures.update(failures)
        self._unrecorded.update(failures)

    def add_remote(self, drop: int, failure: Failure) -> None:
        """Add why a drop of another node counts as failed here. No event contains this, so the journal records it."""
        self._failures[drop] = self._unrecorded[drop] = failure

    def take_unrecorded(self) -> dict[int, Failure]:
        """Return the failures of remote drops since the last call, for the journal."""
        taken, self._unrecorded = self._unrecorded, {}
        return taken

    @property
    def lost_count(self) -> int:
        """The number of lost nodes. Their reports come first."""
        return len(self.lost)

    def causes(self) -> RankedCauses:
        """Return the drops that are root causes so far, without lost nodes."""
        return ranked_causes(self._core, None if self._exchange is None else self._exchange.rows.data)

    def reports(self, start: int = 0, stop: int | None = None) -> tuple[FailureReport, ...]:
        """Return the root causes so far, lost nodes first, then those that put the most drops in ERROR.

        Parameters
        ----------
        start, stop : int
            Range of the causes to return; by default all.
        """
        ranked, lost = self.causes(), self._lost_reports()
        part = slice(max(start - len(lost), 0), None if stop is None else max(stop - len(lost), 0))
        return (*lost[start:stop], *self._reports_of(RankedCauses(*(column[part] for column in ranked))))

    def reports_in(self, rows: Sequence[int]) -> tuple[FailureReport, ...]:
        """Return the root causes among drops, whose rows are those in the whole graph."""
        ranked = self.causes()
        is_wanted = np.isin(ranked.rows, np.array(rows, np.int64))
        return self._reports_of(RankedCauses(*(column[is_wanted] for column in ranked)))

    def _reports_of(self, ranked: RankedCauses) -> tuple[FailureReport, ...]:
        return tuple(cause_reports(self._graph, self._core, self._directory, self._failures, ranked=ranked))

    def _lost_reports(self) -> list[FailureReport]:
        # The first loss ended the session, so all drops that were not settled count for that one.
        counts = (given_up(self._core), *([0] * len(self.lost))) if self.lost else ()
        return [self._lost_report(drop, count) for drop, count in zip(self.lost, counts, strict=False)]

    def _lost_report(self, lost: Lost, count: int) -> FailureReport:
        there = () if self._exchange is None else self._exchange.on_node(lost.node)
        unsettled = [drop for drop in there if not self._core.drops.state(drop).is_terminal]
        return FailureReport(
            drop="",
            name=lost.node,
            code=lost.failure.code,
            kind=lost.failure.kind,
            text=lost.failure.text,
            hint=lost.failure.hint,
            count=count,
            drops=tuple(oid(self._graph, drop) for drop in unsettled[:_MOST_LOST_DROPS]),
        )
