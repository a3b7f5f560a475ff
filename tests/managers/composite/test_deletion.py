"""Deleting sessions, also on nodes that do not answer."""

import pytest

from dropflow.errors import (
    LinkError,
    NotFoundError,
)
from tests.managers.composite.world import SUBMIT, World, lose, parts, until


def test_a_session_is_deleted_on_nodes_that_answer_again(world: World) -> None:
    """A session is deleted although a node is lost; on that node when it is back. It is hidden until then."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(parts(2), SUBMIT)
    lose(world, island, "n2")

    island.delete("s")

    with pytest.raises(NotFoundError, match="'s' was deleted"):
        island.session("s")
    assert [info.session for info in two.sessions()] == ["s"]
    two.allow("info")
    until(lambda: not two.sessions())
    assert not island.sessions()


def test_deleting_names_the_node_that_did_not_answer(world: World) -> None:
    """A node that did not answer is named; the session is deleted there when it answers."""
    world.node("n1")
    two = world.node("n2")
    island = world.composite("n1", "n2")
    island.submit(parts(2), SUBMIT)
    two.refuse("delete", LinkError("it does not answer in time"))
    two.refuse("info", LinkError("it does not answer in time"))

    with pytest.raises(LinkError, match="'s' is deleted, but n2 did not answer"):
        island.delete("s")

    assert not world.managers["http://n1:8000"].sessions()
    two.allow("delete")
    two.allow("info")
    until(lambda: not two.sessions())
