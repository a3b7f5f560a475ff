"""Calls of a manager: the requests that its state machine gets and makes, and their answers.

A request to the manager is the event `Call`, and its answer the action `Return`. A request to another manager is the
action `Ask`, and its answer the event `Answered` or `Unanswered`. Requests and answers are matched by number.
"""

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import msgspec

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")


class CallId(int, Generic[Answer]):
    """Number of a call that is answered with a value of this type."""


MachineOperation = (
    Callable[Concatenate[CallId[Answer], float, Arguments], None] | Callable[Arguments, Generator[Any, Any, Answer]]
)
"""A method of a machine that is called from other threads.

That of a node gets the number of the call, and the monotonic time; it may answer later. That of an island or a master
is a routine (`managers.composite.routines`) that returns the answer.
"""


class Call(msgspec.Struct, frozen=True):
    """Event: an operation of this manager is called. The machine answers each call with exactly one `Return`.

    Attributes
    ----------
    id : CallId
        Number of the call.
    operation : partial
        A `MachineOperation` with the arguments of the caller.
    """

    id: CallId[Any]
    operation: partial[Any]


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
