"""Sessions that are disturbed, and what they must end as."""

import random
import shutil
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from dropflow.api.client import Client
from dropflow.execution.content_table import kept_drops
from dropflow.execution.session import Session as EngineSession
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid, row_of
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from managers.simulation.history import content_bytes
from tests.e2e.cluster import content, finished, until
from tests.e2e.killed_run import Run, check_repeated, undisturbed
from tests.e2e.recorded_node import Decided, History, Line
from tests.managers.simulation.checked_history import Acknowledged, Found
from tests.recovery_graphs import GRAPHS

# What a torture has done so far.


@dataclass
class Figures:
    """What was killed or cut, and how much was repeated.

    Attributes
    ----------
    kills : Counter of str
        Signals to processes, by what the process was.
    cuts : Counter of str
        Network failures.
    sessions : int
        Sessions that ended as they had to.
    repeated : int
        Attempts beyond the number of tries.
    records : int
        Records of histories that were checked.
    """

    kills: Counter[str] = field(default_factory=Counter)
    cuts: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    repeated: int = 0
    records: int = 0

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {what}" for what, count in sorted(self.kills.items()))
        cuts = ", ".join(f"{count} {what}" for what, count in sorted(self.cuts.items()))
        return (
            f"{self.sessions} sessions, {self.kills.total()} kills ({kinds}), {self.cuts.total()} network failures "
            f"({cuts}), {self.repeated} attempts repeated, {self.records} records of histories"
        )


# Kills ``dropflow run`` and ``dropflow resume`` at random moments.


def torture_run(seed: int, home: Path, figures: Figures) -> None:
    """Kill one run up to six times, and continue it to its end."""
    chance = random.Random(seed)
    kind = chance.choice(sorted(GRAPHS))
    expected = undisturbed(kind, home)
    directory = home / f"run-{seed}"
    run = Run(kind, directory)
    with_workers, before, wanted = True, run.begun(), run.to_run()
    for _ in range(chance.choice((1, 2, 3, 4, 6))):
        before, wanted = run.begun(), run.to_run()
        with_workers = chance.random() < 0.7
        seconds = chance.uniform(0.1, 0.8 + 1.2 * expected.seconds)
        is_killed = run.kill("run" if wanted is None else "resume", seconds, with_workers=with_workers)
        figures.kills["run"] += is_killed
        if with_workers:
            check_repeated(run, before, wanted)
        if chance.random() < 0.2 and run.to_run():
            run.lose_content(chance)
    before, wanted = run.begun(), run.to_run()
    end = run.finish("run" if wanted is None else "resume")
    if with_workers:
        check_repeated(run, before, wanted)
    assert (end.status, end.states, end.causes) == (expected.status, expected.states, expected.causes)
    paths = end.files.keys() | expected.files.keys()
    wrong = {path for path in paths if end.files.get(path) != expected.files.get(path)}
    assert not wrong, f"{kind} in {directory}: other files, or others in them: {wrong}"
    left = [name for name in ("tmp", "lock") if (run.directory / name).exists()]
    assert not left, f"left: {left}"
    figures.sessions += 1
    figures.repeated += sum(max(0, count - 1) for count in run.begun().values())
    shutil.rmtree(directory)


_SESSION_SECONDS = 150.0
_STEP_SECONDS = 0.15
CLUSTER_GRAPHS = sorted(GRAPHS)
_REPLACING = ("loop", "replacing")
"""Graphs whose iterations write one file again: what is left of earlier ones is not compared."""


@dataclass(frozen=True)
class _End:
    """How a session ends where nothing disturbs it.

    Attributes
    ----------
    status : str
        Of the session.
    states : mapping of str to int
        Number of drops by state.
    digests : mapping of str to int
        CRC-32 of the content of each drop that stays, by id.
    results : set of str
        Those that are there after any loss. Other files stay, too, but are not made again if nothing needs them.
    """

    status: str
    states: Mapping[str, int]
    digests: Mapping[str, int]
    results: frozenset[str]


@cache
def expected_end(kind: str, home: Path) -> _End:
    """Return how a graph ends in this process, where nothing disturbs it."""
    place = home / f"alone-{kind}"
    graph, digests = GRAPHS[kind](home / f"marks-alone-{kind}", 0.0), dict[str, int]()
    sessions: list[EngineSession] = []
    done = local_run.run(
        graph,
        local_run.prepare_directory(place),
        RunOptions(runner="threads"),
        hooks=RunHooks(on_session=sessions.append),
    )
    kept = kept_drops(graph)
    for row, handle in sessions[0].contents().items():
        digests[oid(graph, row)] = zlib.crc32(content_bytes(handle))
    states = {name: count for name, count in done.states.items() if count}
    return _End(
        done.status.name, states, digests, frozenset(digest for digest in digests if kept[row_of(graph, digest) or 0])
    )


@dataclass
class Session:
    """A session on a cluster whose processes are disturbed.

    Attributes
    ----------
    kind : str
        Its graph, of `GRAPHS`.
    name : str
        Its name.
    home : Path
        Directory of the cluster.
    worker_kills : int
        Worker processes that were killed meanwhile: each may cost it an attempt.
    """

    kind: str
    name: str
    home: Path
    worker_kills: int = 0

    @property
    def graph(self) -> PhysicalGraph:
        """Return the graph; its applications note when they begin."""
        return GRAPHS[self.kind](self._marks, _STEP_SECONDS)

    @property
    def _marks(self) -> Path:
        return self.home / f"marks-{self.name}"

    @property
    def begun(self) -> Counter[str]:
        """How many times each application has begun."""
        return Counter(self._marks.read_text().split() if self._marks.exists() else ())

    def check_end(self, client: Client, history: History, figures: Figures, *, is_recorded: bool = True) -> None:
        """Wait for the end, and check it. The results count as acknowledged from now on.

        Parameters
        ----------
        is_recorded : bool
            Whether the nodes have recorded why applications may run again.
        """
        detail = finished(client, self.name, _SESSION_SECONDS)
        why = f"{detail.text} {detail.failures[:2]}, {detail.notes}"
        expected = expected_end(self.kind, self.home)
        assert detail.status == expected.status, f"{self.kind} is {detail.status} instead of {expected.status}: {why}"
        states = {name: count for name, count in detail.states.items() if count}
        assert states == expected.states, f"{self.kind} has {states} instead of {expected.states}: {why}"
        for drop, digest in self._results(client).items():
            history.add(
                Acknowledged(time=history.now, node="client", session=self.name, drop=drop, digest=f"{digest:08x}")
            )
        if is_recorded:
            self._check_repeated(history.of(self.name), figures)
        figures.sessions += 1

    def check_history(self, client: Client, history: History, figures: Figures) -> None:
        """Check that the acknowledged results are there, and all that was recorded."""
        for drop, digest in self._results(client).items():
            history.add(Found(time=history.now, node="client", session=self.name, drop=drop, digest=f"{digest:08x}"))
        wrong = history.violations(self.name)
        assert not wrong, f"{self.kind} {self.name}: {wrong[:5]}"
        figures.records += len(history.of(self.name))

    def delete(self, client: Client) -> None:
        """Delete it. Nothing of it may be left."""
        client.delete(self.name)
        assert until(lambda: self.name not in [session.session for session in client.sessions()], 60.0)
        found = f"{self.name}/deployment.json"
        assert until(lambda: not list(self.home.rglob(found))), f"left: {list(self.home.rglob(found))}"

    def _results(self, client: Client) -> dict[str, int]:
        """Return the CRC-32 of each result, as a user gets it; it must be the expected one."""
        assert until(lambda: not client.results(self.name).missing, 60.0), client.results(self.name).missing
        expected = expected_end(self.kind, self.home)
        listed = {result.oid for result in client.results(self.name).results}
        missing = expected.results - listed
        assert not missing, f"{self.kind} {self.name}: results are missing: {missing}"
        compared = expected.results if self.kind in _REPLACING else listed
        found = {drop: zlib.crc32(content(client, self.name, drop)) for drop in compared}
        wrong = {drop: digest for drop, digest in found.items() if expected.digests.get(drop) != digest}
        assert not wrong, f"{self.kind} {self.name}: contents {wrong} instead of {expected.digests}"
        return {drop: found[drop] for drop in expected.results}

    def _check_repeated(self, records: list[Line], figures: Figures) -> None:
        """Check that applications began only as often as they had a reason to."""
        tries = {node.name: node.tries for node in self.graph.templates}
        reasons: Counter[str] = Counter()
        views = {record.view: record for record in records if isinstance(record, Decided)}
        for view in views.values():
            reasons.update(drop.split("_")[1] for drop in {*view.reset, *view.moved})
        begun = self.begun
        figures.repeated += sum(max(0, count - tries[name]) for name, count in begun.items())
        if self.kind == "streams":
            return  # what reads a stream starts over with what writes it
        # A view that resets a drop, or moves it, gives it all of its tries anew.
        allowed = {name: tries[name] * (1 + reasons[name]) for name in begun}
        excess = {name: extra for name, count in begun.items() if (extra := count - allowed[name]) > 0}
        assert sum(excess.values()) <= self.worker_kills, (
            f"{self.kind} {self.name}: began too often: {excess}; {self.worker_kills} workers were killed; "
            f"reasons to run again: {dict(reasons)}"
        )
