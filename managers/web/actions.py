"""What forms of pages do: resume, retry, pause, continue, cancel or delete a session; and where graphs are run from.

A link changes nothing. Only pages of the same origin can post, with the page key (`dropflow.api.auth`).
"""

from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import urlencode

from dropflow.api.manager import Manager
from dropflow.api.openapi import FORM, Request, Response, Route, posted_fields
from dropflow.api.records import DropDetail
from dropflow.api.requests import ResumeRequest, RetryRequest
from dropflow.errors import ConflictError
from dropflow.web.frame import redirect
from dropflow.web.places import Places, hop_url
from managers.web.page_templates import PREFIX, session_url

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


# The form that runs a graph is on the page of the translator, which knows the parameters of a logical graph.


def launch_routes(manager: Manager, places: Places) -> list[Route]:
    """Return the routes that lead to the form that runs a graph: a new one, or that of a session."""

    def launch(call: Request) -> Response:
        translator = next((place.url for place in places.neighbours() if place.role == "translator"), "")
        if not translator:
            hint = (
                "start one with 'dropflow translator --to MANAGER', and this manager with --translator and its "
                "address; or use 'dropflow submit', with --like and --set for a session"
            )
            raise ConflictError("no translator of this cluster is known here", hint=hint)
        target = {"manager": places.door() or manager.info().url}
        session = call.path.get("session", "")
        page = f"/like?{urlencode(target | {'session': session})}" if session else f"/?{urlencode(target)}"
        return redirect(hop_url(translator, page))

    route = partial(Route, method="GET", handler=launch, tag="pages")
    return [
        route(path="/submit", summary="To the form that runs a graph."),
        route(path="/sessions/{session}/clone", summary="To the form that runs the graph of a session again."),
    ]
