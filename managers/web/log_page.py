"""The page of the log of a session: lines of all drops on all nodes, with filters, back to the first, and live."""

from functools import partial

import msgspec

from dropflow.formatting import format_stamp
from dropflow.rest.log_records import LEVELS, LogLine, LogPage, LogQuery, LogTextQuery, severity
from dropflow.rest.pages import PageTemplates, page_response
from dropflow.rest.route import Request, Response, Route
from dropflow.rest.schema import ManagerInfo, SessionDetail
from managers.api import Manager
from managers.web.addresses import log_text_url, log_url

__all__ = ["LogView", "log_routes"]

_FILTERS = ("text", "level", "drop", "node")
_WARNING, _ERROR = severity("WARNING"), severity("ERROR")


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the log of a session."""

    manager: ManagerInfo
    session: SessionDetail
    query: LogQuery
    log: LogPage


def log_routes(manager: Manager, templates: PageTemplates) -> list[Route]:
    """Return the routes of the log of a session, and of the same as JSON."""

    def view_of(call: Request) -> LogView:
        name, query = call.path["session"], msgspec.structs.replace(call.query, seconds=0.0)
        return LogView(
            manager=manager.info(),
            session=manager.session(name),
            query=query,
            log=manager.session_log(name, query),
        )

    def page(call: Request) -> Response:
        view = view_of(call)
        name = view.session.session
        filters = LogTextQuery(**{field: getattr(view.query, field) for field in _FILTERS})

        def address(*, before: str = "") -> str:
            return log_url(name, LogQuery(**msgspec.structs.asdict(filters), before=before))

        own = log_url(name)
        shown = {
            "view": view,
            "address": address,
            "download": log_text_url(name, filters),
            "levels": LEVELS,
            "style_of": _style,
            "moment_of": _moment,
            "is_live": not view.session.is_over and not view.query.before,
        }
        twin = address(before=view.query.before).replace(own, f"{own}.json", 1)
        return page_response(templates.render("log", manager=view.manager, twin=twin, **shown), call)

    route = partial(Route, method="GET", query=LogQuery, tag="pages")
    return [
        route(path="/sessions/{session}/log", handler=page, summary="The log of a session."),
        route(path="/sessions/{session}/log.json", handler=view_of, summary="The log of a session as JSON."),
    ]


def _style(line: LogLine) -> str:
    """Return the class of a line."""
    return "error" if severity(line.level) >= _ERROR else "warning" if severity(line.level) >= _WARNING else "plain"


def _moment(line: LogLine) -> str:
    return format_stamp(line.time).replace("T", " ")
