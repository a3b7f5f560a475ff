"""Logical graphs in EAGLE's format for single tests: functions and data, with one input and one output port."""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.translator.documents import document, field, link, node, port

_CLASSES = {
    "Memory": "dlg.data.drops.memory.InMemoryDROP",
    "File": "dlg.data.drops.file.FileDROP",
    "Directory": "dlg.data.drops.directory.DirectoryDROP",
}
_PORT = {"parameterType": "ApplicationArgument"}
Node = dict[str, Any]


def function(name: str, code: str, **values: Any) -> Node:
    """Return a PyFuncApp that calls the function `name` of `code`; for `values` see `app`."""
    return app(name, "dlg.apps.pyfunc.PyFuncApp", func_code=code, **values)


def app(
    name: str, dropclass: str, *, inside: str = "", reads: str = "pickle", encoding: str = "pickle", **values: Any
) -> Node:
    """Return an application with the encodings of its two ports. Its name is also that of its function."""
    fields = _fields({"dropclass": dropclass, "func_name": name, **values}) + _ports(name, encoding, reads)
    return node(name, "PyFuncApp", *fields, name=name, **_inside(inside))


def data(name: str, category: str = "Memory", *, inside: str = "", **values: Any) -> Node:
    """Return a data node. Its name begins with a small letter."""
    fields = _fields({"dropclass": _CLASSES[category], **values})
    return node(name, category, *fields, port(f"{name}.io", "io", "InputOutput"), name=name, **_inside(inside))


def construct(name: str, category: str, *, size: int = 0, inside: str = "", **values: Any) -> Node:
    """Return a scatter, gather or loop; with a `dropclass` it has an input application of that class."""
    setting = {"Scatter": "num_of_copies", "Gather": "num_of_inputs", "Loop": "num_of_iter"}[category]
    more: dict[str, Any] = {"isGroup": True, "name": name, **_inside(inside)}
    if values:
        more |= {
            "inputApplicationName": f"{name}-app",
            "inputApplicationType": "PyFuncApp",
            "inputApplicationId": f"{name}-app",
            "inputAppFields": [*_fields(values), *_ports(name, str(values.get("encoding", "pickle")))],
        }
    return node(name, category, field(setting, size, type="Integer", parameterType="ConstructParameter"), **more)


def draw(path: Path, nodes: list[Node], *chains: str) -> Path:
    """Write the graph of these nodes to `path`, joined by chains such as ``"Make > made > Use"``."""
    links = [
        link(source, _end(source, "output"), target, _end(target, "input"))
        for chain in chains
        for source, target in pairwise(chain.split(" > "))
    ]
    path.write_text(json.dumps(document(nodes, links)), encoding="utf-8")
    return path


def _end(name: str, port: str) -> str:
    return f"{name}.io" if name[0].islower() else f"{name}.{port}"


def _inside(construct: str) -> dict[str, str]:
    return {"parentId": construct} if construct else {}


def _ports(name: str, encoding: str, reads: str = "pickle") -> list[Node]:
    return [
        port(f"{name}.input", "input", "InputPort", encoding=reads, **_PORT),
        port(f"{name}.output", "output", "OutputPort", encoding=encoding, **_PORT),
    ]


def _fields(values: Mapping[str, Any]) -> list[Node]:
    types = {bool: "Boolean", int: "Integer", float: "Float"}
    return [field(name, value, type=types.get(type(value), "String")) for name, value in values.items()]
