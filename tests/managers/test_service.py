"""A manager behind its door: what is served, to whom, and where."""

import http.client
import json
import socket
from collections.abc import Iterator

import psutil
import pytest

from dropflow.errors import HttpError, UsageError, WorldError
from dropflow.rest.auth import is_loopback
from dropflow.rest.client import Client
from dropflow.rest.kit import Limits
from dropflow.testing.fake_manager import FakeManager, manager_with_sessions
from managers.service import Service, make_access_rules, url_of

TOKEN = "a-token-of-this-test"  # noqa: S105 - of a server that lives as long as its test
SECRET = b"s" * 40


@pytest.fixture
def manager() -> FakeManager:
    """A manager with made-up sessions."""
    return manager_with_sessions()


@pytest.fixture
def service(manager: FakeManager) -> Iterator[Service]:
    """The manager, served on loopback with a token and a secret."""
    served = Service(manager, token=TOKEN, secret=SECRET)
    served.start()
    yield served
    manager.close()
    served.close()


def fetch(service: Service, path: str, **headers: str) -> tuple[int, bytes]:
    """Status and body of a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_token_lets_in(service: Service) -> None:
    """Requests with the token are answered."""
    with Client(service.url, token=TOKEN) as client:
        assert client.info().role == "node"


def test_the_limits_of_a_service_hold_on_all_its_paths(manager: FakeManager) -> None:
    """Ours and DALiuGE's: neither takes deeper or larger graphs than the service was told."""
    served = Service(manager, token=TOKEN, limits=Limits(graph=1000, depth=5))
    served.start()
    try:
        with Client(served.url, token=TOKEN) as client:
            for graph, status in ((b"[" * 6, 400), (b" " * 1001, 413)):
                with pytest.raises(HttpError, match=r"nested 6 levels|larger than 1000 bytes") as refused:
                    client.submit(graph)
                assert refused.value.status == status
        assert _post(served, "/api/sessions", b'{"sessionId": "s"}') == 200
        assert _post(served, "/api/sessions/s/graph/append", b"[" * 6) == 400
        assert _post(served, "/api/sessions/s/graph/append", b" " * 1001) == 413
    finally:
        served.close()


def _post(service: Service, path: str, body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
    try:
        connection.request("POST", path, body=body, headers={"Authorization": f"Bearer {TOKEN}"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_signature_lets_in(service: Service) -> None:
    """Requests signed with the cluster key need no token."""
    with Client(service.url, secret=SECRET) as client:
        assert client.info().role == "node"


@pytest.mark.parametrize("secret", [None, b"x" * 40])
def test_nothing_else_lets_in(service: Service, secret: bytes | None) -> None:
    """Without token, or with another key, the answer is 401."""
    with Client(service.url, secret=secret) as client, pytest.raises(HttpError, match=r"signature|token") as refused:
        client.info()
    assert refused.value.status == 401


@pytest.mark.parametrize("path", ["/api/v1/sessions", "/", "/metrics", "/api/sessions"])
def test_every_part_of_the_table_is_served_and_guarded(service: Service, path: str) -> None:
    """Our API, the pages, the metrics and DALiuGE's paths: 200 with the token, 401 without."""
    assert fetch(service, path, Authorization=f"Bearer {TOKEN}")[0] == 200
    assert fetch(service, path)[0] == 401


@pytest.mark.parametrize("path", ["/login", "/ready"])
def test_the_way_in_is_open(service: Service, path: str) -> None:
    """Liveness and the login need no token."""
    assert fetch(service, path)[0] == 200


def test_the_document_names_every_route(service: Service) -> None:
    """/openapi.json describes what is served."""
    status, body = fetch(service, "/openapi.json", Authorization=f"Bearer {TOKEN}")

    assert status == 200
    assert "/api/v1/sessions/{session}" in json.loads(body)["paths"]


def test_a_foreign_name_is_refused(service: Service) -> None:
    """DNS rebinding: a request for another host's name is not answered, token or not."""
    status, _ = fetch(service, "/api/v1/info", Host="evil.example:80", Authorization=f"Bearer {TOKEN}")

    assert status == 421


def test_without_a_token_only_loopback_is_served(manager: FakeManager) -> None:
    """A server without a token is refused on every address that others can reach."""
    for host in ("0.0.0.0", "::", "192.0.2.1", socket.gethostname() + ".example"):  # noqa: S104 - it is refused
        with pytest.raises(UsageError, match="loopback"):
            Service(manager, host=host, token=None)


def test_all_sockets_are_on_loopback_by_default(service: Service) -> None:
    """Nothing of this process listens where other hosts could reach it."""
    mine = [found for found in psutil.Process().net_connections("inet") if found.status == psutil.CONN_LISTEN]

    assert service.port in [found.laddr.port for found in mine]
    assert [found.laddr for found in mine if not is_loopback(found.laddr.ip)] == []


def test_a_server_on_all_addresses_answers_for_its_own_names_only() -> None:
    """The name and the addresses of this host are its own, a stranger's are not."""
    access = make_access_rules("0.0.0.0", token=TOKEN, secret=None, hosts=["proxy.example"])  # noqa: S104 - only a guard

    assert {socket.gethostname().lower(), "127.0.0.1", "proxy.example"} <= access.hosts
    assert "0.0.0.0" not in access.hosts  # noqa: S104


def test_a_port_that_is_taken_is_told(service: Service, manager: FakeManager) -> None:
    """The address is named, with what to do."""
    with pytest.raises(WorldError, match=str(service.port)):
        Service(manager, port=service.port, token=TOKEN)


def test_closing_frees_the_port_and_may_be_repeated(manager: FakeManager) -> None:
    """After the end the port is closed, also that of a server that was never started."""
    for begins in (True, False):
        service = Service(manager, token=TOKEN)
        if begins:
            service.start()
        service.close()
        service.close()
        with pytest.raises(ConnectionRefusedError, match="refused"):
            socket.create_connection(("127.0.0.1", service.port), timeout=5)


@pytest.mark.parametrize(("host", "url"), [("h", "http://h:1"), ("::1", "http://[::1]:1")])
def test_addresses_are_urls(host: str, url: str) -> None:
    """An IPv6 address stands in brackets."""
    assert url_of(host, 1) == url
