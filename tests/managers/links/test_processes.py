"""Links between two processes, which are killed or stopped."""

import logging
import multiprocessing
import os
import random
import threading
import zlib
from collections.abc import Iterator
from multiprocessing.connection import Connection

import psutil
import pytest

from managers.keys import ClusterKey
from managers.links import (
    BufferSource,
    ContentSource,
    LinkEvent,
    Links,
    LinkSettings,
    ReceivedMessage,
)
from managers.messages import Events, StopSession
from tests.faulty_proxy import ConnectionFaults, FaultyProxy
from tests.managers.links.conftest import CONTENT, HASTY, LinkFactory, wanted_content

pytestmark = pytest.mark.usefixtures("nothing_leaks")


def _echo(pipe: Connection) -> None:
    """Run a process that echoes events and serves content until it receives the message to stop."""
    logging.disable()

    def read(*_: object) -> ContentSource:
        return BufferSource(CONTENT)

    def take(delivery: ReceivedMessage) -> None:
        links.send(delivery.peer, delivery.message)

    links = Links("b", on_message=take, open_content=read)
    pipe.send(links.address)
    pipe.recv()
    links.close()


@pytest.fixture
def other() -> Iterator[tuple[str, multiprocessing.process.BaseProcess]]:
    """Another process with links: their address, and the process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_echo, args=(theirs,), daemon=True)
    process.start()
    yield ours.recv(), process
    process.kill()
    process.join()
    for end in (ours, theirs):
        end.close()
    process.close()


@pytest.mark.slow
def test_processes_exchange_events_and_content(
    link_factory: LinkFactory, other: tuple[str, multiprocessing.process.BaseProcess]
) -> None:
    """Events are echoed by another process, and content is fetched with its checksum."""
    arrived: list[Events] = []
    done = threading.Event()

    def take(delivery: ReceivedMessage) -> None:
        assert isinstance(delivery.message, Events)
        arrived.append(delivery.message)
        if len(arrived) == 50:
            done.set()

    a, _ = link_factory.open("a", on_message=take)
    a.connect("b", other[0])
    sent = [
        Events.of("s", 1, number, drops=range(number), states=[2] * number, attempts=[1] * number, causes=[-1] * number)
        for number in range(50)
    ]
    for message in sent:
        a.send("b", message)

    assert done.wait(60)
    assert arrived == sent
    assert a.fetch("b", wanted_content(1, checksum=zlib.crc32(CONTENT)), lambda *_: None).size == len(CONTENT)


@pytest.mark.slow
def test_killed_and_stopped_processes_are_detected(
    link_factory: LinkFactory, other: tuple[str, multiprocessing.process.BaseProcess]
) -> None:
    """The links report a process that was stopped by SIGSTOP, and one that was killed, within the time limit."""
    address, process = other
    a, at_a = link_factory.open("a", settings=HASTY)
    a.connect("b", address)
    at_a.wait_event(LinkEvent.UP)
    psutil.Process(process.pid).suspend()
    assert "nothing was received" in at_a.wait_event(LinkEvent.DOWN).text
    at_a.changes.clear()
    psutil.Process(process.pid).resume()
    at_a.wait_event(LinkEvent.UP)
    at_a.changes.clear()
    process.kill()
    assert "closed" in at_a.wait_event(LinkEvent.DOWN).text


@pytest.mark.slow
def test_a_sender_to_a_stopped_process_uses_bounded_memory(
    link_factory: LinkFactory, other: tuple[str, multiprocessing.process.BaseProcess]
) -> None:
    """If a process receives nothing, its senders keep at most one window of messages and then wait."""
    a, at_a = link_factory.open("a", settings=LinkSettings(window=4 << 20, receive_timeout=0.5, heartbeat=0.1))
    a.connect("b", other[0])
    at_a.wait_event(LinkEvent.UP)
    psutil.Process(other[1].pid).suspend()
    before = psutil.Process().memory_info().rss
    while a.has_room("b"):
        a.send("b", StopSession("s", 1), [os.urandom(100_000)])

    assert a.statistics().peers[0].pending <= (4 << 20) + 101_000
    assert psutil.Process().memory_info().rss - before < 40 << 20


# Links through a proxy that delays, stalls, throttles and cuts.


FAULTS = {
    "cuts": ConnectionFaults(cut_every=150_000),
    "delays": ConnectionFaults(delay=0.01),
    "stalls": ConnectionFaults(stall=0.3, cut_every=400_000),
    "throttle": ConnectionFaults(rate=3_000_000),
    "everything": ConnectionFaults(cut_every=300_000, delay=0.003, stall=0.1, rate=8_000_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "curve"])
def test_a_hostile_network_loses_nothing(
    link_factory: LinkFactory, key: ClusterKey, faults: ConnectionFaults, *, secure: bool
) -> None:
    """Through a proxy that delays, stalls, throttles and cuts in mid-frame, messages and content arrive intact."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    draw = random.Random(seed)
    settings = LinkSettings(
        heartbeat=0.1,
        receive_timeout=1.0,
        reconnect_delay=0.01,
        reconnect_delay_limit=0.05,
        window=400_000,
        flight=200_000,
    )
    options = {"key": key if secure else None, "settings": settings}
    a, _ = link_factory.open("a", **options)
    b, at_b = link_factory.open("b", open_content=lambda *_: BufferSource(CONTENT), **options)
    port = int(b.address.rpartition(":")[2])
    with FaultyProxy(("127.0.0.1", port), seed, faults) as proxy:
        a.connect("b", f"tcp://127.0.0.1:{proxy.port}")
        fetched = bytearray()
        fetcher = threading.Thread(target=lambda: a.fetch("b", wanted_content(1), lambda _, data: fetched.extend(data)))
        fetcher.start()
        sent = []
        for number in range(120):
            frames = tuple(draw.randbytes(draw.choice([0, 100, 40_000])) for _ in range(draw.randrange(2)))
            a.send("b", StopSession("s", 1, str(number)), frames)
            sent.append(("a", str(number), frames))
        at_b.wait(lambda: len(at_b.messages) >= len(sent), 60.0)
        fetcher.join(60.0)
        a.close()

        assert at_b.messages == sent
        assert fetched == CONTENT
        assert (proxy.cuts > 0) == bool(faults.cut_every)


@pytest.mark.slow
def test_a_connection_that_goes_dead_is_replaced(link_factory: LinkFactory) -> None:
    """If a network drops all packets without an error, the links detect it and open a new connection."""
    (a, at_a), (b, at_b) = link_factory.open("a", settings=HASTY), link_factory.open("b")
    port = int(b.address.rpartition(":")[2])
    with FaultyProxy(("127.0.0.1", port), 1, ConnectionFaults()) as proxy:
        a.connect("b", f"tcp://127.0.0.1:{proxy.port}")
        a.send("b", StopSession("s", 1, "one"))
        at_b.wait(lambda: at_b.texts() == ["one"])
        proxy.faults = ConnectionFaults(delay=1e6)
        a.send("b", StopSession("s", 1, "two"))
        at_a.wait_event(LinkEvent.DOWN)
        proxy.faults = ConnectionFaults()
        at_b.wait(lambda: at_b.texts() == ["one", "two"])
        a.close()
