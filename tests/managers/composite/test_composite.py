"""Islands and masters over managers in memory: children, sessions, their cache, and watching."""

import threading
from math import inf
from typing import Literal

import pytest

from dropflow.api.requests import SubmitQuery
from dropflow.api.session_records import SessionDetail
from dropflow.errors import (
    ConflictError,
    InternalError,
    LinkError,
    RestartedError,
    UsageError,
)
from managers.composite.children import ChildView, MachineTime
from managers.composite.session_cache import SessionCache
from managers.composite.sessions import LongPoll, SessionWatch
from managers.deployment import Deployment
from managers.keys import ClusterKey
from tests.managers.composite.world import SUBMIT, World, lose, parts, until
from tests.regular_graphs import fan


def test_an_island_describes_itself_and_its_nodes(world: World) -> None:
    """Role, children and nodes are there as soon as the island is."""
    for name in ("n2", "n1"):
        world.node(name)
    key = ClusterKey(b"p" * 40, b"s" * 40)
    island = world.composite("n1", "n2", key=key)

    assert (island.info().role, island.info().name, island.info().key) == ("island", "island-1", key.fingerprint)
    assert [(child.name, child.role, child.state) for child in island.children()] == [
        ("n1", "node", "alive"),
        ("n2", "node", "alive"),
    ]
    assert [node.name for node in island.nodes()] == ["n1", "n2"]


def test_a_session_is_the_sum_of_its_parts(world: World) -> None:
    """A graph is partitioned by node, runs on all nodes, and is reported as one session."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")

    info = island.submit(parts(2), SUBMIT)

    assert (info.session, info.status, info.drops, info.nodes) == ("s", "RUNNING", 41, ("n1", "n2"))
    assert [detail.session for detail in island.sessions()] == ["s"]
    one.complete("s")
    assert island.session("s").status == "RUNNING"
    two.complete("s")
    assert island.session("s").status == "FINISHED"
    assert sum(node.drops for node in island.session("s").logical) == 41


def test_a_session_without_a_name_gets_one(world: World) -> None:
    """The name is made from that of the graph and the time."""
    world.node("n1")
    island = world.composite("n1")

    assert island.submit(fan(10), SubmitQuery()).session.startswith("fan-2027")


def test_a_name_that_is_taken_is_refused(world: World) -> None:
    """A name is refused if any node below has a session of this name."""
    world.node("n1")
    world.node("n2").add(fan(4), "s")
    island = world.composite("n1", "n2")

    with pytest.raises(ConflictError, match="there is a session 's' already"):
        island.submit(fan(10), SUBMIT)


def test_cancel_reaches_all_nodes(world: World) -> None:
    """The session is cancelled on all nodes, and reported as cancelled."""
    island, one, two = world.session_of_two()

    assert island.cancel("s", "enough").status == "CANCELLED"
    assert {one.session("s").text, two.session("s").text} == {"enough"}


def test_an_error_of_one_node_is_not_hidden_by_the_others(world: World) -> None:
    """The refusal of one node is reported, even if the other nodes answer that they do not have the drop."""
    island, one, _ = world.session_of_two()
    one.refuse("cancel", InternalError("broken"))

    with pytest.raises(InternalError, match="broken"):
        island.cancel("s")


def test_children_are_added_and_removed(world: World) -> None:
    """A child may be added before it answers and more than once, and removed; an invalid child is refused."""
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


@pytest.mark.slow
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
    """A node with two addresses is recognised, and its drops are counted once."""
    node = world.node("n1")
    world.managers["http://alias:8000"] = node
    island = world.composite("n1", "alias")
    until(lambda: [child.name for child in island.children()] == ["n1", "n1"])

    assert island.submit(fan(40), SUBMIT).drops == 41
    assert any("is the same manager as" in child.text for child in island.children())


def test_a_master_of_islands_answers_as_one_island_would(world: World) -> None:
    """With two levels, the graph goes to the nodes of both islands, and is one session."""
    for name in ("n1", "n2", "n3"):
        world.node(name)
    world.composite("n1", "n2", name="east")
    west = world.composite("n3", name="west")
    master = world.composite("east", "west", role="master", name="master-1")

    info = master.submit(parts(3), SUBMIT)

    assert (info.drops, info.nodes) == (41, ("n1", "n2", "n3"))
    assert [(node.name, node.island) for node in master.nodes()] == [("n1", "east"), ("n2", "east"), ("n3", "west")]
    assert master.graph("s").drops == 41
    for name in ("n1", "n2", "n3"):
        world.managers[f"http://{name}:8000"].complete("s")
    until(lambda: master.session("s").status == "FINISHED")
    assert west.session("s").drops < 41


@pytest.mark.slow
def test_a_graph_is_planned_again_after_a_node_was_restarted(world: World) -> None:
    """A node refuses a deployment for its earlier process; the graph is planned for the new one, and runs."""
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

    assert island.submit(parts(2), SUBMIT).nodes == ("n1", "n2")
    assert island.session("s").epoch > refused[0]


def test_closing_an_island_does_not_end_its_sessions(world: World) -> None:
    """When an island stops, its nodes and sessions go on."""
    node = world.node("n1")
    island = world.composite("n1")
    island.submit(fan(4), SUBMIT)

    island.close()
    island.close()

    assert node.session("s").status == "RUNNING"
    assert not node.closed


# The cache of what children reported about sessions.


def _child(name: str, state: Literal["alive", "suspect", "lost"] = "alive", text: str = "") -> ChildView:
    return ChildView(
        url=f"http://{name}",
        name=name,
        role="node",
        state=state,
        text=text,
        is_asked=state == "alive",
        is_unfit=False,
        nodes=(),
    )


def _report(node: str, *, version: int = 1, settled: int = 0) -> SessionDetail:
    return SessionDetail(
        session="s",
        graph="g",
        status="RUNNING",
        epoch=1,
        version=version,
        drops=10,
        settled=settled,
        nodes=(node,),
        whole=20,
    )


def _cache() -> SessionCache:
    time = MachineTime(offset=0.0, period=1.0)
    time.read(5.0)
    cache = SessionCache(time)
    for name in ("a", "b"):
        cache.note(_child(name), _report(name), since=cache.answers)
    return cache


def test_sessions_without_news_are_not_merged_again() -> None:
    """A composite with many sessions that are over merges only the others each second."""
    cache, children = _cache(), {child.url: child for child in (_child("a"), _child("b"))}
    first = cache.merged("s", children)
    cache.note(_child("a"), _report("a"), since=cache.answers)
    assert cache.merged("s", children) is first

    cache.note(_child("a"), _report("a", version=2, settled=3), since=cache.answers)
    second = cache.merged("s", children)
    assert first is not None
    assert second is not None
    assert (second.settled, second.version) == (3, first.version + 1)


def test_a_silent_child_makes_another_version_and_longer_silence_does_not() -> None:
    """The version grows when a child is silent; the text, which has the time, changes without it."""
    cache, a, b = _cache(), _child("a"), _child("b")
    first = cache.merged("s", {a.url: a, b.url: b})
    silent = _child("b", "lost", "does not answer (for 15 s)")
    second = cache.merged("s", {a.url: a, b.url: silent})
    third = cache.merged("s", {a.url: a, b.url: _child("b", "lost", "does not answer (for 16 s)")})

    assert first is not None
    assert second is not None
    assert third is not None
    assert second.version == third.version == first.version + 1
    assert "for 15 s" in second.notes[0]
    assert "for 16 s" in third.notes[0]


def test_open_drops_are_those_of_all_parts() -> None:
    """Sessions that are too small to be changed are told apart without merging them."""
    cache = _cache()
    assert cache.open_drops("s") == 20
    cache.note(_child("a"), _report("a", version=2, settled=10), since=cache.answers)
    assert (cache.open_drops("s"), cache.open_drops("other")) == (10, 0)


# Which sessions an island asks its children about.


def test_a_session_that_is_over_is_watched_no_more() -> None:
    """However many sessions were watched before, only those that are not over are looked at."""
    watch = SessionWatch(_time())
    for session in ("over", "running"):
        watch.enter(session)
    polls = watch.begin([("over", "http://n1"), ("running", "http://n1")])
    watch.end(polls[0], is_answered=True)

    watch.leave("over", is_over=True)
    watch.leave("running")

    assert watch.sessions() == ["running"]
    assert watch.deadline() == inf


def test_an_answer_about_a_session_that_is_over_sets_no_time() -> None:
    """The answer to a long poll that comes after the end of the session leaves nothing behind."""
    watch = SessionWatch(_time())
    watch.enter("s")
    (poll,) = watch.begin([("s", "http://n1")])
    watch.leave("s", is_over=True)

    watch.end(poll, is_answered=True)

    assert poll == LongPoll("s", "http://n1")
    assert (watch.sessions(), watch.deadline()) == ([], inf)


def test_a_session_is_watched_as_long_as_one_request_does() -> None:
    """Of two requests that watch a session, the first that ends does not end the watch."""
    watch = SessionWatch(_time())
    watch.enter("s")
    watch.enter("s")

    watch.leave("s", is_over=True)
    assert watch.sessions() == ["s"]
    watch.leave("s", is_over=True)
    assert watch.sessions() == []


def _time() -> MachineTime:
    time = MachineTime(offset=0.0, period=1.0)
    time.read(10.0)
    return time


# Watching sessions through islands.


@pytest.mark.slow
def test_watching_returns_with_a_change_on_any_node(world: World) -> None:
    """`watch` returns a newer version when a node reports a change, and without waiting when the session is over."""
    island, one, two = world.session_of_two()
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


def test_watching_returns_the_same_version_after_its_time(world: World) -> None:
    """Without a change, the same version is returned after the given time."""
    world.node("n1")
    island = world.composite("n1")
    island.submit(fan(4), SUBMIT)
    version = island.session("s").version

    assert island.watch("s", version=version, seconds=0.05).version == version


def test_watching_returns_when_a_node_is_lost(world: World) -> None:
    """`watch` returns when a node is lost, and does not wait forever."""
    island, _, two = world.session_of_two()
    world.managers["http://n1:8000"].complete("s")
    texts: list[str] = []
    version = island.session("s").version

    def watch() -> None:
        seen = version
        while True:
            detail = island.watch("s", version=seen, seconds=60)
            seen = detail.version
            if detail.status == "UNKNOWN":
                texts.append(detail.text)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    two.refuse("watch", LinkError("gone"))
    lose(world, island, "n2")
    thread.join(60)

    assert "n2 is unavailable (nothing listens there" in texts[0]


def test_watching_returns_the_details_of_the_end(world: World) -> None:
    """Logical nodes have their final counts, even if the list of sessions reported the end first."""
    node = world.hanging("n1")
    node.hang("watch")
    island = world.composite("n1")
    island.submit(parts(1), SUBMIT)
    details: list[SessionDetail] = []
    version = island.session("s").version

    thread = threading.Thread(target=lambda: details.append(island.watch("s", version=version, seconds=60)))
    thread.start()
    until(lambda: "watch" in node.calls)
    node.complete("s")
    thread.join(60)

    assert (details[0].status, details[0].states) == ("FINISHED", {"COMPLETED": 41})
    assert {state for node in details[0].logical for state in node.states} == {"COMPLETED"}
