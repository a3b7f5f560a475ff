"""The frame around every server process: logs, key, token, ready line, and a clean end.

``node``, ``island``, ``master``, ``daemon`` and ``translator`` differ in what they serve; the rest is the same, and is
here.
"""

import contextlib
import errno
import fcntl
import http.client
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from time import gmtime, strftime
from types import FrameType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import msgspec

from dropflow.api.addresses import EVERYWHERE, is_loopback
from dropflow.api.auth import load_token, make_token, store_token
from dropflow.api.signing import default_key_file
from dropflow.cli.exit_status import Exit
from dropflow.cli.servers.server_options import ServeOptions
from dropflow.errors import ConflictError, StorageError, UsageError
from dropflow.files import make_once, private_directory, private_opener
from dropflow.formatting import printable
from dropflow.submission.manager_records import default_root, remove_record, write_record
from dropflow.version import __version__
from dropflow.web.known_servers import public_address
from managers.keys import ClusterKey, UserFiles, create, load

_log = logging.getLogger("dropflow.cli")


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOG_FILE = "manager.log"
"""Name of the own log in the directory of a manager; also `dropflow.api.logs.MANAGER_LOG`."""
_FIELDS = ("session", "drop", "attempt", "node", "credential", "user", "client", "status")
_MOST_BYTES = 2 << 20
"""Bytes of the own log, and of the one before it, which is kept."""

# Wait for the end of a server process: a signal, or the end of the process that started it.


class StopSignal:
    """Waits for SIGINT, SIGTERM, SIGHUP, or the end of the process that started this one.

    The first signal requests a clean end; a second one ends the process immediately, with status 128 plus its number.

    Parameters
    ----------
    parent : int or None
        File descriptor of a pipe whose other end is open in the process that started this one. When that process ends,
        also when it is killed, the pipe is closed and this process ends too.
    before_exit : callable
        Called before the process ends without clean-up.
    """

    def __init__(self, parent: int | None = None, before_exit: Callable[[], None] = lambda: None) -> None:
        self._parent = parent
        self._before_exit = before_exit
        self._is_set = False
        self.has_lost_parent = False
        """Whether the process that started this one has ended."""

    def __enter__(self) -> Self:
        # A pipe, because a signal handler that takes a lock may wait for the thread that it interrupts.
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        # The system may deliver a signal to any thread, and then nothing interrupts the `select` of the main thread,
        # which runs the handlers: the byte that is written for each signal wakes it.
        self._former_wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # A process started with nohup ignores SIGHUP, and must still ignore it.
        self._former = {
            number: signal.signal(number, self._on_signal)
            for number in _SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP
        }
        if self._parent is not None:
            with contextlib.suppress(OSError):  # `_watch` logs it
                os.set_inheritable(self._parent, False)
            threading.Thread(target=self._watch, args=(self._parent,), name="parent", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._former_wakeup)
        for number, handler in self._former.items():
            signal.signal(number, handler)
        # The pipe stays open: the thread that watches the parent may still write to it, and the process ends soon.

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when the process should end."""
        return self._reader

    def is_set(self) -> bool:
        """Return whether the process should end."""
        return self._is_set

    def set(self) -> None:
        """Request a clean end, from any thread."""
        self._is_set = True
        os.write(self._writer, b"x")

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the process should end, or for so many seconds; return whether it should end."""
        select.select([self._reader], [], [], seconds)
        return self._is_set

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._is_set:
            try:
                self._before_exit()
            finally:
                os._exit(128 + number)
        self.set()

    def _watch(self, parent: int) -> None:
        try:
            while os.read(parent, 1024):
                pass
        except OSError:
            _log.warning("the pipe to the starting process cannot be read; it is not watched")
            return
        self.has_lost_parent = True
        self.set()


class ReadyLine(msgspec.Struct, frozen=True, kw_only=True):
    """The line that a server process prints to standard output when it answers requests."""

    ready: bool = True
    role: str
    url: str
    token: str | None


@dataclass(frozen=True)
class ServerContext:
    """The name, directory, keys and options from which a command builds its server.

    Attributes
    ----------
    name : str
        Name of the manager.
    root : Path
        Its directory, which no other process uses.
    key : ClusterKey
        Key of the cluster.
    users : UserFiles or None
        The files about users; None if the key is in no directory, and keys of users are refused.
    token : str or None
        The token that requests need; None if they need none.
    advertised_host : str
        Name or address by which other hosts connect.
    stack : ExitStack
        Closes what is registered with it, in the opposite order, when the process ends.
    stop : StopSignal
        Ends the process.
    """

    role: str
    name: str
    root: Path
    key: ClusterKey
    users: UserFiles | None
    token: str | None
    advertised_host: str
    options: ServeOptions
    stack: ExitStack
    stop: StopSignal


def serve(role: str, options: ServeOptions, build: Callable[[ServerContext], str]) -> Exit:
    """Build a server, print the ready line, and wait for the end.

    Parameters
    ----------
    build : callable
        Builds and starts the server, registers what must be closed with the stack of the context, and returns the URL.

    Returns
    -------
    Exit
        `Exit.FINISHED`, because the process ends only when it is stopped.

    Raises
    ------
    UsageError
        The options exclude each other, or there is no key where one is needed.
    WorldError
        A port cannot be bound, or a directory cannot be written.
    """
    record: list[Path] = []
    with StopSignal(options.watch_parent, before_exit=lambda: _remove_record(record)) as stop, ExitStack() as stack:
        _check(options)
        name = options.name or f"{role}-{socket.gethostname().partition('.')[0]}"
        root = claim_root(Path(options.root) if options.root else default_root(name), stack)
        token = _token(options, root)
        start_logging(
            level=options.log_level,
            file=options.log_file,
            as_json=options.log_json,
            own=root / LOG_FILE,
            secrets=[token or ""],
        )
        key = cluster_key(options.key, beyond=not is_loopback(options.host))
        context = ServerContext(
            role=role,
            name=name,
            root=root,
            key=key,
            users=_user_files(options.key),
            token=token,
            advertised_host=_advertised_host(options),
            options=options,
            stack=stack,
            stop=stop,
        )
        url = build(context)
        record += _write_record(context, url)
        stack.callback(_remove_record, record)
        _log.info("%s %s of dropflow %s answers at %s", role, name, __version__, url)
        if not stop.is_set():
            # A command that starts several managers prints messages of its own. The address has the token, and programs
            # read standard error if the log there is JSON.
            public = browser_url(public_address(options.public_url, url), token)
            is_for_people = options.watch_parent is None and not options.group
            is_for_people &= not (options.log_json and options.log_file is None)
            people = f"open in a browser: {public}\n" if is_for_people else ""
            announce(ReadyLine(role=role, url=url, token=token), people=people)
        _wait_for_end(context, url)
    return Exit.FINISHED


def _wait_for_end(context: ServerContext, url: str) -> None:
    """Wait until the process should end; meanwhile tell systemd that its server answers, if it watches that."""
    of_this = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    seconds = int(os.environ.get("WATCHDOG_USEC", "0")) / 3e6 if of_this else 0.0
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(context.options.host, context.options.host)  # noqa: S104 - not bound
    port = urlsplit(url).port
    while not context.stop.wait(seconds or None):
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
        with suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/ready")
            connection.getresponse()  # whatever it is: a manager that refuses requests does not hang
            _tell_systemd(b"WATCHDOG=1")
    _tell_systemd(b"STOPPING=1")


def links_bind(context: ServerContext, port: int) -> str:
    """Return the address that the links of a manager listen on."""
    return f"tcp://{_bracketed(context.options.host)}:{port}"


def links_advertise(context: ServerContext) -> str:
    """Return the address at which others reach its links; empty if it is the one that they listen on."""
    host, reach = _bracketed(context.options.host), _bracketed(context.advertised_host)
    return "" if reach == host else f"tcp://{reach}:0"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def announce(ready: msgspec.Struct, *, people: str) -> None:
    """Print the text for people, then the ready line, so that the text is complete for a process that waits for it.

    Systemd gets its own message, if it started this process as a service of type ``notify``.
    """
    for stream, text in ((sys.stderr, people), (sys.stdout, msgspec.json.encode(ready).decode() + "\n")):
        try:
            stream.write(text)
            stream.flush()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # The output is a file on a full disk. The results on that disk can still be served.
    _tell_systemd(b"READY=1")


def _tell_systemd(message: bytes) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.sendto(message, f"\0{address[1:]}" if address.startswith("@") else address)


def browser_url(url: str, token: str | None) -> str:
    """Return the address for a browser; the token is in the fragment, which browsers do not send."""
    return f"{url}/login#{quote(token, safe='')}" if token else f"{url}/"


def claim_root(root: Path, stack: ExitStack) -> Path:
    """Make the directory, and lock it until the stack is closed, so that no other manager uses it.

    Raises
    ------
    ConflictError
        Another process has locked it.
    StorageError
        It cannot be made, or other users can change what is in it.
    """
    private_directory(root)
    try:
        handle = private_opener(str(root / ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        stack.callback(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        hint = "give this one another --name or --root, or stop the other one"
        raise ConflictError("another manager uses this directory", where=str(root), hint=hint) from error
    except OSError as error:
        hint = "choose another --root"
        raise StorageError(f"the directory cannot be used: {error.strerror}", where=str(root), hint=hint) from error
    return root.resolve()


def cluster_key(file: str | None, *, beyond: bool) -> ClusterKey:
    """Return the cluster key of `file` or of the default path. One is made there if only this host is served.

    Raises
    ------
    UsageError
        There is none, and other hosts will connect: they could not have a key that is made here.
    """
    path = Path(file) if file else default_key_file()
    if path.exists():
        return load(path)
    if beyond:
        raise UsageError(
            "a cluster key is needed to listen beyond loopback",
            where=str(path),
            hint="make one with 'dropflow keys create' on one host, and copy it to all others; --key says where it is",
        )
    try:
        make_once(path, create)  # two managers may start at the same moment
    except OSError as error:
        raise StorageError(f"the cluster key cannot be stored: {error.strerror}", where=str(path)) from error
    return load(path)


def _user_files(file: str | None) -> UserFiles | None:
    """Return the files about users; None if the cluster key came through a pipe, since it has no directory."""
    path = Path(file) if file else default_key_file()
    return None if path.is_relative_to("/proc") else UserFiles.beside(path.absolute())


def _check(options: ServeOptions) -> None:
    if options.no_auth and not is_loopback(options.host):
        raise UsageError(
            f"--no-auth is for loopback only, and {options.host} can be reached from other hosts",
            hint="leave out --no-auth, or leave out --host",
        )
    for name, given in (("--token-file", options.token_file), ("--new-token", options.new_token)):
        if options.no_auth and given:
            raise UsageError(f"--no-auth and {name} exclude each other", hint="leave out one of them")
    if options.new_token and options.token_file:
        raise UsageError("--new-token and --token-file exclude each other", hint="leave out one of them")


def _token(options: ServeOptions, root: Path) -> str | None:
    if options.no_auth:
        return None
    if options.token_file is None:
        return kept_token(root / "token", anew=options.new_token)
    token = load_token(Path(options.token_file))
    if not token:
        raise UsageError("the token file has no token", where=options.token_file, hint="write one, mode 0600")
    return token


def kept_token(path: Path, *, anew: bool = False) -> str:
    """Return the token in a file, so that browsers stay signed in over a restart; make one if there is none.

    Raises
    ------
    UsageError
        Other users can read the file.
    """
    known = None if anew else load_token(path)
    if known:
        return known
    token = make_token()
    with suppress(StorageError):  # of a full disk, whose results can still be served
        store_token(path, token)
    return token


def _advertised_host(options: ServeOptions) -> str:
    return options.advertise or (socket.gethostname() if options.host in EVERYWHERE else options.host)


def _write_record(context: ServerContext, url: str) -> list[Path]:
    """Write the record by which commands on this host find the manager, and return its path.

    A manager whose disk is full starts without a record, so that results on the disk can be read.
    """
    options = context.options
    everywhere = options.host in EVERYWHERE
    try:
        path = write_record(
            url, role=context.role, name=context.name, token=context.token, everywhere=everywhere, group=options.group
        )
    except StorageError as error:
        _log.warning("commands on this host need --to %s: %s (%s)", url, error.text, error.where)
        return []
    return [path]


def _remove_record(record: list[Path]) -> None:
    for path in record:
        remove_record(path)


# Logs of server processes: one line a record, as text or JSON, with session, drop, attempt and node.
#
# These come from ``extra={"session": ..., "drop": ..., "attempt": ...}`` of a logging call, as far as they are known.
# Lines of the logger ``dropflow.audit`` tell who asked for a change, and have the last four fields, too.


class _Formatter(logging.Formatter):
    """One line a record, with secrets replaced by asterisks."""

    def __init__(self, *, as_json: bool, secrets: Collection[str], has_levels: bool = False) -> None:
        super().__init__()
        self._as_json = as_json
        self._has_levels = has_levels
        self._secrets = tuple(secret for secret in secrets if secret)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line."""
        fields = {name: value for name in _FIELDS if (value := getattr(record, name, None)) is not None}
        moment = strftime("%Y-%m-%dT%H:%M:%S", gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        text = record.getMessage()
        trouble = self.formatException(record.exc_info) if record.exc_info else ""
        line = self._json(record, moment, text, trouble, fields) if self._as_json else ""
        if not self._as_json:
            extra = "".join(f" {name}={value}" for name, value in fields.items())
            # Text from outside must not look like another record, so its further lines are indented.
            flat = text.replace("\r", " ").replace("\n", "\n    ")
            line = f"{moment} {record.levelname:<7} {record.name}: {flat}{extra}"
            line += "".join(f"\n    {row}" for row in trouble.splitlines())
            line = printable(line)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return f"<{_journal_level(record.levelno)}>{line}" if self._has_levels else line

    def _json(self, record: logging.LogRecord, moment: str, text: str, trouble: str, fields: dict[str, Any]) -> str:
        content = {"time": moment, "level": record.levelname.lower(), "logger": record.name, "text": text}
        extra = {name: value if isinstance(value, int) else str(value) for name, value in fields.items()}
        return msgspec.json.encode(content | extra | ({"trouble": trouble} if trouble else {})).decode()


def start_logging(
    *, level: str, file: str | None, as_json: bool, own: Path | None = None, secrets: Collection[str] = ()
) -> None:
    """Send the logs of this process to standard error, or to `file`, and to its own file.

    Parameters
    ----------
    level : str
        The least severe level that is logged.
    as_json : bool
        Whether `file` or standard error gets JSON.
    own : Path, optional
        The file that servers show (`dropflow.api.logs`), as text. When it is full, it replaces the one before.
    secrets : collection of str
        Replaced by asterisks in all records.

    Raises
    ------
    StorageError
        A file cannot be opened.
    UsageError
        The own file is to have JSON.
    """
    handlers: list[logging.Handler] = []
    is_own = own is not None and file is not None and Path(file).resolve() == own.resolve()
    if is_own and as_json:
        raise UsageError(f"{file} has the log as text", hint="name another file for JSON")
    if own is not None:
        handlers.append(_own_log(own))
        handlers[0].setFormatter(_Formatter(as_json=False, secrets=secrets))
    if not is_own:
        handlers.append(logging.StreamHandler(sys.stderr) if file is None else _file_log(file))
        has_levels = file is None and _is_journal(sys.stderr.fileno())
        handlers[-1].setFormatter(_Formatter(as_json=as_json, secrets=secrets, has_levels=has_levels))
    logging.raiseExceptions = False  # with a log on a full disk, logging would print a traceback for each record
    logging.basicConfig(handlers=handlers, level=level.upper(), force=True)
    for noisy in ("waitress", "zeroconf", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))


def _is_journal(descriptor: int) -> bool:
    """Return whether the journal of systemd reads a file descriptor, so that a line may begin with its level."""
    status = os.fstat(descriptor)
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _journal_level(level: int) -> int:
    """Return the level of syslog: 3 is an error, 7 for debugging."""
    return 3 if level >= logging.ERROR else 4 if level >= logging.WARNING else 6 if level >= logging.INFO else 7


class _PrivateFile(RotatingFileHandler):
    """A log that only its owner can read, whatever the umask is: messages may have parts of users' data."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=private_opener)


def _file_log(file: str) -> logging.Handler:
    try:
        return logging.FileHandler(Path(file), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"the log cannot be opened: {error.strerror}", where=file) from error


def _own_log(path: Path) -> logging.Handler:
    try:
        return _PrivateFile(path, maxBytes=_MOST_BYTES, backupCount=1, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"the log cannot be opened: {error.strerror}", where=str(path)) from error
