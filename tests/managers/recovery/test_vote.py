"""Agreement on the next view of a session, over a network that delays, cuts and loses processes."""

import math
import random
from collections import deque
from typing import Any

import msgspec
import pytest

from managers.deployment import Place
from managers.messages import AdoptView, PrepareView, PromiseView, RequestView, ViewMessage
from managers.recovery.records import RequestedChange, View, ViewDecision
from managers.recovery.vote import (
    AdoptDecision,
    ConnectPeers,
    PlanView,
    SendToPeer,
    StopForReport,
    ViewAction,
    Voter,
)
from tests.nightly import nightly

_PATIENCE = 10.0


def _view(members: int, witnesses: int = 0) -> View:
    names = [f"n{number}" for number in range(members)]
    return View(
        0,
        tuple(Place(name, f"tcp://{name}", 1) for name in names),
        tuple(Place(f"w{number}", f"tcp://w{number}", 1) for number in range(witnesses)),
    )


class _Voters:
    """All voters of a session, and the messages between them: in order for each pair, in any order otherwise."""

    def __init__(self, view: View, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        names = [place.node for place in (*view.members, *view.witnesses)]
        self.voters = {name: Voter(name, "s", 1, view, patience=_PATIENCE) for name in names}
        self.dead: set[str] = set()
        self.cut: set[frozenset[str]] = set()
        self.wire: dict[tuple[str, str], deque[ViewMessage]] = {}
        self.jobs: deque[tuple[str, ViewAction]] = deque()
        self.stopped: set[str] = set()
        self.decided: dict[int, ViewDecision] = {}
        self.left: set[str] = set()
        self.connected: set[str] = set()
        self.planned = 0
        self.planners_die = 0

    def lose(self, *lost: str) -> None:
        """Have the membership of every living voter find these lost."""
        for name, voter in self.voters.items():
            if name not in self.dead and name not in lost:
                self.act(name, voter.lose(dict.fromkeys(lost, "silent"), self.now))

    def act(self, name: str, actions: list[ViewAction]) -> None:
        for action in actions:
            if isinstance(action, SendToPeer):
                self.wire.setdefault((name, action.peer), deque()).append(action.message)
            elif isinstance(action, StopForReport | PlanView):
                self.jobs.append((name, action))
            else:
                if isinstance(action, ConnectPeers):
                    self.connected |= {place.node for place in action.places}
                    continue
                assert isinstance(action, AdoptDecision)
                number = action.decision.view.number
                assert not any(decision.is_over for before, decision in self.decided.items() if before < number), (
                    "it was over"
                )
                assert self.decided.setdefault(number, action.decision) == action.decision, "two successors of one view"
                self.stopped.discard(name)
                if not action.has_node:
                    self.left.add(name)

    def end(self, name: str) -> None:
        """Have a voter see that all members have finished their parts."""
        if name not in self.dead | self.left | self.stopped:
            self.act(name, self.voters[name].end(self.now))

    def run(self, seconds: float = 300.0) -> None:
        """Deliver everything that can be delivered, and let time pass."""
        end = self.now + seconds
        while True:
            choices: list[tuple[str, str] | None] = [
                pair
                for pair, messages in self.wire.items()
                if messages and not self.dead & set(pair) and frozenset(pair) not in self.cut
            ]
            if self.jobs:
                choices.append(None)
            if choices:
                choice = self.random.choice(choices)
                if choice is None:
                    self.job()
                elif choice[1] in self.voters:
                    sender, receiver = choice
                    message = self.wire[choice].popleft()
                    self.act(receiver, self.voters[receiver].receive(sender, message, self.now))
                continue
            living = [voter for name, voter in self.voters.items() if name not in self.dead | self.left]
            due = min((voter.deadline() for voter in living), default=math.inf)
            if due > end or due == math.inf:
                return
            self.now = max(self.now, due)
            for name, voter in self.voters.items():
                if name not in self.dead | self.left:
                    self.act(name, voter.tick(self.now))

    def job(self) -> None:
        name, action = self.jobs.popleft()
        if name in self.dead:
            return
        voter = self.voters[name]
        if isinstance(action, StopForReport):
            if not voter.is_over:
                self.stopped.add(name)
            self.act(name, voter.frozen(name.encode(), self.now))
        else:
            assert isinstance(action, PlanView)
            if self.planners_die:
                self.planners_die -= 1
                self.dead.add(name)
                return
            self.planned += 1
            leave = {node for change in action.changes for node in change.leave}
            members = tuple(place for place in action.view.members if place.node in action.reports)
            assert all(action.reports[place.node] == place.node.encode() for place in members)
            members = tuple(place for place in members if place.node not in leave)
            members += tuple(place for change in action.changes for place in change.add if place not in members)
            view = View(action.view.number + 1, members, action.view.witnesses)
            decision = ViewDecision(
                view,
                (name,),
                bytes(str(self.planned), "ascii"),
                lost=dict(action.lost),
                answered=tuple(change.id for change in action.changes),
            )
            self.act(name, voter.planned(action.ballot, decision, self.now))


def test_a_lost_member_is_left_out() -> None:
    """After the loss of one of three members the other two adopt the same view, which does not have it."""
    voters = _Voters(_view(3), seed=1)
    voters.dead = {"n1"}
    voters.lose("n1")
    voters.run()
    assert [place.node for place in voters.decided[1].view.members] == ["n0", "n2"]
    assert voters.voters["n0"].view == voters.voters["n2"].view == voters.decided[1].view
    assert not voters.stopped
    assert voters.decided[1].lost == {"n1": "silent"}


def test_two_members_and_a_witness_survive_the_loss_of_one() -> None:
    """With a witness, one of two members goes on alone."""
    voters = _Voters(_view(2, witnesses=1), seed=1)
    voters.dead = {"n0"}
    voters.lose("n0")
    voters.run()
    assert [place.node for place in voters.decided[1].view.members] == ["n1"]


def test_a_witness_that_a_minority_reaches_does_not_stop_the_majority() -> None:
    """The witness has promised to one member that is cut off from the others; they have a majority without it."""
    voters = _Voters(_view(4, witnesses=1), seed=1)
    voters.cut = {frozenset({"n3", other}) for other in ("n0", "n1", "n2")}
    voters.act("n3", voters.voters["n3"].lose(dict.fromkeys(("n0", "n1", "n2"), "silent"), 0.0))
    voters.run(1.0)
    for name in ("n0", "n1", "n2"):
        voters.act(name, voters.voters[name].lose({"n3": "silent"}, voters.now))
    voters.run(1.0)
    assert [place.node for place in voters.decided[1].view.members] == ["n0", "n1", "n2"]


def test_a_minority_waits_and_reports_it() -> None:
    """One of three voters decides nothing, says what it waits for, and goes on as soon as another one answers."""
    voters = _Voters(_view(3), seed=1)
    voters.cut = {frozenset({"n0", "n1"}), frozenset({"n0", "n2"})}
    first = voters.voters["n0"]
    voters.act("n0", first.lose({"n1": "silent", "n2": "silent"}, 0.0))
    voters.run()
    assert not voters.decided
    assert first.waiting == "waiting for a majority: 1 of 3 voters answer, 2 are needed; silent: n1, n2"
    voters.cut = set()
    voters.act("n0", first.lose({}, voters.now))
    voters.run()
    assert not first.waiting
    assert len(voters.decided[1].view.members) == 3


def test_a_voter_that_stopped_for_a_lost_candidate_reports_it() -> None:
    """The candidate is dead and one of three voters is cut off: the other one names both."""
    voters = _Voters(_view(3), seed=1)
    last = voters.voters["n2"]
    voters.act("n2", last.receive("n0", PrepareView("s", 1, 0, (1, 0)), 0.0))
    assert not last.waiting
    voters.dead, voters.cut = {"n0"}, {frozenset({"n1", "n2"})}
    voters.act("n2", last.lose({"n0": "silent"}, 0.0))
    assert last.waiting == "waiting for another voter to decide: node n0 was lost while it did; silent: n0"
    voters.run()
    assert last.waiting == "waiting for a majority: 1 of 3 voters answer, 2 are needed; silent: n0, n1"


def test_a_minority_goes_on_when_that_is_forced() -> None:
    """Those that are not lost decide then, all of them; in the next view a majority is needed again."""
    voters = _Voters(_view(5), seed=1)
    voters.dead = {"n0", "n1", "n2"}
    voters.lose("n0", "n1", "n2")
    voters.run()
    assert not voters.decided
    change = msgspec.msgpack.encode(RequestedChange("r", is_forced=True))
    voters.act("n3", voters.voters["n3"].receive("n3", RequestView("s", 1, 0, change), voters.now))
    voters.run()
    assert [place.node for place in voters.decided[1].view.members] == ["n3", "n4"]
    voters.dead |= {"n4"}
    voters.lose("n4")
    voters.run()
    assert voters.decided.keys() == {1}
    assert voters.voters["n3"].waiting == "waiting for a majority: 1 of 2 voters answer, 2 are needed; silent: n4"


def test_what_may_have_been_decided_is_proposed_again_also_when_it_is_forced() -> None:
    """A forced view does not replace one that a voter has accepted."""
    voters = _Voters(_view(3), seed=1)
    voters.end("n0")
    voters.act("n2", voters.voters["n2"].receive("n0", voters.wire["n0", "n2"].popleft(), 0.0))
    voters.dead = {"n0", "n1"}
    voters.lose("n0", "n1")
    change = msgspec.msgpack.encode(RequestedChange("r", is_forced=True))
    voters.act("n2", voters.voters["n2"].receive("n2", RequestView("s", 1, 0, change), 0.0))
    voters.run()
    assert voters.decided[1].is_over


def test_a_member_that_was_cut_off_leaves() -> None:
    """A member that comes back after the others went on without it finds the view over, and leaves."""
    voters = _Voters(_view(3), seed=1)
    voters.cut = {frozenset({"n0", "n1"}), frozenset({"n0", "n2"})}
    voters.act("n0", voters.voters["n0"].lose({"n1": "silent", "n2": "silent"}, 0.0))
    for name in ("n1", "n2"):
        voters.act(name, voters.voters[name].lose({"n0": "silent"}, 0.0))
    voters.run()
    assert [place.node for place in voters.decided[1].view.members] == ["n1", "n2"]
    assert voters.stopped == {"n0"}
    voters.cut = set()
    voters.run()
    assert voters.left == {"n0"}


def test_the_loss_of_the_candidate_does_not_block() -> None:
    """If the candidate is lost before it decides, the next member completes the change."""
    voters = _Voters(_view(5), seed=1)
    voters.dead = {"n4"}
    voters.planners_die = 1
    voters.lose("n4")
    voters.run(1.0)
    assert voters.dead == {"n0", "n4"}
    assert not voters.decided
    voters.lose("n0", "n4")
    voters.run()
    assert [place.node for place in voters.decided[1].view.members] == ["n1", "n2", "n3"]
    assert voters.stopped <= voters.dead


def test_the_end_is_decided_without_a_stop() -> None:
    """Once all have finished their parts, the first member has the session end in one round, and nothing is stopped."""
    voters = _Voters(_view(3), seed=1)
    voters.end("n1")
    voters.run()
    assert not voters.decided
    voters.end("n0")
    voters.run()
    assert [voter.view.number for voter in voters.voters.values()] == [1, 1, 1]
    assert voters.decided[1].is_over
    assert not voters.stopped


def test_an_end_that_only_one_member_knows_is_the_end_for_all() -> None:
    """If the first member dies when one other has accepted that the session is over, no later view is decided."""
    voters = _Voters(_view(3), seed=1)
    voters.cut = {frozenset({"n0", "n2"})}
    voters.end("n0")
    (proposal,) = voters.wire["n0", "n1"]
    voters.act("n1", voters.voters["n1"].receive("n0", proposal, 0.0))
    voters.dead = {"n0"}
    voters.lose("n0")
    voters.run()
    assert voters.decided.keys() == {1}
    assert voters.decided[1].is_over


def test_a_change_of_the_view_comes_before_the_end() -> None:
    """A first member that has promised does not propose the end: it is proposed in the next view."""
    voters = _Voters(_view(3), seed=1)
    voters.dead = {"n2"}
    voters.act("n1", voters.voters["n1"].lose({"n0": "wrongly", "n2": "silent"}, 0.0))
    voters.act("n1", voters.voters["n1"].tick(0.0))
    voters.act("n0", voters.voters["n0"].receive("n1", voters.wire["n1", "n0"].popleft(), 0.0))
    assert voters.voters["n0"].end(0.0) == []
    voters.run()
    voters.end("n0")
    voters.run()
    assert [voters.decided[number].is_over for number in (1, 2)] == [False, True]


def _request(key: str = "one", **fields: Any) -> RequestView:
    return RequestView("s", 1, 0, msgspec.msgpack.encode(RequestedChange(key, **fields)))


@pytest.mark.parametrize("asked", ["n0", "n2"])
def test_a_change_is_decided_although_nobody_is_lost(asked: str) -> None:
    """The member that is asked stands as candidate, and the next view has the change; all others stay."""
    voters = _Voters(_view(3), seed=1)
    voters.act(asked, voters.voters[asked].receive(asked, _request(is_rebalancing=True), 0.0))
    voters.run()
    assert voters.decided[1].answered == ("one",)
    assert [place.node for place in voters.decided[1].view.members] == ["n0", "n1", "n2"]
    assert not voters.stopped
    assert len(voters.decided) == 1


def test_a_request_of_another_member_is_a_message() -> None:
    """A member that gets it does as if it had been asked itself; one of an earlier view is told of the present one."""
    voters = _Voters(_view(3), seed=1)
    first = voters.voters["n0"]
    voters.act("n0", first.receive("n2", _request(), 0.0))
    voters.run()
    assert voters.decided[1].answered == ("one",)
    answers = first.receive("n2", _request(), voters.now)
    assert [type(action.message) for action in answers if isinstance(action, SendToPeer)] == [AdoptView]


def test_a_node_joins_and_another_one_leaves() -> None:
    """The new member gets the decision without having voted, and votes from then on; the other one leaves."""
    voters = _Voters(_view(3), seed=1)
    new = Place("n9", "tcp://n9", 1)
    voters.voters["n9"] = Voter("n9", "s", 1, _view(3), patience=_PATIENCE)
    voters.act("n1", voters.voters["n1"].receive("n1", _request(add=(new,), leave=("n2",)), 0.0))
    voters.run()
    assert voters.connected == {"n9"}
    assert voters.left == {"n2"}
    assert [place.node for place in voters.voters["n9"].view.members] == ["n0", "n1", "n9"]
    voters.dead = {"n0"}
    voters.lose("n0")
    voters.run()
    assert [place.node for place in voters.decided[2].view.members] == ["n1", "n9"]


def test_a_plan_for_an_earlier_view_is_not_proposed() -> None:
    """Planning takes time: a decision that comes after its view has ended is not taken for one of the next view."""
    view = _view(3)
    voter = Voter("n0", "s", 1, view, patience=_PATIENCE)

    def plan(view: View) -> PlanView:
        """Stand as candidate in a view, and get the promises of the others."""
        actions = voter.lose({"n2": "silent"}, voter.deadline() if view.number else 0.0)
        actions += voter.tick(voter.deadline()) + voter.frozen(b"", 0.0)
        actions += voter.receive("n1", PromiseView("s", 1, view.number, (1, 0), b""), 0.0)
        (plan_,) = (action for action in actions if isinstance(action, PlanView))
        return plan_

    def answer(plan: PlanView) -> list[ViewAction]:
        following = msgspec.structs.replace(plan.view, number=plan.view.number + 1)
        return voter.planned(plan.ballot, ViewDecision(following, (), b""), 0.0)

    late = plan(view)
    following = msgspec.structs.replace(view, number=1)
    decision = msgspec.msgpack.encode(ViewDecision(following, (), b""))
    voter.receive("n1", AdoptView("s", 1, 0, decision), 0.0)
    now = plan(following)
    assert now.ballot == late.ballot
    assert answer(late) == []
    assert any(isinstance(action, SendToPeer) for action in answer(now))


def test_a_request_alone_waits_longer_for_a_silent_member() -> None:
    """A member that is only slow is not left out because of a change that can wait; one that is lost is."""
    voters = _Voters(_view(3), seed=1)
    voters.cut = {frozenset({"n0", "n2"})}
    voters.act("n0", voters.voters["n0"].receive("n0", _request(), 0.0))
    voters.run(2 * _PATIENCE - 1)
    assert not voters.decided
    voters.cut = set()
    voters.run()
    assert len(voters.decided[1].view.members) == 3


@pytest.mark.parametrize("seed", [*range(100), *nightly(*range(100, 400))])
def test_at_most_one_successor_of_each_view(seed: int) -> None:
    """Whatever is lost and cut, no two views with one number are adopted; at the end no living member stays frozen."""
    draw = random.Random(seed)
    view = _view(draw.randint(1, 6), draw.randint(0, 2))
    voters = _Voters(view, seed)
    names = list(voters.voters)
    for _ in range(draw.randint(1, 6)):
        if draw.random() < 0.4:
            voters.dead.add(draw.choice(names))
        voters.cut = {
            frozenset({one, other}) for one in names for other in names if one < other and draw.random() < 0.3
        }
        for name in names:
            if name in voters.dead | voters.left:
                continue
            lost = {other: "?" for other in names if other in voters.dead or frozenset({name, other}) in voters.cut}
            if draw.random() < 0.3:
                lost[draw.choice(names)] = "wrongly"
            voters.act(name, voters.voters[name].lose(lost, voters.now))
            if draw.random() < 0.1:
                voters.end(name)
            requests = [_request(str(voters.now))] if draw.random() < 0.2 else []
            voters.act(
                name,
                [action for request in requests for action in voters.voters[name].receive(name, request, voters.now)],
            )
        voters.run(draw.choice([0.0, 5.0, 30.0]))
    _check_healed(voters)


def _check_healed(voters: _Voters) -> None:
    """Reconnect everything but the dead, and check that no living member with a majority stays stopped."""
    names = list(voters.voters)
    voters.cut = set()
    for _ in range(8):
        voters.lose(*voters.dead)
        voters.run(200.0)
    living = [name for name in names if name not in voters.dead | voters.left]
    for name in living:
        voter = voters.voters[name]
        if voter.view.number < max(voters.decided, default=0):
            continue  # who knew the decision is dead
        alive = [place.node for place in voter.view.voters if place.node not in voters.dead | voters.left]
        has_member = any(place.node in alive for place in voter.view.members)
        if len(alive) >= voter.view.majority and has_member:
            assert name not in voters.stopped, (name, voter.view)
            assert voter.is_over or not voters.dead & {place.node for place in voter.view.members}


def test_records_survive_encoding() -> None:
    """A decision is the same after it was sent."""
    decision = ViewDecision(_view(2), ("a",), b"x", lost={"n3": "why"})
    message = AdoptView("s", 1, 0, msgspec.msgpack.encode(decision))
    assert msgspec.msgpack.decode(message.decision, type=ViewDecision) == decision


def test_messages_of_the_next_view_that_come_early_are_kept() -> None:
    """A voter that learns of a view after a candidate of it has asked promises to that candidate all the same."""
    view = _view(3)
    voter = Voter("n1", "s", 1, view, patience=_PATIENCE)
    voter.receive("n0", PrepareView("s", 1, 1, (1, 0)), 0.0)
    decision = ViewDecision(msgspec.structs.replace(view, number=1), ("n0", "n1", "n2"), b"")
    actions = voter.receive("n2", AdoptView("s", 1, 0, msgspec.msgpack.encode(decision)), 0.0)

    assert any(isinstance(action, StopForReport) for action in actions)
    promises = [promise for promise in voter.frozen(b"report", 0.0) if isinstance(promise, SendToPeer)]
    assert [(promise.peer, type(promise.message)) for promise in promises] == [("n0", PromiseView)]
