"""The state machine of islands and masters, as transcripts: no threads, no clock."""

from dropflow.errors import LinkError, NotFoundError
from managers.composite.machine import Disconnect
from managers.machine_calls import Call, Unanswered
from tests.managers.composite.machine_world import MachineWorld


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
    found = world.returned[number]
    assert found.error is None
    return dict(found.value.states)


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
    found = world.call("session", session="s")
    world.answer_all("session")
    assert isinstance(world.returned[found].error, NotFoundError)

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
    actions = world.machine.handle(Call(1_000, "remove_child", {"url": "http://b:8000"}), world.now)
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
    asked = world.call("session", session="s")
    late = [world.outcome(ask) for ask in world.asked.values() if ask.operation == "session"]
    world.call("remove_child", url="http://b:8000")
    for event in late:
        world.deliver(event)

    assert isinstance(world.returned[asked].error, NotFoundError)
    listed = world.call("sessions")
    world.answer_all("sessions")
    assert world.returned[listed].value == ()


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


def test_a_machine_without_children_needs_no_tick() -> None:
    """An idle master has no deadline."""
    world = MachineWorld()

    assert world.machine.deadline() == float("inf")
    assert isinstance(world.returned[world.call("session", session="s")].error, NotFoundError)
