"""Links under loss, duplicates, cuts and restarts on a simulated network, and virtual time."""

import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dropflow.errors import DropflowError, GoneError, InternalError, LinkError, ProtocolError, StorageError, UsageError
from managers.links import (
    BufferSource,
    ContentSource,
    LinkChange,
    LinkEvent,
    LinkSettings,
    ReceivedMessage,
    Sink,
    TransferResult,
    WantedContent,
)
from managers.links.outbound import LinkIdentity
from managers.messages import StopSession
from managers.simulation import NetworkFaults, SimulatedLinks, SimulatedNetwork, SimulatedProcess, Simulation

CHANCES = st.sampled_from([0.0, 0.1, 0.3])
FAULTS = st.builds(
    NetworkFaults, lose=CHANCES, duplicate=CHANCES, reorder=CHANCES, cut=st.sampled_from([0.0, 0.02, 0.1])
)
SETTINGS = st.builds(
    LinkSettings,
    window=st.sampled_from([2_000, 1 << 20]),
    flight=st.sampled_from([500, 1 << 20]),
    fragment=st.sampled_from([3_000, 50_000]),
    ack_bytes=st.sampled_from([1, 10_000]),
)


class Inbox:
    """Records messages and events of links."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, tuple[bytes, ...]]] = []
        self.changes: list[LinkChange] = []

    def take(self, delivery: ReceivedMessage) -> None:
        """Record a message."""
        assert isinstance(delivery.message, StopSession)
        frames = tuple(bytes(frame) for frame in delivery.frames)
        self.messages.append((delivery.peer, delivery.message.reason, frames))

    def texts(self) -> list[str]:
        """Return the texts of all messages."""
        return [text for _, text, _ in self.messages]

    def events(self) -> list[LinkEvent]:
        """Return all events."""
        return [change.event for change in self.changes]


def _network(seed: int, faults: NetworkFaults | None = None) -> SimulatedNetwork:
    return SimulatedNetwork(Simulation(seed), faults)


def _fetch(links: SimulatedLinks, wanted: WantedContent, sink: Sink = lambda *_: None) -> TransferResult:
    """Fetch content from `b` and return the result."""
    ends: list[TransferResult | DropflowError] = []
    links.fetch("b", wanted, sink, ends.append)
    links.process.simulation.run(lambda: bool(ends))
    (end,) = ends
    if isinstance(end, DropflowError):
        raise end
    return end


def _content(**options: Any) -> WantedContent:
    return WantedContent(session="s", drop=1, **options)


def _node(
    network: SimulatedNetwork,
    name: str,
    incarnation: int = 1,
    settings: LinkSettings | None = None,
    address: str = "",
) -> tuple[SimulatedLinks, Inbox]:
    inbox = Inbox()
    links = SimulatedLinks(
        name,
        network,
        on_message=inbox.take,
        on_change=inbox.changes.append,
        incarnation=incarnation,
        settings=settings,
        address=address,
    )
    return links, inbox


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 2**32), FAULTS, SETTINGS)
def test_every_message_arrives_once_and_in_order(seed: int, faults: NetworkFaults, numbers: LinkSettings) -> None:
    """With any faults of the network, both ends receive all messages once, in order and unchanged."""
    draw = random.Random(seed)
    network = _network(seed, faults)
    (a, at_a), (b, at_b) = (_node(network, name, settings=numbers) for name in "ab")
    a.connect("b", b.address)
    b.connect("a", a.address)
    sent: dict[str, list[tuple[str, str, tuple[bytes, ...]]]] = {"a": [], "b": []}
    for number in range(25):
        source, target = draw.choice([(a, "b"), (b, "a")])
        frames = tuple(draw.randbytes(draw.choice([0, 10, 17_000])) for _ in range(draw.randrange(3)))
        source.send(target, StopSession("s", 1, str(number)), frames)
        sent[target].append((source.name, str(number), frames))
        for _ in range(draw.randrange(4)):
            network.simulation.step()
    network.run()

    assert at_a.messages == sent["a"], network
    assert at_b.messages == sent["b"], network


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 2**32), FAULTS)
def test_all_credit_is_returned(seed: int, faults: NetworkFaults) -> None:
    """When all messages are processed, the window of the sender is empty."""
    network = _network(seed, faults)
    (a, _), (b, at_b) = _node(network, "a"), _node(network, "b")
    a.connect("b", b.address)
    for number in range(20):
        a.send("b", StopSession("s", 1, str(number)), [bytes(number * 2000)])
        network.simulation.step()
    network.run()
    network.faults = NetworkFaults()
    network.simulation.wait(10.0)

    assert len(at_b.messages) == 20
    (peer,) = a.statistics().peers
    assert (peer.pending, peer.state) == (0, "up")


def test_messages_that_have_not_arrived_fill_the_window() -> None:
    """While the peer gets nothing, the window of its sender fills; it has room when they arrive."""
    network = _network(1)
    (a, _), (b, at_b) = _node(network, "a", settings=LinkSettings(window=10_000)), _node(network, "b")
    a.connect("b", b.address)
    network.block("a", "b")
    while a.has_room("b"):
        a.send("b", StopSession("s", 1), [bytes(1000)])
    network.simulation.wait(60.0)
    assert not a.has_room("b")
    assert 10_000 < a.statistics().peers[0].pending <= 11_100
    network.unblock("a", "b")
    network.simulation.run(lambda: a.has_room("b"))
    a.send("b", StopSession("s", 1), [bytes(1000)])

    network.run()
    assert len(at_b.messages) == 11


def test_a_link_that_was_down_continues() -> None:
    """After five seconds without packets the link reconnects, and no message is lost or duplicated."""
    network = _network(2)
    (a, at_a), (b, at_b) = _node(network, "a"), _node(network, "b")
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "before"))
    network.run()
    network.block("a", "b")
    for number in range(5):
        a.send("b", StopSession("s", 1, f"during {number}"))
        network.simulation.wait(1.0)
    network.unblock("a", "b")
    network.run()

    assert at_b.texts() == ["before", *(f"during {number}" for number in range(5))]
    assert at_a.events() == [LinkEvent.UP, LinkEvent.DOWN, LinkEvent.UP]
    assert "nothing was received" in at_a.changes[1].text


def test_messages_for_an_ended_process_do_not_reach_its_successor() -> None:
    """The successor receives later messages only, and the sender counts the lost ones."""
    network = _network(3)
    (a, at_a), (b, _) = _node(network, "a"), _node(network, "b", incarnation=1)
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "for the first"))
    network.run()
    b.close()
    a.send("b", StopSession("s", 1, "too late"))
    again, at_again = _node(network, "b", incarnation=2)
    again.connect("a", a.address)
    network.simulation.run(lambda: LinkEvent.RESTARTED in at_a.events())
    a.send("b", StopSession("s", 1, "for the second"))
    network.run()

    assert at_again.texts() == ["for the second"]
    (change,) = [change for change in at_a.changes if change.event is LinkEvent.RESTARTED]
    assert (change.incarnation, change.undelivered) == (2, 1)


def test_a_restart_is_detected_in_the_handshake() -> None:
    """A successor at the same address that does not connect itself is recognised."""
    network = _network(4)
    (a, at_a), (b, _) = _node(network, "a"), _node(network, "b", incarnation=1)
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "one"))
    network.run()
    b.close()
    _, at_again = _node(network, "b", incarnation=2, address=b.address)
    network.simulation.run(lambda: LinkEvent.RESTARTED in at_a.events())
    a.send("b", StopSession("s", 1, "two"))
    network.run()

    assert at_again.texts() == ["two"]


def test_an_old_incarnation_is_refused() -> None:
    """When two processes have the same name, the earlier one is refused with a reason."""
    network = _network(5)
    (b, at_b), (new, _), (old, at_old) = _node(network, "b"), _node(network, "a", 2), _node(network, "x", 1)
    new.connect("b", b.address)
    new.send("b", StopSession("s", 1, "new"))
    network.run()
    old.manager.identity = LinkIdentity("a", 1, old.address)
    old.connect("b", b.address)
    network.simulation.run(lambda: LinkEvent.REFUSED in at_old.events())

    assert "later process" in at_old.changes[-1].text
    with pytest.raises(ProtocolError, match="refuses this one"):
        old.send("b", StopSession("s", 1, "old"))
    assert at_b.texts() == ["new"]


@pytest.mark.slow
def test_the_wrong_process_at_an_address_is_refused() -> None:
    """A connection to `b` at the address of `c` is refused, and the error names both."""
    network = _network(6)
    (a, at_a), (c, at_c) = _node(network, "a"), _node(network, "c")
    a.connect("b", c.address)
    a.send("b", StopSession("s", 1, "secret"))
    network.simulation.run(lambda: LinkEvent.REFUSED in at_a.events())

    assert at_c.texts() == []
    assert "is 'c', not 'b'" in at_a.changes[-1].text
    assert at_a.changes[-1].undelivered == 1


def test_a_refused_link_can_be_opened_again() -> None:
    """Connecting to the right address works after a refusal."""
    network = _network(7)
    (a, at_a), (b, at_b), (c, _) = _node(network, "a"), _node(network, "b"), _node(network, "c")
    a.connect("b", c.address)
    network.simulation.run(lambda: LinkEvent.REFUSED in at_a.events())
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "at last"))
    network.run()

    assert at_b.texts() == ["at last"]


def test_a_peer_that_introduced_itself_can_be_answered() -> None:
    """Messages can be sent to a peer that connected to us, without connecting to it."""
    network = _network(8)
    (a, at_a), (b, at_b) = _node(network, "a"), _node(network, "b")
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "question"))
    network.run()
    b.send("a", StopSession("s", 1, "answer"))
    network.run()

    assert at_a.texts() == ["answer"]
    assert at_b.events()[0] is LinkEvent.INTRODUCED


def test_sending_without_a_link_is_an_error() -> None:
    """Sending to a node that was never connected to is a `UsageError`."""
    a, _ = _node(_network(9), "a")
    with pytest.raises(UsageError, match="no link to node 'z'"):
        a.send("z", StopSession("s", 1))


def test_an_exception_of_a_receiver_is_counted() -> None:
    """The following messages still arrive."""
    network = _network(11)
    seen: list[str] = []

    def take(delivery: ReceivedMessage) -> None:
        seen.append(str(delivery.message))
        raise RuntimeError("mistake")

    a, _ = _node(network, "a")
    b = SimulatedLinks("b", network, on_message=take, on_change=take)
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "one"))
    a.send("b", StopSession("s", 1, "two"))
    network.run()

    assert len(seen) == 2
    assert b.statistics().errors == 3  # two messages and the introduction


def test_an_idle_link_sends_heartbeats() -> None:
    """Both ends receive packets without any message."""
    network = _network(12)
    (a, _), (b, _) = _node(network, "a"), _node(network, "b")
    a.connect("b", b.address)
    network.simulation.wait(100.0)

    assert network.simulation.time - a.last_seen()["b"][1] < 2.0
    assert network.simulation.time - b.last_seen()["a"][1] < 2.0


CONTENT = bytes(range(256)) * 5000


def _served(network: SimulatedNetwork, source: ContentSource) -> SimulatedLinks:
    b = SimulatedLinks("b", network, on_message=lambda _: None, open_content=lambda *_: source)
    a, _ = _node(network, "a")
    a.connect("b", b.address)
    return a


@settings(max_examples=40)
@given(st.integers(0, 2**32), FAULTS, st.integers(0, len(CONTENT)), st.booleans())
def test_content_is_fetched_whole(seed: int, faults: NetworkFaults, size: int, knows_size: bool) -> None:  # noqa: FBT001
    """Content arrives complete, in order and once, although the connection breaks."""
    content = CONTENT[:size]
    a = _served(_network(seed, faults), BufferSource(content))
    got = bytearray()

    def sink(offset: int, data: memoryview) -> None:
        assert offset == len(got)
        got.extend(data)

    fetched = _fetch(a, _content(size=size if knows_size else None), sink)

    assert bytes(got) == content
    assert fetched.size == size
    assert a.statistics().transfers == 0


def test_content_with_another_checksum_is_refused() -> None:
    """The fetch raises an error at its end."""
    a = _served(_network(1), BufferSource(CONTENT))
    with pytest.raises(LinkError, match="CRC-32"):
        _fetch(a, _content(checksum=12345))


@pytest.mark.parametrize(
    "error", [GoneError("released long ago"), StorageError("the disk is broken"), UsageError("no such thing")]
)
def test_an_error_of_the_other_end_is_raised_as_its_class(error: UsageError | StorageError) -> None:
    """An error of reading arrives with its class and text."""
    network = _network(1)

    def read(*_: object) -> ContentSource:
        raise error

    b = SimulatedLinks("b", network, on_message=lambda _: None, open_content=read)
    a, _ = _node(network, "a")
    a.connect("b", b.address)
    with pytest.raises(type(error), match=error.text):
        _fetch(a, _content())


class Growing:
    """Content that grows."""

    def __init__(self, total: int) -> None:
        self.content = b""
        self.total = total

    @property
    def size(self) -> int | None:
        """The size, or None while the content grows."""
        return len(self.content) if len(self.content) == self.total else None

    def grow(self, count: int) -> None:
        """Add some bytes."""
        self.content = CONTENT[: min(self.total, len(self.content) + count)]

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes."""
        return self.content[offset : offset + length]

    def close(self) -> None:
        """Do nothing."""


@given(st.integers(0, 2**32), FAULTS, st.lists(st.integers(1, 400_000), min_size=1, max_size=6))
@settings(max_examples=30)
def test_growing_content_is_followed_to_its_end(seed: int, faults: NetworkFaults, steps: list[int]) -> None:
    """A fetch of content that is still written returns each part and the end."""
    source = Growing(min(sum(steps), len(CONTENT)))
    network = _network(seed, faults)
    b = SimulatedLinks("b", network, on_message=lambda _: None, open_content=lambda *_: source)
    a, _ = _node(network, "a")
    a.connect("b", b.address)
    got = bytearray()
    waits = iter([*steps, *([len(CONTENT)] * 1000)])

    def write_more() -> None:
        if len(got) == len(source.content) and source.size is None:
            source.grow(next(waits))
            b.content_grew("s", 1)
        network.simulation.call_later(0.01, write_more)

    write_more()
    _fetch(a, _content(), lambda _, data: got.extend(data))

    assert bytes(got) == CONTENT[: source.total]


def test_messages_wait_for_the_process_that_is_meant() -> None:
    """What is sent after a later process of a peer was named reaches that one, although it did not answer before."""
    network = _network(0)
    (a, at_a), (b, _) = _node(network, "a"), _node(network, "b")
    a.connect("b", b.address)
    network.simulation.run(lambda: LinkEvent.UP in at_a.events())
    b.process.crash()
    a.send("b", StopSession("s", 1, "for the first"))
    a.connect("b", b.address, 2)
    assert at_a.changes[-1].event is LinkEvent.RESTARTED
    assert at_a.changes[-1].undelivered == 1
    a.send("b", StopSession("s", 1, "for the second"))
    _, inbox = _node(network, "b", 2, address=b.address)

    network.simulation.run(lambda: bool(inbox.messages))
    assert inbox.texts() == ["for the second"]
    assert at_a.events().count(LinkEvent.RESTARTED) == 1


def test_a_process_that_is_meant_and_did_not_answer_was_not_seen() -> None:
    """Packets of an earlier process do not count as an answer of the later one."""
    network = _network(0)
    (a, at_a), (b, _) = _node(network, "a"), _node(network, "b")
    a.connect("b", b.address)
    network.simulation.run(lambda: LinkEvent.UP in at_a.events())
    b.process.crash()
    a.connect("b", b.address, 2)

    assert a.last_seen().get("b", (0, 0.0))[0] < 2


# Virtual time: order of events, pauses, crashes and determinism.


def test_events_happen_in_the_order_of_their_times() -> None:
    """Events at the same time happen in the order in which they were scheduled; cancelled ones do not happen."""
    simulation, seen = Simulation(1), []
    simulation.call_at(2.0, lambda: seen.append("b"))
    simulation.call_later(1.0, lambda: simulation.call_later(1.0, lambda: seen.append("c")))
    simulation.call_at(1.0, lambda: seen.append("a"))
    simulation.call_at(1.5, lambda: seen.append("x")).cancel()
    simulation.wait(5.0)

    assert seen == ["a", "b", "c"]
    assert simulation.now() == simulation.monotonic() == 5.0


def test_nothing_happens_after_the_end_of_a_wait() -> None:
    """An event that was cancelled before the end does not make a later one happen early."""
    simulation, seen = Simulation(1), []
    process = SimulatedProcess(simulation, "p")
    simulation.call_at(1.0, lambda: seen.append("x")).cancel()
    process.call_at(1.5, lambda: seen.append("y")).cancel()
    process.call_at(9.0, lambda: seen.append("a"))
    simulation.wait(5.0)
    assert (seen, simulation.now()) == ([], 5.0)

    simulation.wait(5.0)
    assert (seen, simulation.now()) == (["a"], 10.0)


def test_a_paused_process_handles_its_events_later() -> None:
    """Its events happen in order when it resumes; those of other processes are not delayed."""
    simulation, seen = Simulation(1), []
    paused, other = SimulatedProcess(simulation, "paused"), SimulatedProcess(simulation, "other")
    for number, process in enumerate((paused, other, paused)):
        process.call_at(1.0 + number, lambda number=number: seen.append((number, simulation.time)))  # type: ignore[misc]
    paused.pause()
    simulation.call_at(9.0, paused.resume)
    simulation.wait(10.0)

    assert seen == [(1, 2.0), (0, 9.0), (2, 9.0)]


def test_nothing_happens_in_a_process_that_crashed() -> None:
    """Its events do not happen, including those delayed by a pause; the functions for its end are called once."""
    simulation, seen = Simulation(1), []
    process = SimulatedProcess(simulation, "a")
    process.on_crash(lambda: seen.append("crash"))
    process.call_later(1.0, lambda: seen.append("event"))
    process.pause()
    simulation.wait(2.0)
    process.crash()
    process.crash()
    process.resume()
    simulation.wait(2.0)

    assert seen == ["crash"]


def test_a_run_that_does_not_reach_its_end_is_an_error() -> None:
    """When no event is left, or too many happened, the error names the seed."""
    with pytest.raises(InternalError, match=r"seed=3"):
        Simulation(3).run(lambda: False)
