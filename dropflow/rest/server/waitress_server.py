"""waitress with a loop that its caller runs step by step, and with threads that start when they are needed.

waitress itself starts all threads in advance and ends its loop only when every connection is closed. Hundreds of our
servers live in one test run, and a server must close while clients are connected. waitress also stops accepting when
there are many connections, even idle ones; here the surplus and the slow ones are closed (`connection_limits`).
"""

import resource
import socket
import threading
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Self

import msgspec
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from dropflow.clock import Clock, SystemClock
from dropflow.rest.server.connection_limits import ConnectionLimits, is_overdue, surplus
from dropflow.rest.server.request_head import HeadCheck
from dropflow.rest.server.waitress_channel import WaitressChannel

__all__ = ["WaitressServer"]

_ACCEPTED_AT_ONCE = 64
_TIDY = 1.0
_LOOK = 5.0
"""Longest wait of the loop while there are connections, in seconds; `_TIDY` is the shortest time between two checks of
them."""
_LONGEST_HEAD = 64 * 1024
_AHEAD = 4 << 20
"""Bytes of an answer that may wait to be sent. waitress has them in memory, and not in a temporary file, up to four
times as many."""
_NO_LIMIT = 2**62
"""For limits of waitress that other code enforces."""


class _Threads(ThreadedTaskDispatcher):  # type: ignore[misc] # waitress has no types
    """Starts a thread for a request if none is idle, up to a limit."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def add_task(self, task: Any) -> None:
        """Queue a request."""
        with self.lock:
            self.queue.append(task)
            self.queue_cv.notify()
            idle = len(self.threads) - self.stop_count - self.active_count
            if len(self.queue) > idle and len(self.threads) < self._most:
                number = next(number for number in count() if number not in self.threads)
                self.threads.add(number)
                self.active_count += 1
                self.start_new_thread(self.handler_thread, number)


class WaitressServer(TcpWSGIServer):  # type: ignore[misc] # waitress has no types
    """A server whose loop is run by its caller, in one thread."""

    channel_class = WaitressChannel

    def __init__(
        self,
        *given: Any,
        check_head: Callable[[dict[str, Any]], HeadCheck],
        limits: ConnectionLimits,
        clock: Clock,
        **settings: Any,
    ) -> None:
        self.check_head = check_head
        self.clock = clock
        self._limits = limits
        self._tidy_at = 0.0
        # Guards the pipe that wakes the loop: a request thread must not write to it after `abandon` closed it, because
        # its file descriptor may then belong to another file.
        self._waking = threading.Lock()
        self._silent = False
        super().__init__(*given, **settings)

    @classmethod
    def on(
        cls,
        listening: socket.socket,
        app: Callable[..., Any],
        *,
        check_head: Callable[[dict[str, Any]], HeadCheck],
        most: int,
        limits: ConnectionLimits | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Return a server on a socket that listens already.

        Parameters
        ----------
        listening : socket.socket
            Closed by `stop_listening`.
        app : WSGI application
        check_head : callable
            Decides about a request from its head (`dropflow.rest.server.bottle_app.RestApp.check_head`).
        most : int
            Threads that may run requests.
        limits : ConnectionLimits, optional
            How many connections there may be, and how long they may take; by default as many as this process has file
            descriptors for, up to `ConnectionLimits.most`.
        clock : Clock, optional
            For the times of connections; the system's unless given.
        """
        settings = Adjustments(
            sockets=[listening],
            connection_limit=_NO_LIMIT,
            backlog=1024,
            channel_request_lookahead=1,  # so that a closed connection is noticed while its request runs
            ident="dropflow",
            clear_untrusted_proxy_headers=True,
            max_request_header_size=_LONGEST_HEAD,
            max_request_body_size=_NO_LIMIT,
            outbuf_high_watermark=_AHEAD,
            outbuf_overflow=4 * _AHEAD,
        )
        where = (listening.family, listening.type, listening.proto, listening.getsockname())
        more: dict[str, Any] = {"dispatcher": _Threads(most), "adj": settings, "bind_socket": False, "sockinfo": where}
        limits, clock = limits or _default_limits(), clock or SystemClock()
        return cls(app, {}, True, listening, check_head=check_head, limits=limits, clock=clock, **more)

    def step(self, *, timeout: float) -> None:
        """Wait at most `timeout` seconds for input, and handle it."""
        timeout = min(timeout, _LOOK) if self.active_channels else timeout
        self.asyncore.loop(timeout=timeout, map=self._map, use_poll=True, count=1)

    def readable(self) -> bool:
        """Return whether to accept connections. Called in each step, so slow ones are closed here."""
        now = self.clock.monotonic()
        if now >= self._tidy_at:
            self._tidy_at = now + _TIDY
            self._end(
                channel
                for channel in self.active_channels.values()
                if is_overdue(channel.connection, now, self._limits)
            )
        return bool(self.accepting)

    def handle_accept(self) -> None:
        """Accept the connections that wait, and close others if there are too many."""
        before = len(self.active_channels)
        for _ in range(_ACCEPTED_AT_ONCE):
            known = len(self.active_channels)
            super().handle_accept()
            if len(self.active_channels) == known:
                break
        if len(self.active_channels) > max(before, min(self._limits.per_address, self._limits.most)):
            channels = list(self.active_channels.values())
            self._end(channels[place] for place in surplus([channel.connection for channel in channels], self._limits))

    def _end(self, channels: Iterable[WaitressChannel]) -> None:
        for channel in list(channels):
            channel.handle_close()

    def stop_listening(self) -> None:
        """Free the port. Must be called by the thread that runs the loop."""
        self.accepting = False
        wasyncore.dispatcher.close(self)

    def is_busy(self) -> bool:
        """Return whether requests run or answers are being sent."""
        channels = list(self.active_channels.values())
        return any(channel.requests or channel.total_outbufs_len for channel in channels)

    def abandon(self) -> None:
        """Close all connections and idle threads. Must be called by the thread that runs the loop."""
        for channel in list(self.active_channels.values()):
            channel.handle_close()
        self.task_dispatcher.set_thread_count(0)
        with self._waking:
            self._silent = True
            self.trigger.close()

    def pull_trigger(self) -> None:
        """Wake the loop, unless the server is closed already."""
        with self._waking:
            # The descriptor of a closed pipe may belong to another file by now.
            if not self._silent:
                super().pull_trigger()


def _default_limits() -> ConnectionLimits:
    """Return limits of half of the file descriptors, so that some are left for files and other sockets."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    usual = ConnectionLimits()
    most = usual.most if descriptors == resource.RLIM_INFINITY else min(usual.most, max(descriptors // 2, 8))
    return msgspec.structs.replace(usual, most=most, per_address=most * 3 // 4)
