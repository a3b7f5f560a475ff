"""Answers about the times of attempts that any manager computes in the same way from the records of its nodes."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.rest import operations
from dropflow.rest.download import Download
from dropflow.rest.operation_records import ALL_TIMES, DEFAULT_STATISTICS, StatisticsQuery, TimesQuery
from dropflow.rest.session_moment import MomentQuery, SessionMoment
from dropflow.rest.session_records import DropPage, DropQuery
from dropflow.rest.state_records import DropStates
from dropflow.session_views.moment_drops import drops_at
from dropflow.session_views.moment_view import session_moment
from dropflow.states import UNKNOWN_STATE
from dropflow.times.analysis import Analysis, analyse, pack_analysis, profiles_of, statistics_of
from dropflow.times.attempts import AttemptColumns, attempts_of, check_rows, ended_by
from dropflow.times.moments import Moments, moments_of
from dropflow.times.octets import TimesSection, read_sections
from dropflow.times.statistics import TimesStatistics
from dropflow.times.traffic import traffic_of, uncounted_nodes

__all__ = ["SessionTimes"]


class _LastAnalysis(NamedTuple):
    """What was computed last: the session, when its first attempt was ready, and the number of attempts by node."""

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
    """The methods of `managers.api.Manager` that analyse the times of attempts. They may be called from any thread.

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
        found = self._analyse(session, sections)
        if query.time:
            found = analyse(found.graph, ended_by(found.attempts, query.time))
            return statistics_of(found, most=query.slowest, most_steps=query.steps, missing=missing)
        traffic = traffic_of(found.graph, sections)
        uncounted = uncounted_nodes(sections)
        return statistics_of(
            found, most=query.slowest, most_steps=query.steps, missing=missing, traffic=traffic, uncounted=uncounted
        )

    def moment(self, session: str, query: MomentQuery) -> SessionMoment:
        """Return a session as it was at a moment."""
        found, moments, silent = self._moments(session)
        return session_moment(found.graph, found.attempts, moments, query, silent)

    def drops_at(self, session: str, query: DropQuery) -> DropPage:
        """Return a page of the drops of a session as they were at the time of the query."""
        found, moments, silent = self._moments(session)
        return drops_at(found.graph, found.attempts, moments, query, silent)

    def _moments(self, session: str) -> tuple[Analysis, Moments, tuple[str, ...]]:
        """Return the moments of a session, and the nodes that did not answer."""
        sections = self._time_sections(session)
        found = self._analyse(session, sections)
        known = self._last_moments
        if known is not None and known.analysis is not found:
            known = None
        answer = self.states(session, since=known.cursor if known else "")
        if known is None or len(answer.rows):
            states = known.states.copy() if known else np.full(found.graph.drops, UNKNOWN_STATE, np.uint8)
            is_row = answer.rows < len(states)
            states[answer.rows[is_row]] = answer.values[is_row]
            moments = moments_of(found.graph, found.attempts, states)
            known = self._last_moments = _LastMoments(found, answer.cursor, states, moments)
        return found, known.moments, tuple(sorted({*_missing(sections), *answer.missing}))

    def _time_sections(self, session: str) -> list[TimesSection]:
        """Return what all nodes have recorded."""
        return list(read_sections(self.times(session, ALL_TIMES).chunks, where=session))

    def _analyse(self, session: str, sections: list[TimesSection]) -> Analysis:
        """Return the analysis of a session."""
        attempts = attempts_of(sections)
        counts = tuple((section.node, len(section.records)) for section in sections)
        known = self._last
        is_same = known is not None and (known.session, known.start) == (session, attempts.start)
        if known is not None and is_same and known.counts == counts:
            return known.found
        found = analyse(self._graph_of(session, attempts), attempts)
        self._last = _LastAnalysis(session, attempts.start, counts, found)
        return found

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
