"""Families are recognised by structure."""

import json
from typing import Any

import pytest

from tests.translator.documents import document, link, node, read, small
from translator.formats import Family, detect

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
    assert detect(json.dumps(content).encode()) is family


def test_a_dfg_container_is_recognised_by_its_first_bytes() -> None:
    """The first bytes of a .dfg file are enough."""
    assert detect(b"\x89DFG\r\n\x1a\n" + b"\0" * 100) is Family.DFG


def test_a_list_of_drops_is_recognised_without_parsing_it() -> None:
    """A physical graph may be of any size: its first bytes are enough, even where the rest is cut off."""
    assert detect(b'\n [{"oid": "1_a_0", "name": "cut o') is Family.PHYSICAL


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[1", b"nonsense"], ids=repr)
def test_what_cannot_be_read_has_no_family(data: bytes) -> None:
    """Broken files have no family, and asking does not raise."""
    assert detect(data) is Family.NONE


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
