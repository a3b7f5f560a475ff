"""The examples and palettes keep the rules that EAGLE checks when it loads a file, and draws without overlaps."""

import json
from itertools import combinations
from math import hypot
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.builder.draft import WantedPlace, circles
from tests.eagle_rules import far_edges, near_nodes, wrong_edges, wrong_nodes

ROOT = Path(__file__).resolve().parents[2]
GRAPHS = sorted((ROOT / "examples").rglob("*.graph"))
PALETTES = sorted((ROOT / "palettes").glob("*.palette"))


def document(path: Path) -> dict[str, Any]:
    """Return a file, parsed."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("path", [*GRAPHS, *PALETTES], ids=lambda path: path.name)
def test_nodes_have_the_fields_that_eagle_demands(path: Path) -> None:
    """Each category has its fields, each field all attributes and a known encoding, and names and ids are unique."""
    assert wrong_nodes(document(path)["nodeDataArray"]) == []


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
    assert wrong_edges(document(path)) == []


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.name)
def test_eagle_does_not_warn_about_edges(path: Path) -> None:
    """No edge crosses the border of a construct past its applications, but for that to a GroupBy, which has to."""
    expected = [("Sample", "By channel")] if path.name == "corner-turn.graph" else []

    assert far_edges(document(path)) == expected


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.name)
def test_nodes_do_not_overlap(path: Path) -> None:
    """No two nodes are so near each other that EAGLE's icons or names would overlap, and all places are positive."""
    nodes = document(path)["nodeDataArray"]

    assert near_nodes(nodes) == []
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
