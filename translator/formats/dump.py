"""Writing of logical graphs: the model as a document of the family OJS-id or V4, which EAGLE and this package read.

It has all attributes that EAGLE checks. Colours and provenance are not in the model, so they are empty in the document.
Reading it gives the same graph.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import msgspec

from dropflow.version import __version__
from translator.formats.json_document import Family
from translator.formats.vocabulary import KINDS
from translator.logical import Configuration, Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind, Role

Json = dict[str, Any]

_TYPES = {
    NodeKind.DATA: "Data",
    NodeKind.APP: "Application",
    NodeKind.CONSTRUCT: "Construct",
    NodeKind.GLOBALS: "Global",
    NodeKind.NOTE: "Other",
}
_PROVENANCE = {
    **dict.fromkeys(("repoBranch", "repo", "generatorCommitHash", "repositoryUrl", "commitHash", "downloadUrl"), ""),
    **dict.fromkeys(("signature", "lastModifiedName", "lastModifiedEmail"), ""),
    "repoService": "Unknown",
    "lastModifiedDatetime": 0,
}
_ORIGIN = dict.fromkeys(("repositoryUrl", "commitHash", "paletteDownloadUrl", "dataHash"), "")
_PREFIXES = {Role.INPUT: "input", Role.OUTPUT: "output"}
_USES = {True: ("OutputPort", "InputOutput"), False: ("InputPort", "InputOutput")}


def dump(graph: LogicalGraph, family: Family = Family.OJS_ID) -> Json:
    """Return a graph as a JSON document.

    Parameters
    ----------
    graph : LogicalGraph
        A graph without duplicate ids of nodes.
    family : Family
        ``OJS-id`` or ``V4``.

    Raises
    ------
    ValueError
        The family is another one.
    """
    if family not in (Family.OJS_ID, Family.V4):
        raise ValueError(f"graphs are not written as {family.value}: use OJS-id or V4")
    configurations = {configuration.id: _configuration(configuration) for configuration in graph.configurations}
    head: Json = {
        "modelData": _about(graph, family),
        "graphConfigurations": configurations,
        "activeGraphConfigId": graph.active_configuration,
    }
    if family is Family.V4:
        edges = {f"edge-{number}": _v4_edge(f"edge-{number}", link) for number, link in enumerate(graph.links)}
        ends: dict[str, list[str]] = {}
        for name, edge in edges.items():
            for port in (edge["srcPortId"], edge["destPortId"]):
                ends.setdefault(port, []).append(name)
        nodes = {node.id: _v4_node(graph, node, ends) for node in graph.nodes}
        return {**head, "nodes": nodes, "edges": edges, "visuals": {}}
    return {
        **head,
        "nodeDataArray": [_ojs_node(graph, node) for node in graph.nodes if _construct_of(graph, node) is None],
        "linkDataArray": [_ojs_link(graph, link) for link in graph.links],
        "visualDataArray": [],
    }


def dumped(graph: LogicalGraph, family: Family = Family.OJS_ID) -> bytes:
    """Return the bytes of the document of a graph, indented so that changes can be reviewed; see `dump`."""
    return msgspec.json.format(msgspec.json.encode(dump(graph, family)), indent=1) + b"\n"


def _about(graph: LogicalGraph, family: Family) -> Json:
    made = {
        "schemaVersion": "V4" if family is Family.V4 else "OJS",
        "generatorName": "dropflow",
        "generatorVersion": __version__,
        "numLGNodes": len(graph.nodes),
        "shortDescription": graph.description.split("\n", 1)[0] or f"The graph {graph.name}.",
        "detailedDescription": graph.description or f"The graph {graph.name}.",
        "readonly": False,
    }
    if family is Family.V4:
        return {"name": graph.name, "type": "Graph", **made}
    nodes = [node for node in graph.nodes if _construct_of(graph, node) is None]
    return {"filePath": f"{graph.name}.graph", "fileType": "Graph", **made, **_PROVENANCE, "numLGNodes": len(nodes)}


def _construct_of(graph: LogicalGraph, node: LogicalNode) -> LogicalNode | None:
    """Return the construct that has a node as its application."""
    owner = graph.by_id.get(node.embedded_in or "")
    return owner if owner is not None and owner.kind is NodeKind.CONSTRUCT else None


def _head(node: LogicalNode) -> Json:
    """Return what nodes of both families have. A category that is not known gets the type that was found for it."""
    return {
        "id": node.id,
        "name": node.name,
        "category": node.category,
        "categoryType": _TYPES[KINDS.get(node.category, node.kind)],
        "parentId": node.parent,
        "description": node.description,
        "comment": "",
        **({} if node.position is None else {"x": node.position[0], "y": node.position[1]}),
    }


def _ojs_node(graph: LogicalGraph, node: LogicalNode) -> Json:
    made: Json = {
        **_head(node),
        **_ORIGIN,
        "isGroup": node.kind is NodeKind.CONSTRUCT,
        "fields": [_field(field) for field in node.fields],
        "inputAppFields": [],
        "outputAppFields": [],
    }
    for prefix in _PREFIXES.values():
        made |= {f"{prefix}ApplicationName": "", f"{prefix}ApplicationType": "None", f"{prefix}ApplicationId": None}
        made |= {f"{prefix}ApplicationDescription": "", f"{prefix}ApplicationComment": ""}
    apps = graph.embedded.get(node.id, ()) if node.kind is NodeKind.CONSTRUCT else ()
    for number, app in enumerate(apps):
        prefix = _PREFIXES[app.role]
        made |= {
            f"{prefix}ApplicationName": _app_name(node, app),
            f"{prefix}ApplicationType": app.category,
            f"{prefix}ApplicationId": app.id,
            f"{prefix}ApplicationDescription": app.description,
            f"{prefix}AppFields": [_field(field) for field in _own_fields(node, app, is_first=number == 0)],
        }
    return made


def _app_name(construct: LogicalNode, app: LogicalNode) -> str:
    """Return the own name of an application; the first one of a construct also has the name of the construct."""
    return app.app_name or ("" if app.name == construct.name else app.name)


def _own_fields(construct: LogicalNode, app: LogicalNode, *, is_first: bool) -> Iterable[Field]:
    """Return the fields of an application without those that the first one gets from its construct."""
    if not is_first:
        return app.fields
    shared = {(field.id, field.name) for field in construct.fields if not field.is_port}
    return [field for field in app.fields if field.is_port or (field.id, field.name) not in shared]


def _field(field: Field) -> Json:
    made: Json = {
        "id": field.id,
        "name": field.name,
        "value": field.value,
        "defaultValue": field.default,
        "description": field.description,
        "type": field.type,
        "encoding": field.encoding,
        "usage": field.usage,
        "parameterType": field.parameter_type,
        "readonly": False,
        "changeable": True,
        "precious": field.precious,
        "positional": field.positional,
        "options": list(field.options),
    }
    limits = {"minimum": field.minimum, "maximum": field.maximum}
    return made | {name: limit for name, limit in limits.items() if limit is not None}


def _ojs_link(graph: LogicalGraph, link: LogicalLink) -> Json:
    made: Json = {
        "from": _end(graph, link.source, link.source_port, is_source=True),
        "fromPort": link.source_port,
        "to": _end(graph, link.target, link.target_port, is_source=False),
        "toPort": link.target_port,
        "loop_aware": "1" if link.loop_aware else "0",
        "closesLoop": link.closes_loop,
        "comment": "",
    }
    return made | ({"is_stream": True} if link.streaming else {})


def _end(graph: LogicalGraph, end: str, port: str, *, is_source: bool) -> str:
    """Return the id that a link ends on: the id of the construct, if the port decides which application is meant."""
    node = graph.by_id.get(end)
    construct = None if node is None else _construct_of(graph, node)
    if construct is None:
        return end
    apps = graph.embedded[construct.id]
    having = [app for app in apps if port in app.by_id and app.by_id[port].usage in _USES[is_source]]
    return construct.id if len(apps) == 1 or [app.id for app in having] == [end] else end


def _v4_node(graph: LogicalGraph, node: LogicalNode, ends: Mapping[str, list[str]]) -> Json:
    owner = _construct_of(graph, node)
    apps = graph.embedded.get(node.id, ()) if node.kind is NodeKind.CONSTRUCT else ()
    fields = list(
        node.fields if owner is None else _own_fields(owner, node, is_first=graph.embedded[owner.id][0] is node)
    )
    made = _head(node) | {
        "name": node.name if owner is None else _app_name(owner, node),
        "parentId": node.parent if owner is None else None,
        "embedId": None if owner is None else owner.id,
        "fields": dict(_by_id(fields, ends)),
        "inputApplicationId": None,
        "outputApplicationId": None,
        "expanded": True,
        "drawOrderHint": 0,
    }
    for app in apps:
        made[f"{_PREFIXES[app.role]}ApplicationId"] = app.id
    return made


def _by_id(fields: Iterable[Field], ends: Mapping[str, list[str]]) -> Iterator[tuple[str, Json]]:
    """Yield fields by their ids; the key of one whose id another field of the node has ends with a number."""
    taken: set[str] = set()
    for field in fields:
        key = next(
            key for number in count(1) if (key := field.id if number == 1 else f"{field.id}#{number}") not in taken
        )
        taken.add(key)
        kind = field.parameter_type.removesuffix("Parameter").removesuffix("Argument")
        yield key, _field(field) | {"parameterType": kind, "edgeIds": ends.get(field.id, [])}


def _v4_edge(name: str, link: LogicalLink) -> Json:
    return {
        "id": name,
        "srcNodeId": link.source,
        "srcPortId": link.source_port,
        "destNodeId": link.target,
        "destPortId": link.target_port,
        "loopAware": link.loop_aware,
        "closesLoop": link.closes_loop,
        "comment": "",
    } | ({"isStream": True} if link.streaming else {})


def _configuration(configuration: Configuration) -> Json:
    nodes: dict[str, Json] = {}
    for node, field, value in _values(configuration):
        nodes.setdefault(node, {"fields": {}})["fields"][field] = {"value": value, "comment": ""}
    return {"id": configuration.id, "name": configuration.name, "nodes": nodes}


def _values(configuration: Configuration) -> Iterator[tuple[str, str, Any]]:
    for node, field, value, _ in configuration.values:
        yield node, field, value
