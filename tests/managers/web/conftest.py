"""A made-up manager with its pages, its API and its login, served for real."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dropflow.rest.auth import AccessRules
from dropflow.rest.kit import Limits, StreamSlots, make_app
from dropflow.rest.login import login_routes
from dropflow.rest.server import RestServer
from dropflow.testing.fake_manager import FakeManager
from managers.routes.api_v1 import api_v1_routes
from managers.web.pages import page_routes
from tests.browser import Window, open_browser, open_window

Serve = Callable[..., str]
Look = Callable[..., Window]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a manager; answers the address. Everything is closed afterwards, or before by ``serve.stop(address)``."""
    with ExitStack() as stack:

        def start(manager: FakeManager, *, token: str | None = None, streams: int = 16, port: int = 0) -> str:
            places, access = StreamSlots(streams), AccessRules(token=token)
            routes = [*api_v1_routes(manager, places), *login_routes(access), *page_routes(manager, places)]
            app = make_app(routes, access, Limits(streams=streams))
            server = RestServer(app, streams=places, stream_limit=max(streams, 1), port=port, open_to_all=token is None)
            server.start()
            running[server.url] = server
            stack.callback(server.close)
            stack.callback(manager.close)
            return server.url

        running: dict[str, RestServer] = {}
        start.stop = lambda url: running[url].close()  # type: ignore[attr-defined]
        yield start


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for the tests of one module."""
    with open_browser() as found:
        yield found


@pytest.fixture
def look(browser: Any) -> Iterator[Look]:
    """Opens windows that must have done nothing wrong when the test ends."""
    with ExitStack() as stack:
        yield lambda url, **settings: stack.enter_context(open_window(browser, url, **settings))
