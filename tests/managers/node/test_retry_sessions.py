"""Sessions of one node that are resumed and whose failed drops are tried again, also after a restart of the node."""

from pathlib import Path

import pytest

from dropflow.errors import ConflictError
from dropflow.graph.builder import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.rest.operation_records import ResumeRequest, RetryRequest
from dropflow.rest.schema import SessionDetail, SubmitQuery
from managers.node.manager import NodeManager


def _node(directory: Path) -> NodeManager:
    return NodeManager("n1", root=directory, runner="threads", workers=2)


def _graph(marks: Path, needed: Path) -> PhysicalGraph:
    """Return two commands one after the other. The second one fails while a file is missing."""
    builder = GraphBuilder("g")
    commands = {
        "FIRST": f"echo FIRST >> {marks}; echo 1 > %o0",
        "SECOND": f"echo SECOND >> {marks}; cat {needed} > %o0",
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


def test_a_cancelled_session_is_resumed(tmp_path: Path) -> None:
    """The drops that were cancelled run, and those that had completed are kept."""
    marks, needed = tmp_path / "marks", tmp_path / "needed"
    needed.write_text("2\n")
    node = _node(tmp_path)
    try:
        graph = _graph(marks, needed)
        node.submit(graph, SubmitQuery(session="s"))
        node.pause("s")
        node.cancel("s", "enough")
        cancelled = _ended(node)
        if cancelled.status == "CANCELLED":
            node.resume("s", ResumeRequest())
        ended = _ended(node)

        assert ended.status == "FINISHED"
        assert marks.read_text().split() == ["FIRST", "SECOND"]
    finally:
        node.close()
