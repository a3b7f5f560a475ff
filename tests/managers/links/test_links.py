"""Links over real sockets."""

import logging
import multiprocessing
import os
import random
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import zmq

from dropflow.errors import GoneError, LinkError, ProtocolError, StorageError, UsageError
from dropflow.testing.proxy import ConnectionFaults, FaultyProxy
from managers.keys import ClusterKey, create
from managers.links import (
    BufferSource,
    ContentSource,
    FileSource,
    LinkChange,
    LinkEvent,
    Links,
    LinkSettings,
    ReceivedMessage,
    WantedContent,
)
from managers.messages import Events, Shutdown, StopSession

HASTY = LinkSettings(heartbeat=0.1, receive_timeout=0.6, reconnect_delay=0.02, reconnect_delay_limit=0.1)
SMALL = LinkSettings(window=200_000, flight=50_000, fragment=20_000, chunk_first=20_000, chunk_most=100_000)
CONTENT = random.Random(1).randbytes(3_000_000)  # noqa: S311 - no secret


def _content(drop: int, **options: Any) -> WantedContent:
    return WantedContent(session="s", drop=drop, **options)


def until(holds: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Wait for something that another thread brings about and tells nobody of; whether it came about."""
    nothing, end = threading.Event(), time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        nothing.wait(0.005)
    return True


class Inbox:
    """Keeps what arrives and what happens, and waits for it."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, tuple[bytes, ...]]] = []
        self.changes: list[LinkChange] = []
        self.changed = threading.Condition()

    def take(self, delivery: ReceivedMessage) -> None:
        """Keep a message."""
        frames = tuple(bytes(frame) for frame in delivery.frames)
        with self.changed:
            self.messages.append((delivery.peer, getattr(delivery.message, "reason", ""), frames))
            self.changed.notify_all()

    def note(self, change: LinkChange) -> None:
        """Keep a change."""
        with self.changed:
            self.changes.append(change)
            self.changed.notify_all()

    def texts(self) -> list[str]:
        """Texts of the messages so far."""
        return [text for _, text, _ in self.messages]

    def wait(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until something holds that can only change with a message or a change."""
        with self.changed:
            assert self.changed.wait_for(condition, seconds), (self.texts()[-3:], self.changes)

    def wait_event(self, event: LinkEvent) -> LinkChange:
        """Wait for something to happen to a link."""
        self.wait(lambda: any(change.event is event for change in self.changes))
        return next(change for change in self.changes if change.event is event)


class Office:
    """Makes links and closes them."""

    def __init__(self) -> None:
        self.opened: list[Links] = []

    def open(self, name: str, **options: object) -> tuple[Links, Inbox]:
        """Links with an inbox of their own."""
        inbox = Inbox()
        links = Links(name, **{"on_message": inbox.take, "on_change": inbox.note, **options})  # type: ignore[arg-type]
        self.opened.append(links)
        return links, inbox

    def close(self) -> None:
        """Close all of them."""
        for links in self.opened:
            links.close()


@pytest.fixture
def office() -> Iterator[Office]:
    """Makes links, which are closed at the end."""
    office = Office()
    yield office
    office.close()


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> ClusterKey:
    """A cluster key."""
    return create(tmp_path_factory.mktemp("keys") / "cluster.key")


@pytest.fixture(scope="session")
def warm() -> None:
    """Lets pyzmq and multiprocessing start what they keep for the whole process, lest it look like a leak."""
    resource_tracker.ensure_running()
    a = Links("a", on_message=print)
    b = Links("b", on_message=print, open_content=lambda *_: BufferSource(CONTENT))
    a.connect("b", b.address)
    a.fetch("b", _content(1), lambda *_: None)
    for links in (a, b):
        links.close()


@pytest.fixture(autouse=True)
def nothing_leaks(warm: None) -> Iterator[None]:
    """Every test leaves no more threads and file descriptors than it found."""
    del warm
    process = psutil.Process()
    files, threads = process.num_fds(), threading.active_count()
    yield
    is_clean = until(lambda: process.num_fds() <= files and threading.active_count() <= threads, 5.0)
    assert is_clean, (process.num_fds() - files, threading.enumerate())


def test_messages_go_both_ways(office: Office) -> None:
    """Two links that dialled each other exchange messages with their raw frames."""
    (a, at_a), (b, at_b) = office.open("a"), office.open("b")
    a.connect("b", b.address)
    b.connect("a", a.address)
    a.send("b", Shutdown("small"))
    a.send("b", Shutdown("large"), [CONTENT, b"", b"tail"])
    b.send("a", StopSession("s", 1), [bytearray(b"slice")])
    at_a.wait(lambda: len(at_a.messages) == 1)
    at_b.wait(lambda: len(at_b.messages) == 2)

    assert at_a.messages == [("b", "", (b"slice",))]
    assert at_b.messages == [("a", "small", ()), ("a", "large", (CONTENT, b"", b"tail"))]


def test_many_senders_share_a_link(office: Office) -> None:
    """Messages of several threads arrive once each, in the order of each thread."""
    (a, _), (b, at_b) = office.open("a", settings=SMALL), office.open("b")
    a.connect("b", b.address)

    def work(worker: int) -> None:
        for number in range(300):
            a.send("b", Shutdown(f"{worker}:{number}"))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    at_b.wait(lambda: len(at_b.messages) == 1200)

    for worker in range(4):
        mine = [text for text in at_b.texts() if text.startswith(f"{worker}:")]
        assert mine == [f"{worker}:{number}" for number in range(300)]


def test_flush_waits_for_arrival(office: Office) -> None:
    """After a flush everything sent has arrived; with nobody there it gives up in time and says so."""
    (a, _), (b, at_b) = office.open("a"), office.open("b")
    a.connect("b", b.address)
    for number in range(100):
        a.send("b", Shutdown(str(number)))
    assert a.flush(30.0)
    assert len(at_b.messages) == 100
    a.connect("c", "tcp://127.0.0.1:1")
    a.send("c", Shutdown())

    assert not a.flush(0.05)


def test_a_message_can_be_answered_where_it_arrives(office: Office) -> None:
    """A receiving function may itself send, to a peer that introduced itself."""
    a, at_a = office.open("a")
    b, _ = office.open("b", on_message=lambda delivery: b.send(delivery.peer, Shutdown("echo"), timeout=0))
    a.connect("b", b.address)
    a.send("b", Shutdown("call"))
    at_a.wait(lambda: at_a.texts() == ["echo"])


def test_a_slow_receiver_makes_the_sender_wait(office: Office) -> None:
    """While the receiver holds on to what it got, the sender stops at its window; then it goes on."""
    held: list[ReceivedMessage] = []
    full = threading.Event()

    def hold(delivery: ReceivedMessage) -> None:
        delivery.hold()
        held.append(delivery)
        if len(held) == 10:
            full.set()

    (a, _), (b, _) = office.open("a", settings=SMALL), office.open("b", on_message=hold, settings=SMALL)
    a.connect("b", b.address)
    for _ in range(10):
        a.send("b", Shutdown(), [bytes(19_000)])
    assert full.wait(30)
    with pytest.raises(LinkError, match="bytes behind: it processed nothing"):
        a.send("b", Shutdown(), [bytes(19_000)], timeout=0.05)
    assert a.statistics().peers[0].pending <= SMALL.window
    for delivery in held:
        delivery.release()

    a.send("b", Shutdown(), [bytes(19_000)], timeout=30.0)


def test_a_sender_can_stop_waiting(office: Office) -> None:
    """A sender that waits for room is woken by a nudge and may give up."""
    a, _ = office.open("a", settings=SMALL)
    a.connect("b", "tcp://127.0.0.1:1")
    a.send("b", Shutdown(), [bytes(190_000)])
    cancelled, errors, asked = threading.Event(), [], threading.Event()

    def give_up() -> bool:
        asked.set()
        return cancelled.is_set()

    def work() -> None:
        try:
            a.send("b", Shutdown(), [bytes(190_000)], give_up=give_up)
        except LinkError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert asked.wait(30)
    cancelled.set()
    a.wake_waiting()
    thread.join(30)

    assert "stopped waiting" in str(errors[0])


def test_closing_wakes_whoever_waits(office: Office) -> None:
    """Senders and fetches that wait are told when the links are closed; later calls say so too."""
    a, _ = office.open("a", settings=SMALL)
    a.connect("b", "tcp://127.0.0.1:1")
    a.send("b", Shutdown(), [bytes(190_000)])
    errors: list[str] = []

    def work(call: Callable[[], object]) -> None:
        try:
            call()
        except LinkError as error:
            errors.append(error.text)

    calls = (lambda: a.send("b", Shutdown(), [bytes(190_000)]), lambda: a.fetch("b", _content(1), lambda *_: None))
    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    a.close()
    for thread in threads:
        thread.join(30)

    assert errors == ["the links of 'a' are closed"] * 2
    with pytest.raises(LinkError, match="closed"):
        a.send("b", Shutdown())
    a.close()


def test_links_can_be_closed_where_a_message_arrives(office: Office) -> None:
    """A receiving function may close the links it belongs to."""
    closed = threading.Event()

    def take(_: ReceivedMessage) -> None:
        b.close()
        closed.set()

    (a, _), (b, _) = office.open("a"), office.open("b", on_message=take)
    a.connect("b", b.address)
    a.send("b", Shutdown("close yourself"))

    assert closed.wait(30)


def test_a_peer_that_starts_again_is_recognised(office: Office) -> None:
    """A process that died and came back at another port is found again once it says hello; the old mail is void."""
    (a, at_a), (b, _) = office.open("a", settings=HASTY), office.open("b", incarnation=1)
    a.connect("b", b.address)
    a.send("b", Shutdown("one"))
    assert a.flush(30.0)
    b.close()
    at_a.wait_event(LinkEvent.DOWN)
    a.send("b", Shutdown("void"))
    again, at_again = office.open("b", incarnation=2)
    again.connect("a", a.address)
    assert at_a.wait_event(LinkEvent.RESTARTED).undelivered == 1
    a.send("b", Shutdown("two"))
    at_again.wait(lambda: at_again.texts() == ["two"])


def test_events_and_data_do_not_wait_for_each_other(office: Office) -> None:
    """Messages arrive while a large fetch is under way."""
    arrived = threading.Event()
    a, _ = office.open("a", settings=SMALL)
    b, at_b = office.open("b", open_content=lambda *_: BufferSource(CONTENT), settings=SMALL)
    a.connect("b", b.address)
    got: list[int] = []

    def sink(offset: int, data: memoryview) -> None:
        got.append(offset + len(data))
        if len(got) == 3:
            a.send("b", Shutdown("in the middle"))
            at_b.wait(lambda: at_b.texts() == ["in the middle"])
            arrived.set()

    a.fetch("b", _content(1, size=len(CONTENT), checksum=zlib.crc32(CONTENT)), sink)

    assert arrived.is_set()
    assert got[-1] == len(CONTENT)


def test_a_slow_reader_bounds_what_is_on_its_way(office: Office) -> None:
    """A fetch asks for no more than its credit while its sink is busy."""
    asked: list[int] = []

    class Watched(BufferSource):
        """Notes what is read."""

        def read(self, offset: int, length: int) -> memoryview | bytes | bytearray:
            """Note and read."""
            asked.append(offset + length)
            return super().read(offset, length)

    a, _ = office.open("a", settings=SMALL)
    b, _ = office.open("b", open_content=lambda *_: Watched(CONTENT))
    a.connect("b", b.address)
    ahead: list[int] = []
    a.fetch("b", _content(1, size=len(CONTENT)), lambda offset, _: ahead.append(max(asked) - offset))

    assert max(ahead) <= (SMALL.ahead + 1) * SMALL.chunk_most


def test_files_are_fetched_from_disk(office: Office, tmp_path: Path) -> None:
    """Content is read from a file, and an empty or missing file is treated as what it is."""
    (tmp_path / "1").write_bytes(CONTENT)
    (tmp_path / "2").write_bytes(b"")
    a, _ = office.open("a")
    b, _ = office.open("b", open_content=lambda _, drop, *__: FileSource(tmp_path / str(drop)))
    a.connect("b", b.address)
    got = bytearray()

    a.fetch("b", _content(1), lambda _, data: got.extend(data))
    assert got == CONTENT
    assert a.fetch("b", _content(2), lambda *_: None).size == 0
    with pytest.raises(StorageError, match="cannot be read"):
        a.fetch("b", _content(3), lambda *_: None)
    b.close_content("s")


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "curve"])
def test_chunks_carry_checksums_only_where_nothing_else_proves_them(
    office: Office, key: ClusterKey, monkeypatch: pytest.MonkeyPatch, *, secure: bool
) -> None:
    """Without a key each chunk is checked by a CRC-32; with one, CURVE has authenticated it and none is computed."""
    computed: list[int] = []

    def crc32(data: memoryview) -> int:
        computed.append(len(data))
        return zlib.crc32(data)

    monkeypatch.setattr("managers.links.source_cache.zlib", SimpleNamespace(crc32=crc32))
    options = {"key": key if secure else None}
    a, _ = office.open("a", **options)
    b, _ = office.open("b", open_content=lambda *_: BufferSource(CONTENT), **options)
    a.connect("b", b.address)

    assert a.fetch("b", _content(1), lambda *_: None).size == len(CONTENT)
    assert sum(computed) == (0 if secure else len(CONTENT))


def test_content_that_nobody_serves_is_gone(office: Office) -> None:
    """Fetching from a process that serves no content says that it is not there."""
    (a, _), (b, _) = office.open("a"), office.open("b")
    a.connect("b", b.address)
    with pytest.raises(GoneError, match="not here"):
        a.fetch("b", _content(1), lambda *_: None)


# A hostile network ----------------------------------------------------------------------------------------------------


CRUELTIES = {
    "cuts": ConnectionFaults(cut_every=150_000),
    "delays": ConnectionFaults(delay=0.01),
    "stalls": ConnectionFaults(stall=0.3, cut_every=400_000),
    "throttle": ConnectionFaults(rate=3_000_000),
    "everything": ConnectionFaults(cut_every=300_000, delay=0.003, stall=0.1, rate=8_000_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("faults", CRUELTIES.values(), ids=CRUELTIES)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "curve"])
def test_a_hostile_network_loses_nothing(
    office: Office, key: ClusterKey, faults: ConnectionFaults, *, secure: bool
) -> None:
    """Through a proxy that delays, stalls, throttles and cuts in mid-frame, messages and content arrive intact."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    draw = random.Random(seed)  # noqa: S311 - no secret
    settings = LinkSettings(
        heartbeat=0.1,
        receive_timeout=1.0,
        reconnect_delay=0.01,
        reconnect_delay_limit=0.05,
        window=400_000,
        flight=200_000,
    )
    options = {"key": key if secure else None, "settings": settings}
    a, _ = office.open("a", **options)
    b, at_b = office.open("b", open_content=lambda *_: BufferSource(CONTENT), **options)
    port = int(b.address.rpartition(":")[2])
    with FaultyProxy(("127.0.0.1", port), seed, faults) as proxy:
        a.connect("b", f"tcp://127.0.0.1:{proxy.port}")
        fetched = bytearray()
        fetcher = threading.Thread(target=lambda: a.fetch("b", _content(1), lambda _, data: fetched.extend(data)))
        fetcher.start()
        sent = []
        for number in range(120):
            frames = tuple(draw.randbytes(draw.choice([0, 100, 40_000])) for _ in range(draw.randrange(2)))
            a.send("b", Shutdown(str(number)), frames, timeout=60.0)
            sent.append(("a", str(number), frames))
        at_b.wait(lambda: len(at_b.messages) >= len(sent), 60.0)
        fetcher.join(60.0)
        a.close()

        assert at_b.messages == sent
        assert fetched == CONTENT
        assert (proxy.cuts > 0) == bool(faults.cut_every)


def test_a_connection_that_goes_dead_is_replaced(office: Office) -> None:
    """A network that swallows everything without a word is noticed, and a new connection takes over."""
    (a, at_a), (b, at_b) = office.open("a", settings=HASTY), office.open("b")
    port = int(b.address.rpartition(":")[2])
    with FaultyProxy(("127.0.0.1", port), 1, ConnectionFaults()) as proxy:
        a.connect("b", f"tcp://127.0.0.1:{proxy.port}")
        a.send("b", Shutdown("one"))
        at_b.wait(lambda: at_b.texts() == ["one"])
        proxy.faults = ConnectionFaults(delay=1e6)
        a.send("b", Shutdown("two"))
        at_a.wait_event(LinkEvent.DOWN)
        proxy.faults = ConnectionFaults()
        at_b.wait(lambda: at_b.texts() == ["one", "two"])
        a.close()


# Who may connect ------------------------------------------------------------------------------------------------------


def test_the_cluster_key_opens_the_door(office: Office, key: ClusterKey) -> None:
    """Two processes with the cluster key talk, and nothing they say is on the wire in clear."""
    (a, _), (b, at_b) = office.open("a", key=key), office.open("b", key=key)
    a.connect("b", b.address)
    a.send("b", Shutdown("confidential"))
    at_b.wait(lambda: at_b.texts() == ["confidential"])


def _refused(office: Office, ours: ClusterKey | None, theirs: ClusterKey | None) -> tuple[str, Inbox, Links]:
    a, at_a = office.open("a", key=ours, settings=HASTY)
    b, at_b = office.open("b", key=theirs)
    a.connect("b", b.address)
    a.send("b", Shutdown("let me in"))
    trouble = at_a.wait_event(LinkEvent.DOWN).text
    return trouble, at_b, b


def test_another_key_is_refused(office: Office, key: ClusterKey, tmp_path: Path) -> None:
    """A process with the key of another cluster gets nowhere, and the reason points at the key."""
    trouble, inbox, _ = _refused(office, create(tmp_path / "other.key"), key)

    assert "key" in trouble
    assert inbox.changes == inbox.messages == []


def test_no_key_is_refused(office: Office, key: ClusterKey) -> None:
    """A process without a key gets nowhere where one is demanded, and is counted."""
    trouble, inbox, b = _refused(office, None, key)

    assert "cluster key" in trouble
    assert until(lambda: b.statistics().refused > 0)
    assert inbox.changes == inbox.messages == []


def test_a_server_without_the_key_is_refused(office: Office, key: ClusterKey) -> None:
    """A process that demands the key does not talk to one that has none."""
    trouble, inbox, _ = _refused(office, key, None)

    assert "cluster key" in trouble
    assert inbox.changes == inbox.messages == []


def test_knowing_the_public_half_is_not_enough(office: Office, key: ClusterKey) -> None:
    """A client that knows the server's public key but has another key pair is refused by the guard."""
    b, at_b = office.open("b", key=key)
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    public, secret = zmq.curve_keypair()
    stranger.curve_serverkey, stranger.curve_publickey, stranger.curve_secretkey = key.public, public, secret
    watch = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_SUCCEEDED)
    stranger.connect(b.address)
    frames = watch.recv_multipart()
    watch.close(0)
    context.destroy(0)

    assert int.from_bytes(frames[0][:2], "little") == zmq.EVENT_HANDSHAKE_FAILED_AUTH
    assert until(lambda: b.statistics().refused > 0)
    assert at_b.changes == []


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://192.0.2.1:7000", "tcp://example.org:0"])
def test_beyond_loopback_a_key_is_demanded(address: str) -> None:
    """Without a key links neither listen nor connect beyond this host."""
    with pytest.raises(UsageError, match="without a cluster key"):
        Links("a", bind=address, on_message=print)


@pytest.mark.parametrize(
    "address", ["", "tcp://127.0.0.1", "ipc:///tmp/x", "tcp://127.0.0.1:0", "tcp://h:99999", "h:1"]
)
def test_a_malformed_address_is_refused(office: Office, address: str) -> None:
    """An address that cannot be connected to is refused at once, with an example of a good one."""
    a, _ = office.open("a")
    with pytest.raises(UsageError, match="is no address") as caught:
        a.connect("b", address)
    assert "tcp://HOST:PORT" in caught.value.hint


def test_a_taken_port_is_named(office: Office) -> None:
    """Listening where somebody listens already is an error that names the address, and leaves nothing open."""
    a, _ = office.open("a")
    with pytest.raises(LinkError, match=a.address):
        Links("b", bind=a.address, on_message=print)


def test_only_loopback_is_listened_on(office: Office, key: ClusterKey) -> None:
    """Unless told otherwise, every listening socket of the process is on loopback."""
    office.open("a")
    office.open("b", key=key)
    listening = [
        connection.laddr.ip
        for connection in psutil.Process().net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]

    assert len(listening) >= 2
    assert set(listening) == {"127.0.0.1"}


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "curve"])
def test_garbage_on_the_port_harms_nobody(office: Office, key: ClusterKey, *, secure: bool) -> None:
    """Random bytes, half greetings and HTTP on the port are survived, and others are served meanwhile."""
    keys = key if secure else None
    (a, _), (b, at_b) = office.open("a", key=keys), office.open("b", key=keys)
    port = int(b.address.rpartition(":")[2])
    greeting = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01NULL" + b"\0" * 48
    opened = []
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), greeting, greeting + os.urandom(2000), b""):
        opened.append(socket.create_connection(("127.0.0.1", port)))
        opened[-1].sendall(garbage)
    a.connect("b", b.address)
    a.send("b", Shutdown("still there"))
    at_b.wait(lambda: at_b.texts() == ["still there"])
    for connection in opened:
        connection.close()


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"garbage"],
        [b"\x95\xa5hello\x01\x02\x03\x04"],
        [b"\x93\xa3ack\x01\x01"],
        [b"\x92\xa4beat\x01", b"surplus"],
        [b"\x92\xa4beat\x01"],
        [b"x" * 5_000_000],
    ],
    ids=["empty", "text", "bad hello", "ack", "frames", "no handshake", "large"],
)
def test_what_is_no_packet_is_refused(office: Office, frames: list[bytes]) -> None:
    """A connected peer that does not speak the protocol is answered once, counted, and ignored."""
    (a, _), (b, at_b) = office.open("a"), office.open("b")
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    stranger.rcvtimeo = 30_000
    stranger.connect(b.address)
    stranger.send_multipart(frames)
    answer = stranger.recv()
    stranger.send_multipart(frames)
    context.destroy(0)
    a.connect("b", b.address)
    a.send("b", Shutdown("still there"))
    at_b.wait(lambda: at_b.texts() == ["still there"])

    assert b"refuse" in answer
    assert b.statistics().refused == 1


def test_frames_beyond_the_limit_end_the_connection(office: Office) -> None:
    """A frame larger than any may be is not even read: the connection is closed."""
    b, at_b = office.open("b")
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    watch = stranger.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    stranger.connect(b.address)
    stranger.send(bytes(50_000_000))
    watch.recv_multipart()
    watch.close(0)
    context.destroy(0)

    assert at_b.changes == []


def test_another_version_is_refused_by_name(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions of the protocol refuse each other; both numbers are named, and senders hear of it."""
    a, at_a = office.open("a")
    b, _ = office.open("b")
    monkeypatch.setattr("managers.links.outbound.PROTOCOL", 99)
    a.connect("b", b.address)
    assert "99" in at_a.wait_event(LinkEvent.REFUSED).text

    with pytest.raises(ProtocolError, match="same version"):
        a.send("b", Shutdown())


# Two processes --------------------------------------------------------------------------------------------------------


def _echo(pipe: Connection) -> None:
    """A process that echoes events and serves content until it is told to stop."""
    logging.disable()

    def read(*_: object) -> ContentSource:
        return BufferSource(CONTENT)

    def take(delivery: ReceivedMessage) -> None:
        links.send(delivery.peer, delivery.message, timeout=0)

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
def test_processes_talk(office: Office, other: tuple[str, multiprocessing.process.BaseProcess]) -> None:
    """Events go to another process and come back; content comes with its checksum."""
    arrived: list[Events] = []
    done = threading.Event()

    def take(delivery: ReceivedMessage) -> None:
        assert isinstance(delivery.message, Events)
        arrived.append(delivery.message)
        if len(arrived) == 50:
            done.set()

    a, _ = office.open("a", on_message=take)
    a.connect("b", other[0])
    sent = [
        Events.of("s", 1, number, drops=range(number), states=[2] * number, attempts=[1] * number, causes=[-1] * number)
        for number in range(50)
    ]
    for message in sent:
        a.send("b", message)

    assert done.wait(30)
    assert arrived == sent
    assert a.fetch("b", _content(1, checksum=zlib.crc32(CONTENT)), lambda *_: None).size == len(CONTENT)


@pytest.mark.slow
def test_a_killed_process_is_noticed_and_a_stopped_one_too(
    office: Office, other: tuple[str, multiprocessing.process.BaseProcess]
) -> None:
    """SIGSTOP leads to silence, which is noticed in time; so is the end of the process."""
    address, process = other
    a, at_a = office.open("a", settings=HASTY)
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
def test_a_sender_to_a_stopped_process_keeps_its_memory(
    office: Office, other: tuple[str, multiprocessing.process.BaseProcess]
) -> None:
    """Whatever is sent to a process that takes nothing, no more than the window is kept; the rest waits."""
    a, at_a = office.open("a", settings=LinkSettings(window=4 << 20, receive_timeout=0.5, heartbeat=0.1))
    a.connect("b", other[0])
    at_a.wait_event(LinkEvent.UP)
    psutil.Process(other[1].pid).suspend()
    before = psutil.Process().memory_info().rss
    with pytest.raises(LinkError, match="bytes behind"):
        [a.send("b", Shutdown(), [os.urandom(100_000)], timeout=0.3) for _ in range(1000)]

    assert a.statistics().peers[0].pending <= 4 << 20
    assert psutil.Process().memory_info().rss - before < 40 << 20
