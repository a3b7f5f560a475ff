"""Texts about inputs without content: how many failed, were skipped, or are not complete."""

from collections import Counter
from collections.abc import Sequence

from dropflow.apps.api import InputData
from dropflow.states import DropState

__all__ = ["describe_missing", "describe_state"]

_REASONS = {DropState.ERROR: "failed", DropState.SKIPPED: "skipped", DropState.CANCELLED: "cancelled"}
_OPEN = "not complete"
"""State of inputs that the application did not wait for, because of `n_effective_inputs`."""


def describe_state(state: DropState) -> str:
    """Return what happened to an input in `state`: ``failed``, ``was skipped``..."""
    return _verb(_REASONS.get(state, _OPEN), 1)


def describe_missing(inputs: Sequence[InputData]) -> str:
    """Count the inputs without content by reason, such as ``1 of 3 inputs failed, 1 was skipped``."""
    counts = Counter(_REASONS.get(data.state, _OPEN) for data in inputs if not data.ok)
    (reason, count), *others = sorted(counts.items())
    if len(inputs) == 1:
        return f"the only input {_verb(reason, 1)}"
    first = f"{count} of {len(inputs)} inputs {_verb(reason, count)}"
    return ", ".join((first, *(f"{count} {_verb(reason, count)}" for reason, count in others)))


def _verb(reason: str, count: int) -> str:
    if reason == "failed":
        return reason
    return f"{'was' if count == 1 else 'were'} {reason}"
