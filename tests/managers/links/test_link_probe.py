"""Probes of links: which process listens, with which key, or why none answers."""

import socket
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest
import zmq

from managers.keys import ClusterKey, create
from managers.links import Links
from managers.links import inbound as inbound_module
from managers.links.inbound import ANY_PEER, Inbound
from managers.links.link_settings import LinkSettings
from managers.links.probes import LinkProbe, probe_links, refused_ports
from managers.messages import PROTOCOL, Handshake, HandshakeReply, Reject, StopSession, decode_packet, encode
from tests.processes import few_files


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[ClusterKey, ClusterKey]:
    """Keys of two clusters."""
    first, second = (create(tmp_path_factory.mktemp("keys") / "cluster.key") for _ in range(2))
    return first, second


@pytest.fixture
def listen() -> Iterator[Callable[..., Links]]:
    """Return a function that opens links, which are closed at the end."""
    opened: list[Links] = []

    def at(name: str = "b", **options: object) -> Links:
        opened.append(Links(name, on_message=lambda _: None, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield at
    for links in opened:
        links.close()


def _probe(address: str, key: ClusterKey | None = None, seconds: float = 30.0) -> LinkProbe:
    return probe_links([address], name="a", key=key, seconds=seconds)[address]


def test_a_probe_returns_name_incarnation_and_protocol(
    keys: tuple[ClusterKey, ClusterKey], listen: Callable[..., Links]
) -> None:
    """They are returned after a handshake with the key."""
    links = listen(key=keys[0])
    probe = _probe(links.address, keys[0])

    assert probe.welcome == HandshakeReply(PROTOCOL, "b", links.incarnation)
    assert (probe.is_ours, probe.trouble) == (True, "")
    assert probe.seconds > 0


def test_probes_do_not_affect_links(listen: Callable[..., Links]) -> None:
    """A process that probes is no peer, is not counted as refused, and a link of the same name continues."""
    a, b = listen("a"), listen("b")
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1))
    assert a.flush(10.0)
    before = b.statistics()
    _probe(b.address)
    a.send("b", StopSession("s", 1))
    assert a.flush(10.0)
    after = b.statistics()

    assert after == msgspec.structs.replace(before, delivered=2)
    assert [(peer.state, peer.resent) for peer in a.statistics().peers] == [("up", 0)]


@pytest.mark.parametrize(
    ("there", "here"), [(0, 1), (0, None), (None, 0)], ids=["another key", "none here", "none there"]
)
def test_another_key_is_reported(
    keys: tuple[ClusterKey, ClusterKey], listen: Callable[..., Links], there: int | None, here: int | None
) -> None:
    """A different key on either end is reported as the reason, without waiting for the time limit."""
    pick = [*keys, None]
    links = listen(key=None if there is None else pick[there])
    probe = _probe(links.address, None if here is None else pick[here], 20.0)

    assert "cluster key" in probe.trouble
    assert probe.hint
    assert not probe.is_ours


@pytest.mark.slow
def test_a_port_without_a_listener_is_reported() -> None:
    """It is reported without waiting for other addresses."""
    with socket.create_server(("127.0.0.1", 0)) as mute, socket.create_server(("127.0.0.1", 0)) as gone:
        closed, silent = (f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in (gone, mute))
        gone.close()
        probes = probe_links([closed, silent], name="a", key=None, seconds=0.5)

    assert probes[closed].trouble == "nothing listens there"
    assert probes[silent].trouble == "something listens there, but does not answer as links do within 0.5 s"


def test_a_host_that_cannot_be_reached_is_reported_with_the_reason() -> None:
    """The reason is the error text of the operating system."""
    probe = _probe("tcp://[fe80::1]:5555", ClusterKey(*zmq.curve_keypair()))

    assert probe.trouble
    assert probe.hint
    assert not probe.is_ours


@pytest.mark.parametrize("address", ["tcp://127.0.0.1", "tcp://127.0.0.1:0", "http://127.0.0.1:1", "tcp://10.9.8.7:5"])
def test_invalid_addresses_are_reported_with_a_hint(address: str) -> None:
    """A missing port, another protocol, or another host without a key is reported with what to do."""
    probe = _probe(address)

    assert "address" in probe.trouble or "without a cluster key" in probe.trouble
    assert probe.hint


def _answering() -> tuple[zmq.Context[zmq.Socket[bytes]], zmq.Socket[bytes], str]:
    """A socket that is not a node, and can send any answer."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.linger = 0
    port = router.bind_to_random_port("tcp://127.0.0.1")
    return context, router, f"tcp://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("packet", "words"),
    [
        (encode(Reject("name", "the process at this address is 'b', not '?'")), ""),
        (encode(Reject("full", "node 'b' has 9 peers already", "ask less")), "has 9 peers"),
        (encode(Handshake(1, "b", 1, "a", 1)), "a Handshake packet"),
        (b"nonsense", "is not a packet"),
    ],
    ids=["an older node", "a full node", "another packet", "no packet"],
)
def test_answers_of_other_versions_are_understood(packet: bytes, words: str) -> None:
    """An older node refuses the request but counts as reached; other refusals are reported with their text."""
    context, router, address = _answering()
    answering = threading.Thread(
        target=lambda: router.send_multipart([router.recv_multipart()[0], packet]), daemon=True
    )
    answering.start()
    probe = _probe(address)
    answering.join(60)
    context.destroy(0)

    assert probe.is_ours
    assert words in probe.trouble
    assert bool(probe.trouble) == bool(words)


def test_probes_of_other_protocol_versions_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The versions can then be compared; a handshake of another version is still refused."""
    monkeypatch.setattr(inbound_module, "PROTOCOL", 7)
    inbound = Inbound("b", 5, LinkSettings())
    question = Handshake(PROTOCOL, "a", 0, ANY_PEER, 0)
    (reply,) = inbound.receive(b"route", encode(question), (), 0.0)
    refused, _ = inbound.receive(b"other", encode(msgspec.structs.replace(question, to="b")), (), 0.0)

    assert decode_packet(reply.frames[0]) == HandshakeReply(7, "b", 5)  # type: ignore[union-attr]
    assert decode_packet(refused.frames[0]).code == "protocol"  # type: ignore[union-attr]
    assert inbound.last_seen() == {}


# Whether hosts refuse connections.


def test_only_ports_without_a_process_are_refused() -> None:
    """A port with a listener is not refused, also if the listener accepts nothing; nor is a host that is unknown."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as other:
        open_port, closed_port = (each.getsockname()[1] for each in (listener, other))
        other.close()
        refused = refused_ports(
            {
                "alive": f"tcp://127.0.0.1:{open_port}",
                "gone": f"tcp://127.0.0.1:{closed_port}",
                "unknown": "tcp://no-such-host.invalid:1",
            }
        )

    assert refused == {"alive": False, "gone": True, "unknown": False}


def test_without_descriptors_nothing_is_refused() -> None:
    """A host counts as lost only if it refuses: a process that cannot ask it has no answer."""
    with few_files(0):
        assert refused_ports({"a": "tcp://127.0.0.1:1"}) == {"a": False}


def test_nothing_to_try_takes_no_time() -> None:
    """Without addresses there is no answer to wait for."""
    assert refused_ports({}) == {}


def test_a_name_that_no_host_can_have_refuses_nothing() -> None:
    """An empty or long part of a name is no error: other addresses are still tried."""
    assert refused_ports({"a": "tcp://a..b:55", "b": f"tcp://{'x' * 70}.org:55"}) == {"a": False, "b": False}
