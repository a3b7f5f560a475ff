"""Addresses of engines: ``tcp://host:8786`` of a Dask scheduler, ``host:6379`` of a Ray cluster."""

import socket
from urllib.parse import urlsplit

from dropflow.errors import BadParameterError, LinkError

__all__ = ["check_address", "refuse_silent"]

_HINTS = {
    "dask": "give the address that 'dask scheduler' prints, as in --runner dask=tcp://host:8786",
    "ray": "give the address that 'ray start' prints, as in --runner ray=host:6379, or ray=auto on its hosts",
}
_SCHEMES = {"dask": ("tcp", "tls", "ws", "wss", "ucx"), "ray": ()}
_SOCKETS = ("tcp", "tls", "")
"""Schemes of addresses that a plain connection can try."""


def check_address(kind: str, address: str) -> None:
    """Raise if an address is not one of an engine, ``dask`` or ``ray``. Does not try it.

    Raises
    ------
    BadParameterError
        It has another scheme, or no host or port.
    """
    if kind == "ray" and address == "auto":
        return
    scheme, host, port = _parts(address)
    if scheme and scheme not in _SCHEMES[kind]:
        client = "; it cannot be used through a Ray Client server" if scheme == "ray" else ""
        raise BadParameterError(
            f"the address {address!r} of {kind} has the scheme {scheme!r}{client}", hint=_HINTS[kind]
        )
    if not host or port is None:
        raise BadParameterError(f"the address {address!r} of {kind} is not a host and a port", hint=_HINTS[kind])


def refuse_silent(kind: str, address: str, seconds: float) -> None:
    """Raise if no engine answers at an address. Its own client may take minutes to find that out, or never does.

    A process of Dask sends its greeting as soon as it is connected. One that does not is something else.

    Raises
    ------
    LinkError
        The host is not known, or no such process accepts a connection there in time.
    """
    scheme, host, port = _parts(address)
    if scheme not in _SOCKETS or not host or port is None:
        return
    what = "Dask scheduler" if kind == "dask" else "Ray cluster"
    is_greeted = True
    try:
        with socket.create_connection((host, port), seconds) as connection:
            if kind == "dask" and scheme != "tls":
                is_greeted = bool(connection.recv(1))
    except TimeoutError:
        reason = f"nothing was received in {seconds:g} s"
    except OSError as error:
        reason = error.strerror or str(error)
    else:
        if is_greeted:
            return
        reason = "the connection was closed"
    raise LinkError(f"there is no {what} that answers: {reason}", where=address, hint=_HINTS[kind])


def _parts(address: str) -> tuple[str, str, int | None]:
    """Return the scheme, host and port of an address; a port of None if there is none."""
    scheme, separator, rest = address.rpartition("://")
    try:
        found = urlsplit(f"//{rest}")
        host, port = found.hostname or "", found.port
    except ValueError:
        host, port = "", None
    return scheme if separator else "", host, port
