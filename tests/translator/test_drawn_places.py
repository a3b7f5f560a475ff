"""Where EAGLE drew the nodes, from the file to the drawing of the logical graph."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dropflow.graph import codec
from dropflow.graph.logical_drawing import LogicalDrawing, draw_logical
from dropflow.graph.notes import DRAWN as META
from dropflow.graph.notes import places_of
from dropflow.graph.physical import PhysicalGraph
from tests.translator.drawing import Drawing
from translator.formats import Family, read_logical
from translator.formats.detect import position
from translator.formats.dump import dump
from translator.logical import LogicalGraph
from translator.pipeline import drawn_places, translate

PLACES = {"a": (0.0, 0.0), "b": (0.0, 900.0), "c": (-400.0, 450.0), "s": (10.0, 10.0)}


def drawn() -> LogicalGraph:
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
    reading = read_logical(json.dumps(dump(drawn(), family)).encode(), name="again")
    assert reading.graph is not None
    assert {node.id: node.position for node in reading.graph.nodes} == {**PLACES, "split": None}


def test_an_embedded_application_is_beside_what_is_in_its_construct() -> None:
    """Left of it for the input application; and a file in which all nodes are in one place was not drawn."""
    assert drawn_places(drawn()) == {"a": PLACES["a"], "b": PLACES["b"], "c": PLACES["c"], "split": (-520.0, 675.0)}

    nodes = tuple(msgspec.structs.replace(node, position=(0.0, 0.0)) for node in drawn().nodes)
    assert drawn_places(msgspec.structs.replace(drawn(), nodes=nodes)) == {}


def test_nodes_are_drawn_as_in_the_file() -> None:
    """The drawing has the directions of EAGLE, also from a .dfg container, and is another one without the note."""
    graph = translate(drawn()).graph
    again = codec.parse(b"".join(codec.dump(graph)), where="memory")
    assert places_of(again) == places_of(graph) != {}

    found = middles(draw_logical(again))
    assert found["b"][1] > found["c"][1] > found["a"][1]
    assert found["c"][0] < found["b"][0]
    assert found["split"][0] < found["c"][0]

    plain = middles(draw_logical(replace(graph, meta={})))
    assert plain["c"][0] > plain["b"][0]


@pytest.mark.parametrize("note", ["{", "[]", '{"a": [1]}', '{"a": ["x", 1]}', '{"a": [1e300, 0], "none": [0, 0]}'])
def test_a_damaged_note_is_like_none(note: str) -> None:
    """Graph files may be damaged or from elsewhere; the drawing is then that of a graph without places."""
    graph: PhysicalGraph = translate(drawn()).graph
    damaged = replace(graph, meta={META: note})
    assert places_of(damaged) == {}
    assert draw_logical(damaged) == draw_logical(replace(graph, meta={}))
