"""The numbers by which links behave. The defaults suit a cluster; tests shorten the times."""

import msgspec

__all__ = ["FRAME_LIMIT", "INLINE", "MESSAGE_LIMIT", "LinkSettings"]

INLINE = 16_384
"""Bytes up to which messages travel in one frame; above, a copy costs more than another frame does."""

FRAME_LIMIT = 8 << 20
"""Bytes of the largest frame that anybody may send; ZeroMQ drops a connection that brings a larger one."""

MESSAGE_LIMIT = 1 << 30
"""Bytes of the largest message, body and raw frames together. Larger things go through the data plane."""


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How patient and how greedy links are. Times in seconds, sizes in bytes.

    Attributes
    ----------
    beat : float
        A link on which nothing was sent for so long sends a heartbeat.
    silence : float
        A link on which nothing was heard for so long is torn down and opened again.
    reconnect_delay, reconnect_delay_limit : float
        Wait before the first attempt to open a broken link again, and the longest wait; it doubles in between.
    ack_delay : float
        Acknowledgements wait so long for company.
    ack_bytes : int
        But not beyond so many bytes received.
    window : int
        A sender waits while its peer has not dealt with so much. Bounds the memory of both ends.
    flight : int
        Bytes sent and not yet acknowledged; smaller than `window`, so that a heartbeat is not stuck behind it all.
    fragment : int
        Large messages are cut into packets of this size.
    chunk_first, chunk_least, chunk_most : int
        A fetch asks for ranges of these sizes: larger while they arrive quickly, smaller when they do not arrive.
    ahead : int
        Ranges that a fetch asks for ahead.
    peers : int
        Most peers that may connect.
    source_idle : float
        Content that nobody fetched for so long is closed.
    """

    beat: float = 1.0
    silence: float = 4.0
    reconnect_delay: float = 0.05
    reconnect_delay_limit: float = 1.0
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
