"""Visiting a manager to see how it is: what it says about itself, how quickly, and how its clock stands."""

import msgspec

from dropflow.clock import Clock
from dropflow.rest.client import Client
from dropflow.rest.schema import ManagerInfo

__all__ = ["ClockSkew", "measure_clock_skew"]


class ClockSkew(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a manager.

    Attributes
    ----------
    delay : float
        Seconds that it took to answer.
    skew : float
        Seconds by which its clock is ahead of the clock here, give or take half of `delay`.
    """

    info: ManagerInfo
    delay: float
    skew: float


def measure_clock_skew(client: Client, clock: Clock) -> ClockSkew:
    """Ask a manager about itself, twice: the first time pays for the connection, the second is measured.

    Raises
    ------
    DropflowError
        It does not answer, or refuses to.
    """
    client.info()
    before, began = clock.now(), clock.monotonic()
    info = client.info()
    delay = clock.monotonic() - began
    # The clock was read somewhere between the two ends of the request: half-way is the best guess.
    return ClockSkew(info=info, delay=round(delay, 4), skew=round(info.time - (before + delay / 2), 3))
