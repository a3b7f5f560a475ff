"""Flow control of messages: senders wait here while a peer has too much unprocessed data.

The credit of fetched contents is separate: see `managers.links.transfer`.
"""

import threading
from collections.abc import Callable

import msgspec

from dropflow.errors import DropflowError

MOST_IN_FRAME = 16_384
"""Bytes up to which a message is sent in one frame; above, copying it costs more than another frame."""
FRAME_LIMIT = 8 << 20
"""Bytes of the largest frame that may be sent; ZeroMQ closes a connection that brings a larger one."""
MESSAGE_LIMIT = 1 << 30
"""Bytes of the largest message, body and raw frames together. Larger contents go through the data plane."""


class SendWindow:
    """Bytes that may be unprocessed by one peer. Thread-safe.

    Parameters
    ----------
    limit : int
        Bytes. Senders take room beyond it, and wait before they take more.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Guards the counts below: any thread sends, the I/O thread returns credit. A queue would not do, because
        # several senders wait for one peer.
        self._changed = threading.Condition()
        self._used = 0
        self._waiting = 0
        self._error: DropflowError | None = None

    @property
    def used(self) -> int:
        """Bytes that are unprocessed."""
        return self._used

    @property
    def waiting(self) -> int:
        """Number of senders that wait for room."""
        return self._waiting

    def acquire(self, size: int) -> None:
        """Take room for `size` bytes, also beyond the limit.

        Raises
        ------
        DropflowError
            The error that `fail` was called with.
        """
        with self._changed:
            if self._error is not None:
                raise self._error
            self._used += size

    def wait_for_room(self, *, give_up: Callable[[], bool]) -> None:
        """Wait while more than the limit is unprocessed; also returns on an error and when `give_up` returns true."""
        if self._used <= self._limit:
            return
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: self._error is not None or self._used <= self._limit or give_up())
            finally:
                self._waiting -= 1

    def release(self, size: int) -> None:
        """Return room for `size` bytes."""
        with self._changed:
            self._used -= size
            if self._waiting:
                self._changed.notify_all()

    def wake_waiting(self) -> None:
        """Make all waiting senders evaluate `give_up` again."""
        with self._changed:
            self._changed.notify_all()

    def fail(self, error: DropflowError) -> None:
        """Raise `error` in all senders from now on."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def reset(self) -> None:
        """Undo `fail`."""
        with self._changed:
            self._error = None


# Settings of links. The defaults suit a cluster; tests shorten the times.


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
