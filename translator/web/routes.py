"""All routes of a translator: its pages, its part of our API, and DALiuGE's paths."""

from collections.abc import Callable
from pathlib import Path

from dropflow.logs.manager_log import ManagerLog
from dropflow.rest.manager_records import ManagerInfo
from dropflow.rest.pages.assets import STATIC, asset_routes
from dropflow.rest.pages.places import Places
from dropflow.rest.server.openapi import openapi_document
from dropflow.rest.server.route import Request, Response, Route
from dropflow.rest.server.stream_slots import StreamSlots
from dropflow.version import __version__
from translator.web.api_v1 import api_v1_routes
from translator.web.daliuge import daliuge_routes
from translator.web.log_pages import log_routes
from translator.web.page_templates import translator_templates
from translator.web.pages import page_routes
from translator.web.service import TranslatorService

__all__ = ["translator_routes"]

_STATIC = Path(__file__).with_name("static")


def translator_routes(
    service: TranslatorService,
    streams: StreamSlots,
    *,
    info: Callable[[], ManagerInfo],
    places: Places,
    log: ManagerLog,
) -> list[Route]:
    """Return the routes of a translator.

    Parameters
    ----------
    service : TranslatorService
        What the routes call.
    streams : StreamSlots
        Limits requests that wait.
    info : callable
        Returns the record of the translator.
    places : Places
        The other servers of the cluster, to which pages link.
    log : ManagerLog
        The log of the translator.
    """
    templates = translator_templates(places, log.name)
    routes = [
        *asset_routes(STATIC, _STATIC),
        *api_v1_routes(service),
        *daliuge_routes(service, streams),
        *page_routes(service, places, templates),
        *log_routes(log, templates, streams),
        Route(
            method="GET",
            path="/api/v1/info",
            handler=lambda _: info(),
            summary="About the translator itself.",
            answer=ManagerInfo,
            tag="translator",
        ),
        Route(
            method="GET",
            path="/api/v1/ready",
            handler=lambda _: None,
            summary="Whether it answers.",
            public=True,
            tag="translator",
        ),
    ]

    def describe(_call: Request) -> Response:
        return Response(body=openapi_document(routes, title="dropflow translator", version=__version__))

    routes += [
        Route(method="GET", path=path, handler=describe, summary="This API, as OpenAPI.", public=True, tag="translator")
        for path in ("/api/v1/openapi.json", "/openapi.json")
    ]
    return routes
