"""Applications that use the network, on this host only."""

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dropflow.apps.execute import LocalExecutor
from dropflow.engine.api import ExecutorSpec, Output, Task
from dropflow.graph.templates import Argument, Kind, Link, Template
from dropflow.testing.attempts import Given, try_app

URL = "dlg.apps.simple.UrlRetrieveApp"
LISTENER = "dlg.apps.socket_listener.SocketListenerApp"
BODY = bytes(range(256)) * 20


class Site(http.server.BaseHTTPRequestHandler):
    """A web site of a few pages."""

    def do_GET(self) -> None:
        """Send the page, an error or a redirect."""
        if self.path == "/data":
            self.reply(200, BODY)
        elif self.path == "/cut":
            self.reply(200, BODY, length=len(BODY) * 2)
        elif self.path == "/moved":
            self.reply(302, b"", location="/data")
        elif self.path == "/to-a-file":
            self.reply(302, b"", location="file:///etc/hostname")
        else:
            self.reply(503 if self.path == "/busy" else 404, b"an error page")

    def reply(self, status: int, body: bytes, *, location: str = "", length: int = -1) -> None:
        """Send one answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length < 0 else length))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """Log nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    """The address of a web site that is up during a test."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def fetch(directory: Path, url: str, **fields: Any) -> Any:
    """Fetch `url` into one output."""
    return try_app(URL, directory, outputs=["data"], fields={"url": url, **fields})


@pytest.mark.parametrize("page", ["/data", "/moved"])
def test_a_page_is_fetched_after_redirects(tmp_path: Path, site: str, page: str) -> None:
    """The content has the bytes of the page, also after a redirect."""
    assert fetch(tmp_path, site + page).contents == [BODY]


def test_the_address_may_come_from_a_port(tmp_path: Path, site: str) -> None:
    """Text connected to the port url is the address."""
    got = try_app(URL, tmp_path, inputs=[Given("url", f"{site}/data\n")], outputs=["data"])

    assert got.contents == [BODY]


@pytest.mark.parametrize(
    ("page", "code", "text"),
    [
        ("/none", "DF105", "answered 404"),
        ("/busy", "DF200", "answered 503"),
        ("/to-a-file", "DF105", "302"),
        ("/cut", "DF200", "ended after 5120 of 10240 bytes"),
    ],
)
def test_an_error_page_or_incomplete_page_is_a_failure(
    tmp_path: Path, site: str, page: str, code: str, text: str
) -> None:
    """An error page, a redirect to another scheme and an incomplete page are failures, not data."""
    failure = fetch(tmp_path, site + page).failure

    assert (failure.code, text in failure.text) == (code, True)


def test_a_page_over_the_limit_is_refused(tmp_path: Path, site: str) -> None:
    """More bytes than allowed are refused."""
    assert "larger than max_size (100 bytes)" in fetch(tmp_path, f"{site}/data", max_size=100).failure.text


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "ftp://x/y", "data", "http://"])
def test_only_http_urls_are_fetched(tmp_path: Path, url: str) -> None:
    """A URL with a scheme other than http and https is refused before a connection is opened."""
    assert fetch(tmp_path, url).failure.code == "DF104"


def test_a_refused_connection_can_be_retried(tmp_path: Path) -> None:
    """A refused connection is a failure that can be retried."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    failure = fetch(tmp_path, f"http://127.0.0.1:{port}/x").failure

    assert failure.retryable
    assert "cannot be fetched" in failure.text


@pytest.fixture
def free_port() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.mark.parametrize("reuse", [True, False])
def test_the_data_of_one_client_are_the_content(tmp_path: Path, free_port: int, *, reuse: bool) -> None:
    """The data that one client sends until it closes are the content of every output."""
    fields = {"host": "127.0.0.1", "port": free_port, "bufsize": 100, "reuse_addr": reuse}
    got: list[Any] = []
    listening = threading.Thread(
        target=lambda: got.append(try_app(LISTENER, tmp_path, outputs=["a", "b"], fields=fields))
    )
    listening.start()
    with _connected(free_port) as client:
        client.sendall(BODY)
    listening.join()

    assert got[0].contents == [BODY] * 2


def _connected(port: int) -> socket.socket:
    """A connection to a listener that is about to come up."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            threading.Event().wait(0.01)


def test_a_port_in_use_is_a_failure(tmp_path: Path) -> None:
    """The failure names the port that is not available."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failure = try_app(LISTENER, tmp_path, fields={"host": "127.0.0.1", "port": port}).failure

    assert f"cannot listen on 127.0.0.1:{port}" in failure.text


def test_a_listener_takes_no_inputs(tmp_path: Path) -> None:
    """An edge into it is an error."""
    assert "takes no inputs" in try_app(LISTENER, tmp_path, inputs=[Given("x", 1)]).failure.text


@pytest.mark.parametrize("connected", [True, False])
def test_a_cancelled_listener_ends(tmp_path: Path, free_port: int, *, connected: bool) -> None:
    """A cancelled listener ends, with or without a client."""
    fields = (Argument(name="host", value="127.0.0.1"), Argument(name="port", value=free_port))
    node = Template(key="l", name="listener", kind=Kind.APP, component=LISTENER, arguments=fields)
    data = Template(key="d", name="d", kind=Kind.DATA, component="dlg.data.drops.memory.InMemoryDROP")
    spec = ExecutorSpec(session="s", directory=str(tmp_path), templates=(node, data), links=(Link(source=0, target=1),))
    executor = LocalExecutor(spec)
    task = Task(0, 1, 0, "g_l_0", (), (), (Output(1, "g_d_0", 1, 0),))
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(executor.execute(task)))
    thread.start()
    log, pause = tmp_path / "logs" / "g_l_0.log", threading.Event()
    while not (log.exists() and "listening" in log.read_text()):
        pause.wait(0.01)  # a socket that is interrupted while it is made is closed later
    client = _connected(free_port) if connected else None
    while thread.is_alive():
        executor.abort(0, 1)
        thread.join(0.02)
    if client is not None:
        client.close()
    executor.close()

    assert results[0].failure.kind == "Interrupted"
