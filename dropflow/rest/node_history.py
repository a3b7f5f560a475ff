"""Records of the load of a node over time."""

import msgspec

__all__ = ["LoadSample", "NodeHistory"]


class LoadSample(msgspec.Struct, frozen=True, array_like=True):
    """The load of a host at one time; in JSON an array in this order.

    Attributes
    ----------
    time : float
        Seconds since the epoch.
    processor : float
        Use of all processors, per cent.
    memory, disk : int
        Bytes in use.
    received, sent : int
        Bytes over all network interfaces but the local one, since the host was started.
    sessions, running : int
        Sessions that run, and attempts that run in workers or threads.
    """

    time: float
    processor: float
    memory: int
    disk: int
    received: int
    sent: int
    sessions: int
    running: int


class NodeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a node during the last hour: a sample every `every` seconds, the oldest one first."""

    node: str
    every: float
    samples: tuple[LoadSample, ...] = ()
