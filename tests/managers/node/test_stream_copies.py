"""Streams across nodes: data are read on one node while they are written on another."""

import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from dropflow.api.drop_records import DropQuery
from dropflow.data import streams
from dropflow.errors import GoneError
from dropflow.execution.content_location import Handle
from dropflow.graph.build import GraphBuilder
from dropflow.graph.templates import Argument
from dropflow.times.octets import read_receipts, read_sections
from managers.links.actions import FailTransfer, PassChunk
from managers.links.transfer import Transfer
from managers.messages import Chunk, StreamUpdate
from managers.node.fetch_pool import FetchJob
from managers.node.manager import NodeManager
from managers.node.stream_copies import NodeStreams, StreamCopy
from tests.managers.node.conftest import Cluster, hosted, settle, until
from tests.nightly import nightly
from tests.streaming_graphs import (
    FILE,
    MEMORY,
    bash,
    content,
    crossing,
    fan,
    filters,
    line,
    settled,
    written,
)

pytestmark = pytest.mark.slow

Make = Callable[..., Cluster]

PLACES = [(0, 0, 1), (0, 1, 2), *nightly((0, 1, 1), (1, 0, 1), (0, 1, 0))]


@pytest.mark.parametrize("data", [FILE, MEMORY])
@pytest.mark.parametrize("places", PLACES)
def test_a_consumer_elsewhere_reads_while_its_producer_writes(
    places: tuple[int, int, int], data: str, make_cluster: Make, tmp_path: Path
) -> None:
    """A producer can wait for a file that its consumer on another node writes, for any class of data."""
    sign = tmp_path / "sign"
    make = f"echo one; until test -e {sign}; do sleep 0.05; done; echo two"
    cluster = make_cluster(max(places) + 1)
    ended = cluster.run(line(make, f"read word; touch {sign}; echo $word; cat", places, data=data))

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["abc"[places[2]]].data("s", "line_result_0")) == b"one\ntwo\n"
    for name in cluster.nodes:
        assert not list((tmp_path / name).glob("sessions/s/tmp/*"))


@pytest.mark.parametrize("places", PLACES)
def test_a_consumer_starts_over_with_its_producer(
    places: tuple[int, int, int], make_cluster: Make, tmp_path: Path
) -> None:
    """Data of a failed attempt reach no result: the consumer on another node starts again with the next attempt."""
    sign, failed = tmp_path / "sign", tmp_path / "failed"
    make = f"""
    if test -e {failed}; then echo right; exit 0; fi
    echo wrong; until test -e {sign}; do sleep 0.05; done; touch {failed}; exit 3
    """
    cluster = make_cluster(max(places) + 1)
    ended = cluster.run(line(make, f"read word; touch {sign}; echo $word; cat", places, tries=2))

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["abc"[places[2]]].data("s", "line_result_0")) == b"right\n"


# Back-pressure ---------------------------------------------------------------------------------------------------


MB = 1 << 20
WAITS = "until test -e {sign}; do sleep 0.02; done; cat | wc -c"


def _state(node: NodeManager, drop: str, session: str = "s") -> str:
    return node.drop(session, drop).state


def _received(cluster: Cluster) -> dict[tuple[str, str], int]:
    """Return the bytes that each node counted from each other one."""
    sections = [section for node in cluster.nodes.values() for section in read_sections(node.times("s").chunks)]
    return {(receipt.node, section.node): receipt.size for section in sections for receipt in section.received.received}


@pytest.mark.parametrize("places", PLACES)
def test_a_producer_waits_for_a_consumer_elsewhere(
    places: tuple[int, int, int], make_cluster: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets ahead by at most the limit of each copy between them, for any class of data, and then continues.

    Each byte that crosses between two nodes is counted once, while the stream grows and after the end.
    """
    monkeypatch.setattr(streams, "AHEAD", MB)
    monkeypatch.setattr(streams, "PATIENCE", 1000.0)
    sign = tmp_path / "sign"
    cluster = make_cluster(max(places) + 1)
    cluster.start(line("head -c 30000000 /dev/zero", WAITS.format(sign=sign), places))
    first = tmp_path / "abc"[places[0]]
    ahead = settled(lambda: written(first), threading.Event().wait, least=MB)
    early = _received(cluster)
    sign.touch()
    ended = cluster.end()
    crossed = sorted({pair for pair in pairwise("abc"[place] for place in places) if pair[0] != pair[1]})

    # At each of at most three nodes AHEAD, a range of the data plane, and what pipes and buffers hold.
    assert ahead < 3 * (MB + 2 * MB) + MB
    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["abc"[places[2]]].data("s", "line_result_0")) == b"30000000\n"
    assert early
    assert all(0 < size < 30_000_000 for size in early.values())
    assert _received(cluster) == dict.fromkeys(crossed, 30_000_000)
    for name, node in cluster.nodes.items():
        settle(node)
        kept = read_receipts(tmp_path / name / "sessions" / "s").received
        assert {(receipt.node, name): receipt.contents for receipt in kept} == {
            pair: 1 for pair in crossed if pair[1] == name
        }


def test_a_producer_does_not_wait_for_a_consumer_that_does_not_read(
    make_cluster: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends although its consumer on another node reads nothing; the consumer then finds all data."""
    monkeypatch.setattr(streams, "AHEAD", MB)
    monkeypatch.setattr(streams, "PATIENCE", 0.1)
    sign = tmp_path / "sign"
    cluster = make_cluster(2)
    cluster.start(line("head -c 30000000 /dev/zero", WAITS.format(sign=sign), (0, 0, 1)))
    until(cluster["a"], "s", lambda detail: detail.states.get("COMPLETED") == 2)
    before = _state(cluster["b"], "line_TAKE_0")
    sign.touch()
    ended = cluster.end()

    assert before == "WRITING"
    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["b"].data("s", "line_result_0")) == b"30000000\n"


@pytest.mark.parametrize("places", [(0, 0, 1), (0, 1, 1), (0, 1, 2)])
def test_streams_read_in_another_order_than_they_are_written_end(
    places: tuple[int, int, int], make_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of x is written before y, and all of y is read before x: what would be a deadlock of bounded channels."""
    monkeypatch.setattr(streams, "AHEAD", MB)
    monkeypatch.setattr(streams, "PATIENCE", 0.1)
    cluster = make_cluster(max(places) + 1)
    ended = cluster.run(crossing(8 * MB, places))

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["abc"[places[2]]].data("s", "crossing_sizes_0")) == b"8388608 8388608"


# Shapes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [FILE, MEMORY])
def test_all_applications_of_a_chain_on_three_nodes_run_at_once(data: str, make_cluster: Make, tmp_path: Path) -> None:
    """The first application waits in the middle of its output for a file that the last of four filters writes."""
    sign = tmp_path / "sign"
    make = f"echo one; until test -e {sign}; do sleep 0.02; done; echo two"
    passes = "while read word; do echo $word.; done"
    last = f"read word; touch {sign}; echo $word; cat"
    cluster = make_cluster(3)
    ended = cluster.run(filters(make, passes, passes, last, places=(0, 1, 2, 0), data=data))

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["a"].data("s", "filters_d3_0")) == b"one..\ntwo..\n"


def test_one_stream_goes_to_consumers_on_three_nodes(make_cluster: Make, tmp_path: Path) -> None:
    """Those with streaming links begin while it is written, the others when it is complete; all get all of it."""
    signs = [tmp_path / f"sign{at}" for at in range(3)]
    waits = "; ".join(f"until test -e {sign}; do sleep 0.02; done" for sign in signs)
    reads = [(f"read word; touch {sign}; echo $word; cat", at, True) for at, sign in enumerate(signs)]
    cluster = make_cluster(3)
    ended = cluster.run(fan(f"echo one; {waits}; echo two", [*reads, ("cat", 1, False), ("cat", 2, False)]))
    contents = [content(cluster["abc"[part]].data("s", f"fan_r{at}_0")) for at, part in enumerate((0, 1, 2, 1, 2))]

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert contents == [b"one\ntwo\n"] * 5


def test_nodes_that_need_the_whole_do_not_follow(make_cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without streaming consumers gets the content when it is complete, and delays no other node."""
    monkeypatch.setattr(streams, "AHEAD", 4096)
    monkeypatch.setattr(streams, "PATIENCE", 3600.0)
    followed: list[str] = []
    follow = NodeStreams.follow

    def noted(
        node_streams: NodeStreams,
        peer: str,
        stream: StreamUpdate,
        on_open: Callable[[Handle], None],
        on_failure: Callable[[], None],
    ) -> None:
        followed.append(peer)
        follow(node_streams, peer, stream, on_open, on_failure)

    monkeypatch.setattr(NodeStreams, "follow", noted)
    cluster = make_cluster(3)
    ended = cluster.run(fan("head -c 3000000 /dev/zero", [("wc -c", 1, True), ("wc -c", 2, False)]))

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["b"].data("s", "fan_r0_0")) == content(cluster["c"].data("s", "fan_r1_0")) == b"3000000\n"
    assert followed == ["a"]


def test_a_copy_has_the_suffix_of_the_file(make_cluster: Make) -> None:
    """Programs use the suffix, so the copy has it whether it was made during or after the write."""
    drawing = GraphBuilder("named")
    name = (Argument(name="filepath", value="sky.fits"),)
    drawing.app("MAKE", **bash("StreamingOutputBashApp", "echo 1"))  # type: ignore[arg-type]
    drawing.data("data", component=FILE, arguments=name).connect("MAKE", "data")
    for app, streaming in (("READ", True), ("LOOK", False)):
        command = "cat" if streaming else "echo {data}"
        kind = "StreamingInputOutputBashApp" if streaming else "StreamingOutputBashApp"
        drawing.app(app, part=1, **bash(kind, command)).data(app.lower(), part=1)  # type: ignore[arg-type]
        drawing.connect("data", app, target_port="data", streaming=streaming).connect(app, app.lower())
    cluster = make_cluster(2)
    ended = cluster.run(drawing.build())

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["b"].data("s", "named_look_0")).endswith(b"sky.fits\n")


# Limits ----------------------------------------------------------------------------------------------------------


def test_slow_readers_of_a_stream_do_not_delay_others(
    make_cluster: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is complete at its producer, consumers of the whole get it, even if streaming readers are slow."""
    monkeypatch.setattr(streams, "AHEAD", 4 * MB)
    monkeypatch.setattr(streams, "PATIENCE", 1000.0)
    sign = tmp_path / "sign"
    takes = [(WAITS.format(sign=sign), 1, True), (f"cat | wc -c; touch {sign}", 1, False)]
    cluster = make_cluster(2)
    ended = cluster.run(fan("head -c 7000000 /dev/zero", takes))

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["b"].data("s", "fan_r0_0")) == content(cluster["b"].data("s", "fan_r1_0")) == b"7000000\n"


def test_incomplete_copies_do_not_delay_other_contents(
    make_cluster: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of complete streams with slow copies do not delay the other contents of their node."""
    count = 5  # a node fetches four at a time from another one
    sign, copy = tmp_path / "sign", StreamCopy._copy

    def late(follower: StreamCopy, session: str) -> FetchJob:
        assert settled(lambda: int(sign.exists()), threading.Event().wait, least=1)
        yield from copy(follower, session)

    monkeypatch.setattr(StreamCopy, "_copy", late)
    drawing = GraphBuilder("slow").app("LAST", component="dlg.apps.simple.CopyApp").data("last", component=FILE)
    for at in range(count):
        make, data, take = f"MAKE{at}", f"data{at}", f"TAKE{at}"
        drawing.app(make, **bash("StreamingOutputBashApp", f"echo {at}")).data(data, component=FILE)  # type: ignore[arg-type]
        drawing.app(take, part=1, **bash("StreamingInputOutputBashApp", "cat")).data(f"result{at}", part=1)  # type: ignore[arg-type]
        drawing.connect(make, data).connect(data, take, streaming=True).connect(take, f"result{at}")
        drawing.connect(data, "LAST")
    # It is made when all of those are complete, and who wants it gives the sign for which they wait.
    drawing.app("SIGN", part=1, **bash("StreamingInputOutputBashApp", f"cat > {sign}")).data("end", part=1)  # type: ignore[arg-type]
    drawing.connect("LAST", "last").connect("last", "SIGN").connect("SIGN", "end")
    ended = make_cluster(2).run(drawing.build())

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended


def test_streams_that_are_complete_hold_no_descriptors(make_cluster: Make, tmp_path: Path) -> None:
    """A node that offers many complete streams holds no file descriptors for them."""
    sign, count = tmp_path / "sign", 40
    drawing = GraphBuilder("gather")
    drawing.app("GATHER", component="dlg.apps.simple.CopyApp", part=1).data("all", component=FILE, part=1)
    for at in range(count):
        drawing.app(f"M{at}", **bash("StreamingOutputBashApp", f"echo {at}"))  # type: ignore[arg-type]
        drawing.data(f"d{at}", component=FILE).connect(f"M{at}", f"d{at}").connect(f"d{at}", "GATHER", streaming=True)
    wait = f"echo last; until test -e {sign}; do sleep 0.02; done"
    drawing.app("LAST", **bash("StreamingOutputBashApp", wait)).data("last", component=FILE)  # type: ignore[arg-type]
    drawing.connect("LAST", "last").connect("last", "GATHER", streaming=False).connect("GATHER", "all")
    cluster = make_cluster(2)
    cluster.start(drawing.build())
    until(cluster["a"], "s", lambda detail: detail.states.get("COMPLETED") == 2 * count)
    offers = hosted(cluster["a"]).exchange._streams._offered
    held = [offer for of_drop in list(offers.values()) for offer in of_drop.values() if not offer.reader.closed]
    sign.touch()
    ended = cluster.end()

    assert len(held) <= 1
    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert len(content(cluster["b"].data("s", "gather_all_0")).split()) == count + 1


# Ends ------------------------------------------------------------------------------------------------------------


ENDLESS = "while true; do echo more; sleep 0.01; done"


def _alive() -> list[str]:
    """Return the threads that copy streams."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("stream-")]


@pytest.mark.parametrize("where", ["a", "b", "c"])
@pytest.mark.parametrize("places", [(0, 1, 2), *nightly((0, 0, 1))])
@pytest.mark.parametrize("how", ["cancel", *nightly("delete")])
def test_a_session_that_ends_in_mid_stream_leaves_no_files(
    how: str, places: tuple[int, int, int], where: str, make_cluster: Make, tmp_path: Path
) -> None:
    """A session that is cancelled or deleted on one node ends on all nodes, and no files of its streams are left."""
    if where == "c" and max(places) < 2:
        pytest.skip("there is no such node here")
    sign = tmp_path / "sign"
    cluster = make_cluster(max(places) + 1)
    cluster.start(line(ENDLESS, f"read word; touch {sign}; cat", places))
    assert settled(lambda: int(sign.exists()), threading.Event().wait, least=1)
    getattr(cluster[where], how)("s")
    ended = cluster.end()
    again = cluster.run(line("echo 1", "cat", places), session="again")

    assert {detail.status for detail in ended.values()} == {"CANCELLED"}
    assert not _alive()
    for name, node in cluster.nodes.items():
        assert not list((tmp_path / name).glob("sessions/s/tmp/*"))
        assert (how == "delete" and name == where) != (tmp_path / name / "sessions" / "s").exists()
        waiting = node._links._server._server._waiting
        assert settled(waiting.__len__, threading.Event().wait, least=0) == 0
    assert {detail.status for detail in again.values()} == {"FINISHED"}


def test_a_copy_that_ends_late_does_not_make_the_directory_again(
    make_cluster: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of a deleted session does not reappear, even if its copies were about to write."""
    begun = threading.Event()

    def late(copy: StreamCopy, *_: object) -> None:
        begun.set()
        settled(lambda: int(copy._given_up), threading.Event().wait, least=1)
        copy._part.write(b"late")
        raise GoneError("a test")

    monkeypatch.setattr(StreamCopy, "_copy", late)
    cluster = make_cluster(2)
    cluster.start(line(ENDLESS, "cat", (0, 0, 1)))
    assert begun.wait(60)
    cluster["b"].delete("s")
    cluster.end()
    settled(lambda: int(not _alive()), threading.Event().wait, least=1)

    assert not (tmp_path / "b" / "sessions" / "s").exists()


def test_a_node_that_leaves_ends_the_session_in_mid_stream(make_cluster: Make, tmp_path: Path) -> None:
    """A session that loses the node of its consumer fails with the name of the node; no stream files are left."""
    sign = tmp_path / "sign"
    cluster = make_cluster(2, lost_after=1.0)
    cluster.start(line(ENDLESS, f"read word; touch {sign}; cat", (0, 0, 1)))
    assert settled(lambda: int(sign.exists()), threading.Event().wait, least=1)
    cluster["b"]._links.close()
    detail = until(cluster["a"], "s", lambda detail: bool(detail.finished))

    assert detail.status == "FAILED"
    assert "node b is lost" in detail.text
    assert not list((tmp_path / "a").glob("sessions/s/tmp/*"))


# Faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [(0, 0, 1), (0, 1, 1), (0, 1, 2)])
def test_a_damaged_copy_reaches_no_result(
    places: tuple[int, int, int], make_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that differs from the final content is fetched again, and its readers start over."""
    receive = Transfer._receive_chunk
    damaged: list[int] = []

    def flip(transfer: Transfer, chunk: Chunk, raw: bytes, now: float) -> PassChunk | FailTransfer | None:
        if transfer._wanted.attempt and not damaged:  # of what an attempt is writing
            damaged.append(len(raw))
            raw = bytes([raw[0] ^ 1]) + bytes(raw[1:])
            chunk = msgspec.structs.replace(chunk, checksum=-1)
        return receive(transfer, chunk, raw, now)

    monkeypatch.setattr(Transfer, "_receive_chunk", flip)
    cluster = make_cluster(max(places) + 1)
    ended = cluster.run(line("seq 100000", "cat", places))
    expected = "".join(f"{number}\n" for number in range(1, 100_001)).encode()

    assert damaged
    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["abc"[places[2]]].data("s", "line_result_0")) == expected


def test_a_restarted_node_reports_the_streams_of_its_journal(make_cluster: Make, tmp_path: Path) -> None:
    """After a kill in mid-stream, the next process of the node reports the session as far as its journal goes."""
    sign = tmp_path / "sign"
    cluster = make_cluster(2)
    cluster.start(line(ENDLESS, f"read word; touch {sign}; cat", (0, 0, 1)))
    assert settled(lambda: int(sign.exists()), threading.Event().wait, least=1)
    for name in "ab":
        root = tmp_path / name
        shutil.copytree(root, tmp_path / f"{name}2", ignore=shutil.ignore_patterns("tmp", "*.sock"))
    cluster["a"].cancel("s")
    cluster.end()
    states = {}
    for name in "ab":
        with closing(NodeManager(name, root=tmp_path / f"{name}2", runner="threads", workers=1)) as node:
            states[name] = (
                node.session("s").status,
                sorted({drop.state for drop in node.drops("s", DropQuery()).drops}),
            )

    assert states == {"a": ("FAILED", ["CANCELLED"]), "b": ("FAILED", ["CANCELLED"])}
