"""Validation finds all problems that do not depend on sizes, in one pass."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dropflow.failure import Problem, Severity
from tests.translator.documents import codes, document, errors, field, graph_of, link, node, port, read, small
from translator import problem_codes
from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind
from translator.options import ValidateOptions
from translator.problem_codes import CODES, problem
from translator.validate import fixed, validate


def _joined(going: str, coming: str, *, usage: str = "OutputPort") -> LogicalGraph:
    """An application that writes into data, with ports of these types."""
    return graph_of(
        document(
            [
                node("a", "DALiuGEApp", port("p", "out", usage, type=going)),
                node("b", "Memory", port("q", "in", "InputPort", type=coming)),
            ],
            [link("a", "p", "b", "q")],
        )
    )


def test_a_sound_graph_has_no_findings() -> None:
    """A valid graph has no findings."""
    assert validate(graph_of(small())) == ()


def test_a_dangling_edge_is_named_with_a_similar_name() -> None:
    """An end that is not a node gives LG003 with its place and a similar id."""
    content = small()
    content["linkDataArray"][1]["to"] = "PP"
    problems = validate(graph_of(content))

    assert errors(problems) == ["LG003"]
    assert problems[0].where == "/linkDataArray/1"
    assert "'name of S'" in problems[0].text
    assert "'PP'" in problems[0].text
    assert problems[0].hint == "did you mean 'P'?"


def test_both_ends_of_an_edge_may_dangle() -> None:
    """Each missing end is a finding of its own."""
    assert errors(validate(graph_of(document([node("a", "Memory")], [link("x", "", "y", "")])))) == ["LG003", "LG003"]


@pytest.mark.parametrize(("parent", "text"), [("nowhere", "does not exist"), ("b", "is not a construct")])
def test_a_parent_must_be_a_construct(parent: str, text: str) -> None:
    """A node inside something that is not a construct gives LG004."""
    problems = validate(graph_of(document([node("a", "Memory", parentId=parent), node("b", "Memory")])))

    assert errors(problems) == ["LG004"]
    assert text in problems[0].text


def test_ids_are_unique() -> None:
    """Two nodes with one id give LG006 that names both."""
    problems = validate(graph_of(document([node("a", "Memory"), node("a", "File", name="other")])))

    assert errors(problems) == ["LG006"]
    assert "'name of a' and 'other'" in problems[0].text


def test_a_missing_port_of_an_application_is_an_error() -> None:
    """LG010 lists the ports that the application has."""
    content = small()
    content["linkDataArray"][0]["toPort"] = "gone"
    problems = validate(graph_of(content))

    assert errors(problems) == ["LG010"]
    assert "'whole' (in)" in problems[0].hint


def test_a_missing_port_of_data_is_a_warning() -> None:
    """A data node does not need the port, which only gives the edge a name."""
    content = small()
    content["linkDataArray"][0]["fromPort"] = "gone"
    problems = validate(graph_of(content))

    assert (codes(problems), errors(problems)) == (["LG010"], [])


def test_an_edge_against_the_direction_of_its_port_is_a_warning() -> None:
    """Starting at a port that only reads gives LG011."""
    assert codes(validate(_joined("Object", "Object", usage="InputPort"))) == ["LG011"]


@pytest.mark.parametrize(
    ("going", "coming", "fits"),
    [
        ("Integer", "Integer", True),
        ("Object", "Integer", True),
        ("Object.Array", "Object", True),
        ("Object.Array", "Object.Array.Big", True),
        ("Object.Array", "Object.File", False),
        ("Integer", "Float", False),
        ("Unknown", "Float", True),
    ],
)
def test_types_of_ports_should_fit(going: str, coming: str, *, fits: bool) -> None:
    """Types fit if one is a prefix of the other or unspecific; else LG012 warns."""
    assert codes(validate(_joined(going, coming))) == ([] if fits else ["LG012"])


def test_parameters_with_names_of_structural_keys_are_warned_of() -> None:
    """A parameter called weight is accepted here and ignored by DALiuGE: LG110."""
    problems = validate(graph_of(document([node("a", "DALiuGEApp", field("weight", 3))])))

    assert (codes(problems), errors(problems)) == (["LG110"], [])


@pytest.mark.parametrize(
    ("fields", "used", "text"),
    [
        ([field("k", 0), field("k", 9)], 0, "has the values 0 and 9; the former is used"),
        ([field("k", ""), field("k", 9), port("k", "k", "InputPort")], 9, ""),
        ([field("k", 9), port("k", "k", "OutputPort")], 9, "a function does not get its value 9"),
        ([field("k", ""), port("k", "k", "OutputPort")], None, ""),
    ],
)
def test_fields_of_one_name_are_warned_of(fields: list[dict[str, Any]], used: int | None, text: str) -> None:
    """LG111 names the value that is used, or is not; a blank field does not hide the value of another one."""
    graph = graph_of(document([node("a", "PyFuncApp", *fields)]))
    problems = validate(graph)

    assert codes(problems) == (["LG111"] if text else [])
    assert text in "".join(finding.text for finding in problems)
    assert graph.by_id["a"].value("k") == used


def test_all_problems_are_found() -> None:
    """Validation reports all problems, and does not stop at the first."""
    content = document(
        [node("a", "Memory"), node("a", "Memory"), node("b", "DALiuGEApp", parentId="x")], [link("a", "", "b", "gone")]
    )

    assert errors(validate(graph_of(content))) == ["LG006", "LG004", "LG010"]


def test_the_number_of_findings_is_limited() -> None:
    """A graph with very many errors gives the maximal number of findings, quickly."""
    links = tuple(LogicalLink(source="x", target="y") for _ in range(10_000))

    assert len(validate(LogicalGraph(name="g", family="", links=links), ValidateOptions(max_findings=7))) == 7


def test_graphs_without_pointers_can_be_validated() -> None:
    """Graphs that were not read from a file have no pointers."""
    app = LogicalNode(id="a", name="a", category="DALiuGEApp", kind=NodeKind.APP, fields=(Field(id="f", name="id"),))

    assert codes(validate(LogicalGraph(name="g", family="", nodes=(app, replace(app, id="b"))))) == ["LG110", "LG110"]


def test_an_unknown_parent_of_an_unknown_category_is_found_after_reading() -> None:
    """A graph that was read with errors can still be checked for more."""
    reading = read(document([node("a", "NoSuchThing", parentId="x")]))

    assert reading.graph is not None
    assert (errors(reading.problems), errors(validate(reading.graph))) == (["LG030"], ["LG004"])


# The table of problem codes is complete and correct.


ROOT = Path(__file__).resolve().parents[2]


def test_every_code_that_is_used_has_a_meaning() -> None:
    """All codes in the sources are in the table, and each code of the table is used."""
    folders = [ROOT / "translator", ROOT / "dropflow"]
    sources = [path for folder in folders for path in folder.rglob("*.py") if path.name != "problem_codes.py"]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    used = set(re.findall(r'"((?:LG|PG|PT)\d{3})"', text))
    names = {name: code for name, code in vars(problem_codes).items() if isinstance(code, str) and code in CODES}
    used |= {code for name, code in names.items() if re.search(rf"\b{name}\b", text)}

    assert used == set(CODES)


def test_a_finding_has_the_usual_severity_of_its_code() -> None:
    """The table gives the severity where the caller does not."""
    assert problem("LG002", "x").severity is CODES["LG002"][0]


# What is mended in a graph file, and what is left as it is.


@pytest.mark.parametrize("fields", [True, 7, "text", None, {"1": {"name": "x"}}, [3, {"name": "appclass"}], {"1": 5}])
def test_a_node_with_damaged_fields_still_gets_its_category(fields: Any) -> None:
    """Fields that are no fields are left to the checks; the rest of the node is mended."""
    document = {"nodeDataArray": [{"category": "PythonApp", "fields": fields}]}
    problem = Problem(
        code="LG031", severity=Severity.WARNING, where="/nodeDataArray/0/category", text="an older category"
    )
    _, fixes = fixed(document, LogicalGraph(name="g", family="ojs"), [problem])

    assert [fix.code for fix in fixes] == ["LG031"]
