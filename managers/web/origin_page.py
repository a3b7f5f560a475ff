"""The page of the origin of a drop: what it was made from, back to the roots."""

from functools import partial

import msgspec

from dropflow.rest.manager_records import ManagerInfo
from dropflow.rest.pages.page_layout import PageTemplates, page_response
from dropflow.rest.pages.query_text import asked
from dropflow.rest.server.route import Request, Response, Route
from dropflow.rest.session_records import FIRST_PAGE, PageQuery
from dropflow.session_views.result_origin import Origin, origin_of
from dropflow.session_views.session_report import session_report
from managers.api import Manager
from managers.web.addresses import origin_url

__all__ = ["OriginView", "origin_routes"]


class OriginView(msgspec.Struct, frozen=True, kw_only=True):
    """What a drop was made from."""

    manager: ManagerInfo
    origin: Origin
    warnings: tuple[str, ...] = ()


def origin_routes(manager: Manager, templates: PageTemplates) -> list[Route]:
    """Return the routes of the origin of a drop, and of the same as JSON."""

    def view_of(call: Request) -> OriginView:
        report = session_report(manager, call.path["session"], has_results=True, has_states=True)
        origin = origin_of(report, call.path["drop"], call.query)
        warnings = tuple(f"Node {node} did not answer: what it has is missing." for node in origin.missing)
        return OriginView(manager=manager.info(), origin=origin, warnings=warnings)

    def page(call: Request) -> Response:
        view = view_of(call)
        name, oid = view.origin.session, view.origin.oid

        def address(offset: int) -> str:
            return origin_url(name, oid, msgspec.structs.replace(call.query, offset=offset))

        twin = f"{origin_url(name, oid)}.json{asked(call.query, FIRST_PAGE)}"
        shown = {"view": view, "address": address}
        return page_response(templates.render("origin", manager=view.manager, twin=twin, **shown), call)

    route = partial(Route, method="GET", query=PageQuery, tag="pages")
    path = "/sessions/{session}/drops/{drop}/origin"
    return [
        route(path=path, handler=page, summary="What a drop was made from."),
        route(path=f"{path}.json", handler=view_of, summary="What a drop was made from, as JSON."),
    ]
