"""Serving an application: waitress, tuned so that event streams and slow clients harm nobody.

Each open event stream holds a thread, so there may be more threads than streams; they are started when they are needed.
waitress reads requests in its own loop, so half-open ones hold none.

Closing takes two seconds at most: the port is freed at once, whoever asks over an open connection is told that the
server is closing, streams end by themselves, and what then still runs is left to itself.
"""

import socket
import threading
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Protocol

from dropflow.clock import SystemClock
from dropflow.errors import HttpError, UsageError, WorldError
from dropflow.rest.auth import is_loopback
from dropflow.rest.kit import Streams
from dropflow.rest.refusals import refusal

__all__ = ["Server"]

_SPARE_THREADS = 16
_GRACE = 1.5
"""Seconds that running requests have to end when the server closes."""


class Server:
    """One HTTP server in a thread of its own.

    Parameters
    ----------
    app : WSGI application
    host : str
        Address to bind; loopback unless somebody says otherwise.
    port : int
        0 lets the system choose; see `port` afterwards.
    streams : Streams
        Ended when the server closes.
    open_to_all : bool
        Whether there is no token. Refused off loopback.

    Raises
    ------
    UsageError
        For a server without a token on an address that other hosts can reach.
    WorldError
        If the address cannot be bound.
    """

    def __init__(
        self,
        app: Callable[..., Any],
        *,
        streams: Streams,
        stream_limit: int,
        host: str = "127.0.0.1",
        port: int = 0,
        open_to_all: bool = False,
    ) -> None:
        if open_to_all and not is_loopback(host):
            raise UsageError(
                f"a server without a token may only listen on loopback, not on {host}",
                hint="leave out --no-auth, or leave out --host",
            )
        self._streams = streams
        self._socket = _bound(host, port)
        self.host = host
        self.port = int(self._socket.getsockname()[1])
        self._server = _waitress(_closable(app, streams), self._socket, most=stream_limit + _SPARE_THREADS)
        self._thread = threading.Thread(target=self._run, name=f"rest:{self.port}", daemon=True)
        self._starting = threading.Lock()

    @property
    def url(self) -> str:
        """Address of the server, without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Begin to answer."""
        with self._starting:
            if self._thread.ident is None and not self._streams.closing.is_set():
                self._thread.start()

    def close(self) -> None:
        """End the event streams, stop answering and free the port. Idempotent; done within two seconds."""
        with self._starting:
            self._streams.closing.set()
            if self._thread.ident is None:
                self._thread.start()  # only to tidy up
        self._server.pull_trigger()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        closing, server = self._streams.closing, self._server
        while not closing.is_set():
            server.turn(timeout=30.0)
        server.stop_listening()
        clock = SystemClock()
        end = clock.monotonic() + _GRACE
        while server.is_busy() and clock.monotonic() < end:
            server.turn(timeout=0.05)
        server.abandon()


class _Serving(Protocol):
    """What this module needs of waitress."""

    def turn(self, *, timeout: float) -> None: ...

    def stop_listening(self) -> None: ...

    def is_busy(self) -> bool: ...

    def abandon(self) -> None: ...

    def pull_trigger(self) -> None: ...


def _closable(app: Callable[..., Any], streams: Streams) -> Callable[..., Any]:
    """`app`, which answers 503 once the server is closing."""

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if not streams.closing.is_set():
            answer: Iterable[bytes] = app(environ, start_response)
            return answer
        error = HttpError(503, "the server is closing", hint="start it again, or ask another one")
        told = refusal(error, {"Accept": environ.get("HTTP_ACCEPT", "")}, target=environ.get("PATH_INFO", ""))
        headers = [
            ("Content-Type", told.content_type),
            ("Content-Length", str(len(told.body))),
            ("Connection", "close"),
        ]
        start_response("503 Service Unavailable", headers)
        return [told.body]

    return serve


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(1024)
    except OSError as error:
        found.close()
        raise WorldError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another --port, or 0 for any"
        ) from error
    return found


def _waitress(app: Callable[..., Any], listening: socket.socket, *, most: int) -> _Serving:
    # Only servers pay for its import.
    from waitress import wasyncore  # noqa: PLC0415 - see above
    from waitress.adjustments import Adjustments  # noqa: PLC0415 - see above
    from waitress.server import TcpWSGIServer  # noqa: PLC0415 - see above
    from waitress.task import ThreadedTaskDispatcher  # noqa: PLC0415 - see above

    class Threads(ThreadedTaskDispatcher):  # type: ignore[misc] # waitress has no types
        """Starts a thread when a request finds none idle."""

        def add_task(self, task: Any) -> None:
            with self.lock:
                self.queue.append(task)
                self.queue_cv.notify()
                idle = len(self.threads) - self.stop_count - self.active_count
                if len(self.queue) > idle and len(self.threads) < most:
                    number = next(number for number in count() if number not in self.threads)
                    self.threads.add(number)
                    self.active_count += 1
                    self.start_new_thread(self.handler_thread, number)

    class Serving(TcpWSGIServer):  # type: ignore[misc] # waitress has no types
        """A server whose loop is turned from outside."""

        def __init__(self, *given: Any, **settings: Any) -> None:
            self.waking = threading.Lock()
            self.silent = False
            super().__init__(*given, **settings)

        def turn(self, *, timeout: float) -> None:
            self.asyncore.loop(timeout=timeout, map=self._map, use_poll=True, count=1)

        def stop_listening(self) -> None:
            self.accepting = False
            wasyncore.dispatcher.close(self)

        def is_busy(self) -> bool:
            channels = list(self.active_channels.values())
            return any(channel.requests or channel.total_outbufs_len for channel in channels)

        def abandon(self) -> None:
            for channel in list(self.active_channels.values()):
                channel.handle_close()
            self.task_dispatcher.set_thread_count(0)
            with self.waking:
                self.silent = True
                self.trigger.close()

        def pull_trigger(self) -> None:
            # A request that outlives the server has nobody to wake; the number of the pipe may be another file's now.
            with self.waking:
                if not self.silent:
                    super().pull_trigger()

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
    found: _Serving = Serving(
        app, {}, True, listening, dispatcher=Threads(), adj=settings, bind_socket=False, sockinfo=where
    )
    return found
