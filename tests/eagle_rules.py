"""The rules that EAGLE checks when it loads a graph or palette, for documents in its schema OJS: what breaks them."""

from collections import Counter
from itertools import combinations
from math import hypot
from typing import Any

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
OURS = {"minimum", "maximum"}
"""Attributes of the fields of GlobalVariables nodes that EAGLE does not know, and ignores."""
ENCODINGS = {"dill", "pickle", "npy", "path", "utf-8", "eval", "dataurl", "binary", "raw", "json"}


def applications(nodes: list[dict[str, Any]]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return owner, category and fields of every node and every embedded application."""
    found = [(node["name"], node["category"], node["fields"]) for node in nodes]
    found += [
        (f"{node['name']}/{node[f'{side}ApplicationName']}", node[f"{side}ApplicationType"], node[f"{side}AppFields"])
        for node in nodes
        for side in ("input", "output")
        if node[f"{side}ApplicationName"]
    ]
    return found


def wrong_nodes(nodes: list[dict[str, Any]]) -> list[object]:
    """Return nodes without their fields, fields without all attributes or a known encoding, and ids of two things."""
    wrong: list[object] = []
    for owner, category, fields in applications(nodes):
        names = Counter((field["name"], field["parameterType"]) for field in fields)
        missing = NEEDED.get(category, set()) - {name for name, _ in names}
        is_app = category.endswith(("App", "Function")) or category in ("Branch", "Mpi", "Docker")
        missing |= {"execution_time", "num_cpus"} - {name for name, _ in names} if is_app else set()
        twice = [name for name, count in names.items() if count > 1]
        allowed = OURS if category == "GlobalVariables" else set()
        odd = [one["name"] for one in fields if set(one) - allowed != FIELD or one["encoding"] not in ENCODINGS]
        if missing or twice or odd:
            wrong.append((owner, category, missing, twice, odd))
    ids = [node["id"] for node in nodes]
    ids += [field["id"] for _, _, some in applications(nodes) for field in some]
    return wrong + [id_ for id_, count in Counter(ids).items() if count > 1]


def wrong_edges(content: dict[str, Any]) -> list[object]:
    """Return edges that do not join an output port to an input port of its type, unlike nodes, or are there twice."""
    kind, ports, inner = {}, {}, {}
    for node in content["nodeDataArray"]:
        kind[node["id"]] = node["categoryType"]
        both = (*node["fields"], *node["inputAppFields"], *node["outputAppFields"])
        ports[node["id"]] = {field["id"]: field for field in both}
        inner[node["id"]] = bool(node["inputApplicationName"])
    wrong: list[object] = []
    seen: Counter[tuple[str, str]] = Counter()
    for edge in content["linkDataArray"]:
        out, into = ports[edge["from"]][edge["fromPort"]], ports[edge["to"]][edge["toPort"]]
        kinds = ["Application" if inner[end] else kind[end] for end in (edge["from"], edge["to"])]
        seen[edge["fromPort"], edge["toPort"]] += 1
        right = sorted(kinds) == ["Application", "Data"] and out["type"] == into["type"]
        if not right or "Output" not in out["usage"] or "Input" not in into["usage"]:
            wrong.append((edge, kinds))
    return wrong + [ends for ends, count in seen.items() if count > 1]


def far_edges(content: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the ends of edges that EAGLE warns about: neither end is beside the other or in its construct.

    For an application of a construct, what counts is the construct. A Loop may have any edges.
    """
    nodes = {node["id"]: node for node in content["nodeDataArray"]}
    far = []
    for edge in content["linkDataArray"]:
        ends = [nodes[edge["from"]], nodes[edge["to"]]]
        parents = [nodes.get(end.get("parentId", "")) for end in ends]
        embedded = [end["isGroup"] for end in ends]
        around = [None if is_group else parent for is_group, parent in zip(embedded, parents, strict=True)]
        near = around[0] is around[1]
        for this, other in ((0, 1), (1, 0)):
            near |= embedded[this] and around[other] in (ends[this], parents[this]) and around[other] is not None
        if not near and not any(one is not None and one["category"] == "Loop" for one in around):
            far.append((ends[0]["name"], ends[1]["name"]))
    return far


def near_nodes(nodes: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return pairs of nodes so near each other that EAGLE's icons or names would overlap."""
    single = [node for node in nodes if not node["isGroup"]]
    return [
        (one["name"], other["name"])
        for one, other in combinations(single, 2)
        if hypot(one["x"] - other["x"], one["y"] - other["y"]) < 100
    ]
