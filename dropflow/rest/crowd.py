"""Which connections a server closes: those that take too long, and those that are too many.

Decided from plain records, without sockets and clocks. A connection counts as idle while no request of it runs and no
answer is on its way: it waits for a request, or has sent part of one.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

__all__ = ["Crowd", "Guest", "overdue", "surplus"]


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
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


class Guest(msgspec.Struct, frozen=True, kw_only=True):
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


def overdue(guest: Guest, now: float, crowd: Crowd) -> bool:
    """Whether a connection takes too long."""
    if guest.has_output:
        return now - guest.moved > crowd.still
    if guest.is_running:
        return False
    if guest.stage == "next":
        return now - guest.since > crowd.kept
    if guest.stage == "body":
        return now - guest.moved > crowd.still or (not guest.is_known and now - guest.since > crowd.body)
    return now - guest.since > crowd.head


def surplus(guests: Sequence[Guest], crowd: Crowd) -> Collection[int]:
    """Which connections, by their place, are closed because there are too many; the last of `guests` is the newest.

    Idle ones go first: those that showed no credential, then those that wait the longest. Where none of an address is
    idle, its newest goes.
    """
    chosen: set[int] = set()
    counts = Counter(guest.address for guest in guests)
    crowded = {address for address, count in counts.items() if count > crowd.per_address}
    for address in crowded:
        places = [place for place, guest in enumerate(guests) if guest.address == address]
        chosen.update(_first(guests, places, counts[address] - crowd.per_address))
    rest = [place for place in range(len(guests)) if place not in chosen]
    chosen.update(_first(guests, rest, len(rest) - crowd.most))
    return chosen


def _first(guests: Sequence[Guest], places: Sequence[int], number: int) -> Sequence[int]:
    """The `number` of `places` that are closed first."""
    newest = len(guests) - 1

    def rank(place: int) -> tuple[bool, bool, float]:
        guest = guests[place]
        if guest.is_running or guest.has_output or place == newest:  # the newest had no time to ask for anything
            return True, False, -place
        return False, guest.is_known, guest.since

    return sorted(places, key=rank)[: max(number, 0)]
