"""Kills processes of a cluster of four nodes, an island and a master while sessions run on it."""

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from dropflow.api.client import Client
from dropflow.errors import DropflowError
from dropflow.graph.codec import save
from tests.e2e.cluster import LOST_AFTER, Cluster, finished, port_of, scattered, submit, until
from tests.e2e.recorded_node import History, recorded
from tests.e2e.torture.sessions import CLUSTER_GRAPHS, Figures, Session
from tests.processes import Running, environment

_NODES = "abcd"
_UNDO_SECONDS = 240.0
"""How long a node keeps what a killed manager has prepared and never starts, and more."""


class TorturedCluster:
    """Processes that are killed while sessions run, and started again.

    Parameters
    ----------
    home : Path
        For their directories.
    figures : Figures
        Gets what was killed.
    """

    def __init__(self, home: Path, figures: Figures) -> None:
        self._home = home
        self._figures = figures
        self._history = History(home / "history")
        self._cluster = Cluster(home, node_program=recorded(self._history.path))
        self._nodes: dict[str, Running] = dict(zip(_NODES, self._cluster.nodes(*_NODES), strict=True))
        self._island = self._cluster.island(*self._nodes.values())
        self._master = self._cluster.master(self._island)
        self._pause = threading.Event()
        self._losses = 0
        """Nodes that the present sessions may have lost."""
        self._has_witness = True
        self._undone: list[Session] = []
        """Sessions whose deployment was not acknowledged: they are there with the right end, or nothing of them is."""

    def close(self) -> None:
        """Check that nothing is left of what was not deployed, and stop all processes."""
        try:
            with self._client() as client:
                for session in self._undone:
                    self._check_undone(client, session)
        finally:
            self._cluster.__exit__(None, None, None)

    def torture(self, seed: int) -> None:
        """Run up to three sessions at a time, disturb them up to four times, and check how they end."""
        chance = random.Random(seed)
        kinds = chance.sample(CLUSTER_GRAPHS, chance.choice((1, 2, 3)))
        sessions = [Session(kind, f"s{seed}-{kind}", self._home) for kind in kinds]
        self._losses, self._has_witness = 0, True
        with self._client() as client:
            assert until(lambda: _are_there(client), 60.0)
            for session in sessions:
                places = chance.sample(_NODES, chance.choice((2, 3, 4)))
                submit(client, scattered(session.graph, places, chance.randrange(99)), session.name)
        for _ in range(chance.choice((1, 1, 2, 3, 4))):
            if chance.random() < 0.1:
                with self._client() as client:
                    self._wait_for_end_of(client, sessions[0])  # the next one hits what was just over, or nearly
            else:
                self._pause.wait(chance.uniform(0.0, 1.5))
            self._disturb(chance, sessions)
        self._check(sessions, chance)

    def torture_deployment(self, seed: int) -> None:
        """Kill ``submit``, the manager that deploys or a node that is deployed to, and check how its session ends."""
        chance = random.Random(seed)
        session = Session(chance.choice(CLUSTER_GRAPHS), f"d{seed}", self._home)
        self._losses, self._has_witness = 0, True
        with self._client() as client:
            assert until(lambda: _are_there(client), 60.0)
        path = self._home / f"{session.name}.dfg"
        places = chance.sample(_NODES, chance.choice((2, 3, 4)))
        save(scattered(session.graph, places, chance.randrange(99)), path)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dropflow", "submit", path, "--name", session.name, "--to", self._url),
                *("--wait", "--output", "quiet"),
            ],
            env=environment(self._home) | {"DROPFLOW_TOKEN": self._master.ready["token"]},
            cwd=self._home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        killed = chance.choice(("submit", "island", "master", "node"))
        if chance.random() < 0.5:  # the moments of the deployment itself
            with self._client() as client:
                until(lambda: process.poll() is not None or bool(self._found(client, session)), 20.0)
            self._pause.wait(chance.uniform(0.0, 0.1))
        else:
            self._pause.wait(chance.uniform(0.3, 2.5))
        if killed == "submit":
            process.kill()
            self._figures.kills["submit"] += 1
        elif killed == "node":
            self._kill_node(chance, [session])
        else:
            self._kill_above(chance, [session], is_island=killed == "island")
        _, errors = process.communicate(timeout=300.0)
        assert b"Traceback" not in errors, errors.decode()
        path.unlink()
        with self._client() as client:
            assert until(lambda: _are_there(client), 60.0)
            if process.returncode == 0 or self._found(client, session) in ("RUNNING", "FINISHED"):
                self._check([session], chance)
            else:
                self._undone.append(session)

    @property
    def _url(self) -> str:
        return str(self._master.ready["url"])

    def _found(self, client: Client, session: Session) -> str:
        """Return the status of a session as far as it is known; empty if there is none."""
        with suppress(DropflowError):
            return next((one.status for one in client.sessions() if one.session == session.name), "")
        return ""

    def _check_undone(self, client: Client, session: Session) -> None:
        """A session whose deployment failed is over, or there is nothing left of it."""
        assert until(lambda: self._found(client, session) in ("", "FAILED", "CANCELLED", "FINISHED"), _UNDO_SECONDS), (
            f"{session.name} is {self._found(client, session)} after its deployment failed"
        )
        if self._found(client, session):
            session.delete(client)
        found = f"{session.name}/deployment.json"
        assert until(lambda: not list(self._home.rglob(found)), _UNDO_SECONDS), f"left: {[*self._home.rglob(found)]}"

    def _check(self, sessions: Sequence[Session], chance: random.Random) -> None:
        with self._client() as client:
            assert until(lambda: _are_there(client), 60.0)  # managers that were started again
            for session in sessions:
                session.check_end(client, self._history, self._figures)
            assert until(lambda: _are_there(client), 60.0)
        if chance.random() < 0.25:  # what was acknowledged is there, also after a kill
            self._kill_node(chance, ())
        with self._client() as client:
            assert until(lambda: _are_there(client), 60.0)
            for session in sessions:
                session.check_history(client, self._history, self._figures)
                session.delete(client)

    def _client(self) -> Client:
        return Client(self._url, token=self._master.ready["token"], timeout=30.0)

    # What is done to the cluster.

    def _disturb(self, chance: random.Random, sessions: Sequence[Session]) -> None:
        disturbances: list[Callable[[random.Random, Sequence[Session]], None]] = [self._kill_worker] * 3
        if self._losses == 0 or (self._losses == 1 and self._has_witness):
            disturbances += [self._kill_node] * 5 + [self._stop_node]
        disturbances += [self._kill_above] * 2
        chance.choice(disturbances)(chance, sessions)

    def _kill_node(self, chance: random.Random, sessions: Sequence[Session]) -> None:
        name = chance.choice(_NODES)
        victim = self._nodes[name]
        before = self._views(sessions, name)
        _kill(victim)
        self._history.gone(name)
        self._losses += 1
        self._pause.wait(chance.choice((0.0, 0.0, 1.0, LOST_AFTER + 1.0)))
        self._nodes[name] = self._cluster.node(name, port=port_of(victim))
        self._figures.kills["node"] += 1
        self._wait_for_views(before)

    def _stop_node(self, chance: random.Random, sessions: Sequence[Session]) -> None:
        name = chance.choice(_NODES)
        before = self._views(sessions, name)
        process = self._nodes[name].process
        process.send_signal(signal.SIGSTOP)
        self._losses += 1
        self._pause.wait(LOST_AFTER + chance.uniform(-1.0, 3.0))
        process.send_signal(signal.SIGCONT)
        self._figures.kills["stopped node"] += 1
        self._pause.wait(1.0)  # whether the others went on without it is decided by now, or soon
        self._wait_for_views(before, is_certain=False)

    def _kill_worker(self, chance: random.Random, sessions: Sequence[Session]) -> None:
        node = self._nodes[chance.choice(_NODES)]
        workers = psutil.Process(node.process.pid).children()  # without the commands that they run
        if workers:
            with suppress(psutil.NoSuchProcess):
                chance.choice(workers).kill()
            self._figures.kills["worker"] += 1
            for session in sessions:
                session.worker_kills += 1

    def _kill_above(self, chance: random.Random, sessions: Sequence[Session], *, is_island: bool | None = None) -> None:
        del sessions
        is_island = chance.random() < 0.5 if is_island is None else is_island
        victim = self._island if is_island else self._master
        _kill(victim)
        self._pause.wait(chance.choice((0.0, 0.5)))
        if is_island:
            self._island = self._cluster.island(*self._nodes.values(), port=port_of(victim))
        else:
            self._master = self._cluster.master(self._island, port=port_of(victim))
        self._has_witness = False
        self._figures.kills["island" if is_island else "master"] += 1

    # What must be known before the next one.

    def _wait_for_end_of(self, client: Client, session: Session) -> None:
        with suppress(DropflowError):
            finished(client, session.name, 20.0)

    def _views(self, sessions: Sequence[Session], member: str) -> dict[str, int]:
        """Return the views of the sessions that still run and have this member."""
        with self._client() as client:
            assert until(lambda: _are_there(client), 60.0)
            found = {session.session: session for session in client.sessions()}
            running = [
                found[session.name]
                for session in sessions
                if session.name in found and not found[session.name].finished
            ]
            return {one.session: one.view for one in running if member in (one.members or (member,))}

    def _wait_for_views(self, before: dict[str, int], *, is_certain: bool = True) -> None:
        """Wait until sessions are over or in a later view; several losses at once are more than they survive."""

        def is_settled(client: Client) -> bool:
            with suppress(DropflowError):
                found = {session.session: session for session in client.sessions()}
                there = all(name in found for name in before)  # a node that has a part may not have answered yet
                return there and all(found[name].finished or found[name].view > view for name, view in before.items())
            return False

        with self._client() as client:
            is_later = until(lambda: is_settled(client), 60.0 if is_certain else 8.0)
            assert is_later or not is_certain, f"no view after {before}: {client.sessions()}"


def _kill(victim: Running) -> None:
    victim.process.kill()
    victim.process.wait()


def _are_there(client: Client) -> bool:
    with suppress(DropflowError):
        nodes = client.nodes()
        return len(nodes) == len(_NODES) and all(node.state == "alive" for node in nodes)
    return False
