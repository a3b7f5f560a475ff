"""Settings of links. The defaults suit a cluster; tests shorten the times."""

import msgspec


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times (in seconds) and sizes (in bytes) of links.

    Attributes
    ----------
    heartbeat : float
        A link that sent nothing for this long sends a heartbeat.
    receive_timeout : float
        A link that received nothing for this long is closed and opened again.
    reconnect_delay, reconnect_delay_limit : float
        Delay before a broken link is opened again, and the longest delay; it doubles in between. After a long time
        without the peer, it is longer: see `managers.links.outbound`.
    earlier_after : float
        An earlier process of a peer is refused until the later one has been silent for this long. Otherwise one wrong
        incarnation would lock a peer out until this process ends.
    last_acks : float
        A process that stops waits this long until its peers have acknowledged what it sent.
    ack_delay : float
        An acknowledgement waits this long, so that one packet acknowledges several.
    ack_bytes : int
        An acknowledgement is sent without delay after this many bytes.
    window : int
        A sender waits while this much of what it sent is unprocessed by its peer. Bounds the memory of both ends.
    flight : int
        Bytes sent and not yet acknowledged; smaller than `window`, so that a heartbeat does not wait behind them all.
    fragment : int
        Large messages are split into packets of this size.
    chunk_first, chunk_least, chunk_most : int
        Sizes of the ranges that a fetch requests: larger while they arrive quickly, smaller while they do not.
    ahead : int
        Number of ranges that a fetch requests ahead.
    peers : int
        Maximum number of peers that may connect. Peers that were silent for an hour make room for others.
    source_idle : float
        Content that was not fetched for this long is closed.
    """

    heartbeat: float = 1.0
    receive_timeout: float = 4.0
    reconnect_delay: float = 0.05
    reconnect_delay_limit: float = 1.0
    earlier_after: float = 60.0
    last_acks: float = 2.0
    ack_delay: float = 0.02
    ack_bytes: int = 512 << 10
    window: int = 16 << 20
    flight: int = 4 << 20
    fragment: int = 64 << 10
    chunk_first: int = 256 << 10
    chunk_least: int = 16 << 10
    chunk_most: int = 2 << 20
    ahead: int = 4
    peers: int = 10_000
    source_idle: float = 10.0
