"""Who may enter: a token, and the right Host and Origin, on every verb.

Three independent guards, because each stops what the others do not:

* the **token** stops other users and hosts. It travels as ``Authorization: Bearer`` or in a cookie that the page of the
  token's URL sets (HttpOnly, SameSite=Strict), and is compared in constant time;
* the **Host** allow-list stops DNS rebinding, where a foreign name resolves to our address;
* the **Origin** allow-list stops pages of other sites, on every verb (an allow-list of verbs forgets one some day).
"""

import hmac
import ipaddress
import os
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from dropflow.errors import StorageError, UsageError
from dropflow.rest.failures import HttpError

__all__ = ["COOKIE", "Guard", "load_token", "make_token", "store_token"]

COOKIE = "dropflow_token"
_TOKEN_BYTES = 32


def make_token() -> str:
    """A fresh secret with 256 random bits, safe in URLs and headers."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def store_token(path: Path, token: str) -> None:
    """Write `token` where only its owner can read it (mode 0600, replaced atomically).

    Raises
    ------
    StorageError
        If the file cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(token)
        fresh.replace(path)
    except OSError as error:
        raise StorageError(f"the token cannot be stored: {error.strerror}", where=str(path)) from error


def load_token(path: Path) -> str | None:
    """The token in a file that only its owner can read, or None if there is no such file.

    Raises
    ------
    UsageError
        If other users can read the file: whoever could read it may have read it.
    """
    try:
        with path.open(encoding="ascii") as stream:
            if os.fstat(stream.fileno()).st_mode & 0o077:
                raise UsageError(
                    "other users can read the token file",
                    where=str(path),
                    hint="delete it and start the manager again: it makes a new token",
                )
            return stream.read().strip()
    except FileNotFoundError:
        return None


def _host_of(authority: str) -> str:
    return (urlsplit(f"//{authority}").hostname or "").lower()


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine's own loopback, by name or by address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """The guards of one server.

    Attributes
    ----------
    token : str or None
        The secret; None lets everybody in, and is only for servers on loopback.
    hosts : frozenset of str
        Host names (lower case, no port) under which the server may be addressed, besides loopback.
    origins : frozenset of str
        Origins of other sites whose pages may call, such as ``https://eagle.example.org``.
    """

    token: str | None
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def check(self, headers: Mapping[str, str], *, public: bool = False, cross_site: bool = False) -> None:
        """Refuse a request that may not enter.

        Parameters
        ----------
        headers : mapping
            ``Host``, ``Origin``, ``Sec-Fetch-Site``, ``Authorization`` and ``Cookie``, as far as there are any.
        public : bool
            Whether the route needs no token (liveness, login, static files).
        cross_site : bool
            Whether pages of other sites may post to the route (EAGLE's form, which only translates).

        Raises
        ------
        HttpError
            421 for a foreign host, 403 for a foreign origin, 401 for a missing or wrong token.
        """
        host = headers.get("Host", "")
        self._check_host(host)
        if not cross_site:
            self._check_origin(headers.get("Origin"), headers.get("Sec-Fetch-Site"), host)
        if not public:
            self._check_token(headers)

    def _check_host(self, authority: str) -> None:
        host = _host_of(authority)
        if not (is_loopback(host) or host in self.hosts):
            raise HttpError(
                421,
                f"this server does not answer for the host {authority!r}",
                hint="use the address that it printed, or start it with --host and that name",
            )

    def _check_origin(self, origin: str | None, site: str | None, host: str) -> None:
        if origin is None:
            # Browsers that send no Origin with a navigation still say where it came from.
            if site == "cross-site":
                raise HttpError(403, "pages of other sites may not call this server")
            return
        parts = urlsplit(origin)
        if origin in self.origins or (parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()):
            return
        raise HttpError(403, f"pages of {origin} may not call this server")

    def _check_token(self, headers: Mapping[str, str]) -> None:
        if self.token is None:
            return
        given = _token_in(headers)
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            raise HttpError(
                401,
                "the token is wrong" if given else "a token is needed",
                hint="open the URL that the server printed, or send Authorization: Bearer TOKEN",
            )


def _token_in(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    try:
        morsel = SimpleCookie(headers.get("Cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""
