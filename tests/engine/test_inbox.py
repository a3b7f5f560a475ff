"""An inbox loses nothing, and keeps the order of who put it there."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from dropflow.engine.inbox import Inbox


@given(st.lists(st.lists(st.integers(), max_size=3), max_size=5))
def test_everything_is_drained_once_and_in_order(batches: list[list[int]]) -> None:
    """What was put comes out at once, in order; after that there is nothing."""
    inbox: Inbox[int] = Inbox()
    for batch in batches:
        inbox.put(batch)

    assert inbox.drain(0) == [item for batch in batches for item in batch]
    assert inbox.drain(0) == []


def test_a_reader_that_waits_is_woken() -> None:
    """A reader without a deadline gets what other threads put, however late, each thread's in its order."""
    inbox: Inbox[tuple[int, int]] = Inbox()

    def write(number: int) -> None:
        for at in range(1000):
            inbox.put([(number, at)])

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    taken: list[tuple[int, int]] = []
    while len(taken) < 4000:
        taken += inbox.drain()
    for thread in threads:
        thread.join()

    assert [[at for number, at in taken if number == mine] for mine in range(4)] == [list(range(1000))] * 4
