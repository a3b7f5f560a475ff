"""Measures how far the clock of a manager is ahead of the clock here."""

import msgspec

from dropflow.clock import Clock
from dropflow.rest.client import Client
from dropflow.rest.manager_records import ManagerInfo

__all__ = ["ClockSkew", "measure_clock_skew"]


class ClockSkew(msgspec.Struct, frozen=True, kw_only=True):
    """A manager, and the measurement of its clock.

    Attributes
    ----------
    delay : float
        Seconds until its answer.
    skew : float
        Seconds by which its clock is ahead of the clock here, give or take half of `delay`.
    """

    info: ManagerInfo
    delay: float
    skew: float


def measure_clock_skew(client: Client, clock: Clock) -> ClockSkew:
    """Measure the clock of a manager with two requests: the first opens the connection, the second is timed.

    Raises
    ------
    DropflowError
        It does not answer, or refuses the request.
    """
    client.info()
    before, began = clock.now(), clock.monotonic()
    info = client.info()
    delay = clock.monotonic() - began
    # The manager read its clock at some time during the request: the middle is the best estimate.
    return ClockSkew(info=info, delay=round(delay, 4), skew=round(info.time - (before + delay / 2), 3))
