"""Sessions when a node is lost, is stuck, or starts again, at any time."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest

from dropflow.clock import SystemClock
from dropflow.errors import GoneError, LinkError, NotFoundError, RestartedError
from dropflow.execution.session import Session
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from managers.deployment import Deployment, Place
from managers.links import LinkSettings
from managers.messages import Events, StopSession
from managers.node import host
from managers.node.decisions import lifecycle
from managers.node.decisions.events import PeerRestarted
from managers.node.manager import NodeManager
from tests.faulty_proxy import ConnectionFaults, FaultyProxy
from tests.managers.node.conftest import Cluster, handled, hosted, session_threads, soon, until

Make = Callable[..., Cluster]

STUCK = ConnectionFaults(rate=1)


def _function(code: str) -> dict[str, object]:
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    return {"component": "dlg.apps.pyfunc.PyFuncApp", "arguments": fields}


def _waiting() -> PhysicalGraph:
    """Return an application on a that sleeps, and one on b that waits for its output."""
    drawing = GraphBuilder("waiting")
    sleep = {"component": "dlg.apps.simple.SleepApp", "arguments": (Argument(name="sleep_time", value=60.0),)}
    drawing.app("MAKE", **sleep).data("data").app("TAKE", part=1)
    return drawing.connect("MAKE", "data").connect("data", "TAKE").build()


def _spraying(count: int) -> PhysicalGraph:
    """Return a sequence of contents of some KB, each written on a and read on b."""
    drawing = GraphBuilder("spraying")
    for at in range(count):
        made, wanted = f"d{at}", f"TAKE{at}"
        drawing.app(f"MAKE{at}", **_function("def f(): return bytes(3500)")).data(made).app(wanted, part=1)
        drawing.connect(f"MAKE{at}", made, source_port="out").connect(made, wanted)
    return drawing.build()


def _ended(node: NodeManager, session: str = "s") -> str:
    return until(node, session, lambda detail: bool(detail.finished)).status


def _elsewhere(deployment: Deployment, node: str, **changes: object) -> Deployment:
    """Return the deployment with changes to one of its places."""
    places = (
        msgspec.structs.replace(place, **changes) if place.node == node else place  # type: ignore[arg-type]
        for place in deployment.places
    )
    return msgspec.structs.replace(deployment, places=tuple(places))


@pytest.mark.slow
def test_a_failed_deployment_does_not_stop_monitoring_peers_of_others(make_cluster: Make) -> None:
    """A peer that one session could not reach is still monitored for the sessions that need it."""
    cluster = make_cluster(2, lost_after=1.0)
    cluster.start(_waiting(), session="going")
    failing = _elsewhere(cluster.cut(_waiting(), session="failing"), "b", incarnation=7)
    for _ in range(3):
        with pytest.raises(RestartedError, match="b was restarted"):
            cluster["a"].prepare(failing, seconds=60.0)
    cluster["b"]._links.close()

    assert _ended(cluster["a"], "going") == "FAILED"


def test_a_deployment_for_an_earlier_process_is_refused(make_cluster: Make) -> None:
    """A node that was started again since refuses before its peers wait for a process that has ended."""
    cluster = make_cluster(2)
    stale = _elsewhere(cluster.cut(_waiting()), "b", incarnation=7)

    with pytest.raises(RestartedError, match="node b was restarted after session 's' was planned for it"):
        cluster["b"].prepare(stale, seconds=60.0)
    assert not cluster["b"].sessions()


class _Late(SystemClock):
    """A clock that is forty seconds slow."""

    def now(self) -> float:
        """The time forty seconds ago."""
        return super().now() - 40.0


@pytest.mark.slow
def test_a_node_that_is_started_again_with_its_clock_set_back_runs_sessions(tmp_path: Path) -> None:
    """For its peers it is a later process than before, and sessions run on it."""
    with ExitStack() as stack:
        node = {
            name: stack.enter_context(closing(NodeManager(name, root=tmp_path / name, runner="threads")))
            for name in "ab"
        }
        graph = GraphBuilder("short").app("A", **_function("def f(): return 1")).data("d").app("B", part=1)  # type: ignore[arg-type]
        short = graph.connect("A", "d", source_port="out").connect("d", "B").build()
        assert {detail.status for detail in Cluster(node).run(short).values()} == {"FINISHED"}
        node["b"].close()
        again = NodeManager("b", root=tmp_path / "b", runner="threads", clock=_Late())
        node["b"] = stack.enter_context(closing(again))

        assert {detail.status for detail in Cluster(node).run(short, "again").values()} == {"FINISHED"}


@pytest.mark.slow
def test_undo_ends_the_wait_for_peers(make_cluster: Make) -> None:
    """A node that still connects to its peers when the deployment fails elsewhere does not wait for their answers."""
    cluster = make_cluster(2)
    deployment = _elsewhere(cluster.cut(_waiting()), "b", address="tcp://127.0.0.1:9", incarnation=2**60)
    pause, errors = threading.Event(), list[LinkError]()

    def prepare() -> None:
        with pytest.raises(LinkError, match="undone") as caught:
            cluster["a"].prepare(deployment, seconds=600.0)
        errors.append(caught.value)

    thread = threading.Thread(target=prepare)
    thread.start()
    assert any(cluster["a"].sessions() or pause.wait(0.01) for _ in range(6000))
    cluster["a"].undo("s", deployment.epoch, "node b failed")
    thread.join(60)

    assert len(errors) == 1
    assert not cluster["a"].sessions()


@pytest.mark.slow
def test_a_node_lost_between_prepare_and_start_fails_the_session(make_cluster: Make) -> None:
    """The session fails without a start, and a start that comes later changes nothing."""
    cluster = make_cluster(2, lost_after=1.0)
    deployment = cluster.cut(_waiting())
    cluster.prepare(deployment)
    cluster["b"]._links.close()
    status = _ended(cluster["a"])
    cluster["a"].start("s", deployment.epoch)

    assert status == "FAILED"
    assert "node b is lost" in cluster["a"].session("s").text


def test_a_restart_does_not_fail_sessions_of_the_new_process(make_cluster: Make) -> None:
    """The end of an old process of a node does not fail what was deployed to the new one."""
    cluster = make_cluster(2)
    deployment = cluster.start(_waiting())
    (now,) = (place.incarnation for place in deployment.places if place.node == "b")
    node = cluster["a"]
    node._owner.post(PeerRestarted("b", now))
    handled(node)
    is_going = cluster["a"].session("s").status
    node._owner.post(PeerRestarted("b", now + 1))

    assert is_going == "RUNNING"
    assert _ended(cluster["a"]) == "FAILED"


def test_a_session_that_is_undone_while_it_is_built_is_removed(
    make_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is removed after the build, and its deployer gets the reason; the undo does not wait for that."""
    cluster = make_cluster(1)
    node, gate, begun = cluster["a"], threading.Event(), threading.Event()
    deployment = cluster.cut(replace(_waiting(), part=np.zeros(3, dtype=np.int32), places=("a",)))
    cut = host.slice_for

    def slow(*arguments: object, **options: str) -> object:
        begun.set()
        gate.wait(60)
        return cut(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(host, "slice_for", slow)
    with ThreadPoolExecutor(1) as pool:
        prepared = pool.submit(node.prepare, deployment, seconds=60.0)
        assert begun.wait(60)
        node.undo("s", deployment.epoch, "a test")
        with pytest.raises(NotFoundError, match="no session 's'"):
            node.start("s", deployment.epoch)
        gate.set()
        with pytest.raises(GoneError, match="undone while it was prepared"):
            prepared.result(60)

    assert node.sessions() == ()
    assert not (Path(node.info().root) / "sessions" / "s").exists()


@pytest.mark.slow
def test_a_session_that_is_not_started_in_time_is_cancelled(
    make_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session whose deployer ended between prepare and start is cancelled on all nodes, with the reason."""
    monkeypatch.setattr(lifecycle, "_START_SECONDS", -9.8)
    cluster = make_cluster(2)
    deployment = cluster.cut(_waiting())
    cluster["a"].prepare(deployment, seconds=60.0)  # waits for its start until the test is over
    cluster["b"].prepare(deployment, seconds=10.0)
    cluster["a"].start("s", deployment.epoch)
    ended = cluster.end()

    assert [detail.status for detail in ended.values()] == ["CANCELLED", "CANCELLED"]
    assert "was not started within 0.2 s" in ended["b"].text


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Callable[[], Cluster]]:
    """Return two nodes with a session in which b has stopped receiving messages of a, which fill the link."""
    settings = LinkSettings(heartbeat=0.1, receive_timeout=1000.0, window=20_000, flight=10_000, last_acks=0.2)
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
            proxy = stack.enter_context(FaultyProxy((address.hostname, address.port), 1, ConnectionFaults()))
            deployment = _elsewhere(cluster.cut(_spraying(60)), "b", address=f"tcp://127.0.0.1:{proxy.port}")
            cluster.prepare(deployment)
            proxy.faults = STUCK
            cluster["a"].start("s", deployment.epoch)
            windows = cluster["a"]._links._driver.windows
            assert soon(lambda: windows["b"].waiting > 0)
            return cluster

        yield make


@pytest.mark.slow
def test_a_session_is_cancelled_while_a_peer_receives_nothing(stuck: Callable[[], Cluster]) -> None:
    """Its thread stops waiting for room in the link to the peer, and the session can be deleted."""
    cluster = stuck()
    cluster["a"].cancel("s", "enough")
    status = _ended(cluster["a"])
    cluster["a"].delete("s")

    assert status == "CANCELLED"
    assert cluster["a"].sessions() == ()


@pytest.mark.slow
def test_a_session_fails_while_a_peer_receives_nothing(stuck: Callable[[], Cluster]) -> None:
    """A silent peer is lost at its deadline even if the link to it is full."""
    cluster = stuck()
    cluster["a"]._owner.post(PeerRestarted("b", 2**62))

    assert _ended(cluster["a"]) == "FAILED"
    assert "node b is lost" in cluster["a"].session("s").text


def test_a_session_that_ends_while_it_is_read_is_consistent(
    make_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts and state belong together: a session that is over has all its drops settled."""
    cluster = make_cluster(1)
    drawing = GraphBuilder("short").app("A", **_function("def f(): return 1")).data("d")
    cluster.start(drawing.connect("A", "d", source_port="out").build())
    threads = session_threads(cluster["a"])
    call = Session.call

    def late(live: Session, function: Callable[[object], object]) -> object:
        answer = call(live, function)
        for thread in threads:
            if threading.current_thread() is not thread:
                thread.join()
        return answer

    monkeypatch.setattr(Session, "call", late)
    before = cluster["a"].session("s")
    after = cluster["a"].session("s")

    for detail in (before, after):
        if detail.status == "FINISHED":
            assert (detail.settled, detail.running, bool(detail.finished)) == (detail.drops, 0, True)
    assert after.status == "FINISHED"


@pytest.mark.slow
def test_an_engine_that_fails_fails_the_session_on_all_nodes(
    make_cluster: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other nodes do not wait for its drops, and report which engine failed."""
    cluster = make_cluster(2)
    deployment = cluster.cut(_spraying(3))
    cluster.prepare(deployment)
    broken = hosted(cluster["a"])
    monkeypatch.setattr(broken.exchange, "publish", lambda *_: 1 // 0)
    for name in ("a", "b"):
        cluster[name].start("s", deployment.epoch)
    ended = cluster.end()

    assert {detail.status for detail in ended.values()} == {"FAILED"}
    assert "the session failed on node a: integer division" in ended["b"].text
    assert "this is a bug of dropflow" in caplog.text


@pytest.mark.slow
def test_messages_for_sessions_that_are_not_here_are_ignored(make_cluster: Make) -> None:
    """Messages for sessions that are not prepared yet, deleted, or of another deployment have no effect."""
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


@pytest.mark.slow
def test_a_node_that_is_to_join_the_only_member_does_not_end_the_session(make_cluster: Make) -> None:
    """It has no drops before it is a member, but the session is not finished: the member goes on with it."""
    cluster = make_cluster(2)
    deployment = cluster.cut(GraphBuilder("alone").app("A", component="dlg.apps.simple.NullBarrierApp").build())
    (info,) = cluster["b"].nodes()
    places = (*deployment.places, Place(info.name, info.links, info.incarnation))
    joining = msgspec.structs.replace(deployment, places=places, nodes=("b",), is_joining=True)
    cluster["b"].prepare(joining, seconds=60.0)

    hosted(cluster["b"]).start()  # without the wait for a view, which may begin later than the execution ends
    for thread in session_threads(cluster["b"]):
        thread.join()
    handled(cluster["b"])

    assert not hosted(cluster["b"]).state.is_terminal
