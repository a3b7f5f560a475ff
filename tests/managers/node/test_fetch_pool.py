"""The pool of threads that fetch contents: no peer delays the fetches from others."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from dropflow.errors import LinkError
from managers.links import Sink, TransferResult, WantedContent
from managers.node.fetch_pool import FetchJob, FetchPool, PendingFetch


class Echo:
    """Returns the number of a drop as its content; drop 0 cannot be fetched."""

    def fetch(
        self, peer: str, wanted: WantedContent, sink: Sink, /, *, timeout: float | None, give_up: Callable[[], bool]
    ) -> TransferResult:
        """Write one byte to `sink`."""
        del timeout, give_up
        if not wanted.drop:
            raise LinkError(f"node {peer!r} does not send")
        sink(0, memoryview(bytes([wanted.drop])))
        return TransferResult(1, wanted.drop)


@pytest.fixture
def fetch_pool() -> Iterator[FetchPool]:
    """Return a pool of four threads, at most two for each peer."""
    with closing(FetchPool(Echo(), 4, 2)) as made:
        yield made


def test_a_peer_that_does_not_answer_does_not_delay_others(fetch_pool: FetchPool) -> None:
    """However many fetches wait for it, fetches from other peers are carried out."""
    stuck, come = threading.Event(), threading.Semaphore(0)
    for _ in range(100):
        fetch_pool.run("stuck", lambda: bool(stuck.wait(30)) and None)
    for _ in range(100):
        fetch_pool.run("quick", come.release)
    arrived = [come.acquire(timeout=10) for _ in range(100)]
    stuck.set()

    assert all(arrived)


def test_every_call_is_carried_out_once(fetch_pool: FetchPool) -> None:
    """Calls that had to wait are carried out in the order of each peer; the pool keeps no record of them."""
    got: list[int] = []
    done, alone = threading.Semaphore(0), FetchPool(Echo(), 4, 1)
    with closing(alone):
        for number in range(50):
            alone.run("a", lambda number=number: (got.append(number), done.release())[0])  # type: ignore[misc]
        for number in range(50):
            fetch_pool.run(f"peer-{number % 5}", done.release)
        arrived = [done.acquire(timeout=10) for _ in range(100)]

    assert all(arrived)
    assert got == list(range(50))
    pause = threading.Event()
    assert any(not (fetch_pool._busy or fetch_pool._waiting) or pause.wait(0.01) for _ in range(1000))


def test_a_call_that_raises_occupies_no_thread(fetch_pool: FetchPool) -> None:
    """The next calls for that peer are carried out."""
    done = threading.Event()
    for _ in range(5):
        fetch_pool.run("a", lambda: int("x") and None)
    fetch_pool.run("a", done.set)

    assert done.wait(10)


def test_a_closed_pool_starts_no_calls(fetch_pool: FetchPool) -> None:
    """Calls that are submitted late, or still wait, are not carried out."""
    begun, go, late = threading.Event(), threading.Event(), threading.Event()
    for _ in range(2):
        fetch_pool.run("a", lambda: (begun.set(), go.wait(30))[0])
    fetch_pool.run("a", late.set)
    assert begun.wait(10)
    fetch_pool.close()
    fetch_pool.run("b", late.set)
    go.set()
    fetch_pool._pool.shutdown(wait=True)

    assert not late.is_set()


def test_a_job_continues_with_the_result_or_the_error_of_each_fetch(fetch_pool: FetchPool) -> None:
    """Contents arrive one after the other; an error is raised in the job where it waits."""
    got: list[object] = []
    done = threading.Event()

    def job() -> FetchJob:
        for drop in (7, 0, 8):
            wanted = WantedContent(session="s", drop=drop)
            try:
                result = yield PendingFetch(wanted, lambda _, data: got.append(bytes(data)), 1.0, lambda: False)
            except LinkError as error:
                got.append(error.text)
            else:
                got.append(result.checksum)
        done.set()

    fetch_pool.submit("a", job())

    assert done.wait(10)
    assert got == [b"\x07", 7, "node 'a' does not send", b"\x08", 8]
