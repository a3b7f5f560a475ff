"""The report of a session of a manager, from what any manager or client answers."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.rest.download import Download
from dropflow.rest.manager_records import ManagerInfo, NodeInfo
from dropflow.rest.operation_records import (
    ALL_TIMES,
    EVERY_RESULT,
    FIRST_FAILURES,
    FailureList,
    FailureQuery,
    ResultList,
    ResultsQuery,
    TimesQuery,
)
from dropflow.rest.session_records import SessionDetail
from dropflow.rest.state_records import DropStates, plain_states
from dropflow.session_views.report import SessionReport
from dropflow.states import UNKNOWN_STATE
from dropflow.times.analysis import analyse
from dropflow.times.attempts import attempts_of, check_rows
from dropflow.times.octets import read_sections
from dropflow.times.traffic import traffic_of, uncounted_nodes

__all__ = ["ReportSource", "session_report"]

_CAUSES = FailureQuery(limit=1000)


class ReportSource(Protocol):
    """The operations of a manager or a client that a report needs."""

    def info(self) -> ManagerInfo:
        """Return the record of the manager."""
        ...

    def nodes(self) -> Sequence[NodeInfo]:
        """Return all node managers."""
        ...

    def session(self, session: str) -> SessionDetail:
        """Return one session."""
        ...

    def failures(self, session: str, query: FailureQuery = FIRST_FAILURES) -> FailureList:
        """Return a page of the root causes."""
        ...

    def times(self, session: str, query: TimesQuery = ALL_TIMES) -> Download:
        """Return the times of attempts."""
        ...

    def graph(self, session: str) -> PhysicalGraph:
        """Return the whole graph."""
        ...

    def results(self, session: str, query: ResultsQuery = EVERY_RESULT) -> ResultList:
        """Return the results of a session."""
        ...

    def states(self, session: str, *, since: str = "") -> DropStates:
        """Return the states of all drops."""
        ...


def session_report(
    source: ReportSource, session: str, *, has_results: bool = False, has_states: bool = False
) -> SessionReport:
    """Return the report of a session as it is now.

    Parameters
    ----------
    source : ReportSource
        A manager, or a client of one.
    session : str
        Its name.
    has_results : bool
        Whether results are read, too, which comparisons and origins need.
    has_states : bool
        Whether states of drops are read, too, which origins need.

    Raises
    ------
    NotFoundError
        There is no such session.
    ProtocolError
        The times are of another graph.
    """
    info, detail = source.info(), source.session(session)
    sections = list(read_sections(source.times(session).chunks, where=session))
    graph, attempts = source.graph(session), attempts_of(sections)
    check_rows(graph, attempts, session)
    nodes = [(f"node {node.name}", node.version) for node in source.nodes() if node.name in detail.nodes]
    return SessionReport(
        detail=detail,
        failures=source.failures(session, _CAUSES).failures,
        analysis=analyse(graph, attempts),
        written=info.time,
        versions=[(f"{info.role} {info.name}", info.version), *nodes[:100]],
        missing=tuple(sorted(section.node for section in sections if section.missing)),
        traffic=traffic_of(graph, sections),
        uncounted=uncounted_nodes(sections),
        results=source.results(session) if has_results else ResultList(results=()),
        states=_states_of(source.states(session), graph.drops) if has_states else None,
    )


def _states_of(found: DropStates, drops: int) -> npt.NDArray[np.uint8]:
    """Return the state of each drop; 255 for those of nodes that did not answer."""
    signs = np.full(drops, UNKNOWN_STATE, np.uint8)
    signs[found.rows] = found.signs
    return plain_states(signs)
