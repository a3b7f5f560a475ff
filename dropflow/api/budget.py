"""A limit on the memory of the bodies of all requests together, so that many small requests cannot exhaust it.

A compressed body of 245 kB can unpack to 256 MB, and many may arrive at the same time. Each request has an account,
whose bytes are freed when it is closed. Requests without a credential share half of the budget, so that they cannot
block those with one.
"""

import re
import threading
from collections.abc import Generator
from contextlib import contextmanager

from dropflow.errors import HttpError


class Budget:
    """A number of bytes that accounts take from. May be used from any thread.

    Parameters
    ----------
    total : int
        Bytes of all accounts together.
    """

    def __init__(self, total: int) -> None:
        # Guards the sums: threads of the server take and free bytes, and each needs the answer immediately.
        self._lock = threading.Lock()
        self._total = total
        self._taken = {True: 0, False: 0}

    @property
    def taken(self) -> int:
        """Bytes that are taken now."""
        return sum(self._taken.values())

    def open(self, *, stranger: bool) -> "Account":
        """Return an account, to be closed at the end; a `stranger` has no credential."""
        return Account(self, stranger=stranger)

    @contextmanager
    def account(self, *, stranger: bool) -> "Generator[Account]":
        """Return an account that is closed at the end of the block."""
        found = self.open(stranger=stranger)
        try:
            yield found
        finally:
            found.close()

    def move(self, size: int, *, stranger: bool) -> bool:
        """Take `size` bytes, or free them if it is negative; return whether there was room."""
        with self._lock:
            full = self.taken + size > self._total
            crowded = stranger and self._taken[True] + size > self._total // 2
            if size > 0 and (full or crowded):
                return False
            self._taken[stranger] += size
            return True


class Account:
    """The bytes that one request has taken from a budget. Used by one thread at a time."""

    def __init__(self, budget: Budget, *, stranger: bool) -> None:
        self._budget = budget
        self._stranger = stranger
        self.taken = 0

    def take(self, size: int) -> None:
        """Take `size` bytes more.

        Raises
        ------
        HttpError
            503: other requests have taken all there are.
        """
        if not self._budget.move(size, stranger=self._stranger):
            raise HttpError(503, "the bodies of other requests use all the memory for bodies", hint="try again soon")
        self.taken += size

    def close(self) -> None:
        """Free all bytes. Idempotent."""
        self._budget.move(-self.taken, stranger=self._stranger)
        self.taken = 0


# Makes the addresses in an answer relative, so that a server works below any path of a proxy.
#
# Handlers and templates name addresses from the root of the server: ``/sessions``. A proxy may serve that root below a
# path that the server does not know, such as ``/user/ada/proxy/8002/``. So an answer to ``/sessions/one`` names
# ``../sessions`` instead, which is right below every path, if the proxy removes its own from requests.

# Text between tags and values of attributes have no quotation marks of their own: templates escape them.
_ADDRESS = re.compile(r'(?<=\s)((?:href|src|action|data-(?:api|base|events|moment|page|session|twin))=")/(?!/)')


def relative_address(address: str, target: str) -> str:
    """Return an address on this server relative to the request for `target`, and another address as it is."""
    if not address.startswith("/") or address.startswith("//"):
        return address
    return _root(target) + address[1:]


def relative_page(page: str, target: str) -> str:
    """Return a page of HTML, the answer to a request for `target`, with all its addresses on this server relative."""
    return _ADDRESS.sub(rf"\g<1>{_root(target)}", page)


def _root(target: str) -> str:
    depth = target.partition("?")[0].count("/") - 1
    return "../" * depth or "./"
