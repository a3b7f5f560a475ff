"""Votes of an island or master about the views of sessions that it deployed."""

import random
from collections import deque

import msgspec
import pytest

from managers.composite.witness import VoterSent, Witness
from managers.deployment import Deployment, Place
from managers.messages import (
    AcceptView,
    AdoptView,
    PrepareView,
    PromiseView,
    ProposeView,
    RequestView,
    SessionDone,
    ViewMessage,
)
from managers.recovery.records import RequestedChange, View, ViewDecision, first_view
from managers.recovery.vote import (
    AdoptDecision,
    PlanView,
    SendToPeer,
    StopForReport,
    ViewAction,
    Voter,
)
from tests.nightly import nightly

_PLACE = Place("island (witness)", "tcp://island:1", 7)
_MEMBERS = (Place("a", "tcp://a:1", 1), Place("b", "tcp://b:1", 1), Place("c", "tcp://c:1", 1))


def _deployment(members: int = 2, epoch: int = 1) -> Deployment:
    places = _MEMBERS[:members]
    return Deployment(session="s", epoch=epoch, graph="g", drops=2, created=0.0, places=places, witnesses=(_PLACE,))


@pytest.fixture
def witness() -> Witness:
    """A witness of a session on two nodes."""
    made = Witness()
    made.place = _PLACE
    made.prepare(_deployment())
    return made


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


# At most one successor of each view, also when witnesses are started again, forget sessions or replace each other.


_PATIENCE = 10.0


class _Cluster:
    """Members and managers of one session, and the messages between their processes: in order for each pair.

    A process takes only messages of those processes that are voters in its view, as nodes do.
    """

    def __init__(self, members: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        view = View(0, tuple(_place(f"n{number}", 1) for number in range(members)), (_place("w0", 1),))
        self.members = {place.node: Voter(place.node, "s", 1, view, patience=_PATIENCE) for place in view.members}
        self.dead: set[str] = set()
        self.cut: set[tuple[str, str]] = set()
        self.managers: dict[str, Witness] = {}
        self.started = {"w0": 0, "w1": 0}
        for name in self.started:
            self.start(name)
        deployment = Deployment(
            session="s", epoch=1, graph="g", drops=2, created=0.0, places=view.members, witnesses=view.witnesses
        )
        self.managers["w0"].prepare(deployment)
        self.wire: dict[tuple[str, str], deque[tuple[int, ViewMessage]]] = {}
        self.jobs: deque[tuple[str, ViewAction]] = deque()
        self.decided: dict[int, bytes] = {}
        self.plans = 0

    def start(self, name: str) -> None:
        """Start the process of a manager, also again."""
        self.started[name] += 1
        self.managers[name] = Witness()
        self.managers[name].place = _place(name, self.started[name])

    def ask(self, name: str, member: str) -> None:
        """Have a member be asked for a view in which this manager is the witness."""
        if member in self.dead or self.managers[name].votes("s", 1):
            return
        change = RequestedChange(
            f"{name}-{self.now}-{self.plans}",
            witness=self.managers[name].place,
            invitation=self.managers[name].invite("s", 1),
        )
        voter = self.members[member]
        request = RequestView("s", 1, voter.view.number, msgspec.msgpack.encode(change))
        self.act(member, voter.receive(member, request, self.now))

    def act(self, name: str, actions: list[ViewAction]) -> None:
        for action in actions:
            if isinstance(action, SendToPeer):
                self.wire.setdefault((name, action.peer), deque()).append((1, action.message))
            elif isinstance(action, StopForReport | PlanView):
                self.jobs.append((name, action))
            elif isinstance(action, AdoptDecision):
                number, decision = action.decision.view.number, msgspec.msgpack.encode(action.decision)
                assert self.decided.setdefault(number, decision) == decision, "two successors of one view"
                if not action.has_node:
                    self.dead.add(name)

    def deliver(self, sender: str, receiver: str) -> None:
        incarnation, message = self.wire[sender, receiver].popleft()
        if receiver in self.managers:
            if sender not in self.dead:
                for vote in self.managers[receiver].receive(VoterSent(sender, 1, message), self.now):
                    reply = (self.started[receiver], vote.message)
                    self.wire.setdefault((receiver, vote.peer), deque()).append(reply)  # type: ignore[arg-type]
        elif receiver not in self.dead:
            voter = self.members[receiver]
            if (sender, incarnation) in {(place.node, place.incarnation) for place in voter.view.voters}:
                self.act(receiver, voter.receive(sender, message, self.now))

    def job(self) -> None:
        name, action = self.jobs.popleft()
        if name in self.dead:
            return
        if isinstance(action, StopForReport):
            self.act(name, self.members[name].frozen(name.encode(), self.now))
            return
        assert isinstance(action, PlanView)
        self.plans += 1
        members = tuple(place for place in action.view.members if place.node in action.reports)
        view = msgspec.structs.replace(action.view, number=action.view.number + 1, members=members)
        for change in action.changes:
            if change.witness is not None:
                view = msgspec.structs.replace(view, witnesses=(change.witness,), invitation=change.invitation)
        decision = ViewDecision(view, (name,), b"%d" % self.plans)
        self.act(name, self.members[name].planned(action.ballot, decision, self.now))

    def run(self, steps: int) -> None:
        """Deliver messages in any order of pairs, and let time pass."""
        for _ in range(steps):
            pairs = [pair for pair, messages in self.wire.items() if messages and pair not in self.cut]
            draw = self.random.random()
            if pairs and draw < 0.8:
                self.deliver(*self.random.choice(pairs))
            elif self.jobs and draw < 0.95:
                self.job()
            else:
                self.now += self.random.choice((0.0, 1.0, 5.0, 12.0))
                for name, voter in self.members.items():
                    if name not in self.dead:
                        self.act(name, voter.tick(self.now))


def _place(name: str, incarnation: int) -> Place:
    return Place(name, f"tcp://{name}:{incarnation}", incarnation)


def _trial(seed: int) -> int:
    """Let members lose each other and managers end, and return how many views were decided."""
    draw = random.Random(seed)
    cluster = _Cluster(draw.choice((2, 2, 3, 4)), seed)
    names = list(cluster.members)
    if draw.random() < 0.5:
        # The witness is another process in view 1. There, members that are cut off from each other both ask it.
        cluster.start("w0")
        cluster.ask("w0", "n0")
        cluster.run(60)
        cluster.cut = {(name, other) for name in names for other in names}
        for name in names:
            if name not in cluster.dead:
                lost = {other: "silent" for other in names if other != name}
                cluster.act(name, cluster.members[name].lose(lost, cluster.now))
        cluster.run(draw.randint(0, 20))
    for _ in range(draw.randint(2, 12)):
        what = draw.random()
        if what < 0.2:
            cluster.start(draw.choice(("w0", "w0", "w1")))
        elif what < 0.3:
            cluster.managers[draw.choice(("w0", "w1"))].forget("s")
        elif what < 0.75:
            cluster.ask(draw.choice(("w0", "w1")), draw.choice(names))
        else:
            name = draw.choice(names)
            if name not in cluster.dead:
                lost = {other: "silent" for other in (*names, "w0") if other != name and draw.random() < 0.5}
                cluster.act(name, cluster.members[name].lose(lost, cluster.now))
        cluster.run(draw.choice((0, 3, 10, 40)))
    cluster.cut.clear()
    cluster.run(200)
    return len(cluster.decided)


def _trials(seeds: range) -> int:
    return sum(_trial(seed) for seed in seeds)


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, *nightly(*range(1, 8))])
def test_at_most_one_successor_of_each_view(part: int) -> None:
    """No two decisions are adopted for one view, also if nodes or the witness are lost, started again or forget."""
    assert _trials(range(part * 250, part * 250 + 250)) > 100


@pytest.mark.slow
def test_the_trials_find_a_witness_that_takes_any_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that begins in a view from before its invitation may have voted in it, and has forgotten that."""

    def taken(_: Witness, witnessed: object, event: VoterSent) -> bool:
        del event
        witnessed.invitation = ""  # type: ignore[attr-defined]
        return True

    monkeypatch.setattr(Witness, "_is_taken", taken)
    with pytest.raises(AssertionError, match="two successors of one view"):
        _trials(range(1100, 1200))
