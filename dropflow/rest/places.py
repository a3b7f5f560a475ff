"""The servers of one cluster as a browser reaches them, and the one among them where it signs in: the front door."""

import socket
from collections.abc import Callable, Sequence
from urllib.parse import quote, urlsplit

import msgspec

from dropflow.rest.auth import is_loopback

__all__ = ["Places", "ServerAddress", "front_door", "hop_url", "login_url", "same_server", "split_target"]

_RANK = ("master", "island", "node")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class ServerAddress(msgspec.Struct, frozen=True):
    """One server: a manager or a translator."""

    role: str
    name: str
    url: str


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """What a server knows of the cluster.

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
        Returns a ticket of the server at an address.
    """

    role: Callable[[], str] = str
    own: Callable[[], str] = str
    neighbours: Callable[[], Sequence[ServerAddress]] = tuple
    below: Callable[[], Sequence[ServerAddress]] = tuple
    ticket: Callable[[str], str] = lambda _: ""

    def door(self) -> str:
        """Return the address of the front door; empty if that is this server."""
        return front_door(self.neighbours(), above=self.role())

    def find(self, target: str) -> tuple[ServerAddress, str, str] | None:
        """Return the server that the address `target` is on, the address as a browser reaches it, and the path.

        None if it is not a server of this cluster: a browser is never passed on to another one.
        """
        base, path = split_target(target)
        if not base:
            return None
        candidates = (ServerAddress("", "", self.own()), *self.neighbours())
        for place in candidates:
            if place.url and same_server(place.url, base):
                return place, base, path
        return next(((place, base, path) for place in self.below() if same_server(place.url, base)), None)


def front_door(places: Sequence[ServerAddress], *, above: str = "") -> str:
    """Return the address of the topmost manager among `places`; empty if none is above the role `above`."""
    most = _RANK.index(above) if above in _RANK else len(_RANK)
    ranked = [(_RANK.index(place.role), place.url) for place in places if place.role in _RANK]
    return min(ranked)[1] if ranked and min(ranked)[0] < most else ""


def split_target(target: str) -> tuple[str, str]:
    """Return the server of an address, as ``http://host:port``, and the path with query; empty if it is not one."""
    try:
        parts = urlsplit(target)
        usable = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and parts.username is None
        _ = parts.port
    except ValueError:
        return "", ""
    plain = target.isascii() and target.isprintable() and not set(target) & set(" \\\"'<>;,")
    if not usable or not plain:
        return "", ""
    return f"{parts.scheme}://{parts.netloc}", (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def same_server(one: str, other: str) -> bool:
    """Return whether two addresses are the same server. Loopback and the name of this host are one host."""
    return _authority(one) == _authority(other)


def _authority(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    is_own = is_loopback(host) or host == socket.gethostname().lower()
    return parts.scheme, "127.0.0.1" if is_own else host, parts.port or _DEFAULT_PORTS[parts.scheme]


def hop_url(url: str, path: str = "") -> str:
    """Return the address on the own server that passes a browser on to a page of another one, signed in."""
    return f"/hop?to={quote(url + path, safe='')}"


def login_url(base: str, ticket: str, path: str) -> str:
    """Return the address that signs a browser in at a server with a ticket, and opens a page there.

    The ticket is in the fragment, which browsers send to no server and name in no ``Referer``.
    """
    return f"{base}/login#ticket={quote(ticket, safe='')}&next={quote(path, safe='')}" if ticket else base + path
