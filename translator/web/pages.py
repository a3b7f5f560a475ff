"""The translator's pages, complete without JavaScript: a graph is given, its translation is shown, changed and run.

EAGLE posts to `gen_pgt` from a page of another site. Like the upload it needs no token, because it only translates a
graph. It redirects to the page of the translation, so that reloading the page does not post again. The address of that
page has a random id, and needs no token either. Deploying and deleting need the login and a form of our own page; the
list of all translations needs the login, and so does what reads the graph of a session.
"""

from functools import partial
from typing import Literal
from urllib.parse import urlencode

import msgspec

from dropflow.api.error_body import status_of, to_body
from dropflow.api.routes import FORM, LONGEST_FORM_BYTES, Request, Response, Route
from dropflow.errors import DropflowError, HttpError, UsageError
from dropflow.failure import Problem
from dropflow.graph.codec import load
from dropflow.graph.physical import PhysicalGraph
from dropflow.ids import SESSION_NAME_HINT
from dropflow.session_options import SubmitOptions
from dropflow.web.frame import PageTemplates, page_response, redirect
from dropflow.web.graph_views import GraphSource, GraphViews
from dropflow.web.known_servers import KnownServers, login_url, split_target
from dropflow.web.views import Listed, listed
from translator.problem_codes import BAD_PARTITION, problem
from translator.repository import fetch_file, is_repository_address, list_graphs, parse_address
from translator.web.api_v1 import download_routes
from translator.web.daliuge import read_eagle
from translator.web.forms import Form, form_of
from translator.web.launch_form import launch_groups, posted_submission, posted_values
from translator.web.records import (
    DeployRequest,
    FillRequest,
    Forecast,
    RepartitionRequest,
    TranslateQuery,
    TranslationInfo,
)
from translator.web.translator_service import TranslatorService

_GROUPINGS = (("construct", "by construct"), ("template", "by logical node"), ("part", "by part"))
_PATIENCE = 0.8
"""Seconds that a page waits for the end of a translation, which is enough for most."""
_SHOWN_ROWS = 200
"""Rows of a table that the page of a translation shows."""
_SHOWN_PARTS = 64
"""Parts of the partition that it shows."""

# The picture of the physical graph of a translation: its page, and what the page's script asks for.
#
# As the page of the translation, they need no token: the address has a random id.


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


class _ShowQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A manager, and the name of a session: in the form that runs a translation, or of one that there is."""

    manager: str = ""
    session: str = ""


def page_routes(service: TranslatorService, servers: KnownServers, templates: PageTemplates) -> list[Route]:
    """Return the routes of the pages; `servers` are the servers that they link to."""
    handlers = _PageHandlers(service, servers, templates)
    translation_path = "/translations/{translation}"

    page = partial(Route, method="GET", public=True, gives="text/html", tag="pages")
    form = partial(page, method="POST", takes=FORM)
    # Anybody may post a graph, which may be large. A form that changes something is small, and of our own pages only.
    graph = partial(form, limit=service.limits.body)
    change = partial(form, public=False, form=True, limit=LONGEST_FORM_BYTES)
    back = partial(page, handler=handlers.back, summary="To its page, after a login.")
    return [
        page(path="/", handler=handlers.start, summary="A form to translate a graph.", query=_ShowQuery),
        page(path="/gen_pgt", handler=lambda _: redirect("/"), summary="To the form: EAGLE posts."),
        graph(
            path="/gen_pgt", handler=handlers.eagle, summary="Translate the graph that EAGLE posts.", cross_site=True
        ),
        page(path="/translations", handler=handlers.every, summary="All translations.", public=False),
        page(
            path="/like",
            handler=handlers.like,
            summary="Translate the graph of a session again, to change and run it.",
            query=_ShowQuery,
            public=False,
        ),
        page(path="/repositories", handler=lambda _: redirect("/"), summary="To the form, after a login."),
        change(
            path="/repositories",
            handler=handlers.repository,
            summary="Translate a graph in a git repository, or list the graphs of the repository.",
        ),
        graph(path="/translations", handler=handlers.upload, summary="Translate an uploaded graph."),
        # Before the page, whose variable would match it too.
        page(path=f"{translation_path}.json", handler=handlers.twin, summary="As JSON.", gives="application/json"),
        page(path=translation_path, handler=handlers.show, summary="The translation of a graph.", query=_ShowQuery),
        *graph_routes(service, templates),
        *download_routes(service, page, translation_path),
        *(back(path=f"{translation_path}/{form_of}") for form_of in ("again", "deploy", "forecast", "delete")),
        form(
            path=f"{translation_path}/again",
            handler=partial(handlers.launch, aim="again"),
            summary="Translate it again, with other values or parts.",
            limit=LONGEST_FORM_BYTES,
        ),
        change(
            path=f"{translation_path}/deploy",
            handler=partial(handlers.launch, aim="deploy"),
            summary="Start a session with it, and go there.",
        ),
        change(
            path=f"{translation_path}/forecast",
            handler=partial(handlers.launch, aim="forecast"),
            summary="Show what a session with it would run, and what it would reuse.",
        ),
        change(path=f"{translation_path}/delete", handler=handlers.delete, summary="Stop and delete it."),
    ]


def _address(info: TranslationInfo, **selected: str) -> str:
    """Return the page of a translation, with what is selected in its form."""
    given = {name: value for name, value in selected.items() if value}
    return f"/translations/{info.id}" + (f"?{urlencode(given)}" if given else "")


class _PageHandlers:
    """The handlers of the pages."""

    def __init__(self, service: TranslatorService, servers: KnownServers, templates: PageTemplates) -> None:
        self._service = service
        self._servers = servers
        self._templates = templates

    def start(self, call: Request) -> Response:
        page = self._templates.render("start", limits=self._service.limits, manager=call.query.manager)
        return page_response(page, call)

    def like(self, call: Request) -> Response:
        manager = call.query.manager
        return redirect(_address(self._service.like(manager, call.query.session), manager=manager))

    def every(self, call: Request) -> Response:
        return page_response(self._templates.render("list", translations=self._service.all()), call)

    def eagle(self, call: Request) -> Response:
        form = form_of(call)
        source, query, notes = read_eagle(form)
        return redirect(_address(self._service.submit(source, query, notes=notes)))

    def upload(self, call: Request) -> Response:
        form = form_of(call)
        source, name = form.fields.get("graph", b""), form.files.get("graph", "")
        pasted = form.fields.get("text", b"")
        if not source.strip():
            source, name = pasted, form.text("name")
        if not source.strip():
            raise HttpError(400, "no graph was chosen", hint="choose a file, or paste the text of a graph")
        info = self._service.submit(source, TranslateQuery(name=(form.text("name") or name)[-200:]))
        return redirect(_address(info, manager=form.text("manager")[:1024]))

    def repository(self, call: Request) -> Response:
        form = form_of(call)
        text = form.text("address")[:2048].strip()
        if not is_repository_address(text):
            hint = "give git+https://HOST/ORG/REPO, or the address of a page of a file at GitHub or GitLab"
            raise HttpError(400, f"{text[:200]!r} is not an address of a repository", where="address", hint=hint)
        address = parse_address(text)
        if address.url.startswith("file:"):
            raise HttpError(
                400, "files of the translator's host are not read", where="address", hint="use dropflow submit"
            )
        if not address.is_file:
            page = self._templates.render("repository", address=address.shown, found=list_graphs(text))
            return page_response(page, call)
        read = fetch_file(text)
        info = self._service.submit(read.content, TranslateQuery(name=read.name[-200:]), repository=read.note)
        return redirect(_address(info))

    def show(self, call: Request) -> Response:
        info = self._service.get(call.path["translation"], seconds=_PATIENCE)
        return self._shown(call, info, wanted=call.query.manager, session=call.query.session)

    def _shown(
        self,
        call: Request,
        info: TranslationInfo,
        *,
        wanted: str = "",
        session: str = "",
        submission: SubmitOptions | None = None,
        refused: DropflowError | None = None,
        forecast: Forecast | None = None,
    ) -> Response:
        managers, report = self._service.deployer.managers, info.report
        measures = report.measures if report else None
        groups = launch_groups(
            info,
            submission or info.submission,
            managers=managers,
            manager=wanted if wanted in managers else "",
            session=session,
        )
        page = self._templates.render(
            "translation",
            twin=f"{_address(info)}.json",
            refresh=0 if info.is_over else 1,
            info=info,
            report=report,
            managers=managers,
            groups=groups,
            nodes=listed(report.nodes, _SHOWN_ROWS) if report else None,
            links=listed(report.links, _SHOWN_ROWS) if report else None,
            loads=Listed(rows=measures.loads[:_SHOWN_PARTS], total=measures.parts) if measures else None,
            refused=to_body(refused) if refused else None,
            forecast=forecast,
            forecast_nodes=listed(forecast.nodes, _SHOWN_ROWS) if forecast else None,
            reuses=(submission or info.submission).reuse,
        )
        return page_response(
            page,
            call,
            form_targets=[*map(self._servers.browser_url, managers)],
            status=status_of(refused) if refused else 200,
        )

    def twin(self, call: Request) -> TranslationInfo:
        return self._service.get(call.path["translation"])

    def back(self, call: Request) -> Response:
        return redirect(_address(self._service.get(call.path["translation"])))

    def _changed(
        self, form: Form, info: TranslationInfo, submission: SubmitOptions, problems: list[Problem]
    ) -> TranslationInfo:
        """Return the translation with what a form changes; a field that is not posted changes nothing."""
        template = info.report.form if info.report is not None else None
        fill = None
        if template is not None:
            configuration = form.text("configuration", template.configuration)[:200]
            fill = FillRequest(values=posted_values(form, template), configuration=configuration)
        known = msgspec.structs.asdict(self._service.options(info.id))  # also what EAGLE sent, and no form shows
        shown = {"algorithm": info.algorithm, "parts": str(info.parts), "imbalance": f"{info.imbalance:g}"}
        changed = {name: form.text(name, text)[:40] for name, text in shown.items() if form.text(name, text) != text}
        try:
            partition = msgspec.convert(
                known | changed | {"compare": form.text("compare") == "yes"}, RepartitionRequest, strict=False
            )
        except msgspec.ValidationError as error:
            hint = "give a whole number of parts, and an imbalance from 0 to 1000"
            problems.append(problem(BAD_PARTITION, f"the partition cannot be used: {error}", where="parts", hint=hint))
        return info if problems else self._service.again(info.id, fill=fill, partition=partition, submission=submission)

    def launch(self, call: Request, *, aim: Literal["again", "deploy", "forecast"]) -> Response:
        form = form_of(call)
        info = self._service.get(call.path["translation"])
        problems: list[Problem] = []
        submission = posted_submission(form, info.submission, problems)
        made = self._changed(form, info, submission, problems)
        manager, session = form.text("manager")[:1024], form.text("session")[:100]
        shown = partial(self._shown, call, info, wanted=manager, session=session, submission=submission)
        if problems:
            return shown(refused=UsageError("; ".join(finding.text for finding in problems), hint=problems[0].hint))
        if aim == "again" or self._service.get(made.id, seconds=self._service.limits.seconds).state != "done":
            return redirect(_address(made, manager=manager, session=session))
        given = {"manager": manager, "session": session, "spread": form.text("spread") == "yes"}
        try:
            if aim == "forecast":
                return self._shown(
                    call,
                    self._service.get(made.id),
                    wanted=manager,
                    session=session,
                    submission=submission,
                    forecast=self._service.forecast(made.id, manager, submission),
                )
            request = msgspec.convert(given | msgspec.structs.asdict(submission), DeployRequest)
            return redirect(self._entrance(self._service.deploy(made.id, request).url))
        except msgspec.ValidationError:
            text = f"{session!r} cannot be the name of a session"
            return shown(refused=UsageError(text, hint=SESSION_NAME_HINT))
        except DropflowError as error:
            return shown(refused=error)

    def _entrance(self, url: str) -> str:
        """Return an address that opens a page of a manager and signs in, since the form had the page key."""
        manager, path = split_target(url)
        base = self._servers.browser_url(manager)
        try:
            return login_url(base, self._servers.ticket(manager), path)
        except DropflowError:
            return base + path  # the manager asks for its own token

    def delete(self, call: Request) -> Response:
        self._service.delete(call.path["translation"])
        return redirect("/translations")
