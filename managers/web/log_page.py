"""The pages of the log of a session, and of a manager: with filters, back to the first line, and live."""

from functools import partial

import msgspec

from dropflow.formatting import format_stamp
from dropflow.rest.log_records import ALL_LINES, LAST_LINES, LEVELS, LogLine, LogPage, LogQuery, LogTextQuery, severity
from dropflow.rest.pages import PageTemplates, page_response
from dropflow.rest.route import Request, Response, Route
from dropflow.rest.schema import ManagerInfo, SessionDetail
from managers.api import Manager
from managers.web.addresses import asked, quoted, session_api, session_url

__all__ = ["LogView", "ManagerLogView", "log_routes"]

_FILTERS = ("text", "level", "drop", "node")
_WARNING, _ERROR = severity("WARNING"), severity("ERROR")


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the log of a session."""

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


class _Source(msgspec.Struct, frozen=True, kw_only=True):
    """What the page of a log has besides its lines.

    Attributes
    ----------
    name, about : str
        Of the session or manager, and what its log has.
    above, home, page, api : str
        The addresses of the list that has it, of its own page, of what its log is below, and of it in the API.
    nodes : tuple of str
        The nodes that lines may come from.
    origin : str
        What a line comes from besides its node.
    is_live : bool
        Whether lines may be added.
    """

    name: str
    about: str
    above: str
    home: str
    page: str
    api: str
    nodes: tuple[str, ...] = ()
    origin: str
    is_live: bool


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
        session = view.session
        source = _Source(
            name=session.session,
            about="What all drops wrote, in the order of time (UTC)",
            above="/sessions",
            home=session_url(session.session),
            page=session_url(session.session),
            api=session_api(session.session),
            nodes=session.nodes,
            origin="Drop",
            is_live=not session.is_over,
        )
        return rendered(call, view, source)

    def manager_page(call: Request) -> Response:
        view = manager_view_of(call)
        is_node = view.node in {node.name for node in manager.nodes()}
        source = _Source(
            name=view.node,
            about="What the manager wrote, in the order of time (UTC)",
            above="/nodes",
            home=f"/nodes/{quoted(view.node)}" if is_node else "/",
            page=f"/nodes/{quoted(view.node)}",
            api=f"/api/v1/nodes/{quoted(view.node)}",
            origin="Logger",
            is_live=True,
        )
        return rendered(call, view, source)

    def rendered(call: Request, view: LogView | ManagerLogView, source: _Source) -> Response:
        filters = LogTextQuery(**{field: getattr(view.query, field) for field in _FILTERS})
        own = f"{source.page}/log"

        def address(*, before: str = "") -> str:
            return own + asked(LogQuery(**msgspec.structs.asdict(filters), before=before), LAST_LINES)

        shown = {
            "view": view,
            "source": source,
            "address": address,
            "download": f"{source.api}/log/text{asked(filters, ALL_LINES)}",
            "levels": LEVELS,
            "style_of": _style,
            "moment_of": _moment,
            "is_live": source.is_live and not view.query.before,
        }
        twin = address(before=view.query.before).replace(own, f"{own}.json", 1)
        return page_response(templates.render("log", manager=view.manager, twin=twin, **shown), call)

    route = partial(Route, method="GET", query=LogQuery, tag="pages")
    return [
        route(path="/sessions/{session}/log", handler=page, summary="The log of a session."),
        route(path="/sessions/{session}/log.json", handler=view_of, summary="The log of a session as JSON."),
        route(path="/nodes/{node}/log", handler=manager_page, summary="The log of a manager."),
        route(path="/nodes/{node}/log.json", handler=manager_view_of, summary="The log of a manager as JSON."),
    ]


def _style(line: LogLine) -> str:
    """Return the class of a line."""
    return "error" if severity(line.level) >= _ERROR else "warning" if severity(line.level) >= _WARNING else "plain"


def _moment(line: LogLine) -> str:
    return format_stamp(line.time).replace("T", " ")
