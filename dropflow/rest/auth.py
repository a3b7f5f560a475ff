"""Who may enter: a token or a signature, and the right Host and Origin, on every verb.

Three independent guards, because each stops what the others do not:

* the **token** stops other users and hosts. It travels as ``Authorization: Bearer``, and is compared in constant time.
  A browser gets a cookie instead (`dropflow.rest.login`; HttpOnly, SameSite=Strict), from which the token cannot be
  told, and managers sign their requests with the cluster key (`dropflow.rest.signing`), so that no token ever leaves
  its host;
* the **Host** allow-list stops DNS rebinding, where a foreign name resolves to our address;
* the **Origin** allow-list stops pages of other sites, on every verb (an allow-list of verbs forgets one some day).
"""

import hashlib
import hmac
import ipaddress
import os
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from dropflow.clock import Clock
from dropflow.errors import HttpError, StorageError, UsageError
from dropflow.rest.signing import SCHEME, Verifier

__all__ = [
    "COOKIE",
    "Door",
    "Guard",
    "cookie_name",
    "cookie_value",
    "is_loopback",
    "load_token",
    "make_token",
    "store_token",
]

COOKIE = "dropflow"
"""How the names of cookies begin."""

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
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(token)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
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


def cookie_name(authority: str) -> str:
    """Name of the cookie of the server at `authority` (``host:port``).

    Browsers send the cookies of a host to all its ports; with the port in the name, the servers of one host do not
    overwrite each other's.
    """
    return f"{COOKIE}_{authority.rpartition(':')[2]}" if authority.rpartition(":")[2].isdecimal() else COOKIE


def cookie_value(token: str) -> str:
    """What a browser keeps instead of the token: lets in, but does not tell the token."""
    return hmac.new(token.encode(), b"dropflow cookie, version 1", hashlib.sha256).hexdigest()


def _host_of(authority: str) -> str:
    try:
        return (urlsplit(f"//{authority}").hostname or "").lower()
    except ValueError:
        return ""


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
        The token; None lets everybody in, and is only for servers on loopback.
    secret : bytes or None
        Secret half of the cluster key, whose signatures enter without the token; None refuses all signatures.
    hosts : frozenset of str
        Host names (lower case, no port) under which the server may be addressed, besides loopback.
    origins : frozenset of str
        Origins of other sites whose pages may call, such as ``https://eagle.example.org``.
    """

    token: str | None
    secret: bytes | None = None
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def check(self, headers: Mapping[str, str], *, public: bool = False, cross_site: bool = False) -> None:
        """Refuse a request that may not enter; signatures are the business of `Door`.

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
        try:
            parts = urlsplit(origin)
        except ValueError as error:
            raise HttpError(403, "the Origin of the request cannot be read") from error
        if origin in self.origins or (parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()):
            return
        raise HttpError(403, f"pages of {origin} may not call this server")

    def _check_token(self, headers: Mapping[str, str]) -> None:
        if self.token is None:
            return
        scheme, _, bearer = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given, expected = [bearer.strip()], self.token
        else:
            given, expected = _cookies(headers), cookie_value(self.token)
        # All are compared, so that the time tells nothing about which of them was right.
        right = [hmac.compare_digest(each.encode(), expected.encode()) for each in given]
        if not any(right):
            raise HttpError(
                401,
                "the token is wrong" if any(given) else "a token is needed",
                hint="open the URL that the server printed, or send Authorization: Bearer TOKEN",
            )


class Door:
    """A guard on duty: it also judges signatures, which takes a memory.

    Parameters
    ----------
    guard : Guard
        The rules.
    clock : Clock, optional
        By which signatures are judged; the system's unless given.
    """

    def __init__(self, guard: Guard, *, clock: Clock | None = None) -> None:
        self.guard = guard
        self._verifier = Verifier(guard.secret, clock=clock) if guard.secret is not None else None

    def admit(
        self, headers: Mapping[str, str], method: str, target: str, *, public: bool = False, cross_site: bool = False
    ) -> str | None:
        """Let a request in, or refuse it.

        Parameters
        ----------
        headers, public, cross_site
            See `Guard.check`.
        method, target : str
            Of the request, as they were sent.

        Returns
        -------
        str or None
            The hash that the body of a signed request must have (`dropflow.rest.signing.digest`).

        Raises
        ------
        HttpError
            See `Guard.check`; 401 also for a signature that is wrong or was here before.
        ClockSkewError
            See `Verifier.check`.
        """
        authorization = headers.get("Authorization", "")
        signed = authorization.partition(" ")[0].lower() == SCHEME.lower()
        if not signed or public or self.guard.token is None:
            self.guard.check(headers, public=public, cross_site=cross_site)
            return None
        self.guard.check(headers, public=True, cross_site=cross_site)
        if self._verifier is None:
            raise HttpError(
                401, "this server takes no signatures: it has no cluster key", hint="send Authorization: Bearer TOKEN"
            )
        return self._verifier.check(authorization, method, headers.get("Host", ""), target)


def _cookies(headers: Mapping[str, str]) -> list[str]:
    """What the browser keeps for the servers of this host, whatever their ports.

    Who has logged in at one of the servers that share a token (``dropflow up``) is let in by the others, too.
    """
    try:
        found = SimpleCookie(headers.get("Cookie", ""))
    except CookieError:
        return []
    return [morsel.value for name, morsel in found.items() if name.startswith(COOKIE)]
