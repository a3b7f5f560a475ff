"""The daemon: one per host, starts and stops the other managers there.

Each manager is a separate process, started with the command that a person would type (`managers.child_processes`). A
manager that ends by itself is not started again: its state is ``failed`` until a request starts it. All managers end
with the daemon, however it ends.
"""

import json
import logging
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal, get_args

import msgspec

from dropflow.api.addresses import NODE_PORT
from dropflow.api.node_records import ManagerInfo, manager_info
from dropflow.api.openapi import openapi_document
from dropflow.api.routes import Request, Response, Route
from dropflow.clock import SystemClock
from dropflow.errors import ConflictError, NotFoundError, UsageError, WorldError
from dropflow.version import __version__
from managers.child_processes import ChildProcess, ChildProcesses
from managers.messages import PROTOCOL

_log = logging.getLogger("dropflow.daemon")

Kind = Literal["node", "island", "master"]
"""The managers that a daemon has, one of each at most."""

KindCommand = Callable[[Kind, Sequence[str], int], Sequence[str]]
"""Returns the command line of a manager of a kind, given its options and the file descriptor of a pipe that closes when
the daemon ends."""

_KINDS: tuple[Kind, ...] = get_args(Kind)
_PREFIX = "/api/v1"


class Managed(msgspec.Struct, frozen=True, kw_only=True):
    """One manager of a daemon.

    Attributes
    ----------
    state : str
        ``stopped``, ``starting``, ``ready``, ``stopping``, or ``failed``: it could not start or ended by itself.
    pid : int or None
        Its process number; None when it does not run.
    url : str
        Address of its server; empty until it is ready.
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


def command_of(kind: Kind, options: Sequence[str], parent: int) -> list[str]:
    """Return the command line of a manager."""
    return [
        *(sys.executable, "-m", "dropflow", kind, "--output", "json"),
        *("--watch-parent", str(parent)),
        *options,
    ]


class Daemon:
    """The managers of one host.

    Their states change in the thread of `ChildProcesses` only; other threads read them, which are frozen.

    Parameters
    ----------
    name : str
        Its own name.
    options : mapping, optional
        Options of the command line for each kind of manager, such as ``("--host", "10.0.0.1")``.
    command : callable, optional
        Makes the command lines; `command_of` unless given.
    key : str
        Fingerprint of its cluster key.
    start_seconds, stop_seconds : float
        How long a manager may take to be ready; and to end before it is killed.
    """

    def __init__(
        self,
        name: str,
        *,
        options: Mapping[Kind, Sequence[str]] | None = None,
        command: KindCommand = command_of,
        key: str = "",
        start_seconds: float = 60.0,
        stop_seconds: float = 15.0,
    ) -> None:
        self._name = name
        self._options = dict(options or {})
        self._command = command
        self._clock = SystemClock()
        self._url = ""
        self._key = key
        self._start_seconds = start_seconds
        self._started = self._clock.now()
        self._child_processes = ChildProcesses(stop_seconds=stop_seconds)
        self._processes: dict[Kind, ChildProcess] = {}
        self._managed = {kind: Managed(role=kind) for kind in _KINDS}
        self._is_closed = False

    def set_url(self, url: str) -> None:
        """Set its own address, once its server has one."""
        self._url = url

    def info(self) -> ManagerInfo:
        """Return the record of the daemon itself."""
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
        """Return all kinds of managers, running or not."""
        return tuple(self._managed[kind] for kind in _KINDS)

    def manager(self, kind: str) -> Managed:
        """Return one of them.

        Raises
        ------
        NotFoundError
            There is no such kind.
        """
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
            It runs already, or the daemon is stopping.
        UsageError
            The nodes are not addresses, or a node was given some.
        WorldError
            It did not get ready.
        """
        known = _known(kind)
        options = [*self._options.get(known, ()), *_children(known, nodes)]
        if self._is_closed:
            raise ConflictError("the daemon is stopping", where=self._name)
        process = self._child_processes.call(partial(self._launch, known, options))
        try:
            self._child_processes.wait_ready(process, self._start_seconds)
        except WorldError:
            self._child_processes.stop(process)
            raise
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
        self._child_processes.stop(self._child_processes.call(partial(self._begin_stop, known)))
        return self._managed[known]

    def close(self) -> None:
        """Stop all managers: masters first, nodes last. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        for kind in reversed(_KINDS):
            # It may have ended by itself.
            with suppress(ConflictError):
                self.stop(kind)
        self._child_processes.close()

    # In the thread of `ChildProcesses`.

    def _launch(self, kind: Kind, options: Sequence[str]) -> ChildProcess:
        running = self._managed[kind]
        if running.pid is not None:
            raise ConflictError(f"the {kind} manager runs already, as process {running.pid}", where=self._name)
        process = self._child_processes.launch(
            f"{kind} manager", kind, lambda parent: self._command(kind, options, parent), partial(self._changed, kind)
        )
        self._processes[kind] = process
        self._managed[kind] = Managed(role=kind, state="starting", pid=process.pid)
        return process

    def _begin_stop(self, kind: Kind) -> ChildProcess:
        running = self._managed[kind]
        if running.pid is None:
            raise ConflictError(f"the {kind} manager does not run", where=self._name)
        self._managed[kind] = msgspec.structs.replace(running, state="stopping")
        return self._processes[kind]

    def _changed(self, kind: Kind, process: ChildProcess) -> None:
        """Record that a process is ready, failed to start, or ended."""
        before = self._managed[kind]
        if process.status is None:
            if before.state == "starting" and process.url:
                self._managed[kind] = msgspec.structs.replace(before, state="ready", url=process.url)
        elif before.state == "stopping":
            self._managed[kind] = Managed(role=kind)
        elif before.state == "starting":
            self._managed[kind] = Managed(role=kind, state="failed", text=str(process.error))
        else:
            self._managed[kind] = failed = Managed(role=kind, state="failed", text=_how_ended(process.status))
            _log.error("the %s manager failed: %s; start it again with a request", kind, failed.text)


def daemon_routes(daemon: Daemon) -> list[Route]:
    """Return the routes of a daemon: its own API, and DALiuGE's paths."""

    def native(method: str, path: str, handler: Callable[[Request], object], summary: str, **more: object) -> Route:
        fields = {"tag": "daemon", **more}
        return Route(method=method, path=f"{_PREFIX}{path}", handler=handler, summary=summary, **fields)  # type: ignore[arg-type]

    def original(method: str, path: str, handler: Callable[[Request], object], summary: str) -> Route:
        body = StartRequest if path.endswith("/start") else None
        return Route(method=method, path=path, handler=handler, summary=summary, body=body, daliuge=True, tag="DALiuGE")

    def manager(call: Request) -> Managed:
        return daemon.manager(call.path["role"])

    def start(call: Request) -> Managed:
        return daemon.start(call.path["role"], nodes=call.body.nodes)

    def stop(call: Request) -> Managed:
        return daemon.stop(call.path["role"])

    def processes(_: Request) -> Response:
        return Response(body={managed.role: managed.pid for managed in reversed(daemon.managers())})

    def stopped(call: Request) -> Response:
        stop(call)
        return Response(body={"Status": "Success"})

    manager_path = "/managers/{role}"
    routes = [
        native("GET", "/info", lambda _: daemon.info(), "About the daemon", answer=ManagerInfo),
        native(
            "GET",
            "/managers",
            lambda _: ManagedList(managers=daemon.managers()),
            "The managers of this host",
            answer=ManagedList,
        ),
        native("GET", manager_path, manager, "One manager", answer=Managed),
        native("POST", f"{manager_path}/start", start, "Start a manager", body=StartRequest, answer=Managed),
        native("POST", f"{manager_path}/stop", stop, "Stop a manager", answer=Managed),
        original("GET", "/", processes, "Processes of the managers of this host"),
        original("GET", "/managers", processes, "Processes of the managers of this host"),
        original("GET", manager_path, lambda call: Response(body={"pid": manager(call).pid}), "Process of a manager"),
        original(
            "POST", f"{manager_path}/start", lambda call: Response(body={"pid": start(call).pid}), "Start a manager"
        ),
        original("POST", f"{manager_path}/stop", stopped, "Stop a manager"),
    ]

    def describe(_: Request) -> Response:
        return Response(body=openapi_document(routes, title="dropflow daemon", version=__version__))

    def ready(_: Request) -> Response:
        return Response(body={"ok": True, "ready": True})

    return [
        *routes,
        Route(method="GET", path="/ready", handler=ready, summary="Whether the daemon answers", public=True),
        Route(method="GET", path="/openapi.json", handler=describe, summary="This document", tag="about"),
    ]


def _how_ended(status: int) -> str:
    if status >= 0:
        return f"it ended with status {status}"
    names = {number.value: number.name for number in signal.Signals}  # without most real-time signals
    return f"it was killed by {names.get(-status, f'signal {-status}')}"


def _known(kind: str) -> Kind:
    for known in _KINDS:
        if kind == known:
            return known
    raise NotFoundError(f"a daemon has no manager {kind!r}", hint=f"it has {', '.join(_KINDS)}")


def _children(kind: Kind, nodes: Sequence[str]) -> list[str]:
    """Return options that name the first children; the name of a host becomes the address of the node there."""
    if nodes and kind == "node":
        raise UsageError("a node manager has no children", hint="give nodes to an island or master")
    wrong = [node for node in nodes if not node or node.startswith("-") or set(node) & set(", \t\r\n\0")]
    if wrong:
        raise UsageError(f"not addresses of nodes: {json.dumps(wrong)}", hint="such as host or http://host:8000")
    urls = [
        node if "://" in node else f"http://{node}" if ":" in node else f"http://{node}:{NODE_PORT}" for node in nodes
    ]
    return [option for url in urls for option in ("--nodes", url)]
