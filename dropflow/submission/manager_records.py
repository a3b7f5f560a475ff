"""Records of the managers that run on this host, with their tokens: one file each, readable only by its owner.

These and keys and sessions are below the directories of the user, by the XDG rules::

    $XDG_CONFIG_HOME/dropflow/cluster.key     the key of the cluster
    $XDG_STATE_HOME/dropflow/<name>/          sessions of the manager of that name
    $XDG_STATE_HOME/dropflow/tokens/<host>/   one record for each manager that runs on this host
    $XDG_STATE_HOME/dropflow/jobs/<job>       the directory of a job of ``dropflow launch``

The hosts of a cluster may share the home directory, so what belongs to one host is below the name of the host.
A manager writes its record when it is ready and removes it when it ends. The record of a killed manager is ignored:
another process may have its port now, and must not get its token. So a record is valid only while its process lives.
"""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import platformdirs

from dropflow.api.auth import load_token, store_token
from dropflow.errors import UsageError
from dropflow.files import private_directory
from dropflow.ids import safe_name

_LOOPBACK = "127.0.0.1"
_LOOPBACK_NAMES = (_LOOPBACK, "localhost", "::1")
"""Other addresses of loopback, such as 127.0.0.2, are distinct addresses."""
_SLACK = 0.1
"""Seconds by which the start times of one process may differ, as they are rounded."""


def default_root(name: str) -> Path:
    """Return the default directory of the manager called `name`."""
    return _state() / safe_name(name, fallback="manager")


def token_directory(*, host: str | None = None) -> Path:
    """Return the directory of the records of managers on `host` (by default this host)."""
    return _state() / "tokens" / safe_name(socket.gethostname() if host is None else host, fallback="host")


def record_job(job: str, directory: Path) -> None:
    """Record the directory of a job, called for example ``slurm-123``; numbers of jobs may come again."""
    path = private_directory(_state() / "jobs") / safe_name(job, fallback="job")
    path.unlink(missing_ok=True)
    path.symlink_to(directory)


def directory_of_job(job: str) -> Path | None:
    """Return the directory of a job that this user has launched; None if it is not known."""
    path = _state() / "jobs" / safe_name(job, fallback="job")
    return path.resolve() if path.is_dir() else None


def jobs_of(prefix: str) -> list[Path]:
    """Return the directories of jobs whose names begin with `prefix`."""
    directories = sorted((_state() / "jobs").glob(f"{prefix}*"))
    return [path.resolve() for path in directories if path.is_dir()]


def forget_job(job: str) -> None:
    """Remove the record of a job, not its directory."""
    (_state() / "jobs" / safe_name(job, fallback="job")).unlink(missing_ok=True)


def _state() -> Path:
    return Path(platformdirs.user_state_dir("dropflow"))


class ManagerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A manager that runs on this host.

    Attributes
    ----------
    token : str or None
        The token that requests need; None if they need none.
    everywhere : bool
        Whether it listens on all addresses, so that loopback reaches it too.
    process : int
        Process id; the uptime of the host when it `started` distinguishes it from others of that id.
    group : str
        Name of the managers that were started together (``dropflow up``); empty for those started alone.
    """

    url: str
    role: str
    name: str
    token: str | None
    host: str
    process: int
    started: float
    everywhere: bool = False
    group: str = ""

    def __repr__(self) -> str:
        return f"ManagerRecord(url={self.url!r}, role={self.role!r}, name={self.name!r})"


def write_record(url: str, *, role: str, name: str, token: str | None, everywhere: bool, group: str = "") -> Path:
    """Write the record of the manager in this process, readable only by its owner, and return its path.

    Raises
    ------
    StorageError
        It cannot be written.
    """
    record = ManagerRecord(
        url=url,
        role=role,
        name=name,
        token=token,
        host=socket.gethostname(),
        process=os.getpid(),
        started=_uptime_at_start(os.getpid()),
        everywhere=everywhere,
        group=group,
    )
    path = token_directory() / _file_name(url)
    store_token(path, msgspec.json.encode(record).decode())
    return path


def remove_record(path: Path) -> None:
    """Remove a record of this process. Idempotent; a record of another process at the same path stays."""
    record = _read(path)
    if record is not None and record.process == os.getpid():
        path.unlink(missing_ok=True)


def records_here() -> tuple[ManagerRecord, ...]:
    """Return the records of managers of this user on this host, masters first."""
    order = ("master", "island", "node", "translator", "daemon")
    records = [record for record in _records(token_directory()) if _is_running(record)]
    return tuple(sorted(records, key=lambda record: (order.index(record.role), record.name, record.url)))


def record_for(url: str) -> ManagerRecord | None:
    """Return the record of the manager at `url`, if this user runs it on this host or on one with the same home."""
    wanted = _file_name(url)
    host, port = _authority(url)
    for record in _records(token_directory()):
        is_everywhere = record.everywhere and host == _LOOPBACK and _authority(record.url)[1] == port
        if (is_everywhere or _file_name(record.url) == wanted) and _is_running(record):
            return record
    if host == _LOOPBACK:
        return None
    elsewhere = (path for path in token_directory().parent.glob(f"*/{wanted}") if path.parent != token_directory())
    return next((known for path in elsewhere if (known := _read(path)) is not None), None)


def _records(directory: Path) -> Iterator[ManagerRecord]:
    for path in sorted(directory.glob("*_*")):
        record = _read(path)
        if record is not None:
            yield record


def _read(path: Path) -> ManagerRecord | None:
    try:
        content = load_token(path)
        return None if content is None else msgspec.json.decode(content, type=ManagerRecord)
    except (UsageError, msgspec.MsgspecError, UnicodeError, OSError):
        return None  # a file that other users can read or write is ignored


def _uptime_at_start(process: int) -> float:
    """Return the uptime of the host when a process began, in seconds. It stays the same if the clock is set."""
    import psutil  # 25 ms for each client command, which mostly finds no record

    return psutil.Process(process).create_time() - psutil.boot_time()


def _is_running(record: ManagerRecord) -> bool:
    import psutil  # 25 ms, only with a record

    try:
        return abs(_uptime_at_start(record.process) - record.started) < _SLACK
    except psutil.Error:
        return False


def _authority(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    return (_LOOPBACK if host in _LOOPBACK_NAMES else host), parts.port or 80


def _file_name(url: str) -> str:
    host, port = _authority(url)
    return f"{host.replace(':', '.')}_{port}"
