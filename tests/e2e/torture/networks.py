"""Splits, one-way cuts and lost packets between hosts in network namespaces, while sessions run on them."""

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from dropflow.api.client import Client
from dropflow.errors import DropflowError
from tests.e2e.cluster import LOST_AFTER, TIMES, scattered, submit, until
from tests.e2e.network import Hosts, Network
from tests.e2e.recorded_node import History, recorded
from tests.e2e.torture.sessions import CLUSTER_GRAPHS, Figures, Session

_NODES = {1: "a", 2: "b", 3: "c"}
_HOSTS = (0, *_NODES)

T = TypeVar("T")


class TorturedNetwork:
    """Three nodes and an island, each on a host of its own.

    Parameters
    ----------
    home : Path
        For their directories.
    figures : Figures
        Gets what was cut.
    """

    def __init__(self, home: Path, figures: Figures) -> None:
        self._home = home
        self._figures = figures
        self._pause = threading.Event()
        self._history = History(home / "history")
        self._network = Network(len(_HOSTS))
        self._network.__enter__()
        self._hosts = Hosts(home, self._network, node_program=recorded(self._history.path))
        try:
            nodes = [self._hosts.node(host, name, *TIMES) for host, name in _NODES.items()]
            urls = ",".join(node.ready["url"] for node in nodes)
            self._island = self._hosts.start(0, "island", "--nodes", urls, *TIMES)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all processes, and remove the network."""
        try:
            self._hosts.stack.close()
        finally:
            self._network.close()

    def torture(self, seed: int) -> None:
        """Run up to three sessions at a time, cut the network once or twice, and check how they end."""
        chance = random.Random(seed)
        kinds = chance.sample(CLUSTER_GRAPHS, chance.choice((1, 2, 3)))
        sessions = [Session(kind, f"n{seed}-{kind}", self._home) for kind in kinds]

        def start(client: Client) -> None:
            assert until(lambda: _are_there(client), 120.0), client.nodes()
            for session in sessions:
                places = chance.sample([*_NODES.values()], chance.choice((2, 3)))
                submit(client, scattered(session.graph, places, chance.randrange(99)), session.name)

        def check(client: Client) -> None:
            assert until(lambda: _are_there(client), 120.0), client.nodes()
            for session in sessions:
                session.check_end(client, self._history, self._figures)
                session.check_history(client, self._history, self._figures)
            for session in sessions:
                session.delete(client)

        self._ask(start)
        for _ in range(chance.choice((1, 1, 2))):
            self._pause.wait(chance.uniform(0.0, 1.5))
            chance.choice((self._pull, self._split, self._cut_one_way, self._lose_packets))(chance)
            # A node that the others went on without becomes a member no more: with a second one, too few are left.
            self._ask(_assert_there)
        self._ask(check)

    def _ask(self, question: Callable[[Client], T]) -> T:
        def ask() -> T:
            with Client(self._island.ready["url"], token=self._island.ready["token"], timeout=30.0) as client:
                return question(client)

        return self._network.on(0, ask)

    def _wait(self, chance: random.Random) -> None:
        self._pause.wait(chance.choice((0.5, LOST_AFTER - 1.0, LOST_AFTER + 2.0)) + chance.uniform(0.0, 1.0))

    # What is done to the network.

    def _pull(self, chance: random.Random) -> None:
        """Pull the cable of one host."""
        host = chance.choice(_HOSTS)
        self._network.pull(host)
        self._wait(chance)
        self._network.plug(host)
        self._figures.cuts["pulled cable"] += 1

    def _split(self, chance: random.Random) -> None:
        """Cut the hosts into two groups of two."""
        first = chance.sample(_HOSTS, 2)
        for host in _HOSTS:
            for other in _HOSTS:
                if (host in first) != (other in first):
                    self._network.cut(host, other)
        self._wait(chance)
        self._heal("split")

    def _cut_one_way(self, chance: random.Random) -> None:
        """Have one host receive nothing from another one, or from all others."""
        host, *others = chance.sample(_HOSTS, chance.choice((2, len(_HOSTS))))
        for other in others:
            self._network.cut(host, other)
        self._wait(chance)
        self._heal("one-way cut")

    def _lose_packets(self, chance: random.Random) -> None:
        """Lose 20 % of the packets to some hosts."""
        for host in chance.sample(_HOSTS, chance.choice((1, 2, 4))):
            self._network.lose(host, 0.2)
        self._wait(chance)
        self._wait(chance)
        self._heal("time with 20 % of packets lost")

    def _heal(self, what: str) -> None:
        for host in _HOSTS:
            self._network.heal(host)
        self._figures.cuts[what] += 1


def _assert_there(client: Client) -> None:
    assert until(lambda: _are_there(client), 120.0), client.nodes()


def _are_there(client: Client) -> bool:
    with suppress(DropflowError):
        nodes = client.nodes()
        return len(nodes) == len(_NODES) and all(node.state == "alive" for node in nodes)
    return False
