r"""Signatures of requests with the cluster key: managers call each other without sending a secret.

A token would have to travel from host to host; a signature does not. The header is ::

    Authorization: Dropflow time=SECONDS, nonce=HEX, body=SHA256, signature=HMAC

where the HMAC-SHA256, with a key derived from the secret half of the cluster key, covers the method, the host,
the path with its query, the hash of the body as it is sent, the time and the nonce. So a signature cannot be made
without the key, used for another request, sent to another manager, or sent twice.

The time is that of the manager that is called, so that the clocks of two hosts need not agree. A manager that gets
another time refuses the request, and answers with its own time ::

    WWW-Authenticate: Dropflow time=SECONDS, proof=HMAC

where the HMAC covers that time and the nonce of the refused request. So only holders of the key can make a caller sign
for another time. The caller signs again, and stores the difference.

ADR 0010 says why this is not RFC 9421.
"""

import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from dropflow.clock import Clock, SystemClock
from dropflow.errors import ClockSkewError, HttpError

__all__ = ["SCHEME", "WINDOW", "Signer", "Verifier", "digest"]

SCHEME = "Dropflow"
WINDOW = 60.0
"""Seconds by which the time of a signature may differ from the manager's clock; nonces are kept for twice as long."""

_NONCES = 100_000
_PURPOSE = b"dropflow rest request, version 1"
_CHALLENGE = "time"
"""First part of what a proof covers; a request has six parts."""


def digest(buffers: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256 of a body in pieces, as hexadecimal digits."""
    found = hashlib.sha256()
    for buffer in buffers:
        found.update(buffer)
    return found.hexdigest()


class _Signature(msgspec.Struct, frozen=True):
    time: float
    nonce: str
    body: str
    signature: str


class _Key:
    """The derived key, which is of no use on the links."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.new(secret, _PURPOSE, hashlib.sha256).digest()

    def signature(self, request: tuple[str, ...]) -> str:
        # Each part has its length in front, so that no two requests have the same text.
        text = "".join(f"{len(piece)}:{piece}" for piece in request)
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def proof(self, nonce: str, time: str) -> str:
        """Return the proof of a time that is sent to the caller."""
        return self.signature((_CHALLENGE, nonce, time))


class Signer:
    """Signs requests.

    Parameters
    ----------
    secret : bytes
        Secret half of the cluster key.
    clock : Clock, optional
        The system's unless given.
    """

    def __init__(self, secret: bytes, *, clock: Clock | None = None) -> None:
        self._key = _Key(secret)
        self._clock = clock or SystemClock()
        self._ahead = 0.0
        """Seconds by which the clock of the manager is ahead of the clock here."""

    def learn(self, challenge: str, refused: str) -> bool:
        """Sign by the clock of the manager from now on; return whether the challenge was valid.

        Parameters
        ----------
        challenge : str
            ``WWW-Authenticate`` header of an answer.
        refused : str
            ``Authorization`` header of the request that was answered.
        """
        scheme, _, fields = challenge.partition(" ")
        if scheme.lower() != SCHEME.lower():
            return False
        challenged, asked = _fields(fields), _parse(refused)
        expected = self._key.proof(asked.nonce, challenged.get("time", ""))
        if not hmac.compare_digest(expected.encode(), challenged.get("proof", "").encode()):
            return False
        self._ahead = float(challenged["time"]) - self._clock.now()
        return True

    def sign(self, method: str, host: str, target: str, body: str) -> str:
        """Return the ``Authorization`` header of a request.

        Parameters
        ----------
        method, host, target : str
            Of the request, exactly as they are sent; `target` is the path with its query.
        body : str
            `digest` of the body as it is sent, compressed or not.
        """
        time, nonce = f"{self._clock.now() + self._ahead:.3f}", secrets.token_hex(16)
        signature = self._key.signature((method, host, target, body, time, nonce))
        return f"{SCHEME} time={time}, nonce={nonce}, body={body}, signature={signature}"


class Verifier:
    """Checks signed requests, and keeps their nonces for as long as they could be sent again.

    Parameters
    ----------
    secret : bytes
        Secret half of the cluster key.
    clock : Clock, optional
        The system's unless given.
    """

    def __init__(self, secret: bytes, *, clock: Clock | None = None) -> None:
        self._key = _Key(secret)
        self._clock = clock or SystemClock()
        # Guards the nonces: two threads of the server may check the same request at the same time, and only one of
        # them may accept it.
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, float] = OrderedDict()

    def check(self, header: str, method: str, host: str, target: str) -> str:
        """Check a signature; return the hash that the body must have, which is compared when the body is read.

        Raises
        ------
        HttpError
            401: the header is malformed, signed with another key or for another request, or was used before.
        ClockSkewError
            It was signed for another time.
        """
        found = _parse(header)
        time = header.partition("time=")[2].partition(",")[0]
        expected = self._key.signature((method, host, target, found.body, time, found.nonce))
        if not hmac.compare_digest(expected.encode(), found.signature.encode()):
            raise HttpError(
                401,
                "the signature is wrong",
                hint="is it the same cluster key on both hosts? compare the fingerprints with 'dropflow keys show'",
            )
        now = self._clock.now()
        # Checked after the signature, so that only holders of the key learn the time of this clock.
        if not abs(now - found.time) <= WINDOW:  # in this form, NaN is refused too
            way = "behind" if found.time < now else "ahead of"
            own_time = f"{now:.3f}"
            raise ClockSkewError(
                f"the request was signed {abs(now - found.time):.0f} s {way} the clock of this host",
                challenge=f"{SCHEME} time={own_time}, proof={self._key.proof(found.nonce, own_time)}",
                hint="sign by the time in WWW-Authenticate, or set both clocks (NTP): a signature is valid for 60 s",
            )
        self._remember(found.nonce, now)
        return found.body

    def _remember(self, nonce: str, now: float) -> None:
        with self._lock:
            # A request signed ahead of this clock stays valid for twice the window.
            while self._seen and next(iter(self._seen.values())) < now - 2 * WINDOW:
                self._seen.popitem(last=False)
            if nonce in self._seen:
                raise HttpError(401, "this signed request was received before", hint="sign each request anew")
            if len(self._seen) >= _NONCES:
                raise HttpError(503, "too many signed requests in two minutes", hint="ask again later")
            self._seen[nonce] = now


def _fields(text: str) -> dict[str, str]:
    return dict(piece.strip().partition("=")[::2] for piece in text.split(","))


def _parse(header: str) -> _Signature:
    scheme, _, rest = header.partition(" ")
    pieces = _fields(rest)
    try:
        if scheme.lower() != SCHEME.lower():
            raise HttpError(401, f"the authorization is not a {SCHEME} signature")
        return msgspec.convert(pieces, _Signature, strict=False)
    except msgspec.ValidationError as error:
        raise HttpError(401, f"the signature cannot be read: {error}") from error
