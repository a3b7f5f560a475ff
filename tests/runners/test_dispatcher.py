"""Which worker of a pool gets which attempt: with workers that are no processes, and a time that the test sets."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec
import pytest

from dropflow.clock import SystemClock
from dropflow.execution.chains import is_not_begun, members
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.priority_queue import ANSWER_SECONDS
from dropflow.execution.tasks import AttemptResult, Output, Task
from dropflow.graph.templates import Argument, Kind, ResourceNeeds, Template
from dropflow.host.gpus import GPU_VARIABLE, host_gpus
from dropflow.host.memory import HostMemory, MemoryLimit, Pressure
from dropflow.runners.backlog import NO_ROOM, Backlog, PoolClock, Room
from dropflow.runners.dispatcher import Dispatcher, RunnerQueue
from dropflow.runners.worker_messages import AbortTask, CloseExecutor, SentContents, frame
from dropflow.runners.worker_process import SLOW_SECONDS, Assigned, WorkerProcess, needs_own_worker

_SHORT, _WIDE, _GPU, _GPUS = range(4)
_TEMPLATES = (
    Template(key="short", name="short", kind=Kind.APP),
    Template(key="wide", name="wide", kind=Kind.APP, cpus=2),
    Template(key="gpu", name="gpu", kind=Kind.APP, arguments=(Argument(name="num_gpus", value=1),)),
    Template(key="gpus", name="gpus", kind=Kind.APP, arguments=(Argument(name="num_gpus", value=2),)),
)
_SPEC = ExecutorSpec(session="s", directory="", templates=_TEMPLATES, links=())
_LONG = 1.0
"""Seconds of a long attempt."""


class _Worker:
    """What a dispatcher reads and calls of a worker. It runs the first of its attempts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.gpus: tuple[str, ...] = ()
        self.assigned: dict[int, Assigned] = {}
        self.executors: set[int] = set()
        self.outgoing, self.contents = bytearray(), SentContents()
        self.is_fresh, self.is_retiring = False, False
        self.calls: list[str] = []
        """Which of `recall`, `end_chain` and `retire` were called."""
        self._backlog, self._needs, self._next, self._since = Backlog(), ResourceNeeds(), 0, 0.0
        self._aborted: set[int] = set()

    @property
    def drops(self) -> list[int]:
        """The drops of its attempts."""
        return [task.drop for _, task in self.assigned.values()]

    @property
    def is_idle(self) -> bool:
        return not self.assigned and not self.is_retiring

    @property
    def taken(self) -> ResourceNeeds:
        return self._needs if self.assigned else ResourceNeeds(0 if self.is_idle else 1)

    def room(self, now: float) -> Room:
        is_alone = any(not self._needs.are_plain or needs_own_worker(task) for _, task in self.assigned.values())
        return NO_ROOM if is_alone or self.is_retiring or self.is_slow(now) else self._backlog.room

    def is_long(self, now: float) -> bool:
        return self._backlog.has_long or self.is_slow(now)

    def is_slow(self, now: float) -> bool:
        return bool(self.assigned) and now - self._since >= SLOW_SECONDS

    def assign(
        self, runner: int, tasks: Sequence[Task], now: float, *, cost: Callable[[int], float], needs: ResourceNeeds
    ) -> None:
        self._needs, self.is_fresh = needs, False
        self._since = self._since if self.assigned else now
        for one in (member for task in tasks for member in members(task)):
            self.assigned[self._next] = (runner, one)
            self._backlog.add(self._next, cost(one.template))
            self._next += 1

    def unassign(self, number: int) -> Assigned:
        self._backlog.remove(number)
        return self.assigned.pop(number)

    def take_results(self, results: Sequence[AttemptResult], now: float) -> Iterator[tuple[Assigned, AttemptResult]]:
        self._since = now
        for result, number in zip(results, list(self.assigned), strict=False):
            yield self.unassign(number), result

    def current(self) -> int:
        return next(iter(self.assigned), -1)

    def last_follower(self) -> Assigned | None:
        found = None
        for one in list(self.assigned.values())[1:]:
            if not one[1].follows:
                break
            found = one
        return found

    def mark_aborted(self, numbers: Sequence[int], now: float, *, seconds: float) -> None:
        self._aborted.update(numbers)

    def is_aborted(self, number: int) -> bool:
        return number in self._aborted

    def recall(self) -> None:
        self.calls.append("recall")

    def end_chain(self) -> None:
        self.calls.append("end_chain")

    def retire(self) -> None:
        self.calls.append("retire")
        self.is_retiring = True


class _Memory:
    """Memory of a host of this test."""

    def __init__(self) -> None:
        self.limit, self.now = MemoryLimit(1000.0, "the test"), Pressure.LOW

    def pressure(self) -> Pressure:
        return self.now


class _Runner(RunnerQueue):
    """A runner that keeps its results. Its attempts take `seconds`; None if that is not known."""

    def __init__(self, number: int = 1, *tasks: Task, seconds: float | None = None) -> None:
        self.results: list[AttemptResult] = []
        super().__init__(number, _SPEC, lambda found: self.results.extend(cast(Sequence[AttemptResult], found)))
        if seconds is not None:
            self.expected.note(_SHORT, seconds)
        self.add(tasks)

    @property
    def drops(self) -> list[int]:
        """The drops of the attempts that wait, first those that run apart."""
        return [task.drop for task in (*self.suspects, *self.pending)]

    @property
    def answers(self) -> list[tuple[int, str]]:
        """The drops that were answered, and how."""
        return [
            (result.drop, "done" if result.failure is None else "not begun" if is_not_begun(result) else "failed")
            for result in self.results
        ]


class _Pool:
    """Workers, and the dispatcher of their attempts."""

    def __init__(self, workers: int, *runners: RunnerQueue) -> None:
        self.workers = [_Worker(number) for number in range(workers)]
        self.clock, self.memory = PoolClock(SystemClock()), _Memory()
        self.dispatcher = Dispatcher(
            cast(Sequence[WorkerProcess], self.workers),
            self.clock,
            "module:function",
            memory=cast(HostMemory, self.memory),
        )
        for runner in runners:
            self.dispatcher.enter(runner)

    def assign(self) -> list[list[int]]:
        """Give attempts to workers, and return the drops of each worker."""
        self.dispatcher.assign(self.clock.now)
        return [worker.drops for worker in self.workers]

    def end(self, number: int, seconds: float = _LONG) -> None:
        """End the first attempt of a worker."""
        worker = self.workers[number]
        _, task = next(iter(worker.assigned.values()))
        result = AttemptResult(task.drop, task.attempt, seconds=seconds)
        self.dispatcher.take_results(cast(WorkerProcess, worker), [result])

    def requeue(self, number: int, numbers: Sequence[int]) -> None:
        """Put attempts of a worker back."""
        self.dispatcher.requeue(cast(WorkerProcess, self.workers[number]), numbers)


def _task(drop: int, template: int = _SHORT, priority: int = 0, **fields: Any) -> Task:
    return Task(drop, 1, template, f"d{drop}", (), priority=priority, **fields)


def _tasks(*drops: int) -> list[Task]:
    return [_task(drop) for drop in drops]


def _chain(first: int, *then: int, priority: int = 0) -> Task:
    following = tuple(Task(drop, 1, _SHORT, f"d{drop}", (), priority=priority, follows=True) for drop in then)
    return Task(first, 1, _SHORT, f"d{first}", (), priority=priority, then=following)


_ALONE = {
    "reads a stream": _task(5, is_ahead=True),
    "writes a stream": Task(5, 1, _SHORT, "d5", (), outputs=(Output(50, "d50", 0, 0, streams=True),)),
    "declares processors": _task(5, _WIDE),
    "declares memory": Task(5, 1, _SHORT, "d5", (), memory=600.0),
}


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """Two GPUs of this host."""
    with monkeypatch.context() as patch:
        patch.setenv(GPU_VARIABLE, "3,5")
        host_gpus.cache_clear()
        yield host_gpus()
    host_gpus.cache_clear()


# The queue of one runner.


def test_the_most_urgent_attempt_is_first() -> None:
    """Attempts wait in the order of their priorities, and among equals in the order in which they were added."""
    runner = _Runner(1, _task(1), _task(2, priority=2))
    runner.add([_task(3, priority=2), _task(4, priority=-1), _task(5)])

    assert runner.drops == [2, 3, 1, 5, 4]


def test_an_attempt_that_is_put_back_is_first() -> None:
    """An attempt that has not begun is put before all others, and a suspect before all suspects."""
    runner = _Runner(1, _task(1, priority=9), _task(2, is_suspect=True))
    runner.put_first(_task(3))
    runner.put_first(_task(4, is_suspect=True))

    assert runner.drops == [4, 2, 3, 1]


@pytest.mark.parametrize(
    ("tasks", "most", "seconds", "taken"),
    [
        *(([*_tasks(1, 2), task, *_tasks(6)], 9, 9.0, [1, 2]) for task in _ALONE.values()),
        (_tasks(1, 2, 3, 4), 3, 9.0, [1, 2, 3]),
        (_tasks(1, 2, 3, 4), 9, 0.25, [1, 2]),
        (_tasks(1, 2), 9, 0.0, [1]),
        ([_chain(1, 2, 3), *_tasks(4)], 2, 9.0, [1]),
        ([_chain(1, 2, 3), *_tasks(4)], 9, 0.2, [1]),
        ([_task(1), _chain(2, 3, 4), *_tasks(5)], 2, 9.0, [1, 2]),
        ([_task(1), _chain(2, 3, 4), *_tasks(5)], 9, 0.3, [1]),
    ],
)
def test_how_many_attempts_are_taken(tasks: list[Task], most: int, seconds: float, taken: list[int]) -> None:
    """Attempts are taken, one at least, up to one that runs alone, `most`, or `seconds`. No chain is divided."""
    runner = _Runner(1, *tasks, seconds=0.1)
    found = runner.take(most, seconds)

    assert [task.drop for task in found] == taken
    assert found == tasks[: len(taken)]
    assert list(runner.pending) == tasks[len(taken) :]


@pytest.mark.parametrize(("seconds", "priority", "waits"), [(_LONG, 1, True), (_LONG, 0, False), (0.001, 1, False)])
def test_a_runner_awaits_successors(seconds: float, priority: int, waits: bool) -> None:  # noqa: FBT001
    """After a long attempt, no other begins until its session has taken the result, if priorities are used."""
    runner = _Runner(1, _task(1, priority=priority), _task(2, priority=priority))
    pool = _Pool(1, runner)
    pool.assign()
    pool.end(0, seconds)
    assert pool.assign() == ([[]] if waits else [[2]])
    assert pool.dispatcher.next_due == (ANSWER_SECONDS if waits else math.inf)

    pool.clock.now = ANSWER_SECONDS
    assert pool.assign() == [[2]]


def test_new_attempts_end_the_wait_for_successors() -> None:
    """When the session adds attempts after a result, the most urgent one begins at once."""
    runner = _Runner(1, _task(1, priority=1), _task(2, priority=1))
    pool = _Pool(1, runner)
    pool.assign()
    pool.end(0)
    runner.add([_task(3, priority=2)])

    assert pool.assign() == [[3]]


def test_attempts_are_held() -> None:
    """Held attempts, and those that come meanwhile, wait until they are not held, and then are in order."""
    runner = _Runner(1, _task(1), _task(2, is_suspect=True))
    runner.hold(is_held=True)
    runner.add([_task(3, priority=1)])
    runner.put_first(_task(4))
    assert not runner.is_waiting

    runner.hold(is_held=False)
    assert runner.drops == [2, 3, 4, 1]


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize(
    ("drop", "answers", "left"),
    [
        (1, [(1, "failed")], [[2, 3, 4], [5]]),
        (2, [(2, "failed"), (3, "not begun"), (4, "not begun")], [[1], [5]]),
        (3, [(3, "failed"), (4, "not begun")], [[1], [2], [5]]),
        (5, [(5, "failed")], [[1], [2, 3, 4]]),
        (6, [], [[1], [2, 3, 4], [5]]),
    ],
)
def test_an_attempt_that_waits_is_aborted(
    drop: int, answers: list[tuple[int, str]], left: list[list[int]], *, is_held: bool
) -> None:
    """It is answered and removed. The attempts that follow it in a chain are not begun, those before it stay."""
    runner = _Runner(1, _task(1), _chain(2, 3, 4), _task(5))
    runner.hold(is_held=is_held)
    runner.abort(drop, 1)
    runner.hold(is_held=False)

    assert runner.answers == answers
    assert [[member.drop for member in members(task)] for task in runner.pending] == left


# Attempts to workers.


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("runners", [1, 2, 3, 4, 5])
def test_runners_take_turns(runners: int, workers: int) -> None:
    """No runner starves: of long attempts that end one by one, each runner gets about as many as the others."""
    pool = _Pool(workers, *(_Runner(number, *_tasks(*[number] * 60)) for number in range(runners)))
    order = [drop for drops in pool.assign() for drop in drops]
    while len(order) < 6 * runners:
        worker = len(order) % workers
        pool.end(worker)
        order += pool.assign()[worker]

    assert min(order.count(number) for number in range(runners)) >= 4


def test_attempts_are_spread_over_the_workers() -> None:
    """Each worker gets its share of the short attempts of a runner, and no worker all that it has room for."""
    pool = _Pool(3, _Runner(1, *_tasks(*range(9)), seconds=1e-5))

    assert sorted(map(len, pool.assign())) == [3, 3, 3]


def test_long_attempts_are_given_one_by_one() -> None:
    """No attempt waits with a worker behind one that is long, or that may be."""
    for seconds in (None, _LONG):
        assert _Pool(2, _Runner(1, *_tasks(1, 2, 3), seconds=seconds)).assign() == [[1], [2]]


@pytest.mark.parametrize("what", _ALONE)
def test_an_attempt_that_runs_alone_waits_for_an_idle_worker(what: str) -> None:
    """Meanwhile no other attempt passes it, not even one of another runner."""
    other, runner = _Runner(1, _task(1), _task(2), seconds=1e-5), _Runner(2)
    pool = _Pool(2, other, runner)
    assert pool.assign() == [[1], [2]]
    runner.add([_ALONE[what], _task(6)])
    assert pool.assign() == [[1], [2]]
    other.add([_task(7)])
    assert pool.assign() == [[1], [2]]

    pool.end(0, 1e-5)
    pool.end(1, 1e-5)
    assert pool.assign()[0][0] == 5
    assert pool.workers[0].drops == [5], "nothing waits behind it"


@pytest.mark.parametrize("how", ["aborted", "left"])
def test_no_worker_waits_for_an_attempt_that_is_gone(how: str) -> None:
    """If the attempt that is next is aborted, or its runner leaves, others get the worker."""
    other, runner = _Runner(1, *_tasks(1, 2)), _Runner(2)
    pool = _Pool(2, other, runner)
    pool.assign()
    runner.add([_task(5, is_ahead=True)])
    pool.assign()
    assert pool.dispatcher._next is runner
    if how == "aborted":
        pool.dispatcher.abort(runner, 5, 1, 0.0)
    else:
        pool.dispatcher.leave(runner)
    other.add(_tasks(3))
    pool.end(0)

    assert pool.assign() == [[3], [2]]


def test_a_suspect_gets_a_fresh_worker() -> None:
    """It gets a worker that no attempt has used, also if others are idle, and has it to itself."""
    pool = _Pool(2, _Runner(1, _task(1, is_suspect=True), seconds=1e-5))
    pool.workers[1].is_fresh = True
    assert pool.assign() == [[], [1]]

    pool.dispatcher.find(1).add(_tasks(2, 3))  # type: ignore[union-attr]
    assert pool.assign() == [[2, 3], [1]]


def test_an_idle_worker_retires_for_a_suspect() -> None:
    """If no worker is fresh, one idle worker ends, so that a new one takes its place."""
    pool = _Pool(3, _Runner(1, _task(1, is_suspect=True)))
    for _ in range(2):
        assert pool.assign() == [[], [], []]

    assert [worker.is_retiring for worker in pool.workers] == [True, False, False]


def test_others_wait_until_a_worker_is_idle_for_a_suspect() -> None:
    """While a suspect waits and no worker is idle, nothing is given to the workers. Then others go on."""
    runner = _Runner(1, *_tasks(1, 2), seconds=1e-5)
    pool = _Pool(2, runner)
    pool.assign()
    runner.add([_task(3, is_suspect=True), _task(4)])
    assert pool.assign() == [[1], [2]]

    pool.end(0, 1e-5)
    assert pool.assign() == [[], [2, 4]]
    assert pool.workers[0].is_retiring


def test_gpus_of_attempts_that_run_together_are_disjoint(gpus: tuple[str, ...]) -> None:
    """No GPU has two attempts; an attempt that waits for GPUs holds up no attempts without them."""
    runner = _Runner(1, _task(1, _GPU), _task(2, _GPU), _task(3, _GPUS), _task(4))
    pool = _Pool(4, runner)
    for worker in pool.workers[:3]:
        worker.is_fresh = True
    assert sorted(pool.assign()) == [[], [1], [2], [4]]

    assert runner.drops == [3]
    given = [name for worker in pool.workers for name in worker.gpus]
    assert sorted(given) == sorted(gpus)
    assert [task.gpus for worker in pool.workers[:2] for _, task in worker.assigned.values()] == [("3",), ("5",)]


def test_a_worker_ends_with_its_attempt_with_gpus(gpus: tuple[str, ...]) -> None:
    """Programs hold the memory of their GPUs until their process ends."""
    pool = _Pool(1, _Runner(1, _task(1, _GPU)))
    pool.workers[0].is_fresh = True
    pool.assign()
    assert pool.workers[0].gpus == gpus[:1]
    pool.end(0)

    assert pool.workers[0].is_retiring


@pytest.mark.parametrize(
    ("number", "priority", "ends"), [(1, 0, False), (1, 1, True), (1, -1, False), (2, 0, True), (2, -1, True)]
)
def test_a_chain_of_long_attempts_ends_for_others(number: int, priority: int, ends: bool) -> None:  # noqa: FBT001
    """It ends early for an attempt of another runner, or of greater priority."""
    runners = [_Runner(1, _chain(1, 2, 3), seconds=_LONG), _Runner(2)]
    pool = _Pool(1, *runners)
    pool.assign()
    runners[number - 1].add([_task(4, priority=priority)])
    pool.assign()

    assert pool.workers[0].calls == (["end_chain"] if ends else [])


def test_a_chain_of_short_attempts_does_not_end_for_others() -> None:
    """It is over soon."""
    runner = _Runner(1, _chain(1, 2, 3), seconds=1e-5)
    pool = _Pool(1, runner, _Runner(2, _task(4), seconds=1e-5))
    pool.assign()

    assert pool.workers[0].calls == []


def test_memory_pressure_pauses_while_something_runs() -> None:
    """If memory is nearly used up, attempts wait until those that run have ended; then one begins."""
    pool = _Pool(2, _Runner(1, *_tasks(1, 2, 3)))
    pool.memory.now = Pressure.ATTEMPTS
    for drop in (1, 2):
        for _ in range(2):
            assert sorted(pool.assign()) == [[], [drop]]
            assert pool.dispatcher.is_paused
        pool.end(next(worker.number for worker in pool.workers if worker.assigned))
    pool.memory.now = Pressure.CONTENTS
    assert sorted(pool.assign()) == [[], [3]]
    assert not pool.dispatcher.is_paused


def test_attempts_behind_a_slow_one_are_recalled() -> None:
    """They are recalled when it is slow, another worker is idle, and no other attempt could go there."""
    runner = _Runner(1, *_tasks(1, 2, 3, 4), seconds=1e-5)
    pool = _Pool(2, runner)
    pool.assign()
    slow, other = pool.workers
    recall = pool.dispatcher.recall
    recall(SLOW_SECONDS)
    assert (slow.calls, other.calls) == ([], []), "no worker is idle"

    while other.assigned:
        pool.end(1, 1e-5)
    recall(SLOW_SECONDS / 2)
    assert slow.calls == [], "it is not slow yet"
    runner.add(_tasks(5))
    recall(SLOW_SECONDS)
    assert slow.calls == [], "another attempt waits"
    runner.clear()
    recall(SLOW_SECONDS)
    assert (slow.calls, other.calls) == (["recall"], [])


# Hold, abort and leave, with attempts that workers have.


def test_attempts_with_a_worker_are_held() -> None:
    """Attempts of a held runner that have not begun are recalled, and its chains end; those of others stay."""
    runner, other = _Runner(1, _chain(1, 2)), _Runner(2, _task(3))
    pool = _Pool(2, runner, other)
    pool.assign()
    pool.dispatcher.hold(runner, is_held=True)

    assert [worker.calls for worker in pool.workers] == [["recall", "end_chain"], []]


@pytest.mark.parametrize(("drop", "recalled"), [(1, False), (2, True)])
def test_an_attempt_with_a_worker_is_aborted(drop: int, recalled: bool) -> None:  # noqa: FBT001
    """Its worker stops it. If it waits there, it is recalled, so that its answer does not wait, too."""
    runner = _Runner(1, *_tasks(1, 2), seconds=1e-5)
    pool = _Pool(1, runner)
    pool.assign()
    pool.dispatcher.abort(runner, drop, 1, 2.0)
    (worker,) = pool.workers

    assert frame(AbortTask(1, drop, 1, 2.0)) in worker.outgoing
    assert [number for number in worker.assigned if worker.is_aborted(number)] == [drop - 1]
    assert worker.calls == (["recall"] if recalled else [])


def test_a_runner_has_left_when_its_last_attempt_has_ended() -> None:
    """Attempts that wait are forgotten, those that run are stopped, and their results are not delivered."""
    runner = _Runner(1, *_tasks(1, 2, 3))
    pool = _Pool(2, runner)
    pool.assign()
    pool.dispatcher.leave(runner)
    assert runner.drops == []
    for worker in pool.workers:
        assert frame(CloseExecutor(1)) in worker.outgoing
        assert not runner.has_left.is_set()
        pool.end(worker.number)
        pool.dispatcher.remove_left()

    assert runner.has_left.is_set()
    assert pool.dispatcher.find(1) is None
    assert runner.results == []


def test_attempts_that_have_not_begun_are_put_back() -> None:
    """They are first again, in their order and with whole chains, except those that were aborted."""
    runner = _Runner(1, _task(1), _chain(2, 3), *_tasks(4, 5), seconds=1e-5)
    pool = _Pool(1, runner)
    pool.assign()
    runner.add(_tasks(6))
    pool.dispatcher.abort(runner, 4, 1, 0.0)
    pool.requeue(0, [4, 3, 2, 1])

    assert pool.workers[0].drops == [1]
    assert [[member.drop for member in members(task)] for task in runner.pending] == [[2, 3], [5], [6]]
    assert runner.answers == [(4, "failed")]


def test_the_rest_of_a_chain_that_has_begun_is_not_begun() -> None:
    """It is answered, and not put back."""
    runner = _Runner(1, _chain(1, 2, 3))
    pool = _Pool(1, runner)
    pool.assign()
    pool.requeue(0, [2, 1])

    assert runner.answers == [(2, "not begun"), (3, "not begun")]
    assert runner.drops == []


def test_results_go_to_their_runners() -> None:
    """Each runner gets its own results, and expects that its next attempts take as long."""
    runners = [_Runner(number, _task(number)) for number in (1, 2)]
    pool = _Pool(2, *runners)
    pool.assign()
    pool.end(1, 0.5)

    assert [runner.answers for runner in runners] == [[], [(2, "done")]]
    assert [runner.expected.of(_SHORT) for runner in runners] == [math.inf, 0.5]


def test_a_runner_without_executors_fails() -> None:
    """Its attempts fail with the reason: those that wait, those that run, and later ones. Others go on."""
    runner, other = _Runner(1, _task(1), _chain(2, 3)), _Runner(2, _task(9))
    pool = _Pool(1, runner, other)
    pool.assign()
    pool.dispatcher.fail_runner(1, "no numpy")
    pool.end(0)
    runner.add(_tasks(4))

    assert runner.answers == [(2, "failed"), (3, "not begun"), (1, "failed"), (4, "failed")]
    assert all("no numpy" in result.failure.text for result in runner.results if result.drop != 3 and result.failure)
    assert (other.answers, other.drops) == ([], [9])


def test_a_runner_whose_executor_cannot_be_sent_fails_alone() -> None:
    """Its attempts are answered with the reason, and those of other runners go on."""
    runner, other = _Runner(1, _task(1)), _Runner(2, _task(9))
    broken = msgspec.structs.replace(_TEMPLATES[0], arguments=(Argument(name="value", value=object()),))
    runner.spec = msgspec.structs.replace(_SPEC, templates=(broken, *_TEMPLATES[1:]))
    pool = _Pool(1, runner, other)
    pool.assign()

    assert runner.answers == [(1, "failed")]
    assert pool.assign() == [[9]]
