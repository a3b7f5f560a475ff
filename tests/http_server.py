"""Serves routes on a real port, and sends requests as bytes: for tests of servers and clients."""

import http.client
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from dropflow.api.auth import AccessRules
from dropflow.api.bottle_app import make_app
from dropflow.api.routes import Limits, Route, StreamSlots
from dropflow.api.serving import RestServer
from dropflow.clock import Clock

_SECONDS = 60.0


class ReceivedResponse(NamedTuple):
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)


@contextmanager
def serve(
    routes: Sequence[Route],
    *,
    access: AccessRules | None = None,
    limits: Limits | None = None,
    streams: StreamSlots | None = None,
    clock: Clock | None = None,
) -> Iterator[RestServer]:
    """Yield a server on a free port of loopback, closed at the end; without access rules it admits all requests."""
    bounds = limits or Limits(streams=8)
    open_streams = streams or StreamSlots(bounds.streams)
    app = make_app(routes, access or AccessRules(token=None), bounds, clock=clock)
    server = RestServer(app, streams=open_streams, stream_limit=bounds.streams)
    server.start()
    try:
        yield server
    finally:
        server.close()


def ask(
    url: str, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> ReceivedResponse:
    """Send one request exactly as it is given, over a connection of its own."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=_SECONDS)
    try:
        connection.request(method, target, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        return ReceivedResponse(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()
