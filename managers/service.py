"""One manager behind one HTTP server: its routes, its pages, and the guard at the door.

The order matters to people only: what comes first in the route table comes first in the OpenAPI document.
"""

import socket
from collections.abc import Callable, Iterable, Sequence

import psutil

from dropflow.errors import UsageError
from dropflow.rest.auth import AccessRules, is_loopback
from dropflow.rest.kit import Limits, Route, StreamSlots, make_app
from dropflow.rest.login import login_routes
from dropflow.rest.server import RestServer
from managers.api import Manager
from managers.probing import Prober
from managers.routes.api_v1 import api_v1_routes
from managers.routes.daliuge import daliuge_routes
from managers.routes.metrics import metrics_routes
from managers.web.pages import page_routes

__all__ = ["Service", "make_access_rules", "manager_routes", "url_of"]

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - to recognise it, not to bind it


class Service:
    """An HTTP server in a thread of its own, and the routes it serves.

    Parameters
    ----------
    routes : callable or Manager
        What to serve: a manager, or a function that makes the routes from the event streams of the server.
    host : str
        Address to bind. Beyond loopback there must be a token.
    port : int
        0 lets the system choose.
    token : str or None
        With None, every client that reaches the server is accepted.
    secret : bytes or None
        Secret half of the cluster key: who signs with it enters without the token.
    advertise : str
        Name or address under which other hosts reach this one; by default `host`, and for a server on all addresses
        the name of this host.
    origins, hosts : iterables of str
        Origins of other sites whose pages may call; further names under which the server may be addressed.
    limits : Limits
        What one request may cost.
    stop : callable
        Ends the process soon, for DALiuGE's ``POST /api/stop``; refused without.
    prober : Prober, optional
        What tries whether other managers can be reached; one without a cluster key unless given.

    Raises
    ------
    UsageError
        There is no token, and the server would be reachable from other hosts.
    WorldError
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
        advertise: str = "",
        origins: Iterable[str] = (),
        hosts: Iterable[str] = (),
        limits: Limits | None = None,
        stop: Callable[[], None] | None = None,
        prober: Prober | None = None,
    ) -> None:
        bounds = limits or Limits()
        self._streams = StreamSlots(bounds.streams)
        self._advertise = advertise or (socket.gethostname() if host in _EVERYWHERE else host)
        access = make_access_rules(host, token=token, secret=secret, origins=origins, hosts=(*hosts, self._advertise))
        if callable(routes):
            table = routes(self._streams, access)
        else:
            table = manager_routes(routes, self._streams, access, stop=stop, limits=bounds, prober=prober)
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
        """Begin to answer."""
        self._state = "started"
        self._server.start()

    def close(self) -> None:
        """End the event streams, stop answering and free the port. Idempotent; the manager itself is not closed."""
        if self._state == "new":
            self._server.start()  # a server that never ran holds its port until it has
        if self._state != "closed":
            self._state = "closed"
            self._server.close()


def url_of(host: str, port: int) -> str:
    """Address of the server on this host and port, without a slash at its end."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def manager_routes(
    manager: Manager,
    streams: StreamSlots,
    access: AccessRules,
    *,
    stop: Callable[[], None] | None = None,
    limits: Limits | None = None,
    prober: Prober | None = None,
) -> tuple[Route, ...]:
    """Everything that a manager serves."""
    return (
        *api_v1_routes(manager, streams, limits=limits, probe=(prober or Prober("", None)).probe),
        *daliuge_routes(manager, stop=stop, limits=limits),
        *metrics_routes(manager),
        *login_routes(access),
        *page_routes(manager, streams),
    )


def make_access_rules(
    host: str, *, token: str | None, secret: bytes | None, origins: Iterable[str] = (), hosts: Iterable[str] = ()
) -> AccessRules:
    """The guard of a server that is bound to `host`.

    A server that other hosts reach answers for the name and the addresses of this host: a foreign name that resolves
    to them (DNS rebinding) stays refused.

    Raises
    ------
    UsageError
        There is no token, and other hosts could reach the server.
    """
    if token is None and not is_loopback(host):
        raise UsageError(
            f"without a token a server may only listen on loopback, not on {host}",
            hint="leave out --no-auth, or leave out --host",
        )
    names = {host, *hosts}
    if not is_loopback(host):
        names |= _own_names()
    return AccessRules(
        token=token,
        secret=secret,
        hosts=frozenset(name.lower() for name in names if name not in _EVERYWHERE),
        origins=frozenset(origins),
    )


def _own_names() -> set[str]:
    addresses = (address.address for found in psutil.net_if_addrs().values() for address in found)
    return {socket.gethostname(), socket.getfqdn(), *(text.partition("%")[0] for text in addresses)}
