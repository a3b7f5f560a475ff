"""The batches that an engine has, and what its answers mean for their attempts. Does no I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from dropflow.engine.api import AttemptResult, Task
from dropflow.engine.chained_tasks import members, not_begun
from dropflow.engine.external.engine import AttemptKey, BatchAnswer
from dropflow.engine.external.place_queue import PlaceQueue
from dropflow.engine.runners.aborted import aborted
from dropflow.errors import ResultLostError, WorkerDiedError
from dropflow.failure import Failure

__all__ = ["SentBatch", "SentBatches"]


@dataclass
class SentBatch:
    """A batch that the engine has."""

    tasks: dict[AttemptKey, Task]
    """Its attempts that are not answered, in order."""
    queue: PlaceQueue
    """Where its attempts have waited."""
    slots: int
    since: float
    is_long: bool
    """Whether other attempts should not wait for it."""
    had_one: bool
    """Whether it was sent with a single attempt."""
    aborted: dict[AttemptKey, float] = field(default_factory=dict)
    """Attempts that were aborted, and until when they are waited for."""


class SentBatches:
    """The batches that an engine has, by number.

    An attempt is in one batch at most, and leaves it with its answer, so what comes twice or late changes nothing.
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
        chosen = {(one.drop, one.attempt): one for task in tasks for one in members(task)}
        self._batches[number] = SentBatch(chosen, queue, slots, since, is_long, len(chosen) == 1)
        self._batch_of.update(dict.fromkeys(chosen, number))

    def of(self, key: AttemptKey) -> SentBatch | None:
        """Return the batch that an attempt is in; None if it is in none."""
        number = self._batch_of.get(key)
        return None if number is None else self._batches[number]

    def answer(self, answer: BatchAnswer) -> Iterator[tuple[Task, AttemptResult | None]]:
        """Remove the attempts that an answer is about; yield each with its result, or None if it waits again."""
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
                # Those that follow it have been answered.
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

        An attempt that was alone had an infrastructure fault. Which of several has begun, or has ended the worker, is
        not known: all are repeated without being counted, and each of them alone.
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
