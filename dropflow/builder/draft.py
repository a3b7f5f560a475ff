"""The nodes and edges of a graph that is being written: records that calls add to, and that become a document.

An application of a construct is a node, too, as in `translator.logical`; its `owner` is the construct.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from dropflow.errors import BadGraphError, UsageError
from palettes.eagle import (
    Circle,
    EagleEdge,
    EagleField,
    EagleFile,
    EagleNode,
    ModelData,
    WantedPlace,
    category_type,
    circles,
    encode,
    stable_id,
)
from translator.formats import Family, read_logical
from translator.formats.dump import dump

__all__ = [
    "COLLECTING",
    "TRANSPARENT",
    "DraftField",
    "DraftGraph",
    "DraftLink",
    "DraftNode",
    "ojs_bytes",
    "placed",
    "type_name",
    "v4_bytes",
]


Kind = Literal["data", "app", "construct", "globals"]
TRANSPARENT = ("SubGraph", "ExclusiveForceNode", "Service")
"""Constructs that do not repeat their nodes."""
COLLECTING = ("Gather", "GroupBy", "MKN")
"""Constructs with an input application that exists once for each chunk or group, and not once beside the construct."""


@dataclass
class DraftField:
    """A parameter of a node, and a port if `usage` says so; see `palettes.eagle.EagleField`."""

    name: str
    value: Any = ""
    type: str = "String"
    usage: str = "NoPort"
    encoding: str = "pickle"
    parameter_type: str = "ApplicationArgument"
    description: str = ""
    options: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


@dataclass(eq=False)
class DraftNode:
    """A node.

    Attributes
    ----------
    inside : DraftNode or None
        The construct around it.
    owner : DraftNode or None
        The construct that has it as its application; it then has no place of its own.
    role : str
        ``input`` or ``output`` for an application of a construct.
    encoding : str
        How the value of data is written.
    fields : dict
        Parameters and ports by name.
    """

    id: str
    name: str
    category: str
    kind: Kind
    inside: "DraftNode | None" = None
    owner: "DraftNode | None" = None
    role: str = ""
    description: str = ""
    encoding: str = "pickle"
    fields: dict[str, DraftField] = field(default_factory=dict)

    def set(self, name: str, value: Any, type_: str = "", *, kind: str = "ComponentParameter") -> None:
        """Give a field a value; a port keeps its direction."""
        known = self.fields.setdefault(name, DraftField(name, parameter_type=kind))
        known.value = value
        known.type = type_ or type_name(value)

    def port(self, name: str, usage: str, *, type_: str = "Object", encoding: str = "pickle") -> DraftField:
        """Return the port of this name, made if there is none; one that is used both ways is for both."""
        known = self.fields.setdefault(name, DraftField(name, type=type_))
        known.usage = usage if known.usage in ("NoPort", usage) else "InputOutput"
        known.encoding = encoding
        return known


@dataclass(eq=False)
class DraftLink:
    """An edge between two ports; see `translator.logical.LogicalLink`."""

    source: DraftNode
    source_port: str
    target: DraftNode
    target_port: str
    loop_aware: bool = False
    closes_loop: bool = False


@dataclass(eq=False)
class DraftGraph:
    """All nodes and edges of a graph, in the order in which they were added."""

    name: str
    nodes: list[DraftNode] = field(default_factory=list)
    links: list[DraftLink] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    """Names of nodes, also those before they were renamed, since ids are made from them."""

    def add(
        self,
        name: str,
        category: str,
        kind: Kind,
        *,
        inside: DraftNode | None,
        owner: DraftNode | None = None,
        role: str = "",
    ) -> DraftNode:
        """Add a node. If its name is taken, a number is added to it."""
        unique, number = name, 1
        while unique in self._names:
            number += 1
            unique = f"{name} {number}"
        self._names.add(unique)
        made = DraftNode(
            id=stable_id(self.name, unique),
            name=unique,
            category=category,
            kind=kind,
            inside=inside,
            owner=owner,
            role=role,
        )
        self.nodes.append(made)
        return made

    def rename(self, node: DraftNode, name: str) -> bool:
        """Give a node another name, if no other node has it. Its id stays."""
        if any(other.name == name for other in self.nodes if other is not node):
            return False
        self._names.add(name)
        node.name = name
        return True

    def apps_of(self, construct: DraftNode) -> dict[str, DraftNode]:
        """Return the applications of a construct by role."""
        return {node.role: node for node in self.nodes if node.owner is construct}

    def path(self, node: DraftNode) -> tuple[DraftNode, ...]:
        """Return the constructs that repeat a node, outermost first.

        The application of a construct that collects is repeated by it; other applications stand beside it.
        """
        owner = node.owner
        if owner is not None:
            return (*self.path(owner), owner) if owner.category in COLLECTING else self.path(owner)
        return () if node.inside is None else (*self.path(node.inside), node.inside)

    def with_output_applications(self) -> "DraftGraph":
        """Return the graph with applications that collect from one scatter as output applications of that scatter.

        Both forms mean the same. EAGLE warns of edges from inside a scatter to an application beside it, but not of
        those to its output application.
        """
        chosen: dict[DraftNode, DraftNode] = {}
        for link in self.links:
            scatter, app = link.source.inside, link.target
            if (
                scatter is not None
                and scatter.category == "Scatter"
                and scatter not in chosen.values()
                and list(self.apps_of(scatter)) == ["input"]
                and app not in chosen
                and app.owner is None
                and app.inside is scatter.inside
                and app.category in ("PyFuncApp", "BashShellApp", "DALiuGEApp")
                and self._stands_after(app, scatter)
            ):
                chosen[app] = scatter
        copies = {node: replace(node) for node in self.nodes}
        for node, copy in copies.items():
            copy.inside = None if node.inside is None else copies[node.inside]
            owner = chosen.get(node, node.owner)
            copy.owner, copy.role = None if owner is None else copies[owner], "output" if node in chosen else node.role
        links = [replace(link, source=copies[link.source], target=copies[link.target]) for link in self.links]
        return DraftGraph(self.name, list(copies.values()), links)

    def _stands_after(self, app: DraftNode, scatter: DraftNode) -> bool:
        """Whether an application reads data in a scatter and data beside it that do not come from it."""
        links = [link for link in self.links if app in (link.source, link.target)]
        if any(link.closes_loop or link.loop_aware for link in links):
            return False
        if any(link.target.inside is not app.inside for link in links if link.source is app):
            return False
        before = [link.source for link in links if link.target is app and link.source.inside is not scatter]
        if any(node.inside is not app.inside for node in before):
            return False
        known = set(before)
        while before:
            node = before.pop()
            if scatter in (*self.path(node), node.owner):
                return False
            new = {link.source for link in self.links if link.target is node and not link.closes_loop} - known
            known |= new
            before += new
        return True

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Remove what was added if an error is raised, so that a call can be corrected and made again in a notebook."""
        nodes, links, names = len(self.nodes), len(self.links), set(self._names)
        try:
            yield
        except BaseException:
            del self.nodes[nodes:]
            del self.links[links:]
            self._names = names
            raise


def type_name(value: Any) -> str:
    """Return EAGLE's type of a parameter with this value."""
    names = {bool: "Boolean", int: "Integer", float: "Float", str: "String"}
    return names.get(type(value), "Json")


# Where the nodes of a graph go: in columns from left to right, as data flow; constructs are circles
# around theirs.


def placed(drawing: DraftGraph) -> Mapping[str, Circle]:
    """Return the circle of each node, by id. Applications of constructs have none of their own."""
    shown = [node for node in drawing.nodes if node.owner is None]
    inside: dict[str, list[DraftNode]] = defaultdict(list)
    for node in shown:
        inside["" if node.inside is None else node.inside.id].append(node)
    before = _before(drawing)
    wanted: dict[str, WantedPlace] = {}
    for around, nodes in inside.items():
        for id_, (column, row) in _grid(nodes, before).items():
            wanted[id_] = WantedPlace(column, row, around)
    return circles(wanted)


def _before(drawing: DraftGraph) -> Mapping[str, set[str]]:
    """Return the nodes that come before each, on the level on which both are in the same construct."""
    found: dict[str, set[str]] = defaultdict(set)
    for link in drawing.links:
        if link.closes_loop:
            continue
        source, target = map(_chain, (link.source, link.target))
        for one, other in zip(source, target, strict=False):
            if one != other:
                found[other].add(one)
                break
    return found


def _chain(node: DraftNode) -> list[str]:
    """Return the ids of the constructs around a node, outermost first, and its own or that of its construct."""
    own = node.owner or node
    chain = [own.id]
    around = own.inside
    while around is not None:
        chain.insert(0, around.id)
        around = around.inside
    return chain


def _grid(nodes: list[DraftNode], before: Mapping[str, set[str]]) -> dict[str, tuple[float, float]]:
    """Return column and row of each node: right of all that come before it, near the middle of their rows."""
    here = {node.id for node in nodes}
    column: dict[str, int] = {}
    for node in nodes:  # a node is added after those that it reads, except through a construct that is written later
        column[node.id] = 1 + max((column.get(one, -1) for one in before.get(node.id, ()) if one in here), default=-1)
    for _ in nodes:
        changed = False
        for node in nodes:
            least = 1 + max((column[one] for one in before.get(node.id, ()) if one in here), default=-1)
            if column[node.id] < least <= len(nodes):
                column[node.id], changed = least, True
        if not changed:
            break
    rows: dict[str, float] = {}
    places: dict[str, tuple[float, float]] = {}
    for number in sorted(set(column.values())):
        ids = [node.id for node in nodes if column[node.id] == number]
        near = {
            id_: [rows[one] for one in before.get(id_, ()) if one in rows] or [float(place)]
            for place, id_ in enumerate(ids)
        }
        ids.sort(key=lambda id_: sum(near[id_]) / len(near[id_]))
        for place, id_ in enumerate(ids):
            rows[id_] = place - (len(ids) - 1) / 2
            places[id_] = (float(number), rows[id_])
    return places


# A drawing as the documents that EAGLE reads: the schemas OJS and V4, with a layout.

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
