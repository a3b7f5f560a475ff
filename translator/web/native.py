"""The translator's part of ``/api/v1``: translations, their graphs, and deploying them."""

from dropflow.rest.kit import Answer, Call, Route
from dropflow.rest.lists import Done
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

__all__ = ["native_routes"]

_ONE = "/api/v1/translations/{translation}"


def native_routes(service: TranslatorService) -> list[Route]:
    """The routes of `service` for programs. All need the token, and none can be called by pages of other sites."""

    def add(call: Call) -> TranslationInfo:
        query: TranslateQuery = call.query
        info = service.submit(call.body, query)
        return service.get(info.id, seconds=query.seconds) if query.seconds else info

    def one(call: Call) -> TranslationInfo:
        return service.get(call.path["translation"], seconds=call.query.seconds)

    def every(_call: Call) -> TranslationList:
        return TranslationList(translations=service.all())

    def partition(call: Call) -> TranslationInfo:
        return service.partition(call.path["translation"], call.body)

    def deploy(call: Call) -> Deployed:
        return service.deploy(call.path["translation"], call.body)

    def delete(call: Call) -> Done:
        service.delete(call.path["translation"])
        return Done()

    def dfg(call: Call) -> Answer:
        return dfg_file(service, call.path["translation"])

    def pg(call: Call) -> Answer:
        return pg_json(service, call.path["translation"])

    def source(call: Call) -> Answer:
        return source_file(service, call.path["translation"])

    tag = "translator"
    return [
        Route(
            method="POST",
            path="/api/v1/translations",
            handler=add,
            summary="Translate the graph in the body: a logical graph, a list of drops, or a .dfg container.",
            query=TranslateQuery,
            answer=TranslationInfo,
            status=202,
            tag=tag,
        ),
        Route(
            method="GET",
            path="/api/v1/translations",
            handler=every,
            summary="All translations that are kept, the youngest first, without their reports.",
            answer=TranslationList,
            tag=tag,
        ),
        Route(
            method="GET",
            path=_ONE,
            handler=one,
            summary="One translation: its state, and its report once it has ended.",
            query=WaitQuery,
            answer=TranslationInfo,
            tag=tag,
        ),
        Route(method="DELETE", path=_ONE, handler=delete, summary="Stop and forget it.", answer=Done, tag=tag),
        Route(
            method="GET", path=f"{_ONE}/graph.dfg", handler=dfg, summary="The physical graph as a .dfg file.", tag=tag
        ),
        Route(
            method="GET", path=f"{_ONE}/pg.json", handler=pg, summary="The physical graph as a list of drops.", tag=tag
        ),
        Route(method="GET", path=f"{_ONE}/source", handler=source, summary="The graph as it was sent.", tag=tag),
        Route(
            method="POST",
            path=f"{_ONE}/partition",
            handler=partition,
            summary="Translate the same graph again, with another partition.",
            body=RepartitionRequest,
            answer=TranslationInfo,
            status=202,
            tag=tag,
        ),
        Route(
            method="POST",
            path=f"{_ONE}/deploy",
            handler=deploy,
            summary="Start a session with its graph at one of the managers that the translator was started with.",
            body=DeployRequest,
            answer=Deployed,
            status=201,
            tag=tag,
        ),
    ]
