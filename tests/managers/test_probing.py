"""What a manager finds out about others, over real sockets."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec
import psutil
import pytest

from dropflow.clock import SystemClock
from dropflow.errors import HttpError, LinkError
from dropflow.rest.client import Client
from dropflow.rest.kit import Response, Route
from dropflow.rest.schema import ManagerInfo, ProbeRequest, ProbeResult
from dropflow.testing.clock import VirtualClock
from dropflow.testing.fake_manager import FakeManager
from dropflow.testing.serving import serve
from managers.keys import ClusterKey, create
from managers.links import Links
from managers.probing import Prober, resolve_host
from managers.service import Service


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[ClusterKey, ClusterKey]:
    """Keys of two clusters."""
    first, second = (create(tmp_path_factory.mktemp("keys") / "cluster.key") for _ in range(2))
    return first, second


class Place:
    """Where links and managers are opened, to be closed at the end."""

    def __init__(self) -> None:
        self.stack = ExitStack()

    def links(self, name: str, key: ClusterKey | None) -> str:
        """Links of a node; their address."""
        return self.stack.enter_context(Links(name, key=key, on_message=lambda _: None)).address

    def manager(self, manager: FakeManager, key: ClusterKey, prober: Prober | None = None) -> str:
        """A manager with a token, that takes signatures; its address."""
        service = Service(manager, token="t", secret=key.secret, prober=prober)  # noqa: S106
        service.start()
        self.stack.callback(service.close)
        return service.url


@pytest.fixture
def place() -> Iterator[Place]:
    """Opens links and managers."""
    place = Place()
    with place.stack:
        yield place


def _one(prober: Prober, address: str, seconds: float = 5.0) -> ProbeResult:
    (found,) = prober.probe(ProbeRequest(addresses=(address,), seconds=seconds))
    assert found.address == address
    return found


def test_links_and_managers_are_tried_in_one_go(keys: tuple[ClusterKey, ClusterKey], place: Place) -> None:
    """Each answer stands where its address stood, also one that is asked for twice."""
    links, url = place.links("b", keys[0]), place.manager(FakeManager("m", clock=SystemClock()), keys[0])
    addresses = (url, links, "tcp://127.0.0.1:9", url)
    found = Prober("a", keys[0]).probe(ProbeRequest(addresses=addresses))

    assert [reach.address for reach in found] == list(addresses)
    assert [(reach.ok, reach.name) for reach in found] == [(True, "m"), (True, "b"), (False, ""), (True, "m")]
    assert (found[1].key, found[1].protocol, found[1].incarnation > 0) == (keys[0].fingerprint, 1, True)
    assert found[2].trouble == "nothing listens there"
    assert found[2].hint


def test_names_of_hosts_are_looked_up(keys: tuple[ClusterKey, ClusterKey], place: Place) -> None:
    """For links too, where ZeroMQ would do it at its leisure."""
    port = place.links("b", keys[0]).rpartition(":")[2]

    assert _one(Prober("a", keys[0]), f"tcp://localhost:{port}").name == "b"


def test_a_host_that_nobody_knows_is_told() -> None:
    """By the name that was looked up."""
    name = "a" * 70  # longer than a name may be, so that no name server is asked

    with pytest.raises(LinkError, match=f"no host '{name}'"):
        resolve_host(name)


@pytest.mark.parametrize("seconds", [5.0, -300.0])
def test_the_skew_of_a_clock_is_measured(keys: tuple[ClusterKey, ClusterKey], place: Place, seconds: float) -> None:
    """As seen from the manager that tries; whoever signs at quite another time is told so."""
    here = SystemClock()
    url = place.manager(_Ahead("m", seconds, clock=here), keys[0])
    found = _one(Prober("a", keys[0], clock=here), url)

    assert found.skew == pytest.approx(seconds, abs=1.0)


class _Ahead(FakeManager):
    """A manager with a clock of its own."""

    def __init__(self, name: str, ahead: float, *, clock: SystemClock) -> None:
        super().__init__(name, clock=clock)
        self._ahead = ahead

    def info(self) -> ManagerInfo:
        """As by its own clock."""
        found = super().info()
        return msgspec.structs.replace(found, time=found.time + self._ahead)


def test_a_clock_that_is_far_off_is_told(keys: tuple[ClusterKey, ClusterKey], place: Place) -> None:
    """Requests are signed by the clock of the other end, so that it answers, and the difference is seen."""
    here = SystemClock()
    url = place.manager(FakeManager("m", clock=here), keys[0])
    found = _one(Prober("a", keys[0], clock=VirtualClock(1e9)), url)

    assert (found.ok, found.code) == (True, "")
    assert found.skew == pytest.approx(here.now() - 1e9, abs=60.0)


def test_another_key_is_told(keys: tuple[ClusterKey, ClusterKey], place: Place) -> None:
    """By links, and by managers that refuse the signature."""
    links, url = place.links("b", keys[1]), place.manager(FakeManager("m"), keys[1])
    by_links, by_url = Prober("a", keys[0]).probe(ProbeRequest(addresses=(links, url)))

    assert "cluster key" in by_links.trouble
    assert by_url.trouble == "the signature is wrong"
    assert "cluster key" in by_url.hint
    assert {by_links.ok, by_url.ok} == {False}


def test_another_protocol_is_told(
    keys: tuple[ClusterKey, ClusterKey], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The links answer, but the two cannot work together."""
    monkeypatch.setattr("managers.probing.PROTOCOL", 9)
    found = _one(Prober("a", keys[0]), place.links("b", keys[0]))

    assert (found.ok, found.protocol, found.code) == (False, 1, "DF120")
    assert found.trouble == "its links speak protocol 1, those here 9"


def test_a_manager_is_asked_by_rest(keys: tuple[ClusterKey, ClusterKey], place: Place) -> None:
    """The client's method; whoever has no credential is not answered."""
    links = place.links("b", keys[0])
    url = place.manager(FakeManager("m"), keys[0], Prober("m", keys[0]))
    with Client(url, secret=keys[0].secret) as client:
        (found,) = client.probe([links], seconds=5.0)
    with Client(url) as stranger, pytest.raises(HttpError, match="token") as refused:
        stranger.probe([links])

    assert (found.ok, found.name) == (True, "b")
    assert refused.value.status == 401


def test_what_is_no_manager_is_told_and_nothing_more(keys: tuple[ClusterKey, ClusterKey]) -> None:
    """Pages, redirections and endless answers end as trouble; where they lead to is not looked at."""
    asked: list[str] = []

    def moved(_: object) -> Response:
        asked.append("moved")
        return Response(status=302, headers=(("Location", "/secret"),))

    def secret(_: object) -> Response:
        asked.append("secret")
        return Response(body=b"{}")

    def endless(_: object) -> Response:
        return Response(body=iter(lambda: b"x" * 10_000, None))

    for handler in (moved, secret, endless):
        routes = [
            Route(method="GET", path="/api/v1/info", handler=handler, summary="no manager"),
            Route(method="GET", path="/secret", handler=secret, summary="secret"),
        ]
        with serve(routes) as server:
            found = _one(Prober("a", keys[0]), server.url)
        assert (found.ok, found.code) == (False, "DF120"), handler
        assert found.hint
    assert asked == ["moved", "secret"]


def test_who_does_not_answer_costs_no_more_than_the_time(keys: tuple[ClusterKey, ClusterKey], place: Place) -> None:
    """Silent sockets and names that take long to look up: each is told, and the others are not harmed."""
    hang, over = threading.Event(), threading.Event()

    def resolve(host: str) -> str:
        if host == "slow":
            hang.wait(60.0)
            over.set()
        return resolve_host(host)

    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        links = place.links("b", keys[0])
        addresses = (f"http://127.0.0.1:{port}", f"tcp://127.0.0.1:{port}", "tcp://slow:1", links)
        found = Prober("a", keys[0], resolve=resolve).probe(ProbeRequest(addresses=addresses, seconds=0.6))
    waited = over.is_set()
    hang.set()

    assert [reach.ok for reach in found] == [False, False, False, True]
    assert "does not answer" in found[0].trouble
    assert "does not answer as links do" in found[1].trouble
    assert found[2].trouble == "looking up the host 'slow' takes too long"
    assert not waited


@pytest.mark.parametrize("address", ["tcp://a:1\n", "http://a:1\n", "tcp://127.0.0.1:99999", "http://127.0.0.1:99999"])
def test_addresses_that_are_none_are_told(address: str) -> None:
    """What the pattern of the request lets through is looked at again, without a look-up."""
    found = _one(Prober("a", None, resolve=_never), address)

    assert not found.ok
    assert found.trouble


def _never(host: str) -> str:
    raise AssertionError(host)


def test_only_so_much_is_tried_at_a_time(keys: tuple[ClusterKey, ClusterKey]) -> None:
    """More requests than a manager takes are refused at once with 503, and taken again afterwards."""
    entered, leave = threading.Semaphore(0), threading.Event()

    def resolve(_: str) -> str:
        entered.release()
        leave.wait(30.0)
        raise LinkError("nothing")

    prober = Prober("a", keys[0], resolve=resolve)
    request = ProbeRequest(addresses=("tcp://host:1",), seconds=10.0)
    threads = [threading.Thread(target=prober.probe, args=(request,)) for _ in range(4)]
    for thread in threads:
        thread.start()
        assert entered.acquire(timeout=10.0)
    with pytest.raises(HttpError, match="under way") as refused:
        prober.probe(request)
    leave.set()
    for thread in threads:
        thread.join()

    assert refused.value.status == 503
    assert not prober.probe(request)[0].ok


def test_no_thread_or_socket_is_left_behind(keys: tuple[ClusterKey, ClusterKey], place: Place) -> None:
    """After many probes there are as many as before."""
    prober, links = Prober("a", keys[0]), place.links("b", keys[0])
    url = place.manager(FakeManager("m"), keys[0])
    request = ProbeRequest(addresses=(links, url, "tcp://127.0.0.1:9", "http://127.0.0.1:9"), seconds=5.0)
    prober.probe(request)
    process = psutil.Process()
    before = process.num_fds()
    for _ in range(5):
        prober.probe(request)
    pause = threading.Event()
    for _ in range(200):
        if process.num_fds() <= before and not any(t.name.startswith("ask:") for t in threading.enumerate()):
            break
        pause.wait(0.05)

    assert process.num_fds() <= before
