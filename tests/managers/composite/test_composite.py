"""Islands and masters over managers in memory."""

import io
import tarfile
import threading
from dataclasses import replace

import msgspec
import pytest

from dropflow.errors import (
    AmbiguousError,
    ConflictError,
    GoneError,
    InternalError,
    LinkError,
    NotFoundError,
    RestartedError,
    UsageError,
)
from dropflow.graph.physical import PhysicalGraph
from dropflow.rest.content_records import (
    ContentBegin,
    ContentError,
    ContentPiece,
    ContentRequest,
    ContentsRequest,
    read_records,
)
from dropflow.rest.schema import DropQuery, ManagerInfo, SessionDetail, SubmitQuery
from dropflow.testing.fake_manager import FakeManager
from dropflow.testing.shapes import chain, fan
from managers.composite.manager import Composite
from managers.deployment import Deployment
from tests.managers.composite.world import World, until

_SUBMIT = SubmitQuery(session="s")


def _parts(parts: int, drops: int = 40) -> PhysicalGraph:
    graph = fan(drops)
    return replace(graph, part=(graph.instance % parts).astype("int32"))


def _silence(island: Composite, node: FakeManager) -> None:
    """Let a node miss the deadline of one request."""
    node.refuse("drops", LinkError("no answer within 2 s"))
    with pytest.raises(LinkError, match="no answer within 2 s"):
        island.drops("gone", DropQuery())
    node.allow("drops")


def _lose(world: World, island: Composite, name: str) -> None:
    """Let a node be silent until it is lost."""
    world.managers[f"http://{name}:8000"].refuse("info", LinkError("nothing listens there"))
    until(lambda: any(child.text for child in island.children() if child.name == name))
    world.advance(20.0)
    until(lambda: {child.name: child.state for child in island.children()}[name] == "lost")
    until(lambda: all(child.state == "alive" for child in island.children() if child.name != name))


def test_an_island_tells_of_itself_and_its_nodes(world: World) -> None:
    """Role, children and nodes are there as soon as the island is."""
    for name in ("n2", "n1"):
        world.node(name)
    island = world.composite("n1", "n2", key="f" * 16)

    assert (island.info().role, island.info().name, island.info().key) == ("island", "island-1", "f" * 16)
    assert [(child.name, child.role, child.state) for child in island.children()] == [
        ("n1", "node", "alive"),
        ("n2", "node", "alive"),
    ]
    assert [node.name for node in island.nodes()] == ["n1", "n2"]


def test_a_session_is_the_sum_of_its_parts(world: World) -> None:
    """A graph is cut by node, runs on all, and is told as one session."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")

    info = island.submit(_parts(2), _SUBMIT)

    assert (info.session, info.status, info.drops, info.nodes) == ("s", "RUNNING", 41, ("n1", "n2"))
    assert [detail.session for detail in island.sessions()] == ["s"]
    one.complete("s")
    assert island.session("s").status == "RUNNING"
    two.complete("s")
    assert island.session("s").status == "FINISHED"
    assert sum(node.drops for node in island.session("s").logical) == 41


def test_a_session_without_a_name_gets_one(world: World) -> None:
    """Its name is made of the graph's and the time."""
    world.node("n1")
    island = world.composite("n1")

    assert island.submit(fan(10), SubmitQuery()).session.startswith("fan-2027")


def test_a_name_that_is_taken_is_refused(world: World) -> None:
    """Wherever below the session is, its name is not given twice."""
    world.node("n1")
    world.node("n2").add(fan(4), "s")
    island = world.composite("n1", "n2")

    with pytest.raises(ConflictError, match="there is a session 's' already"):
        island.submit(fan(10), _SUBMIT)


def test_a_restarted_island_finds_its_sessions(world: World) -> None:
    """It keeps nothing and asks; its versions go on from where those of the one before were."""
    world.node("n1")
    world.node("n2")
    first = world.composite("n1", "n2")
    first.submit(_parts(2), _SUBMIT)
    before = first.session("s").version
    first.close()
    world.advance(1.0)

    second = world.composite("n1", "n2")

    assert second.session("s").drops == 41
    assert second.session("s").version > before
    assert [row.session for row in second.sessions()] == ["s"]


def test_a_restarted_island_does_not_take_the_parts_that_it_knows_for_the_session(world: World) -> None:
    """While a node is silent that the island has not heard since its start, a session is not FINISHED without its part.

    Its results are incomplete, and a deletion reaches the node when it is back.
    """
    one, two = world.node("n1"), world.node("n2")
    first = world.composite("n1", "n2")
    first.submit(_parts(2), _SUBMIT)
    one.complete("s")
    two.complete("s")
    first.close()
    two.refuse("info", LinkError("nothing listens there"))

    island = world.composite("n1", "n2")
    found = island.session("s")
    left = 41 - found.drops

    assert (found.status, found.whole, found.unheard) == ("UNKNOWN", 41, ("http://n2:8000",))
    assert (
        f"{left} of its 41 drops are not known: http://n2:8000 did not answer yet; the others: FINISHED" in found.text
    )
    assert [info.status for info in island.sessions()] == ["UNKNOWN"]
    assert island.results("s").missing == ("http://n2:8000",)

    with pytest.raises(LinkError, match="'s' is deleted, but http://n2:8000 did not answer"):
        island.delete("s")
    two.allow("info")
    until(lambda: not two.sessions())


def test_a_child_that_was_never_heard_keeps_no_whole_session_unknown(world: World) -> None:
    """An island that knows half of a session says UNKNOWN, and a master that knows all of it says how it ended."""
    for name in ("n1", "n2", "n3"):
        world.node(name)
    world.managers["http://n3:8000"].refuse("info", LinkError("nothing listens there"))
    before = world.composite("n1", "n2")
    before.submit(_parts(2), _SUBMIT)
    for name in ("n1", "n2"):
        world.managers[f"http://{name}:8000"].complete("s")
    before.close()
    world.composite("n1", "n3", name="east")
    world.composite("n2", name="west")
    master = world.composite("east", "west", role="master", name="top")

    assert world.managers["http://east:8000"].session("s").status == "UNKNOWN"
    assert world.managers["http://west:8000"].session("s").status == "FINISHED"
    assert (master.session("s").status, master.session("s").unheard) == ("FINISHED", ())


def test_unknown_sessions_and_drops_are_not_found(world: World) -> None:
    """Every question about what is not there gets the same answer."""
    world.node("n1")
    island = world.composite("n1")
    island.submit(fan(4), _SUBMIT)

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


def test_pages_of_drops_run_over_all_nodes(world: World) -> None:
    """All pages together are all drops, each once, whatever the size of a page."""
    for name in ("n1", "n2", "n3"):
        world.node(name)
    island = world.composite("n1", "n2", "n3")
    island.submit(_parts(3), _SUBMIT)

    found: list[str] = []
    while len(found) < 41:
        page = island.drops("s", DropQuery(offset=len(found), limit=7))
        assert page.total == 41
        assert not page.missing
        found += [row.oid for row in page.drops]

    assert len(set(found)) == 41
    assert island.drops("s", DropQuery(node="n2")).total == sum(
        row.node == "n2" for row in island.drops("s", DropQuery(limit=100)).drops
    )


def test_a_page_says_which_nodes_are_missing(world: World) -> None:
    """Drops of nodes that do not answer are left out, and the nodes are named."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)

    two.refuse("drops", LinkError("nothing listens there"))
    page = island.drops("s", DropQuery())

    assert page.missing == ("n2",)
    assert {row.node for row in page.drops} == {"n1"}


def test_logs_and_data_come_from_the_node_that_has_them(world: World) -> None:
    """One node's 404 is not that of all; what was released says so."""
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


def test_results_name_the_nodes_that_do_not_answer(world: World) -> None:
    """A list of results is not taken for the whole one while a node of the session is away."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    assert island.results("s").missing == ()

    two.refuse("results", LinkError("nothing listens there"))
    assert island.results("s").missing == ("n2",)


def test_contents_pass_through_from_the_node_that_has_them(world: World) -> None:
    """The island asks the child that has the node, and no other."""
    world.node("n1").add(fan(4), "s", node="n1")
    two = world.node("n2")
    two.add(fan(4), "s", node="n2")
    two.complete("s")
    two.write("s", 1, b"content")
    island = world.composite("n1", "n2")
    wanted = (ContentRequest(row=1), ContentRequest(row=2))

    found = list(read_records(island.contents("s", ContentsRequest(node="n2", wanted=wanted)).chunks))
    assert found[:2] == [ContentBegin(0), ContentPiece(b"content")]
    assert isinstance(found[-1], ContentError)
    with pytest.raises(NotFoundError, match="node n3 is not below"):
        island.contents("s", ContentsRequest(node="n3", wanted=wanted))


def test_an_end_that_several_drops_have_is_ambiguous(world: World) -> None:
    """What means one drop on each of two nodes means none here."""
    world.node("n1").add(fan(4), "s")
    world.node("n2").add(chain(4), "s")
    island = world.composite("n1", "n2")

    with pytest.raises(AmbiguousError, match="2 drops end in 'a_0-1'"):
        island.drop("s", "a_0-1")


def test_the_end_of_an_id_is_sought_on_all_nodes(world: World) -> None:
    """One node with one such drop does not settle it: another may have two, or may not answer."""
    world.node("n1").add(replace(fan(2), oids=("a1", "b2", "c3")), "s")
    two = world.node("n2")
    two.add(replace(fan(2), oids=("x1", "y1", "z2")), "s")
    island = world.composite("n1", "n2")

    with pytest.raises(AmbiguousError, match="3 drops end in '1'"):
        island.data("s", "1")
    assert island.drop("s", "c3").oid == island.drop("s", "3").oid == "c3"
    two.refuse("drops", LinkError("nothing listens there"))
    with pytest.raises(LinkError, match=r"'3' names one drop.*n2 does not answer.*c3"):
        island.data("s", "3")
    assert island.drop("s", "c3").oid == "c3"


def test_journals_of_several_nodes_are_one_tar_file(world: World) -> None:
    """Each node's journal is in a directory of its name; who is missing is written beside them."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)

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


def test_the_graph_is_put_together_again(world: World) -> None:
    """The graph of a session is the one that was submitted, edges between nodes and all."""
    for name in ("n1", "n2", "n3"):
        world.node(name)
    island = world.composite("n1", "n2", "n3")
    graph = _parts(3)
    island.submit(graph, _SUBMIT)

    found = island.graph("s")

    for column in ("template", "instance", "part"):
        assert getattr(found, column).tolist() == getattr(graph, column).tolist()
    for column in ("ptr", "neighbour", "link"):
        assert getattr(found.successors, column).tolist() == getattr(graph.successors, column).tolist()
    assert found.places == ("n1", "n2", "n3")


def test_cancel_reaches_all_nodes(world: World) -> None:
    """The session is cancelled everywhere, and told so."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)

    assert island.cancel("s", "enough").status == "CANCELLED"
    assert {one.session("s").text, two.session("s").text} == {"enough"}


def test_watching_wakes_with_the_news_of_any_node(world: World) -> None:
    """`watch` answers when something changed on a node, with a newer version, and at once when it is over."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    version = island.session("s").version
    timer = threading.Timer(0.1, lambda: one.complete("s"))
    timer.start()

    news = island.watch("s", version=version, seconds=60)

    assert news.version > version
    assert news.settled > 0
    two.complete("s")
    until(lambda: island.session("s").status == "FINISHED")
    assert island.watch("s", version=10**15, seconds=60).status == "FINISHED"
    timer.join()


def test_watching_gives_up_when_its_time_is_over(world: World) -> None:
    """Without news the answer is the session as it is."""
    world.node("n1")
    island = world.composite("n1")
    island.submit(fan(4), _SUBMIT)
    version = island.session("s").version

    assert island.watch("s", version=version, seconds=0.05).version == version


def test_sessions_on_a_silent_node_are_not_known_and_others_go_on(world: World) -> None:
    """The session names the node and how many drops were not settled; all calls still answer."""
    world.node("n1")
    world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    island.submit(fan(4), SubmitQuery(session="other", anew=True))
    left = island.drops("s", DropQuery(node="n2")).total
    world.managers["http://n1:8000"].complete("s")
    island.session("s")

    _lose(world, island, "n2")

    found = island.session("s")
    assert (found.status, found.drops, found.unknown) == ("UNKNOWN", 41, ("n2",))
    assert "its part was RUNNING at 2027-01-15 08:00:" in found.text
    assert f" UTC, when 0 of its {left} drops were settled" in found.text
    assert island.failures("s").failures == ()
    assert island.watch("s", version=0, seconds=60).status == "UNKNOWN"
    assert island.session("other").status == "RUNNING"
    assert island.drops("s", DropQuery()).missing == ("n2",)
    assert {node.name: node.state for node in island.nodes()} == {"n1": "alive", "n2": "lost"}
    assert island.submit(fan(4), SubmitQuery(session="third")).nodes == ("n1",)


def test_a_watcher_hears_that_a_node_is_silent(world: World) -> None:
    """A watcher is told when a node falls silent, and does not wait for ever."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    world.managers["http://n1:8000"].complete("s")
    found: list[str] = []
    version = island.session("s").version

    def watch() -> None:
        seen = version
        while True:
            detail = island.watch("s", version=seen, seconds=60)
            seen = detail.version
            if detail.status == "UNKNOWN":
                found.append(detail.text)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    two.refuse("watch", LinkError("gone"))
    _lose(world, island, "n2")
    thread.join(60)

    assert "n2 cannot be asked (nothing listens there" in found[0]


def test_a_watcher_gets_the_details_of_the_end(world: World) -> None:
    """The counts of the logical nodes are those of the end, also if the list of sessions told of the end first."""
    one = world.hanging("n1")
    one.hang("watch")
    island = world.composite("n1")
    island.submit(_parts(1), _SUBMIT)
    found: list[SessionDetail] = []
    version = island.session("s").version

    thread = threading.Thread(target=lambda: found.append(island.watch("s", version=version, seconds=60)))
    thread.start()
    until(lambda: "watch" in one.calls)
    one.complete("s")
    thread.join(60)

    assert (found[0].status, found[0].states) == ("FINISHED", {"COMPLETED": 41})
    assert {state for node in found[0].logical for state in node.states} == {"COMPLETED"}


def test_a_node_that_comes_back_is_taken_as_it_is(world: World) -> None:
    """A node that was out of reach shows what it has done meanwhile."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    world.managers["http://n1:8000"].complete("s")
    _lose(world, island, "n2")
    assert island.session("s").status == "UNKNOWN"

    two.complete("s")
    two.allow("info")

    until(lambda: island.session("s").status == "FINISHED")


@pytest.mark.slow
def test_a_hanging_node_costs_its_deadline_once(world: World) -> None:
    """The first question waits for it, the next ones do not ask it; the numbers are its last ones."""
    world.node("n1")
    two = world.hanging("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    two.hang("session", "sessions", "info")

    assert island.session("s").drops == 41
    asked = two.calls.count("session")
    found = island.session("s")

    assert (found.drops, found.status, two.calls.count("session")) == (41, "RUNNING", asked)
    assert any("n2" in note for note in found.notes)


@pytest.mark.slow
def test_a_slow_node_that_is_alive_is_waited_for(world: World) -> None:
    """Who answers its heartbeat is not given up because a question takes longer."""
    world.node("n1")
    two = world.hanging("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    two.hang("drops")
    timer = threading.Timer(2.5, two.release)
    timer.start()

    page = island.drops("s", DropQuery())

    assert (page.total, page.missing) == (41, ())
    timer.join()


def test_deleting_leaves_nothing_even_on_nodes_that_come_back(world: World) -> None:
    """A session is deleted without its lost node; when that is back, there too, and nobody sees it meanwhile."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    _lose(world, island, "n2")

    island.delete("s")

    with pytest.raises(NotFoundError, match="'s' was deleted"):
        island.session("s")
    assert [info.session for info in two.sessions()] == ["s"]
    two.allow("info")
    until(lambda: not two.sessions())
    assert not island.sessions()


def test_deleting_says_which_node_did_not_answer(world: World) -> None:
    """A node that may still be alive is named, and deletes when it answers."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    two.refuse("delete", LinkError("it does not answer in time"))
    two.refuse("info", LinkError("it does not answer in time"))

    with pytest.raises(LinkError, match="'s' is deleted, but n2 did not answer"):
        island.delete("s")

    assert not world.managers["http://n1:8000"].sessions()
    two.allow("delete")
    two.allow("info")
    until(lambda: not two.sessions())


def test_a_node_that_forgot_a_session_is_told(world: World) -> None:
    """A node that was started again has lost its part; the session does not look as if it were whole."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    world.managers["http://n1:8000"].complete("s")
    island.session("s")
    two.delete("s")

    found = island.session("s")

    assert found.status == "FAILED"
    assert "n2" in found.text
    assert found.drops == 41


def test_nobody_answers_is_no_not_found(world: World) -> None:
    """When no child can be asked, whether there is such a session is not known."""
    world.node("n1").refuse("info", LinkError("nothing listens there"))
    island = world.composite("n1")

    with pytest.raises(LinkError, match="nothing listens there"):
        island.session("s")


def test_an_error_of_one_node_is_not_hidden_by_the_others(world: World) -> None:
    """A refusal is told; that others do not have the drop is no answer to it."""
    one = world.node("n1")
    world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    one.refuse("cancel", InternalError("broken"))

    with pytest.raises(InternalError, match="broken"):
        island.cancel("s")


def test_children_come_and_go(world: World) -> None:
    """A child may be added before it answers, twice, and removed; what cannot be a child is refused."""
    world.node("n1")
    island = world.composite("n1")
    world.node("n2").refuse("info", LinkError("nothing listens there"))

    child = island.add_child("http://N2:8000/")

    assert (child.state, child.text) == ("suspect", "nothing listens there")
    assert island.add_child("http://n2:8000").url == child.url
    world.managers["http://n2:8000"].allow("info")
    until(lambda: [child.state for child in island.children()] == ["alive", "alive"])
    island.remove_child("http://n2:8000")
    assert [child.name for child in island.children()] == ["n1"]
    with pytest.raises(UsageError, match="not a manager URL"):
        island.add_child("n2")


def test_rings_of_managers_cannot_be_made(world: World) -> None:
    """A master is no child of an island, nor an island of another or itself."""
    world.node("n1")
    island = world.composite("n1")
    world.composite("island-1", role="master", name="master-1")

    for url in ("http://master-1:8000", "http://island-1:8000"):
        with pytest.raises(UsageError, match="cannot be a child of an island"):
            island.add_child(url)
    assert [child.name for child in island.children()] == ["n1"]


def test_a_manager_with_two_addresses_counts_once(world: World) -> None:
    """The same node by another name is noticed, and its drops are not counted twice."""
    node = world.node("n1")
    world.managers["http://alias:8000"] = node
    island = world.composite("n1", "alias")
    until(lambda: [child.name for child in island.children()] == ["n1", "n1"])

    assert island.submit(fan(40), _SUBMIT).drops == 41
    assert any("is the same manager as" in child.text for child in island.children())


def test_a_master_of_islands_tells_what_one_island_would(world: World) -> None:
    """Two storeys: the graph goes to the nodes of both islands, and is one session."""
    for name in ("n1", "n2", "n3"):
        world.node(name)
    world.composite("n1", "n2", name="east")
    west = world.composite("n3", name="west")
    master = world.composite("east", "west", role="master", name="master-1")

    info = master.submit(_parts(3), _SUBMIT)

    assert (info.drops, info.nodes) == (41, ("n1", "n2", "n3"))
    assert [(node.name, node.island) for node in master.nodes()] == [("n1", "east"), ("n2", "east"), ("n3", "west")]
    assert master.graph("s").drops == 41
    for name in ("n1", "n2", "n3"):
        world.managers[f"http://{name}:8000"].complete("s")
    until(lambda: master.session("s").status == "FINISHED")
    assert west.session("s").drops < 41


def test_an_island_that_was_held_up_blames_nobody(world: World) -> None:
    """After a pause of the island itself (SIGSTOP, a suspended host) no child is silent, and no session unknown."""
    world.node("n1")
    world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(_parts(2), _SUBMIT)
    for name in ("n1", "n2"):
        world.managers[f"http://{name}:8000"].refuse("info", LinkError("nothing came yet"))
    until(lambda: all(child.text for child in island.children()))

    world.clock.advance(100.0)

    assert [child.state for child in island.children()] == ["alive", "alive"]
    assert island.session("s").status == "RUNNING"


def test_a_node_whose_clock_went_back_is_taken_when_it_is_started_again(world: World) -> None:
    """Which life of a child is the latest follows from the order of its answers, not from numbers that it tells."""
    one = world.node("n1")
    island = world.composite("n1")
    info, asked = one.info, []

    def answer(incarnation: int, process: int) -> ManagerInfo:
        asked.append(incarnation)
        return msgspec.structs.replace(info(), incarnation=incarnation, process=process)

    one.info = lambda: answer(1_000, 2)  # type: ignore[method-assign]
    until(lambda: asked.count(1_000) > 1)
    one.info = lambda: answer(40, 3)  # type: ignore[method-assign]
    until(lambda: asked.count(40) > 1)
    world.advance(30.0)

    until(lambda: [child.state for child in island.children()] == ["alive"])


def test_a_node_that_was_just_started_again_can_be_deployed_to(world: World) -> None:
    """A child that did not answer is asked again when a graph is submitted, and not only when its time has come."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2", every=1000.0, suspect_after=3000.0, lost_after=15000.0)
    _silence(island, two)
    node = msgspec.structs.replace(two.nodes()[0], incarnation=5)
    two.set_node(node)

    assert {node.name: node.incarnation for node in island.nodes()}["n2"] == 5
    assert island.submit(_parts(2), _SUBMIT).nodes == ("n1", "n2")


def test_a_graph_is_cut_again_when_a_node_was_started_again_meanwhile(world: World) -> None:
    """A node refuses what was cut for the process before it; the graph is cut for the new one, and runs."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    prepare, refused = two.prepare, []

    def once(deployment: Deployment, *, seconds: float) -> None:
        if not refused:
            refused.append(deployment.epoch)
            raise RestartedError("node n2 was started again")
        prepare(deployment, seconds=seconds)

    two.prepare = once  # type: ignore[method-assign]

    assert island.submit(_parts(2), _SUBMIT).nodes == ("n1", "n2")
    assert island.session("s").epoch > refused[0]


def test_a_session_that_silent_nodes_may_have_is_not_missing(world: World) -> None:
    """That there is none can be said only when all children have answered."""
    world.node("n1")
    world.node("n2").refuse("info", LinkError("nothing listens there"))
    island = world.composite("n1", "n2")

    with pytest.raises(LinkError, match="'s' cannot be looked for"):
        island.session("s")
    assert island.submit(fan(4), _SUBMIT).nodes == ("n1",)


def test_a_lost_island_does_not_fail_its_sessions(world: World) -> None:
    """Nodes go on without their island, so how the session is cannot be known; that the island is away is said."""
    world.node("n1")
    island = world.composite("n1", name="east")
    master = world.composite("east", role="master", name="master-1")
    master.submit(fan(40), _SUBMIT)
    island.close()

    def gone() -> None:
        raise LinkError("nothing listens there")

    island.info = gone  # type: ignore[assignment,method-assign]
    until(lambda: bool(master.children()[0].text))
    world.advance(20.0)
    until(lambda: master.children()[0].state == "lost")

    found = master.session("s")
    assert (found.status, found.unknown) == ("UNKNOWN", ("n1",))
    assert any("east" in note for note in found.notes)


def test_closing_leaves_the_sessions_alone(world: World) -> None:
    """An island that stops is no end of anything below it."""
    one = world.node("n1")
    island = world.composite("n1")
    island.submit(fan(4), _SUBMIT)

    island.close()
    island.close()

    assert one.session("s").status == "RUNNING"
    assert not one.closed


def test_who_was_silent_for_a_moment_is_waited_for(world: World) -> None:
    """A child that let somebody wait in vain, but is alive, is deployed to and deletes as soon as it answers again."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    _silence(island, two)
    info = island.submit(_parts(2), _SUBMIT)
    _silence(island, one)
    island.delete("s")

    assert info.nodes == ("n1", "n2")
    assert [manager.sessions() for manager in world.managers.values()] == [(), (), ()]
