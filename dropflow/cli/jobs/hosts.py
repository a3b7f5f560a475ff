"""Hosts over ssh, for ``dropflow launch ssh`` and ``dropflow up --hosts``.

`usable_hosts` checks the hosts before anything is started. `start_node` starts the node manager of a host by an ``ssh``
that runs until the manager ends. `run_hosts` does that for all hosts of a job, in the place of ``srun``; `run_host` is
the other end: it runs on a host, and becomes the node manager.
"""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import psutil

from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, columns
from dropflow.errors import WorldError
from dropflow.files import private_directory
from dropflow.ids import safe_name
from managers.child_processes import ChildProcess, ChildProcesses
from managers.jobs.installation import install_on
from managers.jobs.ssh import (
    BEAT_SECONDS,
    END_LINE,
    SILENT_SECONDS,
    HostProblem,
    NodeOrder,
    SshHost,
    check_hosts,
    forwards,
    hosts_of,
    node_command,
    node_input,
    with_tunnel,
)

_END_SECONDS = 90.0
"""Seconds that a cluster may take to end: its sessions are cancelled, and its managers end one after another."""
_STOP_SECONDS = 8.0
"""Seconds that node managers may take to end: less than the head of their job waits."""


class HostsReply(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that cannot be used."""

    ok: bool = False
    problems: tuple[HostProblem, ...]

    def lines(self) -> Iterator[str]:
        """One row for each problem."""
        rows = [(problem.host, problem.text, problem.hint) for problem in self.problems]
        yield from columns(rows, header=("host", "problem", "what to do"), indent="")
        yield "nothing was started"


def usable_hosts(
    output: CommandOutput, path: str, *, skip_unreachable: bool, install: bool, tunnel: Sequence[int] = ()
) -> tuple[SshHost, ...]:
    """Return the hosts in a file, after all have been checked; empty if the answer is a table of their problems.

    Parameters
    ----------
    tunnel : sequence of int
        Ports of managers of this host, which ssh shall forward like those of the hosts; empty for no tunnel.
    skip_unreachable : bool
        Whether hosts without a connection are left out, with a note. All others must be without problems.
    install : bool
        Whether they get this dropflow before.
    """
    hosts: Sequence[SshHost] = hosts_of(path)
    problems: list[HostProblem] = []
    if install:
        output.note("installing dropflow where it is missing")
        hosts, problems = install_on(hosts)
    hosts, unusable = check_hosts(with_tunnel(hosts, tunnel) if tunnel else hosts, tunnel)
    problems += unusable
    skipped = {problem.host: problem for problem in problems if problem.is_unreachable and skip_unreachable}
    usable = tuple(host for host in hosts if host.name not in skipped)
    if not usable or any(problem.host not in skipped for problem in problems):
        output.answer(HostsReply(problems=tuple(problems)))
        return ()
    for problem in skipped.values():
        output.note(f"{problem.host} is left out: {problem.text}")
    return usable


def start_node(
    processes: ChildProcesses,
    host: SshHost,
    *,
    key: Path,
    root: str,
    options: Sequence[str],
    changed: Callable[[ChildProcess], None],
    hosts: Sequence[SshHost],
    tunnel: Sequence[int],
) -> ChildProcess:
    """Start the node manager of a host. Its process is the ``ssh`` to it; see `forwards` for `hosts` and `tunnel`."""
    more = ("--group", root, "--output", "json", *options)
    first = node_input(host, key=key, root=root, options=more)
    command = node_command(host, forwards(host, hosts, tunnel))
    launch = partial(processes.launch, "node", host.name, lambda _: command, changed, first=first)
    return processes.call(launch)


def beat(nodes: Iterable[ChildProcess]) -> None:
    """Tell node managers that their connections work."""
    for node in nodes:
        node.write(b"\n")


def request_ends(nodes: Iterable[ChildProcess]) -> None:
    """Tell node managers to end, also those that stay when their connection is cut."""
    for node in nodes:
        node.write(END_LINE)


def run_hosts(directory: str) -> Exit:
    """Run the node managers of a job on its hosts, until standard input ends or all have ended."""
    from dropflow.cli.servers.server_process import StopSignal
    from managers.jobs.job_directory import JobDirectory

    job = JobDirectory(Path(directory))
    numbers = {host.name: number for number, host in enumerate(job.request.hosts)}

    def changed(process: ChildProcess) -> None:
        """Write the address of a node, or why it has none; from the thread of `ChildProcesses`."""
        number, text = numbers[process.name], ""
        if process.error is not None:
            text = f"{process.name}: {process.error.text}"
        elif process.status is not None:
            text = f"{process.name}: its ssh has ended with status {process.status}"
            with suppress(OSError):  # of a full disk
                sys.stderr.write(f"{text}\n")
        if process.status is None or not job.request.hosts[number].stays:
            line = {"error": {"text": text}} if text else {"url": process.url}
            job.write_text(job.ready_file(number), msgspec.json.encode(line).decode())
        if all(node.status is not None for node in nodes) and len(nodes) == len(numbers) and not stays:
            stop.set()

    nodes: list[ChildProcess] = []
    stays = any(host.stays for host in job.request.hosts)
    with StopSignal(os.dup(0)) as stop:
        processes = ChildProcesses(stop_seconds=_STOP_SECONDS, cancel=stop.fileno())
        try:
            root = safe_name(job.path.name)
            hosts, tunnel = job.request.hosts, job.request.tunnel
            start = partial(
                start_node, processes, key=job.key, root=root, options=(), changed=changed, hosts=hosts, tunnel=tunnel
            )
            nodes.extend(map(start, hosts))
            while not stop.wait(BEAT_SECONDS):
                beat(nodes)
        finally:
            request_ends(nodes)
            processes.close()
    return Exit.FINISHED


def run_host() -> NoReturn:
    """Run the node manager of this host by the order on standard input, and exit."""
    from dropflow.cli.main import main

    order = msgspec.json.decode(first_line(0), type=NodeOrder)
    root = private_directory(Path(order.root).expanduser())
    key = os.memfd_create("key")  # in no file, so that nothing is left of it when this process is killed
    os.fchmod(key, 0o600)
    os.write(key, order.key.encode())
    connection = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    watched, held = os.pipe()
    watch = threading.Thread(target=_watch, args=(connection, held), kwargs={"stays": order.stays}, daemon=True)
    watch.start()
    own = ("--root", str(root), "--key", f"/proc/self/fd/{key}", "--log-file", str(root / "manager.log"))
    main(["node", *own, "--watch-parent", f"{watched}", *order.options])


def first_line(descriptor: int) -> bytes:
    """Read a line and not more, so that what follows stays in the pipe."""
    line = b""
    while not line.endswith(b"\n") and (letter := os.read(descriptor, 1)):
        line += letter
    return line


def _watch(connection: int, held: int, *, stays: bool) -> None:
    """Close a pipe after the line for the end; else end this process by a signal when its connection is cut or silent.

    After a signal it gives its sessions to other nodes.
    """
    last = b""
    while True:
        readable = select.select([connection], [], [], SILENT_SECONDS)[0]
        data = b""
        with suppress(OSError):
            data = os.read(connection, 1024) if readable else b""
        last = (last + data)[-len(END_LINE) :]
        if data and last != END_LINE:
            continue
        if last == END_LINE:
            os.close(held)
        elif not stays:
            os.kill(os.getpid(), signal.SIGTERM)
        elif not readable:
            continue
        return


def end_process(process: int) -> None:
    """End a process of this host, and wait until it has ended.

    Raises
    ------
    WorldError
        It has not ended in time, or is of another user.
    """
    try:
        server = psutil.Process(process)
        server.send_signal(signal.SIGTERM)
        server.wait(_END_SECONDS)
    except psutil.NoSuchProcess:
        pass
    except psutil.TimeoutExpired as error:
        hint = f"it was told to: wait, or end it with 'kill -9 {process}'"
        raise WorldError(f"process {process} has not ended within {_END_SECONDS:g} s", hint=hint) from error
    except psutil.AccessDenied as error:
        raise WorldError(f"process {process} is of another user, and cannot be ended from here") from error
