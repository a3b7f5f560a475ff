"""What a node passes on of the messages of others."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dropflow.testing.fake_manager import VirtualClock
from managers.links import ReceivedMessage
from managers.messages import Events
from managers.node.host import SessionHost
from managers.node.hosted_session import HostedSession
from managers.node.sessions import SessionTable


@pytest.mark.parametrize(("epoch", "is_passed"), [(1, False), (2, True), (3, False)])
def test_events_of_another_deployment_are_not_passed_on(tmp_path: Path, epoch: int, *, is_passed: bool) -> None:
    """A session takes in the events of its own deployment only: rows and states of another one mean something else."""
    passed: list[Any] = []
    hosted = object.__new__(HostedSession)
    hosted.epoch = 2
    hosted.events = cast(Any, SimpleNamespace(receive=lambda peer, message: passed.append((peer, message))))
    table = SessionTable({})
    table.visible = {"s": hosted}
    host = SessionHost("a", table, directory=tmp_path, clock=VirtualClock())
    message = Events.of("s", epoch, 1, drops=[1], states=[2], attempts=[1], causes=[-1])
    host.on_message(cast(ReceivedMessage, SimpleNamespace(message=message, peer="b")))

    assert passed == ([("b", message)] if is_passed else [])
