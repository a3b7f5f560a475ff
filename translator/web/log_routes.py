"""The log of the translator itself: its page, and what the script of the page asks for. All of it needs the login."""

from functools import partial
from urllib.parse import quote

from dropflow.api.contents_answer import attachment
from dropflow.api.logs import LogPage, LogQuery, LogTextQuery, ManagerLog, log_text, page_with_lines
from dropflow.api.routes import Request, Response, Route, StreamSlots
from dropflow.errors import NotFoundError
from dropflow.web.frame import LogSource, PageTemplates, page_response, shown_log


def log_routes(log: ManagerLog, templates: PageTemplates, streams: StreamSlots) -> list[Route]:
    """Return the routes of the log of the translator, with the paths of those of managers."""
    name = quote(log.name, safe="")
    source = LogSource(
        name=log.name,
        about="What the translator wrote, in the order of time (UTC)",
        crumbs=(("Translate", "/"),),
        here="Log",
        page=f"/nodes/{name}",
        api=f"/api/v1/nodes/{name}",
        origin="Logger",
        is_live=True,
    )

    def check(call: Request) -> None:
        if call.path["node"] != log.name:
            raise NotFoundError(f"this is {log.name}, not {call.path['node']}", hint="ask a manager for other logs")

    def page(call: Request) -> Response:
        check(call)
        shown, twin = shown_log(source, call.query, log.page(call.query))
        return page_response(templates.render("log", twin=twin, **shown), call)

    def lines(call: Request) -> LogPage:
        check(call)
        return page_with_lines(log.page, call.query, streams, call.is_gone)

    def text(call: Request) -> Response:
        check(call)
        headers = (attachment(f"{log.name}.log"),)
        return Response(body=log_text(log.page, call.query), content_type="text/plain", headers=headers)

    route = partial(Route, method="GET", query=LogQuery, tag="translator")
    return [
        route(path="/nodes/{node}/log", handler=page, summary="The log of the translator.", gives="text/html"),
        route(path="/nodes/{node}/log.json", handler=lines, summary="Its log as JSON.", answer=LogPage),
        route(path="/api/v1/nodes/{node}/log", handler=lines, summary="A page of its log.", answer=LogPage),
        route(
            path="/api/v1/nodes/{node}/log/text",
            handler=text,
            summary="Its log as text.",
            query=LogTextQuery,
            gives="text/plain",
        ),
    ]
