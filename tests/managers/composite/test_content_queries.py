"""Drops, logs, data, results, journals and graphs of sessions on several nodes."""

import io
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest

from dropflow.api.contents_answer import (
    ContentBegin,
    ContentError,
    ContentPiece,
    ContentRequest,
    ContentsRequest,
    read_records,
)
from dropflow.api.drop_queries import order_of
from dropflow.api.drop_records import DropInfo, DropPage, DropQuery
from dropflow.api.logs import NO_LOG, LogLine, LogPage, LogQuery
from dropflow.api.requests import DropStates, FailureList, FailureQuery, ResultList, TimesQuery
from dropflow.errors import (
    AmbiguousError,
    ConflictError,
    GoneError,
    LinkError,
    NotFoundError,
    UsageError,
)
from dropflow.states import DropState
from dropflow.times.octets import RECORD, NodeReceipts, PeerReceipts, TimesSection, read_sections
from tests.fake_manager import FakeManager
from tests.managers.composite.filled_records import fields_with_defaults, filled
from tests.managers.composite.world import SUBMIT, World, parts
from tests.regular_graphs import chain, fan


def test_unknown_sessions_and_drops_are_not_found(world: World) -> None:
    """All requests for unknown sessions and drops fail with the same error."""
    world.node("n1")
    island = world.composite("n1")
    island.submit(fan(4), SUBMIT)

    for ask in (island.session, island.cancel, island.delete, island.failures, island.results, island.journal):
        with pytest.raises(NotFoundError, match="'gone'"):
            ask("gone")
    with pytest.raises(NotFoundError, match="'gone'"):
        island.drops("gone", DropQuery())
    with pytest.raises(NotFoundError, match="'nothing'"):
        island.drop("s", "nothing")
    with pytest.raises(NotFoundError, match="'gone'"):
        island.watch("gone", version=0, seconds=0.0)
    with pytest.raises(NotFoundError, match="http://nowhere:1"):
        island.remove_child("http://nowhere:1")


def test_results_are_missing_on_a_node_that_has_lost_its_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers, and does not list them."""
    world.node("n1")
    island = world.composite("n1")
    island.submit(fan(4), SUBMIT)
    assert island.results("s").missing == ()
    monkeypatch.setattr("managers.composite.content_queries.unrecorded_nodes", lambda _: ("n1",))
    assert island.results("s").missing == ("n1",)


FILLED: dict[str, Callable[[int], Any]] = {
    "drops": partial(filled, DropPage),
    "failures": partial(filled, FailureList),
    "states": partial(filled, DropStates),
    "results": partial(filled, ResultList),
    "session_log": partial(filled, LogPage, older="n:1", newer="n:2", is_first=False, is_last=False),
}
"""Records with a value in every field, made of a number, by the operation that they answer."""


class Filled:
    """A manager that answers what is asked about the contents of sessions with these records."""

    def __init__(self, manager: FakeManager, number: int) -> None:
        self._manager = manager
        self._number = number

    def __getattr__(self, name: str) -> Any:
        fill = FILLED.get(name)
        return (lambda **_: fill(self._number)) if fill else getattr(self._manager, name)


def test_no_field_of_an_answer_is_lost(world: World) -> None:
    """What an island makes of the answers of its children has a value in every field, and all missing nodes."""
    for number in (2, 3):
        world.managers[f"http://n{number}:8000"] = Filled(world.node(f"n{number}"), number)
    island = world.composite("n2", "n3")
    answers = {
        "drops": island.drops("s", DropQuery(offset=1, limit=3)),
        "failures": island.failures("s", FailureQuery(offset=1, limit=3, columns=True)),
        "states": island.states("s"),
        "results": island.results("s"),
        "session_log": island.session_log("s", LogQuery(limit=1)),
    }

    assert answers.keys() == FILLED.keys()
    for answer in answers.values():
        assert fields_with_defaults(answer) == set()
        assert answer.missing == ("missing 2", "missing 3")


def test_pages_of_drops_run_over_all_nodes(world: World) -> None:
    """All pages together are all drops, each once, whatever the size of a page."""
    for name in ("n1", "n2", "n3"):
        world.node(name)
    island = world.composite("n1", "n2", "n3")
    island.submit(parts(3), SUBMIT)

    ids: list[str] = []
    while len(ids) < 41:
        page = island.drops("s", DropQuery(offset=len(ids), limit=7))
        assert page.total == 41
        assert not page.missing
        ids += [row.oid for row in page.drops]

    assert len(set(ids)) == 41
    assert island.drops("s", DropQuery(node="n2")).total == sum(
        row.node == "n2" for row in island.drops("s", DropQuery(limit=100)).drops
    )


def test_a_sorted_list_is_merged_from_all_nodes(world: World) -> None:
    """Pages one after the other are the whole list in its order; a page far beyond the beginning is refused."""
    for name in ("n1", "n2", "n3"):
        world.node(name)
    island = world.composite("n1", "n2", "n3")
    island.submit(parts(3), SUBMIT)
    every = island.drops("s", DropQuery(limit=100)).drops
    for sort in ("-row", "id", "name", "-node", "state"):
        key, is_reversed = order_of(sort)
        rows: list[DropInfo] = []
        for offset in range(0, len(every), 7):
            rows += island.drops("s", DropQuery(sort=sort, offset=offset, limit=7)).drops
        assert rows == sorted(every, key=key, reverse=is_reversed), sort
    with pytest.raises(UsageError, match="only the first 20,000 rows"):
        island.drops("s", DropQuery(sort="id", offset=20_000))


def test_a_page_says_which_nodes_are_missing(world: World) -> None:
    """Drops of nodes that do not answer are left out, and the nodes are named."""
    island, _, two = world.session_of_two()

    two.refuse("drops", LinkError("nothing listens there"))
    page = island.drops("s", DropQuery())

    assert page.missing == ("n2",)
    assert {row.node for row in page.drops} == {"n1"}


def test_results_are_released_on_all_nodes(world: World) -> None:
    """Each child gets all rows; one that does not answer is named, and a session that is not FINISHED is refused."""
    island, one, two = world.session_of_two()
    rows = {row.node: row for row in island.drops("s", DropQuery(limit=100)).drops if not row.is_app}
    with pytest.raises(ConflictError, match="'s' is RUNNING, and not FINISHED"):
        island.release("s", [rows["n1"].drop])
    for node, name in ((one, "n1"), (two, "n2")):
        node.complete("s")
        node.write("s", rows[name].drop, b"data")
    assert len(island.results("s").results) == 2

    island.release("s", [row.drop for row in rows.values()])

    assert island.results("s").results == ()
    two.refuse("release", LinkError("nothing listens there"))
    with pytest.raises(LinkError, match="but not on n2"):
        island.release("s", [row.drop for row in rows.values()])


def test_the_hint_about_a_missing_log_is_about_the_drop(world: World) -> None:
    """A drop that printed nothing has no log; the list of sessions would not help."""
    node = world.node("n1")
    node.add(fan(2), "s")
    node.refuse("log", NotFoundError("drop fan_a_0-0 has written no log"))

    with pytest.raises(NotFoundError, match="there is no log of drop 'fan_a_0-0'") as refused:
        world.composite("n1").log("s", "fan_a_0-0")
    assert refused.value.hint == NO_LOG


def test_logs_and_data_come_from_the_node_that_has_them(world: World) -> None:
    """A 404 of one node does not end the search; the error for released content names the release."""
    world.node("n1").add(fan(4), "s")
    two = world.node("n2")
    two.add(chain(4), "s")
    two.write("s", 1, b"content")
    two.fail("s", 0, "broken")
    island = world.composite("n1", "n2")
    failed = island.failures("s").failures[0].drop
    written = two.drops("s", DropQuery(row=1)).drops[0].oid

    assert b"broken" in b"".join(island.log("s", failed).chunks)
    assert b"".join(island.data("s", written).chunks) == b"content"
    assert island.drop("s", written).node == "n2"
    two.advance("s", {1: "EXPIRED"})
    with pytest.raises(GoneError, match="'chain_d_0-0' was released"):
        island.data("s", written)


def test_a_drop_counts_its_root_cause_on_all_nodes(world: World) -> None:
    """Its page has the numbers of the page of the session, not those of its node."""
    one, two = world.node("n1"), world.node("n2")
    for node, also in ((one, (1,)), (two, (1, 2))):
        node.add(chain(4), "s")
        node.fail("s", 0, "broken", also=also)
    island = world.composite("n1", "n2")
    (cause,) = island.session("s").failures
    failure = island.drop("s", cause.drop).failure

    assert failure is not None
    assert (
        (failure.count, failure.took_along, failure.text)
        == (cause.count, cause.took_along, "broken")
        == (5, 3, "broken")
    )


def test_results_name_the_nodes_that_do_not_answer(world: World) -> None:
    """While a node of the session does not answer, the list of results names it as missing."""
    island, _, two = world.session_of_two()
    assert island.results("s").missing == ()

    two.refuse("results", LinkError("nothing listens there"))
    assert island.results("s").missing == ("n2",)


def test_a_member_without_the_session_is_one_whose_results_are_missing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others name their members, so an island that never saw its part names a node with a new data directory."""
    one, two = world.node("n1"), world.node("n2")
    for node in (one, two):
        node.add(parts(2), "s")
        node.complete("s")
        for method in ("session", "sessions"):
            monkeypatch.setattr(node, method, _with_members(getattr(node, method), ("n1", "n2")))
    two.delete("s")
    island = world.composite("n1", "n2")
    world.composite("island-1", role="master", name="master-1")
    world.node("n3")  # no member
    island.add_child("http://n3:8000")

    for manager in world.opened:
        assert any("n2 had a part of the session and has it no more" in note for note in manager.session("s").notes)
        assert manager.results("s").missing == ("n2",)
        assert manager.drops("s", DropQuery()).missing == ("n2",)


def _with_members(method: Callable[..., Any], members: tuple[str, ...]) -> Callable[..., Any]:
    """Return a method of a manager whose sessions have these members."""

    def call(*given: Any, **named: Any) -> Any:
        found = method(*given, **named)
        if isinstance(found, tuple):
            return tuple(msgspec.structs.replace(each, members=members) for each in found)
        return msgspec.structs.replace(found, members=members)

    return call


def test_states_of_all_nodes_are_merged(world: World) -> None:
    """The first answer has all drops, the next ones what has changed; nodes that do not answer are named."""
    island, one, two = world.session_of_two()
    first = island.states("s")
    assert sorted(first.rows.tolist()) == list(range(41))
    assert set(first.values.tolist()) == {DropState.INITIALIZED}

    row = two.drops("s", DropQuery()).drops[0].drop
    two.advance("s", {row: "COMPLETED"})
    second = island.states("s", since=first.cursor)
    states = dict(zip(second.rows.tolist(), second.values.tolist(), strict=True))
    assert states[row] == DropState.COMPLETED
    assert not {drop.drop for drop in one.drops("s", DropQuery(limit=100)).drops} & set(states)
    assert island.states("s", since=second.cursor).rows.tolist() == []
    two.refuse("states", LinkError("nothing listens there"))
    assert island.states("s", since=second.cursor).missing == ("n2",)
    assert len(island.states("s", since="of another manager").rows) < 41


def test_contents_pass_through_from_the_node_that_has_them(world: World) -> None:
    """The island asks the child that has the node, and no other."""
    world.node("n1").add(fan(4), "s")
    two = world.node("n2")
    two.add(fan(4), "s")
    two.complete("s")
    two.write("s", 1, b"content")
    island = world.composite("n1", "n2")
    wanted = (ContentRequest(row=1), ContentRequest(row=2))

    contents = list(read_records(island.contents("s", ContentsRequest(node="n2", wanted=wanted)).chunks))
    assert contents[:2] == [ContentBegin(0, size=7, checksum=zlib.crc32(b"content")), ContentPiece(b"content")]
    assert isinstance(contents[-1], ContentError)
    with pytest.raises(NotFoundError, match="node n3 is not below"):
        island.contents("s", ContentsRequest(node="n3", wanted=wanted))


def test_logs_of_managers_pass_through(world: World) -> None:
    """An island asks the node, a master its island; the own log is read here."""
    line = LogLine(time=1, node="n2", drop="", name="dropflow", level="INFO", text="listens", at=0)
    world.node("n1")
    world.node("n2").print_lines("n2", [line])
    island = world.composite("n1", "n2")

    assert island.manager_log("n2").lines == (line,)
    assert island.manager_log("n1").lines == ()
    with pytest.raises(NotFoundError, match="node n3 is not below"):
        island.manager_log("n3")
    with pytest.raises(NotFoundError, match="keeps no log"):
        island.manager_log(island.info().name)


def test_an_ending_of_several_ids_is_ambiguous(world: World) -> None:
    """An ending that matches one drop on each of two nodes is ambiguous."""
    world.node("n1").add(fan(4), "s")
    world.node("n2").add(chain(4), "s")
    island = world.composite("n1", "n2")

    with pytest.raises(AmbiguousError, match="2 drops end in 'a_0-1'"):
        island.drop("s", "a_0-1")


def test_failed_drops_are_listed_first_for_an_ambiguous_name(world: World) -> None:
    """Each has its name with the index, which is enough, and its id and state."""
    node = world.node("n1")
    node.add(fan(12), "s")
    row = node.drops("s", DropQuery(ending="a_0-4")).drops[0]
    node.fail("s", row.drop, "broken")
    island = world.composite("n1")

    with pytest.raises(AmbiguousError, match=f"are named '{row.name}'") as refused:
        island.drop("s", row.name)
    assert f": '{row.name} 4' ({row.oid}, ERROR) or '{row.name} 0' (" in refused.value.hint
    assert island.drop("s", f"{row.name} 4").oid == row.oid


def test_an_ending_is_looked_up_on_all_nodes(world: World) -> None:
    """All nodes are asked. If one does not answer, the graph of another one has all ids."""
    world.node("n1").add(replace(fan(2), oids=("a1", "b2", "c3")), "s")
    two = world.node("n2")
    two.add(replace(fan(2), oids=("x1", "y1", "z2")), "s")
    island = world.composite("n1", "n2")

    with pytest.raises(AmbiguousError, match="3 drops end in '1'"):
        island.data("s", "1")
    assert island.drop("s", "c3").oid == island.drop("s", "3").oid == "c3"
    two.refuse("drops", LinkError("nothing listens there"))
    assert island.drop("s", "3").oid == island.drop("s", "c3").oid == "c3"
    with pytest.raises(NotFoundError, match="'nothing'"):
        island.drop("s", "nothing")


def test_a_drop_of_a_node_that_does_not_answer_is_named_by_its_whole_id(world: World) -> None:
    """The end of its id is enough to be told that its node does not answer."""
    island, _, two = world.session_of_two()
    theirs = two.drops("s", DropQuery(limit=1)).drops[0].oid
    two.refuse("drops", LinkError("nothing listens there"))

    with pytest.raises(LinkError, match=f"drop '{theirs}' of session 's' is on no node that answers"):
        island.drop("s", theirs[-5:])


def test_journals_of_several_nodes_are_sent_as_one_tar_file(world: World) -> None:
    """Each node's journal is in a directory of its name; a file beside them names missing nodes."""
    island, _, two = world.session_of_two()

    def names() -> dict[str, bytes]:
        content = b"".join(island.journal("s").chunks)
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]

    assert names() == dict.fromkeys(("n1/s.journal", "n2/s.journal"), b"journal of s" * 1000)
    two.refuse("journal", LinkError("nothing listens there"))
    assert set(names()) == {"n1/s.journal", "MISSING.txt"}
    assert b"n2" in names()["MISSING.txt"]


def test_the_journal_of_the_only_node_comes_as_it_is(world: World) -> None:
    """There is no tar file around one journal."""
    world.node("n1").add(fan(4), "s")
    island = world.composite("n1")

    assert island.journal("s").name == "s.journal"


def test_the_graph_comes_whole_from_one_child(world: World) -> None:
    """The graph of a session is the one that was submitted, even if some children cannot read it."""
    for name in ("n1", "n2", "n3"):
        world.node(name)
    island = world.composite("n1", "n2", "n3")
    graph = parts(3)
    island.submit(graph, SUBMIT)
    world.managers["http://n1:8000"].refuse("graph", GoneError("the files cannot be read"))
    world.managers["http://n2:8000"].refuse("graph", LinkError("nothing listens there"))

    from_child = island.graph("s")

    for column in ("template", "instance", "part"):
        assert getattr(from_child, column).tolist() == getattr(graph, column).tolist()
    for column in ("ptr", "neighbour", "link"):
        assert getattr(from_child.successors, column).tolist() == getattr(graph.successors, column).tolist()
    assert from_child.places == ("n1", "n2", "n3")


def test_times_of_all_nodes_are_merged(world: World) -> None:
    """A master has the attempts of all nodes below once, without those that are known, and names silent managers.

    With them comes what each node has received from each other one.
    """
    for name, source in (("n1", "n3"), ("n2", "n1"), ("n3", "n1")):
        receipts = NodeReceipts(node=name, received=(PeerReceipts(node=source, contents=2, size=70),))
        section = TimesSection(node=name, total=2, records=_two_attempts(), received=receipts)
        world.node(name).set_times("s", [section])
    world.composite("n1", "n2", name="i1")
    world.composite("n3", name="i2")
    master = world.composite("i1", "i2", name="m", role="master")
    master.submit(parts(3), SUBMIT)

    sections = {section.node: section for section in read_sections(master.times("s").chunks)}
    assert sorted(sections) == ["n1", "n2", "n3"]
    assert all(len(section.records) == 2 for section in sections.values())
    statistics = master.times_statistics("s")
    assert (statistics.attempts, statistics.failed, len(statistics.lanes)) == (6, 3, 3)
    moved = [(row.source, row.target, row.size, row.contents) for row in statistics.traffic]
    assert moved == [("n1", "n2", 70, 2), ("n1", "n3", 70, 2), ("n3", "n1", 70, 2)]
    query = TimesQuery(since="n1:2,n2:1")
    later = {section.node: len(section.records) for section in read_sections(master.times("s", query).chunks)}
    assert later == {"n1": 0, "n2": 1, "n3": 2}

    world.managers["http://n3:8000"].refuse("times", LinkError("gone"))
    missing = {section.node: section.missing for section in read_sections(master.times("s").chunks)}
    assert missing["i2"]
    assert master.times_statistics("s").missing == ("i2",)


def _two_attempts() -> Any:
    records = np.zeros(2, RECORD)
    records["drop"], records["attempt"], records["worker"], records["ran"] = (1, 1), (-1, 2), 1, 1.0
    return records
