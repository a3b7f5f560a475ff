"""Serving an application: waitress, tuned so that event streams and slow clients harm nobody.

Each open event stream holds a thread, so there are more threads than streams are allowed; waitress reads requests in
its own loop, so half-open ones hold none.
"""

import socket
import threading
from collections.abc import Callable
from typing import Any

from dropflow.errors import UsageError, WorldError
from dropflow.rest.auth import is_loopback
from dropflow.rest.kit import Streams

__all__ = ["Server"]

_SPARE_THREADS = 16


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
        self._server = _waitress(app, self._socket, threads=stream_limit + _SPARE_THREADS)
        self._thread = threading.Thread(target=self._server.run, name=f"rest:{self.port}", daemon=True)

    @property
    def url(self) -> str:
        """Address of the server, without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """End the event streams, stop answering and free the port. Idempotent."""
        self._streams.closing.set()
        self._server.close()
        self._thread.join()


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


def _waitress(app: Callable[..., Any], listening: socket.socket, *, threads: int) -> Any:
    from waitress.server import create_server  # noqa: PLC0415 - only servers pay for its import

    return create_server(
        app,
        sockets=[listening],
        threads=threads,
        connection_limit=2000,
        backlog=1024,
        channel_timeout=120,
        ident="dropflow",
        clear_untrusted_proxy_headers=True,
        max_request_body_size=2**30,
    )
