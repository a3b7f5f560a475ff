"""How busy the processors of a host are."""

import threading
from types import SimpleNamespace

import psutil
import pytest

from dropflow.testing.fake_manager import VirtualClock
from managers.node.resources import ProcessorUse


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A host with two processors whose times the test sets; a sample of it is 12.5 %."""
    times = SimpleNamespace(user=0.0, system=0.0, idle=0.0, iowait=0.0)

    def now() -> object:
        class Times(tuple):  # type: ignore[type-arg]
            __slots__ = ()
            idle, iowait = times.idle, times.iowait

        return Times((times.user, times.system, times.idle, times.iowait))

    monkeypatch.setattr(psutil, "cpu_times", now)
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 12.5 if interval else 0.0)
    return times


def test_it_is_the_use_since_it_was_asked_last(host: SimpleNamespace) -> None:
    """Of four processor seconds, one was spent in programs, and waiting for disks counts as idle."""
    clock = VirtualClock()
    use = ProcessorUse(clock)
    clock.advance(2.0)
    host.user, host.idle, host.iowait = 1.0, 2.0, 1.0

    assert use.percent() == 25.0


def test_all_threads_get_the_same(host: SimpleNamespace) -> None:
    """The first request in a thread of the server gets the figure of others, and a second one at once does, too."""
    clock = VirtualClock()
    use = ProcessorUse(clock)
    clock.advance(2.0)
    host.system, host.idle = 3.0, 1.0
    found: list[float] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(use.percent()))
        thread.start()
        thread.join()

    assert found == [75.0, 75.0]


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_it_is_sampled_at_first_and_after_a_pause(host: SimpleNamespace, seconds: float) -> None:
    """An average of a minute is no longer how busy the host is now."""
    clock = VirtualClock()
    use = ProcessorUse(clock)
    clock.advance(seconds)
    host.user, host.idle = 60.0, 60.0

    assert use.percent() == 12.5
