"""The examples and palettes keep the rules that EAGLE checks when it loads a file, and draws without overlaps."""

import json
from collections import Counter
from itertools import combinations
from math import hypot
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palettes.eagle_layout import WantedPlace, circles

ROOT = Path(__file__).resolve().parents[2]
GRAPHS = sorted((ROOT / "examples").glob("*.graph"))
PALETTES = sorted((ROOT / "palettes").glob("*.palette"))
NEEDED = {
    "DALiuGEApp": {"dropclass"},
    "PyFuncApp": {"dropclass", "func_name"},
    "PythonMemberFunction": {"dropclass", "base_name", "self", "func_name"},
    "PythonObject": {"dropclass", "base_name", "self"},
    "Data": {"dropclass", "base_name"},
    "Scatter": {"num_of_copies"},
    "Gather": {"num_of_inputs"},
    "GroupBy": {"num_of_inputs"},
    "Loop": {"num_of_iter"},
    "Branch": {"dropclass", "true", "false"},
}
"""Names of the fields that EAGLE demands of a node of this category, besides those of all applications and data."""

FIELD = {
    *("name", "value", "defaultValue", "description", "readonly", "type", "precious", "options", "positional"),
    *("encoding", "id", "parameterType", "usage", "changeable"),
}
ENCODINGS = {"dill", "pickle", "npy", "path", "utf-8", "eval", "dataurl", "binary", "raw", "json"}


def document(path: Path) -> dict[str, Any]:
    """Return a file, parsed."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def applications(nodes: list[dict[str, Any]]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return owner, category and fields of every node and every embedded application."""
    found = [(node["name"], node["category"], node["fields"]) for node in nodes]
    found += [
        (f"{node['name']}/{node['inputApplicationName']}", node["inputApplicationType"], node["inputAppFields"])
        for node in nodes
        if node["inputApplicationName"]
    ]
    return found


@pytest.mark.parametrize("path", [*GRAPHS, *PALETTES], ids=lambda path: path.name)
def test_nodes_have_the_fields_that_eagle_demands(path: Path) -> None:
    """Each category has its fields, each field all attributes and a known encoding, and names and ids are unique."""
    nodes = document(path)["nodeDataArray"]
    wrong = []
    for owner, category, fields in applications(nodes):
        names = Counter((field["name"], field["parameterType"]) for field in fields)
        missing = NEEDED.get(category, set()) - {name for name, _ in names}
        is_app = category.endswith(("App", "Function")) or category in ("Branch", "Mpi", "Docker")
        missing |= {"execution_time", "num_cpus"} - {name for name, _ in names} if is_app else set()
        twice = [name for name, count in names.items() if count > 1]
        odd = [field["name"] for field in fields if set(field) != FIELD or field["encoding"] not in ENCODINGS]
        if missing or twice or odd:
            wrong.append((owner, category, missing, twice, odd))
    ids = [node["id"] for node in nodes]
    fields = [field["id"] for _, _, some in applications(nodes) for field in some]

    assert wrong == []
    assert (len(ids), len(fields)) == (len(set(ids)), len(set(fields)))


@pytest.mark.parametrize("path", [*GRAPHS, *PALETTES], ids=lambda path: path.name)
def test_files_and_nodes_are_described(path: Path) -> None:
    """EAGLE's checks ask for both descriptions of a file; nodes of palettes have one, too, and no place or parent."""
    content = document(path)
    about = content["modelData"]

    assert about["shortDescription"]
    assert about["detailedDescription"]
    assert about["numLGNodes"] == len(content["nodeDataArray"])
    if path in PALETTES:
        placed = [node["name"] for node in content["nodeDataArray"] if {"x", "y", "parentId"} & set(node)]
        assert placed == []
        assert [node["name"] for node in content["nodeDataArray"] if not node["description"]] == []


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.name)
def test_edges_join_an_application_and_data_at_ports(path: Path) -> None:
    """Edges start at output ports and end at input ports of the same type, once each, between unlike nodes."""
    content = document(path)
    kind, ports, inner = {}, {}, {}
    for node in content["nodeDataArray"]:
        kind[node["id"]] = node["categoryType"]
        ports[node["id"]] = {field["id"]: field for field in (*node["fields"], *node["inputAppFields"])}
        inner[node["id"]] = bool(node["inputApplicationName"])
    wrong, seen = [], Counter()
    for edge in content["linkDataArray"]:
        out, into = ports[edge["from"]][edge["fromPort"]], ports[edge["to"]][edge["toPort"]]
        kinds = ["Application" if inner[end] else kind[end] for end in (edge["from"], edge["to"])]
        seen[edge["fromPort"], edge["toPort"]] += 1
        right = sorted(kinds) == ["Application", "Data"] and out["type"] == into["type"]
        if not right or "Output" not in out["usage"] or "Input" not in into["usage"]:
            wrong.append((edge, kinds))

    assert wrong == []
    assert max(seen.values()) == 1


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.name)
def test_nodes_do_not_overlap(path: Path) -> None:
    """No two nodes are so near each other that EAGLE's icons or names would overlap, and all places are positive."""
    nodes = [node for node in document(path)["nodeDataArray"] if not node["isGroup"]]
    near = [
        (one["name"], other["name"])
        for one, other in combinations(nodes, 2)
        if hypot(one["x"] - other["x"], one["y"] - other["y"]) < 100
    ]

    assert near == []
    assert min(node["x"] for node in nodes) > 0


_TREES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0, 1, exclude_max=True)), min_size=1, max_size=20
)


@given(_TREES)
def test_circles_enclose_their_nodes_and_no_others(drawn: list[tuple[int, int, float]]) -> None:
    """For any tree of constructs and any wanted places: children are inside, siblings are apart."""
    names = [str(number) for number in range(len(drawn))]
    wanted = {}
    for number, (column, row, share) in enumerate(drawn):
        parents = ["", *names[:number]]
        wanted[names[number]] = WantedPlace(column, row, parents[int(share * len(parents))])
    found = circles(wanted)
    for one, other in combinations(names, 2):
        distance = hypot(found[one].x - found[other].x, found[one].y - found[other].y)
        if wanted[one].inside == wanted[other].inside:
            assert distance > found[one].radius + found[other].radius
    for name in names:
        outer = wanted[name].inside
        if outer:
            distance = hypot(found[name].x - found[outer].x, found[name].y - found[outer].y)
            assert distance + found[name].radius < found[outer].radius
