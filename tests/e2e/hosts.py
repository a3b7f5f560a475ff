"""Hosts of a cluster for tests: network namespaces with managers on them."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from dropflow.cli.doctor import DoctorReply
from tests.e2e.network import Network
from tests.processes import Running, run

__all__ = ["Hosts"]


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
