"""Calls of other threads into the thread that owns a state, carried out by the owner between two of its steps."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from dropflow.errors import WorldError

__all__ = ["OwnerCall"]

_WAIT_SECONDS = 20.0

S = TypeVar("S")
T = TypeVar("T")


class OwnerCall(Generic[S, T]):
    """One function to be called with the owned state, and its return value or exception."""

    def __init__(self, function: Callable[[S], T]) -> None:
        self._function = function
        self._done = threading.Event()
        self._value: T | None = None
        self._error: Exception | None = None

    def carry_out(self, state: S) -> None:
        """Call the function, in the owner's thread. An exception is kept for `wait`."""
        try:
            self._value = self._function(state)
        except Exception as error:  # noqa: BLE001 - raised again by `wait`
            self._error = error
        self._done.set()

    def wait(self) -> T:
        """Return what the function returned, or raise what it raised, in the thread of the caller.

        Raises
        ------
        WorldError
            The owner did not come to the call in twenty seconds.
        """
        if not self._done.wait(_WAIT_SECONDS):
            raise WorldError(
                f"the session has not answered for {_WAIT_SECONDS:g} s",
                hint="it may be waiting for a disk or another node; try again",
            )
        if self._error is not None:
            raise self._error
        return cast(T, self._value)
