"""Serves an application with waitress, so that event streams and slow clients do not block other requests.

Each open event stream holds a thread, so there are more threads than streams. Threads start when they are needed.
waitress reads requests in its own loop, so half-open requests hold no thread; `dropflow.api.waitress_server`
limits their memory and time.

Closing takes two seconds at most: the port is freed first, requests on open connections are answered with 503, event
streams end, and requests that still run after that are abandoned.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from dropflow.api.addresses import address_error, is_loopback
from dropflow.api.bottle_app import RestApp, error_response
from dropflow.api.routes import StreamSlots
from dropflow.clock import SystemClock
from dropflow.errors import HttpError, UsageError

if TYPE_CHECKING:
    from dropflow.api.waitress_server import WaitressServer

_SPARE_THREADS = 16
"""Threads of the server for short requests, besides one for each event stream."""
_GRACE = 1.5
"""Seconds that running requests have to end when the server closes."""


class RestServer:
    """One HTTP server in its own thread.

    Parameters
    ----------
    app : RestApp
        An application from `dropflow.api.bottle_app.make_app`.
    host : str
        Address to bind; loopback unless given.
    port : int
        0 lets the system choose; `port` has the result.
    streams : StreamSlots
        Ended when the server closes.
    open_to_all : bool
        Whether there is no token. Allowed on loopback only.

    Raises
    ------
    UsageError
        For a server without a token on an address that other hosts can reach.
    ConflictError
        If the address cannot be bound.
    """

    def __init__(
        self,
        app: RestApp,
        *,
        streams: StreamSlots,
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
        prepare_records()
        self._streams = streams
        self._socket = _bound(host, port)
        self.host = host
        self.port = int(self._socket.getsockname()[1])
        self._server = _waitress(app, streams, self._socket, most=stream_limit + _SPARE_THREADS)
        self._thread = threading.Thread(target=self._run, name=f"rest:{self.port}", daemon=True)
        # `start` and `close` may be called by different threads, and the thread must be started exactly once.
        self._starting = threading.Lock()

    @property
    def url(self) -> str:
        """Address of the server, without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Start to answer requests."""
        with self._starting:
            if self._thread.ident is None and not self._streams.closing.is_set():
                self._thread.start()

    def close(self) -> None:
        """End the event streams, stop answering and free the port. Idempotent; done within two seconds."""
        with self._starting:
            self._streams.closing.set()
            if self._thread.ident is None:
                self._thread.start()  # only to close the socket
        self._server.pull_trigger()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        closing, server = self._streams.closing, self._server
        while not closing.is_set():
            server.step(timeout=30.0)
        server.stop_listening()
        clock = SystemClock()
        end = clock.monotonic() + _GRACE
        while server.is_busy() and clock.monotonic() < end:
            server.step(timeout=0.05)
        server.abandon()


def prepare_records() -> None:
    """Prepare all classes of records that are imported, before several threads decode them.

    msgspec 0.22 prepares a class when it is decoded first. If a second thread decodes it meanwhile, the process ends
    with a segmentation fault. Managers and the translator import the modules of all records that they decode before the
    server is made.
    """
    waiting: list[type[msgspec.Struct]] = [msgspec.Struct]
    while waiting:
        for record in waiting.pop().__subclasses__():
            waiting.append(record)
            with contextlib.suppress(TypeError, NameError):  # of a class that is never decoded
                msgspec.json.Decoder(record)


def _closable(app: Callable[..., Any], streams: StreamSlots) -> Callable[..., Any]:
    """Return `app`, answering 503 once the server is closing."""

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if not streams.closing.is_set():
            answer: Iterable[bytes] = app(environ, start_response)
            return answer
        error = HttpError(503, "the server is closing", hint="start it again, or ask another one")
        refusal = error_response(error, {"Accept": environ.get("HTTP_ACCEPT", "")}, target=environ.get("PATH_INFO", ""))
        headers = [("Content-Type", refusal.content_type), ("Content-Length", str(len(refusal.body)))]
        start_response("503 Service Unavailable", headers)
        return [refusal.body]

    return serve


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise address_error(f"cannot listen on {host}:{port}", error, option="--port") from error
    return listener


def _waitress(app: RestApp, streams: StreamSlots, listening: socket.socket, *, most: int) -> "WaitressServer":
    from dropflow.api.waitress_server import WaitressServer  # noqa: PLC0415 - only servers need waitress

    return WaitressServer.on(listening, _closable(app, streams), check_head=app.check_head, most=most)
