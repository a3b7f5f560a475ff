"""Small logical graphs as files have them, for tests of the readers: written by hand, in EAGLE's attribute names."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dropflow.failure import Severity
from translator.formats import Reading, read_logical
from translator.logical import LogicalGraph


def field(name: str, value: Any = "", **more: Any) -> dict[str, Any]:
    """A parameter of a node."""
    return {"id": f"F-{name}", "name": name, "value": value, "type": "String", "usage": "NoPort", **more}


def port(id_: str, name: str, usage: str, **more: Any) -> dict[str, Any]:
    """A port of a node."""
    return {"id": id_, "name": name, "value": "", "type": "Object", "usage": usage, **more}


def node(id_: str, category: str, *fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A node with an `id` and a name made of it."""
    return {"id": id_, "name": f"name of {id_}", "category": category, "fields": list(fields), **more}


def link(source: str, source_port: str, target: str, target_port: str, **more: Any) -> dict[str, Any]:
    """An edge."""
    return {"from": source, "fromPort": source_port, "to": target, "toPort": target_port, **more}


def document(nodes: Sequence[Any], links: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    """A file of the OJS family."""
    about = {"schemaVersion": "OJS", "fileType": "Graph"}
    return {"modelData": about, "nodeDataArray": list(nodes), "linkDataArray": list(links), **more}


def scatter(**more: Any) -> dict[str, Any]:
    """A scatter of three with an input application that reads at port ``in`` and writes at port ``out``."""
    return node(
        "S",
        "Scatter",
        field("num_of_copies", 3, type="Integer", parameterType="ConstructParameter"),
        inputApplicationName="Split",
        inputApplicationType="DALiuGEApp",
        inputApplicationId="A",
        outputApplicationType="None",
        inputAppFields=[
            port("in", "whole", "InputPort"),
            port("out", "piece", "OutputPort"),
            field("dropclass", "dlg.apps.simple.GenericScatterApp"),
        ],
        **more,
    )


def small() -> dict[str, Any]:
    """Memory, a scatter of three with an application, and Memory inside it: five drops, four edges."""
    return document(
        [
            node("D", "Memory", port("d", "io", "InputOutput"), field("data_volume", 5, type="Float")),
            scatter(),
            node("P", "Memory", port("p", "io", "InputOutput"), parentId="S"),
        ],
        [link("D", "d", "S", "in"), link("S", "out", "P", "p")],
        graphConfigurations={
            "C": {"id": "C", "name": "five", "nodes": {"S": {"fields": {"F-num_of_copies": {"value": 5}}}}}
        },
        activeGraphConfigId=None,
    )


def wide() -> dict[str, Any]:
    """`small` with a loop that carries, a gather and a group-by without application: every kind of edge."""
    content = small()
    content["nodeDataArray"] += [
        node("L", "Loop", field("num_of_iter", 2)),
        node(
            "W",
            "DALiuGEApp",
            port("w1", "x", "InputPort"),
            port("w2", "y", "OutputPort"),
            field("group_start", value=True),
            parentId="L",
        ),
        node("E", "Memory", port("e", "io", "InputOutput"), field("group_end", value=True), parentId="L"),
        node("G", "Gather", field("num_of_inputs", 2), port("g", "x", "InputPort")),
        node("F", "File", port("f", "io", "InputOutput"), parentId="G"),
        node("B", "GroupBy", field("group_key", "S"), port("b", "x", "InputPort")),
        node("C", "DALiuGEApp", port("c", "x", "InputPort"), parentId="B"),
    ]
    content["linkDataArray"] += [
        link("D", "d", "W", "w1", loop_aware="1"),
        link("W", "w2", "E", "e"),
        link("E", "e", "W", "w1", closesLoop=True),
        link("P", "p", "G", "g"),
        link("P", "p", "B", "b"),
    ]
    return content


def read(content: Any, **options: Any) -> Reading:
    """What reading a document, or the text of one, gives."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return read_logical(data, name="test", **options)


def graph_of(content: Any) -> LogicalGraph:
    """The graph in a document that has nothing wrong."""
    reading = read(content)
    assert reading.graph is not None
    assert errors(reading.problems) == []
    return reading.graph


def codes(problems: Any) -> list[str]:
    """Codes of findings, in their order."""
    return [finding.code for finding in problems]


def errors(problems: Any) -> list[str]:
    """Codes of the findings that stop a translation."""
    return [finding.code for finding in problems if finding.severity is Severity.ERROR]
