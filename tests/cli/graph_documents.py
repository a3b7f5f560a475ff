"""Logical graphs of EAGLE for tests of the commands."""

import json
from typing import Any


def node(name: str, category: str, *, parent: str = "", **fields: object) -> dict[str, Any]:
    """A node with an input-output port called io."""
    made: dict[str, Any] = {
        "id": name,
        "name": name,
        "category": category,
        "fields": [
            {"id": f"{name}-io", "name": "io", "usage": "InputOutput", "type": "Object"},
            *({"id": f"{name}-{key}", "name": key, "value": value} for key, value in fields.items()),
        ],
    }
    return made | ({"parentId": parent} if parent else {})


def link(source: str, target: str) -> dict[str, Any]:
    """An edge between the ports called io."""
    return {"from": source, "fromPort": f"{source}-io", "to": target, "toPort": f"{target}-io"}


def document(nodes: list[dict[str, Any]], links: list[dict[str, Any]]) -> bytes:
    """The bytes of a graph file."""
    about = {"fileType": "Graph", "schemaVersion": "OJS"}
    return json.dumps({"modelData": about, "nodeDataArray": nodes, "linkDataArray": links}).encode()
