"""The cluster key. Processes that have it belong to the cluster; others are refused.

One CurveZMQ key pair is shared by all processes of a cluster, and both ends of every link use it. The connecting end
proves with the secret half that it belongs to the cluster, and it demands the same proof of the end it reaches;
everything between them is encrypted and authenticated. A user who can read the key file can do what any node can do:
names inside a cluster are not secrets, and a stolen key must be replaced on all hosts.

The file holds the secret and is readable by its owner only (mode 0600, in a directory of mode 0700). Copy it
to the other hosts as you copy other secrets (ssh, a Kubernetes secret). dropflow only sends it through ssh, to hosts on
which it starts node managers itself.
"""

import hashlib
import os
import stat
from pathlib import Path

import msgspec

from dropflow.errors import BadFileError, ConflictError, MissingDependencyError, StorageError
from dropflow.files import make_directories

_HEADER = "# dropflow cluster key: every process that can read this file can join the cluster. Keep it secret.\n"
_Z85_CHARACTERS = 40


class ClusterKey(msgspec.Struct, frozen=True):
    """The key pair of a cluster, in ZeroMQ's Z85 text form (40 characters for 32 bytes).

    The secret appears neither in `repr` nor in a log.
    """

    public: bytes
    secret: bytes

    @property
    def fingerprint(self) -> str:
        """Return a few characters by which people compare keys; they do not reveal the secret."""
        return hashlib.sha256(b"dropflow cluster key " + self.public).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"ClusterKey(fingerprint={self.fingerprint!r})"


def create(path: Path) -> ClusterKey:
    """Create a key pair and store it at `path`.

    Raises
    ------
    ConflictError
        The file exists: a key is never overwritten.
    StorageError
        The file could not be written.
    MissingDependencyError
        This build of ZeroMQ has no CURVE.
    """
    import zmq  # noqa: PLC0415 - commands that make no key should not load it

    if not zmq.has("curve"):
        raise MissingDependencyError("this build of ZeroMQ has no CURVE", hint="install pyzmq from a wheel")
    public, secret = zmq.curve_keypair()
    content = f"{_HEADER}public {public.decode('ascii')}\nsecret {secret.decode('ascii')}\n"
    try:
        make_directories(path.parent)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError as error:
        hint = "load it, or remove it if no process uses it any more"
        raise ConflictError("there is a cluster key already", where=str(path), hint=hint) from error
    except OSError as error:
        raise StorageError(f"the cluster key cannot be stored: {error.strerror}", where=str(path)) from error
    with os.fdopen(handle, "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o600)  # independent of the umask
        file.write(content)
    return ClusterKey(public, secret)


def load(path: Path) -> ClusterKey:
    """Return the key pair stored at `path`.

    Raises
    ------
    StorageError
        The file cannot be read.
    BadFileError
        It is not a cluster key, its halves do not match, or users other than its owner can read it.
    """
    import zmq  # noqa: PLC0415 - see `create`

    try:
        with path.open("rb") as file:
            _check_private(path, os.fstat(file.fileno()))
            text = file.read(4096)
    except OSError as error:
        hint = "make one with 'dropflow keys create', or copy that of the cluster here"
        raise StorageError(f"the cluster key cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith(b"#")]
    fields = {words[0]: words[1] for words in lines if len(words) == 2}  # noqa: PLR2004 - a word and its value
    public, secret = fields.get(b"public", b""), fields.get(b"secret", b"")
    if len(public) != _Z85_CHARACTERS or len(secret) != _Z85_CHARACTERS:
        hint = "it has a line 'public KEY' and a line 'secret KEY'; copy it again from a host of the cluster"
        raise BadFileError("not a cluster key", where=str(path), hint=hint)
    try:
        derived = zmq.curve_public(secret)
    except (ValueError, zmq.ZMQError) as error:
        raise BadFileError("the secret is not a CURVE key", where=str(path), hint="copy it again") from error
    if derived != public:
        raise BadFileError("the public and the secret key do not match", where=str(path), hint="copy it again")
    return ClusterKey(public, secret)


def _check_private(path: Path, status: os.stat_result) -> None:
    """Reject a key that users other than its owner could have read or replaced."""
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(status.st_mode)
        hint = f"chmod 600 {path}; if others use this machine, make a new key"
        raise BadFileError(f"others can read the cluster key (mode {mode:04o})", where=str(path), hint=hint)
    if status.st_uid not in (os.geteuid(), 0):
        raise BadFileError("the cluster key belongs to another user", where=str(path), hint="copy it as your own")
