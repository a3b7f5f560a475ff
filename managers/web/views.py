"""The content of each page as a record, which is rendered as HTML and, for its ``.json`` twin, as JSON.

If the subject of a page is missing, its error is the answer. If anything else on the page is missing, because a node
does not answer, the page lists it under `warnings` and shows the rest.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from dropflow.errors import DropflowError, NotFoundError, PreviewError
from dropflow.preview.records import Preview, PreviewQuery
from dropflow.rest.manager_records import Child, ManagerInfo, NodeInfo
from dropflow.rest.node_history import NodeHistory
from dropflow.rest.operation_records import FailureList, FailureQuery, ResultList, ResultsQuery, StatisticsQuery
from dropflow.rest.session_records import (
    DropDetail,
    DropPage,
    DropQuery,
    Neighbour,
    PageQuery,
    ResultInfo,
    SessionDetail,
    SessionInfo,
)
from dropflow.states import DropState, SessionState
from dropflow.times.statistics import NO_TIMES, TimesStatistics
from managers.api import Manager
from managers.web.earlier_moment import as_it_was
from managers.web.preview import LogTail, tail_of

__all__ = [
    "FIRST_DROP_PAGE",
    "CausesView",
    "DropPageQuery",
    "DropView",
    "NodeQuery",
    "NodeView",
    "NodesView",
    "OverviewView",
    "SessionQuery",
    "SessionView",
    "SessionsView",
    "TimelineView",
    "causes_view",
    "drop_view",
    "node_view",
    "nodes_view",
    "overview_view",
    "session_start",
    "session_view",
    "sessions_view",
    "timeline_view",
]

_T = TypeVar("_T")
_YOUNGEST = 10
_FIRST_RESULTS = 100
_FIRST_INPUTS = 5
"""Inputs of a failed drop whose size is asked of their nodes."""
_UNSETTLED = (DropState.INITIALIZED, DropState.WRITING, DropState.CANCELLED)
"""States of drops that run when a session that is over is resumed."""


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters on sessions: their status, and a text in their name or in the name of their graph; and their order.

    `sort` is a column of the page; with a minus in front in descending order. By default the youngest come first.
    """

    status: Annotated[str, Meta(max_length=20)] = ""
    text: Annotated[str, Meta(max_length=200)] = ""
    sort: Annotated[str, Meta(pattern="^$|^-?(session|status|progress|rate|time|begun)$")] = ""
    offset: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class DropPageQuery(PreviewQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the content of a drop is shown, and which of its neighbours its page lists (`PageQuery`)."""

    offset: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100

    @property
    def look(self) -> PreviewQuery:
        """How the content is shown."""
        return msgspec.convert(self, PreviewQuery, from_attributes=True)


FIRST_DROP_PAGE = DropPageQuery()


class NodeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters on nodes: their state, and a text in their name, host or island; and their order, as of sessions."""

    text: Annotated[str, Meta(max_length=200)] = ""
    state: Annotated[str, Meta(max_length=20)] = ""
    sort: Annotated[str, Meta(pattern="^$|^-?(name|state|sessions|processor|memory|disk|attempts)$")] = ""


_SESSION_ORDERS: dict[str, Callable[[SessionInfo], str | float]] = {
    "session": lambda one: one.session.casefold(),
    "status": lambda one: one.status,
    "progress": lambda one: one.settled / max(one.drops, 1),
    "rate": lambda one: one.rate,
    "time": lambda one: one.seconds,
    "begun": lambda one: one.created,
}
_NODE_ORDERS: dict[str, Callable[[NodeInfo], str | float]] = {
    "name": lambda one: one.name.casefold(),
    "state": lambda one: one.state,
    "sessions": lambda one: one.sessions,
    "processor": lambda one: one.load.processor,
    "memory": lambda one: 1 - one.load.memory_free / max(one.load.memory, 1),
    "disk": lambda one: 1 - one.load.disk_free / max(one.load.disk, 1),
    "attempts": lambda one: one.load.busy,
}


class OverviewView(msgspec.Struct, frozen=True, kw_only=True):
    """The manager, its children and nodes, and its youngest sessions."""

    manager: ManagerInfo
    children: tuple[Child, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    sessions: tuple[SessionInfo, ...] = ()
    total: int = 0
    running: int = 0
    warnings: tuple[str, ...] = ()


class NodesView(msgspec.Struct, frozen=True, kw_only=True):
    """The node managers that match."""

    manager: ManagerInfo
    nodes: tuple[NodeInfo, ...]
    query: NodeQuery


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One node manager, and its load during the last hour."""

    manager: ManagerInfo
    node: NodeInfo
    history: NodeHistory
    warnings: tuple[str, ...] = ()


class SessionsView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the sessions that match, and the number of all that match."""

    manager: ManagerInfo
    sessions: tuple[SessionInfo, ...]
    total: int
    query: SessionQuery


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """One session with a page of its drops, and the first of its results; the number and bytes are of all results.

    With the time of the query, all but its status, notes and actions is as it was then.
    """

    manager: ManagerInfo
    session: SessionDetail
    drops: DropPage
    query: DropQuery
    results: tuple[ResultInfo, ...] = ()
    result_count: int = 0
    result_size: int = 0
    times: TimesStatistics = NO_TIMES
    warnings: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the session has ended."""
        return self.session.is_over

    @property
    def actions(self) -> tuple[tuple[str, str, str], ...]:
        """What can be done with the session: name, word, and why it is not possible now; empty if it is."""
        is_paused, over = self.session.status == SessionState.PAUSED.name, "The session is over."
        ended = over if self.is_over else ""
        pause = ("continue", "Continue") if is_paused and not self.is_over else ("pause", "Pause")
        return (
            ("resume", "Resume", self.no_resume),
            ("retry", "Try again", self.no_retry),
            ("clone", "Clone", ""),
            (*pause, ended),
            ("cancel", "Cancel", ended),
            ("delete", "Delete", ""),
        )

    @property
    def no_resume(self) -> str:
        """Why the session cannot be resumed; empty if it can."""
        if not self.is_over:
            return "The session is not over: what is left of it runs."
        return "" if any(self._count(state) for state in _UNSETTLED) else "Nothing is left to run."

    @property
    def no_retry(self) -> str:
        """Why failed drops cannot be tried again; empty if they can."""
        return "" if self._count(DropState.ERROR) else "No drop failed."

    def _count(self, state: DropState) -> int:
        return self.session.states.get(state.name, 0)


class TimelineView(msgspec.Struct, frozen=True, kw_only=True):
    """When the attempts of a session ran."""

    manager: ManagerInfo
    session: SessionDetail
    times: TimesStatistics
    warnings: tuple[str, ...] = ()


class CausesView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the root causes of a session."""

    manager: ManagerInfo
    session: SessionDetail
    causes: FailureList
    warnings: tuple[str, ...] = ()


class DropView(msgspec.Struct, frozen=True, kw_only=True):
    """One drop, with the end of its log and the beginning of its content."""

    manager: ManagerInfo
    session: SessionInfo
    drop: DropDetail
    query: DropPageQuery
    log: LogTail | None = None
    data: Preview | None = None
    warnings: tuple[str, ...] = ()

    @property
    def no_run_again(self) -> str:
        """Why the session cannot be run again from the drop; empty if it can."""
        if not self.session.is_over:
            return "The session is not over."
        if self.drop.state == DropState.COMPLETED.name:
            return ""
        if self.drop.state == DropState.ERROR.name:
            is_cause = self.drop.failure is not None and self.drop.failure.drop == self.drop.oid
            return "" if is_cause else "It failed because of another drop: run that one again."
        if self.drop.state == DropState.SKIPPED.name:
            return "It was skipped: run a drop again that it depends on."
        return "It has not run: resume the session."


class _OptionalParts:
    """Reads what may be missing, and collects the errors as warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def read(self, source: Callable[[], _T], default: _T) -> _T:
        try:
            return source()
        except DropflowError as error:
            self.warnings.append(str(error))
            return default


def overview_view(manager: Manager) -> OverviewView:
    """Return the first page of a manager."""
    info, optional = manager.info(), _OptionalParts()
    children: tuple[Child, ...] = ()
    if info.role in ("island", "master"):
        children = optional.read(manager.children, ())
    nodes: tuple[NodeInfo, ...] = optional.read(manager.nodes, ())
    sessions: tuple[SessionInfo, ...] = optional.read(manager.sessions, ())
    return OverviewView(
        manager=info,
        children=children,
        nodes=nodes,
        sessions=sessions[:_YOUNGEST],
        total=len(sessions),
        running=sum(not session.is_over for session in sessions),
        warnings=tuple(optional.warnings),
    )


def nodes_view(manager: Manager, query: NodeQuery) -> NodesView:
    """Return the node managers that match `query`, with their load."""
    text = query.text.casefold()
    found = [
        node
        for node in manager.nodes()
        if query.state in ("", node.state)
        and any(text in one.casefold() for one in (node.name, node.host, node.island))
    ]
    return NodesView(manager=manager.info(), nodes=_in_order(found, query.sort, _NODE_ORDERS), query=query)


def _in_order(rows: list[_T], sort: str, orders: Mapping[str, Callable[[_T], str | float]]) -> tuple[_T, ...]:
    if sort:
        rows.sort(key=orders[sort.removeprefix("-")], reverse=sort.startswith("-"))
    return tuple(rows)


def node_view(manager: Manager, name: str) -> NodeView:
    """Return the page of a node.

    Raises
    ------
    NotFoundError
        There is no such node.
    """
    node = next((node for node in manager.nodes() if node.name == name), None)
    if node is None:
        raise NotFoundError(f"there is no node {name!r}", hint="see the list of nodes")
    optional = _OptionalParts()
    history = optional.read(lambda: manager.node_history(name), NodeHistory(node=name, every=0.0))
    return NodeView(manager=manager.info(), node=node, history=history, warnings=tuple(optional.warnings))


def sessions_view(manager: Manager, query: SessionQuery) -> SessionsView:
    """Return the sessions that match `query`, the youngest first."""
    text = query.text.casefold()
    found = [
        session
        for session in manager.sessions()
        if query.status.upper() in ("", session.status)
        and (text in session.session.casefold() or text in session.graph.casefold())
    ]
    return SessionsView(
        manager=manager.info(),
        sessions=_in_order(found, query.sort, _SESSION_ORDERS)[query.offset : query.offset + query.limit],
        total=len(found),
        query=query,
    )


def session_start(manager: Manager, session: str, query: DropQuery) -> tuple[SessionDetail, DropPage | None]:
    """Return what decides whether there is a page: the session, and the drops that a query chooses, if it has any.

    Raises the errors of `session_view`.
    """
    return manager.session(session), None if query == DropQuery() else manager.drops(session, query)


def session_view(
    manager: Manager,
    session: str,
    query: DropQuery,
    *,
    has_times: bool = False,
    start: tuple[SessionDetail, DropPage | None] | None = None,
) -> SessionView:
    """Return the page of a session; its `start` may be known already.

    Raises
    ------
    NotFoundError
        There is no such session.
    UsageError
        The query names a state that does not exist.
    """
    optional = _OptionalParts()
    if start is None:
        detail, page = manager.session(session), manager.drops(session, query)
    else:  # the answer has begun, so that its status can tell of no error
        detail, known = start
        page = known or optional.read(lambda: manager.drops(session, query), DropPage(drops=(), total=0))
    missing = tuple(f"Node {node} did not answer: its drops are missing." for node in page.missing)
    # At an earlier moment, all have to be known: which of them there were is decided here.
    listed = ResultsQuery(limit=0 if query.time else _FIRST_RESULTS)
    found = optional.read(lambda: manager.results(session, listed), ResultList(results=()))
    missing += tuple(f"Node {node} did not answer: its results are missing." for node in found.missing)
    results, wanted = found.results, StatisticsQuery(time=query.time, waits=False)
    if query.time:
        detail, results = as_it_was(manager, detail, results, query.time)
    times = optional.read(lambda: manager.times_statistics(session, wanted), NO_TIMES) if has_times else NO_TIMES
    return SessionView(
        manager=manager.info(),
        session=detail,
        drops=page,
        query=query,
        results=results[:_FIRST_RESULTS],
        result_count=len(results) + found.more,
        result_size=sum(result.size for result in results) + found.more_size,
        times=times,
        warnings=(*missing, *optional.warnings),
    )


def timeline_view(manager: Manager, session: str) -> TimelineView:
    """Return the statistics of the timeline of a session."""
    detail, optional = manager.session(session), _OptionalParts()
    times = optional.read(lambda: manager.times_statistics(session), NO_TIMES)
    missing = tuple(f"Node {node} did not answer: its attempts are missing." for node in times.missing)
    return TimelineView(manager=manager.info(), session=detail, times=times, warnings=(*missing, *optional.warnings))


def causes_view(manager: Manager, session: str, query: PageQuery) -> CausesView:
    """Return a page of the root causes of a session.

    Raises
    ------
    NotFoundError
        There is no such session.
    """
    found = manager.failures(session, FailureQuery(offset=query.offset, limit=query.limit))
    missing = tuple(
        f"Node {node} did not answer: its causes are those that it reported last." for node in found.missing
    )
    return CausesView(manager=manager.info(), session=manager.session(session), causes=found, warnings=missing)


def drop_view(manager: Manager, session: str, drop: str, query: DropPageQuery = FIRST_DROP_PAGE) -> DropView:
    """Return the page of a drop.

    Raises
    ------
    NotFoundError
        There is no such session, or no such drop in it.
    """
    detail, optional = manager.drop(session, drop, PageQuery(offset=query.offset, limit=query.limit)), _OptionalParts()
    log = optional.read(lambda: tail_of(manager.log(session, detail.oid)), None) if detail.has_log else None
    data = optional.read(lambda: _preview_of(manager, session, detail, query.look), None) if detail.has_data else None
    if detail.failure is not None and detail.failure.drop == detail.oid:
        first = (_sized(manager, session, one, optional) for one in detail.inputs[:_FIRST_INPUTS])
        detail = msgspec.structs.replace(detail, inputs=(*first, *detail.inputs[_FIRST_INPUTS:]))
    return DropView(
        manager=manager.info(),
        session=msgspec.convert(manager.session(session), SessionInfo, from_attributes=True),
        drop=detail,
        query=query,
        log=log,
        data=data,
        warnings=tuple(optional.warnings),
    )


def _sized(manager: Manager, session: str, data: Neighbour, optional: _OptionalParts) -> Neighbour:
    """Return an input with the size of its content, also if that is on another node."""
    if data.size is not None:
        return data
    found = optional.read(lambda: manager.drop(session, data.oid), None)
    return data if found is None else msgspec.structs.replace(data, size=found.size)


def _preview_of(manager: Manager, session: str, detail: DropDetail, look: PreviewQuery) -> Preview:
    try:
        return manager.preview(session, detail.oid, look)
    except PreviewError as error:  # the content itself is there
        return Preview(kind="header", size=detail.size, trouble=error.text)
