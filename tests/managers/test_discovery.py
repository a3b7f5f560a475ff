"""Discovery of managers on loopback, with real multicast."""

import queue
import secrets
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from zeroconf import BadTypeInNameException, ServiceStateChange

from dropflow.api.node_records import ManagerInfo
from dropflow.errors import WorldError
from managers.discovery import TYPES, Announcement, Discovery, _Listener, interfaces_of

Pair = tuple[Discovery, Discovery]
# Announcements of other tests on this machine arrive too; the key distinguishes ours.
_KEY = secrets.token_hex(8)
_LIFE = secrets.randbits(40)
_NODE = Announcement(name="n1", role="node", url="http://127.0.0.1:8123", incarnation=_LIFE, version="1", key=_KEY)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two discoveries, as two processes have them."""
    try:
        first, second = Discovery(), Discovery()
    except WorldError as error:
        pytest.skip(f"no multicast on loopback here: {error}")
    yield first, second
    first.close()
    second.close()


@pytest.mark.slow
def test_managers_are_found_and_leave(pair: Pair) -> None:
    """A discovery that browses reports all that a manager announced, and when it leaves."""
    announcer, browser = pair
    events: queue.Queue[tuple[str, Announcement]] = queue.Queue()

    def record(what: str, announcement: Announcement) -> None:
        if announcement.key == _KEY:
            events.put((what, announcement))

    browser.browse("node", partial(record, "joined"), partial(record, "left"))
    announcer.announce(_NODE)

    assert events.get(timeout=60) == ("joined", _NODE)

    announcer.close()

    assert events.get(timeout=60) == ("left", _NODE)


@pytest.mark.slow
def test_a_callback_that_raises_does_not_end_browsing(pair: Pair) -> None:
    """The next manager is still reported."""
    announcer, browser = pair
    names: queue.Queue[str] = queue.Queue()

    def joined(announcement: Announcement) -> None:
        if announcement.key != _KEY:
            return
        names.put(announcement.name)
        if announcement.name == "n1":
            raise RuntimeError("on purpose")

    browser.browse("node", joined, lambda _: None)
    announcer.announce(_NODE)
    assert names.get(timeout=60) == "n1"
    announcer.announce(
        Announcement(name="n2", role="node", url="http://127.0.0.1:8124", incarnation=_LIFE + 1, key=_KEY)
    )

    assert names.get(timeout=60) == "n2"


@pytest.mark.parametrize("name", ["x", f"{'a' * 300}._dropflow-node._tcp.local."])
def test_a_name_that_cannot_be_one_does_not_end_browsing(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Any process of the network may announce it: it is logged, and not raised in zeroconf's thread."""
    refuse = MagicMock(side_effect=BadTypeInNameException(name))
    listener = _Listener("node", MagicMock(), MagicMock())
    listener.handle(
        zeroconf=cast(Any, SimpleNamespace(get_service_info=refuse)),
        service_type=TYPES["node"],
        name=name,
        state_change=ServiceStateChange.Added,
    )
    assert "is not valid" in caplog.text


@pytest.mark.slow
def test_announcing_returns_before_it_is_done(pair: Pair) -> None:
    """Another thread waits until the network accepts the name."""
    announcer, _ = pair
    announcer.announce(_NODE)

    assert announcer._threads[0].is_alive()
    announcer.settle()
    assert not announcer._threads[0].is_alive()


def test_loopback_servers_are_announced_on_loopback_only() -> None:
    """Other hosts cannot reach them."""
    assert interfaces_of("127.0.0.1") == interfaces_of("localhost") == ["127.0.0.1"]
    assert interfaces_of("10.1.2.3") == ["10.1.2.3"]


def test_an_announcement_has_nothing_but_what_is_public() -> None:
    """An announcement has the name, role, URL, incarnation, version and fingerprint of a manager, and nothing else."""
    info = ManagerInfo(
        name="n",
        role="node",
        url="http://h:1",
        version="2",
        host="h",
        process=1,
        incarnation=3,
        started=1.0,
        time=2.0,
        protocol=1,
        key="f" * 16,
        root="/secret",
    )

    announced = Announcement.of(info)

    assert announced == Announcement(name="n", role="node", url="http://h:1", incarnation=3, version="2", key="f" * 16)
    assert set(TYPES) == {"node", "island", "master", "daemon", "translator"}
    assert all(len(name.split(".")[0]) <= 16 for name in TYPES.values())
