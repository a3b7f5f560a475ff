"""What ``dropflow node``, ``island``, ``master``, ``daemon`` and ``translator`` assemble inside their frame."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from dropflow.cli.exits import Exit
from dropflow.cli.serving import Front, ServeOptions, serve
from dropflow.clock import SystemClock
from dropflow.rest.auth import AccessRules
from dropflow.rest.client import Client
from dropflow.rest.kit import Route, StreamSlots
from dropflow.rest.login import login_routes
from dropflow.rest.schema import ManagerInfo
from dropflow.rest.server import RestServer
from managers.api import Manager
from managers.probing import Prober
from managers.service import Service, make_access_rules, url_of

if TYPE_CHECKING:
    from managers.discovery import Discovery

__all__ = ["DiscoverOptions", "serve_composite", "serve_daemon", "serve_node", "serve_translator"]


class DiscoverOptions(msgspec.Struct, frozen=True):
    """Whether a manager announces itself by zeroconf, and takes what it finds; and whether by DALiuGE's names, too."""

    discover: bool = False
    daliuge_names: bool = False


def serve_node(
    options: ServeOptions,
    *,
    links_port: int,
    workers: int | None,
    suspect_after: float,
    lost_after: float,
    discovery: DiscoverOptions,
) -> Exit:
    """Run a node manager until it is told to end."""

    def assemble(front: Front) -> str:
        from managers.node.manager import NodeManager

        manager = NodeManager(
            front.name,
            root=front.root,
            links_bind=f"tcp://{_bracketed(options.host)}:{links_port}",
            links_advertise="" if front.reach == options.host else f"tcp://{_bracketed(front.reach)}:0",
            key=front.key,
            workers=workers,
            suspect_after=suspect_after,
            lost_after=lost_after,
        )
        front.stack.callback(manager.close)
        service = _service(front, manager)
        manager.set_url(service.url)
        service.start()
        _announce(front, manager.info(), discovery)
        return service.url

    return serve("node", options, assemble)


def serve_composite(
    role: Literal["island", "master"],
    options: ServeOptions,
    *,
    children: Sequence[str],
    suspect_after: float,
    lost_after: float,
    discovery: DiscoverOptions,
) -> Exit:
    """Run an island or master manager until it is told to end."""

    def assemble(front: Front) -> str:
        from managers.composite.child_discovery import discover_children
        from managers.composite.manager import Composite

        manager = Composite(
            front.name,
            role,
            children=split_urls(children),
            connect=_connect(front),
            clock=SystemClock(),
            key=front.key.fingerprint,
            suspect_after=suspect_after,
            lost_after=lost_after,
        )
        front.stack.callback(manager.close)
        service = _service(front, manager)
        manager.set_url(service.url)
        manager.open()
        service.start()
        found = _announce(front, manager.info(), discovery)
        if found is not None:
            discover_children(manager, found)
        return service.url

    return serve(role, options, assemble)


def serve_daemon(options: ServeOptions, *, start: Sequence[str], discovery: DiscoverOptions) -> Exit:
    """Run the daemon of this host until it is told to end."""

    def assemble(front: Front) -> str:
        from managers.daemon import Daemon, daemon_routes

        manager = Daemon(front.name, options=_for_children(front, discovery), key=front.key.fingerprint)
        front.stack.callback(manager.close)
        service = _service(front, lambda _, access: [*daemon_routes(manager), *login_routes(access)])
        manager.set_url(service.url)
        service.start()
        for kind in start:
            if not front.stopping.asked():
                manager.start(kind)
        _announce(front, manager.info(), discovery)
        return service.url

    return serve("daemon", options, assemble)


def _for_children(front: Front, discovery: DiscoverOptions) -> dict[Literal["node", "island", "master"], list[str]]:
    """The options of a daemon's managers: what it was told itself, and a directory each below its own."""
    options = front.options
    shared = ["--host", options.host, "--group", f"daemon-{os.getpid()}", "--log-level", options.log_level]
    shared += ["--advertise", options.advertise] if options.advertise else []
    shared += ["--key", str(Path(options.key).absolute())] if options.key else []
    shared += ["--no-auth"] if options.no_auth else []
    shared += ["--log-json"] if options.log_json else []
    shared += ["--discover"] if discovery.discover else []
    shared += ["--port", "0"] if options.port == 0 else []
    shared += [word for name in options.allow_host for word in ("--allow-host", name)]
    shared += [word for name in options.allow_origin for word in ("--allow-origin", name)]
    return {
        "node": [*shared, "--root", str(front.root / "node"), *(["--links-port", "0"] if options.port == 0 else [])],
        "island": [*shared, "--root", str(front.root / "island")],
        "master": [*shared, "--root", str(front.root / "master")],
    }


def serve_translator(options: ServeOptions, *, managers: Sequence[str]) -> Exit:
    """Run the translator service until it is told to end."""

    def assemble(front: Front) -> str:
        from translator.web.application import STREAMS, make_translator

        access = make_access_rules(
            options.host,
            token=front.token,
            secret=front.key.secret,
            hosts=(*options.allow_host, front.reach),
            origins=options.allow_origin,
        )
        url = ""
        app, streams, translator = make_translator(
            front.root / "translations",
            managers=split_urls(managers),
            access=access,
            secret=front.key.secret,
            name=front.name,
            url=lambda: url,
            more=login_routes(access),
        )
        front.stack.callback(translator.close)
        server = RestServer(
            app,
            streams=streams,
            stream_limit=STREAMS,
            host=options.host,
            port=options.port,
            open_to_all=front.token is None,
        )
        front.stack.callback(server.close)
        url = url_of(front.reach, server.port)
        server.start()
        return url

    return serve("translator", options, assemble)


def _announce(front: Front, info: ManagerInfo, options: DiscoverOptions) -> "Discovery | None":
    """Tell others of this manager by zeroconf, where that is wanted."""
    from managers.discovery import Announcement, Discovery

    if not (options.discover or options.daliuge_names):
        return None
    discovery = Discovery(front.options.host)
    front.stack.callback(discovery.close)
    discovery.announce(Announcement.of(info), daliuge=options.daliuge_names)
    return discovery


def split_urls(given: Sequence[str]) -> tuple[str, ...]:
    """Addresses from options that may be repeated, and may hold several with commas between; each once."""
    found = [url.strip().rstrip("/") for text in given for url in text.split(",") if url.strip()]
    return tuple(dict.fromkeys(url if "://" in url else f"http://{url}" for url in found))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _connect(front: Front) -> Callable[[str], Client]:
    return lambda url: Client(url, secret=front.key.secret)


def _service(front: Front, routes: Manager | Callable[[StreamSlots, AccessRules], Sequence[Route]]) -> Service:
    options = front.options
    service = Service(
        routes,
        host=options.host,
        port=options.port,
        token=front.token,
        secret=front.key.secret,
        advertise=options.advertise,
        hosts=options.allow_host,
        origins=options.allow_origin,
        stop=front.stopping.stop,
        prober=Prober(front.name, front.key),
    )
    front.stack.callback(service.close)
    return service
