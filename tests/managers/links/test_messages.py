"""Messages over real sockets: order, flow control, restarts of peers."""

import os
import threading
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from dropflow.errors import GoneError, LinkError, StorageError
from managers.keys import ClusterKey
from managers.links import (
    BufferSource,
    FileSource,
    LinkEvent,
    ReceivedMessage,
)
from managers.messages import StopSession
from tests.managers.links.conftest import CONTENT, HASTY, SMALL, LinkFactory, wanted_content

pytestmark = pytest.mark.usefixtures("nothing_leaks")


def test_messages_go_both_ways(link_factory: LinkFactory) -> None:
    """Two processes that connected to each other exchange messages with their raw frames."""
    (a, at_a), (b, at_b) = link_factory.open("a"), link_factory.open("b")
    a.connect("b", b.address)
    b.connect("a", a.address)
    a.send("b", StopSession("s", 1, "small"))
    a.send("b", StopSession("s", 1, "large"), [CONTENT, b"", b"tail"])
    b.send("a", StopSession("s", 1), [bytearray(b"slice")])
    at_a.wait(lambda: len(at_a.messages) == 1)
    at_b.wait(lambda: len(at_b.messages) == 2)

    assert at_a.messages == [("b", "", (b"slice",))]
    assert at_b.messages == [("a", "small", ()), ("a", "large", (CONTENT, b"", b"tail"))]


def test_many_senders_share_a_link(link_factory: LinkFactory) -> None:
    """Messages of several threads arrive once each, in the order of each thread."""
    (a, _), (b, at_b) = link_factory.open("a", settings=SMALL), link_factory.open("b")
    a.connect("b", b.address)

    def work(worker: int) -> None:
        for number in range(300):
            a.send("b", StopSession("s", 1, f"{worker}:{number}"))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    at_b.wait(lambda: len(at_b.messages) == 1200)

    for worker in range(4):
        mine = [text for text in at_b.texts() if text.startswith(f"{worker}:")]
        assert mine == [f"{worker}:{number}" for number in range(300)]


def test_flush_waits_for_arrival(link_factory: LinkFactory) -> None:
    """After a flush everything sent has arrived; without a peer it returns False in time."""
    (a, _), (b, at_b) = link_factory.open("a"), link_factory.open("b")
    a.connect("b", b.address)
    for number in range(100):
        a.send("b", StopSession("s", 1, str(number)))
    assert a.flush(30.0)
    assert len(at_b.messages) == 100
    a.connect("c", "tcp://127.0.0.1:1")
    a.send("c", StopSession("s", 1))

    assert not a.flush(0.05)


def test_a_receiving_function_may_send(link_factory: LinkFactory) -> None:
    """A receiving function may send a message to a peer that connected to this process."""
    a, at_a = link_factory.open("a")
    b, _ = link_factory.open("b", on_message=lambda delivery: b.send(delivery.peer, StopSession("s", 1, "echo")))
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "call"))
    at_a.wait(lambda: at_a.texts() == ["echo"])


def test_a_sender_waits_while_its_peer_is_behind(link_factory: LinkFactory) -> None:
    """While a peer has processed too little, there is no room; there is when it has caught up."""
    busy, is_free = threading.Event(), threading.Event()

    def work(_: ReceivedMessage) -> None:
        busy.set()
        assert is_free.wait(60)

    (a, _), (b, _) = link_factory.open("a", settings=SMALL), link_factory.open("b", on_message=work, settings=SMALL)
    a.connect("b", b.address)
    while a.has_room("b"):
        a.send("b", StopSession("s", 1), [bytes(19_000)])
    assert busy.wait(60)
    assert SMALL.window < a.statistics().peers[0].pending <= SMALL.window + 20_000
    is_free.set()
    a.wait_for_room("b", give_up=lambda: False)
    assert a.has_room("b")


def test_a_sender_can_stop_waiting(link_factory: LinkFactory) -> None:
    """A sender that waits for room evaluates `give_up` again when it is woken."""
    a, _ = link_factory.open("a", settings=SMALL)
    a.connect("b", "tcp://127.0.0.1:1")
    a.send("b", StopSession("s", 1), [bytes(210_000)])
    cancelled, asked = threading.Event(), threading.Event()

    def give_up() -> bool:
        asked.set()
        return cancelled.is_set()

    thread = threading.Thread(target=lambda: a.wait_for_room("b", give_up=give_up))
    thread.start()
    assert asked.wait(60)
    cancelled.set()
    a.wake_waiting()
    thread.join(60)

    assert not thread.is_alive()
    assert not a.has_room("b")


def test_closing_ends_all_waits(link_factory: LinkFactory) -> None:
    """Senders and fetches stop waiting when the links are closed; later calls fail."""
    a, _ = link_factory.open("a", settings=SMALL)
    a.connect("b", "tcp://127.0.0.1:1")
    a.send("b", StopSession("s", 1), [bytes(210_000)])
    errors: list[str] = []

    def fetch() -> None:
        try:
            a.fetch("b", wanted_content(1), lambda *_: None)
        except LinkError as error:
            errors.append(error.text)

    threads = [threading.Thread(target=call) for call in (lambda: a.wait_for_room("b", give_up=lambda: False), fetch)]
    for thread in threads:
        thread.start()
    a.close()
    for thread in threads:
        thread.join(60)

    assert not any(thread.is_alive() for thread in threads)
    assert errors == ["the links of 'a' are closed"]
    with pytest.raises(LinkError, match="closed"):
        a.send("b", StopSession("s", 1))
    a.close()


def test_a_receiving_function_may_close_its_links(link_factory: LinkFactory) -> None:
    """A receiving function may close the links it belongs to."""
    closed = threading.Event()

    def take(_: ReceivedMessage) -> None:
        b.close()
        closed.set()

    (a, _), (b, _) = link_factory.open("a"), link_factory.open("b", on_message=take)
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "close yourself"))

    assert closed.wait(60)


def test_a_peer_that_starts_again_is_recognised(link_factory: LinkFactory) -> None:
    """A process that was started again at another port is found when it connects; old messages are discarded."""
    (a, at_a), (b, _) = link_factory.open("a", settings=HASTY), link_factory.open("b", incarnation=1)
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "one"))
    assert a.flush(30.0)
    b.close()
    at_a.wait_event(LinkEvent.DOWN)
    a.send("b", StopSession("s", 1, "void"))
    again, at_again = link_factory.open("b", incarnation=2)
    again.connect("a", a.address)
    assert at_a.wait_event(LinkEvent.RESTARTED).undelivered == 1
    a.send("b", StopSession("s", 1, "two"))
    at_again.wait(lambda: at_again.texts() == ["two"])


def test_a_peer_at_a_new_address_is_answered_although_nothing_was_sent_to_it_before(link_factory: LinkFactory) -> None:
    """A process that only listens answers at the address that a peer has since it was started again."""
    (witness, at_witness), (b, _) = link_factory.open("witness"), link_factory.open("b", incarnation=1)
    b.connect("witness", witness.address)
    at_witness.wait_event(LinkEvent.INTRODUCED)
    b.close()
    again, at_again = link_factory.open("b", incarnation=2)
    again.connect("witness", witness.address)
    at_witness.wait_event(LinkEvent.RESTARTED)

    witness.send("b", StopSession("s", 1, "answer"))

    at_again.wait(lambda: at_again.texts() == ["answer"])


# Fetches of content over real sockets.


def test_events_and_data_do_not_wait_for_each_other(link_factory: LinkFactory) -> None:
    """Messages arrive while a large fetch is running."""
    arrived = threading.Event()
    a, _ = link_factory.open("a", settings=SMALL)
    b, at_b = link_factory.open("b", open_content=lambda *_: BufferSource(CONTENT), settings=SMALL)
    a.connect("b", b.address)
    got: list[int] = []

    def sink(offset: int, data: memoryview) -> None:
        got.append(offset + len(data))
        if len(got) == 3:
            a.send("b", StopSession("s", 1, "in the middle"))
            at_b.wait(lambda: at_b.texts() == ["in the middle"])
            arrived.set()

    a.fetch("b", wanted_content(1, size=len(CONTENT), checksum=zlib.crc32(CONTENT)), sink)

    assert arrived.is_set()
    assert got[-1] == len(CONTENT)


def test_a_slow_reader_limits_requested_data(link_factory: LinkFactory) -> None:
    """A fetch requests no more than its credit while its sink is busy."""
    requested: list[int] = []

    class Watched(BufferSource):
        """A content that records how much of it was read."""

        def read(self, offset: int, length: int) -> memoryview | bytes | bytearray:
            """Record the request and read."""
            requested.append(offset + length)
            return super().read(offset, length)

    a, _ = link_factory.open("a", settings=SMALL)
    b, _ = link_factory.open("b", open_content=lambda *_: Watched(CONTENT))
    a.connect("b", b.address)
    ahead: list[int] = []
    a.fetch("b", wanted_content(1, size=len(CONTENT)), lambda offset, _: ahead.append(max(requested) - offset))

    assert max(ahead) <= (SMALL.ahead + 1) * SMALL.chunk_most


def test_files_are_fetched_from_disk(link_factory: LinkFactory, tmp_path: Path) -> None:
    """Content is read from a file; an empty file is empty, and a missing one is an error."""
    (tmp_path / "1").write_bytes(CONTENT)
    (tmp_path / "2").write_bytes(b"")
    a, _ = link_factory.open("a")
    b, _ = link_factory.open("b", open_content=lambda _, drop, *__: FileSource(tmp_path / str(drop)))
    a.connect("b", b.address)
    got = bytearray()

    a.fetch("b", wanted_content(1), lambda _, data: got.extend(data))
    assert got == CONTENT
    assert a.fetch("b", wanted_content(2), lambda *_: None).size == 0
    with pytest.raises(StorageError, match="cannot be read"):
        a.fetch("b", wanted_content(3), lambda *_: None)
    b.close_content("s")


def test_a_file_that_is_cut_while_it_is_fetched_is_an_error(link_factory: LinkFactory, tmp_path: Path) -> None:
    """The process that serves the file goes on: a mapping of it would end that process."""
    file = tmp_path / "1"
    file.write_bytes(CONTENT)
    a, _ = link_factory.open("a", settings=SMALL)
    b, _ = link_factory.open("b", open_content=lambda *_: FileSource(file))
    a.connect("b", b.address)

    with pytest.raises(StorageError, match="nothing could be read"):
        a.fetch("b", wanted_content(1, size=len(CONTENT)), lambda *_: os.truncate(file, 1))
    file.write_bytes(CONTENT)
    b.close_content("s")
    assert a.fetch("b", wanted_content(1), lambda *_: None).size == len(CONTENT)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "curve"])
def test_chunks_have_checksums_only_without_a_key(
    link_factory: LinkFactory, key: ClusterKey, monkeypatch: pytest.MonkeyPatch, *, secure: bool
) -> None:
    """Without a key each chunk is checked by a CRC-32; with one, CURVE has authenticated it and none is computed."""
    computed: list[int] = []

    def crc32(data: memoryview) -> int:
        computed.append(len(data))
        return zlib.crc32(data)

    monkeypatch.setattr("managers.links.content_server.zlib", SimpleNamespace(crc32=crc32))
    options = {"key": key if secure else None}
    a, _ = link_factory.open("a", **options)
    b, _ = link_factory.open("b", open_content=lambda *_: BufferSource(CONTENT), **options)
    a.connect("b", b.address)

    assert a.fetch("b", wanted_content(1), lambda *_: None).size == len(CONTENT)
    assert sum(computed) == (0 if secure else len(CONTENT))


def test_content_that_is_not_served_is_gone(link_factory: LinkFactory) -> None:
    """Fetching from a process that serves no content is a `GoneError`."""
    (a, _), (b, _) = link_factory.open("a"), link_factory.open("b")
    a.connect("b", b.address)
    with pytest.raises(GoneError, match="is not on this node"):
        a.fetch("b", wanted_content(1), lambda *_: None)
