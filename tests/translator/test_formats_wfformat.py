import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translator.formats.wfformat import is_wfformat, read_wfformat
from translator.pipeline import check, translate
from translator.plan.task_graph import work_of


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
    assert {one.name for one in graph.templates} == {"A", "B", "C", "in", "x", "B -> C"}
    row = {one.name: graph.template.tolist().index(number) for number, one in enumerate(graph.templates)}
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
    family, problems = check(json.dumps(_document(specification={"tasks": tasks})).encode())

    assert family == "WfFormat"
    assert {(one.code, one.where.removeprefix("/workflow/specification/")) for one in problems} >= {
        ("PG002", "tasks/0/parents"),
        ("PG002", "tasks/0/inputFiles"),
        ("PG001", "tasks/0/outputFiles"),
        ("PG003", "tasks/1/id"),
        ("PG001", "tasks/2"),
        ("PG001", "tasks/3/parents"),
    }


def test_an_older_version_is_refused() -> None:
    """A document without a specification says how to convert it."""
    graph, problems = read_wfformat({"schemaVersion": "1.3", "workflow": {"tasks": []}}, "old")

    assert graph is None
    assert [one.code for one in problems] == ["PG001"]
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

    assert is_wfformat(document)
    assert (graph is not None) or problems


@pytest.mark.parametrize("value", [{}, [], {"workflow": 1}, {"workflow": {}, "nodeDataArray": []}])
def test_other_documents_are_no_workflows(value: Any) -> None:
    """A logical graph is never taken for a workflow."""
    assert not is_wfformat(value)
