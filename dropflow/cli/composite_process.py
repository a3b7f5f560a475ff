"""The process of an island or a master, which differ in their options only."""

from collections.abc import Sequence
from typing import Literal

from dropflow.api.client import Client
from dropflow.cli.exit_status import Exit
from dropflow.cli.log_setup import LOG_FILE
from dropflow.cli.manager_service import announce_by_zeroconf, rest_service, split_urls
from dropflow.cli.server_process import ServerContext, links_advertise, links_bind, serve
from dropflow.cli.up import DiscoverOptions, ServeOptions
from dropflow.clock import SystemClock
from managers.composite.manager import Composite, discover_children

__all__ = ["serve_composite"]


def serve_composite(
    role: Literal["island", "master"],
    options: ServeOptions,
    *,
    children: Sequence[str],
    suspect_after: float,
    lost_after: float,
    links_port: int,
    discovery: DiscoverOptions,
) -> Exit:
    """Run an island or master manager until it is stopped."""

    def build(context: ServerContext) -> str:
        manager = Composite(
            context.name,
            role,
            children=split_urls(children),
            connect=lambda url: Client(url, secret=context.key.secret),
            clock=SystemClock(),
            key=context.key,
            links_bind=links_bind(context, links_port),
            links_advertise=links_advertise(context),
            suspect_after=suspect_after,
            lost_after=lost_after,
            log=context.root / LOG_FILE,
        )
        context.stack.callback(manager.close)
        service = rest_service(context, manager)
        manager.set_url(service.url)
        manager.open()
        service.start()
        found = announce_by_zeroconf(context, manager.info(), discovery)
        if found is not None:
            discover_children(manager, found)
        return service.url

    return serve(role, options, build)
