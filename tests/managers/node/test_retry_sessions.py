"""Sessions of one node that are resumed and whose failed drops are tried again, also after a restart of the node."""

import shutil
from pathlib import Path

import msgspec
import pytest

from dropflow.api.records import SessionDetail, SubmitQuery
from dropflow.api.requests import ResumeRequest, RetryRequest
from dropflow.errors import ConflictError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from managers.node.directory import NextView
from managers.node.manager import NodeManager
from managers.recovery.records import StoppedPart
from managers.recovery.resume import plan_resumption


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
    key = next(one.key for one in graph.templates if one.name == "SECOND")
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
