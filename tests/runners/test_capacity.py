"""Which attempts run at a time, and in which order they begin, in every runner."""

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow import Graph
from dropflow.clock import SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.errors import BadGraphError
from dropflow.execution.chains import LONG_SECONDS
from dropflow.execution.interfaces import Runner
from dropflow.execution.tasks import AttemptResult, StreamOpened, Task
from dropflow.graph.notes import note_processors, processors_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import with_placement
from dropflow.graph.templates import Argument, Kind, ResourceNeeds, Template
from dropflow.host.gpus import GPU_VARIABLE, host_gpus, restrict_gpus
from dropflow.host.memory import MemoryLimit, Pressure
from dropflow.runners.backlog import NO_ROOM, Backlog, ExpectedSeconds, Room
from dropflow.runners.capacity import Capacity, judge_memory, unusual_needs
from dropflow.runners.executor import failure_of
from dropflow.runners.in_process import InlineRunner, ThreadRunner
from dropflow.runners.limited_runner import LimitedRunner
from dropflow.runners.make_runner import make_runner
from dropflow.runners.runner_choice import RunnerChoice
from dropflow.runners.worker_pool import ProcessRunner
from dropflow.states import DropState, SessionState
from dropflow.testing.attempts import ScriptedExecutor
from dropflow.testing.drawing import draw
from dropflow.times.octets import TIMES_FILE, read_times
from tests.e2e.cluster import until
from tests.runners.scripted_runners import FACTORY, make, session_of, spec_of
from translator.options import PartitionOptions
from translator.plan.registry import partition

_WORKERS = 3
_CPUS = (1, 2, 3, 1, 5, 1, 2, 2, 1, 3, 1, 1)
"""Processors of each application; one wants more than there are."""


def _runner(kind: str, graph: PhysicalGraph, directory: Path, workers: int = _WORKERS) -> Runner:
    spec = spec_of(graph, directory)
    if kind == "inline":
        return InlineRunner(ScriptedExecutor(spec))
    if kind == "threads":
        return ThreadRunner(ScriptedExecutor(spec), threads=workers, templates=spec.templates)
    return ProcessRunner(spec, workers=workers, factory=FACTORY)


class _Memory:
    """Memory of a host of this test."""

    def __init__(self, size: float, pressure: Pressure = Pressure.LOW) -> None:
        self.limit = MemoryLimit(size, "the test")
        self._pressure = pressure

    def pressure(self) -> Pressure:
        return self._pressure


def _set_memory(monkeypatch: pytest.MonkeyPatch, memory: _Memory) -> None:
    for module in ("worker_pool", "in_process"):
        monkeypatch.setattr(f"dropflow.runners.{module}.host_memory", lambda: memory)


def _tracked(count: int, chain: str = "A{0} -> b{0}", **fields: dict[str, object]) -> PhysicalGraph:
    """Return a graph of applications ``A0``, ``A1``... without edges between them, which record when they run."""
    apps = {f"A{number}": {"component": "track", **fields.get(f"A{number}", {})} for number in range(count)}
    return draw(", ".join(chain.format(number) for number in range(count)), **apps)


def _lines(directory: Path) -> Iterator[tuple[str, int]]:
    for line in (directory / "files" / "track").read_text().splitlines():
        what, _, drop = line.partition(" ")
        yield what, int(drop)


def _most_at_a_time(graph: PhysicalGraph, directory: Path) -> list[set[str]]:
    """Return the applications that ran together, at each begin of one."""
    running: set[str] = set()
    found = []
    for what, drop in _lines(directory):
        name = graph.templates[graph.template[drop]].name
        if what == "begin":
            running.add(name)
            found.append(set(running))
        else:
            running.remove(name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["inline", "threads", "processes"])
def test_running_attempts_declare_no_more_processors_than_there_are(kind: str, tmp_path: Path) -> None:
    """Attempts that run together need at most as many processors as there are; one that needs more runs alone."""
    graph = _tracked(len(_CPUS), **{f"A{number}": {"cpus": cpus} for number, cpus in enumerate(_CPUS)})
    cpus = {template.name: template.cpus for template in graph.templates}
    result = session_of(graph, _runner(kind, graph, tmp_path), tmp_path).run()

    together = _most_at_a_time(graph, tmp_path)
    assert result.status is SessionState.FINISHED
    assert len(together) == len(_CPUS)
    assert all(len(names) == 1 or sum(cpus[name] for name in names) <= _WORKERS for names in together)


@pytest.mark.slow
def test_attempts_with_gpus_have_them_to_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs that need not be there go round. What declares none sees none; in other graphs, all.

    A worker with GPUs ends with its attempt, and the next one has its number, so that records have room for numbers.
    """
    monkeypatch.setenv(GPU_VARIABLE, "3,5")
    host_gpus.cache_clear()
    each = "for gpu in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do %s {folder}/$gpu || exit 1; done; "
    command = f"{each % 'mkdir'} echo $CUDA_VISIBLE_DEVICES > {{text}}; {each % 'rmdir'}"
    with Graph("gpus") as graph:
        found = [
            (gpus, graph.command(command, outputs="text", folder=str(tmp_path), settings={"num_gpus": gpus}))
            for gpus in (1, 1, 0, 2, 1, 0)
        ]
    with pytest.raises(BadGraphError, match="asks for GPUs, and the runner 'threads' gives none"):
        graph.run(runner="threads", directory=tmp_path / "threads")
    run = graph.run(runner="processes", workers=3, directory=tmp_path / "run")
    given = [(gpus, str(run.value(text)).strip()) for gpus, text in found]
    assert all(names in {0: ("",), 1: ("3", "5"), 2: ("3,5",)}[gpus] for gpus, names in given)
    assert {*read_times(tmp_path / "run" / TIMES_FILE)["worker"].tolist()} <= {1, 2, 3}
    with Graph("no gpus") as plain:
        text = plain.command("echo $CUDA_VISIBLE_DEVICES > {text}", outputs="text")
    run = plain.run(runner="processes", workers=1, directory=tmp_path / "plain")
    assert str(run.value(text)).strip() == "3,5", "graphs that declare none see all"

    restrict_gpus("-1")
    with pytest.raises(BadGraphError, match="it needs 1 GPU, and this host has none"):
        graph.run(directory=tmp_path / "none")
    host_gpus.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("chain", ["A{0} -> b{0}", "a{0} -> A{0} -> b{0}"])
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_limit_of_processors_holds_below_those_of_the_runner(kind: str, chain: str, tmp_path: Path) -> None:
    """With a limit of two on three workers, attempts that run together need two at most, in order of priorities."""
    graph = _tracked(len(_CPUS), chain, **{f"A{number}": {"cpus": cpus} for number, cpus in enumerate(_CPUS)})
    cpus = {template.name: template.cpus for template in graph.templates}
    runner = LimitedRunner(_runner(kind, graph, tmp_path), spec_of(graph, tmp_path), 2)
    result = session_of(graph, runner, tmp_path).run()

    together = _most_at_a_time(graph, tmp_path)
    assert result.status is SessionState.FINISHED
    assert len(together) == len(_CPUS)
    assert all(len(names) == 1 or sum(cpus[name] for name in names) <= 2 for names in together)


def test_a_limited_runner_gives_back_and_aborts_what_waits(tmp_path: Path) -> None:
    """Of four attempts and a limit of one, the first has begun; an aborted one is answered, the others come back."""
    graph = _tracked(4)
    given: list[Task] = []
    inner = InlineRunner(ScriptedExecutor(spec_of(graph, tmp_path)))
    inner.submit = given.extend  # type: ignore[method-assign]
    runner = LimitedRunner(inner, spec_of(graph, tmp_path), 1)
    answers: list[StreamOpened | AttemptResult] = []
    runner.start(answers.extend)
    rows = [row for row in range(graph.drops) if graph.templates[graph.template[row]].kind is Kind.APP]

    runner.submit([Task(row, 1, int(graph.template[row]), "", ()) for row in rows])
    runner.abort(rows[1], 1)

    assert [task.drop for task in given] == rows[:1]
    assert [(answer.drop, answer.failure.kind) for answer in answers if answer.failure] == [(rows[1], "Aborted")]  # type: ignore[union-attr]
    runner.hold(is_held=True)
    assert [task.drop for task in runner.give_back()] == rows[2:]


@pytest.mark.parametrize(("parts", "most"), [(None, 5), ([1], 2), ([0, 1], 5), ([], 1)])
def test_the_plan_carries_the_limit(parts: list[int] | None, most: int, tmp_path: Path) -> None:
    """A session uses the shares of its parts of the degree of parallelism, and at least one processor."""
    sleeping = {"component": "dlg.apps.simple.SleepApp"}
    graph = partition(_tracked(2, A0=sleeping, A1=sleeping), PartitionOptions(parts=2, dop=5))
    workspace = LocalRepository(tmp_path, "s", SystemClock(), graph).workspace

    runner = make_runner(graph, workspace, RunnerChoice("threads"), 3, parts=parts)

    assert isinstance(runner, LimitedRunner)
    assert runner.cpus == most
    runner.close()


def test_nodes_keep_their_shares_when_drops_move() -> None:
    """Shares are those of nodes, in whatever order they are; a node that comes has none."""
    graph = replace(note_processors(_tracked(2), [1, 2]), places=("a", "b"))

    moved = with_placement(graph, np.arange(4) % 3, ["c", "b", "a"])

    assert processors_of(moved) == [0, 2, 1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_running_attempts_declare_no_more_memory_than_there_is(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts that run together declare at most the memory of the host; one that declares more runs alone."""
    _set_memory(monkeypatch, _Memory(1000.0))
    sizes = (400, 700, 400, 1500, 300, 0, 400, 600)
    fields = {f"A{number}": {"arguments": (Argument(name="memory", value=size),)} for number, size in enumerate(sizes)}
    graph = _tracked(len(sizes), **fields)
    memory = {f"A{number}": size for number, size in enumerate(sizes)}
    result = session_of(graph, _runner(kind, graph, tmp_path), tmp_path).run()

    together = _most_at_a_time(graph, tmp_path)
    assert result.status is SessionState.FINISHED
    assert len(together) == len(sizes)
    assert all(len(names) == 1 or sum(memory[name] for name in names) <= 1000 for names in together)


@pytest.mark.slow
def test_attempts_wait_while_memory_is_nearly_used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts then run one at a time, and all of them do."""
    _set_memory(monkeypatch, _Memory(1000.0, Pressure.ATTEMPTS))
    graph = _tracked(8, **{f"A{number}": {"cpus": 1 + number % 2} for number in range(8)})
    result = session_of(graph, _runner("processes", graph, tmp_path), tmp_path).run()

    assert result.status is SessionState.FINISHED
    assert [len(names) for names in _most_at_a_time(graph, tmp_path)] == [1] * 8


class _Gate:
    """Executes no attempt to its end until it is told to."""

    on_stream_opened = on_overdue = staticmethod(lambda _: None)

    def __init__(self) -> None:
        self.begun: set[int] = set()
        self.ends = threading.Semaphore(0)

    def execute(self, task: Task) -> AttemptResult:
        self.begun.add(task.drop)
        self.ends.acquire()
        return AttemptResult(task.drop, task.attempt)

    def abort(self, drop: int, attempt: int, grace: float = 5.0) -> None:
        """Let one attempt end."""
        self.ends.release()

    def close(self) -> None:
        """Nothing is held."""


def test_all_threads_work_again_after_an_attempt_waited_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain attempts behind one that waits for memory begin together with it; they need no end of others."""
    _set_memory(monkeypatch, _Memory(1000.0))
    large = Template(key="l", name="Large", kind=Kind.APP, arguments=(Argument(name="memory", value=600),))
    gate, count = _Gate(), 5
    templates = (large, Template(key="p", name="Plain", kind=Kind.APP))
    runner = ThreadRunner(gate, threads=count - 1, templates=templates)  # type: ignore[arg-type]
    runner.start(lambda _: None)
    runner.submit([Task(0, 1, 0, "large", ())])
    assert until(lambda: gate.begun == {0})
    runner.submit([Task(drop, 1, min(drop - 1, 1), f"a{drop}", ()) for drop in range(1, count)])
    gate.ends.release()
    together = until(lambda: len(gate.begun) == count, 20.0)
    gate.ends.release(count)
    runner.close()

    assert together


@pytest.mark.slow
@pytest.mark.parametrize("chain", ["A{0} -> b{0}", "a{0} -> A{0} -> b{0}"])
@pytest.mark.parametrize("kind", ["inline", "threads", "processes"])
def test_attempts_begin_in_the_order_of_their_priorities(kind: str, chain: str, tmp_path: Path) -> None:
    """Of the attempts that are ready, that of the drop with the greatest priority begins first.

    So it does if its input has no producer: the attempt of that is as urgent.
    """
    graph = _tracked(20, chain)
    priority = np.zeros(graph.drops, dtype=np.int32)
    apps = [drop for drop in range(graph.drops) if graph.templates[graph.template[drop]].kind is Kind.APP]
    priority[apps] = np.random.default_rng(5).permutation(len(apps)) - 10
    graph = replace(graph, priority=priority)
    session_of(graph, _runner(kind, graph, tmp_path, workers=1), tmp_path).run()

    begun = [drop for what, drop in _lines(tmp_path) if what == "begin"]
    assert begun == sorted(apps, key=lambda drop: -priority[drop])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_more_urgent_successor_begins_before_what_has_waited(kind: str, tmp_path: Path) -> None:
    """A worker that is free does not take another attempt while the session makes the successor of its last one ready.

    The urgent applications ``C0`` to ``C3`` depend on each other, and one runs at a time.
    """
    fields = {f"{name}{number}": {"component": "track_long"} for name in "CA" for number in range(6)}
    chain = ", ".join(f"C{number} -> f{number} -> C{number + 1}" for number in range(3))
    graph = draw(f"{chain}, C3 -> f3, " + ", ".join(f"A{number} -> b{number}" for number in range(6)), **fields)
    names = [graph.templates[row].name for row in graph.template]
    priority = np.array([10 if name[0] in "Cf" else 1 for name in names], dtype=np.int32)
    graph = replace(graph, priority=priority)
    session_of(graph, _runner(kind, graph, tmp_path, workers=1), tmp_path).run()

    begun = [names[drop] for what, drop in _lines(tmp_path) if what == "begin"]
    assert begun[:4] == ["C0", "C1", "C2", "C3"]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 12))), st.randoms(use_true_random=False))
def test_capacity_is_never_exceeded(needs: list[tuple[int, int]], random: object) -> None:
    """What fits is free, and what does not fit would exceed the processors or the memory."""
    capacity = Capacity(4, 10.0)
    running: list[ResourceNeeds] = []
    for cpus, memory in needs:
        if running and random.random() < 0.4:  # type: ignore[attr-defined]
            capacity.free(running.pop(random.randrange(len(running))))  # type: ignore[attr-defined]
        wanted = capacity.admitted(ResourceNeeds(cpus, float(memory)))
        together = [*running, wanted]
        fits = sum(one.cpus for one in together) <= 4 and (
            not wanted.memory or sum(one.memory for one in together) <= 10
        )
        assert capacity.fits(wanted) == fits
        assert running or fits, "an attempt would wait forever"
        if fits:
            capacity.take(wanted)
            running.append(wanted)


def test_all_memory_is_free_when_nothing_runs() -> None:
    """Sums of floats are not exact: an attempt that takes all memory must not wait forever for a rest of a byte."""
    capacity = Capacity(4, 8335659008.0)
    needs = [ResourceNeeds(1, memory) for memory in (1.7 * 2**30, 1.3e9, 1.1 * 2**30)]
    for each in needs:
        capacity.take(each)
    for at in (1, 0, 2):
        capacity.free(needs[at])

    assert capacity.fits(ResourceNeeds(1, 8335659008.0))


def test_notes_name_unusual_needs() -> None:
    """An application that asks for more than a host has, or declares no size, is named, with what it declares."""
    wide = Template(key="w", name="Wide", kind=Kind.APP, cpus=8)
    large = Template(key="l", name="Large", kind=Kind.APP, arguments=(Argument(name="memory", value="3 GB"),))

    vague = Template(key="v", name="Vague", kind=Kind.APP, arguments=(Argument(name="memory", value="plenty"),))

    notes = unusual_needs([wide, large, vague, Template(key="p", name="Plain", kind=Kind.APP)], 2, 1e9)

    assert [note.partition(",")[0] for note in notes] == [
        "Wide asks for 8 processors",
        "Large asks for 3.0 GB",
        "Vague: memory 'plenty' is not a size",
    ]


@pytest.mark.parametrize(
    ("value", "retry_memory", "is_repeated", "hint"),
    [
        ("200 MB", 0.0, False, "; it declares 200.0 MB memory, and --retry-memory 2x tries it again"),
        ("200 MB", 2.0, True, "; it declares 200.0 MB memory"),
        ("", 0.0, False, "; it declares no memory, and --retry-memory 2x"),
        ("1000000 GB", 0.0, False, "; it declares 1.0 PB memory"),
    ],
)
def test_too_little_memory_is_explained(
    value: str, retry_memory: float, hint: str, tmp_path: Path, *, is_repeated: bool
) -> None:
    """The hint has what the application declares, and the option to try it again with more if there is more."""
    template = Template(key="a", name="A", kind=Kind.APP, arguments=(Argument(name="memory", value=value),))
    spec = msgspec.structs.replace(spec_of(draw("A -> x"), tmp_path), templates=(template,), retry_memory=retry_memory)
    failure = judge_memory(failure_of(MemoryError()), Task(0, 1, 0, "A", ()), spec)

    assert failure.infrastructure is is_repeated
    assert hint in failure.hint
    assert ("--retry-memory" in failure.hint) is ("--retry-memory" in hint)


# How long attempts are expected to take, and how many a worker is given ahead.


TEMPLATES = tuple(
    Template(key=name, name=name, kind=kind)
    for name, kind in (("a", Kind.DATA), ("A", Kind.APP), ("b", Kind.DATA), ("B", Kind.APP))
)


def test_nothing_is_expected_at_first() -> None:
    """An attempt may take any time before one has ended."""
    assert [ExpectedSeconds(TEMPLATES).of(row) for row in range(4)] == [math.inf] * 4


def test_a_new_template_takes_as_long_as_others_of_its_kind() -> None:
    """Data without producers say nothing about applications, nor applications about data."""
    expected = ExpectedSeconds(TEMPLATES)
    expected.note(0, 0.001)

    assert [expected.of(row) for row in range(4)] == [0.001, math.inf, 0.001, math.inf]
    expected.note(1, 2.0)
    assert [expected.of(row) for row in range(4)] == [0.001, 2.0, 0.001, 2.0]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 10.0)), min_size=1))
def test_a_mean_is_between_the_times_of_its_template(times: list[tuple[int, float]]) -> None:
    """Each template has a mean of its own, nearer to its last times than to its first."""
    expected = ExpectedSeconds(TEMPLATES)
    for template, seconds in times:
        expected.note(template, seconds)

    for template in {template for template, _ in times}:
        own = [seconds for row, seconds in times if row == template]
        mean = own[0]
        for seconds in own[1:]:
            mean = 0.7 * mean + 0.3 * seconds
        assert math.isclose(expected.of(template), mean, abs_tol=1e-12)


def test_a_worker_is_given_few_attempts_ahead_that_write_much() -> None:
    """Attempts of no time that write 256 KB each: 16 fill a worker. What they write is held until others read it."""
    expected, backlog = ExpectedSeconds(TEMPLATES), Backlog()
    for written in (1 << 18, 1 << 18, 1 << 18):
        expected.note(1, 0.0, written)

    for number in range(16):
        assert backlog.room.seconds > 0.0
        backlog.add(number, expected.cost(1))

    assert backlog.room == NO_ROOM
    assert expected.of(1) == 0.0


@given(st.lists(st.floats(0.0, 0.1) | st.just(math.inf), max_size=30), st.randoms(use_true_random=False))
def test_nothing_waits_behind_a_long_attempt(times: list[float], random: Random) -> None:
    """A worker has room as long as its attempts are short together; one may always wait, but not behind a long one."""
    backlog = Backlog()
    there: dict[int, float] = {}
    for number, seconds in enumerate(times):
        if there and random.random() < 0.4:
            gone = random.choice(sorted(there))
            del there[gone]
            backlog.remove(gone)
        room = backlog.room
        if any(one >= LONG_SECONDS for one in there.values()):
            assert room == NO_ROOM
        elif (spare := 0.02 - sum(there.values())) > 1e-9:
            assert room.seconds == pytest.approx(spare)
            assert room.attempts == 512 - len(there)
        elif spare < -1e-9:
            assert room == (Room(0.0, 1) if len(there) == 1 else NO_ROOM)
        assert backlog.has_long == any(one >= LONG_SECONDS for one in there.values())
        there[number] = seconds
        backlog.add(number, seconds)


# Attempts that wait with a runner are taken back when the session is frozen, so that another node may run them.


_COUNT = 40
_WIDE = ", ".join(f"a{number} -> B{number} -> c{number}" for number in range(_COUNT))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "workers"), [("threads", 3), ("processes", 2)])
def test_what_has_not_begun_is_taken_back_and_what_runs_goes_on(kind: str, workers: int, tmp_path: Path) -> None:
    """Drops whose attempts were taken back have not begun; no answer of their attempts comes, and none is missed."""
    graph = draw(_WIDE, **{f"B{number}": {"component": "hang"} for number in range(_COUNT)})
    session = session_of(graph, make(kind, graph, tmp_path), tmp_path)
    thread = threading.Thread(target=session.advance)
    thread.start()
    assert until(lambda: len(session.runner.running) == workers)
    given = session.attempts()
    session.freeze()
    thread.join()
    session.handover.take_back()
    now = session.attempts()
    states = np.frombuffer(session.handover.states(), dtype=np.uint8)
    writing = np.flatnonzero(states == DropState.WRITING).tolist()
    session.handover.take_back()

    assert given.queued > 0
    assert {*session.runner.running} <= {*writing}
    assert len(writing) == now.running + now.queued
    assert (now.running + now.queued, now.ready) == (len(writing), _COUNT - len(writing))
    assert now.queued == 0 or kind == "processes", "a worker may have been given some ahead"
    assert session.attempts() == now

    session.is_frozen = False
    session.cancel()
    session.run()
    assert session.core.status is SessionState.CANCELLED


@pytest.mark.slow
def test_a_runner_without_waiting_attempts_gives_back_none(tmp_path: Path) -> None:
    """One that runs what it gets at once has none, and neither has one that was not started or is closed."""
    graph = draw("A -> b")
    runner = InlineRunner(ScriptedExecutor(spec_of(graph, tmp_path)))
    pooled = make("processes", graph, tmp_path)
    before = (*runner.give_back(), *pooled.give_back())
    session_of(graph, pooled, tmp_path).run()

    assert (before, tuple(pooled.give_back())) == ((), ())
