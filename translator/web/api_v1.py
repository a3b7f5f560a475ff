"""The translator's part of ``/api/v1``: translations, their graphs, and deploying them."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from dropflow.api.contents_answer import attachment
from dropflow.api.requests import Done
from dropflow.api.routes import Request, Response, Route
from dropflow.errors import GoneError
from translator.web.export import ExportForm
from translator.web.records import (
    Deployed,
    DeployRequest,
    FillRequest,
    RepartitionRequest,
    TranslateQuery,
    TranslationInfo,
    TranslationList,
    WaitQuery,
)
from translator.web.translator_service import TranslatorService

_EXPORTS: Mapping[str, tuple[ExportForm, str]] = MappingProxyType(
    {
        "graph.dot": ("dot", "text/vnd.graphviz"),
        "graph.graphml": ("graphml", "application/xml"),
        "graph.csv": ("csv", "text/csv"),
        "graph.edges.csv": ("edges.csv", "text/csv"),
    }
)
"""Downloads for other programs: their name in an address, what writes them, and their type."""
_OCTETS = "application/octet-stream"
_ONE = "/api/v1/translations/{translation}"

# Downloads of a translation, with names that are safe for browsers.


def download_routes(service: TranslatorService, route: Callable[..., Route], at: str) -> list[Route]:
    """Return the routes of the downloads of a translation, below the address `at`; `route` makes one of them."""
    return [
        route(
            path=f"{at}/graph.dfg",
            handler=partial(_dfg_file, service),
            summary="The physical graph as a .dfg file.",
            gives=_OCTETS,
        ),
        route(
            path=f"{at}/pg.json",
            handler=partial(_pg_json, service),
            summary="The physical graph as a list of drops.",
            gives="application/json",
        ),
        *(
            route(
                path=f"{at}/{file}",
                handler=partial(_exported, service, form, content_type),
                summary=f"The physical graph for other programs: {form}.",
                gives=content_type,
            )
            for file, (form, content_type) in _EXPORTS.items()
        ),
        route(
            path=f"{at}/source",
            handler=partial(_source_file, service),
            summary="The graph as it was sent.",
            gives=_OCTETS,
        ),
    ]


def _dfg_file(service: TranslatorService, call: Request) -> Response:
    return _file(service, call, service.graph(call.path["translation"]), "dfg")


def _source_file(service: TranslatorService, call: Request) -> Response:
    # Never a type that a browser would show: the content comes from an unknown client.
    return _file(service, call, service.source(call.path["translation"]), "graph")


def _pg_json(service: TranslatorService, call: Request) -> Response:
    identity = call.path["translation"]
    name = service.get(identity).name
    return Response(body=service.export(identity), headers=(attachment(f"{name}.pg.json"),))


def _exported(service: TranslatorService, form: ExportForm, content_type: str, call: Request) -> Response:
    identity = call.path["translation"]
    headers = (attachment(f"{service.get(identity).name}.{form}"),)
    return Response(body=service.export(identity, form=form), content_type=content_type, headers=headers)


def _file(service: TranslatorService, call: Request, path: Path, ending: str) -> Response:
    """Return a file of a translation, byte for byte."""
    name = service.get(call.path["translation"]).name
    try:
        body = path.open("rb")
    except FileNotFoundError as error:
        raise GoneError("the translation has been removed meanwhile", hint="translate the graph again") from error
    return Response(body=body, content_type=_OCTETS, headers=(attachment(f"{name}.{ending}"),))


def api_v1_routes(service: TranslatorService) -> list[Route]:
    """Return the routes for programs. All need the token, and none accepts requests of pages of other sites."""

    def add(call: Request) -> TranslationInfo:
        query: TranslateQuery = call.query
        info = service.submit(call.body, query)
        return service.get(info.id, seconds=query.seconds) if query.seconds else info

    def delete(call: Request) -> Done:
        service.delete(call.path["translation"])
        return Done()

    route = partial(Route, tag="translator")
    graph = partial(route, answer=TranslationInfo, status=202)
    return [
        graph(
            method="POST",
            path="/api/v1/translations",
            handler=add,
            summary="Translate the graph in the body: a logical graph, a list of drops, or a .dfg container.",
            query=TranslateQuery,
            limit=service.limits.body,
            takes="application/octet-stream",
        ),
        route(
            method="GET",
            path="/api/v1/translations",
            handler=lambda _: TranslationList(translations=service.all()),
            summary="All translations that are kept, the youngest first, without their reports.",
            answer=TranslationList,
        ),
        route(
            method="GET",
            path=_ONE,
            handler=lambda call: service.get(call.path["translation"], seconds=call.query.seconds),
            summary="One translation: its state, and its report once it has ended.",
            query=WaitQuery,
            answer=TranslationInfo,
        ),
        route(method="DELETE", path=_ONE, handler=delete, summary="Stop and delete it.", answer=Done),
        *download_routes(service, partial(route, method="GET"), _ONE),
        graph(
            method="POST",
            path=f"{_ONE}/partition",
            handler=lambda call: service.again(call.path["translation"], partition=call.body),
            summary="Translate the same graph again, with another partition.",
            body=RepartitionRequest,
        ),
        graph(
            method="POST",
            path=f"{_ONE}/fill",
            handler=lambda call: service.again(call.path["translation"], fill=call.body),
            summary="Translate the same graph again, with values for its parameters: those of the form in its report.",
            body=FillRequest,
        ),
        route(
            method="POST",
            path=f"{_ONE}/deploy",
            handler=lambda call: service.deploy(call.path["translation"], call.body),
            summary="Start a session with its graph at one of the managers that the translator was started with.",
            body=DeployRequest,
            answer=Deployed,
            status=201,
        ),
    ]
