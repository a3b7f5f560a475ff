"""Rehearsals: placeholders replace applications and data."""

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from dropflow.graph import codec
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.templates import Kind
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.cli.graph_documents import document, link, node
from translator.options import ComponentOptions, UnrollOptions
from translator.pipeline import examine, finish

REHEARSAL = UnrollOptions(rehearsal=True)


def drawn(precious: Path, touched: Path) -> bytes:
    """A scatter of shell applications, a shared library and a function, which write a file that is there already."""
    nodes = [
        node("start", "Memory"),
        node("s", "Scatter", num_of_copies=3),
        node("shell", "BashShellApp", parent="s", command=f"touch {touched}; false"),
        node("each", "File", parent="s", filepath=str(precious)),
        node("library", "DynlibApp", parent="s", libpath="libx.so"),
        node("stored", "S3", parent="s"),
        node("function", "PyFuncApp", func_name="nosuchmodule.f"),
        node("file", "File", filepath=str(precious)),
    ]
    names = ("start", "shell", "each", "library", "stored", "function", "file")
    return document(nodes, [link(one, other) for one, other in pairwise(names)])


def test_a_rehearsal_runs_no_application_and_writes_no_file(tmp_path: Path) -> None:
    """Every drop completes with any component; no application is run and no file of the user is written."""
    precious, touched = tmp_path / "precious.txt", tmp_path / "touched"
    precious.write_text("precious")
    found = examine(drawn(precious, touched), unroll_options=REHEARSAL, component_options=ComponentOptions(here=True))
    assert [(one.code, one.severity) for one in found.problems] == [("LG095", "info")]
    graph = finish(found).graph
    plain = finish(examine(drawn(precious, touched))).graph

    result = local_run.run(graph, directory=local_run.prepare_directory(tmp_path / "run"), runner="inline")

    assert result.status is SessionState.FINISHED, result.failures
    assert result.states["COMPLETED"] == result.drops == plain.drops
    assert precious.read_text() == "precious"
    assert not touched.exists()
    assert (graph.edges, graph.edges) == (plain.edges, plain.edges)


@pytest.mark.parametrize("form", ["dfg", "json"])
def test_physical_graphs_can_be_rehearsed(tmp_path: Path, form: str) -> None:
    """Graphs in a .dfg file and in DALiuGE's JSON can be rehearsed."""
    graph = finish(examine(drawn(tmp_path / "a", tmp_path / "b"))).graph
    path = tmp_path / f"g.{form}"
    if form == "dfg":
        codec.save(graph, path)
    else:
        with path.open("wb") as file:
            write_pg(graph, file)
    found = finish(examine(path, unroll_options=REHEARSAL, component_options=ComponentOptions(here=True)))

    kinds = {(template.kind, template.component) for template in found.graph.templates}
    assert kinds == {
        (Kind.APP, "dlg.apps.simple.SleepApp"),
        (Kind.DATA, "dlg.data.drops.memory.InMemoryDROP"),
    }
    assert "LG095" in {one.code for one in found.problems}
    assert all(argument.is_port for template in found.graph.templates for argument in template.arguments)


def test_both_sides_of_a_branch_are_rehearsed(tmp_path: Path) -> None:
    """The condition of a branch is not evaluated."""
    branch = node("branch", "Branch", dropclass="dlg.apps.branch.Branch", func_name="c", func_code="def c(x): 1 / 0")
    ways = [node("yes", "Memory"), node("no", "Memory")]
    graph = finish(
        examine(document([branch, *ways], [link("branch", "yes"), link("branch", "no")]), unroll_options=REHEARSAL)
    ).graph

    result = local_run.run(graph, directory=local_run.prepare_directory(tmp_path / "run"), runner="inline")

    assert msgspec.to_builtins(result.states)["COMPLETED"] == 3
