"""The picture of the physical graph of a translation: its page, and what the page's script asks for.

As the page of the translation, they need no token: the address has a random id.
"""

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph_file import load
from dropflow.rest.pages.graph_views import GraphSource, GraphViews
from dropflow.rest.pages.page_layout import PageTemplates, page_response
from dropflow.rest.server.route import Request, Response, Route
from translator.web.service import TranslatorService

__all__ = ["graph_routes"]

_GROUPINGS = (("construct", "by construct"), ("template", "by logical node"), ("part", "by part"))


def graph_routes(service: TranslatorService, templates: PageTemplates) -> list[Route]:
    """Return the routes of the graph of a translation."""

    def source(call: Request) -> GraphSource:
        identity = service.get(call.path["translation"]).id

        def read() -> PhysicalGraph:
            return load(service.graph(identity), mmap=True)

        return GraphSource(key=(identity,), read=read)

    def page(call: Request) -> Response:
        info = service.result(call.path["translation"], seconds=0)
        return page_response(templates.render("graph", twin="", info=info, groupings=_GROUPINGS), call)

    shown = Route(
        method="GET",
        path="/translations/{translation}/graph",
        handler=page,
        summary="The graph as a picture.",
        public=True,
        gives="text/html",
        tag="pages",
    )
    return GraphViews().routes(shown, source)
