"""The state machine of an island whose children answer late, twice or never, fail, restart, leave and join.

Several calls are in flight at once, their answers overlap, and sessions are created, deployed, cancelled and deleted
at the same time under the same names. `composite_model` checks all that the island requests and answers; when all is
quiet, what it shows must be exactly what its children have.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dropflow.api.records import SubmitQuery
from dropflow.errors import LinkError, StorageError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from managers.deployment import Deployment
from managers.machine_calls import Answered, Unanswered
from managers.planning import plan_deployment
from tests.managers.composite.random_world import REQUESTS, RandomWorld
from tests.managers.composite.restartable_child import HeldSession, RestartableChild

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
        if found := self.world.open():
            self.answers.append(self.world.carry_out(found[number % len(found)]))

    @rule(number=_numbers, is_kept=st.booleans())
    def deliver(self, number: int, is_kept: bool) -> None:  # noqa: FBT001 - drawn
        """Deliver an answer, perhaps not for the last time."""
        if self.answers:
            number %= len(self.answers)
            self.world.deliver(self.answers[number] if is_kept else self.answers.pop(number))

    @rule(number=_numbers, status=st.sampled_from(["RUNNING", "FINISHED"]), operation=st.sampled_from(REQUESTS))
    def overtake(self, number: int, status: str, operation: str) -> None:
        """Carry out a request, change a part, answer other requests, and deliver the answer after theirs."""
        if found := self.world.open(*REQUESTS[1:], "watch"):
            late = self.world.carry_out(found[number % len(found)])
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
        if found := self.world.open(*REQUESTS[1:], "watch"):
            self.world.deliver(Unanswered(found[number % len(found)], error))

    @rule(number=_numbers)
    def lose(self, number: int) -> None:
        """Carry out a request, and lose its answer."""
        if found := self.world.open(*REQUESTS[1:], "watch"):
            self.world.carry_out(found[number % len(found)])
            self.world.deliver(Unanswered(found[number % len(found)], LinkError("the connection was closed")))

    @rule(operation=st.sampled_from([*REQUESTS, "watch"]))
    def answer_some(self, operation: str) -> None:
        """Answer all requests of one operation."""
        self.world.answer(operation)

    @rule(number=_numbers)
    def answer_one(self, number: int) -> None:
        """Answer a request."""
        if found := self.world.open():
            self.world.deliver(self.world.carry_out(found[number % len(found)]))

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
            found = self.prepared[number % len(self.prepared)]
            if is_start:
                self.call("start", session=found.session, epoch=found.epoch)
            else:
                self.call("undo", session=found.session, epoch=found.epoch, reason="")

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
