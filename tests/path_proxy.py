"""A reverse proxy that serves the servers of this host below a path, as that of JupyterHub does.

``/user/ada/proxy/8002/sessions`` is ``/sessions`` of the server on port 8002. It passes headers of browsers on, and
answers as they come. All other paths are refused, and remembered.
"""

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

_PREFIX = "/user/ada/proxy/"
_HOP = ("connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade")
"""Headers that are about one connection."""
_SECONDS = 60.0


class PathProxy(NamedTuple):
    """Where browsers reach the servers, and what they asked for besides."""

    public_url: str
    refused: list[str]


class _Handler(BaseHTTPRequestHandler):
    refused: list[str]

    def do_GET(self) -> None:
        port, slash, rest = self.path.removeprefix(_PREFIX).partition("/")
        if not (self.path.startswith(_PREFIX) and port.isdecimal() and slash):
            self.refused.append(self.path)
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        with closing(http.client.HTTPConnection("127.0.0.1", int(port), timeout=_SECONDS)) as server:
            server.request(self.command, f"/{rest}", body, headers)
            self._answer(server.getresponse())

    do_POST = do_GET  # noqa: N815 - a name of the library

    def _answer(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in (*_HOP, "date", "server"):
                self.send_header(name, value)
        self.end_headers()
        with suppress(ConnectionError):  # the browser closes the stream of events when a page is left
            while piece := answer.read1(1 << 16):
                self.wfile.write(piece)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def path_proxy() -> Iterator[PathProxy]:
    """Serve until the end of the context."""
    refused: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"refused": refused}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield PathProxy(f"http://localhost:{server.server_port}{_PREFIX}{{port}}", refused)
    server.shutdown()
    thread.join()
    server.server_close()
