"""Tests of the promises of every runner, for the author of one: see `RunnerConformance` and `outcome_of`.

The classes and functions use pytest's fixture ``tmp_path``, and do not import pytest.
"""

import contextlib
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dropflow.clock import SystemClock
from dropflow.data.read import read
from dropflow.errors import AppError, UsageError
from dropflow.execution.content_location import Handle
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.interfaces import Runner
from dropflow.execution.session import Execution, Resources, Session, Watch
from dropflow.execution.statistics import SessionResult
from dropflow.execution.tasks import AttemptResult, StreamOpened, Task
from dropflow.graph.physical import PhysicalGraph, follower_column
from dropflow.graph.templates import Template
from dropflow.graph.text_ids import oid
from dropflow.states import SessionState
from dropflow.stopping import stopped_after
from dropflow.testing.drawing import draw

FACTORY = "dropflow.testing.attempts:build"
_PATIENCE_SECONDS = 60.0
"""Seconds after which a condition counts as never true: long, for busy machines."""
_PAUSE_SECONDS = 0.01
"""Seconds between two looks at a condition."""
_CHAINS = 40
"""Chains of five drops in the wide graph."""
_WIDE = ", ".join(f"a{number} -> B{number} -> c{number} -> D{number} -> e{number}" for number in range(_CHAINS))


# A strict fake of a repository: it records calls, and refuses unexpected ones.


class FakeRepository:
    """Keeps handles in dictionaries, and records what was discarded.

    Parameters
    ----------
    fail_on, fail_to_keep : dict of int to Exception
        Drops whose commit, or whose `keep_result`, raises the given error.
    vanished : Exception or None
        Raised at the end, as if the session directory were gone.
    """

    def __init__(
        self,
        fail_on: dict[int, Exception] | None = None,
        *,
        fail_to_keep: dict[int, Exception] | None = None,
        vanished: Exception | None = None,
    ) -> None:
        self.committed: dict[int, tuple[int, Handle]] = {}
        self.assembled: dict[int, tuple[Handle, ...]] = {}
        self.discarded: list[Handle] = []
        self.discarded_attempts: list[tuple[int, int]] = []
        self.released: list[int] = []
        self.results: dict[str, Handle] = {}
        self.revoked: list[Handle] = []
        self.adopted: dict[int, Handle] = {}
        self._fail_on = fail_on or {}
        self._fail_to_keep = fail_to_keep or {}
        self._vanished = vanished

    def adopt(self, contents: Mapping[int, Handle]) -> None:
        """Record."""
        self.adopted.update(contents)

    def commit(self, drop: int, attempt: int, template: Template, part: Handle) -> Handle:
        """Record; a second commit of the same drop is refused."""
        del template
        if drop in self._fail_on:
            raise self._fail_on[drop]
        if drop in self.committed:
            raise AssertionError(f"drop {drop} was committed twice")
        self.committed[drop] = (attempt, part)
        return part

    def assemble(self, drop: int, template: Template, parts: Sequence[Handle]) -> Handle:
        """Record, and join the bodies."""
        del template
        if drop in self._fail_on:
            raise self._fail_on[drop]
        self.assembled[drop] = tuple(parts)
        return Handle(body=b"".join(part.body for part in parts))

    def discard(self, part: Handle) -> None:
        """Record."""
        self.discarded.append(part)

    def discard_attempt(self, drop: int, attempt: int) -> None:
        """Record."""
        self.discarded_attempts.append((drop, attempt))

    def release(self, drop: int, template: Template, handle: Handle) -> bool:
        """Record the release; the content is removed, unless its template has the flag to persist."""
        del handle
        self.released.append(drop)
        return not template.persist

    def is_replaced(self, drop: int, handle: Handle) -> bool:
        """Return False: each drop has a place of its own."""
        del drop, handle
        return False

    def keep_result(self, drop: int, oid: str, template: Template, handle: Handle) -> Handle:
        """Record, or raise the given error."""
        del template
        if drop in self._fail_to_keep:
            raise self._fail_to_keep[drop]
        self.results[oid] = handle
        return handle

    def revoke(self, drop: int, handle: Handle) -> None:
        """Record, and forget the commit."""
        del self.committed[drop]
        self.revoked.append(handle)

    def confirm(self) -> None:
        """Raise the given error, if there is one."""
        if self._vanished is not None:
            raise self._vanished


class RunOutcome(msgspec.Struct, frozen=True):
    """The result of a graph, to compare runners.

    Attributes
    ----------
    status : SessionState
        How the session ended.
    states : dict of str to int
        Number of drops by state.
    failures : tuple
        For each root cause: drop, code, text, how many drops are in ERROR because of it.
    contents : dict of str to int
        Checksum of the content of each data drop that has one at the end, by its id; none of directories and devices.
    infrastructure_faults : int
        How many attempts were lost with their worker, and repeated. Not a part of what must be equal.
    """

    status: SessionState
    states: dict[str, int]
    failures: tuple[tuple[str, str, str, int], ...]
    contents: dict[str, int]
    infrastructure_faults: int = 0

    def without_faults(self) -> "RunOutcome":
        """Return what must be the same with all runners."""
        return msgspec.structs.replace(self, infrastructure_faults=0)


def outcome_of(session: Session) -> RunOutcome:
    """Return what a session that is over gave, to compare runners.

    Examples
    --------
    >>> sessions = []
    >>> dropflow.run(graph, runner="mine:make", on_session=sessions.append)  # doctest: +SKIP
    >>> mine = outcome_of(sessions[0])  # doctest: +SKIP
    """
    graph = session.graph
    contents = {}
    for drop, content in session.contents().items():
        if content.kind in ("bytes", "file"):
            with contextlib.suppress(UsageError):  # a device, which may have no end
                contents[oid(graph, drop)] = zlib.crc32(read(content))
    result = session.result()
    failures = tuple(sorted((failure.drop, failure.code, failure.text, failure.count) for failure in result.failures))
    return RunOutcome(result.status, result.states, failures, contents, result.infrastructure_faults)


class RunnerConformance:
    """Tests of one runner. Derive a class whose name begins with ``Test``, and define `make`.

    Attributes
    ----------
    survives_loss : bool
        Whether attempts run in processes that may end without ending the session. If not, that is not tested.

    Examples
    --------
    >>> class TestMyRunner(RunnerConformance):
    ...     def make(self, spec, factory):
    ...         return MyRunner(spec, factory)
    """

    survives_loss = True

    def make(self, spec: ExecutorSpec, factory: str) -> Runner:
        """Return a new runner with two workers or more.

        Parameters
        ----------
        spec : ExecutorSpec
            Specification of the executors. ``files``, ``logs`` and ``tmp`` exist in its directory.
        factory : str
            ``package.module:function`` that makes an `Executor` from the spec.
        """
        raise NotImplementedError

    def test_same_results_and_same_failures(self, tmp_path: Path) -> None:
        """All attempts run, those that fail as often as they have tries; chains give what single attempts give.

        A process that ends in an attempt costs this attempt, which is repeated, and nothing else. No process is
        left at the end.
        """
        scripts: dict[str, Any] = {"B7": {"component": "fail", "tries": 2}}
        if self.survives_loss:
            scripts["D9"] = {"component": "die-once"}
        graph = draw(_WIDE, name="drawing", **scripts)
        result = self._session(graph, tmp_path).run()

        _same(result.states, {"COMPLETED": 5 * _CHAINS - 4, "ERROR": 4, "SKIPPED": 0})
        _same([(failure.drop, failure.code) for failure in result.failures], [("drawing_B7_0", AppError.code)])
        # Results that were lost with a process are computed again, and that does not count as a try.
        _is_true(result.failures[0].attempts >= 2, "a drop had fewer attempts than tries")
        _same(result.infrastructure_faults, int(self.survives_loss))
        _same([*self._left(graph, tmp_path)], [])

    def test_a_cancel_ends_within_its_bound(self, tmp_path: Path) -> None:
        """Attempts that run are aborted, and those that wait are answered, whether the former react or not."""
        script: Any = {"component": "deaf" if self.survives_loss else "hang"}
        graph = draw(_WIDE, name="drawing", **{f"B{number}": script for number in range(_CHAINS)})
        session = self._session(graph, tmp_path)
        result, seconds = _cancelled(session, grace=0.2)

        _same(result.status, SessionState.CANCELLED)
        _same(result.states.get("COMPLETED", 0) + result.states.get("CANCELLED", 0), 5 * _CHAINS)
        # Twice the bound, for busy machines; without an abort it would never end.
        _is_true(seconds < 2 * stopped_after(0.2) + 5.0, f"the cancel took {seconds:.1f} s")

    def test_attempts_that_wait_can_be_held_aborted_and_given_back(self, tmp_path: Path) -> None:
        """Nothing begins while the runner is held. Each attempt is answered once, or given back."""
        graph = draw(", ".join(f"A{number}" for number in range(30)))
        answered: list[AttemptResult] = []

        def note(results: Sequence[StreamOpened | AttemptResult]) -> None:
            answered.extend(result for result in results if isinstance(result, AttemptResult))

        runner = self._runner(graph, tmp_path)
        try:
            runner.start(note)
            runner.hold(is_held=True)
            tasks = [Task(drop, 1, 0, f"d{drop}", ()) for drop in range(30)]
            runner.submit(tasks[:20])
            runner.abort(3, 1)
            given = sorted(task.drop for task in runner.give_back())
            runner.submit(tasks[20:])
            threading.Event().wait(0.1)  # in which nothing may begin
            began = [answer.drop for answer in answered if answer.failure is None]
            runner.hold(is_held=False)
            runner.submit(())
            _wait(lambda: len(answered) + len(given) == 30)
            rest = runner.give_back()
        finally:
            runner.close()
        runner.close()  # twice is harmless

        _same(began, [])
        _same(sorted([*given, *(answer.drop for answer in answered)]), list(range(30)))
        _is_true({*given} >= {*range(20)} - {3}, f"given back were {given}")
        _same([*rest], [])

    def test_an_executor_that_cannot_be_made_fails_the_session(self, tmp_path: Path) -> None:
        """The session ends with the reason."""
        if not self.survives_loss:
            return  # it is made by the process of the session, before the runner
        graph = draw("A -> b, C -> d")
        result = self._session(graph, tmp_path, factory="dropflow.testing.attempts:refuse").run()

        _same(result.status, SessionState.FAILED)
        _is_true("no executor for" in result.failures[0].text, result.failures[0].text)

    def _runner(self, graph: PhysicalGraph, directory: Path, factory: str = FACTORY) -> Runner:
        for name in ("files", "logs", "tmp"):
            (directory / name).mkdir(exist_ok=True)
        spec = ExecutorSpec(session="s", directory=str(directory), templates=graph.templates, links=graph.links)
        return self.make(spec, factory)

    def _session(self, graph: PhysicalGraph, directory: Path, factory: str = FACTORY) -> Session:
        """Return a session with real time and a fake repository, which gives up a drop at its second fault."""
        chains = follower_column(graph, [1] * len(graph.templates))
        return Session(
            Execution(graph=graph, session="s", directory=str(directory), chains=chains, infrastructure_retries=1),
            Resources(repository=FakeRepository(), runner=self._runner(graph, directory, factory), clock=SystemClock()),
            watch=Watch(check_invariants=True),
        )

    def _left(self, graph: PhysicalGraph, directory: Path) -> Iterator[str]:
        """Yield the processes of workers that work in the directory of a session that is over."""
        del graph
        import psutil  # noqa: PLC0415 - only here

        for process in psutil.process_iter():
            try:
                folder = process.cwd()
            except (OSError, psutil.Error):
                continue
            if folder.startswith(str(directory)):
                yield f"{process.pid} {process.name()}"


def _cancelled(session: Session, grace: float) -> tuple[SessionResult, float]:
    """Run a session in another thread, and cancel it when an attempt runs; return the result, and the time it took."""
    clock = SystemClock()
    results: list[SessionResult] = []
    owner = threading.Thread(target=lambda: results.append(session.run()), daemon=True)
    owner.start()
    _wait(lambda: bool(session.runner.running))
    asked = clock.monotonic()
    session.cancel("enough", grace)
    owner.join(_PATIENCE_SECONDS)
    _is_true(bool(results), "the session did not end")
    return results[0], clock.monotonic() - asked


def _wait(condition: Callable[[], bool]) -> None:
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic() + _PATIENCE_SECONDS
    while not condition():
        _is_true(clock.monotonic() < deadline, "a condition did not become true")
        pause.wait(_PAUSE_SECONDS)


def _same(actual: object, expected: object) -> None:
    if actual != expected:
        raise AssertionError(f"found {actual!r}, expected {expected!r}")


def _is_true(condition: bool, text: str) -> None:  # noqa: FBT001 - as assert
    if not condition:
        raise AssertionError(text)
