"""Streams between nodes: invalid events, random graphs, offers, and the thread that watches files."""

import os
import queue
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from dropflow.api.drop_records import DropQuery
from dropflow.clock import SystemClock
from dropflow.data import streams
from dropflow.data.file import FileWriter
from dropflow.data.streams import StreamedWriter, StreamReader
from dropflow.data.workspace import Workspace
from dropflow.errors import GoneError, StorageError
from dropflow.execution.content_location import Handle
from dropflow.graph.order import leaves
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from managers.links import WantedContent
from managers.messages import Events, StreamUpdate
from managers.node.manager import NodeManager
from managers.node.stream_copies import FileWatcher, NodeStreams, StreamOffer
from tests.managers.node.conftest import Cluster, until
from tests.streaming_graphs import Picture, alone, content, line, random_graph, scattered, settled

Make = Callable[..., Cluster]
MAKE, DATA, TAKE, RESULT = range(4)
"""Rows of a `line`; the first two on a, the others on b."""
INVALID_UPDATES = {
    "of a drop that there is not": ("a", "b", StreamUpdate(99, 1, -1, Handle(kind="stream"))),
    "of a drop that is not in the slice": ("b", "a", StreamUpdate(RESULT, 1, -1, Handle(kind="stream"))),
    "of a drop of the receiver": ("b", "a", StreamUpdate(DATA, 1, -1, Handle(kind="stream"))),
    "of a producer of the receiver": ("b", "a", StreamUpdate(DATA, 1, MAKE, Handle(kind="stream"))),
    "of a consumer as a producer": ("b", "a", StreamUpdate(DATA, 1, TAKE, Handle(kind="stream"))),
    "of a producer that there is not": ("a", "b", StreamUpdate(DATA, 1, 99, Handle(kind="stream"))),
    "that it is withdrawn by who does not write it": ("b", "a", StreamUpdate(DATA, 1, -1)),
    "that leaves the directory": (
        "a",
        "b",
        StreamUpdate(DATA, 7, -1, Handle(kind="stream", final="./../../../stolen")),
    ),
    "with a path that is none": ("a", "b", StreamUpdate(DATA, 7, -1, Handle(kind="stream", final="./x\0y"))),
}


def _begun(make_cluster: Make, folder: Path) -> tuple[Cluster, int]:
    """Start a line whose producer waits for a file in mid-stream, and whose consumer has read all that was written."""
    cluster = make_cluster(2)
    make = f"echo one; until test -e {folder}/go; do sleep 0.02; done; echo two"
    epoch = cluster.start(line(make, f"read word; touch {folder}/read; echo $word; cat", (0, 0, 1))).epoch
    assert settled(lambda: int((folder / "read").exists()), threading.Event().wait, least=1)
    return cluster, epoch


def _send(cluster: Cluster, epoch: int, sender: str, peer: str, *updates: StreamUpdate) -> None:
    events = Events.of("s", epoch, 9, drops=[], states=[], attempts=[], causes=[], streams=updates)
    cluster[sender]._links.send(peer, events)
    assert cluster[sender]._links.flush(10.0)


@pytest.mark.slow
@pytest.mark.parametrize("what", INVALID_UPDATES)
def test_an_invalid_stream_event_of_a_peer_fails_the_session(what: str, make_cluster: Make, tmp_path: Path) -> None:
    """The error of the receiving node names the sender; nothing is written outside of the session's directory."""
    sender, peer, stream = INVALID_UPDATES[what]
    cluster, epoch = _begun(make_cluster, tmp_path)
    _send(cluster, epoch, sender, peer, stream)
    detail = until(cluster[peer], "s", lambda detail: bool(detail.finished))

    assert detail.status == "FAILED"
    assert [failure.name for failure in detail.failures if not failure.drop] == [sender]
    # Parts of the session are removed meanwhile: os.walk passes over what is gone.
    names = [name for _, folders, files in os.walk(tmp_path) for name in (*folders, *files)]
    assert names
    assert not [name for name in names if name.startswith("stolen")]


@pytest.mark.slow
@pytest.mark.parametrize("attempt", [1, 5])
def test_a_repeated_stream_event_changes_no_result(attempt: int, make_cluster: Make, tmp_path: Path) -> None:
    """A stream of the same attempt is not copied again; if it is not offered, readers get the whole content later."""
    cluster, epoch = _begun(make_cluster, tmp_path)
    _send(cluster, epoch, "a", "b", StreamUpdate(DATA, attempt, -1, Handle(kind="stream", final="./files/data")))
    if attempt > 1:
        _send(cluster, epoch, "a", "b", StreamUpdate(DATA, 3, -1), StreamUpdate(DATA, 2, -1, Handle(kind="stream")))
    (tmp_path / "go").touch()
    ended = cluster.end()

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert (cluster["b"].drop("s", "line_TAKE_0").attempt == 1) == (attempt == 1)
    assert content(cluster["b"].data("s", "line_result_0")) == b"one\ntwo\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drop", "attempt", "producer"), [(DATA, 2, -1), (DATA, 1, MAKE), (RESULT, 1, -1), (99, 1, -1)]
)
def test_a_stream_that_is_not_offered_cannot_be_fetched(
    drop: int, attempt: int, producer: int, make_cluster: Make, tmp_path: Path
) -> None:
    """A request for the stream of another drop, attempt or producer fails: it is gone."""
    cluster, _ = _begun(make_cluster, tmp_path)
    wanted = WantedContent(session="s", drop=drop, attempt=attempt, producer=producer)
    with pytest.raises(GoneError, match=f"drop {drop} of session s"):
        cluster["b"]._links.fetch("a", wanted, lambda *_: None, timeout=60)
    (tmp_path / "go").touch()

    assert {detail.status for detail in cluster.end().values()} == {"FINISHED"}


# Random graphs with streaming links, partitioned at random, end as in one process without streams.


StreamGraphsMake = Callable[[int], Cluster]
_SEEDS = 300 if os.environ.get("DROPFLOW_SOAK") else 12


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamGraphsMake]:
    """Return clusters of one to four nodes that do not use each other's files."""
    root = tmp_path_factory.mktemp("nodes")
    with ExitStack() as stack:
        nodes = {
            name: stack.enter_context(
                closing(NodeManager(name, root=root / name, runner="threads", workers=2, in_place=False))
            )
            for name in "abcd"
        }
        yield lambda count: Cluster({name: nodes[name] for name in "abcd"[:count]})


def together(cluster: Cluster, graph: PhysicalGraph, session: str) -> Picture:
    """Run a graph on nodes; return the states and contents. No streams are left."""
    cluster.run(graph, session)
    wanted = set(oids(graph, leaves(graph)))
    states, contents = {}, {}
    for node in cluster.nodes.values():
        if session not in [info.session for info in node.sessions()]:
            continue
        for drop in node.drops(session, DropQuery(limit=1000)).drops:
            states[drop.oid] = drop.state
            if drop.oid in wanted and drop.state == "COMPLETED":
                contents[drop.oid] = zlib.crc32(b"".join(node.data(session, drop.oid).chunks))
        directory = node._root / "sessions" / session
        assert not list(directory.glob("tmp/*"))
    return states, contents


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(_SEEDS))
def test_streams_change_no_result(
    seed: int, make: StreamGraphsMake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random graphs on one, two and four nodes, some of whose applications fail at first or for good in mid-stream."""
    if seed % 4 > 1:  # writers wait again and again
        monkeypatch.setattr(streams, "AHEAD", 4096)
        monkeypatch.setattr(streams, "PATIENCE", 0.05)
    failing = (0.0, 0.3)[seed % 2]
    nodes = (1, 2, 4)[seed % 3]
    marks = [tmp_path / "alone", tmp_path / "together"]
    for folder in marks:
        folder.mkdir()
    graphs = [random_graph(seed, 4 + seed % 10, marks=folder, failing=failing) for folder in marks]
    expected = alone(graphs[0], tmp_path / "s")

    assert together(make(nodes), scattered(graphs[1], nodes, seed), f"s{seed}") == expected


@pytest.mark.slow
def test_two_hundred_drops_on_three_nodes(make: StreamGraphsMake, tmp_path: Path) -> None:
    """Many streams at once, each across other nodes, end as in one process without streams."""
    graph = random_graph(1000, 100, marks=tmp_path)

    assert together(make(3), scattered(graph, 3, 1000), "many") == alone(graph, tmp_path / "s")


# Offers of streams: what other nodes can read, from the first bytes to the end.


Made = tuple[StreamedWriter, StreamOffer]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Return a stream with four bytes, and its offer."""
    opened: list[Handle] = []
    part = StreamedWriter(
        FileWriter(str(tmp_path / "part")), str(tmp_path / "s"), opened.append, lambda: None, SystemClock()
    )
    part.write(b"0123")
    return part, StreamOffer(StreamReader(opened[0].location))


def test_an_open_stream_has_no_size_and_is_read_to_its_present_end(made: Made) -> None:
    """A read beyond the present end returns nothing until the content grows."""
    part, offer = made
    before = (offer.size, offer.read(2, 10), offer.read(4, 10))
    part.write(b"45")
    after = offer.read(4, 10)
    size = part.finish().size
    offer_size = offer.size
    offer.end()

    assert (before, after) == ((None, b"23", b""), b"45")
    assert offer_size == size == 6


def test_a_complete_stream_is_read_from_its_final_path(made: Made, tmp_path: Path) -> None:
    """It can be read after its commit under another name, and after the data plane has closed it."""
    part, offer = made
    handle = part.finish()
    final = Path(handle.location).rename(tmp_path / "final")
    offer.complete(_moved(handle, final))
    offer.complete(_moved(handle, final))
    contents = []
    for _ in range(3):
        contents.append((offer.size, offer.read(1, 2)))
        held = offer._file
        offer.close()
        assert held >= 0 > offer._file
    offer.end()

    assert contents == [(4, b"12")] * 3
    assert offer.reader.closed


def test_an_open_reader_continues_after_the_commit(made: Made, tmp_path: Path) -> None:
    """It reads the same file, even if another file gets the name of the content."""
    part, offer = made
    offer.read(0, 2)
    handle = part.finish()
    final = Path(handle.location).rename(tmp_path / "final")
    offer.complete(_moved(handle, final))
    final.unlink()
    final.write_bytes(b"else")
    read = offer.read(2, 2)
    offer.end()

    assert read == b"23"


def test_a_lost_file_and_an_ended_offer_are_errors(made: Made, tmp_path: Path) -> None:
    """A removed file cannot be read; an ended offer is gone, complete or not, and ends only once."""
    part, offer = made
    offer.complete(_moved(part.finish(), tmp_path / "nowhere"))
    with pytest.raises(StorageError, match="nowhere"):
        offer.read(0, 1)
    offer.end()
    offer.end()
    offer.complete(_moved(part.finish(), tmp_path / "part"))
    with pytest.raises(GoneError, match="discarded"):
        offer.read(0, 1)


class _Grown:
    """Links that note the drops whose contents have grown."""

    def __init__(self) -> None:
        self.drops: queue.SimpleQueue[int] = queue.SimpleQueue()

    def content_grew(self, session: str, drop: int) -> None:
        """Note a drop."""
        del session
        self.drops.put(drop)

    def close_content(self, session: str, drop: int | None = None) -> None:
        """Do nothing."""


def test_a_stream_is_watched_after_a_complete_one_is_withdrawn(tmp_path: Path, file_watcher: FileWatcher) -> None:
    """The next stream may have the number of the descriptor that a complete one had; its growth is announced."""
    opened: list[Handle] = []
    parts = [
        StreamedWriter(
            FileWriter(str(tmp_path / name)), str(tmp_path / f"{name}.s"), opened.append, lambda: None, SystemClock()
        )
        for name in "ab"
    ]
    links = _Grown()
    streams_ = NodeStreams(
        "s",
        Workspace(str(tmp_path), "s"),
        links=cast(Any, links),
        pool=cast(Any, None),
        file_watcher=file_watcher,
        receipts=cast(Any, None),
        clock=SystemClock(),
    )
    for drop, part in enumerate(parts):
        part.write(b"0123")
        streams_.offer(drop, 1, -1, opened[drop])
        if not drop:
            streams_.complete(drop, part.finish())
    streams_.withdraw(0)
    while not links.drops.empty():
        links.drops.get()
    parts[1].write(b"45")

    grown = links.drops.get(timeout=SECONDS)
    parts[1].finish()
    streams_.close()

    assert grown == 1


def _moved(handle: Handle, path: Path) -> Handle:
    return msgspec.structs.replace(handle, location=str(path))


# The thread that is notified when streams grow.


SECONDS = 60.0


class Pipe:
    """A watched pipe, and the number of its notifications."""

    def __init__(self, file_watcher: FileWatcher) -> None:
        self.reader, self.writer = os.pipe()
        self._notified = threading.Semaphore(0)
        file_watcher.watch(self.reader, self._on_readable)

    def _on_readable(self) -> None:
        os.read(self.reader, 1)
        self._notified.release()

    def write(self) -> None:
        """Make the pipe readable."""
        os.write(self.writer, b"!")

    def is_notified(self, seconds: float = SECONDS) -> bool:
        """Return whether there is another notification."""
        return self._notified.acquire(timeout=seconds)

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reader)
        os.close(self.writer)


@pytest.fixture
def file_watcher() -> Iterator[FileWatcher]:
    """Return a file watcher, which is closed at the end."""
    opened = FileWatcher()
    yield opened
    opened.close()


@pytest.fixture
def pipes(file_watcher: FileWatcher) -> Iterator[list[Pipe]]:
    """Return five watched pipes."""
    pipes_ = [Pipe(file_watcher) for _ in range(5)]
    yield pipes_
    file_watcher.close()
    for pipe in pipes_:
        pipe.close()


def test_each_write_is_one_notification(pipes: list[Pipe]) -> None:
    """No notification is lost if several pipes become readable at the same time."""
    for _ in range(100):
        for pipe in pipes:
            pipe.write()

    assert all(pipe.is_notified() for pipe in pipes for _ in range(100))


def test_an_unwatched_file_gives_no_notification(file_watcher: FileWatcher, pipes: list[Pipe]) -> None:
    """Other files are still watched; removing a file twice, or an unknown one, is not an error."""
    first, *others = pipes
    file_watcher.unwatch(first.reader)
    file_watcher.unwatch(first.reader)
    for pipe in pipes:
        pipe.write()

    assert all(pipe.is_notified() for pipe in others)
    assert not first.is_notified(0)


def test_a_reused_descriptor_number_is_watched_as_a_new_file(file_watcher: FileWatcher, pipes: list[Pipe]) -> None:
    """After a descriptor was unwatched and closed, another file with its number can be watched."""
    first = pipes.pop(0)
    file_watcher.unwatch(first.reader)
    first.close()
    again = Pipe(file_watcher)
    pipes.append(again)
    again.write()

    assert again.is_notified()
    assert not first.is_notified(0)


def test_closing_is_idempotent_and_ends_the_thread(file_watcher: FileWatcher) -> None:
    """A watcher can be closed unused and twice; watching a file after that has no effect, and its thread has ended."""
    FileWatcher().close()
    pipe = Pipe(file_watcher)
    file_watcher.close()
    file_watcher.close()
    late = Pipe(file_watcher)
    late.write()
    file_watcher.unwatch(late.reader)

    assert not late.is_notified(0)
    assert "file_watcher" not in [thread.name for thread in threading.enumerate()]
    pipe.close()
    late.close()
