"""An island that finds its nodes by zeroconf."""

import secrets
from collections.abc import Iterator

import pytest

from dropflow.errors import LinkError, WorldError
from managers.composite.manager import discover_children
from managers.discovery import Announcement, Discovery
from managers.keys import ClusterKey
from tests.managers.composite.world import World, until

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


def test_a_goodbye_of_a_node_that_answers_changes_nothing(world: World) -> None:
    """A node whose announcement expired stays a child if it answers (multicast loses packets)."""
    node = world.hanging("n1")
    island = world.composite("n1")

    island.child_left("http://n1:8000")
    asked = len(node.calls)
    until(lambda: len(node.calls) > asked + 2)

    assert [child.state for child in island.children()] == ["alive"]
