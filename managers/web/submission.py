"""The page from which a graph is submitted: its form posts the file to the translator of the cluster, as EAGLE does.

Managers take physical graphs only. The page of the translator has the problems of the graph, a form of its parameters,
its size and partition, and the button that runs it here.
"""

from urllib.parse import urlsplit

from dropflow.rest.pages import PageTemplates, page_response
from dropflow.rest.places import Places
from dropflow.rest.route import Request, Response, Route
from managers.api import Manager

__all__ = ["submission_routes"]


def submission_routes(manager: Manager, templates: PageTemplates, places: Places) -> list[Route]:
    """Return the route of the page."""

    def submit(call: Request) -> Response:
        info = manager.info()
        found = [place.url for place in places.neighbours() if place.role == "translator"]
        translator = found[0] if found else ""
        page = templates.render("submit", manager=info, translator=translator, target=places.door() or info.url)
        return page_response(page, call, form_targets=[_origin(translator)] if translator else [])

    return [Route(method="GET", path="/submit", handler=submit, summary="A form that submits a graph.", tag="pages")]


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
