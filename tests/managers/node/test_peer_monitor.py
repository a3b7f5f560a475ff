from managers.deployment import Place
from managers.node.peer_monitor import PeerMonitor


class _Monitor:
    """A monitor with a clock, and links that receive from peers when the test requests it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.heard: dict[str, tuple[int, float]] = {}
        self.monitor = PeerMonitor("a", suspect_after=3.0, lost_after=15.0, now=0.0)

    def hear(self, *peers: str) -> None:
        """Something comes from these peers."""
        for peer in peers:
            self.heard[peer] = (1, self.now)

    def need(self, session: str, *peers: str) -> list[str]:
        """A session needs these peers, and they answer; which others are lost."""
        self.hear(*peers)
        places = {peer: Place(peer, f"tcp://{peer}:1", 1) for peer in peers}
        lost = [loss.peer for loss in self.monitor.need(session, places, self.now)]
        return lost + [loss.peer for loss in self.monitor.hear(self.heard, self.now)]

    def look(self, after: float) -> list[str]:
        """Time passes, and the links are read; which peers are lost then."""
        self.now += after
        return [loss.peer for loss in self.monitor.hear(self.heard, self.now)]


def test_a_pause_of_this_process_is_no_silence_of_others() -> None:
    """After a pause of this process (stopped by Ctrl-Z, say) the others have their full time to answer again."""
    watch = _Monitor()
    watch.need("s", "b")
    watch.look(0.5)

    assert watch.look(100.0) == []
    assert [second for second in range(20) if watch.look(1.0)] == [14]


def test_a_loss_at_the_time_of_a_deployment_is_reported() -> None:
    """A peer whose time is up just when another session is deployed or ends is lost for its own session."""
    watch = _Monitor()
    watch.need("s", "b")
    watch.need("other", "c")
    watch.look(0.5)
    for _ in range(14):
        watch.hear("c")
        watch.look(1.0)
    watch.now += 1.2
    lost = watch.need("another", "d")
    lost += [loss.peer for loss in watch.monitor.release("other", watch.now)]

    assert lost + watch.look(0.1) == ["b"]


def test_a_peer_that_was_not_needed_for_a_while_is_not_lost_when_it_is_needed_again() -> None:
    """Its silence counts from when it is needed, whenever the last session with it ended."""
    watch = _Monitor()
    watch.need("s", "b")
    watch.look(0.5)
    watch.monitor.release("s", watch.now)
    for _ in range(10):
        watch.look(1.4)
    watch.now += 1.0

    assert watch.need("again", "b") == []
    assert watch.look(0.2) == []
    assert watch.monitor.needed == {"b": {"again"}}


def test_links_are_read_only_while_peers_are_needed() -> None:
    """The deadline is infinite before the first session and after the last, and a period away in between."""
    watch = _Monitor()
    idle = watch.monitor.deadline()
    watch.need("s", "b")
    busy = watch.monitor.deadline()
    is_due = watch.monitor.tick(busy), watch.monitor.tick(busy)
    watch.monitor.release("s", 1.0)

    assert (idle, busy, watch.monitor.deadline()) == (float("inf"), 3.0 / 8, float("inf"))
    assert is_due == (True, False)


def test_what_a_missing_peer_does_is_reported() -> None:
    """A later process of a peer and a refusal end the wait for it; silence does only when its time is up."""
    watch = _Monitor()
    places = {name: Place(name, f"tcp://{name}:1", 2) for name in "bcd"}
    watch.monitor.need("s", places, 0.0)
    watch.monitor.hear({"d": (2, 0.0)}, 0.0)
    missing = watch.monitor.missing(places)
    silent = watch.monitor.trouble(missing)
    watch.monitor.refused("c", "unknown key")
    refused = watch.monitor.trouble(missing)
    watch.monitor.hear({"b": (3, 0.0)}, 0.0)
    restarted = watch.monitor.trouble(missing)

    assert (sorted(missing), silent) == (["b", "c"], None)
    assert "node b at tcp://b:1 does not answer; node c at tcp://c:1 refuses: unknown key" in str(refused)
    assert "node b was restarted after the session was planned for it" in str(restarted)
