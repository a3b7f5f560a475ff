"""The page from which a graph is submitted: its form posts the file to the translator of the cluster, as EAGLE does.

Managers take physical graphs only. The page of the translator has the problems of the graph, a form of its parameters,
its size and partition, and the button that runs it here.
"""

import msgspec

from dropflow.clock import SystemClock
from dropflow.graph.logical_note import logical_of
from dropflow.graph.planning_note import planning_of
from dropflow.rest.pages.page_layout import PageTemplates, page_response, redirect
from dropflow.rest.pages.places import Places
from dropflow.rest.server.route import Request, Response, Route
from dropflow.rest.session_records import SubmitQuery
from dropflow.rest.submission_note import options_of, without_past_walltime
from managers.api import Manager
from managers.web.addresses import session_url

__all__ = ["submission_routes"]

_LONGEST_FORM = 16 * 1024
_NO_COPY = "The session has no copy of a logical graph: it was submitted as a physical graph, whose values are fixed."
_NO_TRANSLATOR = (
    "No translator of this cluster is known here. Start the manager with --translator and its address, or use "
    "'dropflow clone' with --set."
)


def submission_routes(manager: Manager, templates: PageTemplates, places: Places) -> list[Route]:
    """Return the routes of the page, and of the page that clones a session."""
    clock = SystemClock()

    def submit(call: Request) -> Response:
        info = manager.info()
        translator = _translator(places)
        page = templates.render("submit", manager=info, translator=translator, target=places.door() or info.url)
        return page_response(page, call, form_targets=[translator] if translator else [])

    def clone(call: Request) -> Response:
        info, session = manager.info(), manager.session(call.path["session"])
        graph = manager.graph(session.session)
        note = logical_of(graph)
        translator = _translator(places)
        document = None if note is None else _text(note.document)
        refusal = _NO_COPY if document is None else "" if translator else _NO_TRANSLATOR
        page = templates.render(
            "clone",
            manager=info,
            session=session,
            note=note,
            document=document,
            refusal=refusal,
            submission=msgspec.json.encode(options_of(graph)).decode(),
            planning=msgspec.json.encode(planning_of(graph)).decode(),
            translator=translator,
            target=places.door() or info.url,
        )
        return page_response(page, call, form_targets=[translator] if translator else [])

    def clone_unchanged(call: Request) -> Response:
        graph = manager.graph(call.path["session"])
        options = without_past_walltime(options_of(graph), clock.now())
        made = manager.submit(graph, SubmitQuery.of(options, anew=True))
        return redirect(session_url(made.session))

    path = "/sessions/{session}/clone"
    return [
        Route(method="GET", path="/submit", handler=submit, summary="A form that submits a graph.", tag="pages"),
        Route(method="GET", path=path, handler=clone, summary="Ask how to run it again.", tag="pages"),
        Route(
            method="POST",
            path=path,
            handler=clone_unchanged,
            summary="Run the graph again as it is, and go to the new session.",
            form=True,
            limit=_LONGEST_FORM,
            tag="pages",
        ),
    ]


def _translator(places: Places) -> str:
    """Return the address of the translator of the cluster for a browser; empty if none is known."""
    return places.browser_url(next((place.url for place in places.neighbours() if place.role == "translator"), ""))


def _text(document: bytes) -> str | None:
    """Return a document as a form can send it; None if it is no text."""
    try:
        return document.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
