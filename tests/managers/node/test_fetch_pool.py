"""Threads that fetch: peers do not stand in each other's way."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from managers.node.fetch_pool import FetchPool


@pytest.fixture
def fetch_pool() -> Iterator[FetchPool]:
    """Four threads, two of them for each peer."""
    with closing(FetchPool(4, 2)) as made:
        yield made


def test_a_peer_that_does_not_answer_holds_up_nobody_else(fetch_pool: FetchPool) -> None:
    """However much is to be fetched from it, what others have comes."""
    stuck, come = threading.Event(), threading.Semaphore(0)
    for _ in range(100):
        fetch_pool.submit("stuck", lambda: bool(stuck.wait(30)) and None)
    for _ in range(100):
        fetch_pool.submit("quick", come.release)
    arrived = [come.acquire(timeout=10) for _ in range(100)]
    stuck.set()

    assert all(arrived)


def test_everything_is_fetched_once_and_forgotten(fetch_pool: FetchPool) -> None:
    """What had to wait for its turn comes too, in its order for each peer; nothing is remembered of it."""
    got: list[int] = []
    done, alone = threading.Semaphore(0), FetchPool(4, 1)
    with closing(alone):
        for number in range(50):
            alone.submit("a", lambda number=number: (got.append(number), done.release())[0])  # type: ignore[misc]
        for number in range(50):
            fetch_pool.submit(f"peer-{number % 5}", done.release)
        arrived = [done.acquire(timeout=10) for _ in range(100)]

    assert all(arrived)
    assert got == list(range(50))
    pause = threading.Event()
    assert any(not (fetch_pool._busy or fetch_pool._waiting) or pause.wait(0.01) for _ in range(1000))


def test_a_job_that_raises_does_not_cost_a_place(fetch_pool: FetchPool) -> None:
    """The next ones for that peer still have their turn."""
    done = threading.Event()
    for _ in range(5):
        fetch_pool.submit("a", lambda: int("x") and None)
    fetch_pool.submit("a", done.set)

    assert done.wait(10)


def test_after_the_end_nothing_begins(fetch_pool: FetchPool) -> None:
    """Jobs that come late, or wait for their turn, are left out."""
    begun, go, late = threading.Event(), threading.Event(), threading.Event()
    for _ in range(2):
        fetch_pool.submit("a", lambda: (begun.set(), go.wait(30))[0])
    fetch_pool.submit("a", late.set)
    assert begun.wait(10)
    fetch_pool.close()
    fetch_pool.submit("b", late.set)
    go.set()
    fetch_pool._pool.shutdown(wait=True)

    assert not late.is_set()
