"""Snapshots of a session: how many drops are in each state, and where attempts are."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.clock import Clock
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.core import Core
from dropflow.failure import Failure, RootCause
from dropflow.graph.drop_counts import NO_DROPS, DropCounts, IncompleteDrop, count_drops
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.ids import drop_file_name
from dropflow.states import DropState, SessionState

_NAMES = tuple(state.name for state in DropState)
_MOST_RESULTS = 100
"""Paths of results in a summary."""
_SECONDS_PER_NODE = 0.0006
"""Seconds between two publications for each logical node: to read it takes managers and clients a tenth of that."""


class NodeStatistics(msgspec.Struct, frozen=True):
    """The drops of one logical node: their number in each state (index: `DropState`).

    Of the drops in ERROR, `failed` are their own root cause. Of the drops in CANCELLED, `lost` were given up because a
    node was lost.
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
        """Return the counts of its drops; of the drops in WRITING, `running` run and `queued` wait for a worker."""
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
        Seconds since the session began.
    drops, settled : int
        All local drops, and those in a terminal state.
    attempts : Attempts
    rate : float
        Drops settled per second: since the session began, or, as a manager has it, recently.
    nodes : tuple of NodeStatistics
        By logical node, in the order of the graph's templates.
    time_left : str
        How much time is left, or why that is not known; empty if nothing is known.
    """

    status: SessionState
    seconds: float
    drops: int
    settled: int
    attempts: Attempts
    rate: float
    nodes: tuple[NodeStatistics, ...]
    time_left: str = ""

    @property
    def drop_counts(self) -> DropCounts:
        """The counts of its drops, as if no attempt ran."""
        return self.count()

    @property
    def states(self) -> dict[str, int]:
        """Number of drops by the name of their state, without zeros."""
        return by_name([sum(column) for column in zip(*(node.counts for node in self.nodes), strict=True)])

    def count(self, *, running: int = 0, queued: int = 0) -> DropCounts:
        """Return the counts of its drops; of the drops in WRITING, `running` run and `queued` wait for a worker."""
        failed, lost = sum(node.failed for node in self.nodes), sum(node.lost for node in self.nodes)
        return count_drops(self.states, failed=failed, lost=lost, running=running, queued=queued)


def snapshot(core: Core, seconds: float, attempts: Attempts = _NO_ATTEMPTS) -> Statistics:
    """Return the statistics of a core. Takes time per logical node, not per drop."""
    drops = core.graph.drops - len(core.drops.remote)
    settled = drops - core.drops.unsettled
    lost = _lost_by_template(core)
    return Statistics(
        status=core.status,
        seconds=seconds,
        drops=drops,
        settled=settled,
        attempts=attempts,
        rate=settled / seconds if seconds > 0 else 0.0,
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


def applications_run(statistics: Statistics) -> int:
    """Return how many applications have run to their end, or failed by themselves."""
    return sum(node.counts[DropState.COMPLETED] + node.failed for node in statistics.nodes if node.is_app)


def totals(counts: Sequence[Sequence[int]]) -> dict[str, int]:
    """Return the number of drops by the name of their state. COMPLETED, ERROR and SKIPPED are there even if 0."""
    sums = [sum(column) for column in zip(*counts, strict=True)] or [0] * len(DropState)
    always = (DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED)
    return {state.name: sums[state] for state in DropState if sums[state] or state in always}


def by_name(counts: Sequence[int]) -> dict[str, int]:
    """Return the number of drops by the name of their state, without zeros."""
    return {name: count for name, count in zip(_NAMES, counts, strict=True) if count}


class ErrorCauses(NamedTuple):
    """Root causes as columns: the drop that failed, and the local drops that are in ERROR because of it.

    Attributes
    ----------
    causes : array of int64
        Rows of drops; for causes on other nodes, the numbers from `dropflow.execution.decisions.events.foreign`.
    counts, took_along : array of int64
        Number of drops in ERROR because of each cause, and number of these drops without the cause itself.
    """

    causes: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    took_along: npt.NDArray[np.int64]


_NO_CAUSES = ErrorCauses(*(np.zeros(0, np.int64) for _ in ErrorCauses._fields))


def errors_by_cause(core: Core) -> ErrorCauses:
    """Return the number of local drops in ERROR by their root cause, and how many of them it took along.

    The numbers add up to the local drops in ERROR. The drops that are in ERROR because of a cause on another node are
    counted here, so the sums over all nodes of a session add up too. A drop that was cancelled alone is a cause too; it
    is not in ERROR itself.
    """
    table = core.drops
    if not table.causes and not table.cancelled:  # true for most sessions, and nodes report this several times a second
        return _NO_CAUSES
    drops = np.fromiter(table.causes, np.int64, len(table.causes))
    causes = np.fromiter(table.causes.values(), np.int64, len(table.causes))
    cancelled = np.fromiter(table.cancelled, np.int64, len(table.cancelled))
    states = np.frombuffer(bytes(table.states), np.uint8)
    is_error = (states[drops] == DropState.ERROR) & ~np.isin(drops, cancelled)
    drops, causes = np.append(drops[is_error], cancelled), np.append(causes[is_error], cancelled)
    remote = table.remote
    is_local = np.fromiter((drop not in remote for drop in drops.tolist()), bool, len(drops))
    drops, causes = drops[is_local], causes[is_local]
    distinct, places = np.unique(causes, return_inverse=True)
    in_error = states[drops] == DropState.ERROR
    counts = np.bincount(places[in_error], minlength=len(distinct))
    along = np.bincount(places[in_error & (drops != causes)], minlength=len(distinct))
    return ErrorCauses(distinct, counts, along)


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


# Reports of a session for people: the root causes of its failures, and its result.


class FailureReport(RootCause, frozen=True, kw_only=True):
    """A root cause in the report of its session; `log` is the path of the log of its drop.

    For a cause on another node, only the `row` and the `count` on this node are known; `text` is empty.
    """

    log: str = ""

    def _repr_html_(self) -> str:
        """Return the cause, the traceback and the end of the log, for notebooks."""
        from dropflow.graph.notebook import failure_html, log_end  # noqa: PLC0415 - only notebooks need it

        return failure_html(
            self.name,
            self.drop,
            code=self.code,
            text=self.text,
            hint=self.hint,
            detail=self.detail,
            inputs=self.inputs,
            count=self.count,
            log=log_end(self.log) if self.log else "",
        )


class SessionResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended.

    Attributes
    ----------
    states : dict
        Number of drops by the name of their state.
    counts : DropCounts
        Numbers of drops that failed, were taken along, were lost, and so on.
    failures : tuple of FailureReport
        Root causes; the causes that put the most drops in ERROR come first.
    notes : tuple of str
        Problems that are not failures of drops: a journal that could not be written, an instrument that was removed.
    infrastructure_faults : int
        Number of attempts that ended with their processes, and were repeated or given up.
    computed, reused : int
        Number of applications that have run, and of applications whose results were taken from earlier runs, see
        `dropflow.reuse`.
    saved : float
        Seconds that the reused applications took when they ran.
    incomplete : tuple of IncompleteDrop
        Results that lack some of their data, because failures were tolerated; in a run on this machine.
    results : tuple of str
        Paths or URLs of the first hundred final results, and of others that are outside of the directory; in a run on
        this machine.
    more_results : int
        How many further results are outside of the directory.
    """

    session: str
    status: SessionState
    drops: int
    states: dict[str, int]
    counts: DropCounts = NO_DROPS
    seconds: float
    failures: tuple[FailureReport, ...]
    directory: str
    notes: tuple[str, ...] = ()
    infrastructure_faults: int = 0
    computed: int = 0
    reused: int = 0
    saved: float = 0.0
    incomplete: tuple[IncompleteDrop, ...] = ()
    results: tuple[str, ...] = ()
    more_results: int = 0


def with_results(result: SessionResult, graph: PhysicalGraph, contents: Mapping[int, Handle]) -> SessionResult:
    """Return a result with where the results are: those of leaves first, then others outside, without inputs."""
    is_made, is_read = np.diff(graph.predecessors.ptr) > 0, np.diff(graph.successors.ptr) > 0
    here = f"{result.directory}/"
    found = sorted(
        (bool(is_read[drop]), content.location)
        for drop, content in contents.items()
        if content.kind in ("file", "directory", "url")
        and is_made[drop]
        and not (is_read[drop] and content.location.startswith(here))
    )
    return msgspec.structs.replace(
        result,
        results=tuple(location for _, location in found[:_MOST_RESULTS]),
        more_results=sum(not location.startswith(here) for _, location in found[_MOST_RESULTS:]),
    )


class RankedCauses(NamedTuple):
    """Root causes as columns; the causes with the most drops in ERROR come first.

    Attributes
    ----------
    rows : array of int64
        Rows in the whole graph. Causes with equal numbers are sorted by them, so that nodes that list only the first of
        many causes list the same ones.
    counts, took_along : array of int64
        As in `FailureReport`.
    causes : array of int64
        Rows of the drops here; negative for drops of other nodes.
    """

    rows: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    took_along: npt.NDArray[np.int64]
    causes: npt.NDArray[np.int64]


def ranked_causes(core: Core, rows: Sequence[int] | None = None) -> RankedCauses:
    """Return all root causes of drops in ERROR.

    Parameters
    ----------
    rows : sequence of int, optional
        Row in the whole graph of every drop, where the core has a slice of it.
    """
    causes, counts, along = errors_by_cause(core)
    if rows is None:
        whole = causes
    else:
        known = np.asarray(rows)
        # For a drop on another node, its number here is made from its row
        # (`dropflow.execution.decisions.events.foreign`).
        whole = np.where(causes < 0, -causes - 2, known[np.maximum(causes, 0)]) if len(known) else -causes - 2
    order = np.lexsort((whole, -counts))
    return RankedCauses(whole[order], counts[order], along[order], causes[order])


def cause_reports(
    graph: PhysicalGraph,
    core: Core,
    directory: str,
    failures: Mapping[int, Failure],
    *,
    rows: Sequence[int] | None = None,
    ranked: RankedCauses | None = None,
) -> list[FailureReport]:
    """Return the reports of root causes of drops in ERROR; the causes with the most such drops come first.

    Parameters
    ----------
    directory : str
        Directory of the session.
    failures : mapping of int to Failure
        The last failure of each drop, if it is known here.
    rows : sequence of int, optional
        Row in the whole graph of every drop, where `graph` is a slice of it.
    ranked : RankedCauses, optional
        The causes that are reported; by default all.
    """
    chosen = ranked_causes(core, rows) if ranked is None else ranked
    columns = (column.tolist() for column in chosen)
    return [
        _cause_report(graph, core, directory, cause, failures.get(cause), counts=(count, along), row=row)
        for row, count, along, cause in zip(*columns, strict=True)
    ]


def _cause_report(
    graph: PhysicalGraph,
    core: Core,
    directory: str,
    cause: int,
    failure: Failure | None,
    *,
    counts: tuple[int, int],
    row: int,
) -> FailureReport:
    count, along = counts
    if cause < 0:
        return FailureReport(drop="", name="", code="", kind="", text="", count=count, took_along=along, row=row)
    name, node = oid(graph, cause), graph.templates[graph.template[cause]]
    if failure is None:
        return FailureReport(
            drop=name, name=node.name, code="", kind="", text="", count=count, took_along=along, row=row
        )
    log = Path(directory, "logs", f"{drop_file_name(name)}.log")
    return FailureReport(
        drop=name,
        name=node.name,
        code=failure.code,
        kind=failure.kind,
        text=failure.text,
        hint=failure.hint,
        detail=failure.detail,
        inputs=failure.inputs,
        count=count,
        took_along=along,
        attempts=core.drops.attempt(cause),
        log=str(log) if os.path.exists(log) else "",  # noqa: PTH110 - Path raises if it may not look there
        row=row,
    )


# Statistics of a running session, at most five times a second, and less often for graphs with many logical nodes.

_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.2, 1.0


class StatisticsPublisher:
    """Calls back with fresh statistics after a change, and again after the last one. Used by the session's thread.

    Parameters
    ----------
    clock : Clock
        Measures the interval.
    publish : callable
        Takes the statistics.
    nodes : int
        Number of the logical nodes of the graph.
    """

    def __init__(self, clock: Clock, publish: Callable[[Statistics], None], nodes: int) -> None:
        self._clock = clock
        self._interval = min(max(_SHORTEST_SECONDS, nodes * _SECONDS_PER_NODE), _LONGEST_SECONDS)
        self._publish = publish
        self._published = -math.inf
        self._has_changed = False

    @property
    def deadline(self) -> float:
        """Monotonic time of the next delayed call; inf if no change waits to be published."""
        return self._published + self._interval if self._has_changed else math.inf

    def note_change(self) -> None:
        """Request that the statistics are published again soon."""
        self._has_changed = True

    def update(self, core: Core, began: float, attempts: Callable[[], Attempts], *, is_last: bool = False) -> None:
        """Publish statistics, unless the last publication is less than an interval ago; always publish the last ones.

        Parameters
        ----------
        core : Core
            The core of the session.
        began : float
            Monotonic time at which the session began.
        attempts : callable
            Returns the attempts by where they are.
        is_last : bool
            Whether the session is over.
        """
        now = self._clock.monotonic()
        self._has_changed = not is_last and now < self._published + self._interval
        if not self._has_changed:
            self._published = now
            self._publish(snapshot(core, now - began, attempts()))
