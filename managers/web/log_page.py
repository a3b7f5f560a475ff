"""The pages of the logs of sessions, drops and managers."""

from functools import partial

import msgspec

from dropflow.logs.records import LogPage, LogQuery
from dropflow.rest.manager_records import ManagerInfo
from dropflow.rest.pages.log_page import LogSource, shown_log
from dropflow.rest.pages.page_layout import PageTemplates, page_response, shown_name
from dropflow.rest.server.route import Request, Response, Route
from dropflow.rest.session_records import SessionDetail
from managers.api import Manager
from managers.web.addresses import drop_url, quoted, session_api, session_url

__all__ = ["LogView", "ManagerLogView", "log_routes"]


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the log of a session, or of one of its drops."""

    manager: ManagerInfo
    session: SessionDetail
    query: LogQuery
    log: LogPage


class ManagerLogView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the log of a manager."""

    manager: ManagerInfo
    node: str
    query: LogQuery
    log: LogPage


def log_routes(manager: Manager, templates: PageTemplates) -> list[Route]:
    """Return the routes of the logs of a session and of a manager, and of the same as JSON."""

    def view_of(call: Request) -> LogView:
        name, query = call.path["session"], msgspec.structs.replace(call.query, seconds=0.0)
        return LogView(
            manager=manager.info(),
            session=manager.session(name),
            query=query,
            log=manager.session_log(name, query),
        )

    def manager_view_of(call: Request) -> ManagerLogView:
        name, query = call.path["node"], msgspec.structs.replace(call.query, seconds=0.0)
        return ManagerLogView(manager=manager.info(), node=name, query=query, log=manager.manager_log(name, query))

    def page(call: Request) -> Response:
        view = view_of(call)
        return rendered(call, view, _source_of(view))

    def manager_page(call: Request) -> Response:
        view = manager_view_of(call)
        is_node = view.node in {node.name for node in manager.nodes()}
        home = f"/nodes/{quoted(view.node)}" if is_node else "/"
        source = LogSource(
            name=view.node,
            about="What the manager wrote, in the order of time (UTC)",
            crumbs=(("Nodes", "/nodes"), (shown_name(view.node, 80), home)),
            here="Nodes",
            page=f"/nodes/{quoted(view.node)}",
            api=f"/api/v1/nodes/{quoted(view.node)}",
            origin="Logger",
            is_live=True,
        )
        return rendered(call, view, source)

    def rendered(call: Request, view: LogView | ManagerLogView, source: LogSource) -> Response:
        shown, twin = shown_log(source, view.query, view.log)
        return page_response(templates.render("log", manager=view.manager, twin=twin, **shown), call)

    route = partial(Route, method="GET", query=LogQuery, tag="pages")
    return [
        route(path="/sessions/{session}/log", handler=page, summary="The log of a session."),
        route(path="/sessions/{session}/log.json", handler=view_of, summary="The log of a session as JSON."),
        route(path="/nodes/{node}/log", handler=manager_page, summary="The log of a manager."),
        route(path="/nodes/{node}/log.json", handler=manager_view_of, summary="The log of a manager as JSON."),
    ]


def _source_of(view: LogView) -> LogSource:
    """Return what the page of the log of a session has, or of one drop, if the query has its id."""
    session, drop = view.session, view.query.oid
    name = session.session
    crumbs = (("Sessions", "/sessions"), (shown_name(name, 80), session_url(name)))
    return LogSource(
        name=drop or name,
        about=f"What {'the drop' if drop else 'all drops'} wrote, in the order of time (UTC)",
        crumbs=(*crumbs, (shown_name(drop, 80), drop_url(name, drop))) if drop else crumbs,
        here="Sessions",
        page=session_url(name),
        api=session_api(name),
        nodes=() if drop else session.nodes,
        origin="" if drop else "Drop",
        ends=True,
        is_live=not session.is_over,
    )
