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
