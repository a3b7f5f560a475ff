"""What a manager finds out about other managers and links, over real sockets."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec
import psutil
import pytest

from dropflow.api.client import Client
from dropflow.api.node_records import ManagerInfo, ProbeRequest, ProbeResult
from dropflow.api.routes import Response, Route
from dropflow.clock import SystemClock
from dropflow.errors import HttpError, LinkError
from managers.keys import ClusterKey, create
from managers.links import Links
from managers.manager_server import Service
from managers.messages import PROTOCOL
from managers.probing import Prober, resolve_host
from tests.fake_manager import FakeManager
from tests.http_server import serve
from tests.virtual_clock import VirtualClock


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[ClusterKey, ClusterKey]:
    """Keys of two clusters."""
    first, second = (create(tmp_path_factory.mktemp("keys") / "cluster.key") for _ in range(2))
    return first, second


class Servers:
    """The links and managers of a test, which are closed at its end."""

    def __init__(self) -> None:
        self.stack = ExitStack()

    def links(self, name: str, key: ClusterKey | None) -> str:
        """Open the links of a node and return their address."""
        return self.stack.enter_context(Links(name, key=key, on_message=lambda _: None)).address

    def manager(self, manager: FakeManager, key: ClusterKey, prober: Prober | None = None) -> str:
        """Start a manager that admits a token and signatures, and return its URL."""
        service = Service(manager, token="t", secret=key.secret, prober=prober)
        service.start()
        self.stack.callback(service.close)
        return service.url


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Closes links and managers after the test."""
    servers = Servers()
    with servers.stack:
        yield servers


def _one(prober: Prober, address: str, seconds: float = 30.0) -> ProbeResult:
    (result,) = prober.probe(ProbeRequest(addresses=(address,), seconds=seconds))
    assert result.address == address
    return result


@pytest.mark.slow
def test_links_and_managers_are_probed_together(keys: tuple[ClusterKey, ClusterKey], servers: Servers) -> None:
    """The results have the order of the addresses, and an address may occur twice."""
    links, url = servers.links("b", keys[0]), servers.manager(FakeManager("m", clock=SystemClock()), keys[0])
    addresses = (url, links, "tcp://127.0.0.1:9", url)
    results = Prober("a", keys[0]).probe(ProbeRequest(addresses=addresses))

    assert [reach.address for reach in results] == list(addresses)
    assert [(reach.ok, reach.name) for reach in results] == [(True, "m"), (True, "b"), (False, ""), (True, "m")]
    assert (results[1].key, results[1].protocol, results[1].incarnation > 0) == (keys[0].fingerprint, PROTOCOL, True)
    assert results[2].trouble == "nothing listens there"
    assert results[2].hint


def test_names_of_hosts_are_looked_up(keys: tuple[ClusterKey, ClusterKey], servers: Servers) -> None:
    """Names in addresses of links are looked up by the prober, too, and not by ZeroMQ."""
    port = servers.links("b", keys[0]).rpartition(":")[2]

    assert _one(Prober("a", keys[0]), f"tcp://localhost:{port}").name == "b"


def test_an_unknown_host_is_an_error() -> None:
    """The error has the name of the host."""
    name = "a" * 70  # too long for a name, so that no name server is asked

    with pytest.raises(LinkError, match=f"the host name '{name}' cannot be resolved"):
        resolve_host(name)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [5.0, -300.0])
def test_the_skew_of_a_clock_is_measured(keys: tuple[ClusterKey, ClusterKey], servers: Servers, seconds: float) -> None:
    """The skew is relative to the clock of the manager that probes."""
    here = SystemClock()
    url = servers.manager(_SkewedManager("m", seconds, clock=here), keys[0])
    result = _one(Prober("a", keys[0], clock=here), url)

    assert result.skew == pytest.approx(seconds, abs=1.0)


class _SkewedManager(FakeManager):
    """A manager whose clock differs."""

    def __init__(self, name: str, ahead: float, *, clock: SystemClock) -> None:
        super().__init__(name, clock=clock)
        self._ahead = ahead

    def info(self) -> ManagerInfo:
        """Return the info with the time of that clock."""
        info = super().info()
        return msgspec.structs.replace(info, time=info.time + self._ahead)


def test_a_large_skew_is_measured(keys: tuple[ClusterKey, ClusterKey], servers: Servers) -> None:
    """The client signs with the clock of the other manager, which therefore answers."""
    here = SystemClock()
    url = servers.manager(FakeManager("m", clock=here), keys[0])
    result = _one(Prober("a", keys[0], clock=VirtualClock(1e9)), url)

    assert (result.ok, result.code) == (True, "")
    assert result.skew == pytest.approx(here.now() - 1e9, abs=60.0)


def test_another_cluster_key_is_reported(keys: tuple[ClusterKey, ClusterKey], servers: Servers) -> None:
    """Links, and managers that refuse the signature, have another key."""
    links, url = servers.links("b", keys[1]), servers.manager(FakeManager("m"), keys[1])
    by_links, by_url = Prober("a", keys[0]).probe(ProbeRequest(addresses=(links, url)))

    assert "cluster key" in by_links.trouble
    assert by_url.trouble == "the signature is wrong"
    assert "cluster key" in by_url.hint
    assert {by_links.ok, by_url.ok} == {False}


def test_another_protocol_is_reported(
    keys: tuple[ClusterKey, ClusterKey], servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The links answer, but their protocol is not ours."""
    monkeypatch.setattr("managers.probing.PROTOCOL", 9)
    result = _one(Prober("a", keys[0]), servers.links("b", keys[0]))

    assert (result.ok, result.protocol, result.code) == (False, PROTOCOL, "DF120")
    assert result.trouble == f"its links use protocol {PROTOCOL}, those here 9"


def test_probing_by_rest(keys: tuple[ClusterKey, ClusterKey], servers: Servers) -> None:
    """The client has a method for it, which needs a credential."""
    links = servers.links("b", keys[0])
    url = servers.manager(FakeManager("m"), keys[0], Prober("m", keys[0]))
    with Client(url, secret=keys[0].secret) as client:
        (result,) = client.probe([links], seconds=5.0)
    with Client(url) as other, pytest.raises(HttpError, match="token") as refused:
        other.probe([links])

    assert (result.ok, result.name) == (True, "b")
    assert refused.value.status == 401


def test_a_server_that_is_not_a_manager_is_reported(keys: tuple[ClusterKey, ClusterKey]) -> None:
    """Redirects are not followed, and answers without an end are not read to the end."""
    paths: list[str] = []

    def moved(_: object) -> Response:
        paths.append("moved")
        return Response(status=302, headers=(("Location", "/secret"),))

    def secret(_: object) -> Response:
        paths.append("secret")
        return Response(body=b"{}")

    def endless(_: object) -> Response:
        return Response(body=iter(lambda: b"x" * 10_000, None))

    for handler in (moved, secret, endless):
        routes = [
            Route(method="GET", path="/api/v1/info", handler=handler, summary="no manager"),
            Route(method="GET", path="/secret", handler=secret, summary="secret"),
        ]
        with serve(routes) as server:
            result = _one(Prober("a", keys[0]), server.url)
        assert (result.ok, result.code) == (False, "DF120"), handler
        assert result.hint
    assert paths == ["moved", "secret"]


@pytest.mark.slow
def test_silent_addresses_end_at_the_time_limit(keys: tuple[ClusterKey, ClusterKey], servers: Servers) -> None:
    """Silent sockets and slow name servers are reported, and do not affect other addresses."""
    hang, over = threading.Event(), threading.Event()

    def resolve(host: str) -> str:
        if host == "slow":
            hang.wait(60.0)
            over.set()
        return resolve_host(host)

    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        links = servers.links("b", keys[0])
        addresses = (f"http://127.0.0.1:{port}", f"tcp://127.0.0.1:{port}", "tcp://slow:1", links)
        results = Prober("a", keys[0], resolve=resolve).probe(ProbeRequest(addresses=addresses, seconds=0.6))
    waited = over.is_set()
    hang.set()

    assert [reach.ok for reach in results] == [False, False, False, True]
    assert "does not answer" in results[0].trouble
    assert "does not answer as links do" in results[1].trouble
    assert results[2].trouble == "resolving the host name 'slow' takes too long"
    assert not waited


@pytest.mark.parametrize(
    "address", ["tcp://a:1\n", "http://a:1\n", "tcp://127.0.0.1:99999", "http://127.0.0.1:99999", "tcp://[::1"]
)
def test_malformed_addresses_are_reported(address: str) -> None:
    """Addresses that match the pattern of the request are checked again, without a lookup."""
    result = _one(Prober("a", None, resolve=_never), address)

    assert not result.ok
    assert result.trouble
    assert result.code != "DF900"


def _never(host: str) -> str:
    raise AssertionError(host)


def test_the_number_of_probes_is_limited(keys: tuple[ClusterKey, ClusterKey]) -> None:
    """One request too many gets 503; after the others, requests are accepted again."""
    entered, leave = threading.Semaphore(0), threading.Event()

    def resolve(_: str) -> str:
        entered.release()
        leave.wait(60.0)
        raise LinkError("nothing")

    prober = Prober("a", keys[0], resolve=resolve)
    request = ProbeRequest(addresses=("tcp://host:1",), seconds=10.0)
    threads = [threading.Thread(target=prober.probe, args=(request,)) for _ in range(4)]
    for thread in threads:
        thread.start()
        assert entered.acquire(timeout=60)
    with pytest.raises(HttpError, match="4 are already running") as refused:
        prober.probe(request)
    leave.set()
    for thread in threads:
        thread.join()

    assert refused.value.status == 503
    assert not prober.probe(request)[0].ok


@pytest.mark.slow
def test_no_thread_or_socket_is_left_behind(keys: tuple[ClusterKey, ClusterKey], servers: Servers) -> None:
    """The number of file descriptors is the same after many probes."""
    prober, links = Prober("a", keys[0]), servers.links("b", keys[0])
    url = servers.manager(FakeManager("m"), keys[0])
    request = ProbeRequest(addresses=(links, url, "tcp://127.0.0.1:9", "http://127.0.0.1:9"), seconds=5.0)
    prober.probe(request)
    process = psutil.Process()
    before = process.num_fds()
    for _ in range(5):
        prober.probe(request)
    pause = threading.Event()
    for _ in range(2000):
        if process.num_fds() <= before and not any(t.name.startswith("ask:") for t in threading.enumerate()):
            break
        pause.wait(0.05)

    assert process.num_fds() <= before
