"""The servers of one cluster as a browser reaches them, and the one among them where it signs in: the front door."""

import socket
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from urllib.parse import quote

import msgspec

from dropflow.api.addresses import DEFAULT_PORTS, http_parts, is_loopback
from dropflow.api.node_records import MANAGER_ROLES


class ServerAddress(msgspec.Struct, frozen=True):
    """One server: a manager or a translator."""

    role: str
    name: str
    url: str


class KnownServers(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of the cluster that a server knows.

    Attributes
    ----------
    role : callable
        Returns its own role: a manager above the others is the front door itself.
    own : callable
        Returns its own address, which is known when it is served.
    neighbours : callable
        Returns the servers that its pages link to, besides those below it.
    below : callable
        Returns the servers below it, to which a browser may be passed on too.
    ticket : callable
        Returns a ticket of the server at an address; with ``read_only``, one that permits reading only.
    public_url : str
        Address at which browsers reach this server through a proxy, without a slash at its end; empty for none. With
        ``{port}`` or ``{host}`` in it, it is that of all servers of the cluster, each with its own port and host.
    """

    role: Callable[[], str] = str
    own: Callable[[], str] = str
    neighbours: Callable[[], Sequence[ServerAddress]] = tuple
    below: Callable[[], Sequence[ServerAddress]] = tuple
    ticket: Callable[..., str] = lambda _, **__: ""
    public_url: str = ""

    def door(self) -> str:
        """Return the address of the front door; empty if that is this server."""
        return front_door(self.neighbours(), above=self.role())

    def find(self, target: str) -> tuple[ServerAddress, str, str] | None:
        """Return the server that the address `target` is on, its address for a browser, and the path on it.

        None if it is not a server of this cluster: a browser is never passed on to another one.
        """
        base, path = split_target(target)
        if not base:
            return None
        candidates = (ServerAddress("", "", self.own()), *self.neighbours())
        return next(filter(None, (self._on(server, base, path) for server in chain(candidates, self._below()))), None)

    def browser_url(self, url: str) -> str:
        """Return the address at which browsers reach the server at `url`."""
        if not self.public_url or not url:
            return url
        is_of_all = public_address(self.public_url, url) != self.public_url
        return public_address(self.public_url, url) if is_of_all or same_server(url, self.own()) else url

    def _below(self) -> Iterator[ServerAddress]:
        yield from self.below()  # they are asked only if no other server is meant

    def _on(self, server: ServerAddress, base: str, path: str) -> tuple[ServerAddress, str, str] | None:
        """Return the server, and the address and path of a page, if that page is on it."""
        if not server.url:
            return None
        public = self.browser_url(server.url)
        if public != server.url and f"{base}{path}/".startswith(f"{public}/"):
            return server, public, f"{base}{path}".removeprefix(public) or "/"
        if same_server(server.url, base):
            return server, base if public == server.url else public, path
        return None


def front_door(servers: Sequence[ServerAddress], *, above: str = "") -> str:
    """Return the address of the topmost manager among `servers`; empty if none is above the role `above`."""
    most = MANAGER_ROLES.index(above) if above in MANAGER_ROLES else len(MANAGER_ROLES)
    ranked = [(MANAGER_ROLES.index(server.role), server.url) for server in servers if server.role in MANAGER_ROLES]
    return min(ranked)[1] if ranked and min(ranked)[0] < most else ""


def public_address(public_url: str, url: str) -> str:
    """Return `public_url` with the host and the port of the server at `url`; that address itself if it is empty."""
    parts = http_parts(url)
    if parts is None:
        return public_url or url
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    return public_url.replace("{port}", f"{port}").replace("{host}", parts.hostname or "") or url


def split_target(target: str) -> tuple[str, str]:
    """Return the server of an address, as ``http://host:port``, and the path with query; empty if it is not one."""
    parts = http_parts(target)
    plain = target.isascii() and target.isprintable() and not set(target) & set(" \\\"'<>;,")
    if parts is None or parts.username is not None or not plain:
        return "", ""
    return f"{parts.scheme}://{parts.netloc}", (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def same_server(first: str, second: str) -> bool:
    """Return whether two addresses are the same server. Loopback and the name of this host are one host."""
    return _authority(first) == _authority(second)


def _authority(url: str) -> tuple[str, str, int]:
    parts = http_parts(url)
    if parts is None:
        return "", url, 0
    host = (parts.hostname or "").lower()
    is_own = is_loopback(host) or host == socket.gethostname().lower()
    return parts.scheme, "127.0.0.1" if is_own else host, parts.port or DEFAULT_PORTS[parts.scheme]


def hop_url(url: str, path: str = "") -> str:
    """Return the address on the own server that passes a browser on to a page of another one, signed in."""
    return f"/hop?to={quote(url + path, safe='')}"


def login_url(base: str, ticket: str, path: str) -> str:
    """Return the address that signs a browser in at a server with a ticket, and opens a page there.

    The ticket is in the fragment, which browsers send to no server and name in no ``Referer``.
    """
    return f"{base}/login#ticket={quote(ticket, safe='')}&next={quote(path, safe='')}" if ticket else base + path
