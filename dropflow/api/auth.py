"""Access control: a token or a signature, and an allowed Host and Origin, for every method.

Three independent checks, because each stops what the others do not:

* the **token** stops other users and hosts. It is sent as ``Authorization: Bearer``, and is compared in constant time.
  A browser gets a cookie and a key instead (`dropflow.web.sign_in`), from which the token cannot be computed.
  Managers sign their requests with the cluster key (`dropflow.api.signing`), so that no token leaves its host;
* the **Host** allow-list stops DNS rebinding, where a foreign name resolves to our address;
* the **Origin** check stops pages of other origins, for every method (an allow-list of methods would
  miss one some day). Only opening an address in a tab is allowed from everywhere, since GET changes nothing.

The cookie only reads. Browsers send it to every port of the host, so servers of other users on this host may get it. A
form that changes something also carries the **page key**, which the browser keeps where only pages of this origin, port
included, can read it. So neither another page nor a server that got the cookie can change anything. A browser that may
only read has a **read key** instead, which passes it on to other servers of the cluster, where it may only read, too.
"""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from dropflow.api.addresses import is_loopback
from dropflow.api.signing import SCHEME, Verifier
from dropflow.clock import Clock
from dropflow.errors import DropflowError, HttpError, StorageError, UsageError
from dropflow.files import private_directory, replace_file

if TYPE_CHECKING:
    from dropflow.api.request_bodies import Account

SAFE_METHODS = ("GET", "HEAD")
"""Methods that never change anything here."""

_OWN_SITES = ("same-origin", "none")  # "none": the person typed the address or used a bookmark
COOKIE = "dropflow"
"""Beginning of the names of cookies."""
_ACCESS_TOKEN_BYTES = 32
"""Random bytes of a token that gives access to a server."""
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s\[\]:/?#@,]+)(?P<port>:[0-9]{0,5})?")
HEAD_CHECK = "dropflow.head_check"
"""Key in the WSGI environment of the `HeadCheck`, if the server checked the head before it read the body."""
HAS_CREDENTIAL = "dropflow.known"
"""Key in the WSGI environment by which the application informs the server that the request had a credential."""

# Distinguishes requests of programs, of pages of this server and of pages of other origins.
#
# Browsers send the cookies of a host to all its ports, and call two ports of one host the same *site*. Only the same
# *origin* (scheme, host and port) is this server: ``Sec-Fetch-Site: same-site`` means a page of another server.


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


def make_token() -> str:
    """Return a new secret with 256 random bits, safe in URLs and headers."""
    return secrets.token_urlsafe(_ACCESS_TOKEN_BYTES)


def store_token(path: Path, token: str) -> None:
    """Write `token` to a file that only its owner can read (mode 0600, replaced atomically).

    Raises
    ------
    StorageError
        If the file cannot be written, or every user may write to its directory.
    """
    try:
        private_directory(path.parent)
        replace_file(path, token.encode())
    except OSError as error:
        raise StorageError(f"the token cannot be stored: {error.strerror}", where=str(path)) from error


def load_token(path: Path) -> str | None:
    """Return the token in a file that only its owner can read, or None if there is no such file.

    Raises
    ------
    UsageError
        Other users can read the file, and may have read it; or it is not ASCII text.
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
    except UnicodeDecodeError as error:
        raise UsageError(
            "the token file holds bytes that are not ASCII",
            where=str(path),
            hint="delete it and start the manager again: it makes a new token",
        ) from error


def cookie_name(authority: str) -> str:
    """Return the name of the cookie of the server at `authority` (``host:port``).

    Browsers send the cookies of a host to all its ports; with the port in the name, the servers of one host do not
    overwrite each other's.
    """
    return f"{COOKIE}_{authority.rpartition(':')[2]}" if authority.rpartition(":")[2].isdecimal() else COOKIE


def cookie_value(token: str) -> str:
    """Return the value of the cookie, from which the token cannot be computed."""
    return hmac.new(token.encode(), b"dropflow cookie, version 1", hashlib.sha256).hexdigest()


def page_key(token: str) -> str:
    """Return the key that forms of our pages send beside the cookie; it cannot be computed from the cookie."""
    return hmac.new(token.encode(), b"dropflow page key, version 1", hashlib.sha256).hexdigest()


def read_key(token: str) -> str:
    """Return the key of browsers that may only read; neither the cookie nor the page key can be computed from it."""
    return hmac.new(token.encode(), b"dropflow read key, version 1", hashlib.sha256).hexdigest()


def _host_of(authority: str) -> str:
    """Return the host of ``host:port``; empty for anything else, such as two hosts in one header."""
    match = _AUTHORITY.fullmatch(authority)
    return match["host"].strip("[]").lower() if match else ""


class Proof(Enum):
    """The credential of a request."""

    NONE = "nothing"
    OPEN = "nothing, at a server that has no token"
    COOKIE = "the cookie, which browsers also send on behalf of other pages"
    TOKEN = "the token"
    SIGNATURE = "a signature with the cluster key"
    USER = "a signature with the key of a user"

    @property
    def is_deliberate(self) -> bool:
        """Whether the caller itself sent a secret: no page of another origin can make a browser do that."""
        return self in (Proof.TOKEN, Proof.SIGNATURE, Proof.USER)


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """A request that may enter, and how.

    Attributes
    ----------
    proof : Proof
        Its credential.
    digest : str or None
        The hash that the body of a signed request must have (`dropflow.api.signing.digest`).
    user : str
        The user whose key signed it; empty for all other credentials.
    """

    proof: Proof
    digest: str | None = None
    user: str = ""


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for access to a server.

    Attributes
    ----------
    token : str or None
        The token; without one every request may enter, which is only for servers on loopback.
    secret : bytes or None
        Secret half of the cluster key: requests that it signed need no token. Without it all signatures are refused.
    revoked : Path or None
        The file of revoked users (`dropflow.api.signing.read_revoked`); without it, keys of users are refused.
    hosts : frozenset of str
        Host names (lower case, no port) under which the server may be addressed, besides loopback.
    origins : frozenset of str
        Origins of other sites whose pages may send requests, such as ``https://eagle.example.org``.
    """

    token: str | None
    secret: bytes | None = None
    revoked: Path | None = None
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def check(
        self,
        headers: Mapping[str, str],
        method: str = "GET",
        *,
        public: bool = False,
        cross_site: bool = False,
        form: bool = False,
    ) -> Proof:
        """Refuse a request that may not enter; `AccessControl` checks signatures.

        Parameters
        ----------
        headers : mapping
            ``Host``, ``Origin``, ``Sec-Fetch-*``, ``Authorization`` and ``Cookie``, if the request has them.
        method : str
            Method of the request.
        public : bool
            Whether the route needs no token (liveness, login, static files).
        cross_site : bool
            Whether forms of other sites may post to the route (EAGLE's form, which only translates).
        form : bool
            Whether a form of our pages posts to the route: then the cookie is enough here, and the caller must check
            the form with `is_own_form`.

        Returns
        -------
        Proof
            The credential of the request.

        Raises
        ------
        HttpError
            421 for a foreign host; 403 for a page of a foreign origin, and where the cookie alone would change
            something; 401 for a missing or wrong token.
        """
        self._check_host(headers.get("Host", ""))
        self._check_origin(headers, is_safe=method in SAFE_METHODS, cross_site=cross_site)
        proof = self._proof(headers)
        if public:
            return proof
        if proof is Proof.NONE:
            raise HttpError(
                401,
                "the token is wrong" if "Authorization" in headers or _cookies(headers) else "a token is needed",
                hint="commands on the manager's host need no --token, 'dropflow open' prints an address to log in "
                "with, and programs send Authorization: Bearer TOKEN",
            )
        if proof is Proof.COOKIE and method not in SAFE_METHODS and not form:
            raise HttpError(
                403,
                "the cookie of a browser permits reading only",
                hint="send Authorization: Bearer TOKEN to change something",
            )
        return proof

    def is_own_form(self, fields: Mapping[str, str]) -> bool:
        """Return whether a posted form has the page key, or the token that a person typed into it."""
        if self.token is None:
            return True
        by_key = hmac.compare_digest(fields.get("key", "").encode(), page_key(self.token).encode())
        by_token = hmac.compare_digest(fields.get("token", "").strip().encode(), self.token.encode())
        return by_key or by_token

    def is_reading_form(self, fields: Mapping[str, str]) -> bool:
        """Return whether a posted form has the read key, which is enough for what changes nothing."""
        given = fields.get("key", "").encode()
        return self.token is not None and hmac.compare_digest(given, read_key(self.token).encode())

    def _check_host(self, authority: str) -> None:
        host = _host_of(authority)
        if not (is_loopback(host) or host in self.hosts):
            raise HttpError(
                421,
                f"this server does not accept requests for the host {authority!r}",
                hint="use the address that it printed, or start it with --host and that name",
            )

    def _check_origin(self, headers: Mapping[str, str], *, is_safe: bool, cross_site: bool) -> None:
        """Refuse pages of other origins, unless they open this page in a tab and the route permits that."""
        if not is_foreign(headers, allowed=self.origins):
            return
        # A browser that follows a redirect after a form sends its Origin with the GET, too.
        if (is_safe or cross_site) and is_top_level(headers):
            return
        # Browsers without Sec-Fetch-Mode do not send how they make a request; with their forms they send the Origin.
        is_old = "Sec-Fetch-Mode" not in headers
        if is_old and (cross_site or (is_safe and "Origin" not in headers and "Sec-Fetch-Site" not in headers)):
            return
        origin = headers.get("Origin", "other sites")
        raise HttpError(
            403, f"pages of {origin} may not send requests to this server", hint="open the address in a separate tab"
        )

    def _proof(self, headers: Mapping[str, str]) -> Proof:
        if self.token is None:
            return Proof.OPEN
        scheme, _, bearer = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given, expected, proof = [bearer.strip()], self.token, Proof.TOKEN
        else:
            given, expected, proof = _cookies(headers), cookie_value(self.token), Proof.COOKIE
        # All are compared, so that the time does not depend on which of them was right.
        right = [hmac.compare_digest(each.encode(), expected.encode()) for each in given]
        return proof if any(right) else Proof.NONE


class AccessControl:
    """Admits requests by the rules, and checks signatures, whose nonces it remembers.

    Parameters
    ----------
    rules : AccessRules
        The rules for which requests may enter.
    clock : Clock, optional
        For the time of signatures; the system's unless given.
    """

    def __init__(self, rules: AccessRules, *, clock: Clock | None = None) -> None:
        self.rules = rules
        self._verifier = None
        if rules.secret is not None:
            self._verifier = Verifier(rules.secret, revoked=rules.revoked, clock=clock)

    def admit(
        self,
        headers: Mapping[str, str],
        method: str,
        target: str,
        *,
        public: bool = False,
        cross_site: bool = False,
        form: bool = False,
        users: bool = False,
    ) -> Admission:
        """Admit a request, or refuse it.

        Parameters
        ----------
        headers, public, cross_site, form
            See `AccessRules.check`.
        users : bool
            Whether keys of users are enough for the route. They are enough to read, for all routes.
        method, target : str
            Parts of the request, as they were sent.

        Returns
        -------
        Admission
            How it may enter.

        Raises
        ------
        HttpError
            See `AccessRules.check`; 401 also for a signature that is wrong, for another manager, or was used before;
            403 for the key of a user where it is not enough, or that is revoked.
        ClockSkewError
            See `Verifier.check`.
        """
        authorization = headers.get("Authorization", "")
        signed = authorization.partition(" ")[0].lower() == SCHEME.lower()
        if not signed or public or self.rules.token is None:
            proof = self.rules.check(headers, method, public=public, cross_site=cross_site, form=form)
            return Admission(proof=proof)
        self.rules.check(headers, method, public=True, cross_site=cross_site)
        if self._verifier is None:
            raise HttpError(
                401, "this server has no cluster key and accepts no signatures", hint="send Authorization: Bearer TOKEN"
            )
        signed_by = self._verifier.check(
            authorization,
            method,
            headers.get("Host", ""),
            target,
            content_type=headers.get("Content-Type", ""),
            content_encoding=headers.get("Content-Encoding", ""),
        )
        if signed_by.user and not users and method not in SAFE_METHODS:
            raise HttpError(
                403,
                f"the key of user {signed_by.user} is not enough for {method} {target.partition('?')[0]}",
                hint="the administrator of the cluster does it, with the cluster key or the token of the manager",
            )
        proof = Proof.USER if signed_by.user else Proof.SIGNATURE
        return Admission(proof=proof, digest=signed_by.digest, user=signed_by.user)


def _cookies(headers: Mapping[str, str]) -> list[str]:
    """Return the values of all cookies of dropflow servers on this host, of any port.

    A browser that logged in at one of the servers that share a token (``dropflow up``) may enter the others, too.
    """
    # `http.cookies` forgets all cookies after one that it cannot parse, and other programs on this host may set such.
    pairs = (pair.strip().partition("=") for pair in headers.get("Cookie", "").split(";"))
    return [value for name, _, value in pairs if name.startswith(COOKIE)]


# The head of a request in the WSGI environment, and what is decided from it before the body is read.


class HeadCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about a request from its head alone.

    Attributes
    ----------
    admission : Admission
        How it may enter.
    limit : int
        Bytes that its body may have, as it is sent.
    account : Account or None
        Counts the bytes of the body that the server receives.
    refused : DropflowError or None
        Why the request is refused; its body is not read.
    """

    admission: Admission = Admission(proof=Proof.NONE)
    limit: int = 0
    account: "Account | None" = None
    refused: DropflowError | None = None


def headers_of(environ: Mapping[str, Any]) -> dict[str, str]:
    """Return all headers, with every word of their names capitalised and their values as Latin-1."""
    fields = {name[5:]: value for name, value in environ.items() if name.startswith("HTTP_")}
    fields |= {name: environ[name] for name in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(name)}
    return {name.replace("_", "-").title(): value for name, value in fields.items()}


def target_of(environ: Mapping[str, Any]) -> str:
    """Return path and query as they were sent, if the server in front passes them on.

    Raises
    ------
    HttpError
        400: the request names a whole URL, whose host differs from the header ``Host``.
    """
    given: str = environ.get("REQUEST_URI", "")
    if given.startswith("/"):
        return given
    if given:
        parts = urlsplit(given)
        if parts.netloc and parts.netloc != environ.get("HTTP_HOST"):
            raise HttpError(400, "the request line names another host than the Host header")
        return f"{parts.path}?{parts.query}" if parts.query else parts.path
    query = environ.get("QUERY_STRING", "")
    path = quote(environ.get("bottle.raw_path", environ["PATH_INFO"]).encode("latin-1"))
    return f"{path}?{query}" if query else path


def path_of(target: str) -> str:
    """Return the path of a target, quoted again, so that a quoted slash stays part of a name.

    Raises
    ------
    HttpError
        400: it is not UTF-8.
    """
    try:
        pieces = [unquote(piece, errors="strict") for piece in target.partition("?")[0].split("/")]
    except UnicodeDecodeError:
        raise HttpError(400, "the path is not UTF-8") from None
    return "/".join(quote(piece, safe="") for piece in pieces)
