"""What becomes of sessions when a node is lost, stuck or started again at an awkward moment."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from dropflow.clock import SystemClock
from dropflow.engine.session import Session
from dropflow.errors import GoneError, LinkError, RestartedError
from dropflow.graph.builder import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.testing.clock import VirtualClock
from dropflow.testing.proxy import Cruelty, HostileProxy
from managers.deployment import Deployment, Place
from managers.links import LinkSettings
from managers.messages import Events, StopSession
from managers.node import hosted_session
from managers.node.manager import NodeManager
from managers.node.watch import PeerWatch
from tests.managers.node.conftest import Cluster, until

Make = Callable[..., Cluster]

STUCK = Cruelty(rate=1)


def _function(code: str) -> dict[str, object]:
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    return {"component": "dlg.apps.pyfunc.PyFuncApp", "arguments": fields}


def _waiting() -> PhysicalGraph:
    """An application on a that sleeps, and one on b that waits for what it makes."""
    drawing = GraphBuilder("waiting")
    sleep = {"component": "dlg.apps.simple.SleepApp", "arguments": (Argument(name="sleep_time", value=60.0),)}
    drawing.app("MAKE", **sleep).data("data").app("TAKE", part=1)
    return drawing.connect("MAKE", "data").connect("data", "TAKE").build()


def _spraying(count: int) -> PhysicalGraph:
    """So many contents of some KB, one after the other, each made on a and wanted on b."""
    drawing = GraphBuilder("spraying")
    for at in range(count):
        made, wanted = f"d{at}", f"TAKE{at}"
        drawing.app(f"MAKE{at}", **_function("def f(): return bytes(3500)")).data(made).app(wanted, part=1)
        drawing.connect(f"MAKE{at}", made, source_port="out").connect(made, wanted)
    return drawing.build()


def _ended(node: NodeManager, session: str = "s") -> str:
    return until(node, session, lambda detail: bool(detail.finished)).status


def _elsewhere(deployment: Deployment, node: str, **changes: object) -> Deployment:
    """The deployment with something else about one of its places."""
    places = (
        msgspec.structs.replace(place, **changes) if place.node == node else place  # type: ignore[arg-type]
        for place in deployment.places
    )
    return msgspec.structs.replace(deployment, places=tuple(places))


def test_a_deployment_that_fails_leaves_the_watch_over_others(make_cluster: Make) -> None:
    """A peer that one session could not reach is still watched for the others that have it."""
    cluster = make_cluster(2, lost_after=1.0)
    cluster.start(_waiting(), session="going")
    failing = _elsewhere(cluster.cut(_waiting(), session="failing"), "b", incarnation=7)
    for _ in range(3):
        with pytest.raises(RestartedError, match="b was started again"):
            cluster["a"].prepare(failing, seconds=0.1)
    cluster["b"]._links.close()

    assert _ended(cluster["a"], "going") == "FAILED"


def test_what_was_cut_for_an_earlier_process_is_refused_at_once(make_cluster: Make) -> None:
    """A node that was started again since does not let its peers wait for a process that is gone."""
    cluster = make_cluster(2)
    stale = _elsewhere(cluster.cut(_waiting()), "b", incarnation=7)

    with pytest.raises(RestartedError, match="node b was started again after session 's' was cut for it"):
        cluster["b"].prepare(stale, seconds=60.0)
    assert not cluster["b"].sessions()


class _Late(SystemClock):
    """A clock that was set back."""

    def now(self) -> float:
        """Forty seconds ago."""
        return super().now() - 40.0


def test_a_node_that_is_started_again_with_its_clock_set_back_is_of_use(tmp_path: Path) -> None:
    """Its peers take it for a later process than before, and sessions run on it."""
    with ExitStack() as stack:
        node = {
            name: stack.enter_context(closing(NodeManager(name, root=tmp_path / name, runner="threads")))
            for name in "ab"
        }
        graph = GraphBuilder("short").app("A", **_function("def f(): return 1")).data("d").app("B", part=1)  # type: ignore[arg-type]
        short = graph.connect("A", "d", source_port="out").connect("d", "B").build()
        assert {told.status for told in Cluster(node).run(short).values()} == {"FINISHED"}
        node["b"].close()
        again = NodeManager("b", root=tmp_path / "b", runner="threads", clock=_Late())
        node["b"] = stack.enter_context(closing(again))

        assert {told.status for told in Cluster(node).run(short, "again").values()} == {"FINISHED"}


def test_a_deployment_that_is_taken_back_waits_for_no_peer(make_cluster: Make) -> None:
    """A node that still reaches for its peers when the deployment fails elsewhere gives up at once."""
    cluster = make_cluster(2)
    deployment = _elsewhere(cluster.cut(_waiting()), "b", address="tcp://127.0.0.1:9", incarnation=2**60)
    pause, errors = threading.Event(), list[LinkError]()

    def prepare() -> None:
        with pytest.raises(LinkError, match="taken back") as caught:
            cluster["a"].prepare(deployment, seconds=600.0)
        errors.append(caught.value)

    thread = threading.Thread(target=prepare)
    thread.start()
    assert any(cluster["a"].sessions() or pause.wait(0.01) for _ in range(3000))
    cluster["a"].undo("s", deployment.epoch, "node b failed")
    thread.join(30.0)

    assert len(errors) == 1
    assert not cluster["a"].sessions()


def test_a_node_lost_between_prepare_and_start_fails_the_session(make_cluster: Make) -> None:
    """The start that comes then does not begin a session that nobody would end."""
    cluster = make_cluster(2, lost_after=1.0)
    deployment = cluster.cut(_waiting())
    cluster.prepare(deployment)
    cluster["b"]._links.close()
    status = _ended(cluster["a"])
    cluster["a"].start("s", deployment.epoch)

    assert status == "FAILED"
    assert "node b is lost" in cluster["a"].session("s").text


def test_a_restart_of_a_node_spares_sessions_with_its_new_life(make_cluster: Make) -> None:
    """News that an old process of a node is over does no harm to what was deployed to the new one."""
    cluster = make_cluster(2)
    deployment = cluster.start(_waiting())
    (now,) = (place.incarnation for place in deployment.places if place.node == "b")
    cluster["a"]._lost("b", now, "its process was started again")
    is_going = cluster["a"].session("s").status
    cluster["a"]._lost("b", now + 1, "its process was started again")

    assert is_going == "RUNNING"
    assert _ended(cluster["a"]) == "FAILED"


def test_a_session_that_is_taken_back_while_it_is_prepared_says_so(make_cluster: Make) -> None:
    """Whoever deploys hears that somebody else has undone it."""
    cluster = make_cluster(2)
    deployment = cluster.cut(_waiting())
    node = cluster["a"]
    reach = node._watch.reach

    def undone(*arguments: object, **options: float) -> None:
        reach(*arguments, **options)  # type: ignore[arg-type]
        node.undo("s", deployment.epoch, "a test")

    node._watch.reach = undone  # type: ignore[method-assign,assignment]
    with pytest.raises(GoneError, match="taken back"):
        node.prepare(deployment, seconds=5.0)

    assert node.sessions() == ()
    assert node._watch._wanted == {}


def test_who_deployed_and_died_leaves_no_session_behind(make_cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was prepared and is not started in time is cancelled on all nodes, and says why."""
    monkeypatch.setattr(hosted_session, "_PATIENCE", -9.8)
    cluster = make_cluster(2)
    deployment = cluster.cut(_waiting())
    cluster.prepare(deployment, seconds=10.0)
    cluster["a"].start("s", deployment.epoch)
    ended = cluster.end()

    assert [detail.status for detail in ended.values()] == ["CANCELLED", "CANCELLED"]
    assert "nobody started it" in ended["b"].text


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Callable[[], Cluster]]:
    """Two nodes with a session in which a has told b more than b takes: what goes to b does not arrive any more."""
    settings = LinkSettings(heartbeat=0.1, receive_timeout=1000.0, window=20_000, flight=10_000)
    with ExitStack() as stack:

        def make() -> Cluster:
            cluster = Cluster(
                {
                    name: stack.enter_context(
                        closing(
                            NodeManager(
                                name,
                                root=tmp_path / name,
                                runner="threads",
                                workers=2,
                                suspect_after=100.0,
                                lost_after=1000.0,
                                link_settings=settings,
                            )
                        )
                    )
                    for name in "ab"
                }
            )
            address = urlsplit(cluster["b"].links_address)
            assert address.hostname is not None
            assert address.port is not None
            proxy = stack.enter_context(HostileProxy((address.hostname, address.port), 1, Cruelty()))
            deployment = _elsewhere(cluster.cut(_spraying(60)), "b", address=f"tcp://127.0.0.1:{proxy.port}")
            cluster.prepare(deployment)
            proxy.cruelty = STUCK
            cluster["a"].start("s", deployment.epoch)
            windows = cluster["a"]._links._driver.windows
            assert _until(lambda: windows["b"].waiting > 0)
            return cluster

        yield make


def _until(holds: Callable[[], bool]) -> bool:
    pause = threading.Event()
    return any(holds() or pause.wait(0.01) for _ in range(2000))


def test_a_session_is_cancelled_though_a_peer_takes_nothing(stuck: Callable[[], Cluster]) -> None:
    """Its thread waits for room to tell the peer something, and stops waiting; it can be deleted as well."""
    cluster = stuck()
    cluster["a"].cancel("s", "enough")
    status = _ended(cluster["a"])
    cluster["a"].delete("s")

    assert status == "CANCELLED"
    assert cluster["a"].sessions() == ()


def test_a_session_fails_though_a_peer_takes_nothing(stuck: Callable[[], Cluster]) -> None:
    """A peer that falls silent behind much that it was to be told is lost like any other."""
    cluster = stuck()
    cluster["a"]._lost("b", 2**62, "silent for 15 s")

    assert _ended(cluster["a"]) == "FAILED"
    assert "node b is lost" in cluster["a"].session("s").text


class _FakeLinks:
    """Links to peers that were heard when the test says so."""

    name = "a"

    def __init__(self) -> None:
        self.moments: dict[str, tuple[int, float]] = {}

    def last_seen(self) -> dict[str, tuple[int, float]]:
        """As told."""
        return dict(self.moments)

    def connect(self, peer: str, address: str) -> None:
        """Nothing to do."""


class _Watch:
    """A watch that looks when the test says so, at peers that are heard when the test says so."""

    def __init__(self) -> None:
        self.clock, self.links = VirtualClock(), _FakeLinks()
        self.watch = PeerWatch(
            self.links,  # type: ignore[arg-type]
            lambda *_: None,
            suspect_after=3.0,
            lost_after=15.0,
            clock=self.clock,
        )
        self.watch.close()  # its thread is not needed

    def hear(self, *peers: str) -> None:
        """Something comes from these."""
        for peer in peers:
            self.links.moments[peer] = (1, self.clock.monotonic())

    def reach(self, owner: str, *peers: str) -> None:
        """A session needs these, and they answer at once."""
        self.hear(*peers)
        self.watch.reach(owner, {peer: Place(peer, f"tcp://{peer}:1", 1) for peer in peers}, seconds=1.0)

    def look(self, after: float) -> list[str]:
        """Time passes; who is found to be lost then."""
        self.clock.advance(after)
        return [member.name for member, _ in self.watch._look()]


def test_who_was_held_up_blames_nobody() -> None:
    """After a pause of this process (stopped by Ctrl-Z, say) the others have their full time to be heard again."""
    watch = _Watch()
    watch.reach("s", "b")
    watch.look(0.5)

    assert watch.look(100.0) == []
    assert [second for second in range(20) if watch.look(1.0)] == [14]


def test_a_loss_that_a_deployment_comes_across_is_told() -> None:
    """A peer whose time is up just when another session is deployed or ends is lost for its own session."""
    watch = _Watch()
    watch.reach("s", "b")
    watch.reach("other", "c")
    watch.look(0.5)
    for _ in range(14):
        watch.hear("c")
        watch.look(1.0)
    watch.clock.advance(1.2)
    watch.reach("another", "d")
    watch.watch.release("other")

    assert watch.look(0.1) == ["b"]


def test_a_peer_that_nobody_needed_for_a_while_is_not_lost_when_it_is_needed_again() -> None:
    """Its silence counts from when it is wanted, whenever the last session with it ended."""
    watch = _Watch()
    watch.reach("s", "b")
    watch.look(0.5)
    watch.watch.release("s")
    for _ in range(10):
        watch.look(1.4)
    watch.clock.advance(1.0)
    watch.reach("again", "b")

    assert watch.look(0.2) == []
    assert watch.watch._wanted == {"b": {"again"}}


def test_a_session_that_ends_while_it_is_looked_at_is_told_consistently(
    make_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees the counts of before with the state of after: a session that is over has all its drops settled."""
    cluster = make_cluster(1)
    drawing = GraphBuilder("short").app("A", **_function("def f(): return 1")).data("d")
    cluster.start(drawing.connect("A", "d", source_port="out").build())
    hosted = cluster["a"]._sessions["s"]
    call = Session.call

    def late(live: Session, function: Callable[[object], object]) -> object:
        answer = call(live, function)
        if threading.current_thread() is not hosted._thread:
            hosted._thread.join()
        return answer

    monkeypatch.setattr(Session, "call", late)
    before = cluster["a"].session("s")
    after = cluster["a"].session("s")

    for detail in (before, after):
        if detail.status == "FINISHED":
            assert (detail.settled, detail.running, bool(detail.finished)) == (detail.drops, 0, True)
    assert after.status == "FINISHED"


def test_an_engine_that_fails_is_told_to_the_other_nodes(
    make_cluster: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for a node whose engine broke down: the session fails everywhere, and says where it began."""
    cluster = make_cluster(2)
    deployment = cluster.cut(_spraying(3))
    cluster.prepare(deployment)
    broken = cluster["a"]._sessions["s"]
    monkeypatch.setattr(broken.exchange, "tell", lambda _: 1 // 0)
    for name in ("a", "b"):
        cluster[name].start("s", deployment.epoch)
    ended = cluster.end()

    assert {detail.status for detail in ended.values()} == {"FAILED"}
    assert "the engine of node a failed: integer division" in ended["b"].text
    assert "this is a bug of dropflow" in caplog.text


def test_news_of_sessions_that_are_not_here_do_no_harm(make_cluster: Make) -> None:
    """Messages for sessions that are not prepared yet, deleted, or of another deployment are left out."""
    cluster = make_cluster(2)
    deployment = cluster.start(_waiting())
    known, other = deployment.epoch, deployment.epoch + 1
    links = cluster["b"]._links
    for session, epoch in (("unknown", 1), ("s", other), ("s", known - 1)):
        links.send("a", StopSession(session, epoch, "a test"))
        links.send("a", Events.of(session, epoch, 1, drops=[99], states=[2], attempts=[1], causes=[-1]))
    assert links.flush(10.0)
    before = cluster["a"].session("s").status
    links.send("a", StopSession("s", known, "a test"))

    assert before == "RUNNING"
    assert _ended(cluster["a"]) == "CANCELLED"
