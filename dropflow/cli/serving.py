"""The frame around every process that stays: logs, key, token, ready line, and a clean end.

``node``, `island`, ``master``, ``daemon`` and ``translator`` differ in what they assemble; everything around that is
the same for all, and is here.
"""

import errno
import fcntl
import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dropflow.cli.exits import Exit
from dropflow.cli.logs import start_logging
from dropflow.cli.paths import default_key, default_root
from dropflow.cli.records import forget, remember
from dropflow.cli.stopping import Stopping
from dropflow.errors import ConflictError, StorageError, UsageError
from dropflow.private import private_directory
from dropflow.rest.auth import is_loopback, load_token, make_token
from managers.keys import ClusterKey, create, load

__all__ = [
    "EVERYWHERE",
    "Front",
    "Ready",
    "ServeOptions",
    "announce",
    "browser_url",
    "claim_root",
    "cluster_key",
    "serve",
]

_log = logging.getLogger(__name__)

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - to recognise it; binding it is the user's own wish


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say that all serving commands share; see their help."""

    host: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    name: str = ""
    root: str | None = None
    key: str | None = None
    no_auth: bool = False
    token_file: str | None = None
    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    watch_parent: int | None = None
    group: str = ""
    log_level: str = "info"
    log_file: str | None = None
    log_json: bool = False


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The ready line: what a process that stays says on standard output, once, when it answers requests."""

    ready: bool = True
    role: str
    url: str
    token: str | None


@dataclass(frozen=True)
class Front:
    """What a command needs to assemble what it serves.

    Attributes
    ----------
    name : str
        Of the manager.
    root : Path
        Its directory, which no other process uses.
    key : ClusterKey
        Of the cluster.
    token : str or None
        What lets people in; None when nobody is kept out.
    reach : str
        Name or address under which others reach this process.
    stack : ExitStack
        Takes what is to be closed, in the opposite order, when the process ends.
    stopping : Stopping
        Ends the process.
    """

    role: str
    name: str
    root: Path
    key: ClusterKey
    token: str | None
    reach: str
    options: ServeOptions
    stack: ExitStack
    stopping: Stopping


def serve(role: str, options: ServeOptions, assemble: Callable[[Front], str]) -> Exit:
    """Assemble what is to be served, say that it is ready, and wait for the end.

    Parameters
    ----------
    assemble : callable
        Builds and starts everything, registers what is to be closed with the front's stack, and answers the URL.

    Returns
    -------
    Exit
        `Exit.FINISHED`: ending when told to is what was asked for.

    Raises
    ------
    UsageError
        The options do not go together, or there is no key where one is demanded.
    WorldError
        A port cannot be bound, or a directory cannot be written.
    """
    record: list[Path] = []
    with Stopping(options.watch_parent, at_once=lambda: _forget(record)) as stopping, ExitStack() as stack:
        _check(options)
        token = _token(options)
        start_logging(level=options.log_level, file=options.log_file, as_json=options.log_json, secrets=[token or ""])
        name = options.name or f"{role}-{socket.gethostname().partition('.')[0]}"
        root = claim_root(Path(options.root) if options.root else default_root(name), stack)
        key = cluster_key(options.key, beyond=not is_loopback(options.host))
        front = Front(
            role=role,
            name=name,
            root=root,
            key=key,
            token=token,
            reach=_reach(options),
            options=options,
            stack=stack,
            stopping=stopping,
        )
        url = assemble(front)
        record += _remembered(front, url)
        stack.callback(_forget, record)
        if not stopping.asked():
            # Whoever watches over this process tells people in its own words.
            people = "" if options.watch_parent is not None else f"open in a browser: {browser_url(url, token)}\n"
            announce(Ready(role=role, url=url, token=token), people=people)
        stopping.wait()
    return Exit.FINISHED


def announce(ready: msgspec.Struct, *, people: str) -> None:
    """Say what there is to say to people, then print the ready line: who waits for it finds everything said."""
    for stream, text in ((sys.stderr, people), (sys.stdout, msgspec.json.encode(ready).decode() + "\n")):
        try:
            stream.write(text)
            stream.flush()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # The output is a file on a full disk: the results on that disk can be served all the same.


def browser_url(url: str, token: str | None) -> str:
    """Address for a browser; the token is in the fragment, which a browser keeps to itself."""
    return f"{url}/login#{token}" if token else f"{url}/"


def claim_root(root: Path, stack: ExitStack) -> Path:
    """Make the directory, and hold it until the stack is closed, so that no other manager works in it.

    Raises
    ------
    ConflictError
        Another process holds it.
    StorageError
        It cannot be made, or other users can change what is in it.
    """
    private_directory(root)
    try:
        handle = stack.enter_context((root / ".lock").open("a"))
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        hint = "give this one another --name or --root, or stop the other one"
        raise ConflictError("another manager works in this directory", where=str(root), hint=hint) from error
    except OSError as error:
        hint = "choose another --root"
        raise StorageError(f"the directory cannot be used: {error.strerror}", where=str(root), hint=hint) from error
    return root.resolve()


def cluster_key(file: str | None, *, beyond: bool) -> ClusterKey:
    """The cluster key: of the file named, or of the default place. One is made there if only this host is served.

    Raises
    ------
    UsageError
        There is none, and other hosts shall be reached: a fresh one would fit no other host.
    """
    path = Path(file) if file else default_key()
    if path.exists():
        return load(path)
    if beyond:
        raise UsageError(
            "beyond loopback a cluster key is needed",
            where=str(path),
            hint="make one with 'dropflow keys create' on one host, and copy it to all others; --key says where it is",
        )
    # Two managers may start at the same moment: the key is made aside, and whoever links it first wins.
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        create(aside)
        os.link(aside, path)
    except FileExistsError:
        pass  # the other one won; its key is whole, because a link appears at once
    except OSError as error:
        raise StorageError(f"the cluster key cannot be stored: {error.strerror}", where=str(path)) from error
    finally:
        aside.unlink(missing_ok=True)
    return load(path)


def _check(options: ServeOptions) -> None:
    if options.no_auth and not is_loopback(options.host):
        raise UsageError(
            f"--no-auth is for loopback only, and {options.host} can be reached from other hosts",
            hint="leave out --no-auth, or leave out --host",
        )
    if options.no_auth and options.token_file:
        raise UsageError("--no-auth and --token-file exclude each other", hint="leave out one of them")


def _token(options: ServeOptions) -> str | None:
    if options.no_auth:
        return None
    if options.token_file is None:
        return make_token()
    token = load_token(Path(options.token_file))
    if not token:
        raise UsageError("there is no token in the token file", where=options.token_file, hint="write one, mode 0600")
    return token


def _reach(options: ServeOptions) -> str:
    return options.advertise or (socket.gethostname() if options.host in EVERYWHERE else options.host)


def _remembered(front: Front, url: str) -> list[Path]:
    """Store the record by which commands on this host find the manager, and return its path.

    A manager whose disk is full starts without it, so that results on the disk can be read.
    """
    options = front.options
    everywhere = options.host in EVERYWHERE
    try:
        path = remember(
            url, role=front.role, name=front.name, token=front.token, everywhere=everywhere, group=options.group
        )
    except StorageError as error:
        _log.warning("commands on this host need --to %s: %s (%s)", url, error.text, error.where)
        return []
    return [path]


def _forget(record: list[Path]) -> None:
    for path in record:
        forget(path)
