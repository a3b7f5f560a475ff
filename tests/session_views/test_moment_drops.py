"""The list of drops as it was at a moment."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.api.records import DropInfo, DropQuery
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import DropState
from dropflow.testing.strategies import graphs
from dropflow.times.attempts import attempts_of
from dropflow.times.moments import moments_of
from dropflow.web.cause_groups import order_of
from dropflow.web.times import drops_at
from tests.times.made_times import executed, sections_of

_SORTS = ["", *(sign + name for sign in ("", "-") for name in ("row", "id", "name", "state", "node", "attempt"))]


def _all(graph: PhysicalGraph, seed: int, share: float, **filters: Any) -> tuple[list[DropInfo], float, Any]:
    attempts = attempts_of(sections_of(executed(graph, seed)))
    moments = moments_of(graph, attempts, np.full(graph.drops, DropState.COMPLETED, np.uint8))
    time = max(moments.start + share * (moments.end - moments.start), 1.0)
    found, total = [], 1
    while len(found) < total:
        page = drops_at(graph, attempts, moments, DropQuery(time=time, offset=len(found), limit=3, **filters))
        assert page.total == len(page.drops) or len(page.drops) == 3 or len(found) + len(page.drops) == page.total
        found, total = found + list(page.drops), page.total
    return found, time, (attempts, moments)


@settings(max_examples=30)
@given(graphs(), st.integers(0, 1000), st.floats(0, 1), st.sampled_from(_SORTS), st.sampled_from(list(DropState)))
def test_the_list_is_that_of_the_moment(
    graph: PhysicalGraph, seed: int, share: float, sort: str, state: DropState
) -> None:
    """Each drop has its state, its last attempt and the node of that; pages, filters, orders as of the list."""
    found, time, (attempts, moments) = _all(graph, seed, share)
    assert [DropState[one.state] for one in found] == moments.at(time).tolist()
    for one in found:
        mine = [at for at in range(len(attempts)) if attempts.drop[at] == one.drop and attempts.ready[at] <= time]
        last = max(mine, key=lambda at: attempts.attempt[at], default=None)
        assert one.attempt == (1 if last is None else attempts.attempt[last])
        if last is not None:
            assert one.node == attempts.nodes[attempts.node[last]]
            if one.is_running is not None:
                assert one.is_running == (attempts.began[last] <= time < attempts.ended[last])
    in_state, _, _ = _all(graph, seed, share, state=state.name)
    assert in_state == [one for one in found if one.state == state.name]
    if sort:
        key, is_reversed = order_of(sort)
        assert _all(graph, seed, share, sort=sort)[0] == sorted(found, key=key, reverse=is_reversed)
    some = found[len(found) // 2]
    assert _all(graph, seed, share, oid=some.oid)[0] == [some]
    assert _all(graph, seed, share, node=some.node)[0] == [
        one for one in found if one.node == some.node or not some.node
    ]
