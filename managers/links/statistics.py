"""Counts and states of the links of a process, as frozen records."""

import msgspec

__all__ = ["LinkStatistics", "PeerStatistics"]


class PeerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The link to one peer.

    Attributes
    ----------
    peer : str
        Its name.
    state : str
        ``idle``, ``connecting``, ``up``, ``waiting`` or ``refused``.
    address : str
        Address that it listens on.
    incarnation : int
        Incarnation of the peer; 0 if it never answered.
    pending : int
        Bytes sent or queued that it has not processed.
    waiting : int
        Number of senders that wait for room.
    resent : int
        Number of packets that were sent again.
    problem : str
        Why the link is not up.
    """

    peer: str
    state: str
    address: str
    incarnation: int
    pending: int
    waiting: int
    resent: int
    problem: str


class LinkStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """All links of a process.

    Attributes
    ----------
    name, incarnation, address :
        Of this process.
    peers : tuple of PeerStatistics
        By name.
    delivered : int
        Number of messages passed on.
    duplicates : int
        Number of duplicate packets that were dropped.
    refused : int
        Number of connections that were refused: wrong key, wrong version, or not packets.
    transfers : int
        Number of fetches that are running.
    fetched : int
        Bytes of contents that arrived.
    errors : int
        Number of messages and changes whose receiver raised an exception.
    """

    name: str
    incarnation: int
    address: str
    peers: tuple[PeerStatistics, ...]
    delivered: int
    duplicates: int
    refused: int
    transfers: int
    fetched: int
    errors: int
