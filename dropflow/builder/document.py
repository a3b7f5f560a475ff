"""A drawing as the documents that EAGLE reads: the schemas OJS and V4, with a layout."""

from typing import Any

import msgspec

from dropflow.builder.draft import DraftField, DraftGraph, DraftLink, DraftNode
from dropflow.builder.layout import placed
from dropflow.errors import BadGraphError, UsageError
from palettes.eagle_records import (
    EagleEdge,
    EagleField,
    EagleFile,
    EagleNode,
    ModelData,
    category_type,
    encode,
    stable_id,
)
from translator.formats import Family, read_logical
from translator.formats.dump import dump

__all__ = ["ojs_bytes", "v4_bytes"]

_MARGIN = 200
_FILES = ("File", "Directory", "json")
_COMMANDS = ("BashShellApp",)


def ojs_bytes(drawing: DraftGraph, description: str) -> bytes:
    """Return a graph in the schema OJS.

    Raises
    ------
    UsageError
        A port reads data of different encodings, or code has the placeholder of a parameter.
    """
    return encode(_document(drawing, description))


def v4_bytes(drawing: DraftGraph, description: str) -> bytes:
    """Return a graph in the schema V4. Raises the errors of `ojs_bytes`."""
    reading = read_logical(ojs_bytes(drawing, description), name=drawing.name)
    if reading.graph is None:
        raise BadGraphError(f"the graph {drawing.name!r} cannot be written", problems=reading.problems)
    return msgspec.json.format(msgspec.json.encode(dump(reading.graph, Family.V4)), indent=1) + b"\n"


def _document(drawing: DraftGraph, description: str) -> EagleFile:
    _refuse_placeholders(drawing)
    drawing = drawing.with_output_applications()
    fields = _Fields(drawing)
    drawn = placed(drawing)
    left = min((one.x - one.radius for one in drawn.values()), default=0.0)
    top = min((one.y - one.radius for one in drawn.values()), default=0.0)
    nodes = []
    for node in drawing.nodes:
        if node.owner is not None:
            continue
        circle = drawn[node.id]
        nodes.append(
            EagleNode(
                category=node.category,
                category_type=category_type(node.category),
                is_group=node.kind == "construct",
                id=node.id,
                name=node.name,
                description=node.description,
                x=_MARGIN + circle.x - left,
                y=_MARGIN + circle.y - top,
                parent_id=msgspec.UNSET if node.inside is None else node.inside.id,
                fields=fields.of(node),
                **_applications(drawing, node, fields),
            )
        )
    first = description.split("\n", 1)[0] or f"The graph {drawing.name}."
    return EagleFile(
        model_data=ModelData(
            file_path=f"{drawing.name}.graph",
            file_type="Graph",
            short_description=first,
            detailed_description=description or first,
            readonly=False,
            nodes=len(nodes),
        ),
        active_graph_config_id=None,
        graph_configurations={},
        node_data_array=tuple(nodes),
        link_data_array=tuple(map(_edge, drawing.links)),
    )


def _refuse_placeholders(drawing: DraftGraph) -> None:
    """Raise if code has the placeholder of a parameter, which would be replaced by its value."""
    names = [name for node in drawing.nodes if node.kind == "globals" for name in node.fields]
    for node in drawing.nodes:
        code = node.fields["func_code"].value if "func_code" in node.fields else ""
        for name in names:
            if f"{{{name}}}" in code:
                raise UsageError(
                    f"the code of {node.name!r} has {{{name}}}, which is a placeholder of the parameter {name!r}",
                    where=f"graph {drawing.name}",
                    hint=f"write {{{name}!s}} in the code, or rename the parameter",
                )


def _applications(drawing: DraftGraph, construct: DraftNode, fields: "_Fields") -> dict[str, Any]:
    made: dict[str, Any] = {}
    for role, app in drawing.apps_of(construct).items():
        made |= {
            f"{role}_application_name": app.name,
            f"{role}_application_type": app.category,
            f"{role}_application_id": app.id,
            f"{role}_application_description": app.description,
            f"{role}_app_fields": fields.of(app),
        }
    return made


def _edge(link: DraftLink) -> EagleEdge:
    """Return an edge; for an application of a construct it ends on the construct."""
    source, target = (node.owner or node for node in (link.source, link.target))
    return EagleEdge(
        source=source.id,
        source_port=_field_id(link.source, link.source_port),
        target=target.id,
        target_port=_field_id(link.target, link.target_port),
        loop_aware="1" if link.loop_aware else "0",
        closes_loop=link.closes_loop,
    )


def _field_id(node: DraftNode, name: str) -> str:
    return stable_id(node.id, name)


class _Fields:
    """The fields of all nodes: ports that are joined get the same encoding and, if they agree, the same type."""

    def __init__(self, drawing: DraftGraph) -> None:
        self._encodings: dict[tuple[str, str], str] = {}
        self._types: dict[tuple[str, str], str] = {}
        joined: dict[tuple[str, str], set[tuple[str, str]]] = {}
        types: dict[tuple[str, str], str] = {}
        for link in drawing.links:
            data, app = sorted((link.source, link.target), key=lambda node: node.kind != "data")
            port = link.source_port if link.source is app else link.target_port
            ends = {(data.id, "io"), (app.id, port)}
            if app.fields[port].type != "Object":
                types[app.id, port] = app.fields[port].type
            else:
                types.setdefault((app.id, port), "Object")
            whole = set().union(ends, *(joined.get(end, set()) for end in ends))
            for end in whole:
                joined[end] = whole
            self._set_encoding(app, port, _encoding(data, app, link))
        for end, whole in joined.items():
            votes = {types[one] for one in whole if one in types}
            self._types[end] = votes.pop() if len(votes) == 1 else "Object"

    def _set_encoding(self, app: DraftNode, port: str, encoding: str) -> None:
        known = self._encodings.setdefault((app.id, port), encoding)
        if known != encoding:
            raise UsageError(
                f"the argument {port!r} of {app.name!r} gets data that are written as {known} and as {encoding}",
                hint="give both the same encoding, or use two arguments",
            )

    def of(self, node: DraftNode) -> tuple[EagleField, ...]:
        """Return the fields of a node, with those that EAGLE demands."""
        found = dict(node.fields)
        needed = {"app": {"execution_time": 1, "num_cpus": 1}, "data": {"data_volume": 1}}.get(node.kind, {})
        for name, value in needed.items():
            kind = "Integer" if name == "num_cpus" else "Float"
            found.setdefault(name, DraftField(name, value, kind, parameter_type="ConstraintParameter"))
        return tuple(self._field(node, field) for field in found.values())

    def _field(self, node: DraftNode, field: DraftField) -> EagleField:
        key = (node.id, field.name)
        encoding = (
            node.encoding if node.kind == "data" and field.name == "io" else self._encodings.get(key, field.encoding)
        )
        return EagleField(
            name=field.name,
            value=field.value,
            default_value=field.value,
            description=field.description,
            type=self._types.get(key, field.type),
            options=field.options,
            encoding=encoding,
            id=_field_id(node, field.name),
            parameter_type=field.parameter_type,
            usage=field.usage,
            minimum=msgspec.UNSET if field.minimum is None else field.minimum,
            maximum=msgspec.UNSET if field.maximum is None else field.maximum,
        )


def _encoding(data: DraftNode, app: DraftNode, link: DraftLink) -> str:
    """Return the encoding of an application's port: commands read files by their paths."""
    is_read = link.target is app
    by_path = data.category in _FILES or data.encoding != "pickle"
    return "path" if is_read and app.category in _COMMANDS and by_path else data.encoding
