"""Pages of one session: its graph, its results, the comparison with another, the origin of a drop."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.api.drop_records import FIRST_PAGE, PageQuery, ResultInfo
from dropflow.api.manager import Manager
from dropflow.api.requests import ResultsQuery
from dropflow.api.routes import Request, Response, Route
from dropflow.api.session_records import SessionDetail, SessionInfo
from dropflow.graph.physical import IntColumn
from dropflow.times.attempts import attempts_of, check_rows
from dropflow.times.octets import read_sections
from dropflow.times.timeline import Analysis, analyse, executed_path
from dropflow.web.comparison import Comparison, comparison_of
from dropflow.web.frame import PageTemplates, page_response
from dropflow.web.graph_views import GraphSource, GraphViews
from dropflow.web.origin import Origin, origin_of
from dropflow.web.report import session_report
from managers.state_hub import StateHub
from managers.web.page_templates import compare_url, origin_url, session_api, session_url, view_page
from managers.web.views import ManagerView

_GROUPINGS = (
    ("construct", "by construct"),
    ("template", "by logical node"),
    ("node", "by node"),
    ("island", "by island"),
)
_MOST_CANDIDATES = 100
"""Sessions that the page of a comparison offers."""


def read_analysis(manager: Manager, session: str) -> Analysis:
    """Return the analysis of the times of a session."""
    attempts = attempts_of(list(read_sections(manager.times(session).chunks, where=session)))
    graph = manager.graph(session)
    check_rows(graph, attempts, session)
    return analyse(graph, attempts)


def _executed_path(manager: Manager, session: str) -> IntColumn:
    analysis = read_analysis(manager, session)
    return executed_path(analysis.graph, analysis.attempts, analysis.waits)


def graph_routes(manager: Manager, templates: PageTemplates, hub: StateHub) -> list[Route]:
    """Return the routes of the graph of a session."""

    def source(call: Request) -> GraphSource:
        name = call.path["session"]
        detail = manager.session(name)
        return GraphSource(
            key=(name, detail.epoch, detail.created, detail.view),
            read=lambda: manager.graph(name),
            states=lambda: hub.states(name),
            island=lambda: {node.name: node.island or node.name for node in manager.nodes()},
            executed=lambda: _executed_path(manager, name),
        )

    def page(call: Request) -> Response:
        detail = manager.session(call.path["session"])
        events = f"{session_api(detail.session)}/states/events"
        info = manager.info()
        groupings = [pair for pair in _GROUPINGS if pair[0] != "island" or info.role == "master"]
        values: dict[str, object] = {"session": detail, "events": events, "groupings": groupings}
        return page_response(templates.render("graph", manager=info, twin="", **values), call)

    shown = Route(
        method="GET",
        path="/sessions/{session}/graph",
        handler=page,
        summary="The graph of a session as a picture.",
        tag="pages",
    )
    return GraphViews().routes(shown, source)


# The page that compares a session with another one, and the list of sessions to choose from.


class CompareQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session to compare with; empty to choose one, with `text` in its name or in the name of its graph."""

    other: Annotated[str, Meta(max_length=400)] = ""
    text: Annotated[str, Meta(max_length=200)] = ""


class CompareView(ManagerView, frozen=True, kw_only=True):
    """The differences of two sessions; or without another one, sessions to choose from.

    Attributes
    ----------
    candidates : tuple of SessionInfo
        Sessions of the same graph first, then the others; the youngest of both first.
    total : int
        Number of all of them.
    """

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
        name = view.session.session
        own, address = f"{session_url(name)}/compare", partial(compare_url, name)
        return view_page(templates, call, "compare", view, own, first=CompareQuery(), compared=address)

    route = partial(Route, method="GET", query=CompareQuery, tag="pages")
    return [
        route(path="/sessions/{session}/compare", handler=page, summary="What differs from another session."),
        route(path="/sessions/{session}/compare.json", handler=view_of, summary="What differs, as JSON."),
    ]


def _view(manager: Manager, session: str, query: CompareQuery) -> CompareView:
    info = msgspec.convert(manager.session(session), SessionInfo, from_attributes=True)
    if query.other:
        reports = [session_report(manager, name, has_results=True) for name in (session, query.other)]
        comparison = comparison_of(*reports)
        return CompareView(manager=manager.info(), session=info, query=query, comparison=comparison)
    text = query.text.casefold()
    others = [
        other
        for other in manager.sessions()
        if other.session != session and (text in other.session.casefold() or text in other.graph.casefold())
    ]
    others.sort(key=lambda other: other.graph != info.graph)  # stable: the youngest first remains
    return CompareView(
        manager=manager.info(),
        session=info,
        query=query,
        candidates=tuple(others[:_MOST_CANDIDATES]),
        total=len(others),
    )


# The page of the origin of a drop: what it was made from, back to the roots.


class OriginView(ManagerView, frozen=True, kw_only=True):
    """The origin of a drop."""

    origin: Origin
    warnings: tuple[str, ...] = ()


def origin_routes(manager: Manager, templates: PageTemplates) -> list[Route]:
    """Return the routes of the origin of a drop, and of the same as JSON."""

    def view_of(call: Request) -> OriginView:
        report = session_report(manager, call.path["session"], has_results=True, has_states=True)
        origin = origin_of(report, call.path["drop"], call.query)
        warnings = tuple(f"Node {node} did not answer: its part is missing." for node in origin.missing)
        return OriginView(manager=manager.info(), origin=origin, warnings=warnings)

    def page(call: Request) -> Response:
        view = view_of(call)
        own = origin_url(view.origin.session, view.origin.oid)
        return view_page(templates, call, "origin", view, own, first=FIRST_PAGE)

    route = partial(Route, method="GET", query=PageQuery, tag="pages")
    path = "/sessions/{session}/drops/{drop}/origin"
    return [
        route(path=path, handler=page, summary="What a drop was made from."),
        route(path=f"{path}.json", handler=view_of, summary="What a drop was made from, as JSON."),
    ]


# The page of the results of a session: all of them, by pages, filtered and sorted by the server.


class ResultQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters on the results of a session, and their order; `text` and `node` as of archives.

    `sort` is a column of the page; with a minus in front in descending order. By default, as the drops of the graph.
    """

    text: Annotated[str, Meta(max_length=200)] = ""
    node: Annotated[str, Meta(max_length=255)] = ""
    sort: Annotated[str, Meta(pattern="^$|^-?(path|name|node|size)$")] = ""
    offset: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = FIRST_PAGE.limit


class ResultsView(ManagerView, frozen=True, kw_only=True):
    """A page of the results that match; `total` and `size` are of all that match."""

    session: SessionDetail
    query: ResultQuery
    results: tuple[ResultInfo, ...]
    total: int
    size: int
    warnings: tuple[str, ...] = ()


def result_routes(manager: Manager, templates: PageTemplates) -> list[Route]:
    """Return the routes of the results of a session, and of the same as JSON."""

    def view_of(call: Request) -> ResultsView:
        return _results_view(manager, call.path["session"], call.query)

    def page(call: Request) -> Response:
        view = view_of(call)
        own = f"{session_url(view.session.session)}/results"
        return view_page(templates, call, "results", view, own, first=ResultQuery())

    route = partial(Route, method="GET", query=ResultQuery, tag="pages")
    return [
        route(path="/sessions/{session}/results", handler=page, summary="The results of a session."),
        route(path="/sessions/{session}/results.json", handler=view_of, summary="The results of a session as JSON."),
    ]


def _results_view(manager: Manager, session: str, query: ResultQuery) -> ResultsView:
    wanted = ResultsQuery(text=query.text, node=query.node, sort=query.sort, limit=query.offset + query.limit)
    listing = manager.results(session, wanted).chosen(wanted)  # a node that has copies leaves the choice to others
    return ResultsView(
        manager=manager.info(),
        session=manager.session(session),
        query=query,
        results=listing.results[query.offset :],
        total=len(listing.results) + listing.more,
        size=sum(result.size for result in listing.results) + listing.more_size,
        warnings=tuple(f"Node {node} did not answer: its results are missing." for node in listing.missing),
    )
