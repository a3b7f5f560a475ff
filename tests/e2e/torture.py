"""Kill processes at random moments, again and again: ``make torture KILLS=1000``. Not a test: it takes hours.

Most kills are of ``dropflow run`` and ``resume`` (SIGKILL, with and without their workers); the others are of processes
of clusters of up to four nodes: nodes, worker processes, the island and the master (SIGKILL, then a new start), and
nodes that are stopped for longer than the deadline (SIGSTOP, SIGCONT). Each session must end, with the results of one
that was not disturbed; no application may begin more often than once for each kill beyond its tries; and what a killed
``run`` had committed must not run again at all. The first violation ends it, with its seed.
"""

import argparse
import random
import secrets
import signal
import sys
import tempfile
import threading
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dropflow.clock import SystemClock
from dropflow.graph.physical import PhysicalGraph
from dropflow.rest.client import Client
from tests.e2e.cluster import LOST_AFTER, Cluster, content, finished, port_of, scattered, submit, until
from tests.e2e.test_resume import Run, check_repeated, undisturbed
from tests.processes import Running
from tests.recovery_graphs import GRAPHS

_NODES = "abcd"
_STEP_SECONDS = 0.15
_SESSION_SECONDS = 120.0
_SESSIONS_OF_CLUSTER = 10
_NOT_SURVIVED = {"loop"}
"""Graphs whose iterations replace one file: they fail after the loss of a node (docs/explanation/failures.md)."""


@dataclass
class _Figures:
    """What was killed, and how many attempts were repeated."""

    kills: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    repeated: int = 0

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {what}" for what, count in sorted(self.kills.items()))
        return f"{self.sessions} sessions, {self.kills.total()} kills ({kinds}), {self.repeated} attempts repeated"


def torture_run(seed: int, home: Path, figures: _Figures) -> None:
    """Kill one run up to three times, and continue it to its end."""
    chance = random.Random(seed)  # noqa: S311 - to be the same each time
    kind = chance.choice(sorted(GRAPHS))
    expected = undisturbed(kind, home)
    with tempfile.TemporaryDirectory(dir=home) as directory:
        run = Run(kind, Path(directory))
        for _ in range(chance.choice((1, 2, 3))):
            before, wanted = run.begun(), run.to_run()
            with_workers = chance.random() < 0.7
            seconds = chance.uniform(0.1, 0.8 + 1.2 * expected.seconds)
            run.kill("run" if wanted is None else "resume", seconds, with_workers=with_workers)
            figures.kills["run"] += 1
            if with_workers:
                check_repeated(run, before, wanted)
            if chance.random() < 0.2 and run.to_run():
                run.lose_content(chance)
        wanted = run.to_run()
        end = run.finish("run" if wanted is None else "resume")
        assert (end.status, end.states, end.causes) == (expected.status, expected.states, expected.causes)
        assert end.files == expected.files
        figures.sessions += 1
        figures.repeated += sum(max(0, count - 1) for count in run.begun().values())


class TorturedCluster:
    """Nodes, an island and a master whose processes are killed while sessions run, and started again.

    Parameters
    ----------
    home : Path
        For their directories.
    figures : _Figures
        Gets what was killed.
    """

    def __init__(self, home: Path, figures: _Figures) -> None:
        self._home = home
        self._figures = figures
        self._cluster = Cluster(home)
        self._nodes: dict[str, Running] = dict(zip(_NODES, self._cluster.nodes(*_NODES), strict=True))
        self._island = self._cluster.island(*self._nodes.values())
        self._master = self._cluster.master(self._island)
        self._expected: dict[str, tuple[str, dict[str, int], dict[str, int]]] = {}
        self._pause = threading.Event()
        self._why = ""
        """Failures and notes of the last session."""

    def close(self) -> None:
        """Stop all processes."""
        self._cluster.__exit__(None, None, None)

    def torture(self, seed: int) -> None:
        """Run one session, disturb it, and check how it ends."""
        chance = random.Random(seed)  # noqa: S311 - to be the same each time
        kind = chance.choice(sorted(GRAPHS.keys() - _NOT_SURVIVED))
        if kind not in self._expected:
            self._expected[kind] = self._run(kind, f"alone-{kind}", chance, lambda: None)
        disturb = chance.choice((self._kill_node,) * 4 + (self._kill_worker,) * 3 + (self._stop_node, self._kill_above))
        after = chance.uniform(0.0, 2.5)

        def disturb_later() -> None:
            self._pause.wait(after)
            disturb(chance)

        found = self._run(kind, f"s{seed}", chance, disturb_later)
        assert found == self._expected[kind], f"{kind} is {found} instead of {self._expected[kind]}: {self._why}"

    def _run(
        self, kind: str, session: str, chance: random.Random, disturb: Callable[[], None]
    ) -> tuple[str, dict[str, int], dict[str, int]]:
        marks = self._home / f"marks-{session}"
        graph: PhysicalGraph = GRAPHS[kind](marks, _STEP_SECONDS)
        with self._client() as client:
            assert until(lambda: _are_there(client), 60.0)
            submit(
                client, scattered(graph, chance.sample(_NODES, chance.choice((2, 3, 4))), chance.randrange(99)), session
            )
        disturb()
        with self._client() as client:
            assert until(lambda: session in [one.session for one in client.sessions()], 60.0)
            detail = finished(client, session, _SESSION_SECONDS)
            assert until(lambda: _are_there(client), 60.0)
            assert until(lambda: not client.results(session).missing)
            oids = [one.oid for one in client.results(session).results]
            digests = {oid: zlib.crc32(content(client, session, oid)) for oid in oids}
            self._why = f"{detail.failures[:2]}, {detail.notes}"
            begun = Counter(marks.read_text().split())
            tries = {node.name: node.tries for node in graph.templates}
            if kind != "streams":
                again = {name: count for name, count in begun.items() if count > tries[name] + 1}
                assert not again, f"began more than once too often: {again}"
            self._figures.sessions += 1
            self._figures.repeated += sum(max(0, count - tries[name]) for name, count in begun.items())
            client.delete(session)
            assert until(lambda: session not in [one.session for one in client.sessions()])
        assert until(lambda: not list(self._home.rglob(f"{session}/deployment.json"))), "a directory is left"
        return detail.status, dict(detail.states), digests

    def _client(self) -> Client:
        ready = self._master.ready
        return Client(ready["url"], token=ready["token"], timeout=30.0)

    # What is done to the cluster.

    def _kill_node(self, chance: random.Random) -> None:
        name = chance.choice(_NODES)
        victim = self._nodes[name]
        self._kill(victim)
        self._pause.wait(chance.choice((0.0, 1.0, LOST_AFTER + 2.0)))
        self._nodes[name] = self._cluster.node(name, port=port_of(victim))
        self._figures.kills["node"] += 1

    def _kill_worker(self, chance: random.Random) -> None:
        workers = self._nodes[chance.choice(_NODES)].family()[1:]
        if workers:
            chance.choice(workers).kill()
            self._figures.kills["worker"] += 1

    def _stop_node(self, chance: random.Random) -> None:
        process = self._nodes[chance.choice(_NODES)].process
        process.send_signal(signal.SIGSTOP)
        self._pause.wait(LOST_AFTER + chance.uniform(0.0, 4.0))
        process.send_signal(signal.SIGCONT)
        self._figures.kills["stopped node"] += 1

    def _kill_above(self, chance: random.Random) -> None:
        is_island = chance.random() < 0.5
        victim = self._island if is_island else self._master
        self._kill(victim)
        if is_island:
            self._island = self._cluster.island(*self._nodes.values(), port=port_of(victim))
        else:
            self._master = self._cluster.master(self._island, port=port_of(victim))
        self._figures.kills["island" if is_island else "master"] += 1

    def _kill(self, victim: Running) -> None:
        victim.process.kill()
        victim.process.wait()


def _are_there(client: Client) -> bool:
    nodes = client.nodes()
    return len(nodes) == len(_NODES) and all(node.state == "alive" for node in nodes)


def main() -> int:
    """Kill as many processes as the command line asks for."""
    parser = argparse.ArgumentParser(description="Kill processes of runs and clusters at random moments.")
    parser.add_argument("--kills", type=int, default=1000, help="number of kills (default %(default)s)")
    parser.add_argument("--clusters", type=float, default=0.3, help="share of sessions on clusters (default 0.3)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed; by default another one each time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many minutes")
    arguments = parser.parse_args()
    seed = secrets.randbelow(10**9) if arguments.seed is None else arguments.seed
    sys.stdout.write(f"seeds from {seed}\n")
    figures, clock = _Figures(), SystemClock()
    end = clock.monotonic() + 60.0 * arguments.minutes
    cluster: TorturedCluster | None = None
    with tempfile.TemporaryDirectory(prefix="dropflow-torture-") as directory:
        home = Path(directory)
        try:
            number = 0
            while figures.kills.total() < arguments.kills and clock.monotonic() < end:
                is_cluster = random.Random(seed).random() < arguments.clusters  # noqa: S311 - to be the same each time
                if not is_cluster:
                    torture_run(seed, home, figures)
                else:
                    if cluster is None or number % _SESSIONS_OF_CLUSTER == 0:
                        if cluster is not None:
                            cluster.close()
                        place = home / f"cluster-{number}"
                        place.mkdir()
                        cluster = TorturedCluster(place, figures)
                    number += 1
                    cluster.torture(seed)
                seed += 1
        except BaseException:
            sys.stdout.write(f"seed {seed} fails after {figures}\n")
            raise
        finally:
            if cluster is not None:
                cluster.close()
    sys.stdout.write(f"{figures}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
