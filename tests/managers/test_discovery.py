"""Managers that find each other on loopback, through real multicast."""

import queue
import secrets
from collections.abc import Iterator
from functools import partial

import pytest

from dropflow.errors import WorldError
from dropflow.rest.schema import ManagerInfo
from managers.discovery import TYPES, Announcement, Discovery, interfaces_of

Pair = tuple[Discovery, Discovery]
# Other tests on this machine are heard too: a key of our own tells ours apart.
_KEY = secrets.token_hex(8)
_LIFE = secrets.randbits(40)
_NODE = Announcement(name="n1", role="node", url="http://127.0.0.1:8123", incarnation=_LIFE, version="1", key=_KEY)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two processes' worth of discovery."""
    try:
        first, second = Discovery(), Discovery()
    except WorldError as error:
        pytest.skip(f"no multicast on loopback here: {error}")
    yield first, second
    first.close()
    second.close()


@pytest.mark.slow
def test_announced_managers_are_found_and_their_goodbye_is_heard(pair: Pair) -> None:
    """Who browses hears of a manager with all that it announced, and hears when it leaves."""
    talker, listener = pair
    heard: queue.Queue[tuple[str, Announcement]] = queue.Queue()

    def tell(what: str, found: Announcement) -> None:
        if found.key == _KEY:
            heard.put((what, found))

    listener.browse("node", partial(tell, "joined"), partial(tell, "left"))
    talker.announce(_NODE)

    assert heard.get(timeout=30) == ("joined", _NODE)

    talker.close()

    assert heard.get(timeout=30) == ("left", _NODE)


@pytest.mark.slow
def test_a_callback_that_fails_does_not_end_the_listening(pair: Pair) -> None:
    """An error while a manager is taken leaves the ears open for the next one."""
    talker, listener = pair
    heard: queue.Queue[str] = queue.Queue()

    def joined(found: Announcement) -> None:
        if found.key != _KEY:
            return
        heard.put(found.name)
        if found.name == "n1":
            raise RuntimeError("on purpose")

    listener.browse("node", joined, lambda _: None)
    talker.announce(_NODE)
    assert heard.get(timeout=30) == "n1"
    talker.announce(Announcement(name="n2", role="node", url="http://127.0.0.1:8124", incarnation=_LIFE + 1, key=_KEY))

    assert heard.get(timeout=30) == "n2"


@pytest.mark.slow
def test_announcing_returns_before_it_is_done(pair: Pair) -> None:
    """A manager need not wait for the network to agree on its name."""
    talker, _ = pair
    talker.announce(_NODE)

    assert talker._threads[0].is_alive()
    talker.settle()
    assert not talker._threads[0].is_alive()


def test_loopback_servers_are_announced_on_loopback_only() -> None:
    """A server that others cannot reach is not told to them."""
    assert interfaces_of("127.0.0.1") == interfaces_of("localhost") == ["127.0.0.1"]
    assert interfaces_of("10.1.2.3") == ["10.1.2.3"]


def test_an_announcement_has_nothing_but_what_is_public() -> None:
    """Of what a manager knows about itself only name, role, address, life, version and fingerprint are told."""
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

    told = Announcement.of(info)

    assert told == Announcement(name="n", role="node", url="http://h:1", incarnation=3, version="2", key="f" * 16)
    assert set(TYPES) == {"node", "island", "master", "daemon", "translator"}
    assert all(len(name.split(".")[0]) <= 16 for name in TYPES.values())
