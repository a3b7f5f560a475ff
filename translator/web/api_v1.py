"""The translator's part of ``/api/v1``: translations, their graphs, and deploying them."""

from collections.abc import Callable

from dropflow.rest.kit import Request, Response, Route
from dropflow.rest.operation_records import Done
from translator.web.downloads import dfg_file, pg_json, source_file
from translator.web.records import (
    Deployed,
    DeployRequest,
    RepartitionRequest,
    TranslateQuery,
    TranslationInfo,
    TranslationList,
    WaitQuery,
)
from translator.web.service import TranslatorService

__all__ = ["api_v1_routes"]

_ONE = "/api/v1/translations/{translation}"


def api_v1_routes(service: TranslatorService) -> list[Route]:
    """The routes of `service` for programs. All need the token, and none can be called by pages of other sites."""
    handlers = _ApiHandlers(service)
    tag = "translator"

    def download(what: str, handler: Callable[[Request], Response], summary: str, gives: str) -> Route:
        return Route(method="GET", path=f"{_ONE}/{what}", handler=handler, summary=summary, gives=gives, tag=tag)

    return [
        Route(
            method="POST",
            path="/api/v1/translations",
            handler=handlers.add,
            summary="Translate the graph in the body: a logical graph, a list of drops, or a .dfg container.",
            query=TranslateQuery,
            answer=TranslationInfo,
            status=202,
            limit=service.limits.body,
            takes="application/octet-stream",
            tag=tag,
        ),
        Route(
            method="GET",
            path="/api/v1/translations",
            handler=handlers.every,
            summary="All translations that are kept, the youngest first, without their reports.",
            answer=TranslationList,
            tag=tag,
        ),
        Route(
            method="GET",
            path=_ONE,
            handler=handlers.one,
            summary="One translation: its state, and its report once it has ended.",
            query=WaitQuery,
            answer=TranslationInfo,
            tag=tag,
        ),
        Route(method="DELETE", path=_ONE, handler=handlers.delete, summary="Stop and forget it.", answer=Done, tag=tag),
        download("graph.dfg", handlers.dfg, "The physical graph as a .dfg file.", "application/octet-stream"),
        download("pg.json", handlers.pg, "The physical graph as a list of drops.", "application/json"),
        download("source", handlers.source, "The graph as it was sent.", "application/octet-stream"),
        Route(
            method="POST",
            path=f"{_ONE}/partition",
            handler=handlers.partition,
            summary="Translate the same graph again, with another partition.",
            body=RepartitionRequest,
            answer=TranslationInfo,
            status=202,
            tag=tag,
        ),
        Route(
            method="POST",
            path=f"{_ONE}/deploy",
            handler=handlers.deploy,
            summary="Start a session with its graph at one of the managers that the translator was started with.",
            body=DeployRequest,
            answer=Deployed,
            status=201,
            tag=tag,
        ),
    ]


class _ApiHandlers:
    """The handlers, and the service that they share."""

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
