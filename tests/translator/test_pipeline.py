import json
import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dropflow.errors import BadFileError, BadGraphError
from dropflow.failure import Problem, Severity
from dropflow.graph import codec
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.logical_drawing import LogicalDrawing, draw_logical
from dropflow.graph.notes import DRAWN as META
from dropflow.graph.notes import positions_of
from dropflow.graph.order import Precedence
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from tests.translator.documents import document, link, node, port
from tests.translator.drawing import Drawing
from tests.translator.templates import template
from translator.drawn_positions import drawn_positions
from translator.formats import Family, read_logical
from translator.formats.dump import dump
from translator.formats.json_document import position
from translator.logical import LogicalGraph
from translator.options import PartitionOptions, ReadOptions, UnrollOptions
from translator.pipeline import examine, translate
from translator.same_files import same_files
from translator.unroll import outline_of

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
    problems = examine(content).problems
    assert code in [problem.code for problem in problems]
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
    places = {finding.code: finding.where for finding in examine(content).problems}
    assert set(places) >= {"LG003", "LG004", "LG020", "LG093"}
    assert places["LG004"].startswith("/nodeDataArray/1")
    assert places["LG020"].startswith("/nodeDataArray/0")


def test_a_problem_is_reported_once() -> None:
    """Two stages that find the same thing at the same place make one finding."""
    problems = examine(wide("many")).problems
    places = [(finding.code, finding.where) for finding in problems]
    assert len(places) == len(set(places))


@pytest.mark.parametrize("blank", [None, "", " ", "None"])
def test_a_parameter_without_a_value_is_one_problem(blank: object) -> None:
    """LG090 names it once, and the rest of the graph is checked as if it had a value; a blank text is none."""
    graph = template("{n}")
    graph["nodeDataArray"][0]["fields"][0]["value"] = blank
    checked = examine(json.dumps(graph).encode())
    errors = [problem for problem in checked.problems if problem.severity is Severity.ERROR]

    assert [(problem.code, problem.text) for problem in errors] == [("LG090", "the parameter 'n' has no value")]
    graph["nodeDataArray"][2]["category"] = "Nothing"
    more = {problem.code for problem in examine(json.dumps(graph).encode()).problems}
    assert more > {"LG090"}
    filled = examine(json.dumps(graph).encode(), settings={"n": 2}).problems
    assert more - {problem.code for problem in filled} == {"LG090"}


def test_examining_gives_the_plan_without_unrolling() -> None:
    """The numbers of drops of a graph are known, also if it is too large to unroll."""
    checked = examine(wide(10**12))
    assert checked.outline is not None
    assert checked.outline.drops == 10**12


# Warnings about files that several drops would write.


def found(drawing: Drawing) -> list[Problem]:
    """Return the findings about the files of a drawing."""
    outline = outline_of(drawing.graph())
    return same_files(outline.templates, outline.links, {"f": "/nodeDataArray/7"})


def in_scatter(filepath: str, *, copies: int = 3, category: str = "File") -> Drawing:
    """A file or directory that each copy of a scatter writes."""
    drawing = Drawing()
    field = "dirname" if category == "Directory" else "filepath"
    with drawing.scatter("S", copies):
        drawing.app("work").data("f", category, **{field: filepath})
    return drawing.link("work", "f")


def test_one_file_in_a_scatter_is_reported() -> None:
    """The warning has the number of drops, the file, the place of the node and a hint."""
    (problem,) = found(in_scatter("sub/same.txt"))

    assert (problem.code, problem.severity.value, problem.where) == ("LG085", "warning", "/nodeDataArray/7")
    assert problem.text == "3 drops of 'f' write one file, sub/same.txt"
    assert "{auto} or {uid}" in problem.hint


@pytest.mark.parametrize("filepath", ["", "None", "a_{uid}.txt", "{humanKey}", "{auto}", "sub/", "$NOT_SET_ANYWHERE/x"])
def test_distinct_files_give_no_warning(filepath: str) -> None:
    """Names that differ between drops, or that are not known yet, give no warning."""
    assert found(in_scatter(filepath)) == []


def test_directories_and_absolute_names_are_checked() -> None:
    """Placeholders that are the same for all drops do not help; one copy writes alone."""
    assert [problem.code for problem in found(in_scatter("/there/x_{{}}_{dlg}"))] == ["LG085"]
    assert [problem.code for problem in found(in_scatter("/there/x", category="Directory"))] == ["LG085"]
    assert found(in_scatter("x", copies=1)) == []


def test_two_nodes_that_do_not_wait_for_each_other_are_reported() -> None:
    """One that reads the file and writes it again is fine, and so is one that only reads it."""
    drawing = Drawing().app("A").app("B").data("f", "File", filepath="x").data("g", "File", filepath="./x")
    drawing.link("A", "f").link("B", "g")
    assert [problem.text for problem in found(drawing)] == ["'f' and 'g' write one file, x"]

    drawing.link("f", "B")
    assert found(drawing) == []

    reading = Drawing().app("A").app("B").data("f", "File", filepath="x").data("g", "File", filepath="x").data("h")
    assert found(reading.link("A", "f").link("g", "B", "h")) == []


def test_each_further_node_with_one_file_is_reported_once() -> None:
    """Of many nodes that write one file, each has one warning, which names the first."""
    drawing = Drawing()
    for number in range(4):
        drawing.app(f"A{number}").data(f"f{number}", "File", filepath="x").link(f"A{number}", f"f{number}")

    assert [problem.text for problem in found(drawing)] == [
        f"'f0' and 'f{number}' write one file, x" for number in (1, 2, 3)
    ]


@pytest.mark.parametrize("step", [1, -1, 7])
def test_a_chain_of_nodes_that_write_one_file_is_compared_node_by_node(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not each with each, in whichever order the nodes are in the file: each comparison walks through the graph."""
    drawing, compared, holds = Drawing(), list[int](), Precedence.holds
    monkeypatch.setattr(Precedence, "holds", lambda *given: compared.append(1) or holds(*given))
    for number in sorted(range(32), key=lambda number: number * step % 32 if step > 0 else -number):
        drawing.app(f"A{number}").data(f"f{number}", "File", filepath="x").link(f"A{number}", f"f{number}")
    for number in range(31):
        drawing.link(f"f{number}", f"A{number + 1}")

    assert found(drawing) == []
    assert len(compared) <= 32 * 2 * 6


def test_iterations_of_a_loop_may_write_one_file() -> None:
    """Iterations that wait for each other may write one file; others give a warning."""
    for carries in (True, False):
        drawing = Drawing()
        with drawing.loop("L", 3):
            drawing.app("work", group_start=True).data("f", "File", filepath="x").data("e", group_end=True)
        drawing.link("work", "f")
        drawing.link("f", "work", closes=True) if carries else drawing.link("work", "e")
        assert [problem.code for problem in found(drawing)] == ([] if carries else ["LG085"])


# Where EAGLE drew the nodes, from the file to the drawing of the logical graph.


PLACES = {"a": (0.0, 0.0), "b": (0.0, 900.0), "c": (-400.0, 450.0), "s": (10.0, 10.0)}


def placed() -> LogicalGraph:
    """Return a graph from top to bottom: a, then b and c in a scatter with an application of its own."""
    drawing = Drawing().data("a")
    with drawing.scatter("s", 3, app="split"):
        drawing.app("b").data("c")
    drawing.link("a", "split").link("split", "b").link("b", "c")
    graph = drawing.graph()
    nodes = tuple(msgspec.structs.replace(node, position=PLACES.get(node.id)) for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=nodes)


def middles(drawing: LogicalDrawing) -> dict[str, tuple[float, float]]:
    """Return the places of nodes by their key."""
    return {node.key: (node.x, node.y) for node in drawing.nodes}


@pytest.mark.parametrize(
    ("node", "found"),
    [
        ({"x": 1, "y": -2.5}, (1.0, -2.5)),
        ({"loc": "12.5 -7"}, (12.5, -7.0)),
        ({"x": 0, "y": 0, "loc": "3 4"}, (0.0, 0.0)),
        ({"x": 1}, None),
        ({"x": "1", "y": "2"}, None),
        ({"x": True, "y": 1}, None),
        ({"x": 10**400, "y": 1}, None),
        ({"x": float("nan"), "y": 1}, None),
        ({"x": float("inf"), "y": 1}, None),
        ({"loc": "1 NaN"}, None),
        ({"loc": "here"}, None),
        ({}, None),
    ],
)
def test_coordinates_of_a_node(node: dict[str, Any], found: tuple[float, float] | None) -> None:
    """Two usable numbers; all else is like no coordinates."""
    assert position(node) == found


@pytest.mark.parametrize("family", [Family.OJS_ID, Family.V4])
def test_coordinates_are_written_and_read(family: Family) -> None:
    """A graph that is written has them as before, and nodes without coordinates still have none."""
    reading = read_logical(json.dumps(dump(placed(), family)).encode(), name="again")
    assert reading.graph is not None
    assert {node.id: node.position for node in reading.graph.nodes} == {**PLACES, "split": None}


def test_an_embedded_application_is_beside_what_is_in_its_construct() -> None:
    """Left of it for the input application; and a file in which all nodes are in one place was not drawn."""
    assert drawn_positions(placed()) == {
        "a": PLACES["a"],
        "b": PLACES["b"],
        "c": PLACES["c"],
        "split": (-520.0, 675.0),
    }

    nodes = tuple(msgspec.structs.replace(node, position=(0.0, 0.0)) for node in placed().nodes)
    assert drawn_positions(msgspec.structs.replace(placed(), nodes=nodes)) == {}


def test_nodes_are_drawn_as_in_the_file() -> None:
    """The drawing has the directions of EAGLE, also from a .dfg container, and is another one without the note."""
    graph = translate(placed()).graph
    again = codec.parse(b"".join(codec.dump(graph)), where="memory")
    assert positions_of(again) == positions_of(graph) != {}

    drawn = middles(draw_logical(again))
    assert drawn["b"][1] > drawn["c"][1] > drawn["a"][1]
    assert drawn["c"][0] < drawn["b"][0]
    assert drawn["split"][0] < drawn["c"][0]

    plain = middles(draw_logical(replace(graph, meta={})))
    assert plain["c"][0] > plain["b"][0]


@pytest.mark.parametrize("note", ["{", "[]", '{"a": [1]}', '{"a": ["x", 1]}', '{"a": [1e300, 0], "none": [0, 0]}'])
def test_a_damaged_note_is_like_none(note: str) -> None:
    """Graph files may be damaged or from elsewhere; the drawing is then that of a graph without places."""
    graph: PhysicalGraph = translate(placed()).graph
    damaged = replace(graph, meta={META: note})
    assert positions_of(damaged) == {}
    assert draw_logical(damaged) == draw_logical(replace(graph, meta={}))
