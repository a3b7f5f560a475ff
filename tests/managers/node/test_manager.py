"""Node managers, and sessions across them."""

import mmap
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from dropflow.api.contents_answer import (
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentRequest,
    ContentsRequest,
    ContentUnchanged,
    Download,
    read_records,
)
from dropflow.api.drop_records import DropQuery, PageQuery
from dropflow.api.requests import FailureQuery, SubmitQuery
from dropflow.data.repository import LocalRepository
from dropflow.data.storage_errors import fingerprint
from dropflow.data.workspace import SHARED_MEMORY
from dropflow.errors import (
    AmbiguousError,
    BadFileError,
    BadGraphError,
    ConflictError,
    GoneError,
    LinkError,
    NotFoundError,
    UsageError,
)
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import digest
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.graph.text_ids import oids
from dropflow.times.octets import read_sections
from managers.composite.merging import merge_failures
from managers.deployment import Place
from managers.node.downloads import directory_listing
from managers.node.finished_sessions import FinishedSession
from managers.node.hosted_session import HostedSession
from managers.node.manager import NodeManager
from tests.managers.node.conftest import SECONDS, Cluster, hosted, settle, soon, until
from tests.regular_graphs import relay

Make = Callable[..., Cluster]

BASH = "dlg.apps.bash_shell_app.BashShellApp"
FILE = "dlg.data.drops.file.FileDROP"
DIRECTORY = "dlg.data.drops.directory.DirectoryDROP"


def _bash(command: str) -> dict[str, object]:
    return {"component": BASH, "arguments": (Argument(name="command", value=command, type="String"),)}


def _line(*, make: str, take: str, content: str = FILE) -> PhysicalGraph:
    """Return MAKE on a -> data on a -> TAKE on b -> result on b."""
    drawing = GraphBuilder("line")
    drawing.app("MAKE", **_bash(make)).data("data", component=content)
    drawing.app("TAKE", part=1, **_bash(take)).data("result", part=1)
    return drawing.connect("MAKE", "data").connect("data", "TAKE").connect("TAKE", "result").build()


def _endless() -> PhysicalGraph:
    """Return an application on a that sleeps, and one on b that waits for its output."""
    return _line(make="sleep 60; echo > %o0", take="cat %i0 > %o0")


def _bytes(content: Download) -> bytes:
    return b"".join(content.chunks)


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("size", [0, 10, 5000, 3_000_000])
def test_contents_cross_nodes(size: int, make_cluster: Make, in_place: bool) -> None:  # noqa: FBT001 - a parameter
    """A consumer on another node reads the same bytes, in place or fetched, whatever their number."""
    cluster = make_cluster(2, in_place=in_place)
    ended = cluster.run(_line(make=f"head -c {size} /dev/zero > %o0", take="wc -c < %i0 > %o0"))

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert _bytes(cluster["b"].data("s", "line_result_0")).split() == [str(size).encode()]


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [True, False])
def test_directories_cross_nodes(make_cluster: Make, in_place: bool) -> None:  # noqa: FBT001 - a parameter
    """A consumer on another node reads a whole directory."""
    graph = _line(
        make="mkdir -p %o0/sub && echo one > %o0/1 && echo two > %o0/sub/2",
        take="cat %i0/1 %i0/sub/2 > %o0",
        content=DIRECTORY,
    )
    ended = make_cluster(2, in_place=in_place).run(graph)

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended


@pytest.mark.slow
@pytest.mark.parametrize("content", [FILE, DIRECTORY])
def test_contents_with_the_longest_names_cross_nodes(content: str, make_cluster: Make) -> None:
    """Programs on the other node get a path with the end of the name, so that they recognise the format."""
    named = Argument(name="dirname" if content == DIRECTORY else "filepath", value=f"{'é' * 125}.fits")
    drawing = GraphBuilder("line")
    drawing.app("MAKE", **_bash("mkdir %o0" if content == DIRECTORY else "echo 1 > %o0"))
    drawing.data("data", component=content, arguments=(named,))
    drawing.app("TAKE", part=1, **_bash("case %i0 in *ééé.fits) echo right > %o0;; esac")).data("result", part=1)
    drawing.connect("MAKE", "data").connect("data", "TAKE").connect("TAKE", "result")
    cluster = make_cluster(2, in_place=False)
    ended = cluster.run(drawing.build())

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert _bytes(cluster["b"].data("s", "line_result_0")) == b"right\n"


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("content", [FILE, "dlg.data.drops.memory.InMemoryDROP"])
@pytest.mark.parametrize("size", [5, 200_000])
def test_a_drop_is_written_by_applications_elsewhere(
    content: str,
    size: int,
    make_cluster: Make,
    in_place: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Parts from three nodes are assembled on the node of their drop, in the order of the producers."""
    cluster = make_cluster(3, in_place=in_place)
    drawing = GraphBuilder("parts")
    drawing.data("whole", component=content)
    for part, name in enumerate("ABC"):
        drawing.app(name, part=part, **_bash(f"head -c {size} /dev/zero | tr '\\0' {name} > %o0"))
        drawing.connect(name, "whole")
    ended = cluster.run(drawing.build())

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert _bytes(cluster["a"].data("s", "parts_whole_0")) == b"A" * size + b"B" * size + b"C" * size
    assert not list((Path(cluster["b"].info().root) / "sessions/s/tmp").glob("*"))


def _function(code: str, port: str, encoding: str) -> dict[str, object]:
    arguments = (
        Argument(name="func_name", value="f"),
        Argument(name="func_code", value=code),
        Argument(name=port, usage="InputPort" if port == "x" else "OutputPort", encoding=encoding, type="Object"),
    )
    return {"component": "dlg.apps.pyfunc.PyFuncApp", "arguments": arguments}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["pickle", "json", "eval"])
def test_values_of_producers_on_several_nodes_stay_apart(make_cluster: Make, encoding: str) -> None:
    """Three nodes write one value each into one drop: its consumer gets all of them, in the order of the producers."""
    cluster = make_cluster(3)
    drawing = GraphBuilder("values").data("all")
    for part in range(3):
        drawing.app(f"A{part}", part=part, **_function(f"def f(): return {part + 1}", "out", encoding))
        drawing.connect(f"A{part}", "all", source_port="out")
    drawing.app("Z", part=1, **_function("def f(x): return repr(x)", "x", encoding)).data("shown", part=1)
    ended = cluster.run(drawing.connect("all", "Z", target_port="x").connect("Z", "shown").build())

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert b"[1, 2, 3]" in _bytes(cluster["b"].data("s", "values_shown_0"))


@pytest.mark.slow
def test_a_named_file_is_on_the_node_of_its_drop(make_cluster: Make) -> None:
    """An application on another node writes a named file; it has that name on the node of the drop."""
    cluster = make_cluster(2)
    drawing = GraphBuilder("there")
    named = (Argument(name="filepath", value="out/named.txt", type="String"),)
    drawing.data("kept", component=FILE, arguments=named).app("WRITE", part=1, **_bash("echo hello > %o0"))
    cluster.run(drawing.connect("WRITE", "kept").build())
    (result,) = cluster["a"].results("s").results

    assert (result.path, result.size, result.node) == ("files/out/named.txt", 6, "a")
    assert cluster["b"].results("s").results == ()


@pytest.mark.slow
def test_a_drop_tells_how_much_of_its_data_is_missing(make_cluster: Make) -> None:
    """So do an application, what it wrote for another node, what is made from that, and results: as one share."""
    cluster = make_cluster(2)
    drawing = GraphBuilder("half").app("BAD", **_bash("exit 3")).data("bad").app("GOOD", **_bash("echo 1 > %o0"))
    drawing.data("good", component=FILE).app("HALF", error_threshold=50.0, **_bash("echo 2 > %o0"))
    drawing.data("half", component=FILE).app("TAKE", part=1, **_bash("cp %i0 %o0")).data("result", part=1)
    for ends in (("BAD", "bad"), ("bad", "HALF"), ("GOOD", "good"), ("good", "HALF"), ("HALF", "half")):
        drawing.connect(*ends)
    cluster.run(drawing.connect("half", "TAKE").connect("TAKE", "result").build())
    missing = {
        f"{name}: {drop}": cluster[name].drop("s", f"half_{drop}_0").missing
        for name, drop in (("a", "good"), ("a", "HALF"), ("a", "half"), ("b", "TAKE"), ("b", "result"))
    }

    assert missing == {"a: good": 0.0, "a: HALF": 0.5, "a: half": 0.5, "b: TAKE": 0.5, "b: result": 0.5}
    assert [result.missing for result in cluster["b"].results("s").results] == [0.5]


def test_a_drop_tells_its_attempts_and_what_it_read(make_cluster: Make) -> None:
    """Its detail has when each attempt began and what it used, and size and place of the contents that it read."""
    cluster = make_cluster(1)
    drawing = GraphBuilder("line").app("MAKE", **_bash("echo 1 > %o0"))
    drawing.data("data", component=FILE, arguments=(Argument(name="filepath", value="kept.txt"),)).app(
        "TAKE", **_bash("exit 3")
    )
    cluster.run(drawing.connect("MAKE", "data").connect("data", "TAKE").build())
    failed = cluster["a"].drop("s", "line_TAKE_0")
    (attempt,) = failed.attempts

    assert (attempt.drop, attempt.attempt, attempt.failed, attempt.is_running) == ("line_TAKE_0", 1, True, False)
    assert attempt.ran > 0
    assert attempt.began > 0
    assert cluster["a"].drop("s", "line_data_0").path == failed.inputs[0].path
    assert failed.path == ""
    assert attempt.read == 2
    (read,) = failed.inputs
    assert read.size == 2
    assert Path(read.path).read_text(encoding="utf-8") == "1\n"


@pytest.mark.slow
def test_an_error_crosses_nodes_with_its_cause(make_cluster: Make) -> None:
    """Drops behind a failure elsewhere end in ERROR. Its node reports the reason, other nodes the row of the drop."""
    cluster = make_cluster(2)
    ended = cluster.run(_line(make="echo no luck >&2; exit 3", take="cat %i0 > %o0"))
    (here,), (there,) = ended["a"].failures, ended["b"].failures

    assert {detail.status for detail in ended.values()} == {"FINISHED", "FAILED"}
    assert (here.drop, here.row, here.count, here.node) == ("line_MAKE_0", 0, 2, "a")
    assert "3" in here.text
    assert (there.row, there.count, there.node, there.drop) == (0, 2, "", "#0")
    assert ended["b"].text == ""  # its causes are the reason
    (merged,) = merge_failures([there, here])
    assert (merged.count, merged.text, merged.node) == (4, here.text, "a")


@pytest.mark.slow
@pytest.mark.parametrize(("reason", "text"), [("enough", "cancelled: enough"), ("", "cancelled")])
def test_a_cancel_on_one_node_stops_all(make_cluster: Make, reason: str, text: str) -> None:
    """A session that is cancelled on one node ends on all nodes, with the same text."""
    cluster = make_cluster(2)
    cluster.start(_endless())
    until(cluster["a"], "s", lambda detail: detail.running == 1)
    cluster["b"].cancel("s", reason)
    ended = cluster.end()

    assert {detail.status for detail in ended.values()} == {"CANCELLED"}
    assert {detail.text for detail in ended.values()} == {text}


@pytest.mark.slow
def test_a_drop_is_cancelled_on_its_node(make_cluster: Make) -> None:
    """What depends on it on another node fails, with the text of its node; a session that is over refuses.

    While it runs, the times of attempts have it.
    """
    cluster = make_cluster(2)
    cluster.start(_endless())
    until(cluster["a"], "s", lambda detail: detail.running == 1)
    active = cluster["a"].drops("s", DropQuery(state="WRITING")).drops[0]
    (times,) = read_sections(cluster["a"].times("s").chunks)
    assert times.running["drop"].tolist() == [active.drop]
    assert 0 < times.running["since"][0] <= times.now
    cancelled = cluster["a"].cancel_drop("s", active.oid, "too slow", grace=0.0)
    ended = cluster.end()

    assert (cancelled.state, cancelled.oid) == ("CANCELLED", active.oid)
    assert "it was cancelled alone" in cancelled.reasons
    assert ended["b"].status == "FAILED"
    (merged,) = merge_failures([failure for detail in ended.values() for failure in detail.failures])
    assert (merged.drop, merged.text) == (active.oid, "the drop was cancelled: too slow")
    with pytest.raises(ConflictError, match="session 's' is over"):
        cluster["a"].cancel_drop("s", active.oid)


@pytest.mark.slow
def test_a_session_is_paused_and_continued_on_all_nodes(make_cluster: Make, tmp_path: Path) -> None:
    """Each node pauses its part; repeating that, and pausing a session that is over, changes nothing.

    The rows of drops tell which applications run, and which are queued.
    """
    cluster = make_cluster(2)
    gate = tmp_path / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.02; done; echo > %o0"
    cluster.start(_line(make=wait, take="cat %i0 > %o0"))
    until(cluster["a"], "s", lambda detail: detail.running == 1)
    (active,) = cluster["a"].drops("s", DropQuery(state="WRITING")).drops
    seen = [cluster[name].pause("s").status for name in "abba"]
    gate.touch()
    until(cluster["a"], "s", lambda detail: detail.running == 0)
    until(cluster["b"], "s", lambda detail: detail.ready == 1)
    paused = cluster["b"].session("s")
    (held,) = cluster["b"].drops("s", DropQuery(state="WRITING")).drops
    continued = [cluster[name].unpause("s").status for name in "ba"]
    ended = cluster.end()

    assert seen == ["PAUSED"] * 4
    assert (active.is_running, held.is_running) == (True, False)
    assert {row.is_running for row in cluster["a"].drops("s", DropQuery()).drops} == {None}
    assert (paused.status, paused.running, paused.queued) == ("PAUSED", 0, 0)
    assert continued[0] == "RUNNING"
    assert {detail.status for detail in ended.values()} == {"FINISHED"}
    assert cluster["a"].pause("s").status == cluster["a"].unpause("s").status == "FINISHED"


@pytest.mark.slow
def test_a_session_is_cancelling_until_its_attempts_have_ended(make_cluster: Make, tmp_path: Path) -> None:
    """Meanwhile the drop of an attempt that cleans up is active, and the text says why."""
    cluster = make_cluster(1)
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    code = f"""
def f():
    import os, time
    try:
        os.mkdir({str(begun)!r})  # an interrupt just after open() would leave a file open
        while True: time.sleep(0.01)
    finally:
        while not os.path.exists({str(gate)!r}): time.sleep(0.01)
"""
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    drawing = GraphBuilder("slow").app("F", component="dlg.apps.pyfunc.PyFuncApp", arguments=fields)
    cluster.start(drawing.data("out").connect("F", "out", source_port="out").build())
    assert soon(begun.exists)
    cancelled = cluster["a"].cancel("s", "enough", grace=1000.0)
    seen = until(cluster["a"], "s", lambda detail: "CANCELLED" in detail.states)
    gate.touch()
    ended = cluster.end()["a"]

    assert (cancelled.status, cancelled.text) == ("CANCELLING", "cancelled: enough")
    assert (seen.status, seen.states) == ("CANCELLING", {"WRITING": 1, "CANCELLED": 1})
    assert (ended.status, ended.states) == ("CANCELLED", {"CANCELLED": 2})


@pytest.mark.slow
def test_a_node_that_stops_cancels_its_sessions_everywhere(make_cluster: Make) -> None:
    """The other nodes of its sessions do not wait for the deadline of a lost node."""
    cluster = make_cluster(2, lost_after=1000.0)
    cluster.start(_endless())
    cluster["b"].close()

    assert until(cluster["a"], "s", lambda detail: bool(detail.finished)).status == "CANCELLED"


@pytest.mark.slow
def test_a_lost_node_fails_its_sessions_only(make_cluster: Make) -> None:
    """Of two nodes, sessions that need the silent one are FAILED in time, and name the drops; others continue."""
    cluster = make_cluster(2, lost_after=1.0)
    cluster.start(_endless())
    cluster.start(GraphBuilder("alone").app("WAIT", **_bash("sleep 60")).build(), session="other")
    cluster["b"]._links.close()  # its links are dead, whatever else it does
    detail = until(cluster["a"], "s", lambda detail: bool(detail.finished))

    assert detail.status == "FAILED"
    assert "node b is lost" in detail.text
    assert [(failure.name, failure.drops) for failure in detail.failures] == [("b", ("line_TAKE_0",))]
    assert cluster["a"].session("other").status == "RUNNING"


@pytest.mark.slow
def test_a_peer_that_does_not_answer_is_named(make_cluster: Make) -> None:
    """Preparing fails in time, names the node and its address, and leaves nothing behind."""
    cluster = make_cluster(2)
    deployment = cluster.cut(_endless())
    dead = tuple(Place(place.node, "tcp://127.0.0.1:1", place.incarnation) for place in deployment.places)
    with pytest.raises(LinkError, match=r"node b at tcp://127.0.0.1:1 does not answer"):
        cluster["a"].prepare(msgspec.structs.replace(deployment, places=dead), seconds=0.5)

    assert cluster["a"].sessions() == ()
    assert not (Path(cluster["a"].info().root) / "sessions" / "s").exists()


@pytest.mark.slow
def test_repeated_requests_are_accepted_and_other_epochs_refused(make_cluster: Make) -> None:
    """A repeated request changes nothing; one for another deployment is refused."""
    cluster = make_cluster(2)
    deployment = cluster.cut(_endless())
    cluster.prepare(deployment)
    cluster.prepare(deployment)
    with pytest.raises(ConflictError, match="deployed again"):
        cluster["a"].start("s", deployment.epoch + 1)
    with pytest.raises(ConflictError, match="session 's' already"):
        cluster.prepare(msgspec.structs.replace(deployment, epoch=deployment.epoch + 1))


@pytest.mark.slow
def test_undo_removes_a_session(make_cluster: Make) -> None:
    """A prepared or started session is removed; undo of an unknown session does nothing."""
    cluster = make_cluster(2)
    deployment = cluster.start(_endless())
    for name in "ab":
        cluster[name].undo("s", deployment.epoch, "a test")
        cluster[name].undo("s", deployment.epoch, "a test")

    assert [cluster[name].sessions() for name in "ab"] == [(), ()]
    assert not (Path(cluster["a"].info().root) / "sessions" / "s").exists()


@pytest.mark.slow
def test_a_deleted_session_is_gone_and_its_name_is_free(make_cluster: Make) -> None:
    """Deleting stops a session first; afterwards its name can be used again."""
    cluster = make_cluster(2)
    cluster.start(_endless())
    for name in "ab":
        cluster[name].delete("s")
    with pytest.raises(NotFoundError, match="no session 's' on node a"):
        cluster["a"].session("s")
    ended = cluster.run(_line(make="echo 1 > %o0", take="cat %i0 > %o0"))

    assert {detail.status for detail in ended.values()} == {"FINISHED"}


@pytest.mark.slow
def test_a_node_runs_a_whole_graph_by_itself(make_cluster: Make) -> None:
    """A graph without places can be submitted to a single node; one that names others cannot."""
    cluster = make_cluster(1)
    graph = _line(make="echo 1 > %o0", take="cat %i0 > %o0")
    info = cluster["a"].submit(graph, SubmitQuery(session="s"))
    cluster.end()

    assert info.drops == 4
    assert digest(cluster["a"].graph("s")) != ""
    assert oids(cluster["a"].graph("s"), range(4)) == oids(graph, range(4))


def test_a_session_ends_although_its_repository_cannot_be_closed(
    make_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node knows that it is over, and its directory has a summary."""

    def fail(repository: LocalRepository) -> None:
        raise OSError(f"{repository.workspace.directory}: Stale file handle")

    cluster = make_cluster(1)
    with monkeypatch.context() as patched:
        patched.setattr(LocalRepository, "close", fail)
        detail = cluster.run(relay(2, parts=1))["a"]

    assert detail.status == "FINISHED"
    assert (hosted(cluster["a"]).directory.path / "summary.json").exists()


@pytest.mark.slow
def test_each_node_has_the_whole_graph(make_cluster: Make) -> None:
    """Every node answers with the graph that was deployed, whose columns are mapped from its file and not in memory."""
    cluster = make_cluster(2)
    graph = relay(100, 2)
    cluster.prepare(cluster.cut(graph))
    graphs = [cluster[name].graph("s") for name in "ab"]

    assert [digest(graph_) for graph_ in graphs] == [digest(replace(graph, places=("a", "b")))] * 2
    assert all(isinstance(_memory(graph_.template), mmap.mmap) for graph_ in graphs)
    assert not any(isinstance(_memory(hosted(cluster[name]).piece.graph.template), mmap.mmap) for name in "ab")


def _memory(column: npt.NDArray[np.int32]) -> object:
    """Return the object that holds the bytes of a column."""
    owner: object = column
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner.obj if isinstance(owner, memoryview) else owner


def test_a_deployment_of_another_graph_is_refused(make_cluster: Make) -> None:
    """If the header and the graph disagree, or the graph is damaged, nothing is left of the session."""
    cluster = make_cluster(1)
    deployment = cluster.cut(GraphBuilder("x").app("X").build())
    damaged = bytes(deployment.dfg[:-1]) + b"x"

    for wrong, says in (({"drops": 2}, "1 drops, and its deployment 2"), ({"dfg": damaged}, "graph.dfg: .*damaged")):
        with pytest.raises(BadFileError, match=says):
            cluster["a"].prepare(msgspec.structs.replace(deployment, **wrong), seconds=SECONDS)
        assert not (Path(cluster["a"].info().root) / "sessions" / "s").exists()


def test_a_node_takes_a_graph_of_another_cluster(make_cluster: Make) -> None:
    """A graph that names localhost and an unknown host runs on a node that is alone, with a lasting note."""
    cluster = make_cluster(1)
    foreign = replace(_line(make="echo > %o0", take="cat %i0 > %o0"), places=("localhost", "h7:8000"))
    cluster["a"].submit(foreign, SubmitQuery(session="s"))
    detail = until(cluster["a"], "s", lambda detail: bool(detail.finished))

    assert (detail.status, detail.nodes) == ("FINISHED", ("a",))
    assert detail.notes == ("the graph names unknown nodes ('h7:8000'): all are on a",)


@pytest.mark.slow
def test_drops_are_found_by_filters_and_names(make_cluster: Make) -> None:
    """Filters select drops, and pages are parts of the list."""
    cluster = make_cluster(2)
    cluster.run(_line(make="echo 1 > %o0", take="cat %i0 > %o0"))
    a, b = cluster["a"], cluster["b"]

    assert [drop.oid for drop in a.drops("s", DropQuery()).drops] == ["line_MAKE_0", "line_data_0"]
    assert [drop.oid for drop in b.drops("s", DropQuery(text="RES")).drops] == ["line_result_0"]
    assert a.drops("s", DropQuery(state="ERROR")).total == 0
    assert a.drops("s", DropQuery(key="data")).total == 1
    assert a.drops("s", DropQuery(node="b")).total == 0
    page = a.drops("s", DropQuery(offset=1, limit=1))
    assert (page.total, [drop.oid for drop in page.drops]) == (2, ["line_data_0"])
    assert [drop.oid for drop in a.drops("s", DropQuery(row=1)).drops] == ["line_data_0"]
    assert [drop.oid for drop in a.drops("s", DropQuery(oid="line_data_0")).drops] == ["line_data_0"]
    assert a.drops("s", DropQuery(row=1, oid="line_MAKE_0")).total == a.drops("s", DropQuery(row=2)).total == 0
    assert a.drops("s", DropQuery(ending="_0")).total == a.drops("s", DropQuery(ending="_0")).held == 2
    with pytest.raises(NotFoundError, match="not on node a"):
        a.drop("s", "line_TAKE_0")
    with pytest.raises(UsageError, match="no state 'LOST'"):
        a.drops("s", DropQuery(state="lost"))


@pytest.mark.slow
def test_a_row_is_not_an_id(make_cluster: Make) -> None:
    """Digits are the end of an id, and never a row, so that no other drop's content, log or state is returned."""
    node = make_cluster(1)["a"]
    drawing = GraphBuilder("x").app("X", **_bash("echo said; echo 1 > %o0")).data("y", component=FILE).connect("X", "y")
    node.submit(replace(drawing.build(), oids=("app-10", "file-20")), SubmitQuery(session="s"))
    until(node, "s", lambda detail: bool(detail.finished))

    for ask in (node.drop, node.log, node.data):
        with pytest.raises(NotFoundError, match="there is no drop '1'"):
            ask("s", "1")
    assert node.drop("s", "20").oid == "file-20"
    with pytest.raises(AmbiguousError, match=r"2 drops end in '0'.*'X' \(app-10, COMPLETED\) or 'y' \(file-20, "):
        node.drop("s", "0")


@pytest.mark.slow
def test_the_end_of_an_id_is_refused_by_a_node_that_has_a_part_of_the_session(make_cluster: Make) -> None:
    """A drop on another node may have the same end; the candidate is named."""
    cluster = make_cluster(2)
    cluster.run(_line(make="echo 1 > %o0", take="cat %i0 > %o0"))

    with pytest.raises(AmbiguousError, match=r"only 2 of 4 drops are here.*line_data_0"):
        cluster["a"].data("s", "data_0")


@pytest.mark.slow
def test_long_lists_come_in_pages(make_cluster: Make) -> None:
    """Pages reach all causes and all neighbours, and have their number."""
    copies = 130
    drawing = GraphBuilder("wide").app("MAKE").app("TAKE", error_threshold=100.0)
    for number in range(copies):
        name = str(number)
        drawing.app(f"FAIL{name}", **_bash("exit 3")).data(f"d{name}").data(f"e{name}")
        drawing.connect(f"FAIL{name}", f"d{name}").connect("MAKE", f"e{name}").connect(f"d{name}", "TAKE")
    node = make_cluster(1)["a"]
    node.submit(drawing.build(), SubmitQuery(session="s"))
    detail = until(node, "s", lambda info: bool(info.finished))

    assert detail.states["ERROR"] == 2 * copies
    assert (len(detail.failures), detail.unlisted) == (100, 2 * (copies - 100))
    last = node.failures("s", FailureQuery(offset=100, limit=50))
    assert (last.total, len(last.failures)) == (copies, copies - 100)
    assert not {failure.drop for failure in last.failures} & {failure.drop for failure in detail.failures}
    first = node.drop("s", "wide_MAKE_0")
    assert (first.output_count, len(first.outputs), first.input_count) == (copies, 100, 0)
    rest = node.drop("s", "wide_MAKE_0", PageQuery(offset=100, limit=1000)).outputs
    assert len({neighbour.oid for neighbour in (*first.outputs, *rest)}) == copies
    assert node.drop("s", "wide_TAKE_0", PageQuery(offset=200)).inputs == ()


@pytest.mark.slow
def test_contents_of_many_drops_come_in_one_answer(make_cluster: Make, tmp_path: Path) -> None:
    """Each content is sent whole, or reported as unchanged, or replaced by the reason why it is not available."""
    cluster = make_cluster(2)
    cluster.run(_line(make="mkdir %o0; echo 1 > %o0/x", take="cat %i0/x > %o0", content=DIRECTORY))

    def records(node: str, *wanted: ContentRequest) -> list[ContentRecord]:
        download = cluster[node].contents("s", ContentsRequest(node=node, wanted=wanted))
        return list(read_records(download.chunks))

    checksum = zlib.crc32(b"1\n")
    begin = ContentBegin(0, size=2, checksum=checksum)
    assert records("b", ContentRequest(row=3)) == [begin, ContentPiece(b"1\n"), ContentEnd(checksum)]
    rest = records("b", ContentRequest(row=3, offset=1, checksum=checksum))
    assert rest == [msgspec.structs.replace(begin, offset=1), ContentPiece(b"\n"), ContentEnd(checksum)]
    assert records("b", ContentRequest(row=3, offset=1, checksum=7))[:2] == [begin, ContentPiece(b"1\n")]
    elsewhere, application = records("b", ContentRequest(row=1), ContentRequest(row=2))
    assert isinstance(elsewhere, ContentError)
    assert "not on node b" in elsewhere.error.text
    assert isinstance(application, ContentError)
    assert "line_TAKE_0" in application.error.text
    directory = next(result for result in cluster["a"].results("s").results if result.drop == 1)
    (there,) = tmp_path.glob(f"a/**/{directory.path}")
    known = directory_listing(there).checksum
    assert records("a", ContentRequest(row=1))[0] == ContentBegin(0, is_directory=True, size=2, checksum=known)
    assert records("a", ContentRequest(row=1, digest=fingerprint(there))) == [ContentUnchanged(0)]
    with pytest.raises(NotFoundError, match="this is node a, not b"):
        cluster["a"].contents("s", ContentsRequest(node="b", wanted=(ContentRequest(row=1),)))


@pytest.mark.slow
def test_details_of_a_drop_name_neighbours_on_other_nodes(make_cluster: Make) -> None:
    """Details name the drops at the other ends of its edges, their states and nodes; logs can be read."""
    cluster = make_cluster(2)
    cluster.run(_line(make="echo made; echo 1 > %o0", take="cat %i0 > %o0"))
    detail = cluster["a"].drop("s", "line_data_0")

    assert [(neighbour.oid, neighbour.node) for neighbour in detail.inputs] == [("line_MAKE_0", "a")]
    assert [(output.oid, output.node, output.state) for output in detail.outputs] == [("line_TAKE_0", "b", "COMPLETED")]
    assert b"made" in _bytes(cluster["a"].log("s", "line_MAKE_0"))
    assert cluster["a"].drop("s", "line_MAKE_0").parameters["command"].startswith("echo made")


@pytest.mark.slow
def test_released_contents_are_gone(make_cluster: Make) -> None:
    """The error for a memory drop whose consumers are done, here or elsewhere, is that its content was released."""
    cluster = make_cluster(2)
    cluster.run(_line(make="echo 1 > %o0", take="cat %i0 > %o0", content="dlg.data.drops.memory.InMemoryDROP"))
    with pytest.raises(GoneError, match="released after its last consumer"):
        cluster["a"].data("s", "line_data_0")


def test_a_node_needs_a_place_of_its_own(make_cluster: Make) -> None:
    """A deployment without a place for the node is refused as a mistake of the sender."""
    cluster = make_cluster(1)
    deployment = msgspec.structs.replace(cluster.cut(GraphBuilder("x").app("X").build()), places=())
    with pytest.raises(UsageError, match="not for node a"):
        cluster["a"].prepare(deployment, seconds=1.0)


@pytest.mark.slow
def test_a_node_needs_only_what_its_own_drops_need(make_cluster: Make) -> None:
    """A module that a host lacks is refused by the node whose drops need it, and by no other."""
    missing = Argument(name="func_name", value="nosuchmodule.f")
    drawing = GraphBuilder("line")
    drawing.app("MAKE", **_bash("echo > %o0")).data("data", component=FILE)
    drawing.app("TAKE", part=1, component="dlg.apps.pyfunc.PyFuncApp", arguments=(missing,))
    cluster = make_cluster(2)
    deployment = cluster.cut(drawing.connect("MAKE", "data").connect("data", "TAKE").build())

    cluster["a"].prepare(deployment, seconds=60)
    with pytest.raises(BadGraphError, match=r"DF106 the function 'nosuchmodule\.f' needs the module 'nosuchmodule'"):
        cluster["b"].prepare(deployment, seconds=60)


def test_a_graph_that_is_refused_leaves_no_file_open(make_cluster: Make, tmp_path: Path) -> None:
    """A node that has refused graphs, here for their cycle, has as many open files as before, and no shared memory."""

    def held() -> tuple[list[str], list[Path]]:
        under = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
        removed = [path for path in under if f"{tmp_path}/" in path and ".removed-" in path and "graph.dfg" not in path]
        return removed, list(SHARED_MEMORY.glob("dropflow-*-round-*"))

    drawing = GraphBuilder("round").app("A", **_bash("true")).data("d")
    graph, node = drawing.connect("A", "d").connect("d", "A").build(), make_cluster(1)["a"]
    for turn in range(3):
        with pytest.raises(BadGraphError, match="wait for each other"):
            node.submit(graph, SubmitQuery(session=f"round-{turn}"))

    assert held() == ([], [])


def test_a_full_disk_is_one_line_of_the_log(
    make_cluster: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node logs when its disk is full, and when it has room again; not each time that it is asked."""
    node = make_cluster(1)["a"]
    for free in (0, 0, 100):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(total=100, free=free))
        node.nodes()
        node.nodes()

    texts = [record.getMessage() for record in caplog.records if "the disk of" in record.getMessage()]
    assert [text.partition(" is ")[2] or text.partition(" has ")[2] for text in texts] == [
        "full: no session is deployed here",
        "room again",
    ]


@pytest.mark.slow
def test_a_session_that_cannot_write_its_directory_is_a_finding(make_cluster: Make, tmp_path: Path) -> None:
    """The node names it until the session is over: each of its attempts would fail there at once."""
    cluster = make_cluster(2)
    cluster.prepare(cluster.cut(_endless()))  # not started, so that nothing is written into the directory
    directory = hosted(cluster["a"]).directory.path
    assert cluster["a"].info().findings == ()
    directory.rename(tmp_path / "away")
    findings = cluster["a"].info().findings
    (tmp_path / "away").rename(directory)

    assert findings == (f"session 's' cannot write its directory {directory}",)
    cluster["a"].cancel("s")
    until(cluster["a"], "s", lambda detail: detail.is_over)
    assert cluster["a"].info().findings == ()


def test_a_closed_node_refuses_sessions(tmp_path: Path) -> None:
    """The error of a submit is that the node is stopping; closing again does nothing."""
    node = NodeManager("a", root=tmp_path, runner="threads")
    node.close()
    node.close()
    with pytest.raises(LinkError, match="stopping"):
        node.submit(GraphBuilder("x").app("X").build(), SubmitQuery())


@pytest.mark.slow
def test_older_sessions_are_reported_unchanged_from_disk(make_cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that has run many sessions keeps the engines of the latest only; the others are reported as before."""
    monkeypatch.setattr("managers.node.manager._KEPT", 2)
    node = make_cluster(1)["a"]
    graph = GraphBuilder("x").app("X", **_bash("echo said; echo 1 > %o0")).data("y", component=FILE).connect("X", "y")
    before = {}
    for name in ("s0", "s1", "s2", "s3", "s4"):
        node.submit(graph.build(), SubmitQuery(session=name))
        before[name] = until(node, name, lambda detail: bool(detail.finished))
        settle(node, name)

    assert soon(lambda: sum(isinstance(session, HostedSession) for session in node._host.sessions.values()) == 2)
    assert {name: node.session(name).states for name in before} == {
        name: detail_.states for name, detail_ in before.items()
    }
    assert [info.session for info in node.sessions()] == ["s4", "s3", "s2", "s1", "s0"]
    assert _bytes(node.data("s0", "x_y_0")) == b"1\n"
    assert b"said" in _bytes(node.log("s0", "x_X_0"))
    assert node.drop("s0", "x_y_0").state == "COMPLETED"
    node.delete("s0")
    assert [info.session for info in node.sessions()] == ["s4", "s3", "s2", "s1"]


@pytest.mark.slow
def test_a_deployment_that_comes_after_its_undo_is_refused(make_cluster: Make) -> None:
    """A slow node does not run a deployment that was undone on the other nodes; a newer one is accepted."""
    cluster = make_cluster(2)
    deployment = cluster.cut(_endless())
    cluster["a"].undo("s", deployment.epoch, "late")
    with pytest.raises(GoneError, match="undone"):
        cluster["a"].prepare(deployment, seconds=5.0)
    cluster.prepare(msgspec.structs.replace(deployment, epoch=deployment.epoch + 1))

    assert [info.status for info in cluster["a"].sessions()] == ["DEPLOYING"]


@pytest.mark.slow
def test_a_session_read_from_disk_keeps_the_node_of_a_cause(
    make_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is read from its directory does not name this node for failures of other nodes."""
    monkeypatch.setattr("managers.node.manager._KEPT", 1)
    cluster = make_cluster(2)
    cluster.run(_line(make="exit 3", take="cat %i0 > %o0"))
    before = cluster["b"].failures("s").failures
    settle(cluster["b"])
    cluster.run(_line(make="echo > %o0", take="cat %i0 > %o0"), session="later")

    assert soon(lambda: isinstance(cluster["b"]._host.sessions["s"], FinishedSession))
    assert [failure.node for failure in before] == [""]
    assert cluster["b"].failures("s").failures == before
