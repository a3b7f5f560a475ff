"""The HTTP server of one manager: its routes, its pages and its access rules.

The order of the routes is only that of the OpenAPI document.
"""

import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil

from dropflow.api.addresses import EVERYWHERE, is_loopback
from dropflow.api.auth import AccessRules
from dropflow.api.bottle_app import make_app
from dropflow.api.manager import Manager
from dropflow.api.routes import Limits, Route, StreamSlots
from dropflow.api.serving import RestServer
from dropflow.errors import DropflowError, UsageError
from dropflow.web.known_servers import KnownServers, ServerAddress
from dropflow.web.sign_in import login_routes
from dropflow.web.tickets import request_ticket
from managers.keys import UserFiles
from managers.probing import Prober
from managers.routes.daliuge import daliuge_routes
from managers.routes.handlers import api_v1_routes
from managers.routes.metrics import metrics_routes
from managers.routes.owners import Owners
from managers.state_hub import StateHub
from managers.web.pages import page_routes


class Service:
    """An HTTP server with its own thread, and the routes that it serves.

    Parameters
    ----------
    routes : callable or Manager
        What to serve: a manager, or a function that makes the routes from the event streams of the server.
    host : str
        Address to bind. Addresses other than loopback require a token.
    port : int
        0 for a free port.
    token : str or None
        None for a server that requires no credential.
    secret : bytes or None
        Secret half of the cluster key: requests that are signed with it need no token.
    users : UserFiles, optional
        The files about users; without them, keys of users are refused.
    advertise : str
        Name or address by which other hosts reach this one. By default it is `host`; for a server on all addresses it
        is the name of this host.
    origins, hosts : iterables of str
        Origins of other sites whose pages may send requests; further names by which the server may be addressed.
    limits : Limits
        Limits on the cost of requests.
    stop : callable
        Ends the process soon, for DALiuGE's ``POST /api/stop``. Without it that request is refused.
    prober : Prober, optional
        Probes other managers; by default one without a cluster key.
    neighbours : callable, optional
        Returns the servers of the cluster that pages link to, besides those below the manager.
    public_url : str, optional
        Address at which browsers reach it through a proxy; see `dropflow.web.known_servers.KnownServers`.

    Raises
    ------
    UsageError
        There is no token, and the server would be reachable from other hosts.
    ConflictError
        The address cannot be bound.
    """

    def __init__(
        self,
        routes: Manager | Callable[[StreamSlots, AccessRules], Sequence[Route]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None,
        secret: bytes | None = None,
        users: UserFiles | None = None,
        advertise: str = "",
        origins: Iterable[str] = (),
        hosts: Iterable[str] = (),
        limits: Limits | None = None,
        stop: Callable[[], None] | None = None,
        prober: Prober | None = None,
        neighbours: Callable[[], Sequence[ServerAddress]] = tuple,
        public_url: str = "",
    ) -> None:
        bounds = limits or Limits()
        self._streams = StreamSlots(bounds.streams)
        self._advertise = advertise or (socket.gethostname() if host in EVERYWHERE else host)
        access = make_access_rules(
            host,
            token=token,
            secret=secret,
            users=users,
            origins=origins,
            hosts=(*hosts, self._advertise),
            public_url=public_url,
        )
        servers = KnownServers(
            own=lambda: self.url,
            neighbours=neighbours,
            ticket=partial(request_ticket, secret=secret),
            public_url=public_url,
        )
        if callable(routes):
            table = routes(self._streams, access)
        else:
            table = manager_routes(
                routes,
                self._streams,
                access,
                stop=stop,
                limits=bounds,
                prober=prober,
                servers=servers,
                user_limits=None if users is None else users.limits,
            )
        self._server = RestServer(
            make_app(table, access, bounds),
            streams=self._streams,
            stream_limit=bounds.streams,
            host=host,
            port=port,
            open_to_all=token is None,
        )
        self._state = "new"

    @property
    def port(self) -> int:
        """The port that is bound."""
        return self._server.port

    @property
    def url(self) -> str:
        """Address for clients, without a slash at its end."""
        return url_of(self._advertise, self.port)

    def start(self) -> None:
        """Start to answer requests."""
        self._state = "started"
        self._server.start()

    def close(self) -> None:
        """End the event streams, stop answering and free the port. Idempotent; the manager itself is not closed."""
        if self._state == "new":
            self._server.start()  # a server that never ran does not free its port
        if self._state != "closed":
            self._state = "closed"
            self._server.close()


def url_of(host: str, port: int) -> str:
    """Return the address of the server on this host and port, without a slash at its end."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def manager_routes(
    manager: Manager,
    streams: StreamSlots,
    access: AccessRules,
    *,
    stop: Callable[[], None] | None = None,
    limits: Limits | None = None,
    prober: Prober | None = None,
    servers: KnownServers | None = None,
    user_limits: Path | None = None,
) -> tuple[Route, ...]:
    """Return all routes of a manager; `servers` are the servers that its pages may link to, besides those below it."""
    reachable = msgspec.structs.replace(
        servers or KnownServers(), role=lambda: manager.info().role, below=partial(_below, manager)
    )
    hub, owners = StateHub(manager), Owners(manager, user_limits)
    return (
        *api_v1_routes(
            manager, streams, limits=limits, probe=(prober or Prober("", None)).probe, hub=hub, owners=owners
        ),
        *daliuge_routes(manager, stop=stop, limits=limits, secret=access.secret),
        *metrics_routes(manager),
        *login_routes(access, reachable),
        *page_routes(manager, hub, reachable, use_of=owners.use),
    )


def _below(manager: Manager) -> list[ServerAddress]:
    """Return the managers below one, as far as it knows them."""
    addresses: list[ServerAddress] = []
    with suppress(DropflowError):
        addresses += [ServerAddress("node", node.name, node.url) for node in manager.nodes() if node.url]
    if manager.info().role in ("island", "master"):
        with suppress(DropflowError):
            addresses += [ServerAddress(child.role, child.name, child.url) for child in manager.children()]
    return addresses


def make_access_rules(
    host: str,
    *,
    token: str | None,
    secret: bytes | None,
    users: UserFiles | None = None,
    origins: Iterable[str] = (),
    hosts: Iterable[str] = (),
    public_url: str = "",
) -> AccessRules:
    """Return the access rules of a server that is bound to `host`, and that browsers may reach at `public_url`, too.

    A server accepts requests for the name of this host and, if other hosts can reach it, for its addresses. Requests
    for any other name that resolves to them (DNS rebinding) are refused.

    Raises
    ------
    UsageError
        There is no token, and other hosts could reach the server.
    """
    if token is None and not is_loopback(host):
        raise UsageError(
            f"a server without a token may only listen on loopback, not on {host}",
            hint="leave out --no-auth, or leave out --host",
        )
    names = {host, socket.gethostname(), *hosts}
    if not is_loopback(host):
        names |= _own_names()
    public = urlsplit(public_url)
    if public_url:
        # A proxy may pass on its own name, or that of this server with the origin of its own pages.
        names.add(public.hostname or "")
        origins = (*origins, f"{public.scheme}://{public.netloc}")
    return AccessRules(
        token=token,
        secret=secret,
        revoked=None if users is None else users.revoked,
        hosts=frozenset(name.lower() for name in names if name not in EVERYWHERE),
        origins=frozenset(origins),
    )


def _own_names() -> set[str]:
    addresses = (address.address for interface in psutil.net_if_addrs().values() for address in interface)
    return {socket.gethostname(), socket.getfqdn(), *(text.partition("%")[0] for text in addresses)}
