"""Sessions of one node: resumed, tried again, stopped at a walltime, and with names that have blanks."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from urllib.request import Request, urlopen

import msgspec
import pytest

from dropflow.api.client import Client
from dropflow.api.requests import ResumeRequest, RetryRequest, SubmitQuery
from dropflow.api.session_records import SessionDetail
from dropflow.cli.main import main
from dropflow.clock import SystemClock
from dropflow.errors import ConflictError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from managers.manager_server import Service
from managers.node import hosted_session
from managers.node.directory import NextView
from managers.node.manager import NodeManager
from managers.recovery.records import StoppedPart
from managers.recovery.resume import plan_resumption
from tests.cli.graph_documents import document, link, node
from tests.managers.node.conftest import settle


def _node(directory: Path) -> NodeManager:
    return NodeManager("n1", root=directory, runner="threads", workers=2)


def _graph(marks: Path, needed: Path, *, waits: bool = False) -> PhysicalGraph:
    """Return two commands one after the other. The second one fails, or waits, while a file is missing."""
    builder = GraphBuilder("g")
    until = f"while [ ! -e {needed} ]; do sleep 0.01; done; " if waits else ""
    commands = {
        "FIRST": f"echo FIRST >> {marks}; echo 1 > %o0",
        "SECOND": f"{until}echo SECOND >> {marks}; cat {needed} > %o0",
    }
    for name, command in commands.items():
        builder.app(
            name, component="dlg.apps.bash_shell_app.BashShellApp", arguments=(Argument(name="command", value=command),)
        )
    builder.data("a").data("b")
    return builder.connect("FIRST", "a").connect("a", "SECOND").connect("SECOND", "b").build()


def _ended(node: NodeManager) -> SessionDetail:
    detail = node.session("s")
    while not detail.is_over:
        detail = node.watch("s", version=detail.version, seconds=5.0)
    return detail


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True])
def test_failed_drops_are_tried_again_in_the_same_session(tmp_path: Path, *, restarted: bool) -> None:
    """After the cause was corrected, only the drop that failed runs again, also if the node was started again."""
    marks, needed = tmp_path / "marks", tmp_path / "needed"
    node = _node(tmp_path)
    try:
        node.submit(_graph(marks, needed), SubmitQuery(session="s"))
        failed = _ended(node)
        if restarted:
            node.close()
            node = _node(tmp_path)
        needed.write_text("2\n")
        with pytest.raises(ConflictError, match="nothing is left to run"):
            node.resume("s", ResumeRequest())
        with pytest.raises(ConflictError, match="g_a_0 did not fail: it is COMPLETED"):
            node.retry("s", RetryRequest(drops=("g_a_0",)))
        node.retry("s", RetryRequest())
        ended = _ended(node)

        assert (failed.status, ended.status) == ("FAILED", "FINISHED")
        assert ended.states == {"COMPLETED": 4}
        assert marks.read_text().split() == ["FIRST", "SECOND", "SECOND"]
        assert ended.epoch > failed.epoch
        assert "1 failed drop tried again" in ended.notes[-1]
        assert node.drop("s", "g_SECOND_0").attempt == 2
        with pytest.raises(ConflictError, match="no drop of this session failed"):
            node.retry("s", RetryRequest())
    finally:
        node.close()


@pytest.mark.slow
def test_failed_drops_are_tried_again_while_the_session_runs(tmp_path: Path) -> None:
    """What waits for another command goes on meanwhile, also on a node that runs the session alone."""
    marks, needed, go = tmp_path / "marks", tmp_path / "needed", tmp_path / "go"
    builder = GraphBuilder("g")
    commands = {
        "FAILS": f"echo FAILS >> {marks}; cat {needed} > %o0",
        "NEXT": f"echo NEXT >> {marks}; cat %i0 > %o0",
        "WAITS": f"echo WAITS >> {marks}; while [ ! -e {go} ]; do sleep 0.01; done; echo > %o0",
    }
    for name, command in commands.items():
        builder.app(
            name, component="dlg.apps.bash_shell_app.BashShellApp", arguments=(Argument(name="command", value=command),)
        )
    builder.data("a").data("b").data("c").connect("FAILS", "a").connect("a", "NEXT").connect("NEXT", "b")
    node = _node(tmp_path)
    try:
        node.submit(builder.connect("WAITS", "c").build(), SubmitQuery(session="s"))
        detail = node.session("s")
        while detail.states.get("ERROR", 0) < 4:
            detail = node.watch("s", version=detail.version, seconds=5.0)
        assert detail.status == "RUNNING"
        with pytest.raises(ConflictError, match="g_WAITS_0 did not fail: it is WRITING"):
            node.retry("s", RetryRequest(drops=("g_WAITS_0",)))
        needed.write_text("2")
        assert node.retry("s", RetryRequest(drops=("g_b_0",))).status == "RUNNING"
        while detail.states.get("COMPLETED", 0) < 4:
            detail = node.watch("s", version=detail.version, seconds=5.0)
        go.touch()
        ended = _ended(node)

        assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 6})
        assert sorted(marks.read_text().split()) == ["FAILS", "FAILS", "NEXT", "WAITS"]
        assert b"".join(node.data("s", "g_b_0").chunks) == b"2"
        with pytest.raises(ConflictError, match="session 's' is over"):
            node.retry("s", RetryRequest(if_running=True))
    finally:
        node.close()


def test_a_session_whose_end_cannot_be_recorded_stays_as_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its result was reported before; a later process derives the record from the journal."""

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(hosted_session, "_end_of", fail)
    (tmp_path / "needed").touch()
    node = _node(tmp_path)
    try:
        node.submit(_graph(tmp_path / "marks", tmp_path / "needed"), SubmitQuery(session="s"))
        _ended(node)
        settle(node)
        assert node.session("s").status == "FINISHED"
        assert not (tmp_path / "sessions" / "s" / "end.msgpack").exists()
    finally:
        node.close()
    monkeypatch.undo()
    node = _node(tmp_path)
    try:
        assert node.session("s").status == "FINISHED"
    finally:
        node.close()


@pytest.mark.slow
def test_a_session_whose_state_cannot_be_read_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the thread of a session fails when it stops for a change, the session ends with that, and does not hang."""
    builder = GraphBuilder("g")
    for name, command in {"FAILS": "false", "WAITS": f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"}.items():
        builder.app(
            name, component="dlg.apps.bash_shell_app.BashShellApp", arguments=(Argument(name="command", value=command),)
        )

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    node = _node(tmp_path)
    try:
        node.submit(builder.build(), SubmitQuery(session="s"))
        detail = node.session("s")
        while not detail.states.get("ERROR"):
            detail = node.watch("s", version=detail.version, seconds=5.0)
        monkeypatch.setattr(hosted_session, "report_of", fail)
        with pytest.raises(ConflictError, match="session 's' is over"):
            node.retry("s", RetryRequest())
        ended = _ended(node)
    finally:
        node.close()

    assert ended.status == "FAILED"
    assert "can't start new thread" in ended.text


@pytest.mark.slow
def test_a_parameter_of_a_node_that_failed_is_changed(tmp_path: Path) -> None:
    """The graph of the session has the new value from then on, also for later processes of the node."""
    node = _node(tmp_path)
    try:
        node.submit(_graph(tmp_path / "marks", tmp_path / "missing"), SubmitQuery(session="s"))
        _ended(node)
        node.retry("s", RetryRequest(settings=("SECOND.command=echo 3 > %o0",)))
        ended = _ended(node)
        node.close()
        node = _node(tmp_path)

        assert ended.status == "FINISHED"
        assert node.session("s").status == "FINISHED"
        assert node.drop("s", "g_SECOND_0").parameters["command"] == "echo 3 > %o0"
        assert b"".join(node.data("s", "g_b_0").chunks) == b"3\n"
        assert not list((tmp_path / "sessions").rglob("next"))
    finally:
        node.close()


@pytest.mark.slow
def test_a_crash_before_the_start_leaves_the_session_as_it_was(tmp_path: Path) -> None:
    """What was prepared is undone, by request or by the next process, and the session can be tried again."""
    marks, needed = tmp_path / "marks", tmp_path / "needed"
    node, again = _node(tmp_path / "node"), None
    try:
        node.submit(_graph(marks, needed), SubmitQuery(session="s"))
        failed = _ended(node)
        part = msgspec.msgpack.decode(node.remains("s")[0], type=StoppedPart)
        plan = plan_resumption(node.graph("s"), [part], RetryRequest(), node.nodes(), now=failed.finished + 1.0)
        node.prepare(plan, seconds=10.0)
        assert node.session("s").status == "DEPLOYING"
        shutil.copytree(tmp_path / "node", tmp_path / "copy")
        node.undo("s", plan.epoch, "another node failed")

        assert (node.session("s").status, node.session("s").epoch) == ("FAILED", failed.epoch)
        again = _node(tmp_path / "copy")
        for each in (node, again):
            assert not list((tmp_path / "node" / "sessions").rglob("next"))
            assert (each.session("s").status, each.session("s").epoch) == ("FAILED", failed.epoch)
            needed.write_text("2\n")
            each.retry("s", RetryRequest())
            assert _ended(each).status == "FINISHED"
    finally:
        node.close()
        if again is not None:
            again.close()


@pytest.mark.slow
def test_a_crash_after_the_start_leaves_the_session_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the new view that were not put in their places are put there by the next process."""
    node = _node(tmp_path / "node")
    try:
        node.submit(_graph(tmp_path / "marks", tmp_path / "missing"), SubmitQuery(session="s"))
        failed = _ended(node)
        with monkeypatch.context() as patch:
            patch.setattr(NextView, "settle", lambda _: None)
            node.retry("s", RetryRequest(settings=("SECOND.command=sleep 0; echo 3 > %o0",)))
            ended = _ended(node)
            shutil.copytree(tmp_path / "node", tmp_path / "copy", ignore=shutil.ignore_patterns("*.part"))
            assert list((tmp_path / "copy" / "sessions").rglob("next"))
    finally:
        node.close()
    node = _node(tmp_path / "copy")
    try:
        detail = node.session("s")

        assert (ended.status, detail.status) == ("FINISHED", "FINISHED")
        assert detail.epoch == ended.epoch > failed.epoch
        assert node.drop("s", "g_SECOND_0").parameters["command"].startswith("sleep 0")
        assert not list((tmp_path / "copy" / "sessions").rglob("next"))
    finally:
        node.close()


@pytest.mark.slow
def test_a_cancelled_session_is_resumed(tmp_path: Path) -> None:
    """The drops that were cancelled run, and those that had completed are kept."""
    marks, needed = tmp_path / "marks", tmp_path / "needed"
    node = _node(tmp_path)
    try:
        node.submit(_graph(marks, needed, waits=True), SubmitQuery(session="s"))
        detail = node.session("s")
        while detail.states.get("COMPLETED", 0) < 2:
            detail = node.watch("s", version=detail.version, seconds=5.0)
        node.cancel("s", "enough")
        assert _ended(node).status == "CANCELLED"
        needed.write_text("2\n")
        node.resume("s", ResumeRequest())
        ended = _ended(node)

        assert ended.status == "FINISHED"
        assert marks.read_text().split() == ["FIRST", "SECOND"]
    finally:
        node.close()


def test_functions_with_new_code_run_again(tmp_path: Path) -> None:
    """The request has their sources; the function that it does not name, and that nothing changes for, stays."""
    node = _node(tmp_path)
    builder = GraphBuilder("g").data("a").data("b")
    for name, code in {"FIRST": "def f():\n    return 1", "SECOND": "def f(a):\n    return str(a)"}.items():
        fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
        builder.app(name, component="dlg.apps.pyfunc.PyFuncApp", arguments=fields)
    graph = builder.connect("FIRST", "a").connect("a", "SECOND").connect("SECOND", "b").build()
    key = next(template.key for template in graph.templates if template.name == "SECOND")
    try:
        node.submit(graph, SubmitQuery(session="s"))
        _ended(node)
        node.retry("s", RetryRequest(code={key: "def f(a):\n    return str(a + 1)"}))
        ended = _ended(node)

        assert ended.status == "FINISHED"
        assert "a + 1" in node.drop("s", "g_SECOND_0").parameters["func_code"]
        assert "2" in b"".join(node.data("s", "g_b_0").chunks).decode(errors="replace")
        assert node.drop("s", "g_FIRST_0").parameters["func_code"].endswith("return 1")
    finally:
        node.close()


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True])
def test_a_session_runs_again_from_a_drop_that_was_completed(tmp_path: Path, *, restarted: bool) -> None:
    """Only it and what depends on it run, in the same session, whose results are then the new ones."""
    marks, needed = tmp_path / "marks", tmp_path / "needed"
    needed.write_text("old\n")
    node = _node(tmp_path)
    try:
        node.submit(_graph(marks, needed), SubmitQuery(session="s"))
        with pytest.raises(ConflictError, match="session 's' is not over"):
            node.retry("s", RetryRequest(start=("SECOND",)))
        before = _ended(node)
        if restarted:
            node.close()
            node = _node(tmp_path)
        needed.write_text("new\n")
        with pytest.raises(ConflictError, match="no drop of this session failed"):
            node.retry("s", RetryRequest())
        node.retry("s", RetryRequest(start=("b",)))
        ended = _ended(node)

        assert (before.status, ended.status) == ("FINISHED", "FINISHED")
        assert ended.epoch > before.epoch
        assert marks.read_text().split() == ["FIRST", "SECOND", "SECOND"]
        assert b"".join(node.data("s", "g_b_0").chunks) == b"new\n"
        assert (node.drop("s", "g_SECOND_0").attempt, node.drop("s", "g_FIRST_0").attempt) == (2, 1)
        assert "run again at " in ended.notes[-1]
        assert "drops were run again" in "".join(node.drop("s", "g_SECOND_0").reasons)
    finally:
        node.close()


# Sessions of managers that stop at their walltime, and are resumed.


def _walltime_graph(marks: Path, seconds: tuple[float, ...]) -> PhysicalGraph:
    """Return a chain of commands with these execution times."""
    builder = GraphBuilder("g")
    for at, expected in enumerate(seconds):
        fields = (
            Argument(name="command", value=f"echo A{at} >> {marks}; echo {at} > %o0"),
            Argument(name="execution_time", value=expected, type="Float"),
        )
        builder.app(f"A{at}", component="dlg.apps.bash_shell_app.BashShellApp", arguments=fields).data(f"d{at}")
        builder.connect(f"A{at}", f"d{at}")
        if at:
            builder.connect(f"d{at - 1}", f"A{at}")
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_a_session_stops_before_what_cannot_end_by_its_walltime(runner: str, tmp_path: Path) -> None:
    """It is CANCELLED when the rest has ended. Resumed without a walltime it finishes, and repeats nothing."""
    marks = tmp_path / "marks"
    node = NodeManager("n1", root=tmp_path, runner=runner, workers=2)
    try:
        until = SystemClock().now() + 600.0
        node.submit(_walltime_graph(marks, (1.0, 1.0, 3600.0)), SubmitQuery(session="s", until=until))
        stopped = _ended(node)
        begun = marks.read_text().split()
        node.resume("s", ResumeRequest())
        ended = _ended(node)

        assert (stopped.status, stopped.states) == ("CANCELLED", {"COMPLETED": 4, "CANCELLED": 2})
        assert stopped.text == "cancelled: stopped at its walltime; 'dropflow resume' goes on with it"
        assert begun == ["A0", "A1"]
        assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 6})
        assert marks.read_text().split() == ["A0", "A1", "A2"]
    finally:
        node.close()


# Sessions whose names have blanks and colons, on a real node manager behind its server.


NAME = "a graph_2025-01-01T10:00:00.123456+01"


def graph() -> bytes:
    """Return an application that writes the name of its session into a file."""
    name_file = node("file", "File", filepath="name.txt")
    return document(
        [node("write", "BashShellApp", command='echo "$DLG_SESSION_ID" > {io}'), name_file], [link("write", "file")]
    )


@pytest.mark.slow
def test_a_name_with_blanks_works_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """submit, the API, DALiuGE's paths, pages, fetch and a restarted node use the name of the session unchanged."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.graph").write_bytes(graph())

    def command(*arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit, match=r"^\d+$") as ended:
            main([*arguments, "--output", "json"])
        return ended.value.code, capsys.readouterr().out

    with closing(NodeManager("n", root=tmp_path / "n", runner="threads", workers=1)) as manager:
        served = Service(manager, token=None)
        served.start()
        status, answer = command("submit", "g.graph", "--name", NAME, "--wait", "--to", served.url)
        page = json.loads(answer)["url"]
        quoted = page.rpartition("/")[2]
        assert (status, json.loads(answer)["session"]) == (0, NAME)
        assert " " not in page
        with urlopen(page) as shown:  # noqa: S310 - our own server
            assert "a graph_2025" in shown.read().decode()
        with urlopen(f"{served.url}/api/sessions/{quoted}/status") as answer:  # noqa: S310
            assert json.loads(answer.read()) == 4
        assert command("watch", NAME, "--once", "--to", served.url)[0] == 0
        assert command("fetch", NAME, "--to", served.url, "-o", "got")[0] == 0
        texts = [path.read_text() for path in (tmp_path / "got").rglob("name.txt")]
        assert texts == [f"{NAME}\n"]
        served.close()
    assert [path.name for path in (tmp_path / "n" / "sessions").iterdir()] == [quoted.replace("%3a", "%3A")]
    with closing(NodeManager("n", root=tmp_path / "n", runner="threads", workers=1)) as manager:
        assert [info.session for info in manager.sessions()] == [NAME]
        manager.delete(NAME)
        assert list((tmp_path / "n" / "sessions").iterdir()) == []


@pytest.mark.slow
def test_clients_of_daliuge_name_their_sessions_themselves(tmp_path: Path) -> None:
    """A session that is created over DALiuGE's paths has its name on all paths, also after a restart."""
    drops = [{"oid": "A", "categoryType": "Data", "dropclass": "dlg.data.drops.memory.InMemoryDROP"}]
    with closing(NodeManager("n", root=tmp_path / "n", runner="threads", workers=1)) as manager:
        served = Service(manager, token=None)
        served.start()

        def post(path: str, body: bytes, kind: str) -> None:
            headers = {"Content-Type": kind}
            with urlopen(Request(f"{served.url}{path}", body, headers)) as answer:  # noqa: S310 - our own server
                assert answer.status == 200

        post("/api/sessions", json.dumps({"sessionId": "x y"}).encode(), "application/json")
        post("/api/sessions/x%20y/graph/append", json.dumps(drops).encode(), "application/json")
        post("/api/sessions/x%20y/deploy", b"completed=A", "application/x-www-form-urlencoded")
        with Client(served.url) as client:
            assert client.session("x y").session == "x y"
        served.close()
    with closing(NodeManager("n", root=tmp_path / "n", runner="threads", workers=1)) as manager:
        assert [info.session for info in manager.sessions()] == ["x y"]
