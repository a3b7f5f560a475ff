"""Watching sessions through islands."""

import threading

from dropflow.api.records import SessionDetail
from dropflow.errors import (
    LinkError,
)
from dropflow.testing.drawing import fan
from tests.managers.composite.world import SUBMIT, World, lose, parts, until


def test_watching_returns_with_a_change_on_any_node(world: World) -> None:
    """`watch` returns a newer version when a node reports a change, and without waiting when the session is over."""
    one, two = world.node("n1"), world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(parts(2), SUBMIT)
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
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(parts(2), SUBMIT)
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
    lose(world, island, "n2")
    thread.join(60)

    assert "n2 is unavailable (nothing listens there" in found[0]


def test_watching_returns_the_details_of_the_end(world: World) -> None:
    """Logical nodes have their final counts, even if the list of sessions reported the end first."""
    one = world.hanging("n1")
    one.hang("watch")
    island = world.composite("n1")
    island.submit(parts(1), SUBMIT)
    found: list[SessionDetail] = []
    version = island.session("s").version

    thread = threading.Thread(target=lambda: found.append(island.watch("s", version=version, seconds=60)))
    thread.start()
    until(lambda: "watch" in one.calls)
    one.complete("s")
    thread.join(60)

    assert (found[0].status, found[0].states) == ("FINISHED", {"COMPLETED": 41})
    assert {state for node in found[0].logical for state in node.states} == {"COMPLETED"}
