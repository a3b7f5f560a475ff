"""The rules of drops: into which states they go, and whether a failed attempt is followed by another one.

The model is DALiuGE's (specification of execution, sections 1.3 and 1.6 to 1.8) without its deadlocks: every mix of
completions, errors and skips leads to a decision, and to only one.
"""

from enum import Enum, auto
from fractions import Fraction
from functools import lru_cache

from dropflow.errors import InputLostError
from dropflow.failure import Failure
from dropflow.states import DropState

_WRITING, _COMPLETED, _ERROR, _SKIPPED = DropState.WRITING, DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED
INFRASTRUCTURE_RETRIES = 5
"""How many infrastructure faults a drop may have by default; the next one fails it."""
_FIRST_DELAY_SECONDS = 0.1
"""Seconds before an attempt that follows an infrastructure fault; they double with each fault."""
_LONGEST_DELAY_SECONDS = 5.0
"""Longest seconds before an attempt that follows an infrastructure fault."""
_INPUT_DELAY_SECONDS = 5.0
"""Seconds before an attempt that follows the loss of an input: other nodes need about so long to notice that the node
that had it is lost. From then on the attempt waits until the input is there again."""


def effective_inputs(wanted: int, inputs: int) -> int:
    """Return how many inputs an application waits for: `wanted`, or all of them if that is out of range."""
    return wanted if 0 < wanted <= inputs else inputs


def decide_app(*, errors: int, skips: int, effective: int, threshold: float, block_skip: bool) -> DropState:
    """Return the next state of an application whose effective inputs are all settled.

    The share of failed inputs is compared exactly with the threshold in decimal: one error in 200 exceeds a threshold
    of 0, and 69 of 375 do not exceed 18.4.

    Returns
    -------
    DropState
        WRITING to run it, ERROR or SKIPPED otherwise.
    """
    if errors and 100 * errors > _as_written(threshold) * effective:
        return _ERROR
    if skips and (skips == effective or not block_skip):
        return _SKIPPED
    return _WRITING


def decide_data(*, errors: int, skips: int, producers: int, block_skip: bool) -> DropState:
    """Return the next state of a data drop whose producers are all settled: COMPLETED, ERROR or SKIPPED."""
    if errors:
        return _ERROR
    if skips and (skips == producers or not block_skip):
        return _SKIPPED
    return _COMPLETED


@lru_cache(maxsize=1024)
def _as_written(percentage: float) -> Fraction:
    """Return the shortest decimal number that is stored as this float: the number that a person wrote."""
    return Fraction(str(percentage))


# Whether a failed attempt of an application is followed by another one: its tries, and infrastructure faults.


class NextAttempt(Enum):
    """The step after a failed attempt."""

    NONE = auto()
    """The drop fails."""
    TRY = auto()
    """The application is tried again, and one of its tries is used up."""
    AFTER_FAULT = auto()
    """The attempt is repeated after a delay: it had an infrastructure fault, which the drop's budget counts."""
    FREE = auto()
    """The attempt is repeated immediately, and nothing is counted: it was innocent."""


def decide_next_attempt(failure: Failure, *, tried: int, tries: int, faults: int, retries: int) -> NextAttempt:
    """Return the step after a failed attempt.

    Parameters
    ----------
    tried, tries : int
        Number of tries of the application that are used up, with this one, and number that it has.
    faults, retries : int
        Number of infrastructure faults that the drop had before this failure, and number that it may have.
    """
    if failure.is_innocent:
        return NextAttempt.FREE
    if failure.infrastructure:
        return NextAttempt.AFTER_FAULT if faults < retries else NextAttempt.NONE
    return NextAttempt.TRY if failure.retryable and tried < tries else NextAttempt.NONE


def fault_delay(faults: int, failure: Failure) -> float:
    """Return the seconds to wait after `failure`, infrastructure fault number `faults` of a drop.

    After the death of a worker, the delay doubles with each fault.
    """
    if failure.code == InputLostError.code:
        return _INPUT_DELAY_SECONDS
    return float(min(_FIRST_DELAY_SECONDS * 2 ** min(faults - 1, 10), _LONGEST_DELAY_SECONDS))
