import json
import re
from io import BytesIO
from pathlib import Path

import pytest

from dropflow.errors import BadFileError, BadGraphError
from dropflow.failure import Severity
from dropflow.graph import codec
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.text_ids import oids
from tests.translator.documents import document, link, node, port
from tests.translator.templates import template
from translator.options import PartitionOptions, ReadOptions, UnrollOptions
from translator.pipeline import check, examine, translate

CLASS = {"id": "F", "name": "dropclass", "value": "dlg.apps.simple.CopyApp", "type": "String", "usage": "NoPort"}


def chain() -> bytes:
    """Data, a copy, data."""
    nodes = [
        node("d", "Memory", port("d.o", "io", "InputOutput")),
        node("a", "DALiuGEApp", port("a.i", "in", "InputPort"), port("a.o", "out", "OutputPort"), CLASS),
        node("e", "Memory", port("e.i", "io", "InputOutput")),
    ]
    links = [link("d", "d.o", "a", "a.i"), link("a", "a.o", "e", "e.i")]
    return json.dumps(document(nodes, links)).encode()


def wide(copies: object) -> bytes:
    """A scatter of so many copies of one data node."""
    fields = [{"id": "N", "name": "num_of_copies", "value": copies, "type": "Integer", "usage": "NoPort"}]
    nodes = [
        {"id": "s", "name": "s", "category": "Scatter", "isGroup": True, "fields": fields},
        node("d", "Memory", parentId="s"),
    ]
    return json.dumps(document(nodes)).encode()


def cycle() -> bytes:
    """A drop list in which two drops wait for each other."""
    drops = [
        {"oid": "a", "categoryType": "Application", "dropclass": "x.A", "inputs": ["d"], "outputs": ["d"]},
        {"oid": "d", "categoryType": "Data", "dropclass": "x.D", "producers": ["a"], "consumers": ["a"]},
    ]
    return json.dumps(drops).encode()


def test_a_logical_graph_passes_all_stages(tmp_path: Path) -> None:
    """A file becomes a physical graph with its name, and the given prefix, parts and places."""
    path = tmp_path / "my graph.graph"
    path.write_bytes(chain())
    done = translate(path, partition_options=PartitionOptions(algorithm="blocks", parts=2), nodes=("n1", "n2"))
    assert done.family == "OJS-id"
    assert done.logical is not None
    assert (done.graph.name, done.graph.prefix, done.graph.drops, done.graph.edges) == ("my graph", "my_graph", 3, 2)
    assert (done.graph.parts, done.graph.places) == (2, ("n1", "n2"))
    assert oids(translate(path, unroll_options=UnrollOptions(prefix="1")).graph, [0]) == ["1_d_0"]


def test_the_same_graph_from_every_form(tmp_path: Path) -> None:
    """Logical JSON, a list of drops and a container give the same drops, from a file and from bytes."""
    graph = translate(chain(), name="g").graph
    stream = BytesIO()
    write_pg(graph, stream)
    (tmp_path / "g.pg").write_bytes(stream.getvalue())
    codec.save(graph, tmp_path / "g.dfg")
    for name, family in (("g.pg", "physical-graph"), ("g.dfg", "dfg")):
        for source in (tmp_path / name, (tmp_path / name).read_bytes()):
            done = translate(source, name="g")
            assert (done.family, done.logical) == (family, None)
            assert oids(done.graph, range(3)) == oids(graph, range(3))
            assert done.graph.edges == graph.edges


def test_settings_are_applied_before_unrolling() -> None:
    """A setting of a multiplicity changes the number of drops."""
    assert translate(wide(3)).graph.drops == 3
    assert translate(wide(3), settings=["s.num_of_copies=5"]).graph.drops == 5


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "LG001"),
        (b"no json", "LG001"),
        (b"3", "LG001"),
        (b"[1, 2]", "PG001"),
        (wide(-1), "LG020"),
        (wide("many"), "LG020"),
        (wide(10**12), "LG120"),
        (cycle(), "LG050"),
        (json.dumps(document([node("d", "Memory")], [link("d", "", "nowhere", "")])).encode(), "LG003"),
    ],
)
def test_bad_input_is_refused_with_its_code(content: bytes, code: str) -> None:
    """All faults are findings of a check, and one error with all of them in a translation."""
    _, problems = check(content)
    assert code in [found.code for found in problems]
    with pytest.raises(BadGraphError, match=code) as caught:
        translate(content)
    assert caught.value.problems == problems


def test_files_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    """A missing file, a directory, a damaged container and a file that is too large are bad files."""
    graph = translate(chain()).graph
    codec.save(graph, tmp_path / "cut.dfg")
    (tmp_path / "cut.dfg").write_bytes((tmp_path / "cut.dfg").read_bytes()[:-1])
    for path in (tmp_path / "missing.graph", tmp_path, tmp_path / "cut.dfg"):
        with pytest.raises(BadFileError, match=re.escape(str(path))):
            translate(path)
    (tmp_path / "large.graph").write_bytes(chain())
    with pytest.raises(BadFileError, match="10 bytes"):
        translate(tmp_path / "large.graph", read_options=ReadOptions(max_bytes=10))


def test_all_stages_report_together() -> None:
    """Findings about a reference, a number and a class are in one answer, each with its place."""
    nodes = [
        {**json.loads(wide(-2))["nodeDataArray"][0]},
        node("d", "Memory", parentId="nowhere"),
        node("a", "DALiuGEApp"),
    ]
    content = json.dumps(document(nodes, [link("d", "", "gone", "")])).encode()
    found = {finding.code: finding.where for finding in check(content)[1]}
    assert set(found) >= {"LG003", "LG004", "LG020", "LG093"}
    assert found["LG004"].startswith("/nodeDataArray/1")
    assert found["LG020"].startswith("/nodeDataArray/0")


def test_a_problem_is_reported_once() -> None:
    """Two stages that find the same thing at the same place make one finding."""
    problems = check(wide("many"))[1]
    places = [(finding.code, finding.where) for finding in problems]
    assert len(places) == len(set(places))


def test_a_parameter_without_a_value_is_one_problem() -> None:
    """LG090 names it once, and the rest of the graph is checked as if it had a value."""
    graph = template("{n}")
    found = examine(json.dumps(graph).encode())
    errors = [problem for problem in found.problems if problem.severity is Severity.ERROR]

    assert [(problem.code, problem.text) for problem in errors] == [("LG090", "the parameter 'n' has no value")]
    graph["nodeDataArray"][2]["category"] = "Nothing"
    more = {problem.code for problem in examine(json.dumps(graph).encode()).problems}
    assert more > {"LG090"}
    filled = examine(json.dumps(graph).encode(), settings={"n": 2}).problems
    assert more - {problem.code for problem in filled} == {"LG090"}


def test_examining_gives_the_plan_without_unrolling() -> None:
    """The numbers of drops of a graph are known, also if it is too large to unroll."""
    found = examine(wide(10**12))
    assert found.plan is not None
    assert found.plan.drops == 10**12
