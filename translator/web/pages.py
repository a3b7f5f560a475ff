"""The translator's pages, complete without JavaScript: the form, the result of a translation, and its deployment.

EAGLE posts to `gen_pgt` from a page of another site. Like the upload it needs no token, because it only translates a
graph. It redirects to the page of the translation, so that reloading the page does not post again. The address of that
page has a random id, and needs no token either. Deploying and deleting need the login and a form of our own page; the
list of all translations needs the login.
"""

from functools import partial
from urllib.parse import urlencode

import msgspec

from dropflow.api.error_body import status_of, to_body
from dropflow.api.openapi import FORM, Request, Response, Route
from dropflow.errors import BadGraphError, DropflowError, HttpError, UsageError
from dropflow.failure import Problem
from dropflow.graph.codec import load
from dropflow.graph.physical import PhysicalGraph
from dropflow.ids import SESSION_NAME_HINT
from dropflow.sessions.options import SubmitOptions
from dropflow.web.frame import PageTemplates, page_response, redirect
from dropflow.web.graph_views import GraphSource, GraphViews
from dropflow.web.places import Places, login_url, split_target
from translator.options import DEFAULT_ALGORITHM
from translator.parameters import value_text
from translator.plan.registry import ALGORITHMS
from translator.repository import fetch_file, is_repository_address, list_graphs, parse_address
from translator.web.api_v1 import download_routes
from translator.web.daliuge import read_eagle
from translator.web.forms import Form, read_form, whole_number
from translator.web.page_templates import noted_submission, option_fields, posted_submission
from translator.web.records import DeployRequest, FillRequest, RepartitionRequest, TranslateQuery, TranslationInfo
from translator.web.service import TranslatorService

__all__ = [
    "graph_routes",
    "page_routes",
]


# The picture of the physical graph of a translation: its page, and what the page's script asks for.
#
# As the page of the translation, they need no token: the address has a random id.

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


_CHOICES = (DEFAULT_ALGORITHM, *(name for name in ALGORITHMS if name != DEFAULT_ALGORITHM))
"""The algorithms in forms, the default first."""

_PATIENCE = 0.8
"""Seconds that a page waits for the end of a translation, which is enough for most."""

_ROWS = 200
_VALUE = "value-"
"""Prefix of the fields that hold values of parameters."""
_PARAMETERS = 90
"""Parameters in a form; `translator.web.forms` allows a hundred fields."""
_LONGEST_FORM = 64 * 1024
_MOST = 2**31 - 1


class _ShowQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The manager that is selected in the form of deployment."""

    manager: str = ""


def page_routes(service: TranslatorService, places: Places, templates: PageTemplates) -> list[Route]:
    """Return the routes of the pages; `places` are the servers that they link to."""
    handlers = _PageHandlers(service, places, templates)
    one = "/translations/{translation}"

    page = partial(Route, method="GET", public=True, gives="text/html", tag="pages")
    form = partial(page, method="POST", takes=FORM)
    # Anybody may post a graph, which may be large. A form that changes something is small, and of our own pages only.
    graph = partial(form, limit=service.limits.body)
    change = partial(form, public=False, form=True, limit=_LONGEST_FORM)
    back = partial(page, handler=handlers.back, summary="To its page, after a login.")
    return [
        page(path="/", handler=handlers.start, summary="A form to translate a graph."),
        page(path="/gen_pgt", handler=lambda _: redirect("/"), summary="To the form: EAGLE posts."),
        graph(
            path="/gen_pgt", handler=handlers.eagle, summary="Translate the graph that EAGLE posts.", cross_site=True
        ),
        page(path="/translations", handler=handlers.every, summary="All translations.", public=False),
        page(path="/repositories", handler=lambda _: redirect("/"), summary="To the form, after a login."),
        change(
            path="/repositories",
            handler=handlers.repository,
            summary="Translate a graph in a git repository, or list the graphs of the repository.",
        ),
        graph(path="/translations", handler=handlers.upload, summary="Translate an uploaded graph."),
        # Before the page, whose variable would match it too.
        page(path=f"{one}.json", handler=handlers.twin, summary="As JSON.", gives="application/json"),
        page(path=one, handler=handlers.show, summary="The translation of a graph.", query=_ShowQuery),
        *graph_routes(service, templates),
        *download_routes(service, page, one),
        *(back(path=f"{one}/{form_of}") for form_of in ("partition", "fill", "deploy", "delete")),
        form(path=f"{one}/partition", handler=handlers.partition, summary="Translate it again, with other parts."),
        form(path=f"{one}/fill", handler=handlers.fill, summary="Translate it again, with values for its parameters."),
        change(path=f"{one}/deploy", handler=handlers.deploy, summary="Start a session with it, and go there."),
        change(path=f"{one}/delete", handler=handlers.delete, summary="Stop and delete it."),
    ]


def _address(info: TranslationInfo) -> str:
    return f"/translations/{info.id}"


class _PageHandlers:
    """The handlers of the pages."""

    def __init__(self, service: TranslatorService, places: Places, templates: PageTemplates) -> None:
        self._service = service
        self._places = places
        self._templates = templates

    def start(self, call: Request) -> Response:
        page = self._templates.render("start", algorithms=_CHOICES, limits=self._service.limits)
        return page_response(page, call)

    def every(self, call: Request) -> Response:
        return page_response(self._templates.render("list", translations=self._service.all()), call)

    def eagle(self, call: Request) -> Response:
        form = _form(call)
        source, query, notes = read_eagle(form)
        more: list[Problem] = []
        submission = noted_submission(form, self._service.now(), more)
        address = _address(self._service.submit(source, query, notes=(*notes, *more), submission=submission))
        wanted = form.text("manager")
        if wanted in self._service.deployer.managers:  # the manager whose page posted the form is selected
            address += f"?{urlencode({'manager': wanted})}"
        return redirect(address)

    def upload(self, call: Request) -> Response:
        form = _form(call)
        source, name = form.fields.get("graph", b""), form.files.get("graph", "")
        pasted = form.fields.get("text", b"")
        if not source.strip():
            source, name = pasted, form.text("name")
        if not source.strip():
            raise HttpError(400, "no graph was chosen", hint="choose a file, or paste the text of a graph")
        found: list[Problem] = []
        query = TranslateQuery(
            name=(form.text("name") or name)[-200:],
            algorithm=form.text("algorithm")[:40] or DEFAULT_ALGORITHM,
            parts=whole_number(form, "parts", 1, least=1, most=_MOST, found=found),
            imbalance=_percentage(form),
            configuration=form.text("configuration")[:200],
            settings=form.text("settings"),
        )
        return redirect(_address(self._service.submit(source, query, notes=found)))

    def repository(self, call: Request) -> Response:
        form = _form(call)
        text = form.text("address")[:2048].strip()
        if not is_repository_address(text):
            hint = "give git+https://HOST/ORG/REPO, or the address of a page of a file at GitHub or GitLab"
            raise HttpError(400, f"{text[:200]!r} is no address of a repository", where="address", hint=hint)
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
        return self._shown(call, info, wanted=call.query.manager)

    def _shown(
        self,
        call: Request,
        info: TranslationInfo,
        *,
        wanted: str = "",
        session: str = "",
        submission: SubmitOptions | None = None,
        refused: DropflowError | None = None,
    ) -> Response:
        managers = self._service.deployer.managers
        page = self._templates.render(
            "translation",
            twin=f"{_address(info)}.json",
            refresh=0 if info.is_over else 1,
            info=info,
            report=info.report,
            managers=managers,
            wanted=wanted,
            session=session,
            options=option_fields(submission or info.submission),
            is_usual=(submission or info.submission) == SubmitOptions(),
            algorithms=_CHOICES,
            rows=_ROWS,
            prefix=_VALUE,
            most_parameters=_PARAMETERS,
            refused=to_body(refused) if refused else None,
        )
        return page_response(
            page,
            call,
            form_targets=[*map(self._places.browser_url, managers)],
            status=status_of(refused) if refused else 200,
        )

    def twin(self, call: Request) -> TranslationInfo:
        return self._service.get(call.path["translation"])

    def back(self, call: Request) -> Response:
        return redirect(_address(self._service.get(call.path["translation"])))

    def partition(self, call: Request) -> Response:
        form = _form(call)
        info = self._service.get(call.path["translation"])
        found: list[Problem] = []
        known = msgspec.structs.asdict(
            self._service.options(info.id)
        )  # also what EAGLE sent, and the form does not show
        chosen = {
            "algorithm": form.text("algorithm")[:40] or DEFAULT_ALGORITHM,
            "parts": whole_number(form, "parts", 1, least=1, most=_MOST, found=found),
            "imbalance": _percentage(form),
        }
        request = RepartitionRequest(compare=form.text("compare") == "yes", **known | chosen)
        if found:
            return self._shown(call, info, refused=BadGraphError(found[0].text, hint=found[0].hint))
        return redirect(_address(self._service.partition(info.id, request)))

    def fill(self, call: Request) -> Response:
        form = _form(call)
        info = self._service.get(call.path["translation"])
        asked = info.report.form if info.report is not None else None
        values: dict[str, str | int | float | bool | None] = {}
        for one in asked.parameters if asked is not None else ():
            text = form.text(f"{_VALUE}{one.name}")
            if text != value_text(one.value):  # what is not changed stays that of the graph, or of its configuration
                values[one.name] = text
        request = FillRequest(values=values, configuration=form.text("configuration")[:200])
        return redirect(_address(self._service.fill(info.id, request)))

    def deploy(self, call: Request) -> Response:
        form = _form(call)
        info = self._service.get(call.path["translation"])
        found: list[Problem] = []
        submission = posted_submission(form, info.submission, found)
        shown = partial(
            self._shown,
            call,
            info,
            wanted=form.text("manager")[:1024],
            session=form.text("session")[:100],
            submission=submission,
        )
        if found:
            return shown(refused=UsageError("; ".join(one.text for one in found), hint=found[0].hint))
        try:
            request = msgspec.convert(
                {
                    "manager": form.text("manager"),
                    "session": form.text("session"),
                    "spread": form.text("spread") == "yes",
                    **msgspec.structs.asdict(submission),
                },
                DeployRequest,
            )
            return redirect(self._entrance(self._service.deploy(info.id, request).url))
        except msgspec.ValidationError:
            text = f"{form.text('session')[:100]!r} cannot be the name of a session"
            return shown(refused=UsageError(text, hint=SESSION_NAME_HINT))
        except DropflowError as error:
            return shown(refused=error)

    def _entrance(self, url: str) -> str:
        """Return an address that opens a page of a manager and signs in, since the form had the page key."""
        manager, path = split_target(url)
        base = self._places.browser_url(manager)
        try:
            return login_url(base, self._places.ticket(manager), path)
        except DropflowError:
            return base + path  # the manager asks for its own token

    def delete(self, call: Request) -> Response:
        self._service.delete(call.path["translation"])
        return redirect("/translations")


def _form(call: Request) -> Form:
    return read_form(call.body, call.headers.get("Content-Type", ""))


def _percentage(form: Form) -> float | None:
    text = form.text("imbalance") or "1"
    try:
        return msgspec.convert({"imbalance": text}, RepartitionRequest, strict=False).imbalance
    except msgspec.ValidationError as error:
        hint = "give a percentage from 0 to 1000"
        raise HttpError(400, f"{text[:40]!r} is not an imbalance", where="imbalance", hint=hint) from error
