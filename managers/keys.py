"""The cluster key, and the keys of users. Processes that have the cluster key belong to the cluster.

One CurveZMQ key pair is shared by all processes of a cluster, and both ends of every link use it. The connecting end
proves with the secret half that it belongs to the cluster, and it demands the same proof of the end it reaches;
everything between them is encrypted and authenticated. A user who can read the key file can do what any node can do:
names inside a cluster are not secrets, and a stolen key must be replaced on all hosts.

The file holds the secret and is readable by its owner only (mode 0600, in a directory of mode 0700). Copy it to the
other hosts as you copy other secrets (ssh, a Kubernetes secret). dropflow only sends it through ssh, to hosts on which
it starts node managers itself.

The key of a user signs requests of people to managers (`dropflow.api.signing`), and nothing else. It is derived from
the cluster key, so that all managers accept it at once. Files beside the cluster key have the revoked ones, and what
users may run.
"""

import fcntl
import hashlib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from dropflow.api.signing import UserKey, derive_user_key, read_revoked, user_field
from dropflow.errors import BadFileError, ConflictError, MissingDependencyError, StorageError
from dropflow.files import make_directories, replace_file

_HEADER = "# dropflow cluster key: every process that can read this file can join the cluster. Keep it secret.\n"
_Z85_CHARACTERS = 40
"""Characters of a CURVE key of 32 bytes in Z85, which writes 4 bytes as 5 characters."""
_USER_HEADER = "# dropflow user key: who can read this file can act as this user at the managers. Keep it secret.\n"
_USER_FILE = re.compile(r"user (\S+)\nmade (\d{1,12})\nsecret ([0-9a-f]{64})\n", re.ASCII)
_REVOKED_HEADER = "# Keys of these users that were made until then (seconds since 1970) are revoked.\n"


class ClusterKey(msgspec.Struct, frozen=True):
    """The key pair of a cluster, in ZeroMQ's Z85 text form (40 characters for 32 bytes).

    The secret appears neither in `repr` nor in a log.
    """

    public: bytes
    secret: bytes

    @property
    def fingerprint(self) -> str:
        """A few characters by which people compare keys; they do not reveal the secret."""
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
    _write_new(path, content, "a cluster key")
    return ClusterKey(public, secret)


def _write_new(path: Path, content: str, what: str) -> None:
    """Write a file that only its owner can read, and that is not there yet."""
    try:
        make_directories(path.parent)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError as error:
        hint = "load it, or remove it if no process uses it any more"
        raise ConflictError(f"there is {what} already", where=str(path), hint=hint) from error
    except OSError as error:
        raise StorageError(f"the key cannot be stored: {error.strerror}", where=str(path)) from error
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), 0o600)  # independent of the umask
            file.write(content)
    except OSError as error:
        path.unlink(missing_ok=True)  # the beginning of a key is none, and would be in the way
        raise StorageError(f"the key cannot be stored: {error.strerror}", where=str(path)) from error


def load(path: Path) -> ClusterKey:
    """Return the key pair stored at `path`.

    Raises
    ------
    BadFileError
        The file cannot be read, is not a cluster key, has halves that do not match, or others than its owner can
        read it.
    """
    key = load_any(path)
    if isinstance(key, UserKey):
        hint = "managers, and commands that start them, need the cluster key"
        raise BadFileError("this is the key of a user, not the cluster key", where=str(path), hint=hint)
    return key


def parse_key(text: bytes, *, where: str) -> ClusterKey:
    """Return the key pair in the content of a key file, which is from `where`.

    Raises
    ------
    BadFileError
        It is not a cluster key, or its halves do not match.
    """
    import zmq  # noqa: PLC0415 - see `create`

    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith(b"#")]
    fields = {words[0]: words[1] for words in lines if len(words) == 2}
    public, secret = fields.get(b"public", b""), fields.get(b"secret", b"")
    if len(public) != _Z85_CHARACTERS or len(secret) != _Z85_CHARACTERS:
        hint = "it has a line 'public KEY' and a line 'secret KEY'; copy it again from a host of the cluster"
        raise BadFileError("not a cluster key", where=where, hint=hint)
    try:
        derived = zmq.curve_public(secret)
    except (ValueError, zmq.ZMQError) as error:
        raise BadFileError("the secret is not a CURVE key", where=where, hint="copy it again") from error
    if derived != public:
        raise BadFileError("the public and the secret key do not match", where=where, hint="copy it again")
    return ClusterKey(public, secret)


def create_user(path: Path, cluster: ClusterKey, name: str, made: int) -> UserKey:
    """Make the key of a user and store it at `path`.

    Parameters
    ----------
    cluster : ClusterKey
        Key of the cluster at which the key is valid.
    name : str
        Name of the user.
    made : int
        Now, in seconds since 1970; later than the revocation of former keys of this user.

    Raises
    ------
    BadParameterError
        The name has another form.
    ConflictError, StorageError
        As `create`.
    """
    key = derive_user_key(cluster.secret, name, made)
    content = f"{_USER_HEADER}user {key.name}\nmade {key.made}\nsecret {key.secret.decode('ascii')}\n"
    _write_new(path, content, "a key")
    return key


def load_any(path: Path) -> ClusterKey | UserKey:
    """Return the key stored at `path`, of the cluster or of a user; raises as `load`."""
    text = _read(path)
    match = _USER_FILE.search(text.decode("ascii", errors="replace"))
    if match is None:
        return parse_key(text, where=str(path))
    return UserKey(name=match[1], made=int(match[2]), secret=match[3].encode())


def fingerprint(key: UserKey) -> str:
    """Return a few characters by which people compare keys of users; they do not reveal the secret."""
    return hashlib.sha256(b"dropflow user key " + key.secret).hexdigest()[:16]


class UserFiles(msgspec.Struct, frozen=True):
    """The files about the users of a cluster, which need not exist.

    Attributes
    ----------
    revoked : Path
        The revoked users (`dropflow.api.signing.read_revoked`).
    limits : Path
        What users may run at a time (`managers.routes.owners.read_user_limits`).
    """

    revoked: Path
    limits: Path

    @classmethod
    def beside(cls, key: Path) -> "UserFiles":
        """Return the files beside the cluster key in the file `key`."""
        return cls(key.with_name(f"{key.name}.revoked"), key.with_name(f"{key.name}.limits"))


def revoke(path: Path, name: str, until: int) -> None:
    """Revoke the keys of a user.

    Parameters
    ----------
    path : Path
        The file of revoked users (`UserFiles`).
    name : str
        Name of the user.
    until : int
        Keys that were made until then are revoked, in seconds since 1970.

    Raises
    ------
    BadParameterError
        The name has another form.
    BadFileError, StorageError
        The file cannot be read or replaced.
    """
    user_field(name, until)
    directory = -1
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(directory, fcntl.LOCK_EX)  # another command may revoke another user
        revoked = read_revoked(path)
        revoked[name] = max(until, revoked.get(name, 0))
        lines = "".join(f"{user} {seconds}\n" for user, seconds in sorted(revoked.items()))
        replace_file(path, f"{_REVOKED_HEADER}{lines}".encode("ascii"))
    except OSError as error:
        raise StorageError(f"the revoked users cannot be stored: {error.strerror}", where=str(path)) from error
    finally:
        if directory >= 0:
            os.close(directory)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            _check_private(path, os.fstat(file.fileno()))
            return file.read(4096)
    except OSError as error:
        hint = "make one with 'dropflow keys create', copy that of the cluster here, or name another file with --key"
        raise BadFileError(f"the cluster key cannot be read: {error.strerror}", where=str(path), hint=hint) from error


def _check_private(path: Path, status: os.stat_result) -> None:
    """Reject a key that users other than its owner could have read or replaced."""
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(status.st_mode)
        hint = f"chmod 600 {path}; if others use this machine, make a new key"
        raise BadFileError(f"others can read the cluster key (mode {mode:04o})", where=str(path), hint=hint)
    if status.st_uid not in (os.geteuid(), 0):
        raise BadFileError("the cluster key belongs to another user", where=str(path), hint="copy it as your own")
