"""The states of the drops of a session here, and their latest changes, for clients that ask again and again."""

import secrets
from collections import deque

import numpy as np
import numpy.typing as npt

from dropflow.rest.state_records import DropStates

__all__ = ["StateLog"]

_KEPT = 4
"""Changes that a log keeps, for each of its drops. A client that is further behind gets all states."""


class StateLog:
    """The states of some drops, and their latest changes. For one thread at a time.

    Parameters
    ----------
    drops : int array
        Rows of the drops in the whole graph.
    """

    def __init__(self, drops: npt.NDArray[np.int32]) -> None:
        self._drops = drops.astype("<u4")
        self._states: npt.NDArray[np.uint8] | None = None
        self._steps: deque[tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]] = deque()
        self._held = 0
        self._first = 0
        """Number of the first step that is kept."""
        self._name = secrets.token_hex(4)

    def update(self, states: npt.NDArray[np.uint8]) -> None:
        """Note the present states of the drops; what differs is one step."""
        before = self._states
        self._states = states.copy()
        if before is None:
            return
        changed = np.flatnonzero(before != states)
        if not len(changed):
            return
        self._steps.append((self._drops[changed], states[changed]))
        self._held += len(changed)
        while self._held > _KEPT * len(self._drops):
            self._held -= len(self._steps.popleft()[0])
            self._first += 1

    def since(self, cursor: str) -> DropStates:
        """Return what has changed since the answer with this cursor; all states if that is not known any more."""
        now = f"{self._name}.{self._first + len(self._steps)}"
        name, _, number = cursor.partition(".")
        if name != self._name or not number.isdecimal() or int(number) < self._first:
            states = b"" if self._states is None else self._states.tobytes()
            return DropStates(cursor=now, drops=self._drops.tobytes(), states=states)
        steps = list(self._steps)[int(number) - self._first :]
        return DropStates(
            cursor=now,
            drops=b"".join(drops.tobytes() for drops, _ in steps),
            states=b"".join(states.tobytes() for _, states in steps),
        )
