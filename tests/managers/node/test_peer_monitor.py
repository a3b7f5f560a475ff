"""Peers of a node: which are silent, and how often each was started."""

import contextlib
import shutil
from pathlib import Path
from typing import BinaryIO

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dropflow.errors import StorageError
from managers.deployment import Place
from managers.node import resources
from managers.node.decisions.peer_monitor import PeerMonitor
from managers.node.resources import next_incarnation
from tests.filling import fill
from tests.virtual_clock import VirtualClock


class _Monitor:
    """A monitor with a clock, and links that receive from peers when the test requests it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.last_received: dict[str, tuple[int, float]] = {}
        self.peers = PeerMonitor("a", suspect_after=3.0, lost_after=15.0, now=0.0)

    def receive(self, *peers: str) -> None:
        """Receive a message from each of these peers."""
        for peer in peers:
            self.last_received[peer] = (1, self.now)

    def need(self, session: str, *peers: str) -> list[str]:
        """Let a session need these peers, which answer. Return the peers that are lost."""
        self.receive(*peers)
        places = {peer: Place(peer, f"tcp://{peer}:1", 1) for peer in peers}
        lost = [loss.peer for loss in self.peers.need(session, places, self.now)]
        return lost + [loss.peer for loss in self.peers.update(self.last_received, self.now)]

    def read(self, after: float) -> list[str]:
        """Advance the time, read the links, and return the peers that are lost."""
        self.now += after
        return [loss.peer for loss in self.peers.update(self.last_received, self.now)]


def test_a_pause_of_this_process_does_not_count_as_silence_of_peers() -> None:
    """After a pause of this process (stopped by Ctrl-Z, say) the others have their full time to answer again."""
    monitor = _Monitor()
    monitor.need("s", "b")
    monitor.read(0.5)

    assert monitor.read(100.0) == []
    assert [second for second in range(20) if monitor.read(1.0)] == [14]


def test_a_loss_at_the_time_of_a_deployment_is_reported() -> None:
    """A peer whose time is up just when another session is deployed or ends is lost for its own session."""
    monitor = _Monitor()
    monitor.need("s", "b")
    monitor.need("other", "c")
    monitor.read(0.5)
    for _ in range(14):
        monitor.receive("c")
        monitor.read(1.0)
    monitor.now += 1.2
    lost = monitor.need("another", "d")
    lost += [loss.peer for loss in monitor.peers.release("other", monitor.now)]

    assert lost + monitor.read(0.1) == ["b"]


def test_a_peer_that_was_not_needed_for_a_while_is_not_lost_when_it_is_needed_again() -> None:
    """Its silence counts from when it is needed, whenever the last session with it ended."""
    monitor = _Monitor()
    monitor.need("s", "b")
    monitor.read(0.5)
    monitor.peers.release("s", monitor.now)
    for _ in range(10):
        monitor.read(1.4)
    monitor.now += 1.0

    assert monitor.need("again", "b") == []
    assert monitor.read(0.2) == []
    assert monitor.peers.needed == {"b": {"again"}}


def test_links_are_read_only_while_peers_are_needed() -> None:
    """The deadline is infinite before the first session and after the last, and a period away in between."""
    monitor = _Monitor()
    idle = monitor.peers.deadline()
    monitor.need("s", "b")
    busy = monitor.peers.deadline()
    is_due = monitor.peers.begin_read(busy), monitor.peers.begin_read(busy)
    monitor.peers.release("s", 1.0)

    assert (idle, busy, monitor.peers.deadline()) == (float("inf"), 3.0 / 8, float("inf"))
    assert is_due == (True, False)


def test_what_a_missing_peer_does_is_reported() -> None:
    """A later process of a peer and a refusal end the wait for it; silence does only when its time is up."""
    monitor = _Monitor()
    places = {name: Place(name, f"tcp://{name}:1", 2) for name in "bcd"}
    monitor.peers.need("s", places, 0.0)
    monitor.peers.update({"d": (2, 0.0)}, 0.0)
    missing = monitor.peers.find_missing(places)
    silent = monitor.peers.why_unreachable(missing)
    monitor.peers.note_refusal("c", "unknown key")
    refused = monitor.peers.why_unreachable(missing)
    monitor.peers.update({"b": (3, 0.0)}, 0.0)
    restarted = monitor.peers.why_unreachable(missing)

    assert (sorted(missing), silent) == (["b", "c"], None)
    assert "node b at tcp://b:1 does not answer; node c at tcp://c:1 refuses: unknown key" in str(refused)
    assert "node b was restarted after the session was planned for it" in str(restarted)


def test_peers_without_a_connection_are_probed() -> None:
    """Only those that are needed and not lost, and no others until the answer; then those that refuse are lost."""
    monitor = _Monitor()
    monitor.need("s", "b", "c")
    monitor.peers.note_connection("b", is_down=True)
    monitor.peers.note_connection("z", is_down=True)
    assert monitor.peers.begin_probe() == {"b": "tcp://b:1"}
    assert monitor.peers.begin_probe() == {}
    lost = []
    for _ in range(10):
        monitor.now += 0.5
        lost += [(loss.peer, monitor.now) for loss in monitor.peers.note_probes({"b": True}, monitor.now)]
        monitor.peers.begin_probe()
    assert lost == [("b", 3.5)]
    assert monitor.peers.begin_probe() == {}


def test_peers_that_are_connected_again_are_not_probed() -> None:
    """Other changes of a link, such as an introduction, do not end that there is no connection."""
    monitor = _Monitor()
    monitor.need("s", "b")
    monitor.peers.note_connection("b", is_down=True)
    monitor.peers.note_connection("b", is_down=None)
    assert monitor.peers.begin_probe() == {"b": "tcp://b:1"}
    monitor.peers.note_probes({"b": False}, 0.0)
    monitor.peers.note_connection("b", is_down=False)
    assert monitor.peers.begin_probe() == {}


def test_a_process_that_a_later_view_still_names_is_lost_again() -> None:
    """A peer was started again, and another session has its new process: the older one is reported each time."""
    monitor = _Monitor()
    monitor.need("s", "b")
    new, old = (Place("b", "tcp://b:1", incarnation) for incarnation in (2, 1))
    first = monitor.peers.need("other", {"b": new}, 1.0)
    again = monitor.peers.need("s", {"b": old}, 2.0)
    replaced = [(loss.peer, loss.before, loss.is_final) for loss in monitor.peers.find_replaced({"b": old})]

    assert ([loss.peer for loss in first], again, replaced) == (["b"], [], [("b", 2, True)])
    assert monitor.peers.find_replaced({"b": new}) == []


def test_a_silent_peer_is_no_loss_before_it_counts_as_lost() -> None:
    """A peer that is only suspect keeps its part of the sessions."""
    monitor = PeerMonitor("a", suspect_after=3.0, lost_after=15.0, now=0.0)
    assert monitor.need("s", {"b": Place("b", "tcp://b:1", 1)}, 0.0) == []
    losses = []
    for now in range(1, 20):
        losses += [(now, loss.peer) for loss in monitor.update({"b": (1, 0.5)}, float(now))]

    assert [peer for _, peer in losses] == ["b"]
    assert losses[0][0] >= 15


# The count of the starts of a node in its directory.


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.floats(0.0, 4e9), min_size=2, max_size=6))
def test_each_start_has_a_greater_number(tmp_path_factory: pytest.TempPathFactory, times: list[float]) -> None:
    """Also when the clock jumps between the starts."""
    root = tmp_path_factory.mktemp("node")
    numbers = [next_incarnation(root, VirtualClock(time)) for time in times]

    assert numbers == sorted(set(numbers))
    assert 0 < numbers[-1] < 2**53


def test_a_new_directory_exceeds_one_that_was_lost(tmp_path: Path) -> None:
    """Its first number is the time in seconds, which exceeds any number of starts."""
    clock = VirtualClock()
    old, new = tmp_path / "old", tmp_path / "new"
    for root in (old, new):
        root.mkdir()
    before = [next_incarnation(old, clock) for _ in range(9)]
    clock.advance(10.0)

    assert next_incarnation(new, clock) > before[-1]


def test_a_directory_exceeds_one_that_was_used_meanwhile(tmp_path: Path) -> None:
    """A node that starts from its former directory again is a later process than the one from the other directory."""
    clock = VirtualClock()
    former, other = _directory(tmp_path / "former"), _directory(tmp_path / "other")
    numbers = []
    for root in (former, other, former):
        numbers.append(next_incarnation(root, clock))
        clock.advance(10.0)

    assert numbers == sorted(numbers)


def test_a_clock_far_in_the_future_leaves_room_for_later_starts(tmp_path: Path) -> None:
    """The numbers of the next starts are still greater, and exact in JSON."""
    numbers = [next_incarnation(tmp_path, VirtualClock(time)) for time in (1.8e9, 2.5e11, 1.8e9)]

    assert numbers == sorted(numbers)
    assert numbers[-1] < 2**53


def test_copies_of_a_directory_have_different_numbers(tmp_path: Path) -> None:
    """Two hosts that were made from one image are two processes for their peers."""
    next_incarnation(_directory(tmp_path / "a"), VirtualClock())
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    a, b = (next_incarnation(tmp_path / name, VirtualClock()) for name in ("a", "b"))

    assert a != b
    assert a >> 20 == b >> 20


@pytest.mark.parametrize("damage", ["", "x", "-1", "9" * 40, "\0" * 8, "\0" * 1024, f"{'1700000000':1023}\n"])
def test_a_damaged_number_is_replaced(damage: str, tmp_path: Path) -> None:
    """The node starts with the time in seconds as its number."""
    (tmp_path / "incarnation").write_text(damage)

    first = next_incarnation(tmp_path, VirtualClock())
    assert first >> 20 == 1_800_000_000
    assert next_incarnation(tmp_path, VirtualClock(1.0)) > first


@pytest.mark.parametrize("position", [0, 9, 11, 300, 511, 512, 521, 523, 1023])
def test_one_damaged_byte_does_not_lower_the_number(position: int, tmp_path: Path) -> None:
    """The file has the number twice, with checksums: damage to one copy does not change the count."""
    before = [next_incarnation(tmp_path, VirtualClock()) for _ in range(3)]
    path = tmp_path / "incarnation"
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)

    after = next_incarnation(tmp_path, VirtualClock(1.0))
    assert after >> 20 == (before[-1] >> 20) + 1
    assert next_incarnation(tmp_path, VirtualClock(1.0)) >> 20 == (after >> 20) + 1


@pytest.mark.parametrize("written", [0, 1, 2])
@pytest.mark.parametrize("is_torn", [True, False])
def test_a_crash_while_the_number_is_written_keeps_the_last_start(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_torn: bool
) -> None:
    """After a crash at any write, the next start has a greater number than all before."""
    before = [next_incarnation(tmp_path, VirtualClock()) for _ in range(3)]
    path = tmp_path / "incarnation"
    # A damaged slot before: the crash must not damage the other one while this one is not whole again.
    content = path.read_bytes()
    path.write_bytes(b"x" * 512 + content[512:])
    left = [written]
    write = resources._write

    def crash(stream: BinaryIO, index: int, counter: int) -> None:
        if left[0] == 0:
            if is_torn:
                stream.seek(index * 512)
                stream.write(b"torn")
                stream.flush()
            raise KeyboardInterrupt
        left[0] -= 1
        write(stream, index, counter)

    monkeypatch.setattr(resources, "_write", crash)
    with contextlib.suppress(KeyboardInterrupt):
        next_incarnation(tmp_path, VirtualClock())
    monkeypatch.undo()

    assert next_incarnation(tmp_path, VirtualClock(1.0)) > before[-1]


def test_a_number_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A node that could not count its next start does not start; the error names the file and what to do."""
    (tmp_path / "incarnation").mkdir()

    with pytest.raises(StorageError, match=r"cannot keep the number .*/incarnation: Is a directory") as refused:
        next_incarnation(tmp_path, VirtualClock())
    assert "choose another name" in refused.value.hint


def test_a_node_starts_again_on_a_full_disk(small_disk: Path) -> None:
    """The number needs no further room on the disk; a first start is refused with a hint."""
    known, new = _directory(small_disk / "known"), _directory(small_disk / "new")
    first = next_incarnation(known, VirtualClock())
    fill(small_disk / "filler")

    assert next_incarnation(known, VirtualClock()) > first
    with pytest.raises(StorageError, match="No space left on device") as refused:
        next_incarnation(new, VirtualClock())
    assert "make room" in refused.value.hint


def _directory(path: Path) -> Path:
    path.mkdir()
    return path
