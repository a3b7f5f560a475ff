"""Pages that pause, continue, resume, retry, run again, cancel or delete a session.

Each page asks first and posts to itself, so a link changes nothing. Only pages of the same origin can post, with the
page key (`dropflow.api.auth`).
"""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.api.openapi import FORM, Request, Response, Route, posted_fields
from dropflow.api.records import SubmitQuery
from dropflow.api.requests import ResumeRequest, RetryRequest
from dropflow.api.submission_note import options_of, without_past_walltime
from dropflow.clock import SystemClock
from dropflow.graph.notes import logical_of, planning_of
from dropflow.web.frame import PageTemplates, page_response, redirect, shown_name
from dropflow.web.places import Places
from managers.api import Manager
from managers.web.page_templates import drop_label, session_url

__all__ = [
    "action_routes",
    "submission_routes",
]


_LONGEST_FORM = 16 * 1024
_LONGEST_REASON = 200


class _Question(msgspec.Struct, frozen=True):
    title: str
    consequence: str
    button: str
    asks_reason: bool = False
    is_harmful: bool = False


class _RetryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The drop whose root cause is tried again, or from which the session runs again; none for all that failed."""

    drop: Annotated[str, Meta(max_length=1024)] = ""
    start: Annotated[str, Meta(max_length=1024)] = ""


_CANCEL = _Question(
    "Cancel this session?",
    "Drops that are not settled become cancelled, and running attempts are stopped. Results are kept.",
    "Cancel the session",
    asks_reason=True,
    is_harmful=True,
)
_PAUSE = _Question(
    "Pause this session?",
    "Nothing more is started. Running attempts go on, and the session can be continued.",
    "Pause the session",
)
_CONTINUE = _Question("Continue this session?", "What is ready is started again.", "Continue the session")
_RESUME = _Question(
    "Resume this session?",
    "It goes on under its name on those of its nodes that are there. What was committed is kept, and the rest runs.",
    "Resume the session",
)
_RETRY = _Question(
    "Try failed drops again?",
    "All drops that failed run again, and those that failed because of them, with all of their tries. Correct the "
    "cause first. What runs goes on. 'dropflow retry' tries single drops, and can change parameters.",
    "Try again",
)
_RETRY_ONE = _Question(
    "Try {} again?",
    "Its root cause runs again, and all that failed because of it, with all of their tries. Correct the cause first.",
    "Try again",
)
_AGAIN = _Question(
    "Run {} again?",
    "It runs again, and all that depends on it; their present results are replaced. Everything else stays as it is. "
    "Inputs whose contents are gone are made again. 'dropflow retry --from' takes several drops, and can change "
    "parameters.",
    "Run again",
)
_DELETE = _Question(
    "Delete this session?",
    "It is stopped if it runs, and its results, logs and journal are removed from all nodes. This cannot be undone.",
    "Delete the session",
    is_harmful=True,
)


def action_routes(manager: Manager, templates: PageTemplates) -> list[Route]:
    """Return the routes that ask, and those that do it."""

    def ask(call: Request, question: _Question) -> Response:
        info, session = manager.info(), manager.session(call.path["session"])
        page = templates.render("confirm", manager=info, session=session, **msgspec.structs.asdict(question))
        return page_response(page, call)

    def cancel(call: Request) -> Response:
        manager.cancel(call.path["session"], _reason(call.body))
        return redirect(session_url(call.path["session"]))

    def pause(call: Request) -> Response:
        manager.pause(call.path["session"])
        return redirect(session_url(call.path["session"]))

    def unpause(call: Request) -> Response:
        manager.unpause(call.path["session"])
        return redirect(session_url(call.path["session"]))

    def resume(call: Request) -> Response:
        manager.resume(call.path["session"], ResumeRequest())
        return redirect(session_url(call.path["session"]))

    def retry(call: Request) -> Response:
        one, start = call.query.drop, call.query.start
        request = RetryRequest(drops=(one,) if one and not start else (), start=(start,) if start else ())
        manager.retry(call.path["session"], request)
        return redirect(session_url(call.path["session"]))

    def ask_retry(call: Request) -> Response:
        named = call.query.start or call.query.drop
        if not named:
            return ask(call, _RETRY)
        question, found = _AGAIN if call.query.start else _RETRY_ONE, manager.drop(call.path["session"], named)
        title = question.title.format(shown_name(drop_label(found.name, found.oid), 80))
        return ask(call, msgspec.structs.replace(question, title=title))

    def delete(call: Request) -> Response:
        manager.delete(call.path["session"])
        return redirect("/sessions")

    page = partial(Route, method="GET", tag="pages")
    form = partial(Route, method="POST", form=True, limit=_LONGEST_FORM, tag="pages")
    cancels, deletes = "/sessions/{session}/cancel", "/sessions/{session}/delete"
    pauses, continues = "/sessions/{session}/pause", "/sessions/{session}/continue"
    resumes, retries = "/sessions/{session}/resume", "/sessions/{session}/retry"
    return [
        page(path=resumes, handler=lambda request: ask(request, _RESUME), summary="Ask to resume."),
        form(path=resumes, handler=resume, summary="Resume, and go to the session."),
        page(path=retries, handler=ask_retry, query=_RetryQuery, summary="Ask to run drops again."),
        form(path=retries, handler=retry, query=_RetryQuery, summary="Run drops again, and go to the session."),
        page(path=pauses, handler=lambda request: ask(request, _PAUSE), summary="Ask to pause."),
        form(path=pauses, handler=pause, summary="Pause, and go to the session."),
        page(path=continues, handler=lambda request: ask(request, _CONTINUE), summary="Ask to continue."),
        form(path=continues, handler=unpause, summary="Continue, and go to the session."),
        page(path=cancels, handler=lambda request: ask(request, _CANCEL), summary="Ask to cancel."),
        form(path=cancels, handler=cancel, summary="Cancel, and go to the session."),
        page(path=deletes, handler=lambda request: ask(request, _DELETE), summary="Ask to delete."),
        form(path=deletes, handler=delete, summary="Delete, and go to the sessions."),
    ]


def _reason(form: bytes) -> str:
    return dict(posted_fields(form, FORM)).get("reason", "").strip()[:_LONGEST_REASON]


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
