"""A fake manager with its pages, its API and its login, behind a server."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dropflow.api.auth import AccessRules
from dropflow.api.bottle_app import make_app
from dropflow.api.routes import Limits, StreamSlots
from dropflow.api.serving import RestServer
from dropflow.web.sign_in import login_routes
from managers.routes.handlers import api_v1_routes
from managers.state_hub import StateHub
from managers.web.pages import page_routes
from tests.browser import Window, open_window
from tests.fake_manager import FakeManager

Serve = Callable[..., str]
Look = Callable[..., Window]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that serves a manager and returns its URL. ``serve.stop(url)`` closes one, the end of the test all."""
    with ExitStack() as stack:

        def start(manager: FakeManager, *, token: str | None = None, streams: int = 16, port: int = 0) -> str:
            places, access = StreamSlots(streams), AccessRules(token=token)
            hub = StateHub(manager)
            routes = [*api_v1_routes(manager, places, hub=hub), *login_routes(access), *page_routes(manager, hub)]
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


@pytest.fixture
def look(chromium: Any) -> Iterator[Look]:
    """A function that opens browser windows. It fails the test if a page in them logged an error."""
    with ExitStack() as stack:
        yield lambda url, **settings: stack.enter_context(open_window(chromium, url, **settings))
