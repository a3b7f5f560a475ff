"""Children that are lost, slow, restarted, or silent for a moment."""

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec
import pytest

from dropflow.api.drop_records import DropQuery
from dropflow.api.node_records import ManagerInfo
from dropflow.api.requests import SubmitQuery
from dropflow.errors import (
    GoneError,
    LinkError,
    WorldError,
)
from managers.composite.manager import Composite, discover_children
from managers.discovery import Announcement, Discovery
from managers.keys import ClusterKey
from tests.fake_manager import FakeManager
from tests.managers.composite.world import SUBMIT, World, lose, parts, silence, until
from tests.regular_graphs import fan


def test_a_restarted_island_finds_its_sessions(world: World) -> None:
    """It stores nothing and asks its children; its versions continue those of the earlier process."""
    world.node("n1")
    world.node("n2")
    first = world.composite("n1", "n2")
    first.submit(parts(2), SUBMIT)
    before = first.session("s").version
    first.close()
    world.advance(1.0)

    second = world.composite("n1", "n2")

    assert second.session("s").drops == 41
    assert second.session("s").version > before
    assert [row.session for row in second.sessions()] == ["s"]


class _StartedAgain(FakeManager):
    """Another process of a node."""

    def info(self) -> ManagerInfo:
        """Return what it is."""
        return msgspec.structs.replace(super().info(), incarnation=2)


@pytest.mark.parametrize("moved_to", ["a1", "z1"])
def test_a_node_that_was_started_again_at_another_address_is_used_there(world: World, moved_to: str) -> None:
    """Its old address, which is a child until it is removed, does not make it suspect."""
    old = world.node("n1")
    world.node("n2")
    island = world.composite("n1", "n2")
    old.refuse("info", LinkError("nothing listens there"))
    until(lambda: any(child.text for child in island.children()))
    url = f"http://{moved_to}:8000"
    world.managers[url] = again = _StartedAgain("n1", url=url, clock=world.clock)
    again.set_node(msgspec.structs.replace(again.nodes()[0], url=url))
    island.add_child(url)

    assert [(node.name, node.url, node.state) for node in island.nodes()][:1] == [("n1", url, "alive")]
    assert island.submit(parts(2), SUBMIT).session == "s"


def _repeated_until_complete(world: World, operation: str, done: str, status: str) -> Composite:
    """Check a request that one of two children does not answer: the error names it, and the other one does it."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    request = getattr(island, operation)
    island.submit(parts(2), SUBMIT)
    two.refuse(operation, LinkError("it is busy"))
    with pytest.raises(LinkError, match=rf"'s' {done} only in part: n2 \(it is busy\) did not answer") as caught:
        request("s")
    assert f"'dropflow {operation} s' again" in caught.value.hint
    assert one.session("s").status == status
    two.allow(operation)

    def is_done() -> bool:
        with suppress(LinkError):  # until the node has answered a status request again
            return bool(request("s").status == status)
        return False

    until(is_done)
    return island


def test_a_child_that_does_not_pause_a_session_is_named(world: World) -> None:
    """The others are paused, and the request can be repeated; then it is the same for going on."""
    island = _repeated_until_complete(world, "pause", "is paused", "PAUSED")

    assert island.unpause("s").status == "RUNNING"


def test_a_child_that_does_not_cancel_a_session_is_named(world: World) -> None:
    """The others have cancelled their parts, and the request can be repeated."""
    _repeated_until_complete(world, "cancel", "is cancelled", "CANCELLED")


@pytest.mark.slow
def test_after_a_restart_missing_parts_make_a_session_unknown(world: World) -> None:
    """A session is not FINISHED while the part of a node is missing that never answered the restarted island.

    Its results are incomplete, and a deletion reaches the node when it is back.
    """
    one, two = world.node("n1"), world.node("n2")
    first = world.composite("n1", "n2")
    first.submit(parts(2), SUBMIT)
    one.complete("s")
    two.complete("s")
    first.close()
    two.refuse("info", LinkError("nothing listens there"))

    island = world.composite("n1", "n2")
    detail = island.session("s")
    left = 41 - detail.drops

    assert (detail.status, detail.whole, detail.silent_children) == ("UNKNOWN", 41, ("http://n2:8000",))
    assert f"{left} of its 41 drops are unknown: http://n2:8000 did not answer yet; the others: FINISHED" in detail.text
    assert [info.status for info in island.sessions()] == ["UNKNOWN"]
    assert island.results("s").missing == ("http://n2:8000",)

    with pytest.raises(LinkError, match="'s' is deleted, but http://n2:8000 did not answer"):
        island.delete("s")
    two.allow("info")
    until(lambda: not two.sessions())


def test_a_child_that_never_answered_does_not_hide_the_end_of_a_whole_session(world: World) -> None:
    """An island with half of a session reports UNKNOWN; a master with all of it reports the end."""
    for name in ("n1", "n2", "n3"):
        world.node(name)
    world.managers["http://n3:8000"].refuse("info", LinkError("nothing listens there"))
    before = world.composite("n1", "n2")
    before.submit(parts(2), SUBMIT)
    for name in ("n1", "n2"):
        world.managers[f"http://{name}:8000"].complete("s")
    before.close()
    world.composite("n1", "n3", name="east")
    world.composite("n2", name="west")
    master = world.composite("east", "west", role="master", name="top")

    assert world.managers["http://east:8000"].session("s").status == "UNKNOWN"
    assert world.managers["http://west:8000"].session("s").status == "FINISHED"
    assert (master.session("s").status, master.session("s").silent_children) == ("FINISHED", ())


@pytest.mark.slow
def test_only_sessions_on_a_lost_node_are_unknown(world: World) -> None:
    """The session names the node and how many drops were not settled; all calls still answer."""
    island, _, _ = world.session_of_two()
    island.submit(fan(4), SubmitQuery(session="other", anew=True))
    left = island.drops("s", DropQuery(node="n2")).total
    world.managers["http://n1:8000"].complete("s")
    island.session("s")

    lose(world, island, "n2")

    detail = island.session("s")
    assert (detail.status, detail.drops, detail.unknown) == ("UNKNOWN", 41, ("n2",))
    assert "its part was RUNNING at 2027-01-15 08:00:" in detail.text
    assert f" UTC, when 0 of its {left} drops were settled" in detail.text
    assert island.failures("s").failures == ()
    assert island.watch("s", version=0, seconds=60).status == "UNKNOWN"
    assert island.session("other").status == "RUNNING"
    assert island.drops("s", DropQuery()).missing == ("n2",)
    assert {node.name: node.state for node in island.nodes()} == {"n1": "alive", "n2": "lost"}
    assert island.submit(fan(4), SubmitQuery(session="third")).nodes == ("n1",)


@pytest.mark.slow
def test_a_node_that_answers_again_updates_the_session(world: World) -> None:
    """When a node answers again, the session has its progress."""
    island, _, two = world.session_of_two()
    world.managers["http://n1:8000"].complete("s")
    lose(world, island, "n2")
    assert island.session("s").status == "UNKNOWN"

    two.complete("s")
    two.allow("info")

    until(lambda: island.session("s").status == "FINISHED")


@pytest.mark.slow
def test_a_hanging_node_costs_its_deadline_once(world: World) -> None:
    """The first request waits for the node; the next ones skip it and use its last report."""
    world.node("n1")
    two = world.hanging("n2")
    island = world.composite("n1", "n2")
    island.submit(parts(2), SUBMIT)
    two.hang("session", "sessions", "info")

    assert island.session("s").drops == 41
    calls_before = two.calls.count("session")
    detail = island.session("s")

    assert (detail.drops, detail.status, two.calls.count("session")) == (41, "RUNNING", calls_before)
    assert any("n2" in note for note in detail.notes)


@pytest.mark.slow
def test_nodes_that_prepare_a_session_for_long_are_alive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although they take all threads for such requests, their states are asked for: they are not lost."""
    monkeypatch.setattr("managers.composite.manager._LONG_JOBS", 32)
    nodes = [world.hanging(f"n{number}") for number in range(33)]
    island = world.composite(*(node.manager.name for node in nodes), deploy_seconds=600.0)
    for node in nodes:
        node.hang("prepare")
    with ThreadPoolExecutor(1) as pool:
        submitted = pool.submit(island.submit, parts(33, 400), SUBMIT)
        until(lambda: sum("prepare" in node.calls for node in nodes) == 32)
        for _ in range(20):
            for node in nodes:
                node.calls.clear()
            world.advance(1.0)
            until(lambda: all("status" in node.calls for node in nodes))
        states = {child.state for child in island.children()}
        for node in nodes:
            node.release()

        assert states == {"alive"}
        assert submitted.result(60).session == "s"


def test_a_node_that_prepares_many_sessions_answers_other_requests(world: World) -> None:
    """Images are pulled for minutes; meanwhile the sessions of the node are listed, and can be cancelled."""
    node = world.hanging("n1")
    island = world.composite("n1", deploy_seconds=600.0)
    node.hang("prepare")
    with ThreadPoolExecutor(8) as pool:
        names = [f"s{number}" for number in range(8)]
        submitted = [pool.submit(island.submit, parts(1), SubmitQuery(session=name)) for name in names]
        until(lambda: node.calls.count("prepare") == len(names))
        node.calls.clear()
        cancelled = island.cancel("s0", "", 0.0)
        called = "cancel" in node.calls
        node.release()

        assert called
        assert cancelled.status == "CANCELLED"
        assert [future.result(60).session for future in submitted[1:]] == names[1:]
        with pytest.raises(GoneError, match="cancelled"):
            submitted[0].result(60)


@pytest.mark.slow
def test_a_slow_node_that_is_alive_is_waited_for(world: World) -> None:
    """A node that answers status requests is not given up because another request takes longer."""
    world.node("n1")
    two = world.hanging("n2")
    island = world.composite("n1", "n2")
    island.submit(parts(2), SUBMIT)
    two.hang("drops")
    timer = threading.Timer(2.5, two.release)
    timer.start()

    page = island.drops("s", DropQuery())

    assert (page.total, page.missing) == (41, ())
    timer.join()


def test_a_node_that_lost_its_part_fails_the_session(world: World) -> None:
    """A node that was started again has lost its part; the session does not look as if it were whole."""
    island, _, two = world.session_of_two()
    world.managers["http://n1:8000"].complete("s")
    island.session("s")
    two.delete("s")

    detail = island.session("s")

    assert detail.status == "FAILED"
    assert "n2" in detail.text
    assert detail.drops == 41


@pytest.mark.slow
def test_details_that_are_older_than_numbers_are_noted(world: World) -> None:
    """A busy child that sends its state, but no details, leaves counts that do not add up: the session says so."""
    island, _, two = world.session_of_two()
    assert island.session("s").notes == ()
    two.refuse("session", LinkError("it is busy"))
    two.complete("s")
    settled = island.session("s").settled
    until(lambda: island.sessions()[0].settled > settled)

    detail = island.session("s")

    assert detail.settled > sum(node.counts.settled for node in detail.logical)
    assert any("n2 did not answer in time" in note for note in detail.notes)
    two.allow("session")
    until(lambda: not island.session("s").notes)


def test_without_answers_a_session_is_not_reported_missing(world: World) -> None:
    """When no child can be asked, whether there is such a session is not known."""
    world.node("n1").refuse("info", LinkError("nothing listens there"))
    island = world.composite("n1")

    with pytest.raises(LinkError, match="nothing listens there"):
        island.session("s")


def test_after_a_pause_of_the_island_all_children_are_alive(world: World) -> None:
    """After a pause of the island itself (SIGSTOP, a suspended host) no child is silent, and no session unknown."""
    island, _, _ = world.session_of_two()
    for name in ("n1", "n2"):
        world.managers[f"http://{name}:8000"].refuse("info", LinkError("nothing came yet"))
    until(lambda: all(child.text for child in island.children()))

    world.clock.advance(100.0)

    assert [child.state for child in island.children()] == ["alive", "alive"]
    assert island.session("s").status == "RUNNING"


@pytest.mark.slow
def test_a_restarted_node_with_an_older_clock_is_alive(world: World) -> None:
    """The latest process of a child follows from the order of its answers, not from the clock of its host."""
    node = world.node("n1")
    island = world.composite("n1")
    info, requests = node.info, []

    def answer(incarnation: int, process: int) -> ManagerInfo:
        requests.append(incarnation)
        return msgspec.structs.replace(info(), incarnation=incarnation, process=process)

    node.info = lambda: answer(1_000, 2)  # type: ignore[method-assign]
    until(lambda: requests.count(1_000) > 1)
    node.info = lambda: answer(40, 3)  # type: ignore[method-assign]
    until(lambda: requests.count(40) > 1)
    world.advance(30.0)

    until(lambda: [child.state for child in island.children()] == ["alive"])


def test_a_node_that_was_just_started_again_can_be_deployed_to(world: World) -> None:
    """A child that did not answer is asked again when a graph is submitted, before its next period."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2", every=1000.0, suspect_after=3000.0, lost_after=15000.0)
    silence(island, two)
    node = msgspec.structs.replace(two.nodes()[0], incarnation=5)
    two.set_node(node)

    assert {node.name: node.incarnation for node in island.nodes()}["n2"] == 5
    assert island.submit(parts(2), SUBMIT).nodes == ("n1", "n2")


def test_a_session_that_silent_nodes_may_have_is_not_missing(world: World) -> None:
    """A session is reported as missing only when all children have answered."""
    world.node("n1")
    world.node("n2").refuse("info", LinkError("nothing listens there"))
    island = world.composite("n1", "n2")

    with pytest.raises(LinkError, match="'s' cannot be looked up"):
        island.session("s")
    assert island.submit(fan(4), SUBMIT).nodes == ("n1",)


def test_a_lost_island_does_not_fail_its_sessions(world: World) -> None:
    """Nodes go on without their island: the session is UNKNOWN, and the island is named as missing."""
    world.node("n1")
    island = world.composite("n1", name="east")
    master = world.composite("east", role="master", name="master-1")
    master.submit(fan(40), SUBMIT)
    island.close()

    def gone() -> None:
        raise LinkError("nothing listens there")

    island.info = gone  # type: ignore[assignment,method-assign]
    until(lambda: bool(master.children()[0].text))
    world.advance(20.0)
    until(lambda: master.children()[0].state == "lost")

    detail = master.session("s")
    assert (detail.status, detail.unknown) == ("UNKNOWN", ("n1",))
    assert any("east" in note for note in detail.notes)


def test_a_child_that_was_silent_for_a_moment_is_waited_for(world: World) -> None:
    """A child that missed a deadline but is alive can be deployed to, and deletes, as soon as it answers again."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    silence(island, two)
    info = island.submit(parts(2), SUBMIT)
    silence(island, one)
    island.delete("s")

    assert info.nodes == ("n1", "n2")
    assert [manager.sessions() for manager in world.managers.values()] == [(), (), ()]


# An island that finds its nodes by zeroconf.


# Announcements of other tests on this machine arrive too: only these managers have this key.
_KEY = ClusterKey(*(text.encode() for text in (secrets.token_hex(20), secrets.token_hex(20))))
_LIFE = secrets.randbits(40)


@pytest.fixture
def pair() -> Iterator[tuple[Discovery, Discovery]]:
    """Return the discovery of a node and that of an island."""
    try:
        first, second = Discovery(), Discovery()
    except WorldError as error:
        pytest.skip(f"no multicast on loopback here: {error}")
    yield first, second
    first.close()
    second.close()


@pytest.mark.slow
def test_nodes_with_the_same_key_are_added_and_removed(world: World, pair: tuple[Discovery, Discovery]) -> None:
    """An announced node with the same key becomes a child; it is removed when it left and is lost."""
    talker, listener = pair
    node = world.node("n1")
    world.node("stranger")
    island = world.composite(key=_KEY)
    discover_children(island, listener)

    talker.announce(Announcement(name="x", role="node", url="http://stranger:8000", key="b" * 16, incarnation=_LIFE))
    talker.announce(Announcement(name="n1", role="node", url="http://n1:8000", key=_KEY.fingerprint, incarnation=_LIFE))
    until(lambda: [child.name for child in island.children()] == ["n1"])

    talker.close()
    node.refuse("info", LinkError("nothing listens there"))
    until(lambda: island.children()[0].text != "")
    world.advance(20.0)
    until(lambda: not island.children())


@pytest.mark.slow
def test_a_goodbye_of_a_node_that_answers_changes_nothing(world: World) -> None:
    """A node whose announcement expired stays a child if it answers (multicast loses packets)."""
    node = world.hanging("n1")
    island = world.composite("n1")

    island.child_left("http://n1:8000")
    calls_before = len(node.calls)
    until(lambda: len(node.calls) > calls_before + 2)

    assert [child.state for child in island.children()] == ["alive"]
