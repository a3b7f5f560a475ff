"""Signatures of requests with the cluster key: managers call each other without sending a secret.

A token would have to travel from host to host; a signature does not. The header is ::

    Authorization: Dropflow time=SECONDS, nonce=HEX, body=SHA256, manager=HEX, signature=HMAC

where the HMAC-SHA256, with a key derived from the secret half of the cluster key, covers the method, the host,
the path with its query, type and encoding of the body, the hash of the body as it is sent, the time, the nonce and the
manager. So a signature cannot be made without the key, used for another request, sent to another manager, or sent
twice. The header has exactly this form: each field once, in this order, and no others.

``manager`` is a random number that the called manager draws when it starts. It tells the managers of one host apart,
also behind proxies and tunnels, and makes all signatures of the time before a restart worthless, so that no nonce has
to be stored. The time is that of the manager that is called, so that the clocks of two hosts need not agree. A manager
that gets another number or another time refuses the request, and answers with its own ::

    WWW-Authenticate: Dropflow time=SECONDS, manager=HEX, proof=HMAC

where the HMAC covers both and the nonce of the refused request. So only holders of the key can make a caller sign for
another manager or time. The caller signs again, and keeps the number and the difference of the times. A caller's first
request is always refused in this way.

ADR 0010 says why this is not RFC 9421, and how it answers the security considerations there.
"""

import hashlib
import hmac
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable

from dropflow.clock import Clock, SystemClock
from dropflow.errors import ClockSkewError, HttpError

SCHEME = "Dropflow"
WINDOW = 60.0
"""Seconds by which the time of a signature may differ from the manager's clock; nonces are kept for twice as long."""

_NONCES = 100_000
_PURPOSE = b"dropflow rest request, version 2"
_CHALLENGE = "challenge"
"""First part of what a proof covers; a request has nine parts."""
_UNKNOWN = "0" * 32
"""In place of the manager in a caller's first request."""

# One form, matched as a whole, so that no field can be given twice, be empty, or be read in two ways.
_TIME, _HEX32, _HEX64 = r"(?P<time>[0-9]{1,12}\.[0-9]{3})", "[0-9a-f]{32}", "[0-9a-f]{64}"
_HEADER = re.compile(
    rf"(?i:{SCHEME}) time={_TIME}, nonce=(?P<nonce>{_HEX32}), body=(?P<body>{_HEX64}),"
    rf" manager=(?P<manager>{_HEX32}), signature=(?P<signature>{_HEX64})",
    re.ASCII,
)
_ANSWER = re.compile(rf"(?i:{SCHEME}) time={_TIME}, manager=(?P<manager>{_HEX32}), proof=(?P<proof>{_HEX64})", re.ASCII)


def digest(buffers: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256 of a body in pieces, as hexadecimal digits."""
    found = hashlib.sha256()
    for buffer in buffers:
        found.update(buffer)
    return found.hexdigest()


class _Key:
    """The derived key, which is of no use on the links."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.new(secret, _PURPOSE, hashlib.sha256).digest()

    def signature(self, *request: str) -> str:
        # Each part has its length in front, so that no two requests have the same text.
        text = "".join(f"{len(piece)}:{piece}" for piece in request)
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def proof(self, nonce: str, time: str, manager: str) -> str:
        """Return the proof of a time and a manager that are sent to the caller."""
        return self.signature(_CHALLENGE, nonce, time, manager)


class Signer:
    """Signs requests to one manager.

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
        self._manager = _UNKNOWN
        self._ahead = 0.0
        """Seconds by which the clock of the manager is ahead of the clock here."""

    def learn(self, challenge: str, refused: str) -> bool:
        """Sign for the manager and by the time of a challenge from now on; return whether it was valid.

        Parameters
        ----------
        challenge : str
            ``WWW-Authenticate`` header of an answer.
        refused : str
            ``Authorization`` header of the request that was answered.
        """
        found, asked = _ANSWER.fullmatch(challenge), _HEADER.fullmatch(refused)
        if found is None or asked is None:
            return False
        expected = self._key.proof(asked["nonce"], found["time"], found["manager"])
        if not hmac.compare_digest(expected, found["proof"]):
            return False
        self._manager, self._ahead = found["manager"], float(found["time"]) - self._clock.now()
        return True

    def sign(
        self, method: str, host: str, target: str, body: str, *, content_type: str = "", content_encoding: str = ""
    ) -> str:
        """Return the ``Authorization`` header of a request.

        Parameters
        ----------
        method, host, target : str
            Of the request, exactly as they are sent; `target` is the path with its query.
        body : str
            `digest` of the body as it is sent, compressed or not.
        content_type, content_encoding : str
            The headers of the body; empty if they are not sent.
        """
        time, nonce = f"{max(self._clock.now() + self._ahead, 0):.3f}", secrets.token_hex(16)
        covered = (method, host, target, content_type, content_encoding, body, time, nonce, self._manager)
        signature = self._key.signature(*covered)
        return f"{SCHEME} time={time}, nonce={nonce}, body={body}, manager={self._manager}, signature={signature}"


class Verifier:
    """Checks requests that are signed for one manager, and keeps their nonces for as long as they could be sent again.

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
        self._manager = secrets.token_hex(16)
        # The time of signatures starts with the system's, and never goes back: a nonce that was forgotten because its
        # time is over stays over, even if the clock of the system is set back.
        self._began = self._clock.now() - self._clock.monotonic()
        # Guards the nonces: two threads of the server may check the same request at the same time, and only one of
        # them may accept it.
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, float] = OrderedDict()

    def check(
        self,
        header: str,
        method: str,
        host: str,
        target: str,
        *,
        content_type: str = "",
        content_encoding: str = "",
    ) -> str:
        """Check a signature; return the hash that the body must have, which is compared when the body is read.

        Parameters
        ----------
        header : str
            ``Authorization``.
        method, host, target, content_type, content_encoding : str
            Of the request as it was received; see `Signer.sign`.

        Raises
        ------
        HttpError
            401: the header is malformed, signed with another key, for another request or for another manager, or was
            used before.
        ClockSkewError
            It was signed for another time.
        """
        found = _HEADER.fullmatch(header)
        if found is None:
            raise HttpError(
                401,
                f"the {SCHEME} signature cannot be read",
                hint="is the same version of dropflow on both hosts? a signature has the fields time, nonce, body, "
                "manager and signature, each once and in this order",
            )
        time, nonce, manager = found["time"], found["nonce"], found["manager"]
        covered = (method, host, target, content_type, content_encoding, found["body"], time, nonce, manager)
        if not hmac.compare_digest(self._key.signature(*covered), found["signature"]):
            raise HttpError(
                401,
                "the signature is wrong",
                hint="is it the same cluster key on both hosts? compare the fingerprints with 'dropflow keys show'",
            )
        # Checked after the signature, so that only holders of the key learn the time of this clock.
        now = self._began + self._clock.monotonic()
        if manager != self._manager:
            raise HttpError(
                401,
                "the request is signed for another manager, or for this one before it was started again",
                challenge=self._challenge(nonce, now),
                hint="sign for the manager in WWW-Authenticate",
            )
        if abs(now - float(time)) > WINDOW:
            way = "behind" if float(time) < now else "ahead of"
            raise ClockSkewError(
                f"the request was signed {abs(now - float(time)):.0f} s {way} the clock of this host",
                challenge=self._challenge(nonce, now),
                hint="sign by the time in WWW-Authenticate, or set both clocks (NTP): a signature is valid for 60 s",
            )
        self._remember(nonce, now)
        return found["body"]

    def _challenge(self, nonce: str, now: float) -> str:
        time = f"{now:.3f}"
        return f"{SCHEME} time={time}, manager={self._manager}, proof={self._key.proof(nonce, time, self._manager)}"

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
