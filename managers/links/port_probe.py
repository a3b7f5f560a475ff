"""Whether the hosts of other processes refuse connections: then no process listens there."""

import errno
import selectors
import socket
from collections.abc import Mapping
from time import monotonic
from urllib.parse import urlsplit

__all__ = ["refused_ports"]


def refused_ports(addresses: Mapping[str, str], *, seconds: float = 1.0) -> dict[str, bool]:
    """Try to connect to addresses, all at the same time, and return by name whether that is refused.

    A host that does not answer, or cannot be found, does not refuse.

    Parameters
    ----------
    addresses : mapping of str to str
        ``tcp://HOST:PORT`` by name.
    seconds : float
        How long to wait for answers.
    """
    found = dict.fromkeys(addresses, False)
    with selectors.DefaultSelector() as selector:
        try:
            for name, address in addresses.items():
                _begin(selector, name, address, found)
            deadline = monotonic() + seconds
            while selector.get_map() and (left := deadline - monotonic()) > 0:
                for key, _ in selector.select(left):
                    connection = selector.unregister(key.fileobj).fileobj
                    if isinstance(connection, socket.socket):
                        error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                        found[key.data] = error == errno.ECONNREFUSED
                        connection.close()
        finally:
            for key in list(selector.get_map().values()):
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
    return found


def _begin(selector: selectors.BaseSelector, name: str, address: str, found: dict[str, bool]) -> None:
    """Begin to connect to an address."""
    parts = urlsplit(address)
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)[0]
        connection = socket.socket(family, kind, protocol)
    except OSError:
        return  # the name is unknown, or there is no descriptor left
    connection.setblocking(False)
    error = connection.connect_ex(where)
    if error == errno.EINPROGRESS:
        selector.register(connection, selectors.EVENT_WRITE, name)
    else:
        found[name] = error == errno.ECONNREFUSED
        connection.close()
