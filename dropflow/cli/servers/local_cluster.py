"""A translator, a master, an island and nodes on this host, as processes that end with this one: ``dropflow up``.

With ``--hosts`` the nodes are on other hosts, and end with this process, too. Those on this host share a token through
a file that only the user can read, because other users see arguments and environments of processes.
"""

import os
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import msgspec

from dropflow.api.addresses import ISLAND_PORT, MASTER_PORT, TRANSLATOR_PORT
from dropflow.api.signing import default_key_file
from dropflow.cli.exit_status import Exit
from dropflow.cli.jobs.hosts import beat, request_ends, start_node
from dropflow.cli.servers.server_process import StopSignal, announce, browser_url, claim_root, cluster_key, kept_token
from dropflow.errors import ConflictError
from dropflow.files import private_directory
from dropflow.host.gpus import host_gpus
from dropflow.host.processors import usable_cores
from dropflow.submission.manager_records import default_root
from dropflow.web.known_servers import public_address
from managers.child_processes import ChildProcess, ChildProcesses
from managers.jobs.ssh import BEAT_SECONDS, SshHost, local_address
from managers.membership import SUSPECT_AFTER

_SERVER_START_SECONDS = 60.0
"""Seconds in which a server must start, or at least use its processor."""


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``dropflow up``; see their help."""

    nodes: int
    port: int | None
    no_auth: bool
    new_token: bool
    root: str | None
    workers: int | None
    memory: int | None = None
    key: str | None
    lost_after: float
    log_level: str
    public_url: str = ""
    hosts: tuple[SshHost, ...] = ()
    tunnel: tuple[int, ...] = ()
    """The ports of the links of island and master, if ssh forwards the ports of all managers."""


class UpReady(msgspec.Struct, frozen=True, kw_only=True):
    """The ready line of ``dropflow up``."""

    ready: bool = True
    role: str = "up"
    url: str
    translator: str
    master: str
    island: str
    nodes: tuple[str, ...]
    token: str | None


def run(options: UpOptions) -> Exit:
    """Start a cluster on this host, print the ready line, and wait for the end.

    Returns
    -------
    Exit
        `Exit.FINISHED` after a signal; `Exit.FAILED` if all processes of the cluster ended by themselves.

    Raises
    ------
    WorldError
        One of the processes cannot be started; the others are stopped.
    """
    with StopSignal() as stop, ExitStack() as stack:
        root = claim_root(Path(options.root) if options.root else default_root("up"), stack)
        _check_ports(options)
        cluster_key(options.key, beyond=False)  # made once, before the processes look for it
        token = None if options.no_auth else kept_token(root / "token", anew=options.new_token)
        cluster = _Cluster(options, root, stop)
        stack.callback(cluster.close)
        try:
            ready = cluster.start(token)
        except CancelledError:
            return Exit.FINISHED
        announce(ready, people=_for_people(ready, root, options.public_url))
        return cluster.wait()


def _check_ports(options: UpOptions) -> None:
    """Refuse ports that are in use before anything is started.

    Raises
    ------
    ConflictError
        Another program listens on one of them.
    """
    roles = (("translator", 0, TRANSLATOR_PORT), ("master", 1, MASTER_PORT), ("island", 2, ISLAND_PORT))
    for role, offset, usual in roles:
        port = usual if options.port is None else options.port and options.port + offset
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                hint = (
                    "stop the other program (is it another 'dropflow up'?), or choose the ports with --port, 0 for any"
                )
                if port == TRANSLATOR_PORT:
                    hint += "; EAGLE then needs the translator's new address in its settings"
                text = f"cannot listen on 127.0.0.1:{port}, the port of the {role}: {error.strerror}"
                raise ConflictError(text, where=role, hint=hint) from error


class _Cluster:
    """The processes of the cluster."""

    def __init__(self, options: UpOptions, root: Path, stop: StopSignal) -> None:
        self._options = options
        self._root = root
        self._stop = stop
        self._child_processes = ChildProcesses(cancel=stop.fileno())
        self._processes: list[ChildProcess] = []
        self._remote: list[ChildProcess] = []

    def start(self, token: str | None) -> UpReady:
        """Start the nodes in parallel, then the island, the master and the translator.

        Raises
        ------
        WorldError
            One of them cannot be started.
        CancelledError
            This process got a signal to end.
        """
        options = self._options
        cores = usable_cores()
        workers = options.workers or max(1, cores // options.nodes)
        share = () if options.memory is None else ("--memory", f"{options.memory // options.nodes or 1}")
        gpus = host_gpus()
        suspect_after = min(SUSPECT_AFTER, options.lost_after / 2)
        timing = ("--lost-after", f"{options.lost_after}", "--suspect-after", f"{suspect_after}")
        reach: tuple[str, ...] = ()
        if options.hosts:
            self._remote = [self._start_on(host, (*timing, "--log-level", options.log_level)) for host in options.hosts]
        if options.hosts and not options.tunnel:
            reach = ("--host", "0.0.0.0", "--advertise", local_address(options.hosts[0]))  # noqa: S104 - with a key
        links = [("--links-port", f"{port}") for port in options.tunnel or (0, 0)]
        started = self._remote or [
            self._start(
                "node",
                f"node-{number + 1}",
                self._port(3 + number, 0),
                (
                    *("--links-port", "0", "--workers", f"{workers}", *share, *timing),
                    *(("--gpus", ",".join(gpus[number :: options.nodes])) if gpus else ()),
                ),
            )
            for number in range(options.nodes)
        ]
        nodes = tuple(self._url(process) for process in started)
        pairs = [word for url in nodes for word in ("--nodes", url)]
        island = self._url(
            self._start("island", "island", self._port(2, ISLAND_PORT), (*pairs, *timing, *reach, *links[0]))
        )
        below = ("--islands", island, *timing, *reach, *links[1])
        master = self._url(self._start("master", "master", self._port(1, MASTER_PORT), below))
        port = self._port(0, TRANSLATOR_PORT)
        translator = self._url(self._start("translator", "translator", port, ("--to", master)))
        return UpReady(url=master, translator=translator, master=master, island=island, nodes=nodes, token=token)

    def wait(self) -> Exit:
        """Wait until this process gets a signal to end or all processes of the cluster have ended."""
        while not self._stop.wait(BEAT_SECONDS if self._remote else None):
            beat(self._remote)
        return Exit.FINISHED if any(process.status is None for process in self._processes) else Exit.FAILED

    def close(self) -> None:
        """Stop all processes: the parents first, so that they report no lost children."""
        self._stop.set()
        request_ends(self._remote)
        self._child_processes.close()

    def _url(self, process: ChildProcess) -> str:
        return self._child_processes.wait_ready(process, _SERVER_START_SECONDS)

    def _start_on(self, host: SshHost, options: Sequence[str]) -> ChildProcess:
        key = Path(self._options.key or default_key_file())
        changed = self._changed
        process = start_node(
            self._child_processes,
            host,
            key=key,
            root="up",
            options=options,
            changed=changed,
            hosts=self._options.hosts,
            tunnel=self._options.tunnel,
        )
        self._processes.append(process)
        return process

    def _start(self, role: str, name: str, port: int, more: Sequence[str]) -> ChildProcess:
        options = self._options
        access = ("--no-auth",) if options.no_auth else ("--token-file", str(self._root / "token"))
        root = self._root / name
        private_directory(root)
        arguments = (
            *("--root", str(root), "--port", f"{port}", *more, *access),
            *("--key", options.key or str(default_key_file()), "--group", f"up-{os.getpid()}"),
            *("--log-file", str(root / "manager.log"), "--log-level", options.log_level),
            *("--public-url", options.public_url),
        )

        def command(parent: int) -> list[str]:
            own = [sys.executable, "-m", "dropflow", role, "--name", name]
            return [*own, *arguments, "--watch-parent", f"{parent}", "--output", "json"]

        process = self._child_processes.call(partial(self._child_processes.launch, role, name, command, self._changed))
        self._processes.append(process)
        return process

    def _changed(self, process: ChildProcess) -> None:
        """Report a process that ended by itself, from the thread of `ChildProcesses`."""
        if process.status is None or self._stop.is_set() or process.error is not None:
            return
        others = any(other.status is None for other in self._processes)
        remote = next((host for host in self._options.hosts if host.name == process.name), None)
        log = self._root / process.name / "manager.log"
        place = f"{log}" if remote is None else f"{remote.directory}/up/{remote.name}/manager.log there"
        with suppress(OSError):  # the reader of standard error may have ended, or its disk may be full
            sys.stderr.write(f"{process.name} has ended with status {process.status}: see {place}")
            sys.stderr.write("; the others continue\n" if others else "\n")
            sys.stderr.flush()
        if not others:
            self._stop.set()

    def _port(self, offset: int, usual: int) -> int:
        if self._options.port is None:
            return usual
        return self._options.port + offset if self._options.port else 0


def _for_people(ready: UpReady, root: Path, public_url: str) -> str:
    master, translator = public_address(public_url, ready.master), public_address(public_url, ready.translator)
    return (
        f"open in a browser:  {browser_url(master, ready.token)}\n"
        f"again, at any time: dropflow open\n"
        f"in EAGLE:           {translator}/gen_pgt is the Translator URL\n"
        f"here:               dropflow submit GRAPH --wait\n"
        f"logs and results in {root}\n"
    )
