"""One thing at a time works in a session, and ends it: the machine of a node, with a model of a session's thread."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from dropflow.api.requests import CancelRequest
from dropflow.errors import BadFileError, StorageError
from dropflow.states import SessionState
from managers.deployment import Deployment, Place
from managers.links import ReceivedMessage
from managers.machine_calls import Call, CallId, Return
from managers.messages import (
    AcceptView,
    AdoptView,
    Events,
    PartDone,
    PrepareView,
    PromiseView,
    ProposeView,
    SessionDone,
    ViewMessage,
)
from managers.node.decisions.events import (
    Build,
    Built,
    CancelRecorded,
    CancelSession,
    Continued,
    ContinueSession,
    Ended,
    FinishSession,
    FreezeSession,
    Frozen,
    LoseNode,
    NotPlanned,
    Over,
    PartFinished,
    PeerRestarted,
    PeerSent,
    PeersRead,
    Planned,
    PlanNextView,
    RecordCancel,
    Removed,
    RemoveSession,
    StartSession,
    WithdrawSession,
)
from managers.node.decisions.machine import NodeMachine
from managers.node.decisions.sessions import Phase, SessionTable
from managers.node.host import LinkHandlers, SessionHost
from managers.node.hosted_session import HostedSession
from managers.recovery.records import MemberReport, View, ViewDecision
from managers.recovery.vote import SendToPeer

PLACES = tuple(Place(name, f"tcp://{name}:1", 1) for name in ("a", "b", "c"))
REPORT = MemberReport(rows=b"", states=b"", available=b"")
KINDS = (StartSession, FreezeSession, CancelSession, LoseNode, ContinueSession, FinishSession, PlanNextView)


class Member:
    """The machine of node a, with a session on nodes a, b and c that runs."""

    def __init__(self) -> None:
        self.machine = NodeMachine("a", 1, {})
        self.now = 0.0
        deployment = Deployment(session="s", epoch=1, graph="g", drops=3, created=0.0, places=PLACES)
        self.call(1, "prepare", deployment=deployment, seconds=10.0)
        self.send(Built("s", 1, "s", ("b", "c")))
        self.send(PeersRead({"b": (1, 0.0), "c": (1, 0.0)}))
        self.started = self.call(2, "start", session="s", epoch=1)

    def call(self, call: int, operation: str, **arguments: Any) -> list[Any]:
        """Call an operation, and return all actions."""
        return self.send(Call(CallId(call), partial(self.machine.operations[operation], **arguments)))

    def send(self, event: Any) -> list[Any]:
        """Let the machine handle an event, and return all actions."""
        return self.machine.handle(event, self.now)

    def message(self, message: Any, peer: str = "b") -> list[Any]:
        """Let the machine handle a message of another member, and return what is to be done with the session."""
        return [action for action in self.send(PeerSent(peer, 1, message)) if isinstance(action, KINDS)]

    def stop(self, event: Any) -> list[Any]:
        """Let the machine handle an event, and return what is to be done with the session."""
        return [action for action in self.send(event) if isinstance(action, KINDS)]


def test_a_thread_that_executes_a_session_ends_it_when_it_is_over_elsewhere() -> None:
    """The other members have ended the session while a thread works in it here: no other thread or job begins."""
    member = Member()
    assert member.started[0] == StartSession("s")
    assert member.message(SessionDone("s", 1, 0)) == [FinishSession("s", has_thread=True)]
    assert member.message(SessionDone("s", 1, 0), "c") == []
    assert member.message(PrepareView("s", 1, 0, (1, 1))) == []


def test_a_job_ends_a_session_whose_thread_has_stopped_meanwhile() -> None:
    """The thread finished its part before it was told that the session is over elsewhere: a job ends it then, once."""
    member = Member()
    assert member.message(SessionDone("s", 1, 0)) == [FinishSession("s", has_thread=True)]
    assert member.stop(PartFinished("s", 1, 0)) == [FinishSession("s")]
    assert member.message(PrepareView("s", 1, 0, (1, 1))) == []
    assert member.message(SessionDone("s", 1, 0), "c") == []


def test_a_session_that_was_cancelled_while_it_was_frozen_does_not_go_on_in_the_next_view() -> None:
    """The thread that ends it is at work when the decision arrives for which it had stopped."""
    member = Member()
    assert member.message(PrepareView("s", 1, 0, (1, 1))) == [FreezeSession("s", has_thread=True, shared={})]
    assert member.stop(Frozen("s", 1, REPORT)) == []
    request = CancelRequest(reason="enough")
    assert member.stop(CancelRecorded("s", 1, 3, request)) == [CancelSession("s", request, has_thread=False)]
    decision = ViewDecision(View(1, PLACES[:2]), ("a", "b"), b"", lost={"c": "it is silent"})
    assert member.message(AdoptView("s", 1, 0, msgspec.msgpack.encode(decision))) == []


def test_a_next_view_that_cannot_be_planned_ends_a_session_only_if_nothing_works_in_it() -> None:
    """While it is frozen, a job ends it. Once it was cancelled, its thread does; in another view it goes on."""
    error = BadFileError("the graph cannot be read")
    decision = ViewDecision(View(1, PLACES[:2]), ("a", "b"), b"", lost={"c": "it is silent"})
    for meanwhile, expected in (
        (None, [FinishSession("s", error=error)]),
        (CancelRecorded("s", 1, 3, CancelRequest()), []),
        (PeerSent("b", 1, AdoptView("s", 1, 0, msgspec.msgpack.encode(decision))), []),
    ):
        member = Member()
        member.message(PrepareView("s", 1, 0, (1, 1)))
        member.stop(Frozen("s", 1, REPORT))
        if meanwhile is not None:
            member.stop(meanwhile)
        assert member.stop(NotPlanned("s", 1, error)) == expected


def test_a_part_may_be_finished_before_it_is_reported_that_the_next_view_has_begun() -> None:
    """The thread of the next view is started by a job, and may report first: its part counts, and it freezes once."""
    decision = ViewDecision(View(1, PLACES[:2]), ("a", "b"), b"", lost={"c": "it is silent"})
    for is_frozen in (False, True):
        member = Member()
        member.message(PrepareView("s", 1, 0, (1, 1)))
        member.stop(Frozen("s", 1, REPORT))
        [continues] = member.message(AdoptView("s", 1, 0, msgspec.msgpack.encode(decision)))
        assert isinstance(continues, ContinueSession)
        if is_frozen:
            assert member.message(PrepareView("s", 1, 1, (1, 1))) == []
        expected = [FreezeSession("s", has_thread=False, shared={})] if is_frozen else []
        assert member.stop(PartFinished("s", 1, 1)) == expected
        assert member.stop(Continued("s", 1, 1)) == []
        assert member.message(SessionDone("s", 1, 1)) == [FinishSession("s", has_thread=is_frozen)]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_node_that_joins_a_session_anew_removes_what_it_did_while_others_went_on(*, is_frozen: bool) -> None:
    """It was cut off and saw no later view. Its part ends and is removed before the session is prepared again."""
    member = Member()
    if is_frozen:
        member.message(PrepareView("s", 1, 0, (1, 1)))
        member.stop(Frozen("s", 1, REPORT))
    joining = _joining(view=2)

    actions = member.call(3, "prepare", deployment=joining, seconds=10.0)
    assert CancelSession("s", CancelRequest(), has_thread=not is_frozen) in actions
    assert not any(isinstance(action, Return) for action in actions)
    member.send(Over("s", 1, SessionState.CANCELLED))
    assert RemoveSession("s", 1, "s") in member.send(Ended("s", 1))
    assert Build(joining) in member.send(Removed("s", 1))


def test_a_member_that_is_to_join_again_stays_a_member() -> None:
    """Its manager may ask again, and may know less than the member: that the node is a member already is no error."""
    member = Member()
    assert member.call(3, "prepare", deployment=_joining(view=0), seconds=10.0) == [Return(CallId(3))]


def _joining(view: int) -> Deployment:
    """Return the deployment with which node a joins a session that is in a view on nodes b and c."""
    places = (*PLACES[1:], PLACES[0])
    return Deployment(session="s", epoch=1, graph="g", drops=3, created=0.0, places=places, view=view, is_joining=True)


class OneEnding(RuleBasedStateMachine):
    """A session whose thread, jobs, members and users act in any order.

    What its thread and jobs report waits in a queue, as for the owner of the machine.
    """

    def __init__(self) -> None:
        super().__init__()
        self.member = Member()
        self.work = ""
        """What is at work: "thread", "continue" or "finish"."""
        self.posted: list[Any] = []
        self.is_cancelled = self.is_frozen = self.is_finished = self.is_ended = False
        self.error: Exception | None = None
        self.view, self.promised = 0, -1
        """The view, and the last one for whose change it has stopped."""
        self.begun: list[int] = []
        """Views that have begun, and whose job has not reported that."""
        self.plans: list[PlanNextView] = []
        self.records: list[RecordCancel] = []
        self.removals: list[RemoveSession] = []
        self.unanswered: list[tuple[str, Any]] = []
        self.calls = 2
        self.carry_out(self.member.started)

    def carry_out(self, actions: list[Any]) -> None:
        """Do what the machine decides."""
        for action in actions:
            match action:
                case StartSession() | FreezeSession() | ContinueSession():
                    self.execute(action)
                case CancelSession() | LoseNode() | FinishSession(has_thread=True):
                    self.cancel_it(has_thread=action.has_thread)
                case FinishSession():
                    self.begin("finish")
                    self.error = action.error
                case PlanNextView():
                    self.plans.append(action)
                case _:
                    self.carry_out_other(action)

    def execute(self, action: StartSession | FreezeSession | ContinueSession) -> None:
        """Do what has a thread execute the session, or stop."""
        match action:
            case StartSession():
                self.begin("thread")
            case FreezeSession():
                self.is_frozen = True
                self.begin_thread(has_thread=action.has_thread)
            case ContinueSession():
                self.begin("continue")
                self.view = action.decision.view.number

    def carry_out_other(self, action: Any) -> None:
        """Note what is to be answered, written or removed."""
        match action:
            case RecordCancel():
                self.records.append(action)
            case RemoveSession():
                assert self.is_ended
                self.removals.append(action)
            case SendToPeer(message=PromiseView(view=view)):
                self.promised = view
            case SendToPeer(message=PrepareView() | ProposeView()):
                self.unanswered.append((action.peer, action.message))

    def begin(self, work: str) -> None:
        """Begin to work in the session: nothing else does, and nothing waits to be reported that did."""
        assert not self.is_ended
        assert self.work == ""
        assert not any(isinstance(event, Frozen | PartFinished) for event in self.posted)
        self.work = work

    def begin_thread(self, *, has_thread: bool) -> None:
        """Start a thread if none is at work."""
        if not has_thread:
            self.begin("thread")

    def cancel_it(self, *, has_thread: bool) -> None:
        """Cancel the session."""
        if not self.is_ended:
            self.is_cancelled, self.is_frozen = True, False
            self.begin_thread(has_thread=has_thread)

    def end_it(self) -> None:
        """End the session."""
        assert not self.is_ended, "a session ends once"
        self.is_ended, self.work = True, ""
        status = SessionState.CANCELLED if self.is_cancelled else SessionState.FINISHED
        self.posted += [Over("s", 1, status), Ended("s", 1)]

    def report(self, event: Any) -> None:
        """Stop the thread, and report that."""
        self.work = ""
        self.posted.append(event)

    # What works in the session.

    @precondition(lambda self: self.work == "thread")
    @rule(finishes=st.booleans())
    def step(self, *, finishes: bool) -> None:
        """Let the thread stop if it is frozen or cancelled, or finish the part."""
        if self.is_finished and self.is_frozen:
            self.report(Frozen("s", 1, REPORT))
        elif self.is_finished:
            self.report(PartFinished("s", 1, self.view))
        elif self.is_cancelled:
            self.end_it()
        elif self.is_frozen:
            self.report(Frozen("s", 1, REPORT))
        elif finishes:
            self.is_finished = True  # it stops in a later step

    @precondition(lambda self: self.work == "thread" and self.is_frozen and not self.is_finished)
    @rule()
    def stop_late(self) -> None:
        """Let the thread stop because it is frozen, and report that after it was cancelled."""
        self.report(Frozen("s", 1, REPORT))

    @precondition(lambda self: self.work == "continue")
    @rule(fails=st.integers(0, 9))
    def continue_it(self, *, fails: int) -> None:
        """Continue in the next view, or fail to."""
        if fails == 0:
            self.end_it()
            return
        self.is_frozen = self.is_finished = False
        self.work = "thread"
        self.begun.append(self.view)

    @precondition(lambda self: self.begun)
    @rule()
    def report_beginning(self) -> None:
        """Report that the next view has begun, at any time after its thread was started."""
        self.posted.append(Continued("s", 1, self.begun.pop(0)))

    @precondition(lambda self: self.work == "finish")
    @rule()
    def finish(self) -> None:
        """End the session in a job, or have a thread do so if its part is not finished."""
        if self.is_finished or self.error is not None:
            self.end_it()
        else:
            self.work = ""
            self.cancel_it(has_thread=False)

    @precondition(lambda self: self.posted)
    @rule()
    def handle(self) -> None:
        """Let the machine handle what was reported first."""
        event = self.posted.pop(0)
        self.carry_out(self.member.send(event))

    @precondition(lambda self: self.plans)
    @rule(fails=st.integers(0, 5))
    def plan(self, *, fails: int) -> None:
        """Plan the next view, or fail to: also without this node, which did not stop in time and would leave."""
        plan = self.plans.pop(0).plan
        if fails == 0 or "a" in plan.lost:
            self.carry_out(self.member.send(NotPlanned("s", 1, BadFileError("no"))))
        else:
            self.carry_out(self.member.send(Planned("s", 1, plan.ballot, self.next_view())))

    # Users and other members.

    def next_view(self) -> ViewDecision:
        """Return the next view, with all members."""
        return ViewDecision(View(self.view + 1, PLACES), ("a", "b", "c"), b"")

    def message(self, peer: str, message: Any) -> None:
        """Take in a message of another member."""
        self.carry_out(self.member.send(PeerSent(peer, 1, message)))

    @rule()
    def cancel(self) -> None:
        """Ask to cancel the session."""
        self.call("cancel", reason="", grace=1.0)

    @rule(is_sure=st.integers(0, 5))
    def delete(self, *, is_sure: int) -> None:
        """Now and then, delete the session."""
        if is_sure == 0:
            self.call("delete")

    @rule()
    def rebalance(self) -> None:
        """Ask for another view."""
        self.call("rebalance")

    def call(self, operation: str, **arguments: Any) -> None:
        """Call an operation."""
        self.calls += 1
        self.carry_out(self.member.call(self.calls, operation, session="s", **arguments))

    @precondition(lambda self: self.records)
    @rule()
    def record(self) -> None:
        """End writing a request to cancel."""
        record = self.records.pop(0)
        self.carry_out(self.member.send(CancelRecorded("s", 1, record.call, record.request)))

    @rule(peer=st.sampled_from(["b", "c"]), round_number=st.integers(1, 4))
    def prepare(self, peer: str, round_number: int) -> None:
        """Let another member be a candidate."""
        ballot = round_number, ord(peer) - ord("a")
        self.message(peer, PrepareView("s", 1, self.view, ballot))

    @precondition(lambda self: self.unanswered)
    @rule()
    def answer(self) -> None:
        """Let another member promise or accept what this one asked for."""
        peer, request = self.unanswered.pop(0)
        answer: ViewMessage
        if isinstance(request, PrepareView):
            answer = PromiseView("s", 1, request.view, request.ballot, msgspec.msgpack.encode(REPORT))
        else:
            answer = AcceptView("s", 1, request.view, request.ballot)
        self.message(peer, answer)

    @precondition(lambda self: self.promised == self.view)
    @rule()
    def adopt(self) -> None:
        """Let another member decide the next view, which has this one since it has stopped for it."""
        self.message("b", AdoptView("s", 1, self.view, msgspec.msgpack.encode(self.next_view())))

    @rule(is_decision=st.booleans())
    def end_elsewhere(self, *, is_decision: bool) -> None:
        """Let another member tell that the session is over."""
        over = msgspec.structs.replace(self.next_view(), is_over=True)
        adopt = AdoptView("s", 1, self.view, msgspec.msgpack.encode(over))
        self.message("c", adopt if is_decision else SessionDone("s", 1, self.view))

    @rule(peer=st.sampled_from(["b", "c"]))
    def finish_elsewhere(self, peer: str) -> None:
        """Let another member finish its part."""
        self.message(peer, PartDone("s", 1, self.view))

    @rule(seldom=st.integers(0, 5))
    def lose(self, *, seldom: int) -> None:
        """Now and then, start another member again."""
        if seldom == 0:
            self.carry_out(self.member.send(PeerRestarted("c", 2)))

    @rule(seconds=st.sampled_from([1.0, 20.0, 700.0]))
    def wait(self, seconds: float) -> None:
        """Advance the time."""
        self.member.now += seconds
        self.carry_out(self.member.machine.tick(self.member.now))

    def teardown(self) -> None:
        """Once it is cancelled, the session ends."""
        if self.member.machine.table.get("s") is None or self.removals:
            return
        self.call("cancel", reason="", grace=1.0)
        for _ in range(100):
            if self.records:
                self.record()
            elif self.posted:
                self.handle()
            elif self.work == "thread":
                self.step(finishes=True)
            elif self.work == "continue":
                self.continue_it(fails=1)
            elif self.work == "finish":
                self.finish()
        record = self.member.machine.table.get("s")
        assert record is not None
        assert self.is_ended
        assert record.phase in (Phase.ENDED, Phase.REMOVING)


OneEnding.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestOneEnding = OneEnding.TestCase

# What a node passes on of the messages of others.


@pytest.mark.parametrize(("epoch", "is_passed"), [(1, False), (2, True), (3, False)])
def test_events_of_another_deployment_are_not_passed_on(epoch: int, *, is_passed: bool) -> None:
    """A session takes in the events of its own deployment only: rows and states of another one mean something else."""
    passed: list[Any] = []
    hosted = object.__new__(HostedSession)
    hosted.epoch = 2
    hosted.events = cast(Any, SimpleNamespace(receive=lambda peer, message: passed.append((peer, message))))
    table = SessionTable({})
    table.visible = {"s": hosted}
    handlers = LinkHandlers("a", table, lambda _: None)
    message = Events.of("s", epoch, 1, drops=[1], states=[2], attempts=[1], causes=[-1])
    handlers.on_message(cast(ReceivedMessage, SimpleNamespace(message=message, peer="b")))

    assert passed == ([("b", message)] if is_passed else [])


def test_a_session_whose_files_cannot_be_removed_is_withdrawn(tmp_path: Path) -> None:
    """The machine of the node hears of it, so that no call waits for it forever."""
    jobs: list[Any] = []
    parts: Any = SimpleNamespace(links=None, work=jobs.append)
    host = SessionHost("n", SessionTable({}), directory=tmp_path, owner=parts, resources=parts)

    def withdraw() -> None:
        raise StorageError("the disk is read-only")

    hosted: Any = SimpleNamespace(withdraw=withdraw)
    host.effects()[WithdrawSession](WithdrawSession("s", 1, hosted))

    assert jobs[0]() == Removed("s", 1)
