"""The page of the results of a session: all of them, by pages, filtered and sorted by the server."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.rest.manager_records import ManagerInfo
from dropflow.rest.operation_records import ResultsQuery
from dropflow.rest.pages.page_layout import PageTemplates, page_response
from dropflow.rest.pages.query_text import asked
from dropflow.rest.server.route import Request, Response, Route
from dropflow.rest.session_records import ResultInfo, SessionDetail
from managers.api import Manager
from managers.web.addresses import session_url

__all__ = ["ResultQuery", "ResultsView", "result_routes"]


class ResultQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters on the results of a session, and their order; `text` and `node` as of archives.

    `sort` is a column of the page; with a minus in front in descending order. By default, as the drops of the graph.
    """

    text: Annotated[str, Meta(max_length=200)] = ""
    node: Annotated[str, Meta(max_length=255)] = ""
    sort: Annotated[str, Meta(pattern="^$|^-?(path|name|node|size)$")] = ""
    offset: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class ResultsView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the results that match; `total` and `size` are of all that match."""

    manager: ManagerInfo
    session: SessionDetail
    query: ResultQuery
    results: tuple[ResultInfo, ...]
    total: int
    size: int
    warnings: tuple[str, ...] = ()


_FIRST = ResultQuery()


def result_routes(manager: Manager, templates: PageTemplates) -> list[Route]:
    """Return the routes of the results of a session, and of the same as JSON."""

    def view_of(call: Request) -> ResultsView:
        return _results_view(manager, call.path["session"], call.query)

    def page(call: Request) -> Response:
        view = view_of(call)
        own = f"{session_url(view.session.session)}/results"

        def address(offset: int) -> str:
            return own + asked(msgspec.structs.replace(view.query, offset=offset), _FIRST)

        def sort_address(sort: str) -> str:
            return own + asked(msgspec.structs.replace(view.query, offset=0, sort=sort), _FIRST)

        shown = {"view": view, "own": own, "address": address, "sort_address": sort_address}
        twin = f"{own}.json{asked(view.query, _FIRST)}"
        return page_response(templates.render("results", manager=view.manager, twin=twin, **shown), call)

    route = partial(Route, method="GET", query=ResultQuery, tag="pages")
    return [
        route(path="/sessions/{session}/results", handler=page, summary="The results of a session."),
        route(path="/sessions/{session}/results.json", handler=view_of, summary="The results of a session as JSON."),
    ]


def _results_view(manager: Manager, session: str, query: ResultQuery) -> ResultsView:
    wanted = ResultsQuery(text=query.text, node=query.node, sort=query.sort, limit=query.offset + query.limit)
    found = manager.results(session, wanted).chosen(wanted)  # a node that has copies leaves the choice to others
    return ResultsView(
        manager=manager.info(),
        session=manager.session(session),
        query=query,
        results=found.results[query.offset :],
        total=len(found.results) + found.more,
        size=sum(result.size for result in found.results) + found.more_size,
        warnings=tuple(f"Node {node} did not answer: its results are missing." for node in found.missing),
    )
