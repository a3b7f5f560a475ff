"""The daemon: one per host, starts and stops the other managers there.

Each manager is a process of its own, started by the same command that a person would type. It is ready when it has
said so in one line of JSON on its standard output. One that ends by itself is not started again silently: it is shown
as failed until somebody starts it. All end with the daemon, however that ends: they hold the other end of a pipe.
"""

import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, TextIO, get_args

import msgspec

from dropflow import __version__
from dropflow.clock import Clock, SystemClock
from dropflow.errors import ConflictError, DropflowError, NotFoundError, UsageError, WorldError
from dropflow.rest.kit import Request, Response, Route
from dropflow.rest.manager_info import manager_info
from dropflow.rest.openapi import openapi_document
from dropflow.rest.schema import ManagerInfo
from managers.messages import PROTOCOL

__all__ = ["Daemon", "Kind", "Managed", "command_of", "daemon_routes"]

_LOG = logging.getLogger("dropflow.daemon")

Kind = Literal["node", "island", "master"]
"""The managers that a daemon has, one of each at most."""

Command = Callable[[Kind, Sequence[str], int], Sequence[str]]
"""The command line of a manager, from its kind, its options and the file descriptor by which it notices our end."""

_KINDS: tuple[Kind, ...] = get_args(Kind)
_NODE_PORT = 8000
_PREFIX = "/api/v1"
_LAST_WORDS_SECONDS = 1.0
"""How long the output of a manager that has ended is read, when something else holds it open."""


class Managed(msgspec.Struct, frozen=True, kw_only=True):
    """One manager of a daemon.

    Attributes
    ----------
    state : str
        ``stopped``, ``starting``, ``ready``, ``stopping``, or ``failed``: it could not start or ended by itself.
    pid : int or None
        Its process; None when there is none.
    url : str
        Of its server; empty until it is ready.
    text : str
        Why it failed.
    """

    role: Kind
    state: Literal["stopped", "starting", "ready", "stopping", "failed"] = "stopped"
    pid: int | None = None
    url: str = ""
    text: str = ""


class ManagedList(msgspec.Struct, frozen=True, kw_only=True):
    """The managers of a daemon."""

    managers: tuple[Managed, ...]


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Start a manager. `nodes` are the first children of an island: addresses, or names of hosts."""

    nodes: tuple[str, ...] = ()


class _Ready(msgspec.Struct, frozen=True):
    """The first line of a process: that it is ready, or why it is not."""

    ready: bool = False
    url: str = ""
    error: dict[str, object] = {}


def command_of(kind: Kind, options: Sequence[str], parent: int) -> list[str]:
    """The command line of a real manager."""
    return [
        *(sys.executable, "-m", "dropflow", kind, "--output", "json"),
        *("--watch-parent", str(parent)),
        *options,
    ]


class Daemon:
    """The managers of one host.

    Parameters
    ----------
    name : str
        Its own name.
    options : mapping, optional
        Options of the command line for each kind of manager, such as ``("--host", "10.0.0.1")``.
    command : callable, optional
        Makes the command lines; `command_of` unless given.
    url, key : str
        Its own address (see `set_url`), and the fingerprint of its cluster key.
    start_seconds, stop_seconds : float
        How long a manager may take to be ready; and to end before it is killed.
    """

    def __init__(
        self,
        name: str,
        *,
        options: Mapping[Kind, Sequence[str]] | None = None,
        command: Command = command_of,
        clock: Clock | None = None,
        url: str = "",
        key: str = "",
        start_seconds: float = 60.0,
        stop_seconds: float = 15.0,
    ) -> None:
        self._name = name
        self._options = dict(options or {})
        self._command = command
        self._clock = clock or SystemClock()
        self._url = url
        self._key = key
        self._start_seconds = start_seconds
        self._stop_seconds = stop_seconds
        self._started = self._clock.now()
        self._lock = threading.Lock()
        self._turns = {kind: threading.Lock() for kind in _KINDS}
        self._processes: dict[Kind, _Process] = {}
        self._managed = {kind: Managed(role=kind) for kind in _KINDS}
        self._is_closed = False

    def set_url(self, url: str) -> None:
        """Its own address, once its server has one."""
        self._url = url

    def info(self) -> ManagerInfo:
        """About the daemon itself."""
        return manager_info(
            self._name,
            "daemon",
            url=self._url,
            started=self._started,
            clock=self._clock,
            protocol=PROTOCOL,
            key=self._key,
        )

    def managers(self) -> tuple[Managed, ...]:
        """All kinds of managers, running or not."""
        with self._lock:
            return tuple(self._managed[kind] for kind in _KINDS)

    def manager(self, kind: str) -> Managed:
        """One of them.

        Raises
        ------
        NotFoundError
            There is no such kind.
        """
        with self._lock:
            return self._managed[_known(kind)]

    def start(self, kind: str, *, nodes: Sequence[str] = ()) -> Managed:
        """Start a manager and wait until it is ready.

        Parameters
        ----------
        nodes : sequence of str
            First children of an island or master: addresses, or names of hosts.

        Raises
        ------
        NotFoundError
            There is no such kind.
        ConflictError
            It runs already.
        UsageError
            The nodes are no addresses, or a node was given some.
        WorldError
            It did not get ready.
        """
        known = _known(kind)
        options = [*self._options.get(known, ()), *_children(known, nodes)]
        with self._turns[known]:
            running = self.manager(known)
            if running.pid is not None:
                raise ConflictError(f"the {known} manager runs already, as process {running.pid}", where=self._name)
            if self._is_closed:
                raise ConflictError("the daemon is stopping", where=self._name)
            process = _Process(known, self._command, options, self._ended)
            with self._lock:
                self._processes[known] = process
            self._tell(Managed(role=known, state="starting", pid=process.pid))
            process.watch()
            try:
                url = process.ready(self._start_seconds)
            except DropflowError as error:
                process.end(self._stop_seconds)
                self._tell(Managed(role=known, state="failed", text=str(error)))
                raise
            with self._lock:
                if process.status is None:
                    self._managed[known] = Managed(role=known, state="ready", pid=process.pid, url=url)
                else:
                    self._managed[known] = _fallen(process)
                return self._managed[known]

    def stop(self, kind: str) -> Managed:
        """Stop a manager and wait until it has ended; one that does not is killed.

        Raises
        ------
        NotFoundError
            There is no such kind.
        ConflictError
            It does not run.
        """
        known = _known(kind)
        with self._turns[known]:
            running = self.manager(known)
            if running.pid is None:
                raise ConflictError(f"the {known} manager does not run", where=self._name)
            with self._lock:
                process = self._processes[known]
            self._tell(msgspec.structs.replace(running, state="stopping"))
            process.end(self._stop_seconds)
            self._tell(Managed(role=known))
            return self.manager(known)

    def close(self) -> None:
        """Stop all managers: masters first, nodes last. Idempotent."""
        with self._lock:
            self._is_closed = True
        for kind in reversed(_KINDS):
            # It may have ended by itself.
            with suppress(ConflictError):
                self.stop(kind)

    def _tell(self, managed: Managed) -> None:
        with self._lock:
            self._managed[managed.role] = managed

    def _ended(self, process: "_Process", status: int) -> None:
        with self._lock:
            process.status = status
            before = self._managed[process.kind]
            if before.pid != process.pid or before.state != "ready":
                return  # it was told to, or whoever started it tells
            self._managed[process.kind] = failed = _fallen(process)
        _LOG.error("the %s manager failed: %s; it stays so until somebody starts it", process.kind, failed.text)


class _Process:
    """One process and what it says."""

    def __init__(
        self, kind: Kind, command: Command, options: Sequence[str], ended: "Callable[[_Process, int], None]"
    ) -> None:
        self.kind: Kind = kind
        self._ended = ended
        self._first: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._over = threading.Event()
        reader, self._writer = os.pipe()
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - our own command, no shell
                command(kind, options, reader),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                errors="replace",
                pass_fds=[reader],
                process_group=0,  # a signal from the terminal is for the daemon, which ends the others in order
            )
        except OSError as error:
            os.close(self._writer)
            raise WorldError(
                f"the {kind} manager cannot be started: {error.strerror}", hint="is it installed?"
            ) from error
        finally:
            os.close(reader)
        self.pid = self._popen.pid
        self.status: int | None = None
        """How it ended; guarded by the lock of the daemon."""

    def watch(self) -> None:
        """Begin to read what it says, and to wait for its end."""
        reader = threading.Thread(target=self._read, args=(self._popen.stdout,), name=f"{self.kind}", daemon=True)
        reader.start()
        threading.Thread(target=self._await, args=(reader,), name=f"{self.kind}-end", daemon=True).start()

    def ready(self, seconds: float) -> str:
        """Its address, when it has said that it is ready.

        Raises
        ------
        WorldError
            It ended, said something else, or nothing in time.
        """
        try:
            line = self._first.get(timeout=seconds)
        except queue.Empty:
            raise WorldError(
                f"the {self.kind} manager was not ready within {seconds:g} s", hint="see what it wrote to the log"
            ) from None
        try:
            told = msgspec.json.decode(line or "{}", type=_Ready)
        except msgspec.DecodeError:
            told = _Ready()
        if told.ready:
            return told.url
        if not line:
            why = f"it ended with status {self._popen.wait()}"
        else:
            why = str(told.error.get("text") or f"it said {line.strip()[:200]!r}")
        hint = str(told.error.get("hint") or "see what it wrote to the log")
        raise WorldError(f"the {self.kind} manager did not get ready: {why}", hint=hint)

    def end(self, seconds: float) -> None:
        """Ask it to end, wait, and kill it if it does not."""
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            _LOG.warning("the %s manager did not end within %g s and is killed", self.kind, seconds)
            self._popen.kill()
            self._popen.wait()
        self._over.wait()

    def _read(self, stream: TextIO) -> None:
        with stream:
            self._first.put(stream.readline())
            for _ in stream:
                pass

    def _await(self, reader: threading.Thread) -> None:
        # Not the end of its output: a process that it has started, and left behind, may hold that.
        status = self._popen.wait()
        reader.join(_LAST_WORDS_SECONDS)
        self._first.put("")
        os.close(self._writer)
        self._ended(self, status)
        self._over.set()


def daemon_routes(daemon: Daemon) -> list[Route]:
    """The routes of a daemon: its own API, and DALiuGE's paths."""
    to = _Handlers(daemon)

    def ours(method: str, path: str, handler: Callable[[Request], object], summary: str, **more: object) -> Route:
        fields = {"tag": "daemon", **more}
        return Route(method=method, path=f"{_PREFIX}{path}", handler=handler, summary=summary, **fields)  # type: ignore[arg-type]

    def theirs(method: str, path: str, handler: Callable[[Request], object], summary: str) -> Route:
        body = StartRequest if path.endswith("/start") else None
        return Route(
            method=method, path=path, handler=handler, summary=summary, body=body, original=True, tag="DALiuGE"
        )

    one = "/managers/{role}"
    routes = [
        ours("GET", "/info", lambda _: daemon.info(), "About the daemon", answer=ManagerInfo),
        ours("GET", "/managers", to.managers, "The managers of this host", answer=ManagedList),
        ours("GET", one, to.manager, "One manager", answer=Managed),
        ours("POST", f"{one}/start", to.start, "Start a manager", body=StartRequest, answer=Managed),
        ours("POST", f"{one}/stop", to.stop, "Stop a manager", answer=Managed),
        theirs("GET", "/", to.processes, "Processes of the managers of this host"),
        theirs("GET", "/managers", to.processes, "Processes of the managers of this host"),
        theirs("GET", one, to.process, "Process of a manager"),
        theirs("POST", f"{one}/start", to.start_process, "Start a manager"),
        theirs("POST", f"{one}/stop", to.stop_process, "Stop a manager"),
    ]

    def describe(_: Request) -> Response:
        return Response(body=openapi_document(routes, title="dropflow daemon", version=__version__))

    def ready(_: Request) -> Response:
        return Response(body={"ok": True, "ready": True})

    return [
        *routes,
        Route(method="GET", path="/ready", handler=ready, summary="Whether the daemon answers", public=True),
        Route(method="GET", path="/openapi.json", handler=describe, summary="This document", tag="manager_info"),
    ]


class _Handlers:
    """What the routes do."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def managers(self, _: Request) -> ManagedList:
        return ManagedList(managers=self._daemon.managers())

    def manager(self, call: Request) -> Managed:
        return self._daemon.manager(call.path["role"])

    def start(self, call: Request) -> Managed:
        return self._daemon.start(call.path["role"], nodes=call.body.nodes)

    def stop(self, call: Request) -> Managed:
        return self._daemon.stop(call.path["role"])

    def processes(self, _: Request) -> Response:
        return Response(body={managed.role: managed.pid for managed in reversed(self._daemon.managers())})

    def process(self, call: Request) -> Response:
        return Response(body={"pid": self.manager(call).pid})

    def start_process(self, call: Request) -> Response:
        return Response(body={"pid": self.start(call).pid})

    def stop_process(self, call: Request) -> Response:
        self.stop(call)
        return Response(body={"Status": "Success"})


def _fallen(process: _Process) -> Managed:
    status = process.status or 0
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended by itself with status {status}"
    return Managed(role=process.kind, state="failed", text=f"it {how}")


def _known(kind: str) -> Kind:
    for known in _KINDS:
        if kind == known:
            return known
    raise NotFoundError(f"a daemon has no manager {kind!r}", hint=f"it has {', '.join(_KINDS)}")


def _children(kind: Kind, nodes: Sequence[str]) -> list[str]:
    """Options that name the first children; a name of a host becomes the address of the node there."""
    if nodes and kind == "node":
        raise UsageError("a node manager has no children", hint="give nodes to an island or master")
    wrong = [node for node in nodes if not node or node.startswith("-") or set(node) & set(", \t\r\n\0")]
    if wrong:
        raise UsageError(
            f"these are no addresses of nodes: {json.dumps(wrong)}", hint="such as host or http://host:8000"
        )
    urls = [
        node if "://" in node else f"http://{node}" if ":" in node else f"http://{node}:{_NODE_PORT}" for node in nodes
    ]
    return [option for url in urls for option in ("--nodes", url)]
