"""Votes of an island or master about the views of sessions that it deployed."""

import msgspec
import pytest

from managers.composite.witness import VoterSent, Witness
from managers.deployment import Deployment, Place
from managers.messages import AcceptView, AdoptView, PrepareView, PromiseView, ProposeView, SessionDone
from managers.recovery.records import View, ViewDecision, first_view
from managers.recovery.vote import SendToPeer

_PLACE = Place("island (witness)", "tcp://island:1", 7)
_MEMBERS = (Place("a", "tcp://a:1", 1), Place("b", "tcp://b:1", 1), Place("c", "tcp://c:1", 1))


def _deployment(members: int = 2, epoch: int = 1) -> Deployment:
    places = _MEMBERS[:members]
    return Deployment(session="s", epoch=epoch, graph="g", drops=2, created=0.0, places=places, witnesses=(_PLACE,))


@pytest.fixture
def witness() -> Witness:
    """A witness of a session on two nodes."""
    found = Witness()
    found.place = _PLACE
    found.prepare(_deployment())
    return found


def _send(witness: Witness, message: object, peer: str = "a", incarnation: int = 1) -> list[object]:
    votes = witness.receive(VoterSent(peer, incarnation, message), 0.0)  # type: ignore[arg-type]
    assert all(isinstance(vote, SendToPeer) and vote.peer == peer for vote in votes)
    return [vote.message for vote in votes]


def test_a_witness_promises_and_accepts(witness: Witness) -> None:
    """It votes as a member does, and reports nothing."""
    assert _send(witness, PrepareView("s", 1, 0, (1, 0))) == [PromiseView("s", 1, 0, (1, 0), b"")]
    assert _send(witness, ProposeView("s", 1, 0, (1, 0), b"x")) == [AcceptView("s", 1, 0, (1, 0))]
    assert _send(witness, PrepareView("s", 1, 0, (2, 1)), "b") == [PromiseView("s", 1, 0, (2, 1), b"", (1, 0), b"x")]


def test_a_witness_answers_members_only(witness: Witness) -> None:
    """Other processes, other deployments and sessions that it does not know get no answer."""
    ask = PrepareView("s", 1, 0, (1, 0))
    assert _send(witness, ask, "z") == []
    assert _send(witness, ask, "a", 2) == []
    assert _send(witness, PrepareView("s", 2, 0, (1, 0))) == []
    assert _send(witness, PrepareView("other", 1, 0, (1, 0))) == []


@pytest.mark.parametrize("over", ["told", "decided", "undone", "deleted"])
def test_a_witness_forgets_sessions_that_are_over(over: str, witness: Witness) -> None:
    """A member tells that it is over, that is decided, or the session is taken back or deleted."""
    assert len(witness) == 1
    match over:
        case "told":
            _send(witness, SessionDone("s", 1, 0), "b")
        case "decided":
            decision = ViewDecision(View(1, _MEMBERS[:2], (_PLACE,)), (), b"", is_over=True)
            _send(witness, AdoptView("s", 1, 0, msgspec.msgpack.encode(decision)))
        case "undone":
            witness.forget("s", 1)
        case _:
            witness.forget("s")
    assert len(witness) == 0


def test_a_witness_tells_members_that_missed_the_end(witness: Witness) -> None:
    """One that was left out cannot end the session for the others, and is told that it is out."""
    decision = ViewDecision(View(1, _MEMBERS[:1], (_PLACE,)), (), b"")
    _send(witness, AdoptView("s", 1, 0, msgspec.msgpack.encode(decision)))
    _send(witness, SessionDone("s", 1, 0), "b")
    assert len(witness) == 1
    _send(witness, SessionDone("s", 1, 1), "a")
    assert len(witness) == 0
    assert _send(witness, PrepareView("s", 1, 1, (1, 1)), "a") == [SessionDone("s", 1, 1)]
    assert _send(witness, SessionDone("s", 1, 1), "a") == []
    assert [type(each) for each in _send(witness, PrepareView("s", 1, 0, (1, 1)), "b")] == [AdoptView]


def test_a_manager_that_was_started_again_is_not_the_witness_that_it_was() -> None:
    """Its place has another incarnation, and it takes no part in sessions that name the earlier one."""
    later = Witness()
    later.place = msgspec.structs.replace(_PLACE, incarnation=8)
    later.prepare(_deployment())
    assert len(later) == 0
    later.place = None
    later.prepare(_deployment())
    assert len(later) == 0


def test_a_witness_votes_beside_an_even_number_of_members() -> None:
    """It lets one more of them be lost; beside an odd number it would only have to be outvoted."""
    voters = {members: first_view(_deployment(members)) for members in (1, 2, 3)}
    views = [view for view in voters.values() if view is not None]
    assert [(len(view.voters), view.majority) for view in views] == [(1, 1), (3, 2), (3, 2)]
