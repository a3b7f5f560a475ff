"""What ``dropflow node``, ``island``, ``master``, ``daemon`` and ``translator`` assemble inside their frame."""

from collections.abc import Callable, Sequence
from typing import Literal

from dropflow.cli.exits import Exit
from dropflow.cli.serving import Front, ServeOptions, serve
from dropflow.clock import SystemClock
from dropflow.rest.client import Client
from dropflow.rest.login import login_routes
from dropflow.rest.server import Server
from managers.api import Manager
from managers.service import Service, make_guard, url_of

__all__ = ["serve_composite", "serve_node", "serve_translator"]


def serve_node(
    options: ServeOptions,
    *,
    links_port: int,
    workers: int | None,
    suspect_after: float,
    lost_after: float,
    discover: bool,
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
        return service.url

    return serve("node", options, assemble)


def serve_composite(
    role: Literal["island", "master"],
    options: ServeOptions,
    *,
    children: Sequence[str],
    suspect_after: float,
    lost_after: float,
    discover: bool,
) -> Exit:
    """Run an island or master manager until it is told to end."""

    def assemble(front: Front) -> str:
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
        return service.url

    return serve(role, options, assemble)


def serve_translator(options: ServeOptions, *, managers: Sequence[str]) -> Exit:
    """Run the translator service until it is told to end."""

    def assemble(front: Front) -> str:
        from translator.web.assembly import STREAMS, make_translator

        guard = make_guard(
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
            guard=guard,
            secret=front.key.secret,
            name=front.name,
            url=lambda: url,
            more=login_routes(guard),
        )
        front.stack.callback(translator.close)
        server = Server(
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


def split_urls(given: Sequence[str]) -> tuple[str, ...]:
    """Addresses from options that may be repeated, and may hold several with commas between; each once."""
    found = [url.strip().rstrip("/") for text in given for url in text.split(",") if url.strip()]
    return tuple(dict.fromkeys(url if "://" in url else f"http://{url}" for url in found))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _connect(front: Front) -> Callable[[str], Client]:
    return lambda url: Client(url, secret=front.key.secret)


def _service(front: Front, routes: Manager) -> Service:
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
    )
    front.stack.callback(service.close)
    return service
