"""The pages of a manager and their ``.json`` twins, written against `dropflow.api.manager.Manager` only.

Complete without JavaScript; the scripts in ``static/`` only update open pages. A link changes nothing: a session is
changed by forms, which only pages of the same origin can post, with the page key (`dropflow.api.auth`).
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from dropflow.api.contents_answer import attachment
from dropflow.api.drop_records import FIRST_PAGE, DropDetail, DropQuery, PageQuery
from dropflow.api.logs import LogPage, LogQuery
from dropflow.api.manager import Manager
from dropflow.api.requests import DEFAULT_STATISTICS, ResumeRequest, RetryRequest, StatisticsQuery
from dropflow.api.routes import FORM, LONGEST_FORM_BYTES, Request, Response, Route, posted_fields
from dropflow.api.session_records import SessionDetail
from dropflow.errors import AmbiguousError, ConflictError, NotFoundError
from dropflow.formatting import with_plain_lines
from dropflow.preview.source import PICTURE_LIMIT, PreviewQuery, picture_type
from dropflow.states import STATUSES
from dropflow.times.executed import executed_picture, executed_trace
from dropflow.times.timeline_files import write_svg
from dropflow.web.frame import (
    STATIC,
    LogSource,
    PageTemplates,
    asked,
    asset_routes,
    page_response,
    redirect,
    shown_log,
    shown_name,
    streamed_page,
)
from dropflow.web.known_servers import KnownServers, hop_url
from dropflow.web.report import report_page, session_report
from dropflow.web.views import VALUE
from managers.state_hub import StateHub
from managers.web.logs import read_start
from managers.web.page_templates import (
    SESSIONS,
    causes_url,
    drop_url,
    drops_url,
    manager_templates,
    picture_url,
    quoted,
    session_api,
    session_tabs,
    session_url,
    timeline_url,
    view_page,
)
from managers.web.session_pages import compare_routes, graph_routes, origin_routes, read_analysis, result_routes
from managers.web.views import (
    DropPageQuery,
    DropView,
    ManagerView,
    NodeQuery,
    SessionQuery,
    SessionsView,
    SessionView,
    UseOf,
    causes_view,
    drop_view,
    line_plot,
    node_view,
    nodes_view,
    overview_view,
    plots_of,
    session_start,
    session_view,
    sessions_view,
    timeline_view,
)

_T = TypeVar("_T")
_U = TypeVar("_U")
_TWIN = ".json"
_BRIEF = "X-Brief"
_LONGEST_REASON = 200
"""Characters of the reason for which a session is cancelled."""


# The pages of the logs of sessions, drops and managers.


class LogView(ManagerView, frozen=True, kw_only=True):
    """A page of the log of a session, or of one of its drops."""

    session: SessionDetail
    query: LogQuery
    log: LogPage


class ManagerLogView(ManagerView, frozen=True, kw_only=True):
    """A page of the log of a manager."""

    node: str
    query: LogQuery
    log: LogPage


def log_routes(manager: Manager, templates: PageTemplates) -> list[Route]:
    """Return the routes of the logs of a session and of a manager, and of the same as JSON."""

    def view_of(call: Request) -> LogView:
        name, query = call.path["session"], msgspec.structs.replace(call.query, seconds=0.0)
        return LogView(
            manager=manager.info(),
            session=manager.session(name),
            query=query,
            log=manager.session_log(name, query),
        )

    def manager_view_of(call: Request) -> ManagerLogView:
        name, query = call.path["node"], msgspec.structs.replace(call.query, seconds=0.0)
        return ManagerLogView(manager=manager.info(), node=name, query=query, log=manager.manager_log(name, query))

    def page(call: Request) -> Response:
        view = view_of(call)
        return rendered(call, view, _source_of(view), session=view.session)

    def manager_page(call: Request) -> Response:
        view = manager_view_of(call)
        is_node = view.node in {node.name for node in manager.nodes()}
        home = f"/nodes/{quoted(view.node)}" if is_node else "/"
        source = LogSource(
            name=view.node,
            about="What the manager wrote, in the order of time (UTC)",
            crumbs=(("Nodes", "/nodes"), (shown_name(view.node, 80), home)),
            here="Nodes",
            page=f"/nodes/{quoted(view.node)}",
            api=f"/api/v1/nodes/{quoted(view.node)}",
            origin="Logger",
            is_live=True,
        )
        return rendered(call, view, source)

    def rendered(call: Request, view: LogView | ManagerLogView, source: LogSource, **more: object) -> Response:
        shown, twin = shown_log(source, view.query, view.log)
        return page_response(templates.render("log", manager=view.manager, twin=twin, **shown, **more), call)

    route = partial(Route, method="GET", query=LogQuery, tag="pages")
    return [
        route(path="/sessions/{session}/log", handler=page, summary="The log of a session."),
        route(path="/sessions/{session}/log.json", handler=view_of, summary="The log of a session as JSON."),
        route(path="/nodes/{node}/log", handler=manager_page, summary="The log of a manager."),
        route(path="/nodes/{node}/log.json", handler=manager_view_of, summary="The log of a manager as JSON."),
    ]


def _source_of(view: LogView) -> LogSource:
    """Return what the page of the log of a session has, or of one drop, if the query has its id."""
    session, drop = view.session, view.query.oid
    name = session.session
    crumbs = (*SESSIONS, (shown_name(name, 80), session_url(name)))
    return LogSource(
        name=drop or name,
        about=f"What {'the drop' if drop else 'all drops'} wrote, in the order of time (UTC)",
        heading="Log" if drop else name,
        crumbs=(*crumbs, (shown_name(drop, 80), drop_url(name, drop))) if drop else SESSIONS,
        tabs=() if drop else session_tabs(name),
        controls="" if drop else "session_actions.tpl",
        here="Sessions",
        page=session_url(name),
        api=session_api(name),
        nodes=() if drop else session.nodes,
        origin="" if drop else "Drop",
        ends=True,
        is_live=not session.is_over,
    )


_OWN = Path(__file__).with_name("static")


def page_routes(
    manager: Manager, hub: StateHub, servers: KnownServers | None = None, *, use_of: UseOf = lambda _: ()
) -> list[Route]:
    """Return the routes of all pages of a manager, and of their static files.

    Parameters
    ----------
    manager : Manager
        The manager that the pages show.
    hub : StateHub
        Reads the states of drops; that of ``/api/v1`` of the same server.
    servers : KnownServers, optional
        The other servers of the cluster.
    use_of : callable
        Returns what the users of sessions have and may have.
    """
    templates = manager_templates(servers)
    return [
        *_lists(manager, templates, use_of),
        *graph_routes(manager, templates, hub),
        *log_routes(manager, templates),
        *result_routes(manager, templates),
        *compare_routes(manager, templates),
        *origin_routes(manager, templates),
        *_details(manager, templates),
        *action_routes(manager),
        *launch_routes(manager, servers or KnownServers()),
        *asset_routes(STATIC, _OWN),
    ]


def _lists(manager: Manager, templates: PageTemplates, use_of: UseOf) -> list[Route]:
    def overview(call: Request) -> Response:
        view = overview_view(manager)
        return page_response(templates.render("overview", manager=view.manager, twin="/overview.json", view=view), call)

    def nodes(call: Request) -> Response:
        return view_page(templates, call, "nodes", nodes_view(manager, call.query), "/nodes", first=NodeQuery())

    def node(call: Request) -> Response:
        view = node_view(manager, call.path["node"])
        twin = f"/api/v1/nodes/{quoted(view.node.name)}/history"
        shown = {"view": view, "plots": plots_of(view.history, view.node.load)}
        return page_response(templates.render("node", manager=view.manager, twin=twin, **shown), call)

    def found_sessions(call: Request) -> SessionsView:
        return sessions_view(manager, call.query, use_of)

    def sessions(call: Request) -> Response:
        view = found_sessions(call)
        return view_page(templates, call, "sessions", view, "/sessions", first=SessionQuery(), statuses=STATUSES)

    return [
        _page("/", overview, "The manager, its nodes and its youngest sessions."),
        _page("/overview.json", lambda _: overview_view(manager), "The first page as JSON."),
        _page("/nodes", nodes, "All nodes with their load.", NodeQuery),
        _page("/nodes/{node}", node, "One node, and its load during the last hour."),
        _page("/nodes.json", lambda call: nodes_view(manager, call.query), "Nodes as JSON.", NodeQuery),
        _page("/sessions", sessions, "All sessions.", SessionQuery),
        _page("/sessions.json", found_sessions, "Sessions as JSON.", SessionQuery),
    ]


def _details(manager: Manager, templates: PageTemplates) -> list[Route]:
    def session(call: Request) -> object:
        query, is_brief = call.query, _BRIEF in call.headers

        def find(name: str) -> SessionView:
            return session_view(manager, name, query)

        def find_page(name: str) -> Response:
            # The logical nodes, most of the page, are left out if the client has them from the event stream.
            if is_brief or query.time:
                return page_response(_session_page(templates, find(name), is_brief=is_brief), call)
            start = session_start(manager, name, query)

            def page() -> str:
                return _session_page(templates, session_view(manager, name, query, start=start))

            shown = {"title": shown_name(name, 80), "here": "Sessions", "script": "session.js", "base": ""}
            frame = templates.render("layout", manager=manager.info(), twin=_session_twin(name, query), **shown)
            return streamed_page(frame, page, call)

        return _either(find_page, find_page, find, call.path["session"])[0]

    def drop(call: Request) -> object:
        def find(name: str) -> DropView:
            return drop_view(manager, call.path["session"], name, call.query)

        def find_whole(name: str) -> DropView:
            view = find(name)
            if view.drop.oid != name:  # the name of the twin may be the id of another drop
                raise NotFoundError(f"there is no drop {name!r}")
            return view

        view, is_twin = _either(find, find_whole, find_whole, call.path["drop"])
        return view if is_twin else page_response(_drop_page(templates, view), call)

    return [
        *_causes(manager, templates),
        *_timeline(manager, templates),
        _page("/sessions/{session}/report.html", lambda call: _report(manager, call), "A report as one file."),
        _page("/sessions/{session}", session, "One session; its twin is SESSION.json.", DropQuery),
        _page("/sessions/{session}/drops/{drop}", drop, "One drop; its twin is DROP.json.", DropPageQuery),
        _page(
            "/sessions/{session}/pictures/{drop}",
            lambda call: _picture(manager, call),
            "Content as a picture.",
            PreviewQuery,
        ),
    ]


def _causes(manager: Manager, templates: PageTemplates) -> list[Route]:
    def causes(call: Request) -> Response:
        view = causes_view(manager, call.path["session"], call.query)
        return view_page(templates, call, "causes", view, causes_url(view.session.session), first=FIRST_PAGE)

    def causes_twin(call: Request) -> object:
        return causes_view(manager, call.path["session"], call.query)

    return [
        _page("/sessions/{session}/causes", causes, "Root causes of failures.", PageQuery),
        _page(f"/sessions/{{session}}/causes{_TWIN}", causes_twin, "Root causes as JSON.", PageQuery),
    ]


def _timeline(manager: Manager, templates: PageTemplates) -> list[Route]:
    def timeline(call: Request) -> Response:
        view = timeline_view(manager, call.path["session"], call.query)
        name = view.session.session
        shown = {"view": view, "api": session_api(name), "time": call.query.time}
        twin = f"{timeline_url(name)}{_TWIN}{asked(call.query, DEFAULT_STATISTICS)}"
        return page_response(templates.render("timeline", manager=view.manager, twin=twin, **shown), call)

    def twin_of(call: Request) -> object:
        return timeline_view(manager, call.path["session"], call.query)

    return [
        _page(
            "/sessions/{session}/timeline", timeline, "When attempts ran, and why workers were idle.", StatisticsQuery
        ),
        _page(
            f"/sessions/{{session}}/timeline{_TWIN}", twin_of, "Statistics of the timeline as JSON.", StatisticsQuery
        ),
        _page("/sessions/{session}/timeline/trace.json", lambda call: _trace(manager, call), "A trace for Perfetto."),
        _page("/sessions/{session}/timeline/picture.svg", lambda call: _timeline_svg(manager, call), "As a picture."),
    ]


def _report(manager: Manager, call: Request) -> Response:
    name = call.path["session"]
    page = report_page(session_report(manager, name))
    # As a file: it has a style of its own, which pages of this server must not have.
    return Response(body=page, content_type="text/html; charset=utf-8", headers=(attachment(f"{name}-report.html"),))


def _trace(manager: Manager, call: Request) -> Response:
    name = call.path["session"]
    body = executed_trace(read_analysis(manager, name))
    return Response(body=body, content_type="application/json", headers=(attachment(f"{name}-trace.json"),))


def _timeline_svg(manager: Manager, call: Request) -> Response:
    name, stream = call.path["session"], BytesIO()
    write_svg(executed_picture(read_analysis(manager, name)), stream)
    headers = (attachment(f"{name}-timeline.svg"),)
    return Response(body=stream.getvalue(), content_type="image/svg+xml", headers=headers)


def _page(
    path: str, handler: Callable[[Request], object], summary: str, query: type[msgspec.Struct] | None = None
) -> Route:
    return Route(method="GET", path=path, handler=handler, summary=summary, query=query, tag="pages")


def _either(
    find: Callable[[str], _T], find_whole: Callable[[str], _T], find_twin: Callable[[str], _U], name: str
) -> tuple[_T | _U, bool]:
    """Return the page or twin of a name, and whether it is the twin: names may themselves end in ``.json``."""
    if name.endswith(_TWIN):
        with suppress(NotFoundError, AmbiguousError):
            return find_whole(name), False
        with suppress(NotFoundError, AmbiguousError):
            return find_twin(name.removesuffix(_TWIN)), True
    return find(name), False


def _session_page(templates: PageTemplates, view: SessionView, *, is_brief: bool = False) -> str:
    name, query = view.session.session, view.query

    def address(*, state: str = "", key: str = "", offset: int = 0, same: bool = False, sort: str | None = None) -> str:
        order = query.sort if sort is None else sort
        same_query = msgspec.structs.replace(query, offset=offset, sort=order)
        wanted = same_query if same else DropQuery(state=state, key=key, time=query.time)
        return drops_url(name, wanted)

    events = f"{session_api(name)}/events"
    shown_too = {"address": address, "events": events, "is_brief": is_brief}
    twin = _session_twin(name, query)
    return templates.render("session", manager=view.manager, twin=twin, view=view, **shown_too)


def _session_twin(name: str, query: DropQuery) -> str:
    shown = drops_url(name, query).removesuffix("#drops")
    return shown.replace(session_url(name), session_url(name) + _TWIN, 1)


def _drop_page(templates: PageTemplates, view: DropView) -> str:
    name, oid = view.session.session, view.drop.oid

    def address(offset: int) -> str:
        return drop_url(name, oid, msgspec.structs.replace(view.query, offset=offset))

    own = drop_url(name, oid)
    twin = drop_url(name, oid, view.query).replace(own, own + _TWIN, 1)
    shown: dict[str, object] = {"picture": picture_url(name, oid, view.query.look), "address": address}
    if view.data is not None and view.data.line is not None:
        shown["plot"] = line_plot(view.data.line)
    return templates.render("drop", manager=view.manager, twin=twin, view=view, **shown)


def _picture(manager: Manager, call: Request) -> Response:
    content = read_start(manager.picture(call.path["session"], call.path["drop"], call.query), PICTURE_LIMIT)
    kind = picture_type(content)
    if not kind:
        raise NotFoundError(f"the content of drop {call.path['drop']!r} is not a picture that a page can show")
    return Response(body=content, content_type=kind)


# What forms of pages do: resume, retry, pause, continue, cancel or delete a session; and where graphs are run from.


def action_routes(manager: Manager) -> list[Route]:
    """Return the routes that forms of pages post to, and which then lead to the session, or to the sessions."""

    def route(name: str, act: Callable[[str, Mapping[str, str]], object], after: str = "") -> Route:
        def handler(call: Request) -> Response:
            session = call.path["session"]
            act(session, dict(posted_fields(call.body, FORM)))
            return redirect(after or session_url(session))

        path, summary = f"/sessions/{{session}}/{name}", f"{name.capitalize()}, from a form of a page."
        return Route(
            method="POST", path=path, handler=handler, summary=summary, form=True, limit=LONGEST_FORM_BYTES, tag="pages"
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
    """Return the parameters of a drop that have another value in a form, apart from how their lines end."""
    known = {name: with_plain_lines(value) for name, value in drop.parameters.items()}
    posted = {name: with_plain_lines(form.get(f"{VALUE}{name}", value)) for name, value in known.items()}
    return tuple(f"{name}={value}" for name, value in posted.items() if value != known[name])


# The form that runs a graph is on the page of the translator, which knows the parameters of a logical graph.


def launch_routes(manager: Manager, servers: KnownServers) -> list[Route]:
    """Return the routes that lead to the form that runs a graph: a new one, or that of a session."""

    def launch(call: Request) -> Response:
        translator = next((server.url for server in servers.neighbours() if server.role == "translator"), "")
        if not translator:
            hint = (
                "start one with 'dropflow translator --to MANAGER', and this manager with --translator and its "
                "address; or use 'dropflow submit', with --like and --set for a session"
            )
            raise ConflictError("no translator of this cluster is known here", hint=hint)
        target = {"manager": servers.door() or manager.info().url}
        session = call.path.get("session", "")
        page = f"/like?{urlencode(target | {'session': session})}" if session else f"/?{urlencode(target)}"
        return redirect(hop_url(translator, page))

    route = partial(Route, method="GET", handler=launch, tag="pages")
    return [
        route(path="/submit", summary="To the form that runs a graph."),
        route(path="/sessions/{session}/clone", summary="To the form that runs the graph of a session again."),
    ]
