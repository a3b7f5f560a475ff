"""Whether a failed attempt of an application is followed by another one: its tries, and infrastructure faults."""

from enum import Enum, auto

from dropflow.errors import InputLostError
from dropflow.failure import Failure

__all__ = ["INFRASTRUCTURE_RETRIES", "NextAttempt", "decide_next_attempt", "fault_delay"]

INFRASTRUCTURE_RETRIES = 5
"""How many infrastructure faults a drop may have by default; the next one fails it."""

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0
_INPUT_DELAY = 5.0
"""Seconds after which an attempt that lost an input is repeated: by then, or soon after, other nodes know that the node
which had the input is gone, and the attempt waits until the input is there again."""


class NextAttempt(Enum):
    """What follows a failed attempt."""

    NONE = auto()
    """The drop fails."""
    TRY = auto()
    """The application is tried again, and one of its tries is used up."""
    AFTER_FAULT = auto()
    """The attempt is repeated after a delay: it had an infrastructure fault, which the drop's budget counts."""
    FREE = auto()
    """The attempt is repeated immediately, and nothing is counted: it was innocent."""


def decide_next_attempt(failure: Failure, *, tried: int, tries: int, faults: int, retries: int) -> NextAttempt:
    """Return what follows a failed attempt.

    Parameters
    ----------
    tried, tries : int
        How many tries of the application are used up, with this one, and how many there are.
    faults, retries : int
        How many infrastructure faults the drop had before this failure, and how many it may have.
    """
    if failure.is_innocent:
        return NextAttempt.FREE
    if failure.infrastructure:
        return NextAttempt.AFTER_FAULT if faults < retries else NextAttempt.NONE
    return NextAttempt.TRY if failure.retryable and tried < tries else NextAttempt.NONE


def fault_delay(faults: int, failure: Failure) -> float:
    """Return the seconds to wait after `failure`, infrastructure fault number `faults` of a drop.

    After the death of a worker twice as long each time.
    """
    if failure.code == InputLostError.code:
        return _INPUT_DELAY
    return float(min(_FIRST_DELAY * 2 ** min(faults - 1, 10), _LONGEST_DELAY))
