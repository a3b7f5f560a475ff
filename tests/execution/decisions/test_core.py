"""The core: its actions for every event, on drawn graphs and in random orders."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.errors import BadGraphError
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import (
    Abandon,
    Abort,
    Action,
    Assemble,
    Assembled,
    Begin,
    Cancel,
    CancelDrop,
    Continue,
    Event,
    Failed,
    Finish,
    Finished,
    Lost,
    Pause,
    Release,
    Reported,
    Run,
    Stopped,
)
from dropflow.execution.decisions.invariants import check
from dropflow.execution.drop_explanation import explain
from dropflow.execution.statistics import cause_reports
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import DropState, SessionState
from dropflow.testing.drawing import draw, row
from tests.execution.decisions.core_cluster import BOOM
from tests.regular_graphs import chain
from tests.strategies import expected_states, graphs


def begin(graph: PhysicalGraph) -> tuple[Core, list[Action]]:
    """Return a core that has begun, and its first actions."""
    core = Core(graph)
    return core, core.handle([Begin()])


def test_a_chain_runs_from_its_root_to_its_end() -> None:
    """Each drop makes the next one ready; the last action is the end of the session."""
    graph = draw("a -> B -> c -> D")
    core, actions = begin(graph)
    seen = list(actions)
    for drop in (0, 1, 3):
        actions = core.handle([Finished(drop, 1)])
        seen += actions
        check(core)

    assert [action.drop for action in seen if isinstance(action, Run)] == [0, 1, 3]
    assert seen[-1] == Finish(SessionState.FINISHED)
    assert core.status is SessionState.FINISHED


def test_content_is_released_after_its_last_consumer() -> None:
    """Data is released after the last of its consumers, and a leaf never is."""
    graph = draw("a -> B -> c, a -> D")
    core, _ = begin(graph)
    core.handle([Finished(row(graph, "a"), 1)])
    first = core.handle([Finished(row(graph, "B"), 1)])
    last = core.handle([Finished(row(graph, "D"), 1)])

    assert not any(isinstance(action, Release) for action in first)
    assert Release(row(graph, "a")) in last
    assert Release(row(graph, "c")) not in [*first, *last]


def test_an_error_spreads_with_its_root_cause() -> None:
    """Every drop downstream of a failure ends in ERROR, with the drop that failed as its cause."""
    graph = draw("A -> b -> C -> d")
    core, _ = begin(graph)
    actions = core.handle([Failed(0, 1, BOOM)])

    assert actions == [Finish(SessionState.FAILED)]
    assert core.drops.error_causes() == {0: 0, 1: 0, 2: 0, 3: 0}


def test_a_tolerated_error_does_not_fail_the_session() -> None:
    """A gather with a threshold runs without the failed input, and the session finishes."""
    graph = draw("A -> x -> G, B -> y -> G, G -> z", G={"error_threshold": 50.0})
    core, _ = begin(graph)
    core.handle([Failed(row(graph, "A"), 1, BOOM), Finished(row(graph, "B"), 1)])
    actions = core.handle([Finished(row(graph, "G"), 1)])

    assert actions[-1] == Finish(SessionState.FINISHED)
    assert core.drops.state(row(graph, "x")) is DropState.ERROR
    assert core.drops.cause(row(graph, "G")) is None


def test_a_failed_attempt_is_followed_by_another_while_there_are_tries() -> None:
    """Retries carry the next attempt's number; the result of the former attempt is refused."""
    graph = draw("A -> b", A={"tries": 2})
    core, _ = begin(graph)

    assert core.handle([Failed(0, 1, BOOM)]) == [Run(0, 2)]
    assert core.handle([Finished(0, 1)]) == []
    assert core.refused == 1
    assert core.handle([Finished(0, 2)])[-1] == Finish(SessionState.FINISHED)


DIED = Failure(code="DF202", kind="WorkerDiedError", text="died", retryable=True, infrastructure=True)
LOST = Failure(code="DF203", kind="ResultLostError", text="lost", infrastructure=True, is_innocent=True)


def test_infrastructure_faults_do_not_use_up_tries() -> None:
    """After faults an attempt is repeated with growing delays, and the tries of the application are all left."""
    graph = draw("A -> b", A={"tries": 2})
    core = Core(graph, infrastructure_retries=2)
    runs = core.handle([Begin()])
    for attempt, failure in enumerate([DIED, BOOM, DIED, LOST], start=1):
        runs += core.handle([Failed(0, attempt, failure)])
        check(core)
    core.handle([Finished(0, 5)])

    assert runs == [Run(0, 1), Run(0, 2, 0.1), Run(0, 3), Run(0, 4, 0.2), Run(0, 5)]
    assert core.status is SessionState.FINISHED
    assert (core.drops.faults, core.drops.uncounted_attempts) == ({0: 2}, {0: 3})


def test_a_drop_fails_with_its_last_infrastructure_fault() -> None:
    """One fault more than the retries ends the drop, even if its application has tries left."""
    graph = draw("A -> b, C -> d", A={"tries": 9})
    core = Core(graph, infrastructure_retries=1)
    core.handle([Begin()])
    core.handle([Failed(0, 1, DIED)])
    core.handle([Failed(0, 2, DIED), Failed(row(graph, "C"), 1, LOST), Finished(row(graph, "C"), 2)])

    assert core.status is SessionState.FAILED
    assert [core.drops.state(drop).name for drop in range(4)] == ["ERROR", "ERROR", "COMPLETED", "COMPLETED"]


def test_a_failure_that_is_not_retryable_is_not_retried() -> None:
    """A failure that is not retryable is not followed by another attempt, even if tries are left."""
    core, _ = begin(draw("A -> b", A={"tries": 5}))
    lasting = Failure(code="DF104", kind="BadParameter", text="no")

    assert core.handle([Failed(0, 1, lasting)]) == [Finish(SessionState.FAILED)]


def test_a_branch_skips_its_losing_side_and_the_session_finishes() -> None:
    """What depends only on the skipped output is skipped; a join of both sides too, unless it has `block_skip`."""
    graph = draw("B -> yes -> Y -> j, B -> no -> N -> k, yes -> J, k -> J, J -> e", J={"block_skip": True})
    core, _ = begin(graph)
    core.handle([Finished(row(graph, "B"), 1, (row(graph, "no"),))])
    core.handle([Finished(row(graph, "J"), 1), Finished(row(graph, "Y"), 1)])

    assert core.status is SessionState.FINISHED
    assert [core.drops.state(row(graph, name)) for name in ("no", "N", "k")] == [DropState.SKIPPED] * 3
    assert core.drops.state(row(graph, "e")) is DropState.COMPLETED


def test_several_producers_are_assembled_before_the_data_completes() -> None:
    """Data with several producers waits for all of them, and until its parts are assembled."""
    graph = draw("A -> x, B -> x, x -> C")
    core, _ = begin(graph)
    x = row(graph, "x")
    core.handle([Finished(row(graph, "A"), 1)])
    actions = core.handle([Finished(row(graph, "B"), 1)])

    assert actions == [Assemble(x)]
    assert core.handle([Assembled(x)]) == [Run(row(graph, "C"), 1)]


def test_parts_that_cannot_be_assembled_are_an_error_of_the_data() -> None:
    """A failed assembly makes the data drop the root cause."""
    graph = draw("A -> x, B -> x, x -> C")
    core, _ = begin(graph)
    core.handle([Finished(row(graph, "A"), 1), Finished(row(graph, "B"), 1)])
    core.handle([Assembled(row(graph, "x"), BOOM)])

    assert core.drops.cause(row(graph, "C")) == row(graph, "x")


def test_an_application_acts_on_its_effective_inputs_and_ignores_the_rest() -> None:
    """With one effective input it runs on the first; the second, even an error, changes nothing."""
    graph = draw("A -> x -> C, B -> y -> C, C -> z", C={"effective_inputs": 1})
    core, _ = begin(graph)

    assert core.handle([Finished(row(graph, "A"), 1)]) == [Run(row(graph, "C"), 1)]
    core.handle([Failed(row(graph, "B"), 1, BOOM)])
    assert core.handle([Finished(row(graph, "C"), 1)])[-1] == Finish(SessionState.FINISHED)


def test_a_cancel_aborts_what_runs_and_waits_for_its_end() -> None:
    """What does not run becomes CANCELLED now, the rest when its attempt has ended, however it ended."""
    graph = draw("A -> x -> C -> z, B -> y")
    core, _ = begin(graph)
    core.handle([Finished(row(graph, "A"), 1)])
    actions = core.handle([Cancel("enough", 3.0)])
    check(core)

    assert actions == [Abort(row(graph, "C"), 1, 3.0), Abort(row(graph, "B"), 1, 3.0)]
    assert core.status is SessionState.CANCELLING
    states = {name: core.drops.state(row(graph, name)) for name in "xCzBy"}
    assert states == {
        "x": DropState.COMPLETED,
        "C": DropState.WRITING,
        "z": DropState.CANCELLED,
        "B": DropState.WRITING,
        "y": DropState.CANCELLED,
    }
    assert "attempt 1 is being stopped" in "\n".join(explain(core, row(graph, "C")).lines)
    assert core.handle([Finished(row(graph, "B"), 1), Finished(row(graph, "B"), 1)]) == []
    check(core)
    assert core.handle([Stopped((row(graph, "C"),))]) == [Finish(SessionState.CANCELLED)]
    assert core.drops.state(row(graph, "B")) is core.drops.state(row(graph, "C")) is DropState.CANCELLED
    assert core.handle([Finished(row(graph, "B"), 1)]) == []


def test_attempts_that_do_not_stop_are_abandoned() -> None:
    """After their time the session ends without them."""
    core, _ = begin(draw("A -> x"))
    core.handle([Cancel()])

    assert core.handle([Abandon()]) == [Finish(SessionState.CANCELLED)]
    assert core.drops.unsettled == 0


def test_what_belongs_to_a_cancel_is_refused_without_one() -> None:
    """`Stopped` and `Abandon` mean nothing in a session that runs."""
    core, _ = begin(draw("A -> x"))

    assert core.handle([Abandon(), Stopped((0,))]) == []
    assert core.refused == 2
    assert core.status is SessionState.RUNNING


def test_another_cancel_has_its_own_grace_period() -> None:
    """What still runs is aborted again; the reason and the state stay."""
    core, _ = begin(draw("A -> x"))
    core.handle([Cancel("enough", 60.0)])

    assert core.handle([Cancel("now", 0.0)]) == [Abort(0, 1, 0.0)]
    assert core.status is SessionState.CANCELLING


def test_a_loss_during_a_cancel_changes_nothing() -> None:
    """The session is CANCELLED, not FAILED."""
    core, _ = begin(draw("A -> x"))

    assert core.handle([Cancel(), Lost("n2", BOOM)]) == [Abort(0, 1)]
    assert core.handle([Failed(0, 1, BOOM)]) == [Finish(SessionState.CANCELLED)]


def test_a_cancelled_drop_counts_as_a_failed_input() -> None:
    """Its attempt is aborted, its output is in ERROR because of it, and the threshold of its consumer decides."""
    graph = draw("A -> x -> C, B -> y -> C, C -> z", C={"error_threshold": 50.0})
    core, _ = begin(graph)
    a, x = row(graph, "A"), row(graph, "x")
    actions = core.handle([CancelDrop((a,), "enough", 3.0)])
    check(core)

    assert actions == [Abort(a, 1, 3.0)]
    assert (core.drops.state(a), core.drops.state(x)) == (DropState.CANCELLED, DropState.ERROR)
    assert core.drops.error_causes() == {a: a, x: a}
    assert core.handle([Finished(a, 1)]) == []
    assert core.handle([Finished(row(graph, "B"), 1)]) == [Run(row(graph, "C"), 1)]
    core.handle([Finished(row(graph, "C"), 1)])
    assert core.status is SessionState.FINISHED
    assert "it was cancelled alone" in explain(core, a).lines


def test_a_session_without_the_result_of_a_cancelled_drop_fails() -> None:
    """A leaf that is cancelled, or in ERROR because of a cancelled drop, is missing."""
    graph = draw("A -> x, B")
    core, _ = begin(graph)
    core.handle([CancelDrop((row(graph, "x"), row(graph, "x")))])
    check(core)
    core.handle([Finished(row(graph, "A"), 1)])
    assert core.drops.state(row(graph, "A")) is DropState.COMPLETED
    assert core.refused == 1

    assert core.handle([Finished(row(graph, "B"), 1)]) == [Finish(SessionState.FAILED)]
    assert core.drops.error_causes() == {row(graph, "x"): row(graph, "x")}


def test_a_drop_that_waits_is_cancelled() -> None:
    """What is upstream goes on; a settled drop and one of another node stay as they are."""
    graph = draw("A -> x -> B -> y, R -> z -> S")
    core = Core(graph, remote=[row(graph, "R")])
    core.handle([Begin()])
    core.handle([CancelDrop((row(graph, "B"), row(graph, "R")))])
    check(core)

    assert core.drops.state(row(graph, "B")) is DropState.CANCELLED
    assert core.drops.state(row(graph, "y")) is DropState.ERROR
    assert core.handle([Finished(row(graph, "A"), 1)])[-1] == Release(row(graph, "x"))
    core.handle([CancelDrop((row(graph, "A"),))])
    assert core.drops.state(row(graph, "A")) is DropState.COMPLETED
    assert core.refused == 2


def test_a_paused_session_goes_on_deciding() -> None:
    """Results of what runs count, and ready drops are returned as always: their owner starts them later."""
    core, _ = begin(draw("A -> x -> B"))
    assert core.handle([Continue()]) == []
    assert core.refused == 1
    core.handle([Pause(), Pause()])
    assert (core.status, core.refused) == (SessionState.PAUSED, 2)
    assert core.handle([Finished(0, 1)]) == [Run(2, 1)]
    check(core)
    core.handle([Continue()])

    assert core.status is SessionState.RUNNING
    assert core.handle([Pause(), Finished(2, 1)])[-1] == Finish(SessionState.FINISHED)


def test_an_empty_graph_is_finished() -> None:
    """A graph without drops is FINISHED when it begins."""
    core, actions = begin(draw(""))

    assert actions == [Finish(SessionState.FINISHED)]
    assert core.status is SessionState.FINISHED


def test_a_cycle_is_refused_before_anything_runs() -> None:
    """A graph with a cycle cannot run; the error names the drops on the cycle."""
    with pytest.raises(BadGraphError, match="wait for each other"):
        Core(draw("A -> b -> C -> d, d -> A"))


def test_a_drop_on_another_node_advances_by_reports_only() -> None:
    """A remote drop is never run here, and does not keep this part of the session from ending."""
    graph = draw("a -> B -> c")
    core = Core(graph, remote=[row(graph, "a")])
    assert core.handle([Begin()]) == []
    actions = core.handle([Reported(row(graph, "a"), DropState.COMPLETED)])

    assert actions == [Run(row(graph, "B"), 1)]
    assert core.handle([Finished(row(graph, "B"), 1)])[-1] == Finish(SessionState.FINISHED)


@pytest.mark.slow
@pytest.mark.parametrize("length", [10, 100_000])
def test_skips_pass_through_long_chains(length: int) -> None:
    """A skip passes through a chain of any length without recursion."""
    graph = chain(2 * length)
    core, _ = begin(graph)
    core.handle([Finished(0, 1, (1,))])

    assert core.status is SessionState.FINISHED
    assert core.drops.state(graph.drops - 1) is DropState.SKIPPED


def test_explain_names_what_a_drop_waits_for() -> None:
    """The explanation of an application that waits names the inputs that are not complete."""
    graph = draw("A -> x -> C, B -> y -> C")
    core, _ = begin(graph)
    core.handle([Finished(row(graph, "A"), 1)])
    found = explain(core, row(graph, "C"))

    assert found.waiting_for == (row(graph, "y"),)
    assert "waits for 1 of 2 inputs" in "\n".join(found.lines)


def test_explain_names_the_root_cause() -> None:
    """The explanation of an error names the drop that started it."""
    graph = draw("A -> b -> C")
    core, _ = begin(graph)
    core.handle([Failed(0, 1, BOOM)])

    assert "the error started at drawing_A_0" in explain(core, row(graph, "C")).lines


def test_a_failure_is_reported_although_its_log_cannot_be_looked_for() -> None:
    """A directory without rights, or on a disk that fails, must not keep a session from its end."""
    graph = draw("A -> b -> C")
    core, _ = begin(graph)
    core.handle([Failed(0, 1, BOOM)])
    (report,) = cause_reports(graph, core, f"/{'x' * 300}", {0: BOOM})

    assert (report.text, report.log) == (BOOM.text, "")


def test_explain_names_the_application_that_chose_to_skip() -> None:
    """The explanation of a skipped drop names that application and the outputs that it did not skip."""
    graph = draw("B -> yes -> Y -> j, B -> no -> N -> k")
    core, _ = begin(graph)
    core.handle([Finished(row(graph, "B"), 1, (row(graph, "no"),))])
    chosen = "'B' (drawing_B_0) chose 'yes', and skipped 'no'"

    assert explain(core, row(graph, "no")).lines[1:] == (chosen,)
    assert explain(core, row(graph, "k")).lines[1:] == ("1 of its 1 predecessors were skipped", chosen)


def test_explain_tells_how_a_collector_goes_on_without_skipped_inputs() -> None:
    """The inputs that were not skipped are there, so it may be wanted that it runs with them."""
    graph = draw("B -> yes -> Y -> j -> G, B -> no -> N -> k -> G")
    core, _ = begin(graph)
    core.handle([Finished(row(graph, "B"), 1, (row(graph, "no"),)), Finished(row(graph, "Y"), 1)])

    assert explain(core, row(graph, "G")).lines[1:3] == (
        "1 of its 2 predecessors were skipped",
        "with block_skip, it would go on with the others",
    )


def _play(
    graph: PhysicalGraph, data: st.DataObject, *, cancels: bool = False
) -> tuple[Core, dict[int, int], dict[int, list[int]]]:
    """Drive a core to its end in a random order, with late and repeated results mixed in."""
    core = Core(graph)
    out = graph.successors
    fails = {drop: data.draw(st.integers(0, 2), label=f"fails {drop}") for drop in range(graph.drops)}
    left_out: dict[int, list[int]] = {}
    waiting: list[Run | Assemble] = []
    finishes = 0

    def take(events: list[Event]) -> None:
        nonlocal finishes
        for action in core.handle(events):
            if isinstance(action, Run | Assemble):
                waiting.append(action)
            finishes += isinstance(action, Finish)
        check(core)

    take([Begin()])
    while waiting:
        action = waiting.pop(data.draw(st.integers(0, len(waiting) - 1), label="next"))
        if isinstance(action, Assemble):
            take([Assembled(action.drop)])
            continue
        drop = action.drop
        if cancels and data.draw(st.integers(0, 3), label="cancels") == 0:
            chosen_drops = data.draw(st.lists(st.integers(0, graph.drops - 1), max_size=3))
            take([CancelDrop(tuple(chosen_drops))])
        if action.attempt <= fails[drop]:
            take([Failed(drop, action.attempt, BOOM)])
        else:
            targets = out.neighbour[out.ptr[drop] : out.ptr[drop + 1]].tolist()
            is_app = graph.templates[drop].kind is Kind.APP
            chosen = data.draw(st.lists(st.sampled_from(targets), unique=True)) if targets and is_app else []
            left_out[drop] = chosen
            take([Finished(drop, action.attempt, tuple(chosen))])
        take([Finished(drop, action.attempt)])  # a repeated result changes nothing
    assert finishes == 1
    return core, fails, left_out


@settings(max_examples=200, deadline=None)
@given(graphs(), st.data())
def test_every_order_of_results_ends_the_session_once(graph: PhysicalGraph, data: st.DataObject) -> None:
    """With any failures, skips and repeated results, in any order, the session ends, exactly once."""
    core, _, _ = _play(graph, data)

    assert core.status in (SessionState.FINISHED, SessionState.FAILED)
    assert core.drops.unsettled == 0


@settings(max_examples=100, deadline=None)
@given(graphs(), st.data())
def test_cancelled_drops_never_keep_a_session_from_its_end(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Drops of any kind are cancelled at any moment: every other drop ends in a state that its neighbours explain."""
    core, _, _ = _play(graph, data, cancels=True)

    assert core.status in (SessionState.FINISHED, SessionState.FAILED)
    assert core.drops.unsettled == 0
    cancelled = [drop for drop in range(graph.drops) if core.drops.state(drop) is DropState.CANCELLED]
    assert set(cancelled) == core.drops.cancelled


@settings(max_examples=200, deadline=None)
@given(graphs(), st.data())
def test_final_states_follow_the_rules(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Every drop ends in the state that the rules give recursively, in any order of events."""
    if any(template.effective_inputs > 0 for template in graph.templates):
        return  # the first inputs decide there, so the order matters
    core, fails, left_out = _play(graph, data)
    expected = expected_states(graph, fails=fails, leaves_out=left_out)

    assert [core.drops.state(drop) for drop in range(graph.drops)] == expected
    leaf_failed = any(
        expected[drop] is DropState.ERROR and graph.successors.ptr[drop] == graph.successors.ptr[drop + 1]
        for drop in range(graph.drops)
    )
    assert (core.status is SessionState.FAILED) == leaf_failed


@settings(max_examples=50, deadline=None)
@given(graphs(), st.data())
def test_a_cancel_at_any_moment_ends_the_session(graph: PhysicalGraph, data: st.DataObject) -> None:
    """After any number of results, a cancel settles all drops."""
    core = Core(graph)
    ready = [action for action in core.handle([Begin()]) if isinstance(action, Run)]
    for _ in range(data.draw(st.integers(0, 5))):
        if not ready:
            break
        done = ready.pop(0)
        found = core.handle([Finished(done.drop, done.attempt)])
        ready += [action for action in found if isinstance(action, Run)]
        ready += [
            follow
            for action in found
            if isinstance(action, Assemble)
            for follow in core.handle([Assembled(action.drop)])
            if isinstance(follow, Run)
        ]
    was_over = core.status.is_terminal
    core.handle([Cancel()])
    check(core)
    while not core.status.is_terminal:
        drop = data.draw(st.sampled_from(sorted(core.drops.running)))
        attempt = core.drops.attempt(drop)
        ends: list[Event] = [Finished(drop, attempt), Failed(drop, attempt, BOOM), Stopped((drop,)), Abandon()]
        core.handle([data.draw(st.sampled_from([*ends, Cancel()]))])
        check(core)

    assert was_over or core.status is SessionState.CANCELLED
    assert core.drops.unsettled == 0
