"""All routes of a translator: its pages, its part of our API, and DALiuGE's paths."""

from collections.abc import Callable
from pathlib import Path

from dropflow import __version__
from dropflow.rest import openapi
from dropflow.rest.assets import STATIC, asset_routes
from dropflow.rest.kit import Answer, Call, Route, Streams
from dropflow.rest.schema import ManagerInfo
from translator.web.native import native_routes
from translator.web.original import original_routes
from translator.web.pages import page_routes
from translator.web.service import TranslatorService

__all__ = ["translator_routes"]

_STATIC = Path(__file__).with_name("static")


def translator_routes(service: TranslatorService, streams: Streams, *, info: Callable[[], ManagerInfo]) -> list[Route]:
    """The route table of a translator.

    Parameters
    ----------
    service : TranslatorService
        What does the work.
    streams : Streams
        Places for requests that wait.
    info : callable
        What the translator says about itself.
    """
    routes = [
        *asset_routes(STATIC, _STATIC),
        *native_routes(service),
        *original_routes(service, streams),
        *page_routes(service),
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

    def describe(_call: Call) -> Answer:
        return Answer(body=openapi.document(routes, title="dropflow translator", version=__version__))

    routes += [
        Route(method="GET", path=path, handler=describe, summary="This API, as OpenAPI.", public=True, tag="translator")
        for path in ("/api/v1/openapi.json", "/openapi.json")
    ]
    return routes
