"""The page of the log of a session: lines of all drops on all nodes, with filters, back to the first, and live."""

from functools import partial
from urllib.parse import urlencode

import msgspec

from dropflow.formatting import format_stamp
from dropflow.rest.log_records import LEVELS, LogLine, LogPage, LogQuery, severity
from dropflow.rest.pages import PageTemplates, page_response
from dropflow.rest.route import Request, Response, Route
from dropflow.rest.schema import ManagerInfo, SessionDetail
from managers.api import Manager
from managers.web.addresses import session_api, session_url

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
        name, filters = view.session.session, _filters(view.query)
        address = partial(_address, f"{session_url(name)}/log", filters)
        text = f"{session_api(name)}/log/text{f'?{urlencode(filters)}' if filters else ''}"
        shown = {
            "view": view,
            "address": address,
            "download": text,
            "levels": LEVELS,
            "style_of": _style,
            "moment_of": _moment,
            "is_live": not view.session.is_over and not view.query.before,
        }
        twin = _address(f"{session_url(name)}/log.json", filters, before=view.query.before)
        return page_response(templates.render("log", manager=view.manager, twin=twin, **shown), call)

    own = {"method": "GET", "query": LogQuery, "tag": "pages"}
    return [
        Route(path="/sessions/{session}/log", handler=page, summary="The log of a session.", **own),  # type: ignore[arg-type]
        Route(path="/sessions/{session}/log.json", handler=view_of, summary="The log of a session as JSON.", **own),  # type: ignore[arg-type]
    ]


def _filters(query: LogQuery) -> dict[str, str]:
    return {name: value for name in _FILTERS if (value := getattr(query, name))}


def _address(page: str, filters: dict[str, str], *, before: str = "") -> str:
    fields = filters | ({"before": before} if before else {})
    return f"{page}?{urlencode(fields)}" if fields else page


def _style(line: LogLine) -> str:
    """Return the class of a line."""
    return "error" if severity(line.level) >= _ERROR else "warning" if severity(line.level) >= _WARNING else "plain"


def _moment(line: LogLine) -> str:
    return format_stamp(line.time).replace("T", " ")
