"""The rules by which drops advance, as tables and pure functions; `dropflow.engine.retry_rule` has that of retries.

The model is DALiuGE's (specification of the engine, sections 1.3 and 1.6 to 1.8) without its deadlocks: every mix of
completions, errors and skips leads to a decision, and to only one.
"""

from fractions import Fraction
from functools import lru_cache

from dropflow.states import DropState

__all__ = [
    "TRANSITIONS",
    "decide_app",
    "decide_data",
    "effective_inputs",
]

_COMPLETED, _ERROR, _SKIPPED = DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED
_INITIALIZED, _WRITING, _CANCELLED = DropState.INITIALIZED, DropState.WRITING, DropState.CANCELLED

TRANSITIONS: dict[DropState, frozenset[DropState]] = {
    _INITIALIZED: frozenset({_WRITING, _COMPLETED, _ERROR, _SKIPPED, _CANCELLED}),
    _WRITING: frozenset({_COMPLETED, _ERROR, _SKIPPED, _CANCELLED}),
    _COMPLETED: frozenset(),
    _ERROR: frozenset(),
    _SKIPPED: frozenset(),
    _CANCELLED: frozenset(),
    DropState.EXPIRED: frozenset(),
    DropState.DELETED: frozenset(),
}
"""The changes of state that the core makes. Terminal states are final within one epoch of a session."""


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
