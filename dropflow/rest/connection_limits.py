"""Which connections a server closes: those that take too long, and those that are too many.

Decided from plain records, without sockets and clocks. A connection counts as idle while no request of it runs and no
answer is on its way: it waits for a request, or has sent part of one.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

__all__ = ["ConnectionLimits", "ConnectionState", "is_overdue", "surplus"]


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections there may be, and how long they may take.

    Attributes
    ----------
    most, per_address : int
        Connections at a time, in all and from one address.
    head : float
        Seconds for the head of a request; for the first one they begin with the connection.
    body : float
        Seconds for the whole body of a request that showed no credential.
    still : float
        Seconds for which nothing may move while a body comes in or an answer goes out.
    kept : float
        Seconds for which a connection is kept after an answer.
    """

    most: int = 1000
    per_address: int = 750
    head: float = 15.0
    body: float = 300.0
    still: float = 60.0
    kept: float = 120.0


class ConnectionState(msgspec.Struct, frozen=True, kw_only=True):
    """One connection.

    Attributes
    ----------
    address : str
        Of the other end.
    is_known : bool
        Whether a request of it showed a credential.
    is_running : bool
        Whether a request runs.
    has_output : bool
        Whether part of an answer is still to be sent.
    stage : str
        What it waits for: ``first`` or ``next`` request, ``head`` or ``body`` of one that has begun.
    since : float
        When that began.
    moved : float
        When bytes came or went last.
    """

    address: str
    is_known: bool = False
    is_running: bool = False
    has_output: bool = False
    stage: str = "first"
    since: float = 0.0
    moved: float = 0.0


def is_overdue(connection: ConnectionState, now: float, limits: ConnectionLimits) -> bool:
    """Whether a connection takes too long."""
    if connection.has_output:
        return now - connection.moved > limits.still
    if connection.is_running:
        return False
    if connection.stage == "next":
        return now - connection.since > limits.kept
    if connection.stage == "body":
        return now - connection.moved > limits.still or (
            not connection.is_known and now - connection.since > limits.body
        )
    return now - connection.since > limits.head


def surplus(connections: Sequence[ConnectionState], limits: ConnectionLimits) -> Collection[int]:
    """Return the indices of the connections to close because there are too many; the last connection is the newest.

    Idle connections are closed first: those without a credential, then those that have waited longest. If no connection
    of an address is idle, its newest one is closed.
    """
    chosen: set[int] = set()
    counts = Counter(connection.address for connection in connections)
    crowded = {address for address, count in counts.items() if count > limits.per_address}
    for address in crowded:
        places = [place for place, connection in enumerate(connections) if connection.address == address]
        chosen.update(_first(connections, places, counts[address] - limits.per_address))
    rest = [place for place in range(len(connections)) if place not in chosen]
    chosen.update(_first(connections, rest, len(rest) - limits.most))
    return chosen


def _first(connections: Sequence[ConnectionState], places: Sequence[int], number: int) -> Sequence[int]:
    """The `number` of `places` that are closed first."""
    newest = len(connections) - 1

    def rank(place: int) -> tuple[bool, bool, float]:
        connection = connections[place]
        if (
            connection.is_running or connection.has_output or place == newest
        ):  # the newest had no time to ask for anything
            return True, False, -place
        return False, connection.is_known, connection.since

    return sorted(places, key=rank)[: max(number, 0)]
