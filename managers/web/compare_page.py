"""The page that compares a session with another one, and the list of sessions to choose from."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.rest.manager_records import ManagerInfo
from dropflow.rest.pages.page_layout import PageTemplates, page_response
from dropflow.rest.pages.query_text import asked
from dropflow.rest.server.route import Request, Response, Route
from dropflow.rest.session_records import SessionInfo
from dropflow.session_views.comparison import Comparison, comparison_of
from dropflow.session_views.session_report import session_report
from managers.api import Manager
from managers.web.addresses import compare_url, session_url

__all__ = ["CompareQuery", "CompareView", "compare_routes"]

_MOST = 100


class CompareQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session to compare with; empty to choose one, with `text` in its name or in the name of its graph."""

    other: Annotated[str, Meta(max_length=400)] = ""
    text: Annotated[str, Meta(max_length=200)] = ""


class CompareView(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two sessions; or without another one, sessions to choose from.

    Attributes
    ----------
    candidates : tuple of SessionInfo
        Sessions of the same graph first, then the others; the youngest of both first.
    total : int
        Number of all of them.
    """

    manager: ManagerInfo
    session: SessionInfo
    query: CompareQuery
    comparison: Comparison | None = None
    candidates: tuple[SessionInfo, ...] = ()
    total: int = 0


def compare_routes(manager: Manager, templates: PageTemplates) -> list[Route]:
    """Return the routes of the comparison of sessions, and of the same as JSON."""

    def view_of(call: Request) -> CompareView:
        return _view(manager, call.path["session"], call.query)

    def page(call: Request) -> Response:
        view = view_of(call)
        own = f"{session_url(view.session.session)}/compare"
        twin = f"{own}.json{asked(view.query, CompareQuery())}"
        shown = {"view": view, "address": partial(compare_url, view.session.session)}
        return page_response(templates.render("compare", manager=view.manager, twin=twin, **shown), call)

    route = partial(Route, method="GET", query=CompareQuery, tag="pages")
    return [
        route(path="/sessions/{session}/compare", handler=page, summary="What differs from another session."),
        route(path="/sessions/{session}/compare.json", handler=view_of, summary="What differs, as JSON."),
    ]


def _view(manager: Manager, session: str, query: CompareQuery) -> CompareView:
    info = msgspec.convert(manager.session(session), SessionInfo, from_attributes=True)
    if query.other:
        reports = [session_report(manager, name, has_results=True) for name in (session, query.other)]
        found = comparison_of(*reports)
        return CompareView(manager=manager.info(), session=info, query=query, comparison=found)
    text = query.text.casefold()
    others = [
        one
        for one in manager.sessions()
        if one.session != session and (text in one.session.casefold() or text in one.graph.casefold())
    ]
    others.sort(key=lambda one: one.graph != info.graph)  # stable: the youngest first remains
    return CompareView(
        manager=manager.info(), session=info, query=query, candidates=tuple(others[:_MOST]), total=len(others)
    )
