"""Makes the application of a translator from its service, its routes and its access rules."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import bottle

from dropflow.clock import Clock, SystemClock
from dropflow.logs.manager_log import ManagerLog
from dropflow.rest.client import Client
from dropflow.rest.manager_info import manager_info
from dropflow.rest.manager_records import ManagerInfo
from dropflow.rest.pages.login import login_routes
from dropflow.rest.pages.places import Places
from dropflow.rest.server.auth import AccessRules
from dropflow.rest.server.bottle_app import make_app
from dropflow.rest.server.route import Limits
from dropflow.rest.server.stream_slots import StreamSlots
from translator.web.deployer import ManagerClient
from translator.web.records import TranslatorLimits
from translator.web.routes import translator_routes
from translator.web.service import TranslatorService

__all__ = ["STREAMS", "make_translator"]

STREAMS = 16
"""Requests that may wait for a translation at a time; the server has more threads, for pages and downloads."""

_DEPLOY_SECONDS = 120.0
_BODIES = 3
"""Largest bodies in memory at a time: one of them without a credential, with its compressed form."""


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
    places: Places | None = None,
    connect: Callable[[str], ManagerClient] | None = None,
    clock: Clock | None = None,
) -> tuple[bottle.Bottle, StreamSlots, TranslatorService]:
    """Return a translator, ready to be served by `dropflow.rest.server.rest_server.RestServer`.

    Parameters
    ----------
    root : Path
        Folder for sources and results, of this translator only.
    managers : sequence of str
        Addresses of the managers that graphs may be deployed to.
    access : AccessRules
        Which requests may enter.
    secret : bytes, optional
        Secret half of the cluster key, with which calls to the managers are signed.
    token : str, optional
        Token of the managers, if there is no key.
    limits : TranslatorLimits, optional
        What translations may cost.
    name : str
        Of this translator.
    url : callable
        Its address, which is known once it is served.
    log : Path, optional
        The file of its log, which its pages show.
    places : Places, optional
        The other servers of the cluster. They sign browsers in here, and pages link to them.
    connect : callable, optional
        Makes a client for a manager; by default `dropflow.rest.client.Client` with the key and token above.
    clock : Clock, optional
        For all times.

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
    clock = clock or SystemClock()
    connect = connect or partial(Client, token=token, secret=secret, timeout=_DEPLOY_SECONDS)
    service = TranslatorService(root, managers=managers, connect=connect, limits=limits, clock=clock)
    started = clock.now()
    info = partial(_about, name=name, url=url, clock=clock, started=started, root=str(root))
    streams = StreamSlots(STREAMS)
    known = places or Places()
    own = translator_routes(service, streams, info=info, places=known, log=ManagerLog(name, log))
    routes = [*own, *login_routes(access, known, clock=clock)]
    bounds = Limits(body=limits.body, depth=limits.depth, streams=STREAMS, together=_BODIES * limits.body)
    return make_app(routes, access, bounds, clock=clock), streams, service


def _about(*, name: str, url: Callable[[], str], clock: Clock, started: float, root: str) -> ManagerInfo:
    return manager_info(name, "translator", url=url(), started=started, clock=clock, protocol=0, root=root)
