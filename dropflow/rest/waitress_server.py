"""waitress with a loop that is turned from outside, and with threads that start when they are needed.

waitress starts all its threads at once and ends its loop only when every connection is gone; a server of which hundreds
live in one test run, and which has to end while clients still hang on, needs both otherwise. It also stops accepting
when there are many connections, idle ones too; here those that are too many or too slow are closed (`limits`).
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
from dropflow.rest.connection_limits import ConnectionLimits, is_overdue, surplus
from dropflow.rest.request_head import HeadCheck
from dropflow.rest.waitress_channel import WaitressChannel

__all__ = ["WaitressServer"]

_ACCEPTED_AT_ONCE = 64
_TIDY = 1.0
_LOOK = 5.0
"""Seconds between looks at connections, while there are any: at least, where something happens, and at most."""
_LONGEST_HEAD = 64 * 1024
_NO_LIMIT = 2**62
"""For limits of waitress whose work is done elsewhere."""


class _Threads(ThreadedTaskDispatcher):  # type: ignore[misc] # waitress has no types
    """Starts a thread when a request finds none idle, up to a limit."""

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
    """A server whose loop is turned from outside, by one thread."""

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
        """A server on a socket that listens already.

        Parameters
        ----------
        listening : socket.socket
            Closed by `stop_listening`.
        app : WSGI application
        check_head : callable
            Answers what is decided about a request from its head (`dropflow.rest.kit.RestApp.check_head`).
        most : int
            Threads that may run requests.
        limits : ConnectionLimits, optional
            How many connections there may be, and how long they may take; by default as many as this process has file
            descriptors for, up to `ConnectionLimits.most`.
        clock : Clock, optional
            By which connections are timed; the system's unless given.
        """
        settings = Adjustments(
            sockets=[listening],
            connection_limit=_NO_LIMIT,
            backlog=1024,
            channel_request_lookahead=1,  # a client that goes away is seen while its request runs
            ident="dropflow",
            clear_untrusted_proxy_headers=True,
            max_request_header_size=_LONGEST_HEAD,
            max_request_body_size=_NO_LIMIT,
        )
        where = (listening.family, listening.type, listening.proto, listening.getsockname())
        more: dict[str, Any] = {"dispatcher": _Threads(most), "adj": settings, "bind_socket": False, "sockinfo": where}
        limits, clock = limits or _default_limits(), clock or SystemClock()
        return cls(app, {}, True, listening, check_head=check_head, limits=limits, clock=clock, **more)

    def turn(self, *, timeout: float) -> None:
        """Wait for something to happen for `timeout` seconds at most, and deal with it."""
        timeout = min(timeout, _LOOK) if self.active_channels else timeout
        self.asyncore.loop(timeout=timeout, map=self._map, use_poll=True, count=1)

    def readable(self) -> bool:
        """Whether to accept connections; asked in each turn, so that slow ones are looked for here."""
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
        """Accept the connections that wait, and close others where there are too many."""
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
        """Free the port. To be called by the thread that turns."""
        self.accepting = False
        wasyncore.dispatcher.close(self)

    def is_busy(self) -> bool:
        """Whether requests run, or answers are on their way."""
        channels = list(self.active_channels.values())
        return any(channel.requests or channel.total_outbufs_len for channel in channels)

    def abandon(self) -> None:
        """End all connections and idle threads. To be called by the thread that turns."""
        for channel in list(self.active_channels.values()):
            channel.handle_close()
        self.task_dispatcher.set_thread_count(0)
        with self._waking:
            self._silent = True
            self.trigger.close()

    def pull_trigger(self) -> None:
        """Wake the loop. A request that outlives the server has nobody to wake."""
        with self._waking:
            # The number of a closed pipe may be that of another file by now.
            if not self._silent:
                super().pull_trigger()


def _default_limits() -> ConnectionLimits:
    """Half of the file descriptors, so that files and other sockets always find one."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    usual = ConnectionLimits()
    most = usual.most if descriptors == resource.RLIM_INFINITY else min(usual.most, max(descriptors // 2, 8))
    return msgspec.structs.replace(usual, most=most, per_address=most * 3 // 4)
