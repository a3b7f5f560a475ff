"""The times of a session, and its drops as they were at a moment, for pages."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dropflow.api import operations
from dropflow.api.contents_answer import Download
from dropflow.api.drop_queries import in_order, matching
from dropflow.api.drop_records import DropInfo, DropPage, DropQuery
from dropflow.api.requests import ALL_TIMES, DEFAULT_STATISTICS, DropStates, StatisticsQuery, TimesQuery
from dropflow.api.session_records import CauseMoment, MomentQuery, NodeMoment, SessionMoment
from dropflow.graph.drop_counts import DropCounts, add_counts, count_drops
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template
from dropflow.graph.text_ids import oids, row_of
from dropflow.states import UNKNOWN_STATE, DropState
from dropflow.times.attempts import AttemptColumns, attempts_of, check_rows, ended_by, last_attempts
from dropflow.times.moments import Moments, causes_at, failed_at, moments_of, size_at
from dropflow.times.octets import TimesSection, read_sections
from dropflow.times.statistics import TimesStatistics
from dropflow.times.timeline import Analysis, analyse, pack_analysis, profiles_of, statistics_of
from dropflow.times.traffic import traffic_of, uncounted_nodes

_Ints = npt.NDArray[np.int64]
_STATES = len(DropState)
_MOST_CAUSES = 1000
"""Root causes of failures at a moment, those with the most drops first."""


def drops_at(
    graph: PhysicalGraph, attempts: AttemptColumns, moments: Moments, query: DropQuery, missing: tuple[str, ...] = ()
) -> DropPage:
    """Return the drops that matched at the time of the query, with the sizes that attempts recorded.

    The node of a drop is that of its last attempt then, or the one that the graph names. Drops whose state is not known
    are left out.
    """
    states = moments.at(query.time)
    last = last_attempts(attempts, graph.drops, ready_by=query.time)
    nodes = (*attempts.nodes, *graph.places)
    has_run = last >= 0
    node = np.full(graph.drops, -1, np.int64) if not graph.places else graph.part.astype(np.int64) + len(attempts.nodes)
    node[has_run] = attempts.node[last[has_run]]
    number = np.ones(graph.drops, np.int64)
    number[has_run] = attempts.attempt[last[has_run]]
    runs = np.zeros(graph.drops, np.bool_)
    runs[has_run] = (attempts.began[last[has_run]] <= query.time) & (query.time < attempts.ended[last[has_run]])
    sizes = size_at(graph, attempts, query.time)
    is_known = states != UNKNOWN_STATE
    if query.node:
        is_known &= np.isin(node, [at for at, name in enumerate(nodes) if name == query.node])
    wanted = [query.row] if query.row >= 0 else []
    wanted += [-1 if (row := row_of(graph, query.oid)) is None else row] if query.oid else []
    for row in wanted:
        is_known &= np.arange(graph.drops) == row
    selected = matching(graph, np.flatnonzero(is_known).astype(np.int32), states, query)
    match query.sort.removeprefix("-"):
        case "state":
            values = states[selected].astype(np.int64)
        case "attempt":
            values = number[selected]
        case "node":
            values = np.unique(np.array([*nodes, ""], dtype=object), return_inverse=True)[1][node[selected]]
        case "size":
            values = sizes[selected]
        case _:
            values = np.zeros(len(selected), np.int64)
    selected = in_order(graph, selected, selected, values, query)
    shown = selected[query.offset : query.offset + query.limit]
    return DropPage(
        drops=tuple(
            _info(
                graph.templates[int(graph.template[row])],
                drop=row,
                oid=name,
                state=DropState(int(states[row])),
                node=(*nodes, "")[int(node[row])],
                attempt=int(number[row]),
                runs=bool(runs[row]),
                size=int(sizes[row]),
            )
            for row, name in zip(shown.tolist(), oids(graph, shown), strict=True)
        ),
        total=len(selected),
        offset=query.offset,
        limit=query.limit,
        missing=missing,
        held=int(np.count_nonzero(states != UNKNOWN_STATE)),
        whole=graph.drops,
    )


def _info(
    template: Template, *, drop: int, oid: str, state: DropState, node: str, attempt: int, runs: bool, size: int
) -> DropInfo:
    is_app = template.kind is Kind.APP
    return DropInfo(
        drop=drop,
        oid=oid,
        name=template.name,
        key=template.key,
        category=template.category,
        is_app=is_app,
        state=state.name,
        node=node,
        attempt=attempt,
        size=size if size >= 0 else None,
        is_running=runs if is_app and state is DropState.WRITING else None,
    )


# Makes the record of a moment of a session from the times of its attempts and its present states.


def session_moment(
    graph: PhysicalGraph, attempts: AttemptColumns, moments: Moments, query: MomentQuery, missing: tuple[str, ...] = ()
) -> SessionMoment:
    """Return a session as it was at a moment."""
    states = moments.at(query.time)
    counts = _counts(graph, attempts, states, query.time)
    total = add_counts(counts)
    return SessionMoment(
        time=query.time,
        began=moments.start,
        ended=moments.end,
        drops=graph.drops,
        settled=total.settled,
        running=total.running,
        queued=total.queued,
        counts=total,
        logical=tuple(
            NodeMoment(key=template.key, name=template.name, drops=count.total, counts=count)
            for template, count in zip(graph.templates, counts, strict=True)
        ),
        states=states.tobytes() if query.states else b"",
        missing=missing,
        causes=_causes(graph, attempts, moments, states, query.time),
    )


def _causes(
    graph: PhysicalGraph, attempts: AttemptColumns, moments: Moments, states: npt.NDArray[np.uint8], time: float
) -> tuple[CauseMoment, ...]:
    """Return the root causes, the most harmful first."""
    causes = causes_at(graph, attempts, moments, states, time)
    rows, counts = np.unique(causes[causes >= 0], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MOST_CAUSES]
    in_error = states == DropState.ERROR
    return tuple(
        CauseMoment(row=row, count=count, took_along=count - int(in_error[row]))
        for row, count in zip(rows[order].tolist(), counts[order].tolist(), strict=True)
    )


def _counts(
    graph: PhysicalGraph, attempts: AttemptColumns, states: npt.NDArray[np.uint8], time: float
) -> list[DropCounts]:
    """Return the numbers of drops of each logical node."""
    templates = len(graph.templates)
    known = states < _STATES
    table = np.bincount(graph.template[known].astype(np.int64) * _STATES + states[known], minlength=templates * _STATES)
    rows = graph.template[attempts.drop].astype(np.int64)
    is_open = states[attempts.drop] == DropState.WRITING
    runs = is_open & (attempts.began <= time) & (time < attempts.ended)
    waits = is_open & (attempts.ready <= time) & (time < attempts.began)
    own = failed_at(attempts, graph.drops, time)
    failed = np.bincount(graph.template[own & (states == DropState.ERROR)], minlength=templates)
    running, queued = (np.bincount(rows[which], minlength=templates) for which in (runs, waits))
    return [
        count_drops(
            {state.name: int(number) for state, number in zip(DropState, line, strict=True) if number},
            failed=int(failed[row]),
            running=int(running[row]),
            queued=int(queued[row]),
        )
        for row, line in enumerate(table.reshape(templates, _STATES))
    ]


# Answers about the times of attempts that any manager computes in the same way from the records of its nodes.


class _LastAnalysis(NamedTuple):
    """The analysis that was computed last: the session, when its first attempt was ready, and the attempts by node."""

    session: str
    start: float
    counts: tuple[tuple[str, int], ...]
    found: Analysis


class _LastMoments(NamedTuple):
    """The moments that were computed last: the analysis that they follow from, and the states of all drops."""

    analysis: Analysis
    cursor: str
    states: npt.NDArray[np.uint8]
    moments: Moments


class SessionTimes(ABC):
    """The operations of a manager that analyse the times of attempts. They may be called from any thread.

    What was computed last is kept: several viewers of one session ask for the same.
    """

    _last: _LastAnalysis | None = None
    _last_moments: _LastMoments | None = None
    _last_graph: tuple[str, float, PhysicalGraph] | None = None

    @abstractmethod
    def times(self, session: str, query: TimesQuery = ALL_TIMES) -> Download:
        """Return the times of attempts that have ended."""

    @abstractmethod
    def states(self, session: str, *, since: str = "") -> DropStates:
        """Return the states of all drops, or what has changed since an answer."""

    @abstractmethod
    def graph(self, session: str) -> PhysicalGraph:
        """Return the whole graph."""

    def times_analysis(self, session: str) -> Download:
        """Return what each attempt waited for, its slack, and the critical path."""
        data = pack_analysis(self._analyse(session, self._time_sections(session)))
        name = f"{session}.times"
        return Download(name=name, content_type=operations.TIMES_ANALYSIS.gives, size=len(data), chunks=iter([data]))

    def times_statistics(self, session: str, query: StatisticsQuery = DEFAULT_STATISTICS) -> TimesStatistics:
        """Return statistics of the attempts."""
        sections = self._time_sections(session)
        missing = _missing(sections)
        if not query.waits:
            attempts = attempts_of(sections)
            graph = self._graph_of(session, attempts)
            traffic = () if query.time else traffic_of(graph, sections)
            attempts = ended_by(attempts, query.time) if query.time else attempts
            return profiles_of(graph, attempts, missing=missing, traffic=traffic, uncounted=uncounted_nodes(sections))
        analysis = self._analyse(session, sections)
        if query.time:
            analysis = analyse(analysis.graph, ended_by(analysis.attempts, query.time))
            return statistics_of(analysis, most=query.slowest, most_steps=query.steps, missing=missing)
        traffic = traffic_of(analysis.graph, sections)
        uncounted = uncounted_nodes(sections)
        return statistics_of(
            analysis, most=query.slowest, most_steps=query.steps, missing=missing, traffic=traffic, uncounted=uncounted
        )

    def moment(self, session: str, query: MomentQuery) -> SessionMoment:
        """Return a session as it was at a moment."""
        analysis, moments, silent = self._moments(session)
        return session_moment(analysis.graph, analysis.attempts, moments, query, silent)

    def drops_at(self, session: str, query: DropQuery) -> DropPage:
        """Return a page of the drops of a session as they were at the time of the query."""
        analysis, moments, silent = self._moments(session)
        return drops_at(analysis.graph, analysis.attempts, moments, query, silent)

    def _moments(self, session: str) -> tuple[Analysis, Moments, tuple[str, ...]]:
        """Return the moments of a session, and the nodes that did not answer."""
        sections = self._time_sections(session)
        analysis = self._analyse(session, sections)
        known = self._last_moments
        if known is not None and known.analysis is not analysis:
            known = None
        answer = self.states(session, since=known.cursor if known else "")
        if known is None or len(answer.rows):
            states = known.states.copy() if known else np.full(analysis.graph.drops, UNKNOWN_STATE, np.uint8)
            is_row = answer.rows < len(states)
            states[answer.rows[is_row]] = answer.values[is_row]
            moments = moments_of(analysis.graph, analysis.attempts, states)
            known = self._last_moments = _LastMoments(analysis, answer.cursor, states, moments)
        return analysis, known.moments, tuple(sorted({*_missing(sections), *answer.missing}))

    def _time_sections(self, session: str) -> list[TimesSection]:
        """Return what all nodes have recorded."""
        return list(read_sections(self.times(session, ALL_TIMES).chunks, where=session))

    def _analyse(self, session: str, sections: list[TimesSection]) -> Analysis:
        """Return the analysis of a session."""
        attempts = attempts_of(sections)
        counts = tuple((section.node, len(section.records)) for section in sections)
        known = self._last
        # Without an attempt, it may be another session of the same name.
        is_same = bool(attempts) and known is not None and (known.session, known.start) == (session, attempts.start)
        if known is not None and is_same and known.counts == counts:
            return known.found
        analysis = analyse(self._graph_of(session, attempts), attempts)
        self._last = _LastAnalysis(session, attempts.start, counts, analysis)
        return analysis

    def _graph_of(self, session: str, attempts: AttemptColumns) -> PhysicalGraph:
        """Return the graph of a session with these attempts; the one that is known, if it is the same session."""
        known = self._last_graph
        if known is None or not len(attempts) or known[:2] != (session, attempts.start):
            known = self._last_graph = session, attempts.start, self.graph(session)
        check_rows(known[2], attempts, session)
        return known[2]


def _missing(sections: list[TimesSection]) -> tuple[str, ...]:
    """Return the nodes that did not answer."""
    return tuple(sorted(section.node for section in sections if section.missing))
