"""Pages that pause, continue, resume, retry, run again, cancel or delete a session.

Each page asks first and posts to itself, so a link changes nothing. Only pages of the same origin can post, with the
page key (`dropflow.rest.server.auth`).
"""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.rest.operation_records import ResumeRequest, RetryRequest
from dropflow.rest.pages.page_layout import PageTemplates, page_response, redirect, shown_name
from dropflow.rest.server.posted_form import FORM, posted_fields
from dropflow.rest.server.route import Request, Response, Route
from managers.api import Manager
from managers.web.addresses import session_url
from managers.web.page_templates import drop_label

__all__ = ["action_routes"]

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
