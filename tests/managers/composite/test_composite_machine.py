"""The state machine of islands and masters, as transcripts: no threads, no clock."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dropflow.api.node_records import NodeInfo
from dropflow.api.requests import SubmitQuery
from dropflow.errors import LinkError, NotFoundError, StorageError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from managers.composite.children import ChildView, nodes_of
from managers.composite.machine import Disconnect
from managers.deployment import Deployment
from managers.machine_calls import Answered, Call, CallId, Unanswered
from managers.planning import plan_deployment
from tests.managers.composite.machine_world import MachineWorld
from tests.managers.composite.random_world import REQUESTS, HeldSession, RandomWorld, RestartableChild


def _operations(world: MachineWorld) -> list[tuple[str, str]]:
    return sorted(
        (ask.operation, ask.url.removeprefix("http://").removesuffix(":8000")) for ask in world.asked.values()
    )


def _asked_by_a_call(world: MachineWorld) -> list[str]:
    """Return the names of the children to which a request for sessions is sent."""
    before = set(world.asked)
    world.call("sessions")
    return sorted(world.nodes[world.asked[number].url].name for number in set(world.asked) - before)


def _states(world: MachineWorld, number: int) -> dict[str, int]:
    outcome = world.returned[number]
    assert outcome.error is None
    return dict(outcome.value.states)


def test_each_child_is_asked_once_per_period_with_one_request_at_a_time() -> None:
    """A child that does not answer gets no second status request, and the others are asked as before."""
    world = MachineWorld("a", "b")
    assert _operations(world) == [("status", "a"), ("status", "b")]

    slow = next(ask for ask in world.asked.values() if ask.url == "http://b:8000")
    for _ in range(2):
        for ask in [ask for ask in world.asked.values() if ask is not slow]:
            world.deliver(world.outcome(ask))
        assert _operations(world) == [("status", "b")]
        world.advance(1.0)
        assert _operations(world) == [("status", "a"), ("status", "b")]


def test_an_idle_child_with_known_sessions_gets_status_requests_only() -> None:
    """The session that is over is fetched once; after that its version is known."""
    world = MachineWorld("a")
    world.nodes["http://a:8000"].sessions["s"] = (1, 7, "FINISHED")
    world.answer_all("status")
    assert _operations(world) == [("session", "a")]
    world.answer_all()

    for _ in range(3):
        world.advance(1.0)
        assert _operations(world) == [("status", "a")]
        world.answer_all()
    assert world.asked == {}


def test_many_changed_sessions_are_fetched_with_one_request() -> None:
    """A composite that was started again gets the sessions of a child in one list."""
    world = MachineWorld("a")
    world.nodes["http://a:8000"].sessions.update({f"s{number}": (1, 7, "FINISHED") for number in range(100)})
    world.answer_all("status")

    assert _operations(world) == [("sessions", "a")]


def test_a_session_is_merged_from_the_answers_of_all_children() -> None:
    """The call is answered when all have answered, and not before."""
    world = MachineWorld("a", "b")
    for node in world.nodes.values():
        node.sessions["s"] = (1, 3, "RUNNING")
    world.answer_all()

    number = world.call("session", session="s")
    assert _operations(world) == [("session", "a"), ("session", "b")]
    world.deliver(world.outcome(next(world.open())))
    assert number not in world.returned
    world.answer_all()

    assert _states(world, number) == {"a": 3, "b": 3}


def test_a_late_answer_does_not_replace_a_newer_one() -> None:
    """An answer that is older than the last one is ignored."""
    world = MachineWorld("a")
    node = world.nodes["http://a:8000"]
    node.sessions["s"] = (1, 3, "RUNNING")
    world.answer_all()
    first = world.call("session", session="s")
    old = world.outcome(next(world.open("session")))
    node.sessions["s"] = (1, 4, "RUNNING")
    second = world.call("session", session="s")
    world.deliver(world.outcome(list(world.asked.values())[-1]))
    world.deliver(old)

    assert (_states(world, second), _states(world, first)) == ({"a": 4}, {"a": 4})


def test_a_child_that_missed_a_deadline_is_asked_after_its_next_status() -> None:
    """The call names it, and the next one does not wait for it. After its next status it is asked again."""
    world = MachineWorld("a", "b")
    for node in world.nodes.values():
        node.sessions["s"] = (1, 3, "RUNNING")
    world.answer_all()
    number = world.call("sessions")
    for ask in [ask for ask in world.asked.values() if "a" in ask.url]:
        world.deliver(world.outcome(ask))
    world.advance(2.0)
    assert number in world.returned

    assert _asked_by_a_call(world) == ["a"]
    world.answer_all("status")
    world.advance(1.0)
    world.answer_all("status")
    assert _asked_by_a_call(world) == ["a", "b"]


def test_a_deleted_session_does_not_come_back_with_a_late_answer() -> None:
    """A list of sessions that was made before the deletion and arrives after it does not restore the session."""
    world = MachineWorld("a")
    world.nodes["http://a:8000"].sessions["s"] = (1, 3, "RUNNING")
    world.answer_all()
    world.call("sessions")
    old = world.outcome(next(world.open("sessions")))
    deleted = world.call("delete", session="s")
    world.answer_all("delete")
    world.deliver(old)
    listed = world.call("sessions")
    world.answer_all()

    assert world.returned[deleted].error is None
    assert world.returned[listed].value == ()


def test_a_session_is_deleted_on_a_child_that_was_away() -> None:
    """When the child answers again, it is asked to delete, and its session is not shown meanwhile."""
    world = MachineWorld("a", "b")
    for node in world.nodes.values():
        node.sessions["s"] = (1, 3, "RUNNING")
    world.answer_all()
    number = world.call("delete", session="s")
    for ask in [ask for ask in world.asked.values() if ask.operation == "delete"]:
        gone = Unanswered(ask.id, LinkError("nothing listens there"))
        world.deliver(gone if "b" in ask.url else world.outcome(ask))
    assert isinstance(world.returned[number].error, LinkError)
    call = world.call("session", session="s")
    world.answer_all("session")
    assert isinstance(world.returned[call].error, NotFoundError)

    world.advance(1.0)
    world.answer_all("status")
    assert ("delete", "b") in _operations(world)
    world.answer_all()
    assert not world.nodes["http://b:8000"].sessions


def test_watching_sends_one_long_poll_per_child_however_many_watch() -> None:
    """All calls are answered with the change that one long poll brought."""
    world = MachineWorld("a")
    node = world.nodes["http://a:8000"]
    node.sessions["s"] = (1, 3, "RUNNING")
    world.answer_all()
    first = world.call("session", session="s")
    world.answer_all()
    version = world.returned[first].value.version
    numbers = [world.call("watch", session="s", version=version, seconds=30.0) for _ in range(5)]
    world.answer_all("session")
    assert _operations(world).count(("watch", "a")) == 1

    node.sessions["s"] = (1, 4, "RUNNING")
    world.answer_all("watch")
    assert [_states(world, number) for number in numbers] == [{"a": 4}] * 5


def test_the_number_of_long_polls_is_limited() -> None:
    """With more sessions than long polls, the changes of the others come with the status of the child."""
    world = MachineWorld("a")
    node = world.nodes["http://a:8000"]
    node.sessions.update({f"s{number}": (1, 3, "RUNNING") for number in range(40)})
    world.answer_all()
    numbers = []
    for number in range(40):
        call = world.call("session", session=f"s{number}")
        world.answer_all("session")
        version = world.returned[call].value.version
        numbers.append(world.call("watch", session=f"s{number}", version=version, seconds=30.0))
        world.answer_all("session")
    assert len([ask for ask in world.asked.values() if ask.operation == "watch"]) == 16

    node.sessions = dict.fromkeys(node.sessions, (1, 4, "RUNNING"))
    world.advance(1.0)
    world.answer_all("status")
    assert all(_states(world, number) == {"a": 4} for number in numbers)


def test_requests_to_a_child_that_hangs_are_limited() -> None:
    """At most eight requests are sent at a time; those that waited too long are never sent."""
    world = MachineWorld("a")
    world.answer_all()
    calls = [world.call("sessions") for _ in range(20)]
    hanging = [ask for ask in world.asked.values() if ask.operation == "sessions"]
    assert len(hanging) == 8

    world.advance(15.0)
    assert all(number in world.returned for number in calls)
    for ask in hanging:
        world.deliver(world.outcome(ask))
    assert [ask for ask in world.asked.values() if ask.operation == "sessions"] == []


def test_late_answers_of_a_removed_child_are_ignored() -> None:
    """Its connections are closed, and a later status does not add it again."""
    world = MachineWorld("a", "b")
    world.answer_all()
    world.advance(1.0)
    late = [world.outcome(ask) for ask in world.asked.values() if "b" in ask.url]
    actions = world.machine.handle(
        Call(CallId(1_000), partial(world.machine.operations["remove_child"], "http://b:8000")), world.now
    )
    assert Disconnect("http://b:8000") in actions
    for event in late:
        world.deliver(event)
    number = world.call("children")

    assert [child.name for child in world.returned[number].value] == ["a"]


def test_the_session_of_a_removed_child_is_not_shown_when_its_answer_comes_late() -> None:
    """The answer was asked for while it was a child, about a session that no other answer told of."""
    world = MachineWorld("a", "b")
    world.answer_all()
    world.nodes["http://b:8000"].sessions["s"] = (1, 3, "RUNNING")
    call = world.call("session", session="s")
    late = [world.outcome(ask) for ask in world.asked.values() if ask.operation == "session"]
    world.call("remove_child", url="http://b:8000")
    for event in late:
        world.deliver(event)

    assert isinstance(world.returned[call].error, NotFoundError)
    listed = world.call("sessions")
    world.answer_all("sessions")
    assert world.returned[listed].value == ()


def test_a_removed_child_keeps_its_session_when_it_is_added_again() -> None:
    """A deletion that it has not got before its removal is not made up for later."""
    world = MachineWorld("a", "b")
    for node in world.nodes.values():
        node.sessions["s"] = (1, 3, "RUNNING")
    world.answer_all()
    world.call("delete", session="s")
    late = [ask for ask in world.asked.values() if ask.operation == "delete" and "b" in ask.url]
    world.call("remove_child", url="http://b:8000")
    for ask in late:
        world.deliver(Unanswered(ask.id, LinkError("nothing listens there")))
    world.answer_all("delete")
    world.call("add_child", url="http://b:8000")
    world.answer_all()
    listed = world.call("sessions")
    world.answer_all()

    assert list(world.nodes["http://b:8000"].sessions) == ["s"]
    assert [info.session for info in world.returned[listed].value] == ["s"]


def test_a_removed_child_gets_no_request_that_waited_for_others() -> None:
    """A deletion that waits for eight requests to a child is not sent to it after its removal, and is answered."""
    world = MachineWorld("a", "b")
    for node in world.nodes.values():
        node.sessions["s"] = (1, 3, "RUNNING")
    world.answer_all()
    for _ in range(8):
        world.call("sessions")
    deleted = world.call("delete", session="s")
    world.call("remove_child", url="http://b:8000")
    for ask in [ask for ask in world.asked.values() if ask.operation == "sessions"]:
        world.deliver(world.outcome(ask))

    assert [ask.url for ask in world.asked.values() if ask.operation == "delete"] == ["http://a:8000"]
    world.answer_all("delete")
    assert deleted in world.returned


def test_a_session_that_is_gone_does_not_come_back_with_a_late_answer() -> None:
    """Its only child does not have it any more, and an older answer comes after the one that told of that."""
    world = MachineWorld("a")
    node = world.nodes["http://a:8000"]
    node.sessions["s"] = (1, 3, "RUNNING")
    world.call("sessions")
    world.answer_all("status")
    old = world.outcome(next(world.open("sessions")))
    node.sessions.clear()
    world.advance(1.0)
    world.answer_all("status")
    world.deliver(old)
    status = world.call("status")

    assert world.returned[status].value[1] == ()


def test_a_late_deletion_spares_a_later_deployment_of_the_name() -> None:
    """A graph that is submitted under the name before the request reaches the child runs there."""
    world = MachineWorld("a", "b")
    for node in world.nodes.values():
        node.sessions["s"] = (1, 3, "RUNNING")
    world.answer_all()
    world.call("delete", session="s")
    for ask in [ask for ask in world.asked.values() if ask.operation == "delete"]:
        gone = Unanswered(ask.id, LinkError("nothing listens there"))
        world.deliver(gone if "b" in ask.url else world.outcome(ask))
    world.advance(1.0)
    world.answer_all("status")

    world.nodes["http://b:8000"].sessions["s"] = (2, 4, "RUNNING")
    world.answer_all()

    assert world.nodes["http://b:8000"].sessions == {"s": (2, 4, "RUNNING")}


def test_watching_a_session_that_is_deleted_is_refused() -> None:
    """The last state before the deletion is not returned as if the session went on."""
    world = MachineWorld("a")
    world.nodes["http://a:8000"].sessions["s"] = (1, 3, "RUNNING")
    world.answer_all()
    shown = world.call("session", session="s")
    world.answer_all("session")
    watched = world.call("watch", session="s", version=world.returned[shown].value.version, seconds=30.0)
    world.answer_all("session")
    world.call("delete", session="s")
    world.answer_all("delete", "session")

    assert isinstance(world.returned[watched].error, NotFoundError)


def test_after_a_pause_of_the_composite_no_child_is_suspect() -> None:
    """Time in which the process did not run does not count, for children and for deadlines."""
    world = MachineWorld("a")
    world.answer_all()
    number = world.call("sessions")
    world.now += 600.0
    world.take(world.machine.tick(world.now))
    assert number not in world.returned
    world.answer_all()

    children = world.call("children")
    assert number in world.returned
    assert [child.state for child in world.returned[children].value] == ["alive"]


def test_each_change_of_a_child_is_one_line_of_the_log() -> None:
    """That it is suspect, lost and alive again, or was started again; neither its first answer nor each request."""
    world = MachineWorld("a", "b")
    world.answer_all()
    away = world.nodes.pop("http://a:8000")
    for _ in range(100):
        world.advance(1.0)
        world.answer_all()
    assert world.log == ["node a is suspect: nothing listens there", "node a is lost: nothing listens there (for 15 s)"]
    world.log.clear()
    world.nodes[away.url] = away
    world.nodes["http://b:8000"].process += 1
    for _ in range(10):
        world.advance(1.0)
        world.answer_all()

    assert world.log == ["node b was started again", "node a is alive"]


def test_a_node_with_the_name_of_another_is_shown() -> None:
    """Of two nodes with one name the list has one, and its text tells the address of the other."""

    def child(url: str) -> ChildView:
        nodes = (NodeInfo(name="n", url=url),)
        return ChildView(url, "n", "node", "alive", text="", is_asked=True, is_unfit=False, nodes=nodes)

    (node,) = nodes_of([child("http://a:1"), child("http://b:1")], role="island")
    (single,) = nodes_of([child("http://a:1"), child("http://a:1")], role="island")

    assert (node.url, node.text) == ("http://a:1", "another node has this name: http://b:1")
    assert not single.text


def test_a_machine_without_children_needs_no_tick() -> None:
    """An idle master has no deadline."""
    world = MachineWorld()

    assert world.machine.deadline() == float("inf")
    assert isinstance(world.returned[world.call("session", session="s")].error, NotFoundError)


# The state machine of an island whose children answer late, twice or never, fail, restart, leave and join.
#
# Several calls are in flight at once, their answers overlap, and sessions are created, deployed, cancelled and deleted
# at the same time under the same names. `composite_model` checks all that the island requests and answers; when all is
# quiet, what it shows must be exactly what its children have.


_NAMES = ("a", "b", "c")
_SESSIONS = ("s", "t")
_names = st.sampled_from(_NAMES)
_sessions = st.sampled_from(_SESSIONS)
_numbers = st.integers(0, 10_000)
_some_names = st.sets(_names, min_size=1).map(lambda names: tuple(sorted(names)))
_MOST_CALLS = 6


def _graph(places: tuple[str, ...]) -> PhysicalGraph:
    builder = GraphBuilder("g")
    for name in places:
        builder.data(name)
    return replace(builder.build(), part=np.arange(len(places), dtype=np.int32), places=places)


_GRAPHS = {
    places: _graph(places) for places in [("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")]
}


class Island(RuleBasedStateMachine):
    """An island and three nodes."""

    @initialize(are_quiet=st.booleans())
    def begin(self, are_quiet: bool) -> None:  # noqa: FBT001 - drawn
        """Start, perhaps with all children known."""
        self.world = RandomWorld(*_NAMES)
        self.answers: list[Answered | Unanswered] = []
        self.prepared: list[Deployment] = []
        if are_quiet:
            self.world.answer("status")

    # The children.

    @rule(session=_sessions, on=_some_names)
    def deploy_elsewhere(self, session: str, on: tuple[str, ...]) -> None:
        """Deploy a session on nodes without the island, under a newer epoch."""
        epoch = int(self.world.now * 1e6)
        for name in on:
            node = self.node(name)
            if session not in node.sessions:
                node.sessions[session] = HeldSession(epoch, 1, "RUNNING", whole=len(on))

    @rule(number=_numbers, status=st.sampled_from(["RUNNING", "RUNNING", "FINISHED", "FAILED"]))
    def move(self, number: int, status: str) -> None:
        """Change or end a part of a session."""
        running = [
            (node, name)
            for node in self.world.nodes.values()
            for name, held in node.sessions.items()
            if held.status == "RUNNING"
        ]
        if running:
            node, name = running[number % len(running)]
            node.sessions[name] = node.sessions[name].become(status)

    @rule(name=_names)
    def restart(self, name: str) -> None:
        """Start a node again."""
        self.node(name).restart()

    @rule(name=_names, is_up=st.booleans())
    def change_reach(self, name: str, is_up: bool) -> None:  # noqa: FBT001 - drawn
        """Put a node out of reach, or into reach."""
        self.node(name).is_up = is_up

    @rule(name=_names, how=st.sampled_from(["add_child", "remove_child", "configure", "depart"]))
    def change_children(self, name: str, how: str) -> None:
        """Add or remove a child."""
        url = self.node(name).url
        if how == "configure":
            self.world.configure(url)
        elif how == "depart":
            self.world.depart(url)
        else:
            self.call(how, url=url)

    # Answers.

    @rule(number=_numbers)
    def carry_out(self, number: int) -> None:
        """Carry out a request at a child; the answer is delivered later, or never."""
        if numbers := self.world.open():
            self.answers.append(self.world.carry_out(numbers[number % len(numbers)]))

    @rule(number=_numbers, is_kept=st.booleans())
    def deliver(self, number: int, is_kept: bool) -> None:  # noqa: FBT001 - drawn
        """Deliver an answer, perhaps not for the last time."""
        if self.answers:
            number %= len(self.answers)
            self.world.deliver(self.answers[number] if is_kept else self.answers.pop(number))

    @rule(number=_numbers, status=st.sampled_from(["RUNNING", "FINISHED"]), operation=st.sampled_from(REQUESTS))
    def overtake(self, number: int, status: str, operation: str) -> None:
        """Carry out a request, change a part, answer other requests, and deliver the answer after theirs."""
        if numbers := self.world.open(*REQUESTS[1:], "watch"):
            late = self.world.carry_out(numbers[number % len(numbers)])
            self.move(number, status)
            for other in self.world.open(operation):
                if other != late.id:
                    self.world.deliver(self.world.carry_out(other))
            self.world.deliver(late)

    @rule(
        number=_numbers, error=st.sampled_from([LinkError("nothing listens there"), StorageError("the disk is full")])
    )
    def fail(self, number: int, error: LinkError | StorageError) -> None:
        """Fail a request without an effect."""
        if numbers := self.world.open(*REQUESTS[1:], "watch"):
            self.world.deliver(Unanswered(numbers[number % len(numbers)], error))

    @rule(number=_numbers)
    def lose(self, number: int) -> None:
        """Carry out a request, and lose its answer."""
        if numbers := self.world.open(*REQUESTS[1:], "watch"):
            self.world.carry_out(numbers[number % len(numbers)])
            self.world.deliver(Unanswered(numbers[number % len(numbers)], LinkError("the connection was closed")))

    @rule(operation=st.sampled_from([*REQUESTS, "watch"]))
    def answer_some(self, operation: str) -> None:
        """Answer all requests of one operation."""
        self.world.answer(operation)

    @rule(number=_numbers)
    def answer_one(self, number: int) -> None:
        """Answer a request."""
        if numbers := self.world.open():
            self.world.deliver(self.world.carry_out(numbers[number % len(numbers)]))

    @rule(seconds=st.sampled_from([0.05, 0.5, 1.0, 3.0, 20.0]), prompt=st.sampled_from([(), ("status",), REQUESTS]))
    def advance(self, seconds: float, prompt: tuple[str, ...]) -> None:
        """Advance the time."""
        self.world.advance(seconds, *prompt)

    @rule()
    def pause(self) -> None:
        """Pause the island for longer than children may be silent."""
        self.world.pause(60.0)

    # Calls.

    @rule(operation=st.sampled_from(["status", "sessions", "children", "nodes"]))
    def look(self, operation: str) -> None:
        """Request a list."""
        self.call(operation)

    @rule(session=_sessions, operation=st.sampled_from(["session", "delete", "cancel", "watch"]))
    def call_session(self, session: str, operation: str) -> None:
        """Look at, delete, cancel or watch a session."""
        more: dict[str, Any] = {"cancel": {"reason": "", "grace": 5.0}, "watch": {"version": -1, "seconds": 4.0}}.get(
            operation, {}
        )
        if operation == "watch" and session in self.world.model.shown:
            more["version"] = self.world.model.shown[session].version
        self.call(operation, session=session, **more)

    @rule(session=_sessions, on=_some_names)
    def submit(self, session: str, on: tuple[str, ...]) -> None:
        """Submit a graph."""
        self.call("submit", graph=_GRAPHS[on], options=SubmitQuery(session=session))

    @rule(session=_sessions, on=_some_names)
    def prepare(self, session: str, on: tuple[str, ...]) -> None:
        """Prepare a deployment, as a master does."""
        nodes = [node.node() for node in self.world.nodes.values()]
        deployment = plan_deployment(_GRAPHS[on], SubmitQuery(session=session), nodes, clock=self.world.clock)
        self.prepared.append(deployment)
        self.call("prepare", deployment=deployment, seconds=5.0)

    @rule(number=_numbers, is_start=st.booleans())
    def start_or_undo(self, number: int, is_start: bool) -> None:  # noqa: FBT001 - drawn
        """Start or undo what a master has prepared."""
        if self.prepared:
            deployment = self.prepared[number % len(self.prepared)]
            if is_start:
                self.call("start", session=deployment.session, epoch=deployment.epoch)
            else:
                self.call("undo", session=deployment.session, epoch=deployment.epoch, reason="")

    @invariant()
    def look_often(self) -> None:
        """Look at what is known, without a request to a child."""
        if hasattr(self, "world") and "status" not in [call.operation for call in self.world.model.calls.values()]:
            self.call("status")

    # At rest.

    @rule()
    def settle(self) -> None:
        """Check what is shown when all is quiet."""
        self.world.settle()

    def teardown(self) -> None:
        """Check what is shown when all is quiet."""
        if hasattr(self, "world"):
            self.world.settle()
            self.world.leave()

    def call(self, operation: str, **arguments: Any) -> None:
        """Call an operation, unless there are so many calls that requests wait for others."""
        if len(self.world.model.calls) < _MOST_CALLS:
            self.world.call(operation, **arguments)

    def node(self, name: str) -> RestartableChild:
        """Return a node."""
        return self.world.nodes[f"http://{name}:8000"]


TestIsland = pytest.mark.slow(Island.TestCase)
TestIsland.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
