"""The picture of the graph of a session: its page, and what the page's script asks for."""

from dropflow.graph.physical import IntColumn
from dropflow.rest.pages.graph_views import GraphSource, GraphViews
from dropflow.rest.pages.page_layout import PageTemplates, page_response
from dropflow.rest.server.route import Request, Response, Route
from dropflow.times.analysis import Analysis, analyse
from dropflow.times.attempts import attempts_of, check_rows
from dropflow.times.octets import read_sections
from dropflow.times.waits import executed_path
from managers.api import Manager
from managers.state_hub import StateHub
from managers.web.addresses import session_api

__all__ = ["graph_routes", "read_analysis"]

_GROUPINGS = (
    ("construct", "by construct"),
    ("template", "by logical node"),
    ("node", "by node"),
    ("island", "by island"),
)


def read_analysis(manager: Manager, session: str) -> Analysis:
    """Return the analysis of the times of a session."""
    attempts = attempts_of(list(read_sections(manager.times(session).chunks, where=session)))
    graph = manager.graph(session)
    check_rows(graph, attempts, session)
    return analyse(graph, attempts)


def _executed_path(manager: Manager, session: str) -> IntColumn:
    found = read_analysis(manager, session)
    return executed_path(found.graph, found.attempts, found.waits)


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
