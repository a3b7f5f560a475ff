"""Sessions of managers that stop at their walltime, and are resumed."""

from pathlib import Path

import pytest

from dropflow.api.records import SessionDetail, SubmitQuery
from dropflow.api.requests import ResumeRequest
from dropflow.clock import SystemClock
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from managers.node.manager import NodeManager


def _graph(marks: Path, seconds: tuple[float, ...]) -> PhysicalGraph:
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


def _ended(node: NodeManager) -> SessionDetail:
    detail = node.session("s")
    while not detail.is_over:
        detail = node.watch("s", version=detail.version, seconds=5.0)
    return detail


@pytest.mark.parametrize("runner", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_session_stops_before_what_cannot_end_by_its_walltime(runner: str, tmp_path: Path) -> None:
    """It is CANCELLED when the rest has ended. Resumed without a walltime it finishes, and repeats nothing."""
    marks = tmp_path / "marks"
    node = NodeManager("n1", root=tmp_path, runner=runner, workers=2)
    try:
        until = SystemClock().now() + 600.0
        node.submit(_graph(marks, (1.0, 1.0, 3600.0)), SubmitQuery(session="s", until=until))
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
