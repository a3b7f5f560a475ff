"""The picture of the physical graph of a translation: its page, and what the page's script asks for.

As the page of the translation, they need no token: the address has a random id.
"""

from functools import partial

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph_file import load
from dropflow.rest.graph_views import DrawingQuery, GraphSource, GraphViews, NamesQuery, SelectionQuery
from dropflow.rest.pages import PageTemplates, page_response
from dropflow.rest.route import Request, Response, Route
from translator.web.service import TranslatorService

__all__ = ["graph_routes"]

_GROUPINGS = (("construct", "by construct"), ("template", "by logical node"), ("part", "by part"))


def graph_routes(service: TranslatorService, templates: PageTemplates) -> list[Route]:
    """Return the routes of the graph of a translation."""
    views = GraphViews()

    def source(call: Request) -> GraphSource:
        identity = service.get(call.path["translation"]).id

        def read() -> PhysicalGraph:
            return load(service.graph(identity), mmap=True)

        return GraphSource(key=(identity,), read=read)

    def page(call: Request) -> Response:
        info = service.result(call.path["translation"], seconds=0)
        return page_response(templates.render("graph", twin="", info=info, groupings=_GROUPINGS), call)

    one = "/translations/{translation}/graph"
    route = partial(Route, method="GET", public=True, tag="pages")
    octets = partial(route, gives="application/octet-stream")
    return [
        route(path=one, handler=page, summary="The graph as a picture.", gives="text/html"),
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
