"""The state machine of a node manager: transcripts of events and actions, and random orders of them."""

from collections.abc import Iterator
from functools import partial
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dropflow.api.requests import CancelRequest, DrainRequest
from dropflow.errors import ConflictError, GoneError, LinkError, NotFoundError, RestartedError, StorageError, UsageError
from dropflow.failure import Failure
from dropflow.states import SessionState
from managers.deployment import Deployment, Place
from managers.machine_calls import Call, CallId, Return
from managers.messages import AdoptView, SessionDone, StopSession
from managers.node.decisions.events import (
    Build,
    Built,
    CancelRecorded,
    CancelSession,
    Changed,
    Ended,
    LinkRefused,
    Log,
    LoseNode,
    NotBuilt,
    NotConnected,
    Over,
    PeerChanged,
    PeerRestarted,
    PeerSent,
    PeersRead,
    PeerStopped,
    ReadPeers,
    RecordCancel,
    Removed,
    RemoveSession,
    Retired,
    RetireSession,
    ShowWaiting,
    SilenceSession,
    StartSession,
)
from managers.node.decisions.machine import NodeMachine
from managers.node.decisions.sessions import Phase
from managers.recovery.vote import ConnectPeers, SendToPeer

BROKEN = Failure(code="DF900", kind="Bug", text="the session failed on node b")


def deployment(session: str = "s", epoch: int = 1, *, incarnation: int = 1) -> Deployment:
    """Return the deployment of a session on nodes a (this one) and b."""
    places = (Place("a", "tcp://a:1", incarnation), Place("b", "tcp://b:1", 1))
    return Deployment(session=session, epoch=epoch, graph="g", drops=2, created=0.0, places=places)


class Finished(msgspec.Struct, frozen=True):
    """A session that ended: only its directory is left."""

    name: str
    epoch: int = 1
    state: SessionState = SessionState.FINISHED
    is_certain: bool = True
    ends: tuple[bytes, ...] = ()


class Node:
    """A machine, a clock, and the answers to calls."""

    def __init__(self, *finished: str, kept: int = 20) -> None:
        self.machine = NodeMachine("a", 1, {name: Finished(name) for name in finished}, kept=kept)
        self.now = 0.0
        self.calls = 0
        self.returned: dict[int, Return] = {}

    def call(self, operation: str, **arguments: object) -> list[Any]:
        """Call an operation, and return the actions without answers."""
        self.calls += 1
        return self.send(Call(CallId(self.calls), partial(self.machine.operations[operation], **arguments)))

    def send(self, event: Any) -> list[Any]:
        """Let the machine handle an event, and return the actions without answers."""
        return self._sorted(self.machine.handle(event, self.now))

    def wait(self, seconds: float) -> list[Any]:
        """Advance the time and tick, and return the actions without answers."""
        self.now += seconds
        return self._sorted(self.machine.tick(self.now))

    def prepare(self, *, peers: bool = False, session: str = "s", epoch: int = 1) -> str:
        """Prepare a session completely."""
        self.call("prepare", deployment=deployment(session, epoch), seconds=10.0)
        self.send(Built(session, epoch, session, ("b",) if peers else ()))
        if peers:
            self.send(PeersRead({"b": (1, self.now)}))
        return session

    def end(self, session: str = "s", status: SessionState = SessionState.FINISHED) -> list[Any]:
        """End a session, and return the actions."""
        return [*self.send(Over(session, 1, status)), *self.send(Ended(session, 1))]

    def answer(self, call: int | None = None) -> object:
        """Return the answer to a call, by default the last one, or raise its error."""
        returned = self.returned[self.calls if call is None else call]
        if returned.error is not None:
            raise returned.error
        return returned.value

    @property
    def phase(self) -> Phase | None:
        """Return the phase of session s."""
        record = self.machine.table.get("s")
        return None if record is None else record.phase

    def _sorted(self, actions: list[Any]) -> list[Any]:
        for action in actions:
            if isinstance(action, Return):
                assert action.id not in self.returned, "a call is answered once"
                self.returned[action.id] = action
        return [action for action in actions if not isinstance(action, Return | Log)]


def test_a_session_from_its_preparation_to_its_removal() -> None:
    """Each event from build to delete has its actions, and each call its answer."""
    node = Node()
    assert node.call("prepare", deployment=deployment(), seconds=10.0) == [Build(deployment())]
    assert dict(node.machine.table.visible) == {}
    assert node.send(Built("s", 1, "hosted", ("b",))) == [ConnectPeers("s", 1, deployment().places[1:]), ReadPeers()]
    assert dict(node.machine.table.visible) == {"s": "hosted"}
    assert node.returned == {}
    assert node.send(PeersRead({"b": (1, 0.0)})) == []
    assert node.answer() is None
    assert node.call("start", session="s", epoch=1) == [StartSession("hosted")]
    assert node.answer() is None
    assert node.end() == []
    assert node.call("delete", session="s") == [RemoveSession("s", 1, "hosted")]
    assert node.send(Removed("s", 1)) == []
    assert node.answer() is None
    assert dict(node.machine.table.visible) == {}
    assert node.machine.deadline() == inf


def test_a_deployment_that_is_not_for_this_node_is_refused() -> None:
    """Without a place, for an earlier process, or while the node stops: nothing is built."""
    node = Node()
    refused = (
        (msgspec.structs.replace(deployment(), places=()), UsageError, "not for node a"),
        (deployment(incarnation=7), RestartedError, "node a was restarted"),
    )
    for wrong, kind, text in refused:
        assert node.call("prepare", deployment=wrong, seconds=1.0) == []
        with pytest.raises(kind, match=text):
            node.answer()
    node.call("close")
    node.call("prepare", deployment=deployment(), seconds=1.0)
    with pytest.raises(LinkError, match="node a is stopping"):
        node.answer()


def test_a_name_is_taken_once() -> None:
    """The same deployment again is answered with the first; another one is refused in each phase."""
    node = Node("old")
    node.call("prepare", deployment=deployment(), seconds=1.0)
    assert node.call("prepare", deployment=deployment(), seconds=1.0) == []
    node.call("prepare", deployment=deployment(epoch=2), seconds=1.0)
    with pytest.raises(ConflictError, match="a session 's' already, DEPLOYING"):
        node.answer()
    node.send(Built("s", 1, "hosted", ()))
    assert node.answer(1) is node.answer(2) is None
    node.call("prepare", deployment=deployment("old"), seconds=1.0)
    with pytest.raises(ConflictError, match="a session 'old' already, FINISHED"):
        node.answer()
    node.call("start", session="s", epoch=2)
    with pytest.raises(ConflictError, match="was deployed again"):
        node.answer()
    node.call("start", session="old", epoch=1)
    with pytest.raises(ConflictError, match="is over"):
        node.answer()


def test_a_failed_build_frees_the_name() -> None:
    """The deployer gets the error, and the name is free."""
    node = Node()
    node.call("prepare", deployment=deployment(), seconds=1.0)
    node.send(NotBuilt("s", 1, StorageError("disk full")))
    with pytest.raises(StorageError, match="disk full"):
        node.answer()
    assert node.phase is None
    assert node.call("prepare", deployment=deployment(), seconds=1.0)


@pytest.mark.parametrize(
    ("undo", "kind", "text"),
    [
        ("undo", LinkError, "undone while its peers were connected"),
        ("delete", GoneError, "session 's' was deleted before it started"),
        ("cancel", GoneError, "session 's' was cancelled before it started: enough"),
    ],
)
def test_a_session_that_connects_is_cancelled_before_it_is_removed(undo: str, kind: type[Exception], text: str) -> None:
    """It is cancelled and removed after its thread has ended; then both calls are answered."""
    node = Node()
    node.call("prepare", deployment=deployment(), seconds=1.0)
    node.send(Built("s", 1, "hosted", ("b",)))
    more: dict[str, dict[str, object]] = {
        "undo": {"epoch": 1, "reason": "b failed"},
        "cancel": {"reason": "enough", "grace": 5.0},
    }
    assert node.call(undo, session="s", **more.get(undo, {})) == [CancelSession("hosted", CancelRequest())]
    assert node.send(PeersRead({"b": (1, 0.0)})) == []
    assert list(node.returned) == ([2] if undo == "cancel" else [])
    assert node.end(status=SessionState.CANCELLED) == [RemoveSession("s", 1, "hosted")]
    node.send(Removed("s", 1))
    assert node.answer() in (None, "hosted")
    with pytest.raises(kind, match=text):
        node.answer(1)
    assert node.machine.deadline() == inf


def test_undo_does_not_wait_for_a_build() -> None:
    """It is answered without waiting; the session ends in its own thread as soon as it is built, and is removed."""
    node = Node()
    node.call("prepare", deployment=deployment(), seconds=1.0)
    assert node.call("undo", session="s", epoch=1, reason="late") == []
    assert node.answer() is None
    node.call("start", session="s", epoch=1)
    with pytest.raises(NotFoundError, match="no session 's'"):
        node.answer()
    assert node.send(Built("s", 1, "hosted", ("b",))) == [CancelSession("hosted", CancelRequest())]
    assert node.end(status=SessionState.CANCELLED) == [RemoveSession("s", 1, "hosted")]
    node.send(Removed("s", 1))
    with pytest.raises(GoneError, match="undone while it was prepared"):
        node.answer(1)
    node.call("prepare", deployment=deployment(), seconds=1.0)
    with pytest.raises(GoneError, match="undone before its deployment arrived"):
        node.answer()
    assert node.call("prepare", deployment=deployment(epoch=2), seconds=1.0)


def test_undo_waits_for_the_thread_of_a_started_session() -> None:
    """The directory of a session that was started stays until its thread has ended."""
    node = Node()
    node.prepare()
    node.call("start", session="s", epoch=1)
    assert node.call("undo", session="s", epoch=1, reason="late") == [CancelSession("s", CancelRequest())]
    assert node.phase is Phase.STOPPING
    assert node.send(Changed("s", 1, 2)) == []
    assert node.send(Over("s", 1, SessionState.CANCELLED)) == []
    assert node.send(Ended("s", 1)) == [RemoveSession("s", 1, "s")]


def test_peers_that_do_not_answer_are_named() -> None:
    """The session is removed, and the deployer gets the names of the peers."""
    node = Node()
    node.call("prepare", deployment=deployment(), seconds=2.0)
    node.send(Built("s", 1, "hosted", ("b",)))
    node.send(PeersRead({}))
    assert ReadPeers() in node.wait(1.0)
    assert CancelSession("hosted", CancelRequest()) in node.wait(1.0)
    node.end(status=SessionState.CANCELLED)
    node.send(Removed("s", 1))
    with pytest.raises(LinkError, match="cannot reach its peers: node b at tcp://b:1 does not answer"):
        node.answer()


@pytest.mark.parametrize(
    ("events", "kind", "text"),
    [
        ([NotConnected("s", 1, UsageError("not an address"))], UsageError, "not an address"),
        ([LinkRefused("b", "unknown key"), PeersRead({})], LinkError, "refuses: unknown key"),
        ([PeersRead({"b": (2, 0.0)})], RestartedError, "node b was restarted"),
        ([PeerRestarted("b", 2)], LinkError, "node b is lost: its process was started again"),
        ([PeerStopped("b", "s", 1, "enough")], LinkError, "undone"),
        ([PeerStopped("b", "s", 1, "", "b", BROKEN)], LinkError, "the session failed on node b"),
    ],
)
def test_events_of_peers_end_a_preparation(events: list[Any], kind: type[Exception], text: str) -> None:
    """If a peer refuses or was restarted, the wait ends immediately, and the deployer gets the reason."""
    node = Node()
    node.call("prepare", deployment=deployment(), seconds=100.0)
    node.send(Built("s", 1, "hosted", ("b",)))
    actions = [action for event in events for action in node.send(event)]
    node.end(status=SessionState.CANCELLED)
    node.send(Removed("s", 1))

    assert CancelSession("hosted", CancelRequest()) in actions
    with pytest.raises(kind, match=text):
        node.answer()


_ENOUGH = CancelRequest(reason="enough", grace=3.0)


def test_a_cancel_is_answered_when_it_is_on_the_disk() -> None:
    """The request is written first, then the session is cancelled and the call answered."""
    node = Node()
    node.prepare()
    node.call("start", session="s", epoch=1)
    assert node.call("cancel", session="s", reason="enough", grace=3.0) == [
        RecordCancel("s", 1, "s", node.calls, _ENOUGH)
    ]
    assert node.calls not in node.returned
    assert node.send(CancelRecorded("s", 1, node.calls, _ENOUGH)) == [CancelSession("s", _ENOUGH)]
    assert node.answer() == "s"


def test_a_cancel_of_a_session_that_is_deleted_meanwhile_is_answered() -> None:
    """The call does not wait for a session that is gone."""
    node = Node()
    node.prepare()
    node.call("cancel", session="s", reason="", grace=5.0)
    cancelling = node.calls
    node.call("delete", session="s")
    node.end(status=SessionState.CANCELLED)
    node.send(Removed("s", 1))
    node.send(CancelRecorded("s", 1, cancelling, CancelRequest()))

    assert node.answer(cancelling) is None


def test_a_session_that_is_being_built_is_cancelled_at_once() -> None:
    """Its deployer gets an error with the reason, and what was built is removed."""
    node = Node()
    node.call("prepare", deployment=deployment(), seconds=1.0)
    assert node.call("cancel", session="s", reason="enough", grace=3.0) == []
    assert node.answer() is None
    assert node.send(Built("s", 1, "hosted", ())) == [CancelSession("hosted", CancelRequest())]
    assert node.end(status=SessionState.CANCELLED) == [RemoveSession("s", 1, "hosted")]
    node.send(Removed("s", 1))
    with pytest.raises(GoneError, match="was cancelled before it started: enough"):
        node.answer(1)
    assert node.phase is None


@pytest.mark.parametrize("is_called", [True, False])
def test_a_session_that_is_cancelled_while_it_connects_to_known_peers_stays(*, is_called: bool) -> None:
    """If its peers answered before, it is prepared and ends as CANCELLED: its deployment does not fail."""
    node = Node()
    node.prepare(peers=True, session="before")
    node.call("prepare", deployment=deployment(), seconds=100.0)
    node.send(Built("s", 1, "hosted", ("b",)))
    request = CancelRequest(reason="enough")
    if is_called:
        cancel = partial(node.machine.operations["cancel"], session="s", reason="enough", grace=5.0)
        node.send(Call(CallId(9), cancel))
        actions = node.send(CancelRecorded("s", 1, 9, request))
    else:
        actions = node.send(PeerStopped("b", "s", 1, "enough"))
    assert actions == [CancelSession("hosted", request)]
    assert node.answer() is None
    node.call("start", session="s", epoch=1)
    assert node.answer() is None
    assert node.end(status=SessionState.CANCELLED) == []
    assert node.phase is Phase.ENDED


def test_links_are_read_again_after_a_change_while_a_session_connects() -> None:
    """The links are read again when one comes up; otherwise their changes need no action."""
    node = Node()
    node.call("prepare", deployment=deployment(), seconds=100.0)
    node.send(Built("s", 1, "hosted", ("b",)))
    assert node.send(PeerChanged("b")) == [ReadPeers()]
    node.send(PeersRead({"b": (1, 0.0)}))
    assert node.send(PeerChanged("b")) == []


def test_a_session_that_is_not_started_in_time_is_cancelled() -> None:
    """After a minute plus the time of its preparation, its thread ends it with the reason."""
    node = Node()
    node.prepare()
    assert node.wait(69.9) == []
    (cancel,) = node.wait(0.2)
    assert isinstance(cancel, CancelSession)
    assert "not started within 70 s" in cancel.request.reason
    assert node.phase is Phase.RUNNING


def test_a_loss_fails_the_sessions_that_need_that_process() -> None:
    """It fails a session that is not started yet, but none that was deployed to a later process of the node."""
    node = Node()
    node.prepare(peers=True)
    assert node.send(PeerRestarted("b", 1)) == []
    (lose,) = node.send(PeerRestarted("b", 2))
    assert isinstance(lose, LoseNode)
    assert (lose.hosted, lose.node, lose.failure.kind) == ("s", "b", "NodeLost")
    assert node.phase is Phase.RUNNING
    node.end(status=SessionState.FAILED)
    assert node.send(PeerRestarted("b", 3)) == []
    assert node.machine.deadline() == inf


def test_a_silent_peer_fails_sessions() -> None:
    """A peer that is silent for the given time is lost; the links are read often enough to notice."""
    node = Node()
    node.prepare(peers=True)
    lost = []
    while not lost and node.now < 60:
        for action in node.wait(0.5):
            assert action == ReadPeers()
            lost += node.send(PeersRead({"b": (1, 0.0)}))

    assert [type(action) for action in lost] == [LoseNode]
    assert 15 <= node.now <= 16


@pytest.mark.parametrize("has_left", [False, True])
def test_a_node_says_that_it_does_not_have_a_session(*, has_left: bool) -> None:
    """A voter that takes it for a member gets the answer that its part is lost, so that it does not wait for it.

    A node that leaves answers so from the moment when it begins to, although its session is there until it has stopped.
    """
    node = Node()
    if has_left:
        node.prepare(peers=True)
        node.call("start", session="s", epoch=1)
        node.call("undo", session="s", epoch=1, reason="")
        assert node.phase is Phase.STOPPING
    (answer,) = node.send(PeerSent("b", 1, AdoptView("s", 1, 0, b"")))
    assert isinstance(answer, SendToPeer)
    assert answer.peer == "b"
    assert isinstance(answer.message, StopSession)
    assert (answer.message.session, answer.message.epoch, answer.message.node) == ("s", 1, "a")
    assert answer.message.failure is not None
    assert answer.message.failure.text == "node a does not have session s any more"
    assert node.send(PeerSent("b", 1, SessionDone("s", 1, 0))) == []


def test_watch_returns_on_changes_ends_and_deadlines() -> None:
    """A call returns once: with a new version, at the end, at its deadline, or immediately if the session is over."""
    node = Node("old")
    node.prepare()
    for version, seconds in ((0, 9.0), (1, 0.0)):
        node.call("watch", session="s", version=version, seconds=seconds)
        assert node.answer() is None
    node.call("watch", session="old", version=7, seconds=9.0)
    assert node.answer() is None
    node.call("watch", session="s", version=1, seconds=5.0)
    changed = node.calls
    node.call("watch", session="s", version=1, seconds=1.0)
    node.wait(1.0)
    assert node.answer() is None
    assert changed not in node.returned
    node.send(Changed("s", 1, 2))
    assert node.answer(changed) is None
    node.call("watch", session="s", version=2, seconds=5.0)
    node.call("start", session="s", epoch=1)
    node.send(Over("s", 1, SessionState.FINISHED))
    assert node.answer(node.calls - 1) is None
    node.call("watch", session="x", version=0, seconds=1.0)
    with pytest.raises(NotFoundError, match="no session 'x'"):
        node.answer()
    assert node.machine.deadline() == inf


def test_old_sessions_are_removed_from_memory() -> None:
    """The oldest ended sessions are read from their directories; those that cannot be read stay in memory."""
    node = Node(kept=1)
    for name in ("s", "t"):
        node.prepare(session=name)
        node.call("start", session=name, epoch=1)
    assert node.end("s") == []
    assert node.end("t") == [RetireSession("s", 1, "s")]
    node.call("delete", session="s")
    assert node.send(Retired("s", 1, None)) == [RemoveSession("s", 1, "s")]
    node.send(Removed("s", 1, StorageError("busy")))
    with pytest.raises(StorageError, match="busy"):
        node.answer()
    node.prepare(session="u")
    node.call("start", session="u", epoch=1)
    assert node.end("u") == [RetireSession("s", 1, "s"), RetireSession("t", 1, "t")]
    node.send(Retired("s", 1, Finished("s")))
    assert node.machine.table.visible["s"] == Finished("s")
    assert node.phase is Phase.FINISHED


def test_a_deletion_of_an_earlier_deployment_is_refused() -> None:
    """A deletion that names a deployment removes no later one under the same name."""
    node = Node()
    node.prepare(epoch=2)
    node.call("start", session="s", epoch=2)
    node.call("delete", session="s", epoch=1)
    with pytest.raises(NotFoundError, match="'s' was deployed again"):
        node.answer()
    assert node.phase is Phase.RUNNING
    assert [type(action) for action in node.call("delete", session="s", epoch=2)] == [CancelSession]


def test_a_removal_that_takes_long_is_refused_and_done_later() -> None:
    """After ten seconds the call gets an error; the session is removed as soon as its thread has ended."""
    node = Node()
    node.prepare()
    node.call("start", session="s", epoch=1)
    node.call("delete", session="s")
    node.wait(10.0)
    with pytest.raises(ConflictError, match="does not stop"):
        node.answer()
    node.call("delete", session="s")
    assert node.end() == [RemoveSession("s", 1, "s")]
    node.send(Removed("s", 1))
    assert node.answer() is None


def test_a_node_closes_when_its_sessions_are_over() -> None:
    """Running ones are cancelled, those that are built are removed; what does not end in time is not waited for."""
    node = Node("old")
    node.prepare()
    node.call("prepare", deployment=deployment("t"), seconds=1.0)
    assert node.call("close") == [CancelSession("s", CancelRequest(reason="node a is stopping"))]
    node.send(Built("t", 1, "t", ()))
    assert node.end(status=SessionState.CANCELLED) == []
    assert 3 not in node.returned
    actions = node.machine.tick(node.now + 10.0)
    warnings = [action.text for action in actions if isinstance(action, Log) and action.is_warning]
    returns = {action.id: action.error for action in actions if isinstance(action, Return)}

    assert warnings == ["session 't' does not stop"]
    assert returns[3] is None
    assert isinstance(returns[2], GoneError | LinkError)


NAMES = st.sampled_from(["s", "t", "u"])
STALE = st.sampled_from([0, 0, 0, 1])
"""How many deployments ago: mostly the latest."""
PEERS = st.sampled_from([(), ("b",)])
SELDOM = st.sampled_from([False, False, False, True])


class AnyOrder(RuleBasedStateMachine):
    """A node with sessions that are built, run and removed by jobs and threads, which end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.machine = NodeMachine("a", 1, {"old": Finished("old")}, suspect_after=3.0, lost_after=15.0, kept=1)
        self.calls = 0
        self.open: set[int] = set()
        self.builds: list[Build] = []
        self.threads: dict[str, str] = {}
        """Hosted sessions that are started and not ended: "running", or "over"."""
        self.idle: set[str] = set()
        """Hosted sessions that are built and not started."""
        self.removals: list[RemoveSession] = []
        self.retirements: list[RetireSession] = []
        self.records: list[RecordCancel] = []
        self.epochs = dict.fromkeys("stu", 0)
        self.serial = 0

    def _call(self, operation: str, **arguments: object) -> None:
        self.calls += 1
        self.open.add(self.calls)
        self._send(Call(CallId(self.calls), partial(self.machine.operations[operation], **arguments)))

    def _send(self, event: Any) -> None:
        self._do(self.machine.handle(event, self.now))

    def _do(self, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case Return():
                    self.open.remove(action.id)  # KeyError: answered twice
                case Build():
                    self.builds.append(action)
                case StartSession() | CancelSession() | LoseNode():
                    assert action.hosted not in {removal.instance for removal in self.removals}
                    if action.hosted in self.idle:
                        self.idle.remove(action.hosted)
                        self.threads[action.hosted] = "running"
                    else:
                        assert not isinstance(action, StartSession)
                case RemoveSession():
                    assert action.instance not in self.threads, "a directory is removed under its thread"
                    assert action.instance not in self.idle, "a session that never ended leaves its engine open"
                    self.removals.append(action)
                case RetireSession():
                    assert action.hosted not in self.threads
                    self.retirements.append(action)
                case RecordCancel():
                    self.records.append(action)
                case ReadPeers() | ConnectPeers() | Log() | ShowWaiting() | SilenceSession():
                    pass
                case _:
                    raise AssertionError(action)

    @rule(session=NAMES, again=SELDOM, seconds=st.sampled_from([0.5, 30.0]))
    def prepare(self, session: str, seconds: float, *, again: bool) -> None:
        """Deploy."""
        self.epochs[session] += not again
        self._call("prepare", deployment=deployment(session, self.epochs[session]), seconds=seconds)

    @rule(session=NAMES, peers=PEERS, started=st.booleans())
    def deploy(self, session: str, peers: tuple[str, ...], *, started: bool) -> None:
        """Deploy without other events in between, if the name is free, so that more runs reach later phases."""
        self.prepare(session, 30.0, again=False)
        wanted = (session, self.epochs[session])
        build = next(
            (build_ for build_ in self.builds if (build_.deployment.session, build_.deployment.epoch) == wanted), None
        )
        if build is None:
            return
        self.builds.remove(build)
        self._built(build.deployment, peers)
        self._send(PeersRead({"b": (1, self.now)}))
        if started:
            self.start(session, 0)

    @rule(session=NAMES, stale=STALE)
    def start(self, session: str, stale: int) -> None:
        """Start."""
        self._call("start", session=session, epoch=self.epochs[session] - stale)

    @rule(session=NAMES, stale=STALE)
    def undo(self, session: str, stale: int) -> None:
        """Undo."""
        self._call("undo", session=session, epoch=self.epochs[session] - stale, reason="a test")

    @rule(session=st.sampled_from(["s", "t", "u", "old"]), operation=st.sampled_from(["cancel", "delete", "watch"]))
    def operate(self, session: str, operation: str) -> None:
        """Cancel, delete or watch."""
        more: dict[str, dict[str, object]] = {
            "cancel": {"reason": "", "grace": 5.0},
            "watch": {"version": 1, "seconds": 5.0},
        }
        self._call(operation, session=session, **more.get(operation, {}))

    @precondition(lambda self: self.builds)
    @rule(data=st.data(), peers=PEERS, fails=SELDOM)
    def build(self, data: st.DataObject, peers: tuple[str, ...], *, fails: bool) -> None:
        """End a build."""
        built = self.builds.pop(data.draw(st.integers(0, len(self.builds) - 1))).deployment
        if fails:
            self._send(NotBuilt(built.session, built.epoch, StorageError("disk full")))
            return
        self._built(built, peers)

    def _built(self, built: Deployment, peers: tuple[str, ...]) -> None:
        self.serial += 1
        hosted = f"{built.session}/{built.epoch}/{self.serial}"
        self.idle.add(hosted)
        self._send(Built(built.session, built.epoch, hosted, peers))

    @precondition(lambda self: self.threads)
    @rule(data=st.data(), status=st.sampled_from([state for state in SessionState if state.is_terminal]))
    def thread(self, data: st.DataObject, status: SessionState) -> None:
        """Let the thread of a session get its result, or end after it."""
        self._step(data.draw(st.sampled_from(sorted(self.threads))), status)

    def _step(self, hosted: str, status: SessionState) -> None:
        session, epoch, _ = hosted.split("/")
        if self.threads[hosted] == "running":
            self.threads[hosted] = "over"
            self._send(Over(session, int(epoch), status))
        else:
            del self.threads[hosted]
            self._send(Ended(session, int(epoch)))

    @precondition(lambda self: self.threads)
    @rule(data=st.data(), version=st.integers(2, 9))
    def change(self, data: st.DataObject, version: int) -> None:
        """Give a running session a new version."""
        session, epoch, _ = data.draw(st.sampled_from(sorted(self.threads))).split("/")
        self._send(Changed(session, int(epoch), version))

    @precondition(lambda self: self.records)
    @rule()
    def record(self) -> None:
        """End writing a request to cancel."""
        self._recorded(self.records.pop(0))

    def _recorded(self, record: RecordCancel) -> None:
        self._send(CancelRecorded(record.session, record.epoch, record.call, record.request))

    @precondition(lambda self: self.removals)
    @rule(fails=SELDOM)
    def remove(self, *, fails: bool) -> None:
        """End a removal."""
        removal = self.removals.pop(0)
        self._send(Removed(removal.session, removal.epoch, StorageError("busy") if fails else None))

    @precondition(lambda self: self.retirements)
    @rule(fails=SELDOM)
    def retire(self, *, fails: bool) -> None:
        """Let the read of a session from its directory succeed or fail."""
        retirement = self.retirements.pop(0)
        self._send(
            Retired(
                retirement.session, retirement.epoch, None if fails else Finished(retirement.session, retirement.epoch)
            )
        )

    @rule(last_received=st.sampled_from([{}, {"b": 1}, {"b": 1}, {"b": 1}, {"b": 2}]))
    def read(self, last_received: dict[str, int]) -> None:
        """Report a read of the links."""
        self._send(PeersRead({peer: (incarnation, self.now) for peer, incarnation in last_received.items()}))

    @rule(session=NAMES, kind=st.integers(0, 5))
    def peer(self, session: str, kind: int) -> None:
        """Report an event of a peer."""
        epoch = self.epochs[session]
        events = (
            PeerChanged("b"),
            LinkRefused("b", "unknown key"),
            PeerRestarted("b", 2),
            PeerStopped("b", session, epoch, "enough"),
            PeerStopped("b", session, epoch, "", "b", BROKEN),
            NotConnected(session, epoch, UsageError("not an address")),
        )
        self._send(events[kind])

    @rule(seconds=st.sampled_from([0.1, 0.1, 3.0, 20.0, 100.0]))
    def wait(self, seconds: float) -> None:
        """Advance the time."""
        self.now += seconds
        self._do(self.machine.tick(self.now))
        assert self.machine.deadline() > self.now, "the deadline has passed, so it would tick forever"

    @precondition(lambda self: self.calls > 15)
    @rule()
    def close(self) -> None:
        """Stop the node."""
        self._call("close")

    @precondition(lambda self: self.calls > 15)
    @rule(seconds=st.sampled_from([0.0, 10.0]), is_ending=st.booleans())
    def drain(self, seconds: float, *, is_ending: bool) -> None:
        """Drain the node, and wait until it is drained."""
        self._call("drain", node="a", request=DrainRequest(grace=seconds), is_ending=is_ending)
        self._call("drained")

    @invariant()
    def sessions_are_in_one_place(self) -> None:
        """What is visible is in the table, and what runs is visible as a hosted session."""
        table, visible = list(self.machine.table), self.machine.table.visible
        assert {record.name: record.instance for record in table if record.instance is not None} == dict(visible)
        for hosted in self.threads:
            assert visible[hosted.split("/")[0]] == hosted

    def teardown(self) -> None:
        """When the node is closed and all jobs and threads end, every call is answered and nothing is due."""
        self._call("close")
        for _ in range(1000):
            if not (self.builds or self.threads or self.removals or self.retirements or self.records):
                break
            for record in self._taken(self.records):
                self._recorded(record)
            for build in self._taken(self.builds):
                self._built(build.deployment, ("b",))
            for hosted in sorted(self.threads):
                self._step(hosted, SessionState.CANCELLED)
            for removal in self._taken(self.removals):
                self._send(Removed(removal.session, removal.epoch))
            for retirement in self._taken(self.retirements):
                self._send(
                    Retired(retirement.session, retirement.epoch, Finished(retirement.session, retirement.epoch))
                )

        if self.machine.deadline() < inf:
            self.wait(self.machine.deadline() - self.now)  # a drained node answers once managers above can have seen it
        assert self.open == set()
        assert self.idle == set()
        assert all(record.phase.is_quiet for record in self.machine.table)
        assert self.machine.deadline() == inf

    @staticmethod
    def _taken(pending: list[Any]) -> Iterator[Any]:
        while pending:
            yield pending.pop(0)


AnyOrder.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyOrder = AnyOrder.TestCase
