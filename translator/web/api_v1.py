"""The translator's part of ``/api/v1``: translations, their graphs, and deploying them."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from dropflow.api.content_disposition import attachment
from dropflow.api.openapi import Request, Response, Route
from dropflow.api.requests import Done
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
from translator.web.service import TranslatorService

__all__ = [
    "EXPORTS",
    "api_v1_routes",
    "dfg_file",
    "exported",
    "pg_json",
    "source_file",
]


# Downloads of a translation, with names that are safe for browsers.

EXPORTS: Mapping[str, tuple[ExportForm, str]] = MappingProxyType(
    {
        "graph.dot": ("dot", "text/vnd.graphviz"),
        "graph.graphml": ("graphml", "application/xml"),
        "graph.csv": ("csv", "text/csv"),
        "graph.edges.csv": ("edges.csv", "text/csv"),
    }
)
"""Downloads for other programs: their name in an address, what writes them, and their type."""


def dfg_file(service: TranslatorService, identity: str) -> Response:
    """Return the physical graph as a ``.dfg`` container. Raises as `TranslatorService.graph`."""
    path = service.graph(identity)
    name = service.get(identity).name
    return Response(
        body=_opened(path),
        content_type="application/octet-stream",
        headers=(attachment(f"{name}.dfg"),),
    )


def pg_json(service: TranslatorService, identity: str) -> Response:
    """Return the physical graph in DALiuGE's JSON, streamed. Raises as `TranslatorService.export`."""
    name = service.get(identity).name
    return Response(body=service.export(identity), headers=(attachment(f"{name}.pg.json"),))


def exported(service: TranslatorService, file: str, call: Request) -> Response:
    """Return one of `EXPORTS`, streamed. Raises as `TranslatorService.export`."""
    identity = call.path["translation"]
    form, content_type = EXPORTS[file]
    name = service.get(identity).name
    headers = (attachment(f"{name}.{form}"),)
    return Response(body=service.export(identity, form=form), content_type=content_type, headers=headers)


def source_file(service: TranslatorService, identity: str) -> Response:
    """Return the source, byte for byte. Raises as `TranslatorService.source`."""
    path = service.source(identity)
    name = service.get(identity).name
    # Never a type that a browser would show: the content comes from an unknown client.
    return Response(body=_opened(path), content_type="application/octet-stream", headers=(attachment(f"{name}.graph"),))


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise GoneError("the translation has been removed meanwhile", hint="translate the graph again") from error


_ONE = "/api/v1/translations/{translation}"


def api_v1_routes(service: TranslatorService) -> list[Route]:
    """Return the routes for programs. All need the token, and none accepts requests of pages of other sites."""
    handlers = _ApiHandlers(service)
    route = partial(Route, tag="translator")
    graph = partial(route, answer=TranslationInfo, status=202)
    download = partial(route, method="GET", gives="application/octet-stream")
    return [
        graph(
            method="POST",
            path="/api/v1/translations",
            handler=handlers.add,
            summary="Translate the graph in the body: a logical graph, a list of drops, or a .dfg container.",
            query=TranslateQuery,
            limit=service.limits.body,
            takes="application/octet-stream",
        ),
        route(
            method="GET",
            path="/api/v1/translations",
            handler=handlers.every,
            summary="All translations that are kept, the youngest first, without their reports.",
            answer=TranslationList,
        ),
        route(
            method="GET",
            path=_ONE,
            handler=handlers.one,
            summary="One translation: its state, and its report once it has ended.",
            query=WaitQuery,
            answer=TranslationInfo,
        ),
        route(method="DELETE", path=_ONE, handler=handlers.delete, summary="Stop and delete it.", answer=Done),
        download(path=f"{_ONE}/graph.dfg", handler=handlers.dfg, summary="The physical graph as a .dfg file."),
        download(
            path=f"{_ONE}/pg.json",
            handler=handlers.pg,
            summary="The physical graph as a list of drops.",
            gives="application/json",
        ),
        *(
            download(
                path=f"{_ONE}/{file}",
                handler=partial(exported, service, file),
                summary=f"The physical graph for other programs: {form}.",
                gives=content_type,
            )
            for file, (form, content_type) in EXPORTS.items()
        ),
        download(path=f"{_ONE}/source", handler=handlers.source, summary="The graph as it was sent."),
        graph(
            method="POST",
            path=f"{_ONE}/partition",
            handler=handlers.partition,
            summary="Translate the same graph again, with another partition.",
            body=RepartitionRequest,
        ),
        graph(
            method="POST",
            path=f"{_ONE}/fill",
            handler=handlers.fill,
            summary="Translate the same graph again, with values for its parameters: those of the form in its report.",
            body=FillRequest,
        ),
        route(
            method="POST",
            path=f"{_ONE}/deploy",
            handler=handlers.deploy,
            summary="Start a session with its graph at one of the managers that the translator was started with.",
            body=DeployRequest,
            answer=Deployed,
            status=201,
        ),
    ]


class _ApiHandlers:
    """The handlers of the routes."""

    def __init__(self, service: TranslatorService) -> None:
        self._service = service

    def add(self, call: Request) -> TranslationInfo:
        query: TranslateQuery = call.query
        info = self._service.submit(call.body, query)
        return self._service.get(info.id, seconds=query.seconds) if query.seconds else info

    def one(self, call: Request) -> TranslationInfo:
        return self._service.get(call.path["translation"], seconds=call.query.seconds)

    def every(self, _call: Request) -> TranslationList:
        return TranslationList(translations=self._service.all())

    def partition(self, call: Request) -> TranslationInfo:
        return self._service.partition(call.path["translation"], call.body)

    def fill(self, call: Request) -> TranslationInfo:
        return self._service.fill(call.path["translation"], call.body)

    def deploy(self, call: Request) -> Deployed:
        return self._service.deploy(call.path["translation"], call.body)

    def delete(self, call: Request) -> Done:
        self._service.delete(call.path["translation"])
        return Done()

    def dfg(self, call: Request) -> Response:
        return dfg_file(self._service, call.path["translation"])

    def pg(self, call: Request) -> Response:
        return pg_json(self._service, call.path["translation"])

    def source(self, call: Request) -> Response:
        return source_file(self._service, call.path["translation"])
