"""Contents of drops over HTTP, whole and in parts."""

import http.client
from collections.abc import Iterator

import pytest

from dropflow.api.client import Client
from dropflow.api.openapi import StreamSlots
from dropflow.api.rest_server import RestServer
from dropflow.testing.fake_manager import manager_with_sessions
from dropflow.testing.faults import ask, serve
from managers.routes.daliuge import daliuge_routes
from managers.routes.handlers import api_v1_routes

_CONTENT = bytes(range(250)) * 1000


@pytest.fixture
def server() -> Iterator[RestServer]:
    """An island with a session that has a result."""
    manager, streams = manager_with_sessions(role="island", nodes=("n1", "n2")), StreamSlots(4)
    manager.write("finished", 1, _CONTENT)
    with serve([*api_v1_routes(manager, streams), *daliuge_routes(manager)], streams=streams) as found:
        yield found


@pytest.fixture
def paths(server: RestServer) -> tuple[str, str]:
    """The two paths of the content."""
    with Client(server.url) as client:
        oid = next(drop.oid for drop in client.drops("finished").drops if drop.drop == 1)
    return f"/api/v1/sessions/finished/drops/{oid}/data", f"/sessions/finished/graph/drop/data/{oid}"


def test_a_download_continues_where_it_stopped(server: RestServer, paths: tuple[str, str]) -> None:
    """As browsers and curl ask: with its ETag the rest of a content comes, with the ETag of another one all of it."""
    for path in paths:
        whole = ask(server.url, "GET", path)
        etag = whole.headers["Etag"]
        rest = ask(server.url, "GET", path, headers={"Range": "bytes=1000-", "If-Range": etag})
        other = ask(server.url, "GET", path, headers={"Range": "bytes=1000-", "If-Range": '"other"'})
        last = ask(server.url, "GET", path, headers={"Range": "bytes=-3"})

        assert (whole.status, whole.body, whole.headers["Accept-Ranges"]) == (200, _CONTENT, "bytes")
        assert (rest.status, rest.body, rest.headers["Etag"]) == (206, _CONTENT[1000:], etag)
        assert rest.headers["Content-Range"] == f"bytes 1000-{len(_CONTENT) - 1}/{len(_CONTENT)}"
        assert rest.headers["Content-Length"] == str(len(rest.body))
        assert (other.status, other.body) == (200, _CONTENT)
        assert (last.status, last.body) == (206, _CONTENT[-3:])


def test_a_range_after_the_end_has_a_status_of_its_own(server: RestServer, paths: tuple[str, str]) -> None:
    """The answer has the size, so that a client knows whether it has all of it."""
    refused, daliuge = (ask(server.url, "GET", path, headers={"Range": "bytes=250000-"}) for path in paths)

    assert (refused.status, daliuge.status) == (416, 416)
    assert refused.headers["Content-Range"] == "bytes */250000"
    assert refused.json["error"]["text"] == "the content has 250,000 bytes, and the range begins at byte 250,000"


def test_head_tells_the_size_and_sends_nothing(server: RestServer, paths: tuple[str, str]) -> None:
    """The connection can be used again after it."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    for path in paths:
        for method, body in (("HEAD", b""), ("GET", _CONTENT)):
            connection.request(method, path)
            answer = connection.getresponse()

            assert (answer.status, answer.read(), answer.getheader("Content-Length")) == (200, body, str(len(_CONTENT)))
            assert answer.getheader("ETag")
    connection.close()
