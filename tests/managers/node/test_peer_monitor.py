from managers.deployment import Place
from managers.node.peer_monitor import PeerMonitor


class _Monitor:
    """A monitor with a clock, and links that receive from peers when the test requests it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.last_received: dict[str, tuple[int, float]] = {}
        self.peers = PeerMonitor("a", suspect_after=3.0, lost_after=15.0, now=0.0)

    def receive(self, *peers: str) -> None:
        """Receive a message from each of these peers."""
        for peer in peers:
            self.last_received[peer] = (1, self.now)

    def need(self, session: str, *peers: str) -> list[str]:
        """Let a session need these peers, which answer. Return the peers that are lost."""
        self.receive(*peers)
        places = {peer: Place(peer, f"tcp://{peer}:1", 1) for peer in peers}
        lost = [loss.peer for loss in self.peers.need(session, places, self.now)]
        return lost + [loss.peer for loss in self.peers.update(self.last_received, self.now)]

    def read(self, after: float) -> list[str]:
        """Advance the time, read the links, and return the peers that are lost."""
        self.now += after
        return [loss.peer for loss in self.peers.update(self.last_received, self.now)]


def test_a_pause_of_this_process_does_not_count_as_silence_of_peers() -> None:
    """After a pause of this process (stopped by Ctrl-Z, say) the others have their full time to answer again."""
    monitor = _Monitor()
    monitor.need("s", "b")
    monitor.read(0.5)

    assert monitor.read(100.0) == []
    assert [second for second in range(20) if monitor.read(1.0)] == [14]


def test_a_loss_at_the_time_of_a_deployment_is_reported() -> None:
    """A peer whose time is up just when another session is deployed or ends is lost for its own session."""
    monitor = _Monitor()
    monitor.need("s", "b")
    monitor.need("other", "c")
    monitor.read(0.5)
    for _ in range(14):
        monitor.receive("c")
        monitor.read(1.0)
    monitor.now += 1.2
    lost = monitor.need("another", "d")
    lost += [loss.peer for loss in monitor.peers.release("other", monitor.now)]

    assert lost + monitor.read(0.1) == ["b"]


def test_a_peer_that_was_not_needed_for_a_while_is_not_lost_when_it_is_needed_again() -> None:
    """Its silence counts from when it is needed, whenever the last session with it ended."""
    monitor = _Monitor()
    monitor.need("s", "b")
    monitor.read(0.5)
    monitor.peers.release("s", monitor.now)
    for _ in range(10):
        monitor.read(1.4)
    monitor.now += 1.0

    assert monitor.need("again", "b") == []
    assert monitor.read(0.2) == []
    assert monitor.peers.needed == {"b": {"again"}}


def test_links_are_read_only_while_peers_are_needed() -> None:
    """The deadline is infinite before the first session and after the last, and a period away in between."""
    monitor = _Monitor()
    idle = monitor.peers.deadline()
    monitor.need("s", "b")
    busy = monitor.peers.deadline()
    is_due = monitor.peers.tick(busy), monitor.peers.tick(busy)
    monitor.peers.release("s", 1.0)

    assert (idle, busy, monitor.peers.deadline()) == (float("inf"), 3.0 / 8, float("inf"))
    assert is_due == (True, False)


def test_what_a_missing_peer_does_is_reported() -> None:
    """A later process of a peer and a refusal end the wait for it; silence does only when its time is up."""
    monitor = _Monitor()
    places = {name: Place(name, f"tcp://{name}:1", 2) for name in "bcd"}
    monitor.peers.need("s", places, 0.0)
    monitor.peers.update({"d": (2, 0.0)}, 0.0)
    missing = monitor.peers.missing(places)
    silent = monitor.peers.trouble(missing)
    monitor.peers.refused("c", "unknown key")
    refused = monitor.peers.trouble(missing)
    monitor.peers.update({"b": (3, 0.0)}, 0.0)
    restarted = monitor.peers.trouble(missing)

    assert (sorted(missing), silent) == (["b", "c"], None)
    assert "node b at tcp://b:1 does not answer; node c at tcp://c:1 refuses: unknown key" in str(refused)
    assert "node b was restarted after the session was planned for it" in str(restarted)


def test_peers_without_a_connection_are_probed() -> None:
    """Only those that are needed and not lost, and no others until the answer; then those that refuse are lost."""
    monitor = _Monitor()
    monitor.need("s", "b", "c")
    monitor.peers.changed("b", is_down=True)
    monitor.peers.changed("z", is_down=True)
    assert monitor.peers.to_probe() == {"b": "tcp://b:1"}
    assert monitor.peers.to_probe() == {}
    lost = []
    for _ in range(10):
        monitor.now += 0.5
        lost += [(loss.peer, monitor.now) for loss in monitor.peers.probed({"b": True}, monitor.now)]
        monitor.peers.to_probe()
    assert lost == [("b", 3.5)]
    assert monitor.peers.to_probe() == {}


def test_peers_that_are_connected_again_are_not_probed() -> None:
    """Other changes of a link, such as an introduction, do not end that there is no connection."""
    monitor = _Monitor()
    monitor.need("s", "b")
    monitor.peers.changed("b", is_down=True)
    monitor.peers.changed("b", is_down=None)
    assert monitor.peers.to_probe() == {"b": "tcp://b:1"}
    monitor.peers.probed({"b": False}, 0.0)
    monitor.peers.changed("b", is_down=False)
    assert monitor.peers.to_probe() == {}


def test_a_process_that_a_later_view_still_names_is_lost_again() -> None:
    """A peer was started again, and another session has its new process: the older one is reported each time."""
    monitor = _Monitor()
    monitor.need("s", "b")
    new, old = (Place("b", "tcp://b:1", incarnation) for incarnation in (2, 1))
    first = monitor.peers.need("other", {"b": new}, 1.0)
    again = monitor.peers.need("s", {"b": old}, 2.0)
    replaced = [(loss.peer, loss.before, loss.is_final) for loss in monitor.peers.replaced({"b": old})]

    assert ([loss.peer for loss in first], again, replaced) == (["b"], [], [("b", 2, True)])
    assert monitor.peers.replaced({"b": new}) == []


def test_a_silent_peer_is_no_loss_before_it_counts_as_lost() -> None:
    """A peer that is only suspect keeps its part of the sessions."""
    monitor = PeerMonitor("a", suspect_after=3.0, lost_after=15.0, now=0.0)
    assert monitor.need("s", {"b": Place("b", "tcp://b:1", 1)}, 0.0) == []
    found = []
    for now in range(1, 20):
        found += [(now, loss.peer) for loss in monitor.update({"b": (1, 0.5)}, float(now))]

    assert [peer for _, peer in found] == ["b"]
    assert found[0][0] >= 15
