"""Runners of scripted attempts, their sessions, and their results one by one."""

import threading
from collections.abc import Sequence
from pathlib import Path

from dropflow.clock import SystemClock
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.interfaces import Runner
from dropflow.execution.session import Session
from dropflow.execution.tasks import AttemptResult, StreamOpened
from dropflow.graph.physical import PhysicalGraph
from dropflow.runners.in_process import InlineRunner, MixedRunner, ThreadRunner
from dropflow.runners.worker_pool import ProcessRunner
from dropflow.testing.attempts import ScriptedExecutor
from dropflow.testing.conformance import FakeRepository
from tests.execution.sessions import build_session

FACTORY = "dropflow.testing.attempts:build"


def spec_of(graph: PhysicalGraph, directory: Path) -> ExecutorSpec:
    """Return what executors are built from, and make the directories that workers need."""
    for name in ("files", "logs"):
        (directory / name).mkdir(exist_ok=True)
    return ExecutorSpec(session="s", directory=str(directory), templates=graph.templates, links=graph.links)


def session_of(graph: PhysicalGraph, runner: Runner, directory: Path) -> Session:
    """Return a session with real time and a fake repository, which gives up a drop at its second fault."""
    return build_session(
        graph,
        FakeRepository(),
        runner,
        directory=str(directory),
        clock=SystemClock(),
        infrastructure_retries=1,
    )


def make(kind: str, graph: PhysicalGraph, directory: Path) -> Runner:
    """Return a runner of this kind."""
    spec = spec_of(graph, directory)
    if kind == "inline":
        return InlineRunner(ScriptedExecutor(spec))
    if kind == "threads":
        return ThreadRunner(ScriptedExecutor(spec), threads=3)
    computing = ProcessRunner(spec, workers=2, factory=FACTORY)
    if kind == "processes":
        return computing
    waits = [template.component == "hang" for template in graph.templates]
    return MixedRunner(waiting=ThreadRunner(ScriptedExecutor(spec), threads=2), computing=computing, waits=waits)


class Answers:
    """Collects what a runner delivers, and waits for results."""

    def __init__(self) -> None:
        self.results: list[AttemptResult] = []
        self._changed = threading.Condition()

    def deliver(self, said: Sequence[StreamOpened | AttemptResult]) -> None:
        """Add what was delivered."""
        with self._changed:
            self.results += [each for each in said if isinstance(each, AttemptResult)]
            self._changed.notify_all()

    def wait(self, *drops: int) -> list[AttemptResult]:
        """Return the results of these drops, in this order, once there are all."""
        with self._changed:
            assert self._changed.wait_for(lambda: set(drops) <= {each.drop for each in self.results}, timeout=60)
            return [next(each for each in self.results if each.drop == drop) for drop in drops]
