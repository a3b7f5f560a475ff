"""The state machine of an island with children that answer late, twice, never, restart, and are removed."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dropflow.errors import LinkError
from dropflow.rest.schema import SessionDetail, SessionInfo
from managers.machine_calls import Answered, Unanswered
from tests.managers.composite.machine_world import MachineWorld, Node

_NAMES = ("a", "b", "c")
_SESSIONS = ("s", "t")
_names = st.sampled_from(_NAMES)
_sessions = st.sampled_from(_SESSIONS)
_LONGEST = {"children": 2.0, "nodes": 15.0, "sessions": 20.0, "session": 20.0, "delete": 70.0, "watch": 50.0}
"""Seconds within which each operation is answered, whatever the children do."""


class Island(RuleBasedStateMachine):
    """An island and three nodes, whose answers are made and delivered at any time.

    The oracle is what was shown before: versions of a child in a session only grow, and a session that was deleted is
    not shown again, unless it was deployed again.
    """

    @initialize()
    def begin(self) -> None:
        """Start with two sessions on all nodes."""
        self.world = MachineWorld(*_NAMES)
        self.answers: list[Answered | Unanswered] = []
        self.epoch = 0
        self.newest: dict[str, int] = {}
        self.deleted: dict[str, tuple[int, int]] = {}
        self.shown: dict[tuple[str, int, str], int] = {}
        self.checked: set[int] = set()
        for session in _SESSIONS:
            self.deploy(session, set(_NAMES))
        self.world.answer_all()

    # The children.

    @rule(session=_sessions, on=st.sets(_names, min_size=1))
    def deploy(self, session: str, on: set[str]) -> None:
        """Deploy a session on nodes, under a newer epoch."""
        self.epoch += 1
        for node in self.world.nodes.values():
            if node.name in on:
                node.sessions[session] = (self.epoch, 1, "RUNNING")

    @rule(name=_names, session=_sessions, is_over=st.booleans())
    def move(self, name: str, session: str, is_over: bool) -> None:  # noqa: FBT001 - drawn
        """Change or end the part of a node."""
        node = self.node(name)
        if node is not None and session in node.sessions and node.sessions[session][2] == "RUNNING":
            epoch, version, _ = node.sessions[session]
            node.sessions[session] = (epoch, version + 1, "FINISHED" if is_over else "RUNNING")

    @rule(name=_names)
    def restart(self, name: str) -> None:
        """Start a node again: it keeps the sessions that are over."""
        node = self.node(name)
        if node is not None:
            node.process += 1
            node.sessions = {key: found for key, found in node.sessions.items() if found[2] != "RUNNING"}

    @rule(name=_names, is_there=st.booleans())
    def change_children(self, name: str, is_there: bool) -> None:  # noqa: FBT001 - drawn
        """Remove a child, or add it (again)."""
        self.world.call("add_child" if is_there else "remove_child", url=f"http://{name}:8000")
        # With a child, its pending deletions are removed.
        node = self.node(name)
        for session in node.sessions if node is not None else ():
            self.deleted.pop(session, None)

    # Answers.

    @rule(data=st.data())
    def carry_out(self, data: st.DataObject) -> None:
        """Carry out a request at a child; the answer is delivered later, or never."""
        if self.world.asked:
            ask = data.draw(st.sampled_from(sorted(self.world.asked.values(), key=lambda ask: ask.id)))
            self.answers.append(self.world.outcome(ask))

    @rule(data=st.data(), is_kept=st.booleans())
    def deliver(self, data: st.DataObject, is_kept: bool) -> None:  # noqa: FBT001 - drawn
        """Deliver an answer, perhaps not for the last time."""
        if self.answers:
            number = data.draw(st.integers(0, len(self.answers) - 1))
            self.world.deliver(self.answers[number] if is_kept else self.answers.pop(number))

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """Fail a request without reaching the child."""
        if self.world.asked:
            number = data.draw(st.sampled_from(sorted(self.world.asked)))
            self.world.deliver(Unanswered(number, LinkError("nothing listens there")))

    @rule()
    def answer_all(self) -> None:
        """Answer all requests."""
        self.world.answer_all()

    @rule(seconds=st.sampled_from([0.05, 0.5, 1.0, 3.0, 20.0]))
    def advance(self, seconds: float) -> None:
        """Advance the virtual time."""
        self.world.advance(seconds)

    # Calls.

    @rule(operation=st.sampled_from(["sessions", "children", "nodes"]))
    def look(self, operation: str) -> None:
        """Request a list."""
        self.world.call(operation)

    @rule(session=_sessions)
    def look_at(self, session: str) -> None:
        """Request a session."""
        self.world.call("session", session=session)

    @rule(session=_sessions)
    def watch(self, session: str) -> None:
        """Wait for a change of a session."""
        self.world.call("watch", session=session, version=-1, seconds=10.0)

    @rule(session=_sessions, lost=st.sets(_names), is_answered=st.booleans())
    def delete(self, session: str, lost: set[str], is_answered: bool) -> None:  # noqa: FBT001 - drawn
        """Delete a session; some children cannot be reached."""
        self.world.call("delete", session=session)
        if is_answered:
            for ask in self.world.open("delete"):
                is_lost = self.world.nodes[ask.url].name in lost
                gone = Unanswered(ask.id, LinkError("nothing listens there"))
                self.world.deliver(gone if is_lost else self.world.outcome(ask))

    # The oracle.

    @invariant()
    def calls_are_answered_in_time_and_nothing_goes_back(self) -> None:
        """Each call has an answer by its deadline, and shows nothing that is older than what was shown before.

        That no call has two answers is checked by the world.
        """
        if not hasattr(self, "world"):
            return
        self.world.call("status")
        for number, found in self.world.returned.items():
            operation, arguments, _ = self.world.calls[number]
            if number not in self.checked:
                self.checked.add(number)
                if operation == "delete" and (found.error is None or "is deleted" in str(found.error)):
                    newest = self.newest.get(arguments["session"], 0)
                    self.deleted[arguments["session"]] = (newest, len(self.world.calls))
                for info in _infos(found.value[1] if operation == "status" else found.value):
                    self.check(info, number)
        for number in set(self.world.calls) - set(self.world.returned):
            operation, _, began = self.world.calls[number]
            assert self.world.now - began <= _LONGEST.get(operation, 5.0), operation

    def check(self, info: SessionInfo, number: int) -> None:
        """Compare what a call shows of a session with what was shown before."""
        epoch, last = self.deleted.get(info.session, (0, 0))
        assert info.epoch > epoch or number <= last, "a call after its deletion shows a session"
        self.newest[info.session] = max(self.newest.get(info.session, 0), info.epoch)
        for child, version in info.states.items():
            key = (info.session, info.epoch, child)
            assert version >= self.shown.get(key, 0), key
            self.shown[key] = version

    def node(self, name: str) -> Node | None:
        """Return a node."""
        return self.world.nodes.get(f"http://{name}:8000")

    def teardown(self) -> None:
        """Assert that every call is answered without further answers of children."""
        if hasattr(self, "world"):
            self.world.advance(120.0)
            assert set(self.world.calls) == set(self.world.returned)


def _infos(value: Any) -> list[SessionInfo]:
    if isinstance(value, SessionDetail):
        return [value]
    return [info for info in value if isinstance(info, SessionInfo)] if isinstance(value, tuple) else []


TestIsland = Island.TestCase
TestIsland.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
