"""All routes of a translator: its pages, its part of our API, and DALiuGE's paths."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import bottle

from dropflow.api.auth import AccessRules
from dropflow.api.bottle_app import make_app
from dropflow.api.client import Client
from dropflow.api.logs import ManagerLog
from dropflow.api.node_records import ManagerInfo, manager_info
from dropflow.api.openapi import openapi_document
from dropflow.api.routes import Limits, Request, Response, Route, StreamSlots
from dropflow.clock import Clock, SystemClock
from dropflow.version import __version__
from dropflow.web.frame import STATIC, asset_routes
from dropflow.web.known_servers import KnownServers
from dropflow.web.sign_in import login_routes
from translator.web.api_v1 import api_v1_routes
from translator.web.daliuge import daliuge_routes
from translator.web.log_routes import log_routes
from translator.web.page_templates import translator_templates
from translator.web.pages import page_routes
from translator.web.records import TranslatorLimits
from translator.web.translator_service import TranslatorService

_STATIC = Path(__file__).with_name("static")
STREAMS = 16
"""Requests that may wait for a translation at a time; the server has more threads, for pages and downloads."""
_DEPLOY_SECONDS = 120.0
"""Seconds in which a manager must answer the translator: a submission of a large graph takes long."""
_BODIES = 3
"""Largest bodies in memory at a time: one of them without a credential, with its compressed form."""


def translator_routes(
    service: TranslatorService,
    streams: StreamSlots,
    *,
    info: Callable[[], ManagerInfo],
    servers: KnownServers,
    log: ManagerLog,
) -> list[Route]:
    """Return the routes of a translator.

    Parameters
    ----------
    service : TranslatorService
        The service that the routes call.
    streams : StreamSlots
        Limits requests that wait.
    info : callable
        Returns the record of the translator.
    servers : KnownServers
        The other servers of the cluster, to which pages link.
    log : ManagerLog
        The log of the translator.
    """
    templates = translator_templates(servers, log.name)
    routes = [
        *asset_routes(STATIC, _STATIC),
        *api_v1_routes(service),
        *daliuge_routes(service, streams),
        *page_routes(service, servers, templates),
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


# Makes the application of a translator from its service, its routes and its access rules.


def make_translator(
    root: Path,
    *,
    managers: Sequence[str] = (),
    access: AccessRules,
    secret: bytes | None = None,
    token: str | None = None,
    limits: TranslatorLimits | None = None,
    name: str = "translator",
    url: Callable[[], str] = str,
    log: Path | None = None,
    servers: KnownServers | None = None,
    connect: Callable[[str], Client] | None = None,
) -> tuple[bottle.Bottle, StreamSlots, TranslatorService]:
    """Return a translator, ready to be served by `dropflow.api.serving.RestServer`.

    Parameters
    ----------
    root : Path
        Folder for sources and results, of this translator only.
    managers : sequence of str
        Addresses of the managers that graphs may be deployed to.
    access : AccessRules
        The rules for which requests may enter.
    secret : bytes, optional
        Secret half of the cluster key, with which calls to the managers are signed.
    token : str, optional
        Token of the managers, if there is no key.
    limits : TranslatorLimits, optional
        Limits of the cost of translations.
    name : str
        Name of this translator.
    url : callable
        Its address, which is known once it is served.
    log : Path, optional
        The file of its log, which its pages show.
    servers : KnownServers, optional
        The other servers of the cluster. They sign browsers in here, and pages link to them.
    connect : callable, optional
        Makes a client for a manager; by default `dropflow.api.client.Client` with the key and token above.

    Returns
    -------
    app : bottle.Bottle
        The application.
    streams : StreamSlots
        For the server.
    service : TranslatorService
        To be closed at the end.

    Raises
    ------
    ConflictError
        Another translator uses the folder.
    UsageError
        The address of a manager is not a URL.
    """
    limits = limits or TranslatorLimits()
    clock = SystemClock()
    connect = connect or partial(Client, token=token, secret=secret, timeout=_DEPLOY_SECONDS)
    service = TranslatorService(root, managers=managers, connect=connect, limits=limits, clock=clock)
    started = clock.now()
    info = partial(_about, name=name, url=url, clock=clock, started=started, root=str(root))
    streams = StreamSlots(STREAMS)
    known = servers or KnownServers()
    own = translator_routes(service, streams, info=info, servers=known, log=ManagerLog(name, log))
    routes = [*own, *login_routes(access, known, clock=clock)]
    bounds = Limits(body=limits.body, depth=limits.depth, streams=STREAMS, together=_BODIES * limits.body)
    return make_app(routes, access, bounds, clock=clock), streams, service


def _about(*, name: str, url: Callable[[], str], clock: Clock, started: float, root: str) -> ManagerInfo:
    return manager_info(name, "translator", url=url(), started=started, clock=clock, protocol=0, root=root)
