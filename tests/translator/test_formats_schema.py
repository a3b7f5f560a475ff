"""The structure of a document is checked against our own schema, in words."""

import copy
import json
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.translator.documents import codes, document, errors, node, read, small
from translator.options import ReadOptions


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
    found = [finding for finding in read(content).problems if finding.code == "LG007"]

    assert [finding.where for finding in found] == ([where] if where else [])
    assert all(text in finding.text for finding in found)


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
