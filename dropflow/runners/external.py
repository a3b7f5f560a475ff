"""The runner of a session whose attempts another engine runs.

It keeps the attempts that wait, so that it decides on order, pause, cancel and the loss of workers. It gives the engine
only the attempts that its workers run now or in the next moments. Short attempts go in batches, since a task of an
engine takes milliseconds of its scheduler. If an attempt turns out to be long, the rest of its batch is recalled.
"""

import itertools
import logging
import math
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from urllib.parse import urlsplit

import msgspec

from dropflow.clock import SystemClock
from dropflow.errors import BadParameterError, LinkError, ResultLostError, WorkerDiedError, WorkerStartError
from dropflow.execution.chains import LONG_SECONDS, members, not_begun
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.inbox import Inbox
from dropflow.execution.tasks import AttemptResult, ResultSink, StreamOpened, Task, discard_results
from dropflow.failure import Failure, summary_of
from dropflow.graph.physical import IntColumn
from dropflow.runners.backlog import ExpectedSeconds
from dropflow.runners.dispatcher import RunnerQueue
from dropflow.runners.engine import ENOUGH_SECONDS, AttemptKey, Batch, BatchAnswer, Engine, EngineEvents, WorkerView
from dropflow.runners.in_process import aborted
from dropflow.runners.worker_messages import BUILD_EXECUTOR
from dropflow.stopping import GRACE_SECONDS, MARGIN_SECONDS, kill_after

_MOST_BYTES = 4_000_000
"""Most bytes of contents that travel with a batch."""
_MOST_IN_BATCH = 512
"""Attempts in one batch."""
_BATCH_SECONDS = 0.05
"""Expected seconds of the attempts of a batch together."""
_MOST_LOOKED_AT = 100
"""Attempts of each queue whose expected seconds are added up one by one."""
_UNKNOWN_SECONDS = 0.5
"""Expected seconds of an attempt if none of its template has run: the default of Dask for tasks."""
_log = logging.getLogger(__name__)
_WINDOW_ATTEMPTS = 8192
"""Attempts that the runner takes before their results, if the engine gives no other number."""
_SLOW_SECONDS = 0.25
"""Seconds after which attempts of a batch that have not begun are recalled, and between two such recalls."""
_PING_SECONDS = 5.0
"""Seconds between two signs of life to workers of the engine."""
_WANT_SECONDS = 1.0
"""Shortest time between two messages to the engine about how much work waits."""
_NO_WORKERS_SECONDS = 600.0
"""Seconds that attempts wait for an engine without workers: an adaptive one may get them from a batch system."""
_GIVE_BACK_SECONDS = 5.0
"""Seconds in which the thread of the runner must give back the attempts that wait."""
_RUNNER_CLOSE_SECONDS = 10.0
"""Seconds that the thread of the runner is waited for at its end."""
_HINTS = {
    "dask": "give the address that 'dask scheduler' prints, as in --runner dask=tcp://host:8786",
    "ray": "give the address that 'ray start' prints, as in --runner ray=host:6379, or ray=auto on its hosts",
}
_SCHEMES = {"dask": ("tcp", "tls", "ws", "wss", "ucx"), "ray": ()}
_SOCKETS = ("tcp", "tls", "")
"""Schemes of addresses that a plain connection can try."""

# The attempts of a session that wait for one place of its placement, and the workers of that place.


class PlaceQueue(RunnerQueue):
    """A queue of attempts for one place.

    Parameters
    ----------
    number, spec, deliver
        As in `RunnerQueue`.
    expected : ExpectedSeconds
        Expected seconds of attempts, shared by all queues of a runner.
    single : set of int
        Drops whose attempts go alone in a batch: a batch with one of them was lost.
    """

    def __init__(
        self, number: int, spec: ExecutorSpec, deliver: ResultSink, expected: ExpectedSeconds, single: set[int]
    ) -> None:
        super().__init__(number, spec, deliver)
        self.expected = expected
        self._single = single

    def runs_alone(self, task: Task) -> bool:
        """Return whether an attempt waits apart from the others."""
        return task.is_suspect or task.drop in self._single

    def take_batch(self, most: int, seconds: float) -> list[Task]:
        """Remove and return the first attempts that wait, as `take` does, with contents of limited size."""
        tasks = self.take(most, seconds)
        size = 0
        for count, task in enumerate(tasks):
            size += sum(len(each.handle.body) for each in task.inputs if each.handle is not None)
            if count and size > _MOST_BYTES:
                self.pending.extendleft(reversed(tasks[count:]))
                return tasks[:count]
        return tasks


def workers_of_places(places: Sequence[str], workers: Iterable[WorkerView]) -> Mapping[int, tuple[str, ...]]:
    """Return the names of the workers that each place of a placement stands for.

    A place may be the name of workers: the name that their operator gave them, or their address. Otherwise it may be
    the host of workers. Each other place stands for one worker, in the order of the names, so that drops that were
    placed together stay together. If there are more places than workers, the workers are used in turns.

    Parameters
    ----------
    places : sequence of str
        Names of the nodes of a graph: names of workers, ``host`` or ``host:port``.
    workers : iterable of WorkerView
        The workers of an engine.
    """
    ordered = sorted(workers, key=lambda worker: worker.name)
    if not ordered:
        return {}
    by_name: dict[str, list[str]] = {}
    by_host: dict[str, list[str]] = {}
    for worker in ordered:
        for name in {worker.name, worker.alias}:
            by_name.setdefault(name, []).append(worker.name)
        for host in worker.hosts:
            by_host.setdefault(host, []).append(worker.name)
    hosts = {worker.hosts for worker in ordered}
    chosen: dict[int, tuple[str, ...]] = {}
    others = 0
    for row, place in enumerate(places):
        here = by_host.get(place) or by_host.get(place.rpartition(":")[0] or place)
        if place and place in by_name:
            chosen[row] = tuple(by_name[place])
        elif here is not None and len(hosts) > 1:
            chosen[row] = tuple(here)
        else:
            chosen[row] = (ordered[others % len(ordered)].name,)
            others += 1
    return chosen


# The batches that an engine has, and the results for their attempts from its answers. Does no I/O.


@dataclass
class SentBatch:
    """A batch that the engine has."""

    tasks: dict[AttemptKey, Task]
    """Its attempts that are not answered, in order."""
    queue: PlaceQueue
    """The queue in which its attempts have waited."""
    slots: int
    since: float
    is_long: bool
    """Whether other attempts should not wait for it."""
    had_one: bool
    """Whether it was sent with a single attempt."""
    aborted: dict[AttemptKey, float] = field(default_factory=dict)
    """Time until which the answer of an aborted attempt is awaited, by attempt."""


class SentBatches:
    """The batches that an engine has, by number.

    An attempt is in one batch at most, and leaves it with its answer, so a second or late answer changes nothing.
    """

    def __init__(self) -> None:
        self._batches: dict[int, SentBatch] = {}
        self._batch_of: dict[AttemptKey, int] = {}
        self._worker_numbers: dict[tuple[str, int], int] = {}

    def numbered(self) -> Sequence[tuple[int, SentBatch]]:
        """Return the batches with their numbers, the oldest first."""
        return tuple(self._batches.items())

    def add(
        self, number: int, tasks: Sequence[Task], queue: PlaceQueue, *, slots: int, since: float, is_long: bool
    ) -> None:
        """Add a batch."""
        chosen = {(member.drop, member.attempt): member for task in tasks for member in members(task)}
        self._batches[number] = SentBatch(chosen, queue, slots, since, is_long, len(chosen) == 1)
        self._batch_of.update(dict.fromkeys(chosen, number))

    def of(self, key: AttemptKey) -> SentBatch | None:
        """Return the batch that an attempt is in; None if it is in none."""
        number = self._batch_of.get(key)
        return None if number is None else self._batches[number]

    def answer(self, answer: BatchAnswer) -> Iterator[tuple[Task, AttemptResult | None]]:
        """Remove the attempts in an answer; yield each with its result, or with None if it waits again."""
        batch = self._batches.get(answer.number)
        if batch is None:
            return  # it was lost meanwhile, or discarded
        for result in answer.results:
            task = self._leave(batch, (result.drop, result.attempt))
            if task is not None:
                yield task, self._numbered(answer.worker, result)
        for returned in reversed(answer.returned):
            key = returned.drop, returned.attempt
            was_aborted = key in batch.aborted
            task = self._leave(batch, key)
            if task is not None and was_aborted:
                yield task, aborted(*key)
            elif task is not None:
                # Its followers have been answered.
                batch.queue.put_first(msgspec.structs.replace(task, then=()) if task.then else task)
                yield task, None

    def end(self, number: int) -> bool:
        """Remove a batch that has ended; return whether all its attempts were answered. If not, it stays."""
        batch = self._batches.get(number)
        if batch is None or not batch.tasks:
            self._batches.pop(number, None)
            return True
        return False

    def lose(self, number: int, why: str, hint: str = "") -> tuple[list[AttemptResult], set[int]]:
        """Remove a batch that will not be answered; return results for its attempts, and the drops to send alone next.

        An attempt that was alone had an infrastructure fault. Of several attempts, it is not known which one has begun,
        or has ended the worker: each is repeated alone, and no fault is counted.
        """
        batch = self._batches.get(number)
        if batch is None:
            return [], set()
        if batch.had_one:
            failure = Failure.of(WorkerDiedError(f"the attempt was lost: {why}", hint=hint))
        else:
            failure = Failure.of(ResultLostError(f"the attempt was lost with others: {why}"))
        results = self.fail(number, failure)
        return results, set() if batch.had_one else {result.drop for result in results}

    def fail(self, number: int, failure: Failure) -> list[AttemptResult]:
        """Remove a batch, and return results with a failure for its attempts."""
        batch = self._batches.pop(number)
        results = []
        for key, task in tuple(batch.tasks.items()):
            was_aborted = key in batch.aborted
            self._leave(batch, key)
            if was_aborted:
                results.append(aborted(*key))
            elif task.follows:
                results += not_begun([task])
            else:
                results.append(AttemptResult(*key, failure=failure))
        return results

    @property
    def running(self) -> list[int]:
        """The drop of the first attempt of each batch."""
        return [next(iter(batch.tasks))[0] for batch in self._batches.values() if batch.tasks]

    @property
    def keys(self) -> Mapping[AttemptKey, int]:
        """All attempts, with the numbers of their batches."""
        return self._batch_of

    def _leave(self, batch: SentBatch, key: AttemptKey) -> Task | None:
        task = batch.tasks.pop(key, None)
        if task is not None:
            del self._batch_of[key]
            batch.aborted.pop(key, None)
        return task

    def _numbered(self, worker: str, result: AttemptResult) -> AttemptResult:
        """Return a result with a number of its worker process that no process of another host has."""
        usage = result.usage
        if usage is None or not usage.worker:
            return result
        number = self._worker_numbers.setdefault((worker, usage.worker), len(self._worker_numbers) + 1)
        return msgspec.structs.replace(result, usage=msgspec.structs.replace(usage, worker=number))


# The attempts of a session that wait for an engine, and the choice of the next ones. Does no I/O.


NextBatch = tuple[list[Task], PlaceQueue, int, bool]
"""Attempts, their queue, the slots that they take, and whether others should not wait for them."""


class WaitingAttempts:
    """A queue for each place of the placement, or one for all.

    Parameters
    ----------
    spec : ExecutorSpec
        Specification of the executors of the session.
    deliver : ResultSink
        Takes the answers of attempts that are aborted.
    places : int
        Number of places; 0 for a graph that is not placed.
    place_of : int array or None
        Place of each drop.
    """

    def __init__(self, spec: ExecutorSpec, deliver: ResultSink, places: int, place_of: IntColumn | None) -> None:
        self._place_of = place_of
        self._expected = ExpectedSeconds(spec.templates)
        self._single: set[int] = set()
        self._queues = [
            PlaceQueue(place, spec, deliver, self._expected, self._single) for place in range(max(places, 1))
        ]
        self._turn = 0
        self.goes_alone = False
        """Whether each attempt, with its followers, is a batch of its own: contents come only with the end of a
        batch."""

    def __bool__(self) -> bool:
        return any(queue.is_waiting for queue in self._queues)

    def add(self, tasks: Sequence[Task]) -> None:
        """Add attempts."""
        if self._place_of is None or len(self._queues) == 1:
            self._queues[0].add(tasks)
            return
        for place, queue in enumerate(self._queues):
            if mine := [task for task in tasks if self._place_of[task.drop] == place]:
                queue.add(mine)

    def hold(self, *, is_held: bool) -> None:
        """Keep all attempts while `is_held`."""
        for queue in self._queues:
            queue.hold(is_held=is_held)

    def abort(self, key: AttemptKey) -> None:
        """Remove and answer an attempt, if it waits."""
        for queue in self._queues:
            queue.abort(*key)

    def give_back(self) -> tuple[Task, ...]:
        """Forget all attempts that wait, and return them."""
        return tuple(task for queue in self._queues for task in queue.give_back())

    def fail(self, failure: Failure) -> None:
        """Answer all attempts with a failure, now and later."""
        for queue in self._queues:
            queue.broken = failure
            queue.fail_pending(failure)

    def seconds(self) -> float:
        """Return the expected seconds of the attempts that wait, each counted as `ENOUGH_SECONDS` at most."""
        total = 0.0
        for queue in self._queues:
            ahead = [*islice(queue.suspects, _MOST_LOOKED_AT), *islice(queue.pending, _MOST_LOOKED_AT)]
            expected = [max(self._expected.of(member.template) for member in members(task)) for task in ahead]
            counted = sum(
                _UNKNOWN_SECONDS if duration == inf else min(duration, ENOUGH_SECONDS) for duration in expected
            )
            waiting = len(queue.suspects) + len(queue.pending)
            total += counted * waiting / max(len(ahead), 1)
        return total

    def send_alone(self, drops: set[int]) -> None:
        """Put the next attempts of these drops into batches of their own."""
        self._single.update(drops)

    def note(self, task: Task, result: AttemptResult) -> None:
        """Note how long an attempt took."""
        if result.failure is None:
            self._expected.note(task.template, result.seconds)

    def next_batch(
        self, slots: int, long: int, short: int, loads: Mapping[int, float] | None = None
    ) -> NextBatch | None:
        """Remove and return attempts that the engine should have now; None if it has enough.

        Parameters
        ----------
        slots : int
            Number of attempts that its workers run at a time.
        long : int
            Slots of the long batches that it has, for which other attempts should not wait.
        short : int
            Number of the other batches that it has.
        loads : mapping of int to float, optional
            By place: batches of its workers for each of their slots.
        """
        queue = self._next_queue(loads or {})
        if queue is None:
            return None
        first = (queue.suspects or queue.pending)[0]
        taken = min(queue.needs_of(first).cpus, slots)
        is_long = taken > 1 or max(self._expected.of(member.template) for member in members(first)) >= LONG_SECONDS
        if queue.suspects or is_long or self.goes_alone or queue.needs_own_worker:
            # No more than there are slots, so that each slot that becomes free can get one.
            if long + short + taken > slots:
                return None
            return [queue.suspects.popleft()] if queue.suspects else queue.take_batch(1, 0.0), queue, taken, True
        # A batch runs in each slot that is left, and another one is there when it ends.
        if short >= 2 * (slots - long):
            return None
        share = -(-len(queue.pending) // slots)
        return queue.take_batch(min(share, _MOST_IN_BATCH), _BATCH_SECONDS), queue, 1, False

    def _next_queue(self, loads: Mapping[int, float]) -> PlaceQueue | None:
        """Return the queue whose attempt is next.

        It is the queue of the place whose workers are least busy: otherwise, attempts of another place would run there.
        Among several such queues, the one with the greatest priority is next; equal queues take turns.
        """
        waiting = [queue for queue in (*self._queues[self._turn :], *self._queues[: self._turn]) if queue.is_waiting]
        if not waiting:
            return None
        self._turn = (waiting[0].number + 1) % len(self._queues)
        return min(
            waiting, key=lambda queue: (loads.get(queue.number, 0.0), -(queue.suspects or queue.pending)[0].priority)
        )


class ExternalRunner:
    """`dropflow.execution.interfaces.Runner` of one session.

    Parameters
    ----------
    engine : Engine
        Runs attempts.
    spec : ExecutorSpec
        Specification of the executors. ``files``, ``logs`` and ``tmp`` exist in its directory.
    factory : str
        ``package.module:function`` that makes an `Executor` from the spec.
    most : int, optional
        Most attempts that run at a time; by default as many as the workers of the engine take.
    places : sequence of str
        Names of the nodes of the graph, if it is placed.
    place_of : int array, optional
        Place of each drop.
    """

    window = _WINDOW_ATTEMPTS

    def __init__(
        self,
        engine: Engine,
        spec: ExecutorSpec,
        *,
        factory: str = BUILD_EXECUTOR,
        most: int | None = None,
        places: Sequence[str] = (),
        place_of: IntColumn | None = None,
    ) -> None:
        self._engine, self._spec, self._factory = engine, spec, factory
        self._most = most or _WINDOW_ATTEMPTS
        self._places = tuple(places)
        self._clock = SystemClock()
        self._inbox: Inbox[Callable[[], None]] = Inbox()
        self._commands: deque[Callable[[], None]] = deque()
        """Taken from the inbox, and not called yet."""
        self._deliver: ResultSink = discard_results
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._is_closed = self._ending = False
        # Of the thread.
        self._numbers = itertools.count(1)
        self._waiting = WaitingAttempts(spec, self._deliver_results, len(self._places), place_of)
        self._sent = SentBatches()
        self._workers: Sequence[WorkerView] = ()
        self._of_place: Mapping[int, tuple[str, ...]] = {}
        self._slots = 0
        self._without_workers_since = self._clock.monotonic()
        self._pinged = -math.inf
        self._recalled = 0.0
        self._wanted, self._told = 0.0, -inf
        self._broken: Failure | None = None
        self._running: Mapping[int, int] = {}

    # From any thread.

    @property
    def running(self) -> Mapping[int, int]:
        """The drops of the first attempt of each batch that workers may run now."""
        return self._running

    def start(self, deliver: ResultSink) -> None:
        """Connect to the engine, or start it.

        Raises
        ------
        DropflowError
            It cannot be reached, or its workers cannot run attempts of this session.
        """
        self._deliver = deliver
        events = EngineEvents(
            answered=lambda answer, is_last: self._command(lambda: self._on_answer(answer, is_last=is_last)),
            lost=lambda number, why: self._command(lambda: self._on_lost(number, why)),
            workers=lambda workers: self._command(lambda: self._on_workers(workers)),
            broken=lambda why: self._command(lambda: self._on_broken(why)),
        )
        workers = self._engine.start(self._spec, self._factory, events)
        self._command(lambda: self._on_workers(workers))
        self._thread.start()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue `tasks`."""
        batch = tuple(tasks)
        if batch:
            self._command(lambda: self._waiting.add(batch))

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Remove an attempt that waits, or have its worker stop it; without an answer, give the attempt up."""
        self._command(lambda: self._abort((drop, attempt), grace))

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`; workers return attempts that have not begun."""
        self._command(lambda: self._hold(is_held=is_held))

    def give_back(self) -> Sequence[Task]:
        """Return the attempts that the engine does not have; none if the thread is busy for seconds."""
        if self._is_closed or not self._thread.is_alive():
            return ()
        given: Future[tuple[Task, ...]] = Future()

        def answer() -> None:
            if given.set_running_or_notify_cancel():
                given.set_result(self._waiting.give_back())

        self._command(answer)
        try:
            return given.result(_GIVE_BACK_SECONDS)
        except TimeoutError:
            return () if given.cancel() else given.result()

    def interrupt(self) -> None:
        """Do nothing: the session's thread is free to process its cancel, and aborts follow."""

    def close(self) -> None:
        """Stop everything, and leave the engine; idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread.ident is not None:
            self._command(self._end)
            self._thread.join(_RUNNER_CLOSE_SECONDS)
        self._engine.close()

    def _command(self, command: Callable[[], None]) -> None:
        self._inbox.put([command])

    # Everything below runs in the thread of the runner.

    def _serve(self) -> None:
        while not self._ending:
            try:
                self._take_turn()
            except Exception as error:  # noqa: BLE001 - the session must not wait forever
                _log.exception("the thread of a runner failed: this is a bug of dropflow")
                self._on_broken(f"the thread of its runner failed: {summary_of(error)}")

    def _take_turn(self) -> None:
        self._commands += self._inbox.drain(0.0 if self._commands else self._timeout())
        while self._commands:
            self._commands.popleft()()
        now = self._clock.monotonic()
        if self._broken is None and not self._ending:
            self._keep(now)
            self._assign(now)
            self._tell_want(now)
        self._running = dict.fromkeys(self._sent.running[: max(self._slots, 1)], 0)

    def _end(self) -> None:
        self._ending = True
        self._aborts([*self._sent.keys], 0.0)

    def _timeout(self) -> float | None:
        if self._broken is not None:
            return None  # nothing is due any more
        now = self._clock.monotonic()
        due = [self._pinged + _PING_SECONDS]
        if self._wanted or self._waiting:
            due.append(self._told + _WANT_SECONDS)
        for _, sent in self._sent.numbered():
            due += sent.aborted.values()
            if len(sent.tasks) > 1 or (sent.tasks and not sent.is_long):
                due.append(max(sent.since, self._recalled) + _SLOW_SECONDS)
        return max(0.0, min(due) - now)

    def _keep(self, now: float) -> None:
        """Carry out due steps: send signs of life to workers, recall attempts, and give up those without an answer."""
        if now >= self._pinged + _PING_SECONDS:
            self._pinged = now
            self._engine.ping()
        if now >= self._recalled + _SLOW_SECONDS:
            slow = {number: sent for number, sent in self._sent.numbered() if now >= sent.since + _SLOW_SECONDS}
            # A short attempt that is alone in its batch may wait behind a long one: it is recalled once.
            wanted = [number for number, sent in slow.items() if len(sent.tasks) > 1 or not sent.is_long]
            for sent in slow.values():
                sent.is_long = True
            if wanted:
                self._recalled = now
                self._engine.recall(wanted)
        for number, sent in self._sent.numbered():
            if sent.aborted and min(sent.aborted.values()) <= now:
                self._engine.discard(number)
                self._on_lost(number, f"its {self._engine.name} worker did not stop it")
        if self._slots or not self._waiting:
            self._without_workers_since = now
        elif now >= self._without_workers_since + _NO_WORKERS_SECONDS:
            self._on_broken(f"it has had no workers for {_NO_WORKERS_SECONDS:g} s")

    # Attempts to the engine.

    def _assign(self, now: float) -> None:
        """Send batches while the engine should have more."""
        if not self._slots:
            return
        slots = min(self._slots, self._most)
        while True:
            batches = [sent for _, sent in self._sent.numbered()]
            long = sum(sent.slots for sent in batches if sent.is_long)
            short = sum(not sent.is_long for sent in batches)
            batch = self._waiting.next_batch(slots, long, short, self._loads(batches))
            if batch is None:
                return
            tasks, queue, taken, is_long = batch
            number = next(self._numbers)
            self._sent.add(number, tasks, queue, slots=taken, since=now, is_long=is_long)
            node = self._spec.templates[tasks[0].template]
            self._engine.submit(
                Batch(number, tuple(tasks)), node.name or node.key, self._of_place.get(queue.number, ())
            )

    def _tell_want(self, now: float) -> None:
        """Inform the engine how much work waits, if that has changed."""
        if now >= self._told + _WANT_SECONDS:
            self._told, wanted = now, self._waiting.seconds()
            if wanted != self._wanted:
                self._wanted = wanted
                self._engine.want(wanted)

    def _loads(self, batches: Iterable[SentBatch]) -> Mapping[int, float]:
        """Return by place the number of batches of its workers for each of their slots."""
        busy: Counter[tuple[str, ...]] = Counter()
        for sent in batches if self._places else ():
            busy[self._of_place.get(sent.queue.number, ())] += sent.slots
        slots = {worker.name: worker.slots for worker in self._workers}
        return {
            place: busy[names] / max(sum(slots.get(name, 0) for name in names), 1)
            for place, names in self._of_place.items()
        }

    def _hold(self, *, is_held: bool) -> None:
        self._waiting.hold(is_held=is_held)
        if is_held:
            self._engine.recall([number for number, sent in self._sent.numbered() if len(sent.tasks) > 1])

    def _abort(self, key: AttemptKey, grace: float) -> None:
        sent = self._sent.of(key)
        if sent is None:
            self._waiting.abort(key)
            return
        sent.aborted[key] = self._clock.monotonic() + kill_after(grace) + MARGIN_SECONDS
        self._aborts([key], grace)

    def _aborts(self, keys: Sequence[AttemptKey], grace: float) -> None:
        if keys and self._broken is None:
            self._engine.abort(keys, grace)

    # Answers of the engine.

    def _on_answer(self, answer: BatchAnswer, *, is_last: bool) -> None:
        results = []
        for task, result in self._sent.answer(answer):
            if result is not None:
                results.append(result)
                self._waiting.note(task, result)
        self._deliver_results(results)
        if is_last and not self._sent.end(answer.number):
            self._on_lost(answer.number, f"the {self._engine.name} worker {answer.worker} did not answer for it")

    def _on_lost(self, number: int, why: str) -> None:
        hint = f"see the logs of the workers of {self._engine.name}; a lack of memory is a frequent cause"
        results, single = self._sent.lose(number, why, hint)
        self._waiting.send_alone(single)
        self._deliver_results(results)

    def _on_workers(self, workers: Sequence[WorkerView]) -> None:
        self._workers = tuple(workers)
        self._slots = sum(worker.slots for worker in self._workers)
        self._waiting.goes_alone = any(worker.is_detached for worker in self._workers)
        self._of_place = workers_of_places(self._places, self._workers) if self._places else {}

    def _on_broken(self, why: str) -> None:
        """Answer all attempts with a failure, now and later."""
        if self._broken is not None or self._ending:
            return
        self._broken = Failure.of(
            WorkerStartError(
                f"{self._engine.name} cannot be used any more: {why}",
                hint="'dropflow resume' goes on with a run, with any runner; 'dropflow retry' with a session on a node",
            )
        )
        for number, _ in self._sent.numbered():
            self._deliver_results(self._sent.fail(number, self._broken))
        self._waiting.fail(self._broken)

    def _deliver_results(self, results: Sequence[StreamOpened | AttemptResult]) -> None:
        if results and not self._ending:
            self._deliver(results)


# Addresses of engines: ``tcp://host:8786`` of a Dask scheduler, ``host:6379`` of a Ray cluster.


def check_address(kind: str, address: str) -> None:
    """Raise if an address is not a valid one of an engine, ``dask`` or ``ray``. Does not try to connect.

    Raises
    ------
    BadParameterError
        It has a wrong scheme, or no host or port.
    """
    if kind == "ray" and address == "auto":
        return
    scheme, host, port = _parts(address)
    if scheme and scheme not in _SCHEMES[kind]:
        client = "; it cannot be used through a Ray Client server" if scheme == "ray" else ""
        raise BadParameterError(
            f"the address {address!r} of {kind} has the scheme {scheme!r}{client}", hint=_HINTS[kind]
        )
    if not host or port is None:
        raise BadParameterError(f"the address {address!r} of {kind} is not a host and a port", hint=_HINTS[kind])


def refuse_silent(kind: str, address: str, seconds: float) -> None:
    """Raise if no engine answers at an address. The client of the engine may need minutes for that, or wait forever.

    A process of Dask sends a greeting as soon as it is connected. Any other process is not a scheduler.

    Raises
    ------
    LinkError
        The host is not known, or no such process accepts a connection there in time.
    """
    scheme, host, port = _parts(address)
    if scheme not in _SOCKETS or not host or port is None:
        return
    what = "Dask scheduler" if kind == "dask" else "Ray cluster"
    is_greeted = True
    try:
        with socket.create_connection((host, port), seconds) as connection:
            if kind == "dask" and scheme != "tls":
                is_greeted = bool(connection.recv(1))
    except TimeoutError:
        reason = f"nothing was received in {seconds:g} s"
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeError:
        reason = f"{host!r} is not the name of a host"
    else:
        if is_greeted:
            return
        reason = "the connection was closed"
    raise LinkError(f"there is no {what} that answers: {reason}", where=address, hint=_HINTS[kind])


def _parts(address: str) -> tuple[str, str, int | None]:
    """Return the scheme, host and port of an address; a port of None if there is none."""
    scheme, separator, rest = address.rpartition("://")
    try:
        split = urlsplit(f"//{rest}")
        host, port = split.hostname or "", split.port
    except ValueError:
        host, port = "", None
    return scheme if separator else "", host, port
