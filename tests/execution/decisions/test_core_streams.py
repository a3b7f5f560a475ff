"""The core and data that are read while they are written; and the rules by which drops change their state."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import InputLostError
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.drop_rules import (
    NextAttempt,
    decide_app,
    decide_data,
    decide_next_attempt,
    effective_inputs,
    fault_delay,
)
from dropflow.execution.decisions.events import (
    NO_CAUSE,
    NO_PRODUCER,
    Abort,
    Accept,
    Assembled,
    Begin,
    Failed,
    Finish,
    Finished,
    Opened,
    Publish,
    Release,
    Reported,
    Run,
    Withdraw,
    Withdrawn,
)
from dropflow.execution.decisions.invariants import check
from dropflow.execution.drop_explanation import explain
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import DropState, SessionState
from dropflow.testing.drawing import draw, row
from managers.membership import LOST_AFTER
from tests.execution.decisions.core_cluster import BOOM


def begun(drawing: str, *, streams: bool = True, **fields: dict[str, object]) -> tuple[PhysicalGraph, Core]:
    """Return a drawn graph whose links all stream, and its core, which has begun."""
    graph = draw(drawing, **fields)
    core = Core(graph, streams=range(len(graph.links)) if streams else ())
    core.handle([Begin()])
    return graph, core


def test_a_consumer_runs_as_soon_as_its_input_is_open() -> None:
    """It runs ahead; its result is refused until `Accept`, after the input is complete."""
    graph, core = begun("A -> x -> B -> y")
    a, x, b = row(graph, "A"), row(graph, "x"), row(graph, "B")

    assert core.handle([Opened(x, a, 1)]) == [Run(b, 1)]
    assert core.drops.state(x) is DropState.WRITING
    assert core.streaming.is_ahead(b)
    assert core.handle([Finished(b, 1)]) == []
    assert core.handle([Finished(a, 1)]) == [Accept(b, 1)]
    assert core.handle([Finished(b, 1)]) == [Release(x), Finish(SessionState.FINISHED)]
    check(core)


def test_links_that_do_not_stream_wait() -> None:
    """Without streaming links, an open drop is WRITING and its consumers wait."""
    graph, core = begun("A -> x -> B", streams=False)
    assert core.handle([Opened(row(graph, "x"), row(graph, "A"), 1)]) == []
    assert core.handle([Finished(row(graph, "A"), 1)]) == [Run(row(graph, "B"), 1)]


def test_a_consumer_waits_for_the_inputs_that_are_not_open() -> None:
    """All of its inputs must be complete or open."""
    graph, core = begun("A -> x -> C, B -> y -> C")

    assert core.handle([Opened(row(graph, "x"), row(graph, "A"), 1)]) == []
    assert core.handle([Finished(row(graph, "B"), 1)]) == [Run(row(graph, "C"), 1)]
    check(core)


@pytest.mark.parametrize("tries", [1, 2])
def test_a_consumer_starts_over_when_its_producer_fails(tries: int) -> None:
    """Its attempt is aborted; then the same happens as if it had waited."""
    graph, core = begun("A -> x -> B -> y", A={"tries": tries}, B={"error_threshold": 100.0})
    a, x, b = row(graph, "A"), row(graph, "x"), row(graph, "B")
    core.handle([Opened(x, a, 1)])
    actions = core.handle([Failed(a, 1, BOOM)])

    assert actions[:2] == [Abort(b, 1), Withdraw(x, 1)]
    assert core.drops.uncounted_attempts == {b: 1}
    if tries == 1:
        assert Run(b, 2) in actions, "the threshold allows it to run without this input"
        assert core.drops.state(x) is DropState.ERROR
    else:
        assert actions[2:] == [Run(a, 2)]
        assert core.drops.state(b) is DropState.INITIALIZED
        assert core.handle([Opened(x, a, 2)]) == [Run(b, 2)]
    check(core)


def test_a_restart_does_not_use_up_a_try() -> None:
    """An attempt that is aborted because an input is withdrawn does not use up a try."""
    graph, core = begun("A -> x -> B -> y", A={"tries": 2}, B={"tries": 2})
    a, x, b = row(graph, "A"), row(graph, "x"), row(graph, "B")
    core.handle([Opened(x, a, 1), Failed(a, 1, BOOM), Finished(a, 2)])

    assert core.drops.attempt(b) == 2
    assert core.handle([Failed(b, 2, BOOM)]) == [Run(b, 3)]
    core.handle([Failed(b, 3, BOOM)])
    assert core.drops.state(b) is DropState.ERROR


@pytest.mark.slow
def test_a_whole_chain_starts_over() -> None:
    """Readers of what an aborted attempt wrote are aborted too, through a chain of any length."""
    length = 300
    drawing = "".join(f"A{n} -> x{n} -> " for n in range(length)) + "Z"
    graph, core = begun(drawing, A0={"tries": 2})
    for number in range(length):
        core.handle([Opened(row(graph, f"x{number}"), row(graph, f"A{number}"), 1)])
    assert len(core.drops.running) == length + 1
    actions = core.handle([Failed(row(graph, "A0"), 1, BOOM)])

    assert sum(isinstance(action, Abort) for action in actions) == length
    assert core.drops.running == {row(graph, "A0")}
    check(core)


@pytest.mark.parametrize(
    "event", [Opened(1, 0, 2), Opened(1, 0, 0), Opened(1, 2, 1)], ids=["future", "no attempt", "not its producer"]
)
def test_other_attempts_do_not_open_a_drop(event: Opened) -> None:
    """Only the current attempt of the producer can open a drop."""
    _, core = begun("A -> x -> B -> y")

    assert core.handle([event]) == []
    assert core.refused == 1


def test_a_drop_of_several_producers_is_never_open() -> None:
    """A part is not the content, so it cannot be read while it is written."""
    graph, core = begun("A -> x, B -> x -> C")

    assert core.handle([Opened(row(graph, "x"), row(graph, "A"), 1)]) == []
    assert core.refused == 1


def test_an_open_drop_is_not_assembled() -> None:
    """`Assembled` for a drop that is not being assembled is refused."""
    graph, core = begun("A -> x -> B")
    core.handle([Opened(row(graph, "x"), row(graph, "A"), 1)])

    assert core.handle([Assembled(row(graph, "x"))]) == []
    assert core.refused == 1


def test_an_application_that_needs_only_some_inputs_waits() -> None:
    """An application with effective inputs does not run ahead: it acts on the first complete ones."""
    graph, core = begun("A -> x -> C, B -> y -> C", C={"effective_inputs": 1})

    assert core.handle([Opened(row(graph, "x"), row(graph, "A"), 1)]) == []
    assert Run(row(graph, "C"), 1) in core.handle([Finished(row(graph, "B"), 1)])


def test_a_stream_for_another_node_is_sent_to_it() -> None:
    """The drop's own node opens it; a failed attempt withdraws it."""
    graph = draw("A -> x -> B", A={"tries": 2})
    a, x, b = row(graph, "A"), row(graph, "x"), row(graph, "B")
    core = Core(graph, remote=[x], streams=range(2))
    core.handle([Begin()])

    assert core.handle([Opened(x, a, 1)]) == [Publish(x, DropState.WRITING, NO_CAUSE, 1)]
    assert core.handle([Opened(x, NO_PRODUCER, 1)]) == [Run(b, 1)], "also for consumers on the node of the producer"
    actions = core.handle([Failed(a, 1, BOOM)])
    assert Publish(x, DropState.INITIALIZED, NO_CAUSE, 1) in actions
    assert Abort(b, 1) in actions, (
        "a consumer on the node of the producer does not wait for the event of the drop's node"
    )
    assert core.handle([Withdrawn(x, 1)]) == []
    assert core.handle([Opened(x, NO_PRODUCER, 2)]) == [Run(b, 2)]
    check(core)


def test_events_about_withdrawn_attempts_are_refused() -> None:
    """Events about an attempt after it was withdrawn, or repeated events, change nothing."""
    graph = draw("x -> B")
    x, b = row(graph, "x"), row(graph, "B")
    core = Core(graph, remote=[x], streams=[0])
    core.handle([Begin(), Opened(x, NO_PRODUCER, 1), Withdrawn(x, 1)])

    assert core.handle([Opened(x, NO_PRODUCER, 1), Withdrawn(x, 1), Withdrawn(x, 1)]) == []
    assert core.handle([Opened(x, NO_PRODUCER, 2)]) == [Run(b, 2)]
    assert core.handle([Opened(x, NO_PRODUCER, 2)]) == []
    assert core.handle([Reported(x, DropState.COMPLETED)]) == [Accept(b, 2)]


def test_explain_says_why_drops_are_writing() -> None:
    """The explanations of an open drop and of its reader name the attempt, and what the reader waits for."""
    graph, core = begun("A -> x -> B -> y", A={"tries": 2})
    a, x, b = row(graph, "A"), row(graph, "x"), row(graph, "B")
    core.handle([Opened(x, a, 1), Failed(a, 1, BOOM), Opened(x, a, 2)])
    of_data, of_app = explain(core, x).lines, explain(core, b).lines

    assert "attempt 2 of its producer writes it, and consumers may read what is written" in of_data
    assert any("reads inputs that are still being written" in line for line in of_app)
    assert "  drawing_x_0 is WRITING" in of_app
    assert any(line.startswith("1 of its attempts do not count") for line in of_app)


# The rules by which drops change their state.


RUN, ERROR, SKIPPED, DONE = DropState.WRITING, DropState.ERROR, DropState.SKIPPED, DropState.COMPLETED


@pytest.mark.parametrize(
    ("errors", "inputs", "threshold", "expected"),
    [(1, 3, 33, ERROR), (1, 3, 34, RUN), (1, 200, 0, ERROR), (2, 3, 66, ERROR), (1, 1, 99, ERROR), (1, 1, 100, RUN)],
)
def test_the_threshold_is_exact(errors: int, inputs: int, threshold: float, expected: DropState) -> None:
    """The share of failed inputs is compared exactly: one of three exceeds 33 percent, one of 200 exceeds 0."""
    decided = decide_app(errors=errors, skips=0, effective=inputs, threshold=threshold, block_skip=False)

    assert decided is expected


@given(st.integers(1, 5000), st.integers(0, 10**6))
def test_the_threshold_is_the_decimal_that_was_written(inputs: int, millionths: int) -> None:
    """A threshold with decimals is compared as written: exactly that share of errors runs, and one more error fails."""
    written = Decimal(millionths) / 10_000
    most = int(written * inputs / 100)

    def decide(errors: int) -> DropState:
        return decide_app(errors=errors, skips=0, effective=inputs, threshold=float(written), block_skip=False)

    assert decide(most) is RUN
    assert most == inputs or decide(most + 1) is ERROR


def test_69_of_375_do_not_exceed_18_4_percent() -> None:
    """The comparison uses 18.4 in decimal; the nearest binary fraction is a little less."""
    assert decide_app(errors=69, skips=0, effective=375, threshold=18.4, block_skip=False) is RUN
    assert decide_app(errors=70, skips=0, effective=375, threshold=18.4, block_skip=False) is ERROR


@pytest.mark.parametrize(
    ("reports", "block_skip", "expected"),
    [
        ("CS", False, SKIPPED),
        ("SS", False, SKIPPED),
        ("ES", False, SKIPPED),
        ("EC", False, RUN),
        ("CC", False, RUN),
        ("CS", True, RUN),
        ("SS", True, SKIPPED),
        ("ES", True, RUN),
    ],
)
def test_applications_follow_the_skip_table(reports: str, *, block_skip: bool, expected: DropState) -> None:
    """Two inputs, threshold 50: any skip skips the application; with `block_skip`, only two skips do."""
    decided = decide_app(
        errors=reports.count("E"), skips=reports.count("S"), effective=2, threshold=50, block_skip=block_skip
    )

    assert decided is expected


@pytest.mark.parametrize(
    ("reports", "block_skip", "expected"),
    [
        ("SC", False, SKIPPED),
        ("CC", False, DONE),
        ("EC", False, ERROR),
        ("ES", False, ERROR),
        ("SC", True, DONE),
        ("SS", True, SKIPPED),
        ("ES", True, ERROR),
    ],
)
def test_data_follows_the_skip_table(reports: str, *, block_skip: bool, expected: DropState) -> None:
    """Two producers: an error always wins, so nothing downstream waits forever."""
    decided = decide_data(errors=reports.count("E"), skips=reports.count("S"), producers=2, block_skip=block_skip)

    assert decided is expected


@given(st.data(), st.integers(1, 50), st.floats(0, 100), st.booleans())
def test_every_mix_of_inputs_is_decided(data: st.DataObject, inputs: int, threshold: float, block_skip: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
    """For any mix of errors and skips, the application runs, ends in ERROR or is skipped."""
    errors = data.draw(st.integers(0, inputs))
    skips = data.draw(st.integers(0, inputs - errors))
    decided = decide_app(errors=errors, skips=skips, effective=inputs, threshold=threshold, block_skip=block_skip)

    assert decided in (RUN, ERROR, SKIPPED)
    assert decided is not RUN or 100 * errors <= Fraction(str(threshold)) * inputs


@pytest.mark.parametrize(("wanted", "inputs", "expected"), [(-1, 3, 3), (2, 3, 2), (3, 3, 3), (0, 3, 3), (9, 3, 3)])
def test_effective_inputs_out_of_range_mean_all(wanted: int, inputs: int, expected: int) -> None:
    """With a number of effective inputs that is out of range, an application waits for all of its inputs."""
    assert effective_inputs(wanted, inputs) == expected


PASSING = Failure(code="DF105", kind="X", text="x", retryable=True)
LASTING = Failure(code="DF104", kind="X", text="x")
FAULT = Failure(code="DF202", kind="X", text="x", retryable=True, infrastructure=True)
INNOCENT = Failure(code="DF203", kind="X", text="x", retryable=True, infrastructure=True, is_innocent=True)


@pytest.mark.parametrize(
    ("failure", "tried", "faults", "expected"),
    [
        (PASSING, 1, 0, NextAttempt.TRY),
        (PASSING, 1, 9, NextAttempt.TRY),
        (PASSING, 2, 0, NextAttempt.NONE),
        (LASTING, 1, 0, NextAttempt.NONE),
        (FAULT, 1, 0, NextAttempt.AFTER_FAULT),
        (FAULT, 2, 2, NextAttempt.AFTER_FAULT),
        (FAULT, 1, 3, NextAttempt.NONE),
        (INNOCENT, 1, 0, NextAttempt.FREE),
        (INNOCENT, 2, 3, NextAttempt.FREE),
    ],
)
def test_tries_and_infrastructure_faults_are_counted_apart(
    failure: Failure, tried: int, faults: int, expected: NextAttempt
) -> None:
    """Of two tries and three retries after faults, each failure uses up its own kind; innocent attempts use none."""
    assert decide_next_attempt(failure, tried=tried, tries=2, faults=faults, retries=3) is expected


def test_the_delay_after_a_fault_doubles_up_to_a_limit() -> None:
    """The delay begins with a tenth of a second, doubles with each fault, and ends at five seconds."""
    assert [fault_delay(faults, FAULT) for faults in (1, 2, 3, 5, 7, 100_000)] == [0.1, 0.2, 0.4, 1.6, 5.0, 5.0]


def test_an_attempt_that_lost_an_input_waits_for_the_loss_of_its_node_to_be_noticed() -> None:
    """Its repetitions take longer than the silence after which a node counts as lost by default."""
    lost = Failure.of(InputLostError("gone"))

    assert decide_next_attempt(lost, tried=1, tries=1, faults=0, retries=5) is NextAttempt.AFTER_FAULT
    assert sum(fault_delay(faults, lost) for faults in range(1, 6)) > LOST_AFTER
