"""Distinguishes requests of programs, of pages of this server and of pages of other origins.

Browsers send the cookies of a host to all its ports, and call two ports of one host the same *site*. Only the same
*origin* (scheme, host and port) is this server: ``Sec-Fetch-Site: same-site`` means a page of another server.
"""

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

__all__ = ["SAFE_METHODS", "is_foreign", "is_top_level"]

SAFE_METHODS = ("GET", "HEAD")
"""Methods that never change anything here."""

_OWN_SITES = ("same-origin", "none")  # "none": the person typed the address or used a bookmark


def is_foreign(headers: Mapping[str, str], *, allowed: Collection[str] = ()) -> bool:
    """Return whether a page of another origin made the browser send this request.

    A request without ``Origin`` and ``Sec-Fetch-Site`` comes from a program, or from a browser that predates them.

    Parameters
    ----------
    headers : mapping
        ``Host``, ``Origin`` and ``Sec-Fetch-Site``, if they were sent.
    allowed : collection of str
        Origins whose pages are treated as our own.
    """
    origin = headers.get("Origin")
    if origin is not None and origin in allowed:
        return False
    if headers.get("Sec-Fetch-Site", "none") not in _OWN_SITES:
        return True
    return origin is not None and not _is_own(origin, headers.get("Host", ""))


def is_top_level(headers: Mapping[str, str]) -> bool:
    """Return whether the browser opens the answer as a page in a tab: a link, a form or the address bar.

    The answer is then shown to the person, and the page that led there cannot read it.
    """
    return (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) == ("navigate", "document")


def _is_own(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
