"""What the thread of a worker pool sees."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from dropflow.runners.worker_pool import WorkerPool

T = TypeVar("T")


def seen(pool: WorkerPool, what: Callable[[WorkerPool], T]) -> T:
    """Return `what(pool)`, called in the pool's thread after all earlier commands."""
    answer: SimpleQueue[T] = SimpleQueue()
    turned = threading.Event()
    pool.command(lambda _: turned.set())
    assert turned.wait(60)
    pool.command(lambda _: answer.put(what(pool)))
    return answer.get(timeout=60)


def until(pool: WorkerPool, is_so: Callable[[WorkerPool], bool]) -> None:
    """Wait until `is_so(pool)`."""
    while not seen(pool, is_so):
        threading.Event().wait(0.01)
