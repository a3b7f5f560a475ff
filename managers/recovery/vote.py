"""How the voters of a session agree on its next view: a pure state machine over a clock that is passed in.

Each view has one instance of single-decree Paxos, which decides its successor; the voters of a view are the acceptors
of that instance (Lamport, Malkhi, Zhou, "Reconfiguring a state machine", 2010, section 2; the exchange of reports is
the view change of Liskov and Cowling, "Viewstamped Replication revisited", 2012, section 4.2). So at most one successor
of a view is ever decided, also with several candidates at once, and a minority decides nothing.

A change may also be asked for, as when a node is to join: then a member stands as candidate although no other is lost,
and the next view has the change. A view that was decided for another reason may not have it; who asked finds that out
from the view that is adopted, and asks again.

A member stops its session before it promises anything, so its report stays true until the decision. Messages between
two processes arrive once and in order while both live, so nothing is sent twice. A process that was started again is
not the voter that it was, so nothing is stored on disks.

That a session is over is a successor of its last view, too. So it cannot be over for some of its members while others
go on in a later view: what a majority may have accepted is proposed again. The first member proposes it, when all have
finished their parts, with a ballot that only it uses and that is below all others, so it needs no promises.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

import msgspec

from managers.deployment import Place
from managers.messages import (
    AcceptView,
    AdoptView,
    CopyMessage,
    PartDone,
    PrepareView,
    PromiseView,
    ProposeView,
    RejectView,
    RequestView,
    SessionDone,
    StopSession,
    ViewMessage,
)
from managers.recovery.records import WAITING, RequestedChange, View, ViewDecision

Ballot = tuple[int, int]
"""Round, and rank of the candidate among the voters: greater ballots win."""
_NONE: Ballot = (0, 0)
_END: Ballot = (0, 1)
"""Ballot with which the first member proposes that the session is over. Those of candidates begin with (1, 0)."""
_decoder = msgspec.msgpack.Decoder(ViewDecision)
_change_decoder = msgspec.msgpack.Decoder(RequestedChange)
_PATIENCE_WITHOUT_LOSS = 3.0
"""How many times longer a candidate waits for a silent member that is not lost, while no member is lost."""

# Actions of `Voter`. Those that concern links are actions of nodes and witnesses, too.


class SendToPeer(msgspec.Struct, frozen=True):
    """Send a message to a peer, if there is a link to it; a lost one gets it if it can be reached again."""

    peer: str
    message: ViewMessage | PartDone | SessionDone | StopSession | CopyMessage


class StopForReport(msgspec.Struct, frozen=True):
    """Stop the core of the session, and pass its report to `Voter.frozen`. What runs goes on running."""


class PlanView(msgspec.Struct, frozen=True):
    """Compute the next view from the reports of the members that go on, and pass it to `Voter.planned`.

    Attributes
    ----------
    ballot : tuple of int
        Ballot of the candidacy.
    view : View
        The view that ends.
    reports : mapping of str to bytes
        The encoded `MemberReport` of each member that goes on.
    lost : mapping of str to str
        The other members, and why they are lost.
    changes : tuple of RequestedChange
        The requested changes.
    """

    ballot: Ballot
    view: View
    reports: Mapping[str, bytes]
    lost: Mapping[str, str]
    changes: tuple[RequestedChange, ...] = ()


class ConnectPeers(msgspec.Struct, frozen=True):
    """Open links to these processes, before anything is sent to them; those that are open stay."""

    session: str
    epoch: int
    places: tuple[Place, ...]


class AdoptDecision(msgspec.Struct, frozen=True):
    """Go on with a new view, or if it does not have this node as a member or witness, discard its part."""

    decision: ViewDecision
    has_node: bool = True


ViewAction = SendToPeer | StopForReport | PlanView | ConnectPeers | AdoptDecision


@dataclass(slots=True)
class _Candidacy:
    """An attempt of this voter to have the next view decided."""

    ballot: Ballot
    since: float = inf
    """Time at which a majority had promised."""
    promises: dict[str, PromiseView] = field(default_factory=dict)
    is_planning: bool = False
    decision: bytes = b""
    accepted: set[str] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    """Voters that have promised a greater ballot."""


class Voter:
    """The part of one voter in the views of one session.

    Methods return the actions to carry out, in order.

    Parameters
    ----------
    node : str
        Name of this voter.
    session, epoch :
        The session and its deployment.
    view : View
        The first view that this node knows. It is a member or witness of it, or is to join it.
    patience : float
        Seconds after which another voter becomes a candidate if no decision came, and after which a candidate goes on
        without a member that does not answer although it is not lost.
    """

    def __init__(self, node: str, session: str, epoch: int, view: View, *, patience: float = 10.0) -> None:
        self.view = view
        self.is_frozen = False
        """Whether the session is stopped here, and waits for a decision."""
        self.is_over = False
        """Whether it is decided that the session is over."""
        self.ends: tuple[bytes, ...] = ()
        """The end of each part then."""
        self._node = node
        self._session = session
        self._epoch = epoch
        self._patience = patience
        self._lost: dict[str, str] = {}
        self._wanted: dict[str, RequestedChange] = {}
        """Changes that were requested, by the id of the request."""
        self._promised: Ballot = _NONE
        self._greatest: Ballot = _NONE
        """The greatest ballot that another voter has promised."""
        self._accepted: tuple[Ballot, bytes] = (_NONE, b"")
        self._report: bytes | None = None
        self._unanswered: tuple[str, Ballot] | None = None
        """The candidate that gets a promise as soon as the session is stopped."""
        self._candidacy: _Candidacy | None = None
        self._latest: AdoptView | None = None
        self._due = inf
        self._queue: deque[tuple[str, ViewMessage]] = deque()
        """Messages to be processed before anything else, with their senders."""
        self._early: list[tuple[str, ViewMessage]] = []
        """Messages of later views."""
        self._actions: list[ViewAction] = []

    @property
    def waiting(self) -> str:
        """The reason why an ended view, or the end, waits, for users; empty if it does not wait."""
        candidacy = self._candidacy
        if candidacy is None:
            candidate = self.view.voters[self._promised[1]].node if self.is_frozen else ""
            return _waiting_for_other(self.view, candidate, self._lost)
        if candidacy.decision and not self._lost:
            return ""
        answered = candidacy.accepted if candidacy.decision else candidacy.promises.keys()
        if len(answered) >= self.view.majority:
            return ""
        counts = f"{len(answered)} of {len(self.view.voters)} voters answer, {self.view.majority} are needed"
        known = answered | candidacy.rejected
        silent = [place.node for place in self.view.voters if place.node not in known]
        names = f"; silent: {', '.join(silent)}" if silent else ""
        return f"{WAITING}: {counts}{names}"

    @property
    def _needed(self) -> int:
        """How many voters decide: a majority, or if that was asked for, those that are not lost."""
        if not any(change.is_forced for change in self._wanted.values()):
            return self.view.majority
        return min(self.view.majority, sum(place.node not in self._lost for place in self.view.voters))

    def lose(self, lost: Mapping[str, str], now: float) -> list[ViewAction]:
        """Note the voters that are lost now, and why; they may answer again later."""
        self._lost = {name: why for name, why in lost.items() if name != self._node}
        if self.is_over:
            return []
        # The loss of a witness alone changes nothing: it stays a voter.
        if self.is_frozen or self._wanted or any(place.node in self._lost for place in self.view.members):
            self._wait(now)
            self._advance(now)
        else:
            self._due = inf if self._candidacy is None else self._due
        return self._finish(now)

    def receive(self, peer: str, message: ViewMessage, now: float) -> list[ViewAction]:
        """Take in a message of another voter, or a request of this one."""
        self._dispatch(peer, message, now)
        return self._finish(now)

    def frozen(self, report: bytes, now: float) -> list[ViewAction]:
        """Take in the report of the session, which has stopped."""
        self._report = report
        if self._unanswered is not None:
            peer, ballot = self._unanswered
            self._unanswered = None
            if ballot == self._promised:
                self._promise(peer, ballot)
        return self._finish(now)

    def planned(self, ballot: Ballot, decision: ViewDecision, now: float) -> list[ViewAction]:
        """Take in the decision that a `PlanView` was for, and propose it."""
        candidacy = self._candidacy
        # Planning takes time: the view that it was for may have ended, and ballots begin anew in each view.
        is_next = decision.view.number == self.view.number + 1
        if is_next and candidacy is not None and candidacy.ballot == ballot and not candidacy.decision:
            self._propose(candidacy, msgspec.msgpack.encode(decision))
        return self._finish(now)

    def end(self, now: float, ends: tuple[bytes, ...] = ()) -> list[ViewAction]:
        """Propose that the session is over, since all members have finished their parts. For the first member.

        Nothing happens if a candidate has begun to change the view: members finish again in the next one.
        """
        if self._node == self.view.members[0].node and self._promised == _NONE:
            over = msgspec.structs.replace(self.view, number=self.view.number + 1)
            self._candidacy = _Candidacy(_END, is_planning=True)
            self._propose(self._candidacy, msgspec.msgpack.encode(ViewDecision(over, (), b"", is_over=True, ends=ends)))
        return self._finish(now)

    def tick(self, now: float) -> list[ViewAction]:
        """Do what is due at `now`."""
        if now >= self._due:
            self._due = inf
            if self._candidacy is None or self._candidacy.rejected:
                self._stand(now)
            else:
                self._wait(now)
                self._advance(now)
        return self._finish(now)

    def deadline(self) -> float:
        """Return when `tick` is to be called; infinity if nothing will be due."""
        return self._due

    # Candidates.

    def _wait(self, now: float) -> None:
        """Become a candidate in a while: the first member that is not lost at once, each further one later."""
        present = [place.node for place in self.view.members if place.node not in self._lost]
        if self._candidacy is not None:
            self._due = now + self._patience
        elif self._node in present:
            rank = present.index(self._node)
            started = self._promised > _END  # another voter is a candidate, and has its time
            self._due = min(self._due, now + self._patience * (rank + started))

    def _stand(self, now: float) -> None:
        """Become a candidate with a ballot greater than all that were seen."""
        if self._node not in {place.node for place in self.view.members}:
            return
        rank = [place.node for place in self.view.voters].index(self._node)
        self._candidacy = _Candidacy((max(self._promised, self._greatest)[0] + 1, rank))
        self._due = now + self._patience
        message = PrepareView(self._session, self._epoch, self.view.number, self._candidacy.ballot)
        self._send_all(message)

    def _advance(self, now: float) -> None:
        """Plan, or propose, as soon as enough voters have promised."""
        candidacy = self._candidacy
        if candidacy is None or candidacy.is_planning or len(candidacy.promises) < self._needed:
            return
        accepted = max((promise.accepted_ballot, promise.accepted) for promise in candidacy.promises.values())
        if accepted[0] != _NONE:
            # It may have been decided already: Paxos must propose it again.
            candidacy.is_planning = True
            self._propose(candidacy, accepted[1])
            return
        if candidacy.since == inf:
            candidacy.since, self._due = now, now + self._patience
        late = now >= candidacy.since + self._patience * (1.0 if self._lost else _PATIENCE_WITHOUT_LOSS)
        members = [place.node for place in self.view.members]
        if not late and any(name not in candidacy.promises and name not in self._lost for name in members):
            return
        candidacy.is_planning = True
        reports = {name: candidacy.promises[name].report for name in members if name in candidacy.promises}
        lost = {name: self._lost.get(name, "it does not answer") for name in members if name not in reports}
        self._actions.append(PlanView(candidacy.ballot, self.view, reports, lost, tuple(self._wanted.values())))

    def _propose(self, candidacy: _Candidacy, decision: bytes) -> None:
        candidacy.decision = decision
        self._send_all(ProposeView(self._session, self._epoch, self.view.number, candidacy.ballot, decision))

    # Voters.

    def _dispatch(self, peer: str, message: ViewMessage, now: float) -> None:
        if isinstance(message, AdoptView):
            self._on_adopt(message)
        elif message.view < self.view.number:
            if self._latest is not None:
                self._send(peer, self._latest)
        elif message.view > self.view.number:
            # This voter has missed a decision. Whatever it sends of its own view is answered by the latest one.
            self._early.append((peer, message))
            self._send(peer, RejectView(self._session, self._epoch, self.view.number, self._promised))
        elif peer in {place.node for place in self.view.voters} and not self.is_over:
            self._on_current(peer, message, now)

    def _on_current(self, peer: str, message: ViewMessage, now: float) -> None:
        match message:
            case PrepareView():
                self._on_prepare(peer, message, now)
            case PromiseView():
                if self._candidacy is not None and message.ballot == self._candidacy.ballot:
                    self._candidacy.promises[peer] = message
                    self._advance(now)
            case ProposeView():
                self._on_propose(peer, message)
            case AcceptView():
                self._on_accept(peer, message)
            case RejectView():
                self._on_reject(peer, message, now)
            case RequestView():
                change = _change_decoder.decode(message.change)
                self._wanted[change.id] = change
                # A candidate that has not planned yet includes it; another candidate is waited for.
                if change.is_forced:
                    self._stand(now)
                elif self._candidacy is None and not self.is_frozen:
                    self._due = now

    def _on_prepare(self, peer: str, message: PrepareView, now: float) -> None:
        if message.ballot < self._promised:
            self._send(peer, RejectView(self._session, self._epoch, self.view.number, self._promised))
            return
        self._promised = message.ballot
        if peer != self._node:
            self._candidacy = None
            self._due = inf
            self._wait(now)
        is_member = self._node in {place.node for place in self.view.members}
        if self._report is not None or not is_member:
            self._promise(peer, message.ballot)
            return
        self._unanswered = (peer, message.ballot)
        if not self.is_frozen:
            self.is_frozen = True
            self._actions.append(StopForReport())

    def _promise(self, peer: str, ballot: Ballot) -> None:
        view = self.view.number
        self._send(peer, PromiseView(self._session, self._epoch, view, ballot, self._report or b"", *self._accepted))

    def _on_propose(self, peer: str, message: ProposeView) -> None:
        view = self.view.number
        if message.ballot < self._promised:
            self._send(peer, RejectView(self._session, self._epoch, view, self._promised))
            return
        self._promised = message.ballot
        self._accepted = (message.ballot, message.decision)
        self._send(peer, AcceptView(self._session, self._epoch, view, message.ballot))

    def _on_accept(self, peer: str, message: AcceptView) -> None:
        candidacy = self._candidacy
        if candidacy is None or message.ballot != candidacy.ballot or not candidacy.decision:
            return
        candidacy.accepted.add(peer)
        if len(candidacy.accepted) >= self._needed:
            adopt = AdoptView(self._session, self._epoch, self.view.number, candidacy.decision)
            old = {place.node for place in self.view.voters}
            new = {place.node: place for place in _decoder.decode(candidacy.decision).view.voters}
            joining = tuple(place for place in new.values() if place not in self.view.voters)
            if joining:
                self._actions.append(ConnectPeers(self._session, self._epoch, joining))
            for name in sorted(old | new.keys()):
                self._send(name, adopt)

    def _on_reject(self, peer: str, message: RejectView, now: float) -> None:
        """Give up a candidacy as soon as no majority is left for it.

        A voter that two halves of the members can reach may promise to one of each, and only one has a majority.
        """
        if self._candidacy is None or message.ballot <= self._candidacy.ballot:
            return
        self._greatest = max(self._greatest, message.ballot)
        self._candidacy.rejected.add(peer)
        self._due = min(self._due, now + self._patience)
        if len(self.view.voters) - len(self._candidacy.rejected) < self.view.majority:
            self._candidacy = None
            self._wait(now)

    def _on_adopt(self, message: AdoptView) -> None:
        decision = _decoder.decode(message.decision)
        if decision.view.number <= self.view.number:
            return
        self.view, self.is_over, self.ends = decision.view, decision.is_over, decision.ends
        self._latest = message
        self._lost = {}
        self._wanted = {}
        self._promised, self._greatest, self._accepted = _NONE, _NONE, (_NONE, b"")
        self._report = self._unanswered = self._candidacy = None
        self.is_frozen = False
        self._due = inf
        self._queue.clear()
        self._queue.extend(self._early)
        self._early.clear()
        has_node = self._node in {place.node for place in (*self.view.members, *self.view.witnesses)}
        self._actions.append(AdoptDecision(decision, has_node))

    # Messages.

    def _send_all(self, message: ViewMessage) -> None:
        for place in self.view.voters:
            self._send(place.node, message)

    def _send(self, peer: str, message: ViewMessage) -> None:
        if peer == self._node:
            self._queue.append((peer, message))
        else:
            self._actions.append(SendToPeer(peer, message))

    def _finish(self, now: float) -> list[ViewAction]:
        """Process what is queued, and return the actions."""
        while self._queue:
            self._dispatch(*self._queue.popleft(), now)
        actions, self._actions = self._actions, []
        return actions


def _waiting_for_other(view: View, candidate: str, lost: Mapping[str, str]) -> str:
    """Return what a voter that has promised to a candidate waits for if that one is lost; empty otherwise."""
    if candidate not in lost:
        return ""
    silent = ", ".join(place.node for place in view.voters if place.node in lost)
    return f"waiting for another voter to decide: node {candidate} was lost while it did; silent: {silent}"
