"""The rules by which drops change their state."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.engine.recovery import (
    NextAttempt,
    decide_app,
    decide_data,
    decide_next_attempt,
    effective_inputs,
    fault_delay,
)
from dropflow.errors import InputLostError
from dropflow.failure import Failure
from dropflow.states import DropState
from managers.membership import LOST_AFTER

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
