"""What each page shows, as records: the page and its ``.json`` twin are two forms of the same one.

What a page is about must be there, or its error is the answer; what stands around it may be missing for a while (a node
that does not answer): then the page says so under `warnings` and shows the rest.
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from dropflow.errors import DropflowError
from dropflow.rest.operation_records import FailureList, ResultList
from dropflow.rest.schema import (
    FIRST_PAGE,
    Child,
    DropDetail,
    DropPage,
    DropQuery,
    ManagerInfo,
    NodeInfo,
    PageQuery,
    ResultInfo,
    SessionDetail,
    SessionInfo,
)
from managers.api import Manager
from managers.web.preview import LogTail, Preview, preview_of, tail_of

__all__ = [
    "CausesView",
    "DropView",
    "NodesView",
    "OverviewView",
    "SessionQuery",
    "SessionView",
    "SessionsView",
    "causes_view",
    "drop_view",
    "nodes_view",
    "overview_view",
    "session_view",
    "sessions_view",
]

_T = TypeVar("_T")
_YOUNGEST = 10


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions: with this status (when one is named), and this text in their name or their graph's."""

    status: Annotated[str, Meta(max_length=20)] = ""
    text: Annotated[str, Meta(max_length=200)] = ""
    offset: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class OverviewView(msgspec.Struct, frozen=True, kw_only=True):
    """The manager, what is below it, and its youngest sessions."""

    manager: ManagerInfo
    children: tuple[Child, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    sessions: tuple[SessionInfo, ...] = ()
    total: int = 0
    running: int = 0
    warnings: tuple[str, ...] = ()


class NodesView(msgspec.Struct, frozen=True, kw_only=True):
    """All node managers."""

    manager: ManagerInfo
    nodes: tuple[NodeInfo, ...]


class SessionsView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the sessions that match, and how many match in all."""

    manager: ManagerInfo
    sessions: tuple[SessionInfo, ...]
    total: int
    query: SessionQuery


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """One session with a page of its drops."""

    manager: ManagerInfo
    session: SessionDetail
    drops: DropPage
    query: DropQuery
    results: tuple[ResultInfo, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen in it."""
        return self.session.is_over


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
    query: PageQuery
    log: LogTail | None = None
    data: Preview | None = None
    warnings: tuple[str, ...] = ()


class _Around:
    """Asks for what may be missing, and keeps the reasons why it is."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def ask(self, question: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return question()
        except DropflowError as error:
            self.warnings.append(str(error))
            return otherwise


def overview_view(manager: Manager) -> OverviewView:
    """The first page of a manager."""
    info, around = manager.info(), _Around()
    children: tuple[Child, ...] = ()
    if info.role in ("island", "master"):
        children = around.ask(manager.children, ())
    nodes: tuple[NodeInfo, ...] = around.ask(manager.nodes, ())
    sessions: tuple[SessionInfo, ...] = around.ask(manager.sessions, ())
    return OverviewView(
        manager=info,
        children=children,
        nodes=nodes,
        sessions=sessions[:_YOUNGEST],
        total=len(sessions),
        running=sum(not session.is_over for session in sessions),
        warnings=tuple(around.warnings),
    )


def nodes_view(manager: Manager) -> NodesView:
    """All node managers with their load."""
    return NodesView(manager=manager.info(), nodes=manager.nodes())


def sessions_view(manager: Manager, query: SessionQuery) -> SessionsView:
    """The sessions that match `query`, the youngest first."""
    text = query.text.casefold()
    found = [
        session
        for session in manager.sessions()
        if query.status.upper() in ("", session.status)
        and (text in session.session.casefold() or text in session.graph.casefold())
    ]
    return SessionsView(
        manager=manager.info(),
        sessions=tuple(found[query.offset : query.offset + query.limit]),
        total=len(found),
        query=query,
    )


def session_view(manager: Manager, session: str, query: DropQuery) -> SessionView:
    """One session.

    Raises
    ------
    NotFoundError
        There is no such session.
    UsageError
        The query names a state that does not exist.
    """
    detail, around = manager.session(session), _Around()
    page = manager.drops(session, query)
    missing = tuple(f"Node {node} could not be asked for its drops." for node in page.missing)
    results = around.ask(lambda: manager.results(session), ResultList(results=()))
    missing += tuple(f"Node {node} could not be asked for its results." for node in results.missing)
    return SessionView(
        manager=manager.info(),
        session=detail,
        drops=page,
        query=query,
        results=results.results,
        warnings=(*missing, *around.warnings),
    )


def causes_view(manager: Manager, session: str, query: PageQuery) -> CausesView:
    """A page of the root causes of a session.

    Raises
    ------
    NotFoundError
        There is no such session.
    """
    found = manager.failures(session, query)
    missing = tuple(
        f"Node {node} could not be asked: its causes are those that it told last." for node in found.missing
    )
    return CausesView(manager=manager.info(), session=manager.session(session), causes=found, warnings=missing)


def drop_view(manager: Manager, session: str, drop: str, query: PageQuery = FIRST_PAGE) -> DropView:
    """One drop of a session.

    Raises
    ------
    NotFoundError
        There is no such session, or no such drop in it.
    """
    detail, around = manager.drop(session, drop, query), _Around()
    log = around.ask(lambda: tail_of(manager.log(session, detail.oid)), None) if detail.has_log else None
    data = around.ask(lambda: preview_of(manager.data(session, detail.oid)), None) if detail.has_data else None
    return DropView(
        manager=manager.info(),
        session=msgspec.convert(manager.session(session), SessionInfo, from_attributes=True),
        drop=detail,
        query=query,
        log=log,
        data=data,
        warnings=tuple(around.warnings),
    )
