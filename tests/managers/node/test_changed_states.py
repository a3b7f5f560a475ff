"""States of drops as columns."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.state_records import DropStates
from managers.node.views import StateLog

STATES = st.lists(st.integers(0, 3), min_size=5, max_size=5)


def applied(states: dict[int, int], answer: DropStates) -> dict[int, int]:
    """Return the states after an answer."""
    return states | dict(zip(answer.rows.tolist(), answer.values.tolist(), strict=True))


@given(steps=st.lists(st.tuples(STATES, st.sampled_from(["none", "one", "two", "both"])), min_size=1, max_size=30))
def test_clients_that_ask_now_and_then_have_the_present_states(steps: list[tuple[list[int], str]]) -> None:
    """However often each of them asks, and although the log keeps only the latest changes."""
    drops = np.array([7, 3, 20, 1, 0], dtype=np.int32)
    log = StateLog(drops)
    held: dict[str, dict[int, int]] = {"one": {}, "two": {}}
    cursors = {"one": "", "two": ""}
    for states, asking in steps:
        log.update(np.array(states, dtype=np.uint8))
        for client, before in list(held.items()):
            if asking in (client, "both"):
                answer = log.since(cursors[client])
                held[client] = now = applied(before, answer)
                cursors[client] = answer.cursor

                assert now == dict(zip(drops.tolist(), states, strict=True))


def test_only_changes_are_sent() -> None:
    """An answer has the drops that have changed; without a change, none. An unknown cursor gets all."""
    log = StateLog(np.array([4, 9], dtype=np.int32))
    log.update(np.array([0, 0], dtype=np.uint8))
    first = log.since("")
    log.update(np.array([0, 2], dtype=np.uint8))
    second = log.since(first.cursor)

    assert first.rows.tolist() == [4, 9]
    assert (second.rows.tolist(), second.values.tolist()) == ([9], [2])
    assert log.since(second.cursor).rows.tolist() == []
    assert log.since("another.5").rows.tolist() == [4, 9]
