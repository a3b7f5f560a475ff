"""The palettes: fresh, complete, and in the form that EAGLE reads."""

import json
from pathlib import Path
from typing import Any

import pytest

import palettes
from dropflow.apps.registry import app_for
from dropflow.data.registry import store_for
from dropflow.engine.parameters import Component
from dropflow.failure import Severity
from dropflow.graph.templates import Argument, Kind, Template
from palettes.build import built_files, component_page, components
from translator.formats import read_logical

ROOT = Path(palettes.__file__).parents[1]
NAMES = ("builtin.palette", "template.palette", "radio.palette")


def palette(name: str) -> dict[str, Any]:
    """A built palette, parsed."""
    document: dict[str, Any] = json.loads(built_files()[name])
    return document


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_palette_is_fresh(name: str) -> None:
    """The file is what the definitions say: run ``dropflow palette build`` after changing one."""
    assert (ROOT / "palettes" / name).read_bytes() == built_files()[name]


def test_the_page_of_components_is_fresh() -> None:
    """Run ``dropflow palette build --docs docs/reference/components.md`` after changing a definition."""
    assert (ROOT / "docs" / "reference" / "components.md").read_text(encoding="utf-8") == component_page()


@pytest.mark.parametrize("name", NAMES)
def test_a_palette_has_what_eagle_needs(name: str) -> None:
    """Its type is Palette, nodes have ids and no positions, and fields have all their attributes."""
    document = palette(name)
    nodes = document["nodeDataArray"]
    fields = [field for node in nodes for field in node["fields"] + node["inputAppFields"]]
    wanted = {"id", "name", "value", "defaultValue", "type", "parameterType", "usage", "encoding", "options"}

    assert document["modelData"]["fileType"] == "Palette"
    assert document["modelData"]["numLGNodes"] == len(nodes)
    assert document["linkDataArray"] == []
    assert not [node["name"] for node in nodes if "parentId" in node or "x" in node]
    assert not [field["name"] for field in fields if wanted - field.keys()]


@pytest.mark.parametrize("name", NAMES)
def test_identities_are_unique(name: str) -> None:
    """No two nodes and no two fields of a palette have the same id."""
    nodes = palette(name)["nodeDataArray"]
    ids = [node["id"] for node in nodes]
    ids += [field["id"] for node in nodes for field in node["fields"] + node["inputAppFields"]]

    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("component", components(), ids=lambda component: component.dropclass)
def test_every_component_is_in_a_palette_with_all_it_has(component: Component) -> None:
    """Each parameter and each port of a definition is a field of its node."""
    nodes = [node for name in NAMES for node in palette(name)["nodeDataArray"] if node["name"] == component.name]
    wanted = {parameter.name for parameter in component.parameters} | {port.name for port in component.ports}
    found = {field["name"] for field in nodes[0]["fields"]}

    assert len(nodes) == 1
    assert wanted | {"dropclass"} <= found


@pytest.mark.parametrize("component", components(), ids=lambda component: component.dropclass)
def test_the_class_of_every_component_exists(component: Component) -> None:
    """What the palette offers can be run: the class name leads to a class with this definition."""
    fillings = {"command": "true", "func_name": "f", "func_code": "def f(x=0): return x", "base_name": "builtins"}
    fillings |= {
        "dirname": "d",
        "url": "http://localhost/",
        "image": "x",
        "Bucket": "x",
        "dbtable": "x",
        "libpath": "x",
    }
    arguments = tuple(
        Argument(name=parameter.name, value=fillings.get(parameter.name, parameter.default))
        for parameter in component.parameters
    )
    template = Template(
        key="k",
        name=component.name,
        kind=component.kind,
        component=component.dropclass,
        category=component.category,
        arguments=arguments,
    )
    made = app_for(template) if component.kind is Kind.APP else store_for(template)

    assert made is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_palette_is_refused_as_a_graph(name: str) -> None:
    """Running a palette gives an error that names it as one."""
    reading = read_logical(built_files()[name], name=name)

    assert reading.graph is None
    assert "palette" in reading.problems[0].text


def test_a_graph_of_every_component_is_read_without_fault() -> None:
    """Dragging every component of both palettes into a graph gives a graph that can be read."""
    document = palette(NAMES[0])
    document["modelData"]["fileType"] = "Graph"
    document["nodeDataArray"] += palette(NAMES[1])["nodeDataArray"]
    reading = read_logical(json.dumps(document).encode(), name="everything")

    assert reading.graph is not None
    assert [found for found in reading.problems if found.severity is Severity.ERROR] == []


def test_the_template_palette_offers_what_people_know() -> None:
    """The fifteen entries of DALiuGE's template palette are there."""
    offered = {node["category"] for node in palette("template.palette")["nodeDataArray"]}
    constructs = {"Scatter", "Gather", "GroupBy", "Loop", "SubGraph", "Comment", "GlobalVariables"}
    compiled = {"Docker", "DynlibApp", "DynlibProcApp", "Mpi"}

    assert constructs | compiled | {"BashShellApp", "DALiuGEApp", "Data", "PyFuncApp"} <= offered
