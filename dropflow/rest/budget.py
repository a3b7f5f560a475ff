"""Bytes that the bodies of all requests together may take, so that many small requests cannot fill the memory.

A compressed body of 245 kB can unpack to 256 MB, and many may be under way at a time. Each request has an account; what
it takes is given back when the account is closed. Requests without a credential share half of the budget, so that they
cannot keep out those with one.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from dropflow.errors import HttpError

__all__ = ["Account", "Budget"]


class Budget:
    """A number of bytes that accounts take from. May be used from any thread.

    Parameters
    ----------
    total : int
        Bytes of all accounts together.
    """

    def __init__(self, total: int) -> None:
        # Guards the sums: threads of the server take and give back bytes, and each must get its answer immediately.
        self._lock = threading.Lock()
        self._total = total
        self._taken = {True: 0, False: 0}

    @property
    def taken(self) -> int:
        """Bytes that are taken now."""
        return sum(self._taken.values())

    def open(self, *, stranger: bool) -> "Account":
        """An account, to be closed at the end; a `stranger` showed no credential."""
        return Account(self, stranger=stranger)

    @contextmanager
    def account(self, *, stranger: bool) -> "Generator[Account]":
        """An account that is closed at the end of the block."""
        found = self.open(stranger=stranger)
        try:
            yield found
        finally:
            found.close()

    def move(self, size: int, *, stranger: bool) -> bool:
        """Take `size` bytes, or give them back where it is negative; whether there was room."""
        with self._lock:
            full = self.taken + size > self._total
            crowded = stranger and self._taken[True] + size > self._total // 2
            if size > 0 and (full or crowded):
                return False
            self._taken[stranger] += size
            return True


class Account:
    """What one request has taken from a budget. Used by one thread at a time."""

    def __init__(self, budget: Budget, *, stranger: bool) -> None:
        self._budget = budget
        self._stranger = stranger
        self.taken = 0

    def take(self, size: int) -> None:
        """Take `size` bytes more.

        Raises
        ------
        HttpError
            503: other requests have taken them.
        """
        if not self._budget.move(size, stranger=self._stranger):
            raise HttpError(
                503, "the bodies of other requests take all the memory there is for them", hint="try again soon"
            )
        self.taken += size

    def close(self) -> None:
        """Give everything back. Idempotent."""
        self._budget.move(-self.taken, stranger=self._stranger)
        self.taken = 0
