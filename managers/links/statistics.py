"""How the links of a process are doing, as frozen records."""

import msgspec

__all__ = ["LinkStatistics", "PeerStatistics"]


class PeerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The link to one peer.

    Attributes
    ----------
    peer : str
        Its name.
    state : str
        ``idle``, ``dialing``, ``up``, ``waiting`` or ``refused``.
    address : str
        Where it listens.
    incarnation : int
        Of the peer; 0 if it never answered.
    pending : int
        Bytes sent, or to be sent, that it has not dealt with.
    waiting : int
        Senders that wait for room.
    resent : int
        Packets that had to be sent again.
    trouble : str
        Why the link is not up.
    """

    peer: str
    state: str
    address: str
    incarnation: int
    pending: int
    waiting: int
    resent: int
    trouble: str


class LinkStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """All links of a process.

    Attributes
    ----------
    name, incarnation, address :
        Of this process.
    peers : tuple of PeerStatistics
        By name.
    delivered : int
        Messages handed on.
    duplicates : int
        Packets that came twice and were dropped.
    refused : int
        Connections that were refused: wrong key, wrong version, or garbage.
    transfers : int
        Fetches under way.
    errors : int
        Messages on which the receiving function raised.
    """

    name: str
    incarnation: int
    address: str
    peers: tuple[PeerStatistics, ...]
    delivered: int
    duplicates: int
    refused: int
    transfers: int
    errors: int
