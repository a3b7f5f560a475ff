"""The picture of the graph of a session: its page, and what the page's script asks for."""

from functools import partial

from dropflow.rest.graph_views import DrawingQuery, GraphSource, GraphViews, NamesQuery, SelectionQuery
from dropflow.rest.pages import PageTemplates, page_response
from dropflow.rest.route import Request, Response, Route
from managers.api import Manager
from managers.state_hub import StateHub
from managers.web.addresses import session_api

__all__ = ["graph_routes"]

_GROUPINGS = (
    ("construct", "by construct"),
    ("template", "by logical node"),
    ("node", "by node"),
    ("island", "by island"),
)


def graph_routes(manager: Manager, templates: PageTemplates, hub: StateHub) -> list[Route]:
    """Return the routes of the graph of a session."""
    views = GraphViews()

    def source(call: Request) -> GraphSource:
        name = call.path["session"]
        detail = manager.session(name)
        return GraphSource(
            key=(name, detail.epoch, detail.created, detail.view),
            read=lambda: manager.graph(name),
            states=lambda: hub.states(name),
            island=lambda: {node.name: node.island or node.name for node in manager.nodes()},
        )

    def page(call: Request) -> Response:
        detail = manager.session(call.path["session"])
        events = f"{session_api(detail.session)}/states/events"
        info = manager.info()
        groupings = [pair for pair in _GROUPINGS if pair[0] != "island" or info.role == "master"]
        shown: dict[str, object] = {"session": detail, "events": events, "groupings": groupings}
        return page_response(templates.render("graph", manager=info, twin="", **shown), call)

    one = "/sessions/{session}/graph"
    route = partial(Route, method="GET", tag="pages")
    octets = partial(route, gives="application/octet-stream")
    return [
        route(path=one, handler=page, summary="The graph of a session as a picture."),
        octets(
            path=f"{one}/drawing",
            handler=lambda call: views.drawing(source(call), call),
            summary="Where its boxes and drops are.",
            query=DrawingQuery,
        ),
        route(path=f"{one}/logical", handler=lambda call: views.logical(source(call)), summary="Its logical graph."),
        octets(path=f"{one}/edges", handler=lambda call: views.edges(source(call), call), summary="Its edges."),
        octets(
            path=f"{one}/selection",
            handler=lambda call: views.selection(source(call), call),
            summary="Drops to be shown apart.",
            query=SelectionQuery,
        ),
        route(
            path=f"{one}/names",
            handler=lambda call: views.names(source(call), call),
            summary="Ids of drops.",
            query=NamesQuery,
        ),
    ]
