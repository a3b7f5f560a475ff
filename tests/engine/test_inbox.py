"""The inbox: no item is lost, and the items of each writer keep their order."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from dropflow.engine.inbox import Inbox


@given(st.lists(st.lists(st.integers(), max_size=3), max_size=5))
def test_everything_is_drained_once_and_in_order(batches: list[list[int]]) -> None:
    """One call returns all items, in order; after that the inbox is empty."""
    inbox: Inbox[int] = Inbox()
    for batch in batches:
        inbox.put(batch)

    assert inbox.drain(0) == [item for batch in batches for item in batch]
    assert inbox.drain(0) == []


def test_a_reader_that_waits_is_woken() -> None:
    """A reader without a timeout is woken by items of other threads, and gets those of each thread in order."""
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
