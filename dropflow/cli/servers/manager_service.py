"""Parts that node, island, master and daemon share: the REST service and the announcement by zeroconf."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from dropflow.api.auth import AccessRules
from dropflow.api.client import Client
from dropflow.api.manager import Manager
from dropflow.api.node_records import ManagerInfo
from dropflow.api.routes import Route, StreamSlots
from dropflow.cli.exit_status import Exit
from dropflow.cli.servers.server_options import DiscoverOptions, ServeOptions
from dropflow.cli.servers.server_process import LOG_FILE, ServerContext, links_advertise, links_bind, serve
from dropflow.clock import SystemClock
from dropflow.errors import UsageError
from dropflow.submission.manager_records import records_here
from dropflow.web.known_servers import ServerAddress
from managers.composite.manager import Composite, discover_children
from managers.manager_server import Service
from managers.probing import Prober

if TYPE_CHECKING:
    from managers.discovery import Discovery

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
        users=context.users,
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
        Options of the server whose pages they are; it is not in the result.
    more : sequence of ServerAddress
        Further ones that it knows.
    """
    places = [*more, *(ServerAddress("translator", "translator", url) for url in split_urls(options.translator))]
    if options.group:
        together = [record for record in records_here() if record.group == options.group]
        places += [
            ServerAddress(record.role, record.name, record.url) for record in together if record.name != options.name
        ]
    return tuple({place.url: place for place in places}.values())


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
    """Return the addresses in options that may be repeated and may hold several with commas between; each once.

    Raises
    ------
    UsageError
        One is a word alone.
    """
    urls = [url.strip().rstrip("/") for text in given for url in text.split(",") if url.strip()]
    for url in urls:
        if ":" not in url:
            raise UsageError(
                f"{url!r} is not a manager URL", hint=f"such as http://{url if url.isidentifier() else 'host'}:8000"
            )
    return tuple(dict.fromkeys(url if "://" in url else f"http://{url}" for url in urls))


# The process of an island or a master, which differ in their options only.


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
        announced = announce_by_zeroconf(context, manager.info(), discovery)
        if announced is not None:
            discover_children(manager, announced)
        return service.url

    return serve(role, options, build)
