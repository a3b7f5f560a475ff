"""A run of a graph that is killed and continues, and how it ends if it is not killed."""

import json
import random
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from dropflow.errors import NotFoundError
from dropflow.graph.codec import save
from dropflow.sessions.retry import Again
from dropflow.sessions.stopped import StoppedRun
from dropflow.states import DropState
from tests.processes import gone
from tests.recovery_graphs import GRAPHS

_SECONDS = 0.04
"""How long each application takes at least."""
_LIMIT = 90.0


@dataclass(frozen=True)
class End:
    """How a run ended, apart from its times and places."""

    status: str
    states: dict[str, int]
    causes: tuple[str, ...]
    files: dict[str, bytes]
    seconds: float


class Run:
    """A graph of `GRAPHS` that is run in a directory, is killed there, and continues."""

    def __init__(self, kind: str, home: Path) -> None:
        self.directory, self.marks = home / "run", home / "marks"
        self.graph_file = home / f"{kind}.dfg"
        home.mkdir(parents=True, exist_ok=True)
        self.graph = GRAPHS[kind](self.marks, _SECONDS)
        save(self.graph, self.graph_file)

    def start(self, command: str) -> "subprocess.Popen[bytes]":
        """Start ``run`` or ``resume``."""
        what = [self.graph_file, "--keep", self.directory] if command == "run" else [self.directory]
        line = [sys.executable, "-m", "dropflow", command, *what, "--workers", "2", "--output", "json"]
        return subprocess.Popen([*map(str, line)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self, command: str) -> End:
        """Let ``run`` or ``resume`` go to its end."""
        process = self.start(command)
        out, errors = process.communicate(timeout=_LIMIT)
        assert b"Traceback (most recent call last)" not in errors, errors.decode()
        answer: dict[str, Any] = json.loads(out)
        assert "error" not in answer, answer["error"]
        assert process.returncode == (0 if answer["ok"] else 1)
        causes = tuple(sorted(each["drop"] for each in answer["failures"]))
        return End(answer["status"], answer["states"], causes, self.results(), answer["seconds"])

    def kill(self, command: str, seconds: float, *, with_workers: bool) -> bool:
        """Start ``run`` or ``resume``, and kill its processes after so many seconds; return False if it has ended.

        Without the workers only the first process is killed: the others end by themselves, while the run continues.
        """
        process = self.start(command)
        try:
            _, errors = process.communicate(timeout=seconds)
            assert b"Traceback (most recent call last)" not in errors, errors.decode()
        except subprocess.TimeoutExpired:
            top = psutil.Process(process.pid)  # not waited for: its number is its own
            family = stopped_family(top) if with_workers else [top]
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            process.communicate()
            assert gone(family)
            return True
        return False

    def begun(self) -> Counter[str]:
        """Return how many times each application has begun."""
        return Counter(self.marks.read_text().split() if self.marks.exists() else ())

    def results(self) -> dict[str, bytes]:
        """Return the files of results, by path."""
        found = (path for name in ("files", "results") for path in (self.directory / name).rglob("*"))
        return {str(path.relative_to(self.directory)): path.read_bytes() for path in found if path.is_file()}

    def lose_content(self, chance: random.Random) -> None:
        """Remove or change one of the files that the session has committed."""
        paths = sorted(self.results())
        if paths:
            path = self.directory / chance.choice(paths)
            path.unlink() if chance.random() < 0.5 else path.write_bytes(path.read_bytes()[:-1] + b"?")

    def to_run(self) -> set[str] | None:
        """Return the applications that must run when the session continues; None for all."""
        try:
            stopped = StoppedRun.read(self.directory)
        except NotFoundError:
            return None
        if stopped.is_over:
            return set()
        continuation = stopped.plan(Again(stopped.graph, reason="test")).continuation
        if continuation is None:
            return None
        states = continuation.known.states
        return {node.name for at, node in enumerate(self.graph.templates) if states[at] == DropState.INITIALIZED}


@cache
def undisturbed(kind: str, home: Path) -> End:
    """Return the end of a run that is not killed."""
    return Run(kind, home / f"undisturbed-{kind}").finish("run")


def check_repeated(run: Run, before: Counter[str], wanted: set[str] | None) -> None:
    """Check that since `before` only applications have begun that had to, and none more often than it may."""
    begun = run.begun() - before
    if wanted is not None:
        assert set(begun) <= wanted, "what was committed does not run again"
    if not any(link.streaming for link in run.graph.links):  # consumers of streams may start over
        tries = {node.name: node.tries for node in run.graph.templates}
        assert {name: count for name, count in begun.items() if count > tries[name]} == {}


def stopped_family(top: psutil.Process) -> list[psutil.Process]:
    """Stop a process and all below it; return them. Stopped processes start no others."""
    family: list[psutil.Process] = []
    while found := [each for each in (top, *top.children(recursive=True)) if each not in family]:
        for each in found:
            with suppress(psutil.NoSuchProcess):
                each.suspend()
        family += found
    return family
