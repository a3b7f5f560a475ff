"""Links through a proxy that delays, stalls, throttles and cuts."""

import random
import threading

import pytest

from dropflow.testing.faults import ConnectionFaults, FaultyProxy
from managers.keys import ClusterKey
from managers.links import (
    BufferSource,
    LinkEvent,
    LinkSettings,
)
from managers.messages import StopSession
from tests.managers.links.conftest import CONTENT, HASTY, LinkFactory, wanted_content

pytestmark = pytest.mark.usefixtures("nothing_leaks")


FAULTS = {
    "cuts": ConnectionFaults(cut_every=150_000),
    "delays": ConnectionFaults(delay=0.01),
    "stalls": ConnectionFaults(stall=0.3, cut_every=400_000),
    "throttle": ConnectionFaults(rate=3_000_000),
    "everything": ConnectionFaults(cut_every=300_000, delay=0.003, stall=0.1, rate=8_000_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "curve"])
def test_a_hostile_network_loses_nothing(
    link_factory: LinkFactory, key: ClusterKey, faults: ConnectionFaults, *, secure: bool
) -> None:
    """Through a proxy that delays, stalls, throttles and cuts in mid-frame, messages and content arrive intact."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    draw = random.Random(seed)  # noqa: S311 - no secret
    settings = LinkSettings(
        heartbeat=0.1,
        receive_timeout=1.0,
        reconnect_delay=0.01,
        reconnect_delay_limit=0.05,
        window=400_000,
        flight=200_000,
    )
    options = {"key": key if secure else None, "settings": settings}
    a, _ = link_factory.open("a", **options)
    b, at_b = link_factory.open("b", open_content=lambda *_: BufferSource(CONTENT), **options)
    port = int(b.address.rpartition(":")[2])
    with FaultyProxy(("127.0.0.1", port), seed, faults) as proxy:
        a.connect("b", f"tcp://127.0.0.1:{proxy.port}")
        fetched = bytearray()
        fetcher = threading.Thread(target=lambda: a.fetch("b", wanted_content(1), lambda _, data: fetched.extend(data)))
        fetcher.start()
        sent = []
        for number in range(120):
            frames = tuple(draw.randbytes(draw.choice([0, 100, 40_000])) for _ in range(draw.randrange(2)))
            a.send("b", StopSession("s", 1, str(number)), frames)
            sent.append(("a", str(number), frames))
        at_b.wait(lambda: len(at_b.messages) >= len(sent), 60.0)
        fetcher.join(60.0)
        a.close()

        assert at_b.messages == sent
        assert fetched == CONTENT
        assert (proxy.cuts > 0) == bool(faults.cut_every)


def test_a_connection_that_goes_dead_is_replaced(link_factory: LinkFactory) -> None:
    """If a network drops all packets without an error, the links detect it and open a new connection."""
    (a, at_a), (b, at_b) = link_factory.open("a", settings=HASTY), link_factory.open("b")
    port = int(b.address.rpartition(":")[2])
    with FaultyProxy(("127.0.0.1", port), 1, ConnectionFaults()) as proxy:
        a.connect("b", f"tcp://127.0.0.1:{proxy.port}")
        a.send("b", StopSession("s", 1, "one"))
        at_b.wait(lambda: at_b.texts() == ["one"])
        proxy.faults = ConnectionFaults(delay=1e6)
        a.send("b", StopSession("s", 1, "two"))
        at_a.wait_event(LinkEvent.DOWN)
        proxy.faults = ConnectionFaults()
        at_b.wait(lambda: at_b.texts() == ["one", "two"])
        a.close()
