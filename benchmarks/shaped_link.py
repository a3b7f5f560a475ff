"""A link of a known rate between this host and a second network namespace of it. Needs root, ``ip`` and ``tc``."""

import os
import subprocess
import sys
import time
from itertools import count
from typing import Self

__all__ = ["ShapedLink"]

_numbers = count(1, 4)

_RECEIVE = """
import socket, sys
connection, block = socket.create_connection((sys.argv[1], int(sys.argv[2]))), bytearray(1 << 20)
while connection.recv_into(block):
    pass
"""
_SEND = """
import socket, sys
server, block, left = socket.create_server((sys.argv[1], 0)), bytes(1 << 20), int(sys.argv[2])
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
while left > 0:
    connection.sendall(block[:left])
    left -= len(block)
"""


class ShapedLink:
    """A pair of virtual network devices; a token bucket limits what this side sends.

    Parameters
    ----------
    gigabits : float
        Rate per second; 0 for as fast as the processors are.
    """

    def __init__(self, gigabits: float) -> None:
        number = next(_numbers)
        self.gigabits = gigabits
        self._name = f"dfl{os.getpid()}-{number}"  # a device disappears a while after its namespace
        self.address = f"10.98.{os.getpid() % 250}.{number}"
        self._other = f"10.98.{os.getpid() % 250}.{number + 1}"

    def __enter__(self) -> Self:
        here, there = self._name, ("-n", self._name)
        try:
            _run("ip", "netns", "add", here)
            _run("ip", "link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", here)
            _run("ip", "addr", "add", f"{self.address}/30", "dev", here)
            _run("ip", "link", "set", here, "up")
            _run("ip", *there, "addr", "add", f"{self._other}/30", "dev", "eth0")
            _run("ip", *there, "link", "set", "eth0", "up")
            if self.gigabits:
                burst = f"{max(int(self.gigabits * 400), 256)}kb"
                limit = ("rate", f"{self.gigabits}gbit", "burst", burst, "latency", "20ms")
                _run("tc", "qdisc", "add", "dev", here, "root", "tbf", *limit)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["ip", "netns", "del", self._name], check=False, capture_output=True)

    @property
    def before(self) -> tuple[str, ...]:
        """The words in front of a command that run it at the other end."""
        return ("ip", "netns", "exec", self._name)

    def seconds(self, size: int) -> float:
        """Return how long one TCP connection takes for so many bytes, from here to the other end."""
        sender = subprocess.Popen(
            [sys.executable, "-c", _SEND, self.address, str(size)], stdout=subprocess.PIPE, text=True
        )
        port = sender.stdout.readline().strip() if sender.stdout is not None else ""
        began = time.perf_counter()
        subprocess.run([*self.before, sys.executable, "-c", _RECEIVE, self.address, port], check=True)
        sender.wait()
        return time.perf_counter() - began


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
