"""Families are recognised by structure."""

import copy
import json
import tracemalloc
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dropflow.errors import BadFileError
from tests.nightly import nightly
from tests.translator.documents import codes, document, errors, link, node, read, small
from translator.formats import Family
from translator.formats.json_document import classify, parse
from translator.formats.wfformat import read_wfformat
from translator.options import ReadOptions
from translator.pipeline import examine, translate
from translator.plan.task_graph import work_of

V4 = {"modelData": {"schemaVersion": "V4"}, "nodes": {"N": {"category": "Memory"}}, "edges": {}}
KEYS = [{"key": -1, "category": "Memory"}, {"key": -2, "category": "PythonApp"}]


def _keyed(**more: Any) -> dict[str, Any]:
    """A file whose links refer to keys."""
    return {"nodeDataArray": KEYS, "linkDataArray": [{"from": -1, "to": -2}], **more}


@pytest.mark.parametrize(
    ("content", "family"),
    [
        (small(), Family.OJS_ID),
        (document([{"oid": 4, "category": "File"}]), Family.OJS_OID),
        (_keyed(modelData={"schemaVersion": "OJS"}), Family.OJS_KEY),
        (_keyed(modelData={"fileType": "graph"}), Family.PRE_OJS),
        (_keyed(**{"class": "go.GraphLinksModel", "copiesArrays": True}), Family.GOJS),
        (V4, Family.V4),
        (document([]), Family.EMPTY),
        ([{"oid": "1_a_0"}, {}], Family.PHYSICAL),
        (["name", [{"oid": "1_a_0"}]], Family.PHYSICAL),
        ({"modelData": {"fileType": "Palette"}, "nodeDataArray": []}, Family.PALETTE),
        ({"modelData": {"type": "GraphConfig"}, "nodes": {}}, Family.CONFIGURATION),
        ({"name": "Peter"}, Family.NONE),
        ([1, 2, 3], Family.NONE),
        ("text", Family.NONE),
        (7, Family.NONE),
        (None, Family.NONE),
    ],
    ids=lambda value: value.value if isinstance(value, Family) else "",
)
def test_families_are_distinguished(content: Any, family: Family) -> None:
    """Each kind of document is recognised by what is in it."""
    assert classify(content) is family


def test_a_dfg_container_is_recognised_by_its_first_bytes() -> None:
    """The first bytes of a .dfg file are enough: one that is damaged is no bad JSON."""
    with pytest.raises(BadFileError, match="damaged"):
        examine(b"\x89DFG\r\n\x1a\n" + b"\0" * 100)


def test_a_list_of_drops_is_recognised_without_parsing_it() -> None:
    """A physical graph may be of any size: its first bytes are enough, even where the rest is cut off."""
    assert examine(b'\n [{"oid": "1_a_0", "name": "cut o').family == Family.PHYSICAL


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[1", b"nonsense"], ids=repr)
def test_what_cannot_be_read_has_no_family(data: bytes) -> None:
    """Broken files have no family, and asking does not raise."""
    assert classify(parse(data, ReadOptions()).value) is Family.NONE


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ([{"oid": "1_a_0"}], "physical graph"),
        ({"modelData": {"fileType": "palette"}, "nodeDataArray": []}, "palette"),
        ({"modelData": {"type": "GraphConfig"}, "nodes": {}}, "configuration"),
        ({"name": "Peter"}, "not a graph"),
        (7, "not a graph"),
    ],
    ids=str,
)
def test_files_that_are_not_logical_graph_are_named_by_kind(content: Any, word: str) -> None:
    """Reading another kind of file gives one LG001 with its kind and a hint."""
    reading = read(content)

    assert reading.graph is None
    assert [finding.code for finding in reading.problems] == ["LG001"]
    assert word in reading.problems[0].text
    assert reading.problems[0].hint


def test_the_identity_is_the_one_that_links_use() -> None:
    """Where nodes carry an id and a key, and links speak of keys, keys identify the nodes."""
    both = [node("a", "Memory", key=-1), node("b", "PythonApp", key=-2)]
    reading = read(document(both, [link(-1, "", -2, "")]))

    assert reading.family is Family.OJS_KEY
    assert reading.graph is not None
    assert [(edge.source, edge.target) for edge in reading.graph.links] == [("k-1", "k-2")]


def test_a_damaged_file_keeps_the_identity_that_fits_best() -> None:
    """One dangling edge does not make another attribute the identity of all nodes."""
    nodes = [node("a", "Memory", key=-1), node("b", "PythonApp", key=-2)]
    reading = read(document(nodes, [link("a", "", "b", ""), link("a", "", "gone", "")]))

    assert reading.family is Family.OJS_ID


# Parsing of documents: cheap checks come first, and each refusal has a reason.


MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b" \n\t ", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"{", "not JSON"),
        (b'{"a": 1', "not JSON"),
        (b'{"a": 1}}', "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": 1e999}', "not JSON"),
        (b"<html></html>", "not JSON"),
        (b"PK\x03\x04", "not JSON"),
        (b"\x1f\x8b\x08\x00", "not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a": "\xff"}', "not UTF-8 text: invalid start byte near byte 7"),
        (b"[" * 1000 + b"]" * 1000, "nested more than 200"),
    ],
    ids=repr,
)
def test_what_is_not_json_is_refused_with_a_reason_and_a_hint(data: bytes, reason: str) -> None:
    """Every unusable document gives one LG001 with the reason and a hint."""
    value, problems = parse(data, ReadOptions())

    assert value is None
    assert [finding.code for finding in problems] == ["LG001"]
    assert reason in problems[0].text
    assert problems[0].hint


def test_a_syntax_error_is_placed_by_line_and_column() -> None:
    """The text has the line and column at which the parser stopped."""
    _, problems = parse(b'{\n  "a": 1,\n  "b": ?\n}', ReadOptions())

    assert "line 3, column 8" in problems[0].text


def test_a_byte_order_mark_is_accepted() -> None:
    """A document that starts with a UTF-8 byte order mark is read."""
    assert parse(b'\xef\xbb\xbf{"a": 1}', ReadOptions()).value == {"a": 1}


def test_the_size_is_checked_before_parsing() -> None:
    """A document above the limit is refused without being parsed, also if it is not JSON."""
    _, problems = parse(b"x" * 100, ReadOptions(max_bytes=99))

    assert "has 100 bytes" in problems[0].text


@pytest.mark.slow
@pytest.mark.parametrize("piece", [b"[", b'"', *nightly(b"{", b'{"a":', b"\\", b" ")], ids=repr)
def test_fifty_megabytes_of_garbage_need_little_memory(piece: bytes) -> None:
    """A huge file of garbage is refused with less than 16 MB of memory besides its own bytes."""
    data = piece * (50 * MEGABYTE // len(piece))
    tracemalloc.start()
    try:
        value, problems = parse(data, ReadOptions())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert value is None
    assert len(problems) == 1
    assert peak < 16 * MEGABYTE


@given(st.binary(max_size=60))
def test_random_bytes_never_raise(data: bytes) -> None:
    """For any bytes, the result is a value or one finding."""
    value, problems = parse(data, ReadOptions())

    assert len(problems) == 1 or not problems
    assert value is None or not problems


# The structure of a document is checked against our own schema, in words.


def test_the_schema_is_a_schema() -> None:
    """Our schema is valid by the rules of its draft."""
    Draft202012Validator.check_schema(
        json.loads(files("translator.formats").joinpath("logical-graph.schema.json").read_text())
    )


@pytest.mark.parametrize(
    ("path", "value", "where", "text"),
    [
        (("nodeDataArray", 0), 7, "/nodeDataArray/0", "should be an object but is a number"),
        (("nodeDataArray", 0, "category"), None, None, ""),
        (("nodeDataArray", 0, "category"), ["x"], "/nodeDataArray/0/category", "'category' of node 'name of D' should"),
        (("nodeDataArray", 0, "fields"), "x", "/nodeDataArray/0/fields", "should be a list"),
        (("nodeDataArray", 0, "fields", 1, "name"), {}, "/nodeDataArray/0/fields/1", "of node 'name of D' has no name"),
        (("nodeDataArray", 1, "inputAppFields", 0), [], "/nodeDataArray/1/inputAppFields/0", "of node 'name of S'"),
        (("linkDataArray", 1, "to"), {}, "/linkDataArray/1/to", "'to' of edge number 2"),
        (("linkDataArray",), 4, "/linkDataArray", "'linkDataArray' should be a list"),
        (("graphConfigurations",), 4, "/graphConfigurations", "should be an object or a list"),
    ],
    ids=lambda value: "/".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_fault_is_named_with_its_node_and_place(path: tuple[Any, ...], value: Any, where: str, text: str) -> None:
    """A wrong structure gives LG007 with a JSON pointer and a text that names node and field."""
    content = small()
    here: Any = content
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    findings = [finding for finding in read(content).problems if finding.code == "LG007"]

    assert [finding.where for finding in findings] == ([where] if where else [])
    assert all(text in finding.text for finding in findings)


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([{"id": "a"}], "lacks 'category'"),
        ([{"category": "Memory"}], "has no identity"),
        ([{"id": "a", "category": "Memory", "fields": [{"value": 1}]}], "has no name"),
    ],
)
def test_missing_names_are_reported(nodes: list[Any], text: str) -> None:
    """Identity, category and names of fields are needed."""
    problems = read(document(nodes)).problems

    assert "LG007" in errors(problems)
    assert text in problems[0].text


def test_all_faults_are_reported_and_the_rest_is_read() -> None:
    """All faults are reported together, and the valid parts are in the graph."""
    content = document([7, {"id": "a"}, node("b", "Memory"), node("c", "NoSuchThing")], [{"from": "b"}])
    reading = read(content)

    assert codes(reading.problems).count("LG007") == 3
    assert "LG030" in codes(reading.problems)
    assert reading.graph is not None
    assert "b" in reading.graph.by_id


def test_very_many_faults_are_counted_and_not_listed() -> None:
    """The list of findings is limited, and its last one says that there are more."""
    problems = read(document([7] * 1000), options=ReadOptions(max_findings=10)).problems

    assert codes(problems) == ["LG007"] * 11
    assert "more than 10" in problems[-1].text


def test_a_sound_document_has_no_findings() -> None:
    """A valid document has no findings, and reading does not change it."""
    content = small()
    before = copy.deepcopy(content)

    assert read(content).problems == ()
    assert content == before


def _document(**changes: Any) -> dict[str, Any]:
    """Two tasks: A writes a file that B reads; C depends on B without a file."""
    specification = {
        "tasks": [
            {"name": "a", "id": "A", "parents": [], "children": ["B"], "inputFiles": ["in"], "outputFiles": ["x"]},
            {"name": "b", "id": "B", "parents": ["A"], "children": ["C"], "inputFiles": ["x"], "outputFiles": []},
            {"name": "c", "id": "C", "parents": ["B"], "children": []},
        ],
        "files": [{"id": "in", "sizeInBytes": 10}, {"id": "x", "sizeInBytes": 20}],
    }
    execution = {
        "makespanInSeconds": 6,
        "tasks": [
            {"id": "A", "runtimeInSeconds": 1.5, "coreCount": 2, "memoryInBytes": 1000},
            {"id": "B", "runtimeInSeconds": 2.0},
            {"id": "C", "runtimeInSeconds": 3.0},
        ],
    }
    workflow = {"specification": specification | changes.pop("specification", {}), "execution": execution}
    return {"name": "w", "schemaVersion": "1.5", "workflow": workflow} | changes


def test_a_workflow_becomes_a_physical_graph() -> None:
    """Three applications, two files and one drop for the dependency without a file; names are ids."""
    done = translate(json.dumps(_document()).encode())
    graph, work = done.graph, work_of(done.graph)

    assert done.family == "WfFormat"
    assert {template.name for template in graph.templates} == {"A", "B", "C", "in", "x", "B -> C"}
    row = {entry.name: graph.template.tolist().index(number) for number, entry in enumerate(graph.templates)}
    assert (work.seconds[row["A"]], work.cpus[row["A"]], work.memory[row["A"]]) == (1.5, 2, 1000)
    assert (work.volume[row["x"]], work.volume[row["B -> C"]]) == (20, 0)
    assert graph.edges == 5
    assert not done.problems


def test_problems_have_places() -> None:
    """Every mistake of a document is reported, each with a pointer."""
    tasks = [
        {"id": "A", "parents": ["Z"], "inputFiles": ["missing"], "outputFiles": 3},
        {"id": "A"},
        {"name": "no id"},
        {"id": "B", "parents": ["B"]},
    ]
    checked = examine(json.dumps(_document(specification={"tasks": tasks})).encode())

    assert checked.family == "WfFormat"
    assert {(problem.code, problem.where.removeprefix("/workflow/specification/")) for problem in checked.problems} >= {
        ("PG002", "tasks/0/parents"),
        ("PG002", "tasks/0/inputFiles"),
        ("PG001", "tasks/0/outputFiles"),
        ("PG003", "tasks/1/id"),
        ("PG001", "tasks/2"),
        ("PG001", "tasks/3/parents"),
    }


@pytest.mark.parametrize("number", [10**400, -1])
def test_a_number_that_is_none_has_a_place(number: int) -> None:
    """A time that no float can be is a mistake like a negative one, also if it has hundreds of digits."""
    execution = {"tasks": [{"id": "A", "runtimeInSeconds": number}]}
    graph, problems = read_wfformat(
        {"workflow": {"specification": {"tasks": [{"id": "A"}]}, "execution": execution}}, "g"
    )

    assert graph is None
    assert [problem.code for problem in problems] == ["PG001"]


def test_an_older_version_is_refused() -> None:
    """A document without a specification says how to convert it."""
    graph, problems = read_wfformat({"schemaVersion": "1.3", "workflow": {"tasks": []}}, "old")

    assert graph is None
    assert [problem.code for problem in problems] == ["PG001"]
    assert "1.3" in problems[0].text


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["A", "B", "x", "in", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "tasks", "files", "parents", "children", "inputFiles", "outputFiles", "sizeInBytes"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(_VALUES, _VALUES)
def test_any_content_is_a_graph_or_problems(specification: Any, execution: Any) -> None:
    """No document makes the reader raise."""
    document = {"workflow": {"specification": specification, "execution": execution}}
    graph, problems = read_wfformat(document, "g")

    assert classify(document) is Family.WFFORMAT
    assert (graph is not None) or problems


@pytest.mark.parametrize("value", [{}, [], {"workflow": 1}, {"workflow": {}, "nodeDataArray": []}])
def test_other_documents_are_no_workflows(value: Any) -> None:
    """A logical graph is never taken for a workflow."""
    assert classify(value) is not Family.WFFORMAT
