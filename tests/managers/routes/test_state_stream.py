"""The states of drops as server-sent events."""

from base64 import b64decode
from collections.abc import Iterator
from threading import Event as Signal
from threading import Thread
from typing import Any

import msgspec
import numpy as np
import pytest

from dropflow.api.error_body import read_events
from dropflow.api.state_records import RUNNING
from dropflow.errors import LinkError, NotFoundError
from dropflow.states import DropState
from dropflow.testing.fake_manager import FakeManager, manager_with_sessions
from managers.routes.streams import state_events
from managers.state_hub import StateHub


def events_of(hub: StateHub, session: str, last: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield name, id and data of the events of a session."""
    for event in read_events(state_events(hub, session, Signal(), last=last) or iter(())):
        yield event.name, event.id, msgspec.json.decode(event.data)


def changes(data: dict[str, Any]) -> dict[int, int]:
    """Return the states in a change, by drop."""
    drops = np.frombuffer(b64decode(data["drops"]), dtype="<u4").tolist()
    return dict(zip(drops, b64decode(data["states"]), strict=True))


def test_all_states_come_first_then_changes_then_the_end() -> None:
    """A change has only the drops that have changed."""
    manager = manager_with_sessions()
    events = events_of(StateHub(manager), "running")
    name, _, data = next(events)
    assert name == "whole"
    states = b64decode(data["states"])
    assert len(states) == 41
    assert (states[0], states[6], states[40]) == (DropState.COMPLETED, RUNNING, DropState.INITIALIZED)

    manager.advance("running", {6: "COMPLETED"})
    name, _, data = next(events)
    assert (name, changes(data)) == ("change", {6: DropState.COMPLETED})
    manager.complete("running")
    assert next(events)[0] == "change"
    assert [name for name, _, _ in events] == ["end"]


def test_a_client_that_reconnects_gets_what_it_has_missed() -> None:
    """With the id of its last event; with an unknown one it gets all states. After the end there is nothing."""
    manager = manager_with_sessions()
    hub = StateHub(manager)
    events = events_of(hub, "running")
    _, first, _ = next(events)
    manager.advance("running", {6: "COMPLETED"})
    next(events)
    manager.advance("running", {7: "COMPLETED"})
    next(events)

    again = events_of(hub, "running", last=first)
    assert [changes(data) for _, _, data in (next(again), next(again))] == [{6: 2}, {7: 2}]
    assert next(events_of(hub, "running", last="other.3"))[0] == "whole"
    ended = list(events_of(hub, "finished"))
    assert state_events(hub, "finished", Signal(), last=ended[-1][1]) is None


def test_all_watchers_together_ask_the_manager_once() -> None:
    """Ten clients get the same octets from one request for each change."""

    class CountingManager(FakeManager):
        asked = 0

        def states(self, session: str, *, since: str = "") -> Any:
            self.asked += 1
            return super().states(session, since=since)

    manager = manager_with_sessions()
    manager.__class__ = CountingManager
    hub, closing = StateHub(manager), Signal()
    found: list[list[bytes]] = [[] for _ in range(10)]

    def watch(into: list[bytes]) -> None:
        into += state_events(hub, "running", closing) or ()

    threads = [Thread(target=watch, args=(into,)) for into in found]
    for thread in threads:
        thread.start()
    manager.complete("running")
    for thread in threads:
        thread.join(timeout=20)

    assert {into[-1] for into in found} == {found[0][-1]}
    assert manager.asked <= 2


def test_trouble_is_an_event_and_a_deleted_session_ends_the_stream() -> None:
    """Events go on after an error; a deletion is the last event."""
    manager = manager_with_sessions()
    events = events_of(StateHub(manager), "running")
    next(events)
    manager.refuse("watch", LinkError("nothing listens there"))
    name, _, data = next(events)
    assert (name, data["text"]) == ("trouble", "nothing listens there")

    manager.allow("watch")
    manager.delete("running")
    assert [name for name, _, _ in events] == ["gone"]


def test_an_unknown_session_is_refused() -> None:
    """Before the stream begins."""
    with pytest.raises(NotFoundError, match="there is no session 'other'"):
        state_events(StateHub(manager_with_sessions()), "other", Signal())
