"""What people can do to a session from its page: cancel it, delete it.

Each is a page that asks first and posts to itself, so it works without JavaScript and no link can do harm. The guard of
the server lets only pages of the same origin post.
"""

from urllib.parse import parse_qs

import msgspec

from dropflow.rest.failures import HttpError
from dropflow.rest.kit import Answer, Call, Route
from managers.api import Manager
from managers.web.answers import page_answer, redirect
from managers.web.templates import Pages, session_url

__all__ = ["action_routes"]

_LONGEST_FORM = 16 * 1024
_LONGEST_REASON = 200


class _Question(msgspec.Struct, frozen=True):
    title: str
    consequence: str
    button: str
    asks_reason: bool = False


_CANCEL = _Question(
    "Cancel this session?",
    "Everything that is not settled becomes cancelled; attempts that run are stopped. Results that exist are kept.",
    "Cancel the session",
    asks_reason=True,
)
_DELETE = _Question(
    "Delete this session?",
    "It is stopped if it runs, and its results, logs and journal are removed from all nodes. There is no way back.",
    "Delete the session",
)


def action_routes(manager: Manager, pages: Pages) -> list[Route]:
    """The two questions, and what their answers do."""

    def ask(call: Call, question: _Question) -> Answer:
        info, session = manager.info(), manager.session(call.path["session"])
        page = pages.render("confirm", manager=info, session=session, **msgspec.structs.asdict(question))
        return page_answer(page, call)

    def cancel(call: Call) -> Answer:
        manager.cancel(call.path["session"], _reason(call.body))
        return redirect(session_url(call.path["session"]))

    def delete(call: Call) -> Answer:
        manager.delete(call.path["session"])
        return redirect("/sessions")

    cancels, deletes = "/sessions/{session}/cancel", "/sessions/{session}/delete"
    return [
        Route(
            method="GET", path=cancels, handler=lambda call: ask(call, _CANCEL), summary="Ask to cancel.", tag="pages"
        ),
        Route(method="POST", path=cancels, handler=cancel, summary="Cancel, and go to the session.", tag="pages"),
        Route(
            method="GET", path=deletes, handler=lambda call: ask(call, _DELETE), summary="Ask to delete.", tag="pages"
        ),
        Route(method="POST", path=deletes, handler=delete, summary="Delete, and go to the sessions.", tag="pages"),
    ]


def _reason(form: bytes) -> str:
    if len(form) > _LONGEST_FORM:
        raise HttpError(413, "the form is too large")
    try:
        fields = parse_qs(form.decode("ascii"), encoding="utf-8", errors="replace", max_num_fields=16)
    except (UnicodeDecodeError, ValueError) as error:
        raise HttpError(400, f"the form cannot be used: {error}") from error
    return fields.get("reason", [""])[0].strip()[:_LONGEST_REASON]
