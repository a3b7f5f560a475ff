"""The inbox of a thread that owns a state: what others put there, and functions that they ask it to call."""

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, cast

from dropflow.errors import WorldError

T = TypeVar("T")
S = TypeVar("S")
_OWNER_SECONDS = 20.0
"""Seconds in which the thread of the session must answer a call."""


class Inbox(Generic[T]):
    """A queue whose reader takes all items together. The reader is woken, and does not poll."""

    def __init__(self) -> None:
        # SimpleQueue is written in C: waking the reader through a threading.Event doubles the cost of a message.
        self._batches: SimpleQueue[tuple[T, ...]] = SimpleQueue()

    def put(self, items: Iterable[T]) -> None:
        """Add items, from any thread or from a signal handler."""
        batch = tuple(items)
        if batch:
            self._batches.put(batch)

    def drain(self, timeout: float | None = None) -> list[T]:
        """Return all items that were put since the last call, in order; wait while there are none.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait at most; the list is empty if they have passed.
        """
        try:
            taken = [*self._batches.get(timeout=timeout)]
            while not self._batches.empty():  # there is no other reader
                taken += self._batches.get_nowait()
        except Empty:
            return []
        return taken


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
            The owner did not carry out the call within twenty seconds.
        """
        if not self._done.wait(_OWNER_SECONDS):
            raise WorldError(
                f"the session has not answered for {_OWNER_SECONDS:g} s",
                hint="it may be waiting for a disk or another node; try again",
            )
        if self._error is not None:
            raise self._error
        return cast(T, self._value)
