"""waitress with a loop that is turned from outside, and with threads that start when they are needed.

waitress starts all its threads at once and ends its loop only when every connection is gone; a server of which hundreds
live in one test run, and which has to end while clients still hang on, needs both otherwise.
"""

import socket
import threading
from collections.abc import Callable
from itertools import count
from typing import Any, Self

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

__all__ = ["Serving"]


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


class Serving(TcpWSGIServer):  # type: ignore[misc] # waitress has no types
    """A server whose loop is turned from outside, by one thread."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._waking = threading.Lock()
        self._silent = False
        super().__init__(*given, **settings)

    @classmethod
    def on(cls, listening: socket.socket, app: Callable[..., Any], *, most: int) -> Self:
        """A server on a socket that listens already.

        Parameters
        ----------
        listening : socket.socket
            Closed by `stop_listening`.
        app : WSGI application
        most : int
            Threads that may run requests.
        """
        settings = Adjustments(
            sockets=[listening],
            connection_limit=2000,
            backlog=1024,
            channel_timeout=120,
            channel_request_lookahead=1,  # a client that goes away is seen while its request runs
            ident="dropflow",
            clear_untrusted_proxy_headers=True,
            max_request_body_size=2**30,
        )
        where = (listening.family, listening.type, listening.proto, listening.getsockname())
        more = {"dispatcher": _Threads(most), "adj": settings, "bind_socket": False, "sockinfo": where}
        return cls(app, {}, True, listening, **more)

    def turn(self, *, timeout: float) -> None:
        """Wait for something to happen for `timeout` seconds at most, and deal with it."""
        self.asyncore.loop(timeout=timeout, map=self._map, use_poll=True, count=1)

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
