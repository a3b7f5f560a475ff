"""Root causes and sizes at a moment, against one drop at a time."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.api.records import MomentQuery
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import DropState
from dropflow.testing.strategies import graphs
from dropflow.times.attempts import AttemptColumns, attempts_of, ended_by
from dropflow.times.moments import Moments, causes_at, moments_of, size_at
from dropflow.web.times import session_moment
from tests.times.made_times import executed, sections_of


def _failed(graph: PhysicalGraph, seed: int) -> tuple[AttemptColumns, Moments]:
    """Return a session in which some applications fail for good, and all that depends on them is in ERROR."""
    sections = sections_of(executed(graph, seed))
    random = np.random.default_rng(seed)
    apps = np.flatnonzero(graph.kinds[graph.template] == Kind.APP)
    chosen = set(random.choice(apps, len(apps) // 4, replace=False).tolist()) if len(apps) else set()
    states = np.full(graph.drops, DropState.COMPLETED, np.uint8)
    out = graph.successors
    stack = sorted(chosen)
    while stack:
        drop = stack.pop()
        if states[drop] != DropState.ERROR:
            states[drop] = DropState.ERROR
            stack += out.neighbour[out.ptr[drop] : out.ptr[drop + 1]].tolist()
    for section in sections:
        records = section.records
        records["attempt"][np.isin(records["drop"], list(chosen))] = -1
        records["written"] = random.integers(0, 1000, len(records))
    attempts = attempts_of(sections)
    return attempts, moments_of(graph, attempts, states)


@settings(max_examples=60)
@given(graphs(), st.integers(0, 1000), st.floats(0, 1.1))
def test_each_drop_has_the_cause_of_its_earliest_failed_input(graph: PhysicalGraph, seed: int, share: float) -> None:
    """A drop with a failed attempt is its own cause; numbers of causes add up to the drops in ERROR."""
    attempts, moments = _failed(graph, seed)
    time = max(attempts.start + share * (attempts.end - attempts.start), 0.0)
    states = moments.at(time)
    found = causes_at(graph, attempts, moments, states, time)
    own = set(attempts.drop[attempts.failed & (attempts.committed <= time)].tolist())
    into = graph.predecessors

    for drop in range(graph.drops):
        if states[drop] != DropState.ERROR:
            assert found[drop] == -1
        elif drop in own:
            assert found[drop] == drop
        else:
            before = into.neighbour[into.ptr[drop] : into.ptr[drop + 1]].tolist()
            before = [one for one in before if states[one] == DropState.ERROR]
            first = min((moments.settled[one] for one in before), default=0.0)
            causes = {found[one] for one in before if moments.settled[one] == first}
            assert found[drop] in (causes or {drop})
    moment = session_moment(graph, attempts, moments, MomentQuery(time=time))
    assert sum(cause.count for cause in moment.causes) == moment.counts.in_error
    assert sum(cause.took_along for cause in moment.causes) == moment.counts.took_along


@settings(max_examples=60)
@given(graphs(), st.integers(0, 1000), st.floats(0, 1.1))
def test_sizes_are_those_that_were_written_by_then(graph: PhysicalGraph, seed: int, share: float) -> None:
    """The only output of the only producer has the bytes that its last attempt wrote."""
    attempts, _ = _failed(graph, seed)
    time = max(attempts.start + share * (attempts.end - attempts.start), 0.0)
    out, into = graph.successors, graph.predecessors
    expected = [-1] * graph.drops
    for row in range(len(attempts)):
        drop = int(attempts.drop[row])
        to = out.neighbour[out.ptr[drop] : out.ptr[drop + 1]].tolist()
        is_only = len(to) == 1 and into.ptr[to[0] + 1] - into.ptr[to[0]] == 1
        if is_only and not attempts.failed[row] and attempts.committed[row] <= time:
            expected[to[0]] = int(attempts.records["written"][row])

    assert size_at(graph, attempts, time).tolist() == expected
    some = ended_by(attempts, time)
    assert len(some) == int((attempts.committed <= time).sum())
    assert some.drop.tolist() == [
        drop for drop, end in zip(attempts.drop.tolist(), attempts.committed.tolist(), strict=True) if end <= time
    ]
