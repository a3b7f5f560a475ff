"""Decides which connections a server closes because they take too long, or because there are too many.

Works on records, without sockets and clocks. A connection is idle while no request of it runs and no answer is being
sent: it waits for a request, or has sent part of one.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

__all__ = ["ConnectionLimits", "ConnectionState", "is_overdue", "surplus"]


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the number of connections and on their time.

    Attributes
    ----------
    most, per_address : int
        Connections at a time, in all and from one address.
    head : float
        Seconds for the head of a request; for the first one counted from the start of the connection.
    body : float
        Seconds for the whole body of a request without a credential.
    still : float
        Seconds without a byte while a body is received or an answer is sent.
    kept : float
        Seconds until a connection is closed after an answer.
    """

    most: int = 1000
    per_address: int = 750
    head: float = 15.0
    body: float = 300.0
    still: float = 60.0
    kept: float = 120.0


class ConnectionState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one connection.

    Attributes
    ----------
    address : str
        Of the other end.
    is_known : bool
        Whether a request of it had a credential.
    is_running : bool
        Whether a request runs.
    has_output : bool
        Whether part of an answer is still to be sent.
    stage : str
        What it waits for: ``first`` or ``next`` request, ``head`` or ``body`` of one that has begun.
    since : float
        When that began.
    moved : float
        When bytes were last received or sent.
    """

    address: str
    is_known: bool = False
    is_running: bool = False
    has_output: bool = False
    stage: str = "first"
    since: float = 0.0
    moved: float = 0.0


def is_overdue(connection: ConnectionState, now: float, limits: ConnectionLimits) -> bool:
    """Return whether a connection takes too long."""
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
    """Return the `number` of `places` to close first."""
    newest = len(connections) - 1

    def rank(place: int) -> tuple[bool, bool, float]:
        connection = connections[place]
        if (
            connection.is_running or connection.has_output or place == newest
        ):  # the newest had no time to send a request
            return True, False, -place
        return False, connection.is_known, connection.since

    return sorted(places, key=rank)[: max(number, 0)]
