"""What forms of pages do: resume, retry, pause, continue, cancel or delete a session, and submit or clone a graph.

A link changes nothing. Only pages of the same origin can post, with the page key (`dropflow.api.auth`).
"""

from collections.abc import Callable, Mapping

import msgspec

from dropflow.api.manager import Manager
from dropflow.api.openapi import FORM, Request, Response, Route, posted_fields
from dropflow.api.records import DropDetail, SubmitQuery
from dropflow.api.requests import ResumeRequest, RetryRequest
from dropflow.api.submission_note import options_of, without_past_walltime
from dropflow.clock import SystemClock
from dropflow.graph.notes import logical_of, planning_of
from dropflow.web.frame import PageTemplates, page_response, redirect
from dropflow.web.places import Places
from managers.web.page_templates import PREFIX, session_url

__all__ = [
    "action_routes",
    "submission_routes",
]


_LONGEST_FORM = 1024 * 1024
_LONGEST_REASON = 200


def action_routes(manager: Manager) -> list[Route]:
    """Return the routes that forms of pages post to, and which then lead to the session, or to the sessions."""

    def route(name: str, act: Callable[[str, Mapping[str, str]], object], after: str = "") -> Route:
        def handler(call: Request) -> Response:
            session = call.path["session"]
            act(session, dict(posted_fields(call.body, FORM)))
            return redirect(after or session_url(session))

        path, summary = f"/sessions/{{session}}/{name}", f"{name.capitalize()}, from a form of a page."
        return Route(
            method="POST", path=path, handler=handler, summary=summary, form=True, limit=_LONGEST_FORM, tag="pages"
        )

    def retry(session: str, form: Mapping[str, str]) -> None:
        drop, start = form.get("drop", ""), form.get("start", "")
        request = RetryRequest(
            drops=(drop,) if drop and not start else (),
            start=(start,) if start else (),
            settings=_changed(manager.drop(session, start), form) if start else (),
        )
        manager.retry(session, request)

    return [
        route("resume", lambda session, _: manager.resume(session, ResumeRequest())),
        route("retry", retry),
        route("pause", lambda session, _: manager.pause(session)),
        route("continue", lambda session, _: manager.unpause(session)),
        route(
            "cancel", lambda session, form: manager.cancel(session, form.get("reason", "").strip()[:_LONGEST_REASON])
        ),
        route("delete", lambda session, _: manager.delete(session), after="/sessions"),
    ]


def _changed(drop: DropDetail, form: Mapping[str, str]) -> tuple[str, ...]:
    """Return the parameters of a drop that have another value in a form, whose lines end as browsers send them."""
    posted = {name: form.get(f"{PREFIX}{name}", value).replace("\r\n", "\n") for name, value in drop.parameters.items()}
    return tuple(f"{name}={value}" for name, value in posted.items() if value != drop.parameters[name])


# The page from which a graph is submitted: its form posts the file to the translator of the cluster,
# as EAGLE does.
#
# Managers take physical graphs only. The page of the translator has the problems of the graph, a form
# of its parameters, its size and partition, and the button that runs it here.

_NO_COPY = "The session has no copy of a logical graph: it was submitted as a physical graph, whose values are fixed."
_NO_TRANSLATOR = (
    "No translator of this cluster is known here. Start the manager with --translator and its address, or use "
    "'dropflow submit --like' with --set."
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
