"""Hosts over the user's own OpenSSH: the file that names them, their checks, and the commands that start their nodes.

``ssh`` reads the user's configuration, so that jump hosts, agents and shared connections work as in a terminal. It
never asks: a host that needs a password is a problem of that host. A node manager gets its `NodeOrder`, which has the
cluster key, as the first line of its standard input. Further lines tell that its connection still works; it ends when
standard input ends, once its sessions are with other nodes, and at once after the line for the end.

Hosts that let nothing in but ssh get a tunnel: all managers listen on loopback, each on ports of its own, and the
``ssh`` of each host forwards them all, so that such a port leads to the same manager on every host (`forwards`).
"""

import inspect
import random
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import msgspec

from dropflow.clock import MAX_SKEW_SECONDS, SystemClock
from dropflow.errors import BadFileError, MissingDependencyError, UsageError
from dropflow.formatting import format_size
from dropflow.version import __version__

BEAT_SECONDS = 15.0
"""Seconds between two lines for a node manager."""
SILENT_SECONDS = 60.0
"""Without a line for this long, a node manager takes its connection as cut."""
END_LINE = b"end\n"
"""The last line, after which also a manager ends that stays when its connection is cut."""

SSH_OPTIONS = (
    "-T",
    *("-o", "BatchMode=yes"),
    *("-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=15"),
    *("-o", "ServerAliveCountMax=4"),
    *("-o", "ClearAllForwardings=yes"),
)
_HOST_CHECK_SECONDS = 30.0
"""Seconds in which a host must answer to its check over ssh."""
_DRAIN_SECONDS = 30
"""Seconds in which a node manager whose connection is cut may give its sessions to the others."""
_PORT_CONNECT_SECONDS = 5.0
"""Seconds in which a port of a host must accept a connection."""
_HOSTS_AT_ONCE = 64
"""Hosts that are checked at the same time, each by one process of ssh."""
_FEWEST_FREE_BYTES = 1 << 30
"""Free bytes below which the directory of a host is reported as too full."""
_OLDEST = (3, 11)
_LOOPBACK = "127.0.0.1"
_TUNNEL_PORTS = range(20_000, 32_768)
"""Ports that no connection of Linux takes by itself."""
SSH_FAILED = 255
"""The exit status of ssh when it has no connection; others are those of the command."""


class SshHost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host of a file of hosts.

    Attributes
    ----------
    name : str
        Name of its table, and of its node manager.
    ssh : str
        Destination for ``ssh``: an alias, a host name, or ``user@host``.
    address : str
        Name or address by which this host and the other hosts connect to it.
    python : str
        Its Python interpreter, or the directory of a virtual environment, in which dropflow is installed.
    packages : tuple of str
        Packages that ``--install`` installs there besides dropflow, such as ``numpy``.
    directory : str
        Where the directory of its node manager is; ``~`` is the home directory there.
    port, links_port : int
        Ports for requests and for other nodes; 0 takes any that is free.
    workers : int
        Worker processes; 0 is one per core.
    memory : str
        Memory that the node may use, such as ``16 GiB``.
    stays : bool
        Whether its manager stays when its ssh connection is cut, until it is drained.
    """

    name: str
    ssh: str = ""
    address: str = ""
    python: str = ""
    packages: tuple[str, ...] = ()
    directory: str = "~/.local/state/dropflow/hosts"
    port: int = 0
    links_port: int = 0
    workers: int = 0
    memory: str = ""
    stays: bool = False


class HostProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem with a host, and what to do; `is_unreachable` if ssh has no connection to it."""

    host: str
    text: str
    hint: str
    is_unreachable: bool = False


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The standard input of a node manager on a host.

    Attributes
    ----------
    key : str
        The content of the key file.
    root : str
        Its directory.
    stays : bool
        As that of `SshHost`.
    options : tuple of str
        Of ``dropflow node``.
    """

    key: str
    root: str
    stays: bool
    options: tuple[str, ...]


def hosts_of(path: str) -> tuple[SshHost, ...]:
    """Return the hosts in a file: a table each below ``hosts``; keys before them count for all hosts.

    Raises
    ------
    BadFileError
        It cannot be read, names no hosts, or has other keys or types.
    """
    hint = f"it has a table [hosts.NAME] for each host, with the keys {', '.join(SshHost.__struct_fields__[1:])}"
    try:
        shared = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        tables = msgspec.convert(shared.pop("hosts", {}), dict[str, dict[str, object]])
        hosts = tuple(msgspec.convert({**shared, **table, "name": name}, SshHost) for name, table in tables.items())
    except OSError as error:
        raise BadFileError(f"the file of hosts cannot be read: {error.strerror}", where=path) from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise BadFileError(f"the file of hosts cannot be used: {error}", where=path, hint=hint) from error
    if not hosts:
        raise BadFileError("the file names no hosts", where=path, hint=hint)
    wrong = [host.name for host in hosts if not host.name.isprintable() or {*host.name} & {*"/ "} or host.name == ".."]
    wrong += [host.ssh for host in hosts if host.ssh.startswith("-")]
    if wrong:
        raise BadFileError(f"{wrong[0]!r} cannot be a host", where=path, hint=hint)
    return hosts


def free_ports(count: int, *, without: Collection[int] = ()) -> tuple[int, ...]:
    """Return ports on which nothing listens on this host, and that probably are free on others, too."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(_TUNNEL_PORTS, len(_TUNNEL_PORTS)):
        if len(ports) == count:
            break
        with socket.socket() as probe, suppress(OSError):
            probe.bind((_LOOPBACK, port))
            ports += [port] if port not in without else []
    return tuple(ports)


def with_tunnel(hosts: Sequence[SshHost], here: Sequence[int]) -> list[SshHost]:
    """Return hosts whose managers have other ports than all others, on loopback; `here` are those of this host.

    Raises
    ------
    UsageError
        The manager of a host stays when its connection is cut: it would be alone.
    """
    for host in hosts:
        if host.stays:
            hint = "leave out 'stays' in the file of hosts, or --tunnel"
            raise UsageError("a manager that is reached through its ssh ends with it", where=host.name, hint=hint)
    ports = iter(free_ports(2 * len(hosts), without=here))
    return [
        msgspec.structs.replace(host, address=_LOOPBACK, port=next(ports), links_port=next(ports)) for host in hosts
    ]


def forwards(host: SshHost, hosts: Sequence[SshHost], here: Sequence[int]) -> tuple[str, ...]:
    """Return the options of the ``ssh`` to a host by which it is part of a tunnel; none if there is no tunnel.

    It has a connection of its own: those that users share would keep the ports. Jump hosts have other options.

    Parameters
    ----------
    hosts : sequence of SshHost
        All that the tunnel connects.
    here : sequence of int
        Ports of managers of this host, which are forwarded, too; empty without a tunnel.
    """
    if not here:
        return ()
    others = [port for other in hosts if other.name != host.name for port in (other.port, other.links_port)]
    given = [("-L", port) for port in (host.port, host.links_port)] + [("-R", port) for port in (*here, *others)]
    pairs = [(option, f"{_LOOPBACK}:{port}:{_LOOPBACK}:{port}") for option, port in given]
    # The first value of an option counts.
    own = ("-S", "none", "-o", "ClearAllForwardings=no", "-o", "ExitOnForwardFailure=yes")
    return (*own, *(word for pair in pairs for word in pair))


def check_hosts(hosts: Sequence[SshHost], here: Sequence[int] = ()) -> tuple[list[SshHost], list[HostProblem]]:
    """Look at all hosts at once; return them with their addresses, and all problems. `here` is that of `forwards`.

    Raises
    ------
    MissingDependencyError
        There is no ``ssh`` here.
    """
    if shutil.which("ssh") is None:
        raise MissingDependencyError("this host has no command ssh", hint="install the client of OpenSSH")
    with ThreadPoolExecutor(_HOSTS_AT_ONCE) as pool:
        addressed = list(pool.map(_with_address, hosts))
        by_host = list(pool.map(lambda host: _check(host, forwards(host, addressed, here)), addressed))
    return addressed, [problem for problems in by_host for problem in problems]


def node_command(host: SshHost, tunnel: Sequence[str] = ()) -> list[str]:
    """Return the command that runs the node manager of a host; see `node_input` and `forwards`."""
    return ssh_command(host, "-m dropflow launch host", tunnel)


def node_input(host: SshHost, *, key: Path, root: str, options: Sequence[str]) -> bytes:
    """Return the first line of the standard input of a node manager.

    Parameters
    ----------
    key : Path
        The file with the cluster key, which is in no argument, environment or log.
    root : str
        Its directory below that of the host.
    options : sequence of str
        Further options of ``dropflow node``.
    """
    listen = _LOOPBACK if host.address == _LOOPBACK else "0.0.0.0"  # noqa: S104 - with a key
    own = [
        *("--name", host.name, "--host", listen, "--advertise", host.address),
        *("--port", f"{host.port}", "--links-port", f"{host.links_port}", "--drain-seconds", f"{_DRAIN_SECONDS}"),
        *(("--workers", f"{host.workers}") if host.workers else ()),
        *(("--memory", host.memory) if host.memory else ()),
    ]
    order = NodeOrder(
        key=key.read_text(encoding="ascii"),
        root=f"{host.directory}/{root}/{host.name}",
        stays=host.stays,
        options=(*own, *options),
    )
    return msgspec.json.encode(order) + b"\n"


def local_address(host: SshHost) -> str:
    """Return the address of this host from which it connects to another one."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # of a datagram socket: nothing is sent
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()


def ssh_command(host: SshHost, arguments: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command that runs Python on a host, with `arguments`, which are words for a shell."""
    path = host.python or sys.executable
    words = f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)
    script = f'p={words}; [ -d "$p" ] && p="$p/bin/python"; exec "$p" {arguments}'
    return ["ssh", *options, *SSH_OPTIONS, "--", host.ssh or host.name, f"exec sh -c {shlex.quote(script)}"]


def _with_address(host: SshHost) -> SshHost:
    """Return a host with the host name that ssh would connect to as its address, if it has none."""
    if host.address:
        return host
    command = ["ssh", "-G", "--", host.ssh or host.name]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603
    named = [line.split(maxsplit=1)[1] for line in done.stdout.splitlines() if line.startswith("hostname ")]
    return msgspec.structs.replace(host, address=named[0] if named else host.name)


class _Found(msgspec.Struct, frozen=True):
    """The record that `_look` prints on a host."""

    python: tuple[int, int]
    version: str
    error: str
    time: float
    free: int
    writable: bool
    ports: tuple[int | str, ...]


def _look(directory: str, *ports: int) -> None:
    """Print what is on this host, and listen until a line comes. It runs there, with any Python from 3.6 on."""
    # ruff: noqa: PLC0415 - its text is sent
    import json
    import os.path
    import shutil
    import socket
    import sys
    import time

    version = error = ""
    try:
        from dropflow.version import __version__ as version
    except Exception as failure:  # noqa: BLE001 - it is reported
        error = f"{type(failure).__name__}: {failure}"
    path = os.path.expanduser(directory)  # noqa: PTH111
    while path and not os.path.exists(path):  # noqa: PTH110
        path = os.path.dirname(path)  # noqa: PTH120
    listeners, numbers = [], []
    for port in ports:
        listener = socket.socket()
        listeners.append(listener)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
            listener.listen(1)
            numbers.append(listener.getsockname()[1])
        except OSError as failure:
            numbers.append(f"cannot listen on port {port}: {failure.strerror}")
    facts = {
        "python": sys.version_info[:2],
        "version": version,
        "error": error,
        "time": time.time(),  # noqa: TID251
        "free": shutil.disk_usage(path or ".").free,
        "writable": os.access(path or ".", os.W_OK),
        "ports": numbers,
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


def _check(host: SshHost, tunnel: Sequence[str]) -> list[HostProblem]:
    """Return what is wrong with a host."""
    program = f"{inspect.getsource(_look)}\n_look({host.directory!r}, {host.port}, {host.links_port})"
    command = ssh_command(host, "-c 'exec(eval(input()))'", tunnel)
    pipes: Mapping[str, int] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    clock = SystemClock()
    # A file, because a shared connection that ssh leaves in the background keeps its standard error open.
    with (
        TemporaryFile() as errors,
        subprocess.Popen(command, stderr=errors, start_new_session=True, **pipes) as process,  # type: ignore[call-overload] # noqa: S603
    ):
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(_HOST_CHECK_SECONDS, give_up)
        timer.start()
        line = b""
        with suppress(OSError):
            process.stdin.write(f"{program!r}\n".encode())
            process.stdin.flush()
            line = process.stdout.readline()
        moment = clock.now()
        problems = [] if not line else _problems(host, line, moment)
        with suppress(OSError):
            process.stdin.write(b"\n")
            process.stdin.close()
        status = process.wait()
        timer.cancel()
        return problems if line else [_failure(host, status, errors, is_late=late.is_set())]


def _failure(host: SshHost, status: int, errors: IO[bytes], *, is_late: bool) -> HostProblem:
    """Return the problem of a host that did not answer the check."""
    errors.seek(0)
    printed = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    last = printed[-1] if printed else f"ssh ended with status {status}"
    if "forwarding failed" in last:
        hint = "let its sshd forward ports (AllowTcpForwarding); if the port is taken, start again: it takes others"
        return HostProblem(host=host.name, text=last, hint=hint)
    if is_late or status == SSH_FAILED:
        text = f"it does not answer within {_HOST_CHECK_SECONDS:g} s" if is_late else last
        hint = f"try 'ssh -o BatchMode=yes {host.ssh or host.name} true'; --skip-unreachable leaves it out"
        return HostProblem(host=host.name, text=text, hint=hint, is_unreachable=True)
    hint = "give an interpreter, or the directory of a virtual environment, that has dropflow there, as 'python'"
    return HostProblem(host=host.name, text=f"its Python does not run: {last}", hint=hint)


def _problems(host: SshHost, line: bytes, moment: float) -> list[HostProblem]:
    """Return what is wrong with a host that printed a line at this moment."""
    try:
        facts = msgspec.json.decode(line, type=_Found)
    except msgspec.MsgspecError:
        text = f"its shell prints {line.decode(errors='replace').strip()[:60]!r}"
        return [HostProblem(host=host.name, text=text, hint="let it print nothing when it is not interactive")]
    install = f"install dropflow {__version__} there, or name another 'python'"
    wrong = []
    if facts.python < _OLDEST:
        wrong.append(("its Python is {}.{}".format(*facts.python), f"dropflow needs Python 3.11 or later; {install}"))
    elif facts.error:
        wrong.append((f"dropflow cannot be imported: {facts.error}", install))
    elif facts.version != __version__:
        wrong.append((f"it has dropflow {facts.version}, and this host {__version__}", install))
    if abs(facts.time - moment) > MAX_SKEW_SECONDS:
        wrong.append((f"its clock differs by {facts.time - moment:+.1f} s", "set the clocks of both hosts by NTP"))
    if not facts.writable:
        wrong.append((f"{host.directory} cannot be written", "name another 'directory'"))
    if facts.free < _FEWEST_FREE_BYTES:
        wrong.append((f"{host.directory} has only {format_size(facts.free)} left", "name another 'directory'"))
    taken = [port for port in facts.ports if isinstance(port, str)]
    wrong += [(text, "name another 'port' or 'links_port'; 0 takes any that is free") for text in taken]
    for port in {port for port in facts.ports if isinstance(port, int)} if not taken else ():
        try:
            socket.create_connection((host.address, port), _PORT_CONNECT_SECONDS).close()
        except OSError as error:
            text = f"cannot connect to {host.address}:{port} from here: {error.strerror or error}"
            wrong.append((text, "open the ports of 'port' and 'links_port', or name another 'address'"))
            break
    return [HostProblem(host=host.name, text=text, hint=hint) for text, hint in wrong]
