"""The loopback interface, which only processes on this host reach, and all interfaces."""

import errno
import ipaddress
from urllib.parse import SplitResult, urlsplit

from dropflow.errors import ConflictError

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
    return parts if parts.scheme.lower() in ("http", "https") and parts.hostname else None


def address_error(text: str, error: OSError, *, option: str) -> ConflictError:
    """Return the error for an address that this process cannot have, whose port is that of an option."""
    is_elsewhere = error.errno == errno.EADDRNOTAVAIL
    hint = (
        "give an address of this host, or 0.0.0.0 for all" if is_elsewhere else f"choose another {option}, or 0 for any"
    )
    return ConflictError(f"{text}: {error.strerror}", hint=hint)
