"""Signatures of requests with the cluster key or the key of a user: no secret is sent.

A token would have to travel from host to host; a signature does not. The header is ::

    Authorization: Dropflow time=SECONDS, nonce=HEX, body=SHA256, manager=HEX, signature=HMAC

where the HMAC-SHA256, with a key derived from the secret half of the cluster key, covers the method, the host,
the path with its query, type and encoding of the body, the hash of the body as it is sent, the time, the nonce and the
manager. So a signature cannot be made without the key, used for another request, sent to another manager, or sent
twice. The header has exactly this form: each field once, in this order, and no others.

``manager`` is a random number that the called manager draws when it starts. It differs for the managers of one host,
also behind proxies and tunnels, and makes all signatures of the time before a restart worthless, so that no nonce has
to be stored. The time is that of the manager that is called, so that the clocks of two hosts need not agree. A manager
that gets another number or another time refuses the request, and answers with its own ::

    WWW-Authenticate: Dropflow time=SECONDS, manager=HEX, proof=HMAC

where the HMAC covers both and the nonce of the refused request. So only holders of the key can make a caller sign for
another manager or time. The caller signs again, and keeps the number and the difference of the times. A caller's first
request is always refused in this way.

ADR 0010 explains why this is not RFC 9421, and how it answers the security considerations there.

The key of a user (`UserKey`) is derived from the cluster key, the name of the user and the time at which it was made,
so that managers need no list of users. Its signatures name both, in a field before the signature, which is signed, too:
``user=NAME@SECONDS``. A file beside the cluster key has the revoked users (ADR 0045).
"""

import hashlib
import hmac
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from dropflow.clock import Clock, SystemClock
from dropflow.errors import BadFileError, BadParameterError, ClockSkewError, HttpError, StorageError
from dropflow.ids import USER_NAME

SCHEME = "Dropflow"
WINDOW = 60.0
"""Seconds by which the time of a signature may differ from the manager's clock; nonces are kept for twice as long."""

_MOST_NONCES = 100_000
"""Signed requests of one key that are remembered, so that none is accepted twice."""
_PURPOSE = b"dropflow rest request, version 2"
_CHALLENGE = "challenge"
"""First part of what a proof covers; a request has nine parts."""
_UNKNOWN = "0" * 32
"""Stands for the manager in a caller's first request."""

# One form, matched as a whole, so that no field can be given twice, be empty, or be read in two ways.
_TIME, _HEX32, _HEX64 = r"(?P<time>[0-9]{1,12}\.[0-9]{3})", "[0-9a-f]{32}", "[0-9a-f]{64}"
_NAME, _SECONDS = USER_NAME, "[1-9][0-9]{0,11}"
_HEADER = re.compile(
    rf"(?i:{SCHEME}) time={_TIME}, nonce=(?P<nonce>{_HEX32}), body=(?P<body>{_HEX64}),"
    rf" manager=(?P<manager>{_HEX32}),(?: user=(?P<user>{_NAME})@(?P<made>{_SECONDS}),)?"
    rf" signature=(?P<signature>{_HEX64})",
    re.ASCII,
)
_ANSWER = re.compile(rf"(?i:{SCHEME}) time={_TIME}, manager=(?P<manager>{_HEX32}), proof=(?P<proof>{_HEX64})", re.ASCII)
_USER_PURPOSE = "dropflow user key, version 1"


def default_key_file() -> Path:
    """Return where the file of the cluster key is on a host, if no option and no variable names another one."""
    import platformdirs  # noqa: PLC0415 - requests need none

    return Path(platformdirs.user_config_dir("dropflow")) / "cluster.key"


_REVOKED = re.compile(rf"(?P<user>{_NAME}) (?P<until>{_SECONDS})", re.ASCII)


class UserKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key of one user, with which people call managers, and managers do not call each other.

    Attributes
    ----------
    name : str
        Name of the user.
    made : int
        When it was made, in seconds since 1970: a name has another key each time.
    secret : bytes
        Appears neither in `repr` nor in a log.
    """

    name: str
    made: int
    secret: bytes

    def __repr__(self) -> str:
        return f"UserKey(name={self.name!r}, made={self.made!r})"


def user_field(name: str, seconds: int) -> str:
    """Return the text that names a user, and the time at which a key was made.

    Raises
    ------
    BadParameterError
        The name or the time has another form.
    """
    field = f"{name}@{seconds}"
    if not re.fullmatch(f"{_NAME}@{_SECONDS}", field, re.ASCII):
        hint = "a small letter, then up to 31 small letters, digits, dots, hyphens and underscores"
        raise BadParameterError(f"{name!r} cannot be the name of a user", hint=hint)
    return field


def derive_user_key(secret: bytes, name: str, made: int) -> UserKey:
    """Return the key of a user.

    Parameters
    ----------
    secret : bytes
        Secret half of the cluster key, which cannot be computed from the result.
    name : str
        Name of the user.
    made : int
        Seconds since 1970.

    Raises
    ------
    BadParameterError
        The name or the time has another form.
    """
    text = f"{_USER_PURPOSE}:{user_field(name, made)}"
    return UserKey(name=name, made=made, secret=hmac.new(secret, text.encode(), hashlib.sha256).hexdigest().encode())


def read_revoked(path: Path) -> dict[str, int]:
    """Return until when keys of users that were made are revoked, in seconds since 1970, by the name of the user.

    The file has lines ``NAME SECONDS``; without a file, no key is revoked.

    Raises
    ------
    StorageError
        The file cannot be read.
    BadFileError
        A line has another form: a key that should be revoked might be accepted.
    """
    revoked: dict[str, int] = {}
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return revoked
    except OSError as error:
        raise StorageError(f"the revoked users cannot be read: {error.strerror}", where=str(path)) from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = _REVOKED.fullmatch(line.strip())
        if parts is None:
            hint = "each line is a name and seconds since 1970, as 'dropflow keys revoke' writes them"
            raise BadFileError(f"line {number} is not a revoked user", where=str(path), hint=hint)
        revoked[parts["user"]] = max(int(parts["until"]), revoked.get(parts["user"], 0))
    return revoked


def digest(buffers: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256 of a body in pieces, as hexadecimal digits."""
    digester = hashlib.sha256()
    for buffer in buffers:
        digester.update(buffer)
    return digester.hexdigest()


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
    secret : bytes or UserKey
        Secret half of the cluster key, or the key of a user.
    clock : Clock, optional
        The system's unless given.
    """

    def __init__(self, secret: bytes | UserKey, *, clock: Clock | None = None) -> None:
        self._user = f"{secret.name}@{secret.made}" if isinstance(secret, UserKey) else ""
        self._key = _Key(secret.secret if isinstance(secret, UserKey) else secret)
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
        answer, request = _ANSWER.fullmatch(challenge), _HEADER.fullmatch(refused)
        if answer is None or request is None:
            return False
        expected = self._key.proof(request["nonce"], answer["time"], answer["manager"])
        if not hmac.compare_digest(expected, answer["proof"]):
            return False
        self._manager, self._ahead = answer["manager"], float(answer["time"]) - self._clock.now()
        return True

    def sign(
        self, method: str, host: str, target: str, body: str, *, content_type: str = "", content_encoding: str = ""
    ) -> str:
        """Return the ``Authorization`` header of a request.

        Parameters
        ----------
        method, host, target : str
            Parts of the request, exactly as they are sent; `target` is the path with its query.
        body : str
            `digest` of the body as it is sent, compressed or not.
        content_type, content_encoding : str
            The headers of the body; empty if they are not sent.
        """
        time, nonce = f"{max(self._clock.now() + self._ahead, 0):.3f}", secrets.token_hex(16)
        covered = [method, host, target, content_type, content_encoding, body, time, nonce, self._manager]
        user = f" user={self._user}," if self._user else ""
        signature = self._key.signature(*covered, *filter(None, [self._user]))
        return f"{SCHEME} time={time}, nonce={nonce}, body={body}, manager={self._manager},{user} signature={signature}"


class Signed(msgspec.Struct, frozen=True):
    """The digest and the user from a valid signature.

    Attributes
    ----------
    digest : str
        The hash that the body must have, which is compared when the body is read.
    user : str
        The user whose key signed it; empty for the cluster key.
    """

    digest: str
    user: str = ""


class Verifier:
    """Checks requests that are signed for one manager, and keeps their nonces for as long as they could be sent again.

    Parameters
    ----------
    secret : bytes
        Secret half of the cluster key.
    revoked : Path, optional
        The file of revoked users (`read_revoked`); without it, keys of users are refused.
    clock : Clock, optional
        The system's unless given.
    """

    def __init__(self, secret: bytes, *, revoked: Path | None = None, clock: Clock | None = None) -> None:
        self._secret = secret
        self._key = _Key(secret)
        self._revoked = revoked
        self._clock = clock or SystemClock()
        self._manager = secrets.token_hex(16)
        # The time of signatures starts with the system's, and never goes back: a nonce that was forgotten because its
        # time is over stays over, even if the clock of the system is set back.
        self._began = self._clock.now() - self._clock.monotonic()
        # Guards the nonces: two threads of the server may check the same request at the same time, and only one of them
        # may accept it.
        self._lock = threading.Lock()
        # Those of users are counted apart: a user who sends very many requests does not keep managers from theirs.
        self._seen: tuple[OrderedDict[str, float], ...] = (OrderedDict(), OrderedDict())

    def check(
        self,
        header: str,
        method: str,
        host: str,
        target: str,
        *,
        content_type: str = "",
        content_encoding: str = "",
    ) -> Signed:
        """Check a signature; return who signed, and the hash that the body must have.

        Parameters
        ----------
        header : str
            ``Authorization``.
        method, host, target, content_type, content_encoding : str
            Parts of the request as it was received; see `Signer.sign`.

        Raises
        ------
        HttpError
            401: the header is malformed, signed with another key, for another request or for another manager, or was
            used before.
        ClockSkewError
            It was signed for another time.
        """
        match = _HEADER.fullmatch(header)
        if match is None:
            raise HttpError(
                401,
                f"the {SCHEME} signature cannot be read",
                hint="is the same version of dropflow on both hosts? a signature has the fields time, nonce, body, "
                "manager and signature, each once and in this order",
            )
        time, nonce, manager = match["time"], match["nonce"], match["manager"]
        covered = [method, host, target, content_type, content_encoding, match["body"], time, nonce, manager]
        key, user = self._key, match["user"] or ""
        if user:
            covered.append(f"{user}@{match['made']}")
            key = _Key(derive_user_key(self._secret, user, int(match["made"])).secret)
        if not hmac.compare_digest(key.signature(*covered), match["signature"]):
            raise HttpError(
                401,
                f"the signature of user {user} is wrong" if user else "the signature is wrong",
                hint="is it a key of this cluster, and its name as it was made? ask the administrator for another"
                if user
                else "is it the same cluster key on both hosts? compare the fingerprints with 'dropflow keys show'",
            )
        if user:
            self._check_user(user, int(match["made"]))
        # Checked after the signature, so that only holders of the key learn the time of this clock.
        now = self._began + self._clock.monotonic()
        if manager != self._manager:
            raise HttpError(
                401,
                "the request is signed for another manager, or for this one before it was started again",
                challenge=self._challenge(key, nonce, now),
                hint="sign for the manager in WWW-Authenticate",
            )
        if abs(now - float(time)) > WINDOW:
            way = "behind" if float(time) < now else "ahead of"
            raise ClockSkewError(
                f"the request was signed {abs(now - float(time)):.0f} s {way} the clock of this host",
                challenge=self._challenge(key, nonce, now),
                hint="sign by the time in WWW-Authenticate, or set both clocks (NTP): a signature is valid for "
                f"{WINDOW:g} s",
            )
        self._remember(self._seen[bool(user)], nonce, now)
        return Signed(match["body"], user)

    def _check_user(self, user: str, made: int) -> None:
        """Refuse a key that is revoked, and all keys of users if this manager cannot know those that are.

        The file is read for each request: it is short, and a revoked key must not be valid for a moment longer.
        """
        hint = "ask another manager, such as the island, or use the cluster key"
        if self._revoked is None:
            raise HttpError(403, "this server takes no keys of users", hint=hint)
        try:
            until = read_revoked(self._revoked).get(user, 0)
        except (StorageError, BadFileError) as error:
            text = "no key of a user is accepted: the file of revoked users cannot be read"
            raise HttpError(403, text, hint="the log of the manager and 'dropflow keys show' there say why") from error
        if made <= until:
            raise HttpError(
                403,
                f"the key of user {user} is revoked",
                hint="ask the administrator for another ('dropflow keys user')",
            )

    def _challenge(self, key: _Key, nonce: str, now: float) -> str:
        time = f"{now:.3f}"
        return f"{SCHEME} time={time}, manager={self._manager}, proof={key.proof(nonce, time, self._manager)}"

    def _remember(self, seen: OrderedDict[str, float], nonce: str, now: float) -> None:
        with self._lock:
            # A request signed ahead of this clock stays valid for twice the window.
            while seen and next(iter(seen.values())) < now - 2 * WINDOW:
                seen.popitem(last=False)
            if nonce in seen:
                raise HttpError(401, "this signed request was received before", hint="sign each request anew")
            if len(seen) >= _MOST_NONCES:
                raise HttpError(503, f"too many signed requests in {2 * WINDOW:g} s", hint="ask again later")
            seen[nonce] = now
