"""Asking many managers at once, with one deadline for all.

Each call has a thread for itself, which is left behind when it does not come back in time: a child that hangs costs its
caller the deadline, and nobody else anything. How many calls may hang on one child is bounded. Threads belong to one
child and are used again, because clients keep a connection for each.
"""

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from dropflow.clock import Clock
from dropflow.errors import DropflowError, InternalError, LinkError

__all__ = ["Fanout", "Outcome"]

_LOG = logging.getLogger("dropflow.composite")

_Jobs = queue.SimpleQueue[Callable[[], None] | None]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def _nobody(_: object) -> bool:
    return False


@dataclass(frozen=True)
class Outcome(Generic[Value]):
    """What became of one call: its value, or its error.

    Attributes
    ----------
    value : object or None
        None also for a call that answered nothing; look at `error` first.
    error : DropflowError or None
        None when the call succeeded.
    late : bool
        It was not back at the deadline, and may still be doing what it was asked.
    """

    value: Value | None = None
    error: DropflowError | None = None
    late: bool = False


class Fanout:
    """Calls in parallel.

    Parameters
    ----------
    clock : Clock
        For deadlines.
    limit : int
        Calls with the same key that may be under way at a time; more are refused at once.
    """

    def __init__(self, clock: Clock, *, limit: int = 32) -> None:
        self._clock = clock
        self._limit = limit
        self._lock = threading.Lock()
        self._threads: Counter[Hashable] = Counter()
        self._idle: dict[Hashable, list[_Jobs]] = {}
        self._closed = False

    def ask(
        self,
        calls: Mapping[Key, Callable[[], Value]],
        *,
        seconds: float,
        discard: Callable[[Value], None] | None = None,
        is_alive: Callable[[Key], bool] = _nobody,
        longest: float = 0.0,
        grace: float | None = None,
    ) -> dict[Key, Outcome[Value]]:
        """Make all calls at once and wait for them, for `seconds` at most.

        At the deadline, and again after as many seconds, those that are still under way are waited for if one of them
        `is_alive`, until `longest` is over.

        Parameters
        ----------
        calls : mapping
            By anything that names whom they go to.
        discard : callable, optional
            Gets each value that comes after the deadline.
        is_alive : callable
            Whether there is hope for a call that is late. Asked once for each, at each deadline.
        grace : float, optional
            Wait only for so many seconds after the first error. Calls that are still under way then are late, and have
            no error.

        Returns
        -------
        dict
            An outcome for every call, in the order of `calls`. Errors that are not dropflow's become `InternalError`.
        """
        done: queue.SimpleQueue[tuple[Key, Outcome[Value]]] = queue.SimpleQueue()
        over = threading.Event()
        found: dict[Key, Outcome[Value]] = {}
        end = self._clock.monotonic() + max(seconds, longest)
        deadline = self._clock.monotonic() + seconds
        for key, call in calls.items():
            if not self.spawn(key, _Work(key, call, done, over, discard).run):
                found[key] = Outcome(error=LinkError(f"{self._limit} earlier requests have no answer yet"), late=True)
        has_failed = False
        while len(found) < len(calls):
            if grace is not None and not has_failed and any(outcome.error is not None for outcome in found.values()):
                has_failed = True
                deadline = min(deadline, self._clock.monotonic() + grace)
            try:
                key, outcome = done.get(timeout=max(deadline - self._clock.monotonic(), 0.0))
            except queue.Empty:
                if has_failed:
                    break
                alive = [key for key in calls if key not in found and is_alive(key)]
                if not alive or self._clock.monotonic() + seconds > end:
                    break
                deadline += seconds
                continue
            found[key] = outcome
        over.set()
        while not done.empty():  # what arrived between the deadline and the line above
            key, outcome = done.get()
            found[key] = outcome
        waited = self._clock.monotonic() - end + max(seconds, longest)
        late = None if has_failed else LinkError(f"no answer within {max(waited, seconds):.3g} s")
        missing = Outcome[Value](error=late, late=True)
        return {key: found.get(key, missing) for key in calls}

    def spawn(self, key: Hashable, job: Callable[[], None]) -> bool:
        """Run `job`, which must not raise, in a thread for `key`; False if all that it may have are busy."""
        with self._lock:
            if self._closed:
                return False
            idle = self._idle.setdefault(key, [])
            if idle:
                jobs = idle.pop()
            elif self._threads[key] < self._limit:
                self._threads[key] += 1
                jobs = queue.SimpleQueue()
                threading.Thread(target=self._work, args=(key, jobs), name=f"ask:{key}", daemon=True).start()
            else:
                return False
        jobs.put(job)
        return True

    def release(self, key: Hashable) -> None:
        """End the idle threads for `key`: it is not asked any more for now."""
        with self._lock:
            idle = self._idle.pop(key, [])
        for jobs in idle:
            jobs.put(None)

    def close(self) -> None:
        """End all idle threads; those at work end after it. Idempotent."""
        with self._lock:
            self._closed = True
            keys = list(self._idle)
        for key in keys:
            self.release(key)

    def _work(self, key: Hashable, jobs: "_Jobs") -> None:
        while (job := jobs.get()) is not None:
            job()
            with self._lock:
                if self._closed or key not in self._idle:
                    break
                self._idle[key].append(jobs)
        with self._lock:
            self._threads[key] -= 1
            if not self._threads[key]:
                del self._threads[key]


@dataclass(frozen=True)
class _Work(Generic[Key, Value]):
    """One call and where its outcome goes."""

    key: Key
    call: Callable[[], Value]
    done: "queue.SimpleQueue[tuple[Key, Outcome[Value]]]"
    over: threading.Event
    discard: Callable[[Value], None] | None

    def run(self) -> None:
        try:
            value = self.call()
        except DropflowError as error:
            self.done.put((self.key, Outcome(error=error)))
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked must hear of it
            _LOG.exception("a call to %s failed", self.key)
            wrapped = InternalError(f"the call failed: {type(error).__name__}: {error}", hint="please report it")
            wrapped.__cause__ = error
            self.done.put((self.key, Outcome(error=wrapped)))
        else:
            if self.over.is_set() and self.discard is not None:
                self.discard(value)
            else:
                self.done.put((self.key, Outcome(value)))
