"""What node, island, master and daemon share: the REST service and the announcement by zeroconf."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dropflow.api.auth import AccessRules
from dropflow.api.manager import Manager
from dropflow.api.openapi import Route, StreamSlots
from dropflow.api.records import ManagerInfo
from dropflow.cli.manager_records import records_here
from dropflow.cli.server_process import ServerContext
from dropflow.cli.up import DiscoverOptions, ServeOptions
from dropflow.web.places import ServerAddress
from managers.probing import Prober
from managers.service import Service

if TYPE_CHECKING:
    from managers.discovery import Discovery

__all__ = ["announce_by_zeroconf", "neighbours", "rest_service", "split_urls"]

Routes = Callable[[StreamSlots, AccessRules], Sequence[Route]]


def rest_service(context: ServerContext, routes: Manager | Routes) -> Service:
    """Return the REST service of a manager, or of routes; it is closed when the process ends."""
    options = context.options
    service = Service(
        routes,
        host=options.host,
        port=options.port,
        token=context.token,
        secret=context.key.secret,
        advertise=options.advertise,
        hosts=options.allow_host,
        origins=options.allow_origin,
        public_url=options.public_url,
        stop=context.stop.set,
        prober=Prober(context.name, context.key),
        neighbours=partial(neighbours, options),
    )
    context.stack.callback(service.close)
    return service


def neighbours(options: ServeOptions, more: Sequence[ServerAddress] = ()) -> tuple[ServerAddress, ...]:
    """Return the servers that pages link to: those of the options, and those on this host that were started together.

    Parameters
    ----------
    options : ServeOptions
        Of the server whose pages they are; it is not in the result.
    more : sequence of ServerAddress
        Further ones that it knows.
    """
    found = [*more, *(ServerAddress("translator", "translator", url) for url in split_urls(options.translator))]
    if options.group:
        together = [record for record in records_here() if record.group == options.group]
        found += [
            ServerAddress(record.role, record.name, record.url) for record in together if record.name != options.name
        ]
    return tuple({place.url: place for place in found}.values())


def announce_by_zeroconf(context: ServerContext, info: ManagerInfo, options: DiscoverOptions) -> "Discovery | None":
    """Announce a manager by zeroconf if an option requires it; return the `Discovery`, which also finds others."""
    if not (options.discover or options.daliuge_names):
        return None
    from managers.discovery import Announcement, Discovery

    discovery = Discovery(context.options.host)
    context.stack.callback(discovery.close)
    discovery.announce(Announcement.of(info), daliuge=options.daliuge_names)
    return discovery


def split_urls(given: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses in options that may be repeated and may hold several with commas between; each once."""
    found = [url.strip().rstrip("/") for text in given for url in text.split(",") if url.strip()]
    return tuple(dict.fromkeys(url if "://" in url else f"http://{url}" for url in found))
