"""Addresses of servers: their default ports, their form, the loopback interface and all interfaces."""

import errno
import ipaddress
from types import MappingProxyType
from urllib.parse import SplitResult, urlsplit

from dropflow.errors import ConflictError

NODE_PORT = 8000
"""Default port of node managers. This and the other default ports are those of DALiuGE."""
LINKS_PORT = 5555
"""Default port of a node manager for events and data of other nodes."""
ISLAND_PORT = 8001
"""Default port of data island managers."""
MASTER_PORT = 8002
"""Default port of master managers."""
TRANSLATOR_PORT = 8084
"""Default port of translators."""
DAEMON_PORT = 9000
"""Default port of daemons, which start managers."""
DEFAULT_PORTS = MappingProxyType({"http": 80, "https": 443})
"""Port of an address without one, by its scheme."""
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - to recognise them, not to bind them
"""Addresses with which a server listens on all interfaces of its host."""


def is_loopback(host: str) -> bool:
    """Return whether `host` is the loopback interface, by name or by address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def http_parts(url: str) -> SplitResult | None:
    """Return the parts of an address with http or https, a host, and perhaps a port; None for any other text."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        (parts.hostname or "").encode("idna")  # a host whose name has an empty or a long part
    except ValueError:
        return None
    return parts if parts.scheme in DEFAULT_PORTS and parts.hostname else None


def address_error(text: str, error: OSError, *, option: str) -> ConflictError:
    """Return the error for an address that this process cannot have, whose port is that of an option."""
    is_elsewhere = error.errno == errno.EADDRNOTAVAIL
    hint = (
        "give an address of this host, or 0.0.0.0 for all" if is_elsewhere else f"choose another {option}, or 0 for any"
    )
    return ConflictError(f"{text}: {error.strerror}", hint=hint)
