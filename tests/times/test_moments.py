"""The states of drops at a moment, against one drop at a time."""

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.api.drop_records import DropQuery
from dropflow.api.session_records import MomentQuery
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import DropState
from dropflow.times.attempts import AttemptColumns, attempts_of, ended_by
from dropflow.times.moments import Moments, causes_at, moments_of, size_at
from dropflow.web.times import session_moment
from tests.fake_manager import FakeManager
from tests.regular_graphs import chains, fan
from tests.strategies import graphs
from tests.times.made_times import executed, sections_of

_GRAPHS = (fan(40), chains(42, 7))


def _case(graph: PhysicalGraph, seed: int, known: float) -> tuple[AttemptColumns, npt.NDArray[np.uint8]]:
    """Return the attempts that had ended when a share of all had, and the states of drops then."""
    sections = sections_of(executed(graph, seed))
    whole = attempts_of(sections)
    limit = whole.start + known * (whole.end - whole.start)
    ends = [attempts_of([section]).committed for section in sections]
    known_sections = [
        msgspec.structs.replace(section, records=section.records[end <= limit])
        for section, end in zip(sections, ends, strict=True)
    ]
    attempts = attempts_of(known_sections)
    return attempts, moments_of(graph, whole, np.full(graph.drops, 2, np.uint8)).at(limit)


def _slow(graph: PhysicalGraph, attempts: AttemptColumns, states: npt.NDArray[np.uint8], time: float) -> list[int]:
    """Return the state of each drop at a time, from the definitions."""
    begun: dict[int, float] = {}
    settled: dict[int, float] = {}
    for drop, ready, committed in zip(attempts.drop.tolist(), attempts.ready, attempts.committed, strict=True):
        begun[drop] = min(begun.get(drop, np.inf), ready)
        settled[drop] = max(settled.get(drop, -np.inf), committed)
    has_times, found = set(begun), []
    kinds, into = graph.kinds[graph.template], graph.predecessors

    def times(drop: int) -> tuple[float, float]:
        if drop not in settled:
            before = [times(other) for other in into.neighbour[into.ptr[drop] : into.ptr[drop + 1]].tolist()]
            settled[drop] = max((end for _, end in before), default=attempts.start)
            first = min((start for start, _ in before), default=np.inf)
            begun[drop] = settled[drop] if kinds[drop] == Kind.APP and before else first
        return begun[drop], settled[drop]

    for drop, state in enumerate(states.tolist()):
        start, end = times(drop)
        if time >= attempts.end or (state not in (DropState.INITIALIZED, DropState.WRITING) and end <= time):
            found.append(state)
        elif state != DropState.INITIALIZED and start <= time:
            found.append(DropState.WRITING)
        else:
            found.append(DropState.INITIALIZED)
    assert has_times <= set(settled)
    return found


@given(st.sampled_from(range(len(_GRAPHS))), st.integers(0, 99), st.floats(0, 1), st.floats(-0.1, 1.1))
def test_states_are_those_of_one_drop_at_a_time(which: int, seed: int, known: float, share: float) -> None:
    """At any time of a session that is over or runs, each drop has the state that the definitions give it."""
    graph = _GRAPHS[which]
    attempts, states = _case(graph, seed, known)
    time = attempts.start + share * (attempts.end - attempts.start)
    moments = moments_of(graph, attempts, states)

    assert moments.at(time).tolist() == _slow(graph, attempts, states, time)
    found = session_moment(graph, attempts, moments, MomentQuery(time=max(time, 0.0), states=True))
    assert found.counts.total == graph.drops == sum(one.drops for one in found.logical)
    assert len(found.states) == graph.drops


@pytest.mark.parametrize("state", [DropState.EXPIRED, DropState.DELETED])
def test_released_contents_were_complete_before(state: DropState) -> None:
    """What is released now was COMPLETED at any earlier time after its commit."""
    graph = fan(10)
    attempts = attempts_of(sections_of(executed(graph, 1)))
    moments = moments_of(graph, attempts, np.full(graph.drops, state.value, np.uint8))

    assert set(moments.at(attempts.end - 1e-6).tolist()) <= {0, 1, 2}
    assert set(moments.at(attempts.end).tolist()) == {state.value}


# Root causes and sizes at a moment, against one drop at a time.


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


def test_a_session_of_the_name_of_a_deleted_one_has_its_own_graph() -> None:
    """What was computed of a session without attempts is not given for another one of its name."""
    manager = FakeManager()
    for graph in (fan(40), chains(42, 7)):
        manager.add(graph, "s")
        assert manager.drops_at("s", DropQuery(time=1.0)).whole == graph.drops
        manager.complete("s")
        manager.delete("s")
