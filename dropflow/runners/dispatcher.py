"""Decides which worker of a pool gets which attempts, and which runner gets their results.

A worker gets in advance as many attempts as it executes in 20 ms. It gets one at a time if they are long or write much.
So small attempts cost little, long ones are spread evenly, and few contents are held. Runners take turns. Attempts that
wait behind one that turns out to be long are taken back as soon as another worker is idle.

An attempt that takes part in a stream waits for an idle worker, and has it to itself; while it waits, no worker gets
attempts in advance. The same holds for an attempt that declares memory or several processors. It waits until as many
workers are idle, and only one of them works while it runs.

A chain of attempts (`dropflow.execution.chains`) is given to one worker. If its attempts are long, it ends early when
attempts of another runner, or of greater priority, should begin before the rest of it.

A suspect is an attempt of an application whose earlier attempt was running when a worker died. It gets a worker that no
other attempt has used, and has it to itself. If that worker dies too, no other attempt can be the reason, and none is
lost. Such a worker takes the place of the first idle one.

An attempt that declares GPUs gets such a worker, too, which ends with it: programs choose their GPUs once in a process,
and hold memory of them until it ends. While it waits for GPUs, it holds up no attempts but those of the same kind.
"""

import itertools
import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter

import msgspec

from dropflow.errors import WorkerStartError
from dropflow.execution.chains import largest_needs, members, not_begun, rest_not_begun
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.priority_queue import ANSWER_SECONDS, by_priority, should_await_successors
from dropflow.execution.tasks import AttemptResult, ResultSink, StreamOpened, Task
from dropflow.failure import Failure, summary_of
from dropflow.graph.components import time_limit
from dropflow.graph.templates import ResourceNeeds, needs_of
from dropflow.host.gpus import host_gpus
from dropflow.host.memory import HostMemory, Pressure
from dropflow.runners.backlog import NO_ROOM, ExpectedSeconds, PoolClock
from dropflow.runners.capacity import Capacity
from dropflow.runners.in_process import aborted
from dropflow.runners.worker_messages import IDLE, AbortTask, CloseExecutor, OpenExecutor, frame
from dropflow.runners.worker_process import WorkerProcess, needs_own_worker
from dropflow.stopping import kill_after

_PRIORITY = attrgetter("priority")
_PLAIN = ResourceNeeds()
_CLOSE_SECONDS = 1.0
"""Seconds that the attempts of a closed runner may continue before their workers are killed."""

# The attempts of one session that wait for a worker of a pool.


class RunnerQueue:
    """The queue of a runner in its pool: its attempts that wait, and where their results go.

    Parameters
    ----------
    number : int
        Number of the runner, unique in the pool.
    spec : ExecutorSpec
        Specification from which workers build its executor.
    deliver : ResultSink
        Takes results.
    """

    def __init__(self, number: int, spec: ExecutorSpec, deliver: ResultSink) -> None:
        self.number = number
        self.spec = spec
        self.deliver = deliver
        self.limits = tuple(time_limit(template) for template in spec.templates)
        self._needs = tuple(needs_of(template) for template in spec.templates)
        self._has_gpus = any(needs.gpus for needs in self._needs)
        self.expected = ExpectedSeconds(spec.templates)
        """Expected seconds of its attempts."""
        self.pending: deque[Task] = deque()
        self.suspects: deque[Task] = deque()
        """Attempts that wait for a process that no other attempt has used."""
        self._held: list[Task] | None = None
        """Attempts that wait while none may be started; None while they may."""
        self.running: Mapping[int, int] = {}
        """Numbers of the workers by the drops whose attempts they run; replaced as a whole, for other threads."""
        self.broken: Failure | None = None
        """Why its attempts cannot run; None if they can."""
        self.not_before = -math.inf
        """Time from which on workers get its attempts: until then, the session may add a more urgent one."""
        self.is_leaving = False
        self.has_left = threading.Event()
        """Set when no worker has an attempt of this runner any more, after it was closed."""

    def add(self, tasks: Sequence[Task]) -> None:
        """Add attempts."""
        self.not_before = -math.inf
        if self._held is not None and self.broken is None:
            self._held += tasks
            return
        suspects = [task for task in tasks if self.runs_alone(task)]
        self.suspects = _extended(self.suspects, suspects)
        others = [task for task in tasks if not self.runs_alone(task)] if suspects else tasks
        self.pending = _extended(self.pending, others)
        if self.broken is not None:
            self.fail_pending(self.broken)

    def put_first(self, task: Task) -> None:
        """Put back an attempt that has not begun, before all others."""
        if self._held is not None:
            self._held.insert(0, task)
            return
        (self.suspects if self.runs_alone(task) else self.pending).appendleft(task)

    def runs_alone(self, task: Task) -> bool:
        """Return whether an attempt waits apart from the others: it needs a process that no other attempt has used."""
        return task.is_suspect or (self._has_gpus and bool(self.needs_of(task).gpus))

    def with_gpus(self, task: Task, gpus: Sequence[str]) -> Task:
        """Return a task, with those that follow it, each with as many of these GPUs as it declares."""
        own = tuple(gpus[: self._needs[task.template].gpus])
        return msgspec.structs.replace(
            task, gpus=own, then=tuple(self.with_gpus(follower, gpus) for follower in task.then)
        )

    def hold(self, *, is_held: bool) -> None:
        """Keep the attempts from workers while `is_held`."""
        if is_held and self._held is None:
            self._held = [*self.suspects, *self.pending]
            self.suspects.clear()
            self.pending.clear()
        elif not is_held and self._held is not None:
            tasks, self._held = self._held, None
            self.add(tasks)

    def give_back(self) -> tuple[Task, ...]:
        """Remove and return all attempts that wait; answer their followers as not begun."""
        tasks = self._remove_all()
        if rest := rest_not_begun(tasks):
            self.deliver(rest)
        return tasks

    def await_successors(self, seconds: float, now: float) -> None:
        """Give no attempt to a worker until the session has taken the result of an attempt that took `seconds`."""
        waiting = (self.pending[0].priority, self.pending[-1].priority) if self.pending else ()
        if should_await_successors(seconds, *waiting):
            self.not_before = now + ANSWER_SECONDS

    @property
    def is_waiting(self) -> bool:
        """Whether attempts wait."""
        return bool(self.pending or self.suspects)

    def abort(self, drop: int, attempt: int) -> None:
        """Remove and answer an attempt if it waits, with those that follow it."""
        for queue in (self.suspects, self.pending, [] if self._held is None else self._held):
            for position, task in enumerate(queue):
                chain = members(task)
                at = next(
                    (at for at, member in enumerate(chain) if (member.drop, member.attempt) == (drop, attempt)), None
                )
                if at is not None:
                    if at:
                        queue[position] = msgspec.structs.replace(task, then=chain[1:at])
                    else:
                        del queue[position]
                    self.deliver([aborted(drop, attempt), *not_begun(chain[at + 1 :])])
                    return

    def clear(self) -> None:
        """Forget all attempts that wait."""
        self.pending.clear()
        self.suspects.clear()
        if self._held is not None:
            self._held = []

    def _remove_all(self) -> tuple[Task, ...]:
        tasks = (*self.suspects, *self.pending, *(self._held or ()))
        self.clear()
        return tasks

    @property
    def needs_own_worker(self) -> bool:
        """Whether the first attempt that waits needs a worker to itself."""
        return bool(self.pending) and self._is_alone(self.pending[0])

    def _is_alone(self, task: Task) -> bool:
        return needs_own_worker(task) or not self.needs_of(task).are_plain

    def needs_of(self, task: Task) -> ResourceNeeds:
        """Return the resources that a task takes: as its template declares, or for a chain the most of its attempts."""
        if not task.then:
            needs = self._needs[task.template]
            return needs._replace(memory=task.memory) if task.memory else needs
        return largest_needs(self._needs[member.template] for member in members(task))

    def take(self, most: int, seconds: float) -> list[Task]:
        """Remove and return the first attempts that wait, at least one.

        They end before an attempt that needs a worker to itself or takes long, after `most` attempts, or when they are
        expected to take `seconds` together. A chain counts as all its attempts, and is not divided.
        """
        expected = self.expected.together
        tasks = [self.pending.popleft()]
        count, spent = 1 + len(tasks[0].then), expected(members(tasks[0]))
        while self.pending and count < most and not self._is_alone(self.pending[0]):
            spent += expected(members(self.pending[0]))
            if spent > seconds:
                break
            tasks.append(self.pending.popleft())
            count += 1 + len(tasks[-1].then)
        return tasks

    def fail_pending(self, failure: Failure) -> None:
        """Answer all attempts that wait with a failure."""
        tasks = self._remove_all()
        results: list[AttemptResult] = []
        for task in tasks:
            results += [AttemptResult(task.drop, task.attempt, failure=failure), *not_begun(task.then)]
        if results:
            self.deliver(results)


def _extended(queue: deque[Task], tasks: Sequence[Task]) -> deque[Task]:
    """Return a queue with more attempts, in the order of their priorities; without priorities it is not sorted."""
    ends = (queue[0], queue[-1]) if queue else ()
    queue.extend(tasks)
    return by_priority(queue, _PRIORITY) if any(task.priority for task in (*ends, *tasks)) else queue


class Dispatcher:
    """The runners of a pool, and their attempts. Used by the pool's thread.

    Parameters
    ----------
    workers : sequence of WorkerProcess
        The workers, as they are at any time.
    clock : PoolClock
        The time of the pool.
    factory : str
        ``package.module:function`` that makes an `Executor` from a spec.
    memory : HostMemory
        The memory that attempts may declare together, and whether memory is nearly used up.
    """

    def __init__(self, workers: Sequence[WorkerProcess], clock: PoolClock, factory: str, *, memory: HostMemory) -> None:
        self._workers = workers
        self._memory = memory
        self._gpus = host_gpus()
        self._clock = clock
        self._factory = factory
        self.is_paused = False
        """Whether attempts wait because memory is nearly used up."""
        self._runners: dict[int, RunnerQueue] = {}
        self._turns: deque[RunnerQueue] = deque()
        self._next: RunnerQueue | None = None
        """The runner whose first attempt waits for a worker to itself; None if there is none."""

    # Runners.

    def enter(self, runner: RunnerQueue) -> None:
        """Add a runner."""
        self._runners[runner.number] = runner
        self._turns.append(runner)

    def find(self, number: int) -> RunnerQueue | None:
        """Return the runner with this number, or None."""
        return self._runners.get(number)

    def abort(self, runner: RunnerQueue, drop: int, attempt: int, grace: float) -> None:
        """Stop an attempt, wherever it is; its worker is killed if it does not stop within `grace` seconds."""

        def is_that(number: int, task: Task) -> bool:
            return (number, task.drop, task.attempt) == (runner.number, drop, attempt)

        runner.abort(drop, attempt)
        for worker in self._workers:
            numbers = [at for at, (number, task) in worker.assigned.items() if is_that(number, task)]
            if numbers:
                worker.outgoing += frame(AbortTask(runner.number, drop, attempt, grace))
                worker.mark_aborted(numbers, self._clock.now, seconds=kill_after(grace))
                if worker.current() not in numbers:
                    worker.recall()  # without this, it would be answered only after the end of the attempt before it

    def hold(self, runner: RunnerQueue, *, is_held: bool) -> None:
        """Start none of the attempts of a runner while `is_held`, not even attempts that wait with a worker."""
        runner.hold(is_held=is_held)
        for worker in self._workers:
            if is_held and any(number == runner.number for number, _ in worker.assigned.values()):
                worker.recall()
                if any(number == runner.number and task.follows for number, task in worker.assigned.values()):
                    worker.end_chain()

    def leave(self, runner: RunnerQueue) -> None:
        """Start none of the attempts of a runner any more, stop those that run, and remove it when they have ended."""
        runner.clear()
        runner.is_leaving = True
        for worker in self._workers:
            mine = {at: task for at, (number, task) in worker.assigned.items() if number == runner.number}
            for task in mine.values():
                worker.outgoing += frame(AbortTask(runner.number, task.drop, task.attempt, _CLOSE_SECONDS))
            if mine:
                worker.mark_aborted(mine, self._clock.now, seconds=_CLOSE_SECONDS)
                worker.recall()  # otherwise its attempts would wait for the end of an attempt of another runner
            if runner.number in worker.executors:
                worker.executors.discard(runner.number)
                worker.contents.forget(runner.number)
                worker.outgoing += frame(CloseExecutor(runner.number))
        self.remove_left()

    def remove_left(self) -> None:
        """Remove the runners that are leaving and have no attempts with workers any more."""
        for runner in [runner for runner in self._turns if runner.is_leaving]:
            if not any(number == runner.number for worker in self._workers for number, _ in worker.assigned.values()):
                self._turns.remove(runner)
                del self._runners[runner.number]
                runner.has_left.set()

    def close(self) -> None:
        """Remove all runners: the pool ends."""
        for runner in self._runners.values():
            runner.has_left.set()

    # Attempts to workers.

    @property
    def next_due(self) -> float:
        """Time at which attempts that wait for more urgent ones may be given to workers; inf if there are none."""
        return min(
            (turn.not_before for turn in self._turns if turn.pending and turn.not_before > 0.0), default=math.inf
        )

    @property
    def has_waiting(self) -> bool:
        """Whether attempts wait for a worker."""
        for runner in self._turns:  # noqa: SIM110 - `any` is slower, and this is asked several times for each attempt
            if runner.pending or runner.suspects:
                return True
        return False

    def assign(self, now: float) -> None:
        """Give attempts that wait to the workers that have room for them."""
        self.is_paused = self._must_pause()
        if not self.has_waiting or not self._workers or self.is_paused or not self._assign_suspects(now):
            return
        waiting = self._count_waiting(now)
        while waiting:
            if self._next is None:
                self._turns.rotate(-1)
            runner = self._next or self._turns[-1]
            if not runner.pending or runner.not_before > now:
                continue
            if runner.needs_own_worker:
                needs = self._admitted(runner.needs_of(runner.pending[0]))
                worker = self._worker_for(needs)
                self._next = runner if worker is None else None
                count, seconds = 1, 0.0
            else:
                needs, room, worker = _PLAIN, NO_ROOM, None
                if usable := self._usable_workers():
                    room, worker = max(((candidate.room(now), candidate) for candidate in usable), key=itemgetter(0))
                # Waiting attempts are spread over the workers, and no runner fills all of them.
                share = -(-len(runner.pending) // len(self._workers))
                count, seconds = min(max(room.attempts // waiting, 1), share), room.seconds / waiting
                worker = worker if room.attempts else None
            if worker is None:
                if self._next is None:
                    self._turns.rotate(1)  # it keeps its turn until a worker has room
                self._end_long_chains(runner, now)
                return
            self._give(worker, runner, runner.take(count, seconds), now, needs)
            waiting -= not runner.pending
            self.is_paused = self._must_pause()
            if self.is_paused:
                return

    def _count_waiting(self, now: float) -> int:
        """Return how many runners have attempts that may be given to workers; 0 if one of them waits for a worker."""
        if self._next is not None and not self._next.needs_own_worker:
            self._next = None  # the attempt that waited for a worker was aborted, or its runner has left
        if self._next is not None and self._next.not_before > now:
            return 0
        return sum(bool(runner.pending) and runner.not_before <= now for runner in self._turns)

    def _must_pause(self) -> bool:
        """Return whether attempts wait until those that run have ended, because memory is nearly used up."""
        is_busy = self.has_waiting and any(worker.assigned for worker in self._workers)
        return is_busy and self._memory.pressure() is Pressure.ATTEMPTS

    def _end_long_chains(self, waiting: RunnerQueue, now: float) -> None:
        """End the chains of long attempts that should not go on before the first attempt of `waiting`."""
        for worker in self._workers:
            last = worker.last_follower() if worker.is_long(now) else None
            if last is not None:
                number, task = last
                if number != waiting.number or task.priority < waiting.pending[0].priority:
                    worker.end_chain()

    def _admitted(self, needs: ResourceNeeds) -> ResourceNeeds:
        return Capacity(len(self._workers), self._memory.limit.bytes).admitted(needs)

    def _worker_for(self, needs: ResourceNeeds) -> WorkerProcess | None:
        """Return an idle worker if as many processors and as much memory as an attempt declares are free."""
        capacity = Capacity(len(self._workers), self._memory.limit.bytes)
        for worker in self._workers:
            capacity.take(worker.taken)
        return (
            next((candidate for candidate in self._workers if candidate.is_idle), None)
            if capacity.fits(needs)
            else None
        )

    def _usable_workers(self) -> Sequence[WorkerProcess]:
        """Return the workers that may be given attempts: idle ones only if their processors are not taken."""
        if sum(worker.taken.cpus for worker in self._workers) < len(self._workers):
            return self._workers
        return [worker for worker in self._workers if not worker.is_idle]

    def _assign_suspects(self, now: float) -> bool:
        """Give suspects workers that no attempt has used; return whether other attempts may be given to workers.

        If there is no such worker, and none is being started, the first idle one is replaced. Until a worker is idle,
        the other workers get nothing, because otherwise they might never be idle.
        """
        suspects = [runner for runner in self._turns if runner.suspects]
        if not suspects:
            return True
        fresh = [worker for worker in self._workers if worker.is_fresh and worker.is_idle]
        for worker in fresh:
            runner = next((runner for runner in suspects if runner.suspects and self._has_free_gpus(runner)), None)
            if runner is None:
                return True
            needs = self._admitted(runner.needs_of(runner.suspects[0]))
            if self._worker_for(needs) is None:
                return False
            worker.gpus = self._free_gpus()[: needs.gpus]
            self._give(worker, runner, [runner.with_gpus(runner.suspects.popleft(), worker.gpus)], now, needs)
        waiting = any(runner.suspects and self._has_free_gpus(runner) for runner in suspects)
        if not waiting or any(worker.is_retiring for worker in self._workers):
            return True
        idle = next((worker for worker in self._workers if worker.is_idle and not worker.is_fresh), None)
        if idle is not None:
            idle.retire()
        return idle is not None

    def _has_free_gpus(self, runner: RunnerQueue) -> bool:
        """Return whether the GPUs of the first suspect of a runner are free.

        They also count as free if it declares more than exist: its worker then refuses it.
        """
        wanted = runner.needs_of(runner.suspects[0]).gpus
        return wanted <= len(self._free_gpus()) or wanted > len(self._gpus)

    def _free_gpus(self) -> tuple[str, ...]:
        taken = {name for worker in self._workers for name in worker.gpus}
        return tuple(name for name in self._gpus if name not in taken)

    def _give(
        self, worker: WorkerProcess, runner: RunnerQueue, tasks: Sequence[Task], now: float, needs: ResourceNeeds
    ) -> None:
        """Send attempts of a runner to a worker, which must have an executor for them."""
        try:
            if runner.number not in worker.executors:
                worker.outgoing += frame(OpenExecutor(runner.number, self._factory, runner.spec))
                worker.executors.add(runner.number)
            worker.assign(runner.number, tasks, now, cost=runner.expected.cost, needs=needs)
        except Exception as error:  # noqa: BLE001 - such as a path that is not UTF-8: no other runner is affected
            worker.gpus = ()
            for task in reversed(tasks):
                runner.put_first(task)
            self.fail_runner(runner.number, summary_of(error))

    @property
    def _has_startable(self) -> bool:
        """Whether an attempt waits that needs no GPU of a running attempt."""
        return any(runner.pending or (runner.suspects and self._has_free_gpus(runner)) for runner in self._turns)

    def recall(self, now: float) -> None:
        """If a worker is idle, recall the attempts that wait behind a long attempt on another worker."""
        slow = [worker for worker in self._workers if worker.is_slow(now)]
        if slow and any(worker.is_idle for worker in self._workers) and not self._has_startable:
            for worker in slow:
                worker.recall()

    def requeue(self, worker: WorkerProcess, numbers: Iterable[int]) -> None:
        """Put attempts that a worker has not begun first in the queues of their runners, unless they were aborted.

        Parameters
        ----------
        numbers : iterable of int
            Numbers of the attempts, the last one first.
        """
        following: list[Task] = []
        at = IDLE
        for number in numbers:
            was_aborted = worker.is_aborted(number)
            at, task = worker.unassign(number)
            runner = self._runners.get(at)
            if was_aborted:
                rest = not_begun(reversed(following))
                self.deliver([(at, result) for result in (aborted(task.drop, task.attempt), *rest)])
                following = []
            elif task.follows:
                following.append(task)
            else:
                if runner is not None and not runner.is_leaving:
                    whole = msgspec.structs.replace(task, then=tuple(reversed(following))) if task.then else task
                    runner.put_first(whole)
                following = []
        if following:  # the worker has begun the chain
            self.deliver([(at, result) for result in not_begun(reversed(following))])

    def limit_of(self, worker: WorkerProcess) -> float:
        """Return the time limit of the attempt that a worker runs, in seconds; 0 for none."""
        number, task = worker.assigned.get(worker.current(), (IDLE, None))
        runner = self._runners.get(number)
        return 0.0 if runner is None or task is None else runner.limits[task.template]

    def note_running(self) -> None:
        """Note the drops that workers run, for each runner: for each worker, the drop of its first attempt."""
        running: dict[int, dict[int, int]] = {number: {} for number in self._runners}
        for worker in self._workers:
            if worker.assigned:
                number, task = next(iter(worker.assigned.values()))
                if number in running:
                    running[number][task.drop] = worker.number + 1
        for number, runner in self._runners.items():
            runner.running = running[number]

    # Results to runners.

    def take_results(self, worker: WorkerProcess, results: Sequence[AttemptResult]) -> None:
        """Deliver the results of a worker, and note how long its attempts took."""
        delivered = []
        for (number, task), result in worker.take_results(results, self._clock.now):
            runner = self._runners.get(number)
            if runner is not None and result.failure is None:
                written = 0 if result.usage is None else result.usage.written
                runner.expected.note(task.template, result.seconds, written)
                runner.await_successors(result.seconds, self._clock.now)
            delivered.append((number, result))
        self.deliver(delivered)
        if worker.gpus and worker.is_idle:
            worker.retire()

    def deliver(self, results: Sequence[tuple[int, AttemptResult]]) -> None:
        """Deliver results, each with the number of its runner."""
        for number, group in itertools.groupby(results, key=itemgetter(0)):
            runner = self._runners.get(number)
            if runner is not None and not runner.is_leaving:
                answers = [result for _, result in group]
                if runner.broken is not None:
                    answers = [
                        AttemptResult(waiting.drop, waiting.attempt, failure=runner.broken) for waiting in answers
                    ]
                runner.deliver(answers)

    def deliver_stream(self, number: int, opened: StreamOpened) -> None:
        """Deliver the stream that a running attempt has opened."""
        runner = self._runners.get(number)
        if runner is not None and not runner.is_leaving:
            runner.deliver([opened])

    def fail_waiting(self, failure: Failure) -> None:
        """Answer all attempts that wait with a failure."""
        for runner in self._turns:
            runner.fail_pending(failure)

    def fail_runner(self, number: int, why: str) -> None:
        """Answer all attempts of a runner with a failure, now and later: its executor cannot be built."""
        runner = self._runners.get(number)
        if runner is not None:
            runner.broken = Failure.of(
                WorkerStartError(
                    f"worker processes cannot be started: {why}",
                    hint="use --runner threads, which needs no worker processes",
                )
            )
            runner.fail_pending(runner.broken)
