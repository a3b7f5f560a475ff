"""Calls of a manager: the requests that its state machine gets and makes, and their answers.

A request to the manager is the event `Call`, and its answer the action `Return`. A request to another manager is the
action `Ask`, and its answer the event `Answered` or `Unanswered`. Requests and answers are matched by number.
"""

from collections.abc import Mapping
from typing import Any

import msgspec


class Call(msgspec.Struct, frozen=True):
    """Event: an operation of this manager is called. The machine answers each call with exactly one `Return`.

    Attributes
    ----------
    id : int
        Number of the call.
    operation : str
        Name of a method of `dropflow.api.manager.Manager`, or of another operation that the machine has.
    arguments : mapping of str to object
        Arguments of the operation, by name.
    """

    id: int
    operation: str
    arguments: Mapping[str, Any] = {}


class Return(msgspec.Struct, frozen=True):
    """Action: answer a call with a value, or with an error if that is not None."""

    id: int
    value: Any = None
    error: Exception | None = None


class Ask(msgspec.Struct, frozen=True):
    """Action: call an operation of another manager.

    Attributes
    ----------
    id : int
        Number of the question.
    url : str
        Address of the other manager.
    operation : str
        Name of the operation.
    arguments : mapping of str to object
        Arguments of the operation, by name.
    deadline : float
        Monotonic time in seconds after which no answer is awaited any more.
    """

    id: int
    url: str
    operation: str
    arguments: Mapping[str, Any]
    deadline: float


class Answered(msgspec.Struct, frozen=True):
    """Event: the other manager answered an `Ask` with this value."""

    id: int
    value: Any = None


class Unanswered(msgspec.Struct, frozen=True):
    """Event: an `Ask` failed with this error: the other manager refused it, or did not answer in time."""

    id: int
    error: Exception


# The time in which this process ran, without its pauses: a pure state machine.
#
# A process that was stopped (SIGSTOP), swapped out or starved received nothing in that time, and
# finds every deadline passed when it continues. That time must not count as silence of other
# processes.


class Uptime:
    """A monotonic clock that stands still while this process does not run.

    Its owner reads it at least every `period` seconds while anything depends on it. A longer gap between two readings
    means that the process was paused, and none of the gap counts.

    Parameters
    ----------
    period : float
        Longest gap between two readings, in seconds, that counts.
    now : float
        The monotonic time.
    """

    def __init__(self, period: float, now: float) -> None:
        if not period > 0:
            raise ValueError(f"period must be more than 0, not {period}")
        self._period = period
        self._read = self._time = now
        self._paused = 0.0

    def read(self, now: float) -> float:
        """Return monotonic time `now` less all pauses; it never goes back."""
        gap = max(now - self._read, 0.0)
        self._read += gap
        if gap > self._period:
            self._paused += gap
        else:
            self._time += gap
        return self._time

    @property
    def paused(self) -> float:
        """Seconds that did not count so far."""
        return self._paused
