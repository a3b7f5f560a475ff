"""The attempts of a session that wait for an engine, and which of them it gets next. Does no I/O."""

from collections.abc import Mapping, Sequence

from dropflow.engine.api import AttemptResult, ExecutorSpec, ResultSink, Task
from dropflow.engine.chained_tasks import LONG_SECONDS, members
from dropflow.engine.external.engine import AttemptKey
from dropflow.engine.external.place_queue import PlaceQueue
from dropflow.engine.runners.expected_seconds import ExpectedSeconds
from dropflow.failure import Failure
from dropflow.graph.physical import IntColumn

__all__ = ["NextBatch", "WaitingAttempts"]

_MOST_IN_BATCH = 512
_BATCH_SECONDS = 0.05
"""How long the attempts of a batch are expected to take together."""

NextBatch = tuple[list[Task], PlaceQueue, int, bool]
"""Attempts, their queue, the slots that they take, and whether others should not wait for them."""


class WaitingAttempts:
    """A queue for each place of the placement, or one for all.

    Parameters
    ----------
    spec : ExecutorSpec
        Of the session.
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

    def send_alone(self, drops: set[int]) -> None:
        """Have the next attempts of these drops in batches of their own."""
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
            How many attempts its workers run at a time.
        long : int
            Slots of the batches that it has, if others should not wait for them.
        short : int
            Number of the other batches that it has.
        loads : mapping of int to float, optional
            How busy the workers of each place are.
        """
        queue = self._next_queue(loads or {})
        if queue is None:
            return None
        first = (queue.suspects or queue.pending)[0]
        taken = min(queue.needs_of(first).cpus, slots)
        is_long = taken > 1 or max(self._expected.of(one.template) for one in members(first)) >= LONG_SECONDS
        if queue.suspects or is_long or queue.needs_own_worker:
            # No more than there are slots: so they are wherever one is free.
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

        It is that of the place whose workers are least busy: attempts of another place would run there otherwise. Of
        several, it is that of the greatest priority; queues take turns.
        """
        waiting = [queue for queue in (*self._queues[self._turn :], *self._queues[: self._turn]) if queue.is_waiting]
        if not waiting:
            return None
        self._turn = (waiting[0].number + 1) % len(self._queues)
        return min(
            waiting, key=lambda queue: (loads.get(queue.number, 0.0), -(queue.suspects or queue.pending)[0].priority)
        )
