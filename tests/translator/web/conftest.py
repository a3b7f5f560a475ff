"""Translators behind servers, and a manager to which they may deploy."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from dropflow.api.auth import AccessRules
from dropflow.api.serving import RestServer
from tests.fake_manager import FakeManager
from tests.translator.web.forked import ForkedProcess
from tests.translator.web.served import EXAMPLES, TOKEN, Served
from translator.web import jobs
from translator.web.records import TranslatorLimits
from translator.web.routes import STREAMS, make_translator
from translator.web.translator_service import TranslatorService


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


_START = jobs._start


@pytest.fixture(autouse=True)
def _forked_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes of translations."""
    monkeypatch.setattr(jobs, "_start", ForkedProcess)


@pytest.fixture
def started_processes(monkeypatch: pytest.MonkeyPatch, _forked_processes: None) -> None:
    """Start the processes as the translator does, for tests of just these."""
    monkeypatch.setattr(jobs, "_start", _START)


@pytest.fixture
def manager_url() -> Iterator[str]:
    """The URL of a server that has a page for each session, as managers do."""

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        start("200 OK", [("Content-Type", "text/plain")])
        return [f"the page {environ['PATH_INFO']}".encode()]

    server = make_server("127.0.0.1", 0, application, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def serve(tmp_path: Path, manager_url: str) -> Iterator[Callable[..., Served]]:
    """A function that starts translators. They are closed after the test."""
    running: list[tuple[RestServer, TranslatorService]] = []

    def start(limits: TranslatorLimits | None = None, *, token: str | None = TOKEN, log: Path | None = None) -> Served:
        manager = FakeManager("master", role="master", nodes=("node-1", "node-2", "node-3"))
        access = AccessRules(token=token)
        app, streams, service = make_translator(
            tmp_path / f"translator-{len(running)}",
            managers=[manager_url],
            access=access,
            limits=limits,
            log=log,
            connect=lambda _: manager,
        )
        server = RestServer(app, streams=streams, stream_limit=STREAMS, open_to_all=token is None)
        server.start()
        running.append((server, service))
        return Served(server.url, service, streams, manager=manager, manager_url=manager_url)

    yield start
    for server, service in running:
        service.close()
        server.close()


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """A translator with the default limits."""
    return serve()


@pytest.fixture
def hello() -> Path:
    """A graph of about five nodes."""
    return EXAMPLES / "hello.graph"


@pytest.fixture
def nested() -> Path:
    """A graph with a scatter inside a scatter."""
    return EXAMPLES / "nested-scatter-gather.graph"
