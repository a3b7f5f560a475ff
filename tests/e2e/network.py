"""A network for a test: hosts as network namespaces, connected by a switch, with cables that can be pulled.

It needs root on Linux with ``ip`` and ``iptables``. Processes of different hosts share everything except the network.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from dropflow.cli.doctor import DoctorReply
from tests.processes import Running, run

_CLONE_NEWNET = 0x40000000
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
T = TypeVar("T")


def missing(*tools: str) -> str:
    """Return why no such network can be made here, or an empty text."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "network namespaces need root on Linux"
    absent = [tool for tool in tools if shutil.which(tool, path=_PATH) is None]
    if absent:
        return f"{', '.join(absent)} is not installed"
    probe = f"dfp{os.getpid()}"
    added = subprocess.run(["ip", "netns", "add", probe], env=_environment(), capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", probe], env=_environment(), capture_output=True, check=False)
    return "" if added.returncode == 0 else f"no network namespaces: {added.stderr.decode().strip()}"


class Network:
    """Hosts ``0``, ``1``... at one switch.

    Parameters
    ----------
    hosts : int
        Number of hosts.
    """

    def __init__(self, hosts: int) -> None:
        self._prefix = f"df{os.getpid()}"
        self.hosts = hosts

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove all of it."""
        for name in (self._switch, *(self._name(host) for host in range(self.hosts))):
            subprocess.run(["ip", "netns", "del", name], env=_environment(), capture_output=True, check=False)

    def address(self, host: int) -> str:
        """IPv4 address of a host."""
        return f"10.99.0.{host + 1}"

    def before(self, host: int) -> Sequence[str]:
        """Return the words in front of a command that run it on a host."""
        ip = shutil.which("ip", path=_PATH)
        assert ip is not None
        return (ip, "netns", "exec", self._name(host))

    def on(self, host: int, call: Callable[[], T]) -> T:
        """Call a function in a thread that has the network of a host."""
        answers: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                _enter(Path("/run/netns", self._name(host)))
                answers.append(call())
            except BaseException as error:  # noqa: BLE001 - raised again by the test's own thread
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return answers[0]

    def pull(self, host: int) -> None:
        """Pull the cable of a host out of the switch."""
        self._ip("-n", self._switch, "link", "set", f"port{host}", "down")

    def plug(self, host: int) -> None:
        """Plug it in again."""
        self._ip("-n", self._switch, "link", "set", f"port{host}", "up")

    def lose(self, host: int, share: float) -> None:
        """Lose this fraction of the packets to a host from now on."""
        rule = ("INPUT", "-m", "statistic", "--mode", "random", "--probability", str(share), "-j", "DROP")
        self._ip("netns", "exec", self._name(host), "iptables", "-A", *rule)

    def block(self, host: int, source: int, port: int) -> None:
        """Make a host drop packets from another host to one of its ports from now on."""
        rule = ("INPUT", "-p", "tcp", "-s", self.address(source), "--dport", str(port), "-j", "DROP")
        self._ip("netns", "exec", self._name(host), "iptables", "-A", *rule)

    def let_in_only(self, host: int, port: int) -> None:
        """Make a host drop what other hosts send, except to this port, and answers from that port of others."""
        for rule in (("lo",), ("eth0", "-p", "tcp", "--dport", f"{port}"), ("eth0", "-p", "tcp", "--sport", f"{port}")):
            self._ip("netns", "exec", self._name(host), "iptables", "-A", "INPUT", "-i", *rule, "-j", "ACCEPT")
        self._ip("netns", "exec", self._name(host), "iptables", "-A", "INPUT", "-j", "DROP")

    def cut(self, host: int, source: int) -> None:
        """Make a host drop all packets from another host from now on: a one-way cut, until `heal`."""
        self._ip("netns", "exec", self._name(host), "iptables", "-A", "INPUT", "-s", self.address(source), "-j", "DROP")

    def heal(self, host: int) -> None:
        """Undo all that `lose`, `block` and `cut` have done to a host."""
        self._ip("netns", "exec", self._name(host), "iptables", "-F", "INPUT")

    def lost(self, host: int) -> int:
        """Return the number of packets that `lose` has lost."""
        words = self._ip("netns", "exec", self._name(host), "iptables", "-L", "INPUT", "-v", "-x", "-n").splitlines()
        return sum(int(line.split()[0]) for line in words if " DROP " in line and "policy" not in line)

    @property
    def _switch(self) -> str:
        return f"{self._prefix}s"

    def _name(self, host: int) -> str:
        return f"{self._prefix}h{host}"

    def _build(self) -> None:
        self._ip("netns", "add", self._switch)
        self._ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        self._ip("-n", self._switch, "link", "set", "switch", "up")
        for host in range(self.hosts):
            name = self._name(host)
            self._ip("netns", "add", name)
            cable = ("eth0", "netns", name, "type", "veth", "peer", "name", f"port{host}", "netns", self._switch)
            self._ip("link", "add", *cable)
            self._ip("-n", self._switch, "link", "set", f"port{host}", "master", "switch", "up")
            self._ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            self._ip("-n", name, "link", "set", "lo", "up")
            self._ip("-n", name, "link", "set", "eth0", "up")
            self._ip("-n", name, "route", "add", "default", "dev", "eth0")

    @staticmethod
    def _ip(*arguments: str) -> str:
        done = subprocess.run(["ip", *arguments], env=_environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


def _enter(namespace: Path) -> None:
    """Move the calling thread into a network namespace."""
    with namespace.open() as opened:
        if ctypes.CDLL(None, use_errno=True).setns(opened.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")


def _environment() -> dict[str, str]:
    return dict(os.environ) | {"PATH": _PATH}


# Hosts of a cluster for tests: network namespaces with managers on them.


class Hosts:
    """Hosts of one cluster. Each has a copy of its key, and they have nothing else in common.

    Parameters
    ----------
    home : Path
        Parent of the directories of the hosts.
    network : Network
        Connects them.
    node_program : sequence of str
        Arguments of the Python interpreter that stand for ``dropflow`` in the commands of nodes.
    """

    def __init__(self, home: Path, network: Network, *, node_program: Sequence[str] = ("-m", "dropflow")) -> None:
        self.network = network
        self._node_program = node_program
        self.stack = ExitStack()
        self._home = home
        run(home, "keys", "create")
        self._key = (home / "config" / "dropflow" / "cluster.key").read_bytes()

    def start(self, host: int, role: str, *arguments: object) -> Running:
        """Start a manager on a host."""
        home = self._home / f"host-{host}"
        key = home / "config" / "dropflow" / "cluster.key"
        if not key.exists():
            key.parent.mkdir(parents=True)
            key.touch(mode=0o600)
            key.write_bytes(self._key)
        address = self.network.address(host)
        before = self.network.before(host)
        program = self._node_program if role == "node" else ("-m", "dropflow")
        words = (role, "--host", address, "--port", 0, *arguments)
        return self.stack.enter_context(Running(home, *words, before=before, program=program))

    def doctor(self, host: int, running: Running) -> tuple[int, DoctorReply]:
        """Run doctor on a host, which may have no manager, and return its exit status and its answer."""
        home = self._home / f"host-{host}"
        words = ("doctor", "--to", running.ready["url"], "--timeout", 2, "--output", "json")
        done = self.network.on(host, lambda: run(home, *words))
        return done.returncode, msgspec.json.decode(done.stdout, type=DoctorReply)

    def node(self, host: int, name: str, *more: object) -> Running:
        """Start a node on a host."""
        return self.start(host, "node", "--name", name, "--links-port", 0, "--workers", 2, *more)
