"""The runner of a session whose attempts another engine runs.

It has the attempts that wait, so that order, pause, cancel and the loss of workers are decided here, and gives the
engine no more than its workers run now, and what they will run in the next moments. Short attempts go in batches, since
a task of an engine takes milliseconds of its scheduler. Behind an attempt that turns out to be long nothing waits: what
its batch has left is recalled.

What the loss of a batch means for its attempts is decided in `dropflow.engine.external.sent_batches`.
"""

import itertools
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

from dropflow.clock import Clock, SystemClock
from dropflow.engine.api import AttemptResult, ExecutorSpec, ResultSink, StreamOpened, Task
from dropflow.engine.external.engine import AttemptKey, Batch, BatchAnswer, Engine, EngineEvents, WorkerView
from dropflow.engine.external.place_queue import workers_of_places
from dropflow.engine.external.sent_batches import SentBatch, SentBatches
from dropflow.engine.external.waiting_attempts import WaitingAttempts
from dropflow.engine.inbox import Inbox
from dropflow.errors import WorkerStartError
from dropflow.exception_text import summary_of
from dropflow.failure import Failure
from dropflow.graph.physical import IntColumn
from dropflow.stopping import GRACE_SECONDS, MARGIN_SECONDS, kill_after

__all__ = ["ExternalRunner"]

_LOG = logging.getLogger(__name__)

_WINDOW = 8192
_SLOW_SECONDS = 0.25
"""How long a batch may take before what has not begun of it is recalled; and how often that is repeated."""
_PING_SECONDS = 5.0
_NO_WORKERS_SECONDS = 120.0
"""How long attempts wait for an engine that has no workers."""
_ANSWER_SECONDS = 5.0
_CLOSE_SECONDS = 10.0


class ExternalRunner:
    """`dropflow.engine.api.Runner` of one session.

    Parameters
    ----------
    engine : Engine
        What runs attempts.
    spec : ExecutorSpec
        What executors are built from. ``files``, ``logs`` and ``tmp`` exist in its directory.
    factory : str
        ``package.module:function`` that makes an `Executor` from the spec.
    most : int, optional
        How many attempts run at a time; by default as many as the workers of the engine take.
    places : sequence of str
        Names of the nodes of the graph, if it is placed.
    place_of : int array, optional
        Place of each drop.
    clock : Clock, optional
        Time.
    """

    window = _WINDOW

    def __init__(
        self,
        engine: Engine,
        spec: ExecutorSpec,
        *,
        factory: str = "dropflow.apps.execute:build",
        most: int | None = None,
        places: Sequence[str] = (),
        place_of: IntColumn | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._engine, self._spec, self._factory = engine, spec, factory
        self._most = most or _WINDOW
        self._places = tuple(places)
        self._clock = clock or SystemClock()
        self._inbox: Inbox[Callable[[], None]] = Inbox()
        self._deliver: ResultSink = _discard
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._is_closed = self._ending = False
        # Of the thread.
        self._numbers = itertools.count(1)
        self._waiting = WaitingAttempts(spec, self._deliver_results, len(self._places), place_of)
        self._sent = SentBatches()
        self._workers: Sequence[WorkerView] = ()
        self._of_place: Mapping[int, tuple[str, ...]] = {}
        self._slots = 0
        self._without_workers_since = 0.0
        self._pinged = -math.inf
        self._recalled = 0.0
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
        """Forget an attempt that waits, or have its worker stop it; if that does not answer, it is given up."""
        self._command(lambda: self._abort((drop, attempt), grace))

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`; workers return those that have not begun."""
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
            return given.result(_ANSWER_SECONDS)
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
            self._thread.join(_CLOSE_SECONDS)
        self._engine.close()

    def _command(self, command: Callable[[], None]) -> None:
        self._inbox.put([command])

    # Everything below runs in the thread of the runner.

    def _serve(self) -> None:
        while not self._ending:
            try:
                self._take_turn()
            except Exception as error:  # noqa: BLE001 - the session must not wait forever
                _LOG.exception("the thread of a runner failed: this is a bug of dropflow")
                self._on_broken(f"the thread of its runner failed: {summary_of(error)}")

    def _take_turn(self) -> None:
        for command in self._inbox.drain(self._timeout()):
            command()
        now = self._clock.monotonic()
        if self._broken is None and not self._ending:
            self._keep(now)
            self._assign(now)
        self._running = dict.fromkeys(self._sent.running[: max(self._slots, 1)], 0)

    def _end(self) -> None:
        self._ending = True
        self._aborts([*self._sent.keys], 0.0)

    def _timeout(self) -> float:
        now = self._clock.monotonic()
        due = [self._pinged + _PING_SECONDS]
        for _, sent in self._sent.numbered():
            due += sent.aborted.values()
            if len(sent.tasks) > 1 or (sent.tasks and not sent.is_long):
                due.append(max(sent.since, self._recalled) + _SLOW_SECONDS)
        return max(0.0, min(due) - now)

    def _keep(self, now: float) -> None:
        """Do what is due: tell workers that the session is alive, recall, and give up what does not answer."""
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
        if self._slots:
            self._without_workers_since = now
        elif now >= self._without_workers_since + _NO_WORKERS_SECONDS and self._waiting:
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
            found = self._waiting.next_batch(slots, long, short, self._loads(batches))
            if found is None:
                return
            tasks, queue, taken, is_long = found
            number = next(self._numbers)
            self._sent.add(number, tasks, queue, slots=taken, since=now, is_long=is_long)
            node = self._spec.templates[tasks[0].template]
            self._engine.submit(
                Batch(number, tuple(tasks)), node.name or node.key, self._of_place.get(queue.number, ())
            )

    def _loads(self, batches: Iterable[SentBatch]) -> Mapping[int, float]:
        """Return how many batches the workers of each place have, for each of their slots."""
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
        self._of_place = workers_of_places(self._places, self._workers) if self._places else {}

    def _on_broken(self, why: str) -> None:
        """Answer all attempts with a failure, now and later."""
        if self._broken is not None or self._ending:
            return
        self._broken = Failure.of(
            WorkerStartError(
                f"{self._engine.name} cannot be used any more: {why}",
                hint="'dropflow resume' goes on with the session, with any runner",
            )
        )
        for number, _ in self._sent.numbered():
            self._deliver_results(self._sent.fail(number, self._broken))
        self._waiting.fail(self._broken)

    def _deliver_results(self, results: Sequence[StreamOpened | AttemptResult]) -> None:
        if results and not self._ending:
            self._deliver(results)


def _discard(_: Iterable[StreamOpened | AttemptResult]) -> None:
    """Stand in for the sink of a runner that has not been started."""
