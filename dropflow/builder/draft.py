"""The nodes and edges of a graph that is being written: records that calls add to, and that become a document.

An application of a construct is a node, too, as in `translator.logical`; its `owner` is the construct.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import hypot
from typing import Any

import msgspec

from dropflow.errors import UsageError
from palettes.eagle import stable_id
from translator.formats import Family
from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind, Role

TRANSPARENT = ("SubGraph", "ExclusiveForceNode", "Service")
"""Constructs that do not repeat their nodes."""
COLLECTING = ("Gather", "GroupBy", "MKN")
"""Constructs with an input application that exists once for each chunk or group, and not once beside the construct."""
NODE_RADIUS = 40.0
"""Radius of a node with its icon and its name, as EAGLE draws it."""
_PAD = 45.0
"""Between the rim of a construct, where its input application is drawn, and its nodes."""
_GAP = 90.0
"""Between circles side by side, for edges and names of ports."""
_MARGIN = 200
"""Pixels in EAGLE between the edge of the drawing and its nodes."""
_FILES = ("File", "Directory", "json")
_COMMANDS = ("BashShellApp",)
_NEEDED: Mapping[NodeKind, Mapping[str, str]] = {
    NodeKind.APP: {"execution_time": "Float", "num_cpus": "Integer"},
    NodeKind.DATA: {"data_volume": "Float"},
}
"""Fields that EAGLE demands, and their types."""


@dataclass(eq=False)
class DraftNode:
    """A node.

    Attributes
    ----------
    inside : DraftNode or None
        The construct around it.
    owner : DraftNode or None
        The construct that has it as its application; it then has no place of its own.
    role : Role
        Role of an application of a construct.
    own_encoding : str
        How the value of data is written, if that does not follow from other data.
    passed_on : DraftNode or None
        For data that an application passes on unchanged: the data that it reads.
    fields : dict
        Parameters and ports by name.
    reads : dict
        For an application: the encodings of input ports that do not follow from the data, by port.
    """

    id: str
    name: str
    category: str
    kind: NodeKind
    inside: "DraftNode | None" = None
    owner: "DraftNode | None" = None
    role: Role = Role.NONE
    description: str = ""
    own_encoding: str = ""
    passed_on: "DraftNode | None" = None
    fields: dict[str, Field] = field(default_factory=dict)
    reads: dict[str, str] = field(default_factory=dict)

    @property
    def encoding(self) -> str:
        """How the value of data is written."""
        return self.own_encoding or (self.passed_on.encoding if self.passed_on is not None else "pickle")

    def field(self, name: str, **attributes: Any) -> Field:
        """Return the field of this name with these attributes; a new one is an argument that is pickled."""
        known = self.fields.get(name)
        if known is None:
            id_ = stable_id(self.id, name)
            known = Field(id=id_, name=name, value="", encoding="pickle", parameter_type="ApplicationArgument")
        self.fields[name] = changed = msgspec.structs.replace(known, **attributes)
        return changed

    def set(self, name: str, value: Any, type_: str = "", *, kind: str = "ComponentParameter") -> None:
        """Give a field a value; a port keeps its direction."""
        value = stored(value)
        new = {} if name in self.fields else {"parameter_type": kind}
        self.field(name, value=value, type=type_ or type_name(value), **new)

    def port(self, name: str, usage: str, *, type_: str = "Object", encoding: str = "pickle") -> None:
        """Return the port of this name, made if there is none. A port may be used as an input and an output."""
        known = self.field(name, **({} if name in self.fields else {"type": type_}))
        usage = usage if known.usage in ("NoPort", usage) else "InputOutput"
        self.field(name, usage=usage, encoding=encoding)


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
    undo: list[Callable[[], object]] = field(default_factory=list)
    """Functions that undo changes of handles by a call, if it is refused after all."""

    def add(
        self,
        name: str,
        category: str,
        kind: NodeKind,
        *,
        inside: DraftNode | None,
        owner: DraftNode | None = None,
        role: Role = Role.NONE,
    ) -> DraftNode:
        """Add a node. If its name is taken, a number is added to it."""
        refuse_other_text(name, self.name)
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

    def apps_of(self, construct: DraftNode) -> dict[Role, DraftNode]:
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
        """Return the graph with applications that collect from one scatter or group-by as its output applications.

        Both forms mean the same. EAGLE warns of edges from inside a scatter to an application beside it, but not of
        those to its output application.
        """
        chosen: dict[DraftNode, DraftNode] = {}
        for link in self.links:
            scatter, app = link.source.inside, link.target
            if (
                scatter is not None
                and scatter.category in ("Scatter", "GroupBy")
                and scatter not in chosen.values()
                and list(self.apps_of(scatter)) == [Role.INPUT]
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
            copy.owner, copy.role = (
                None if owner is None else copies[owner],
                Role.OUTPUT if node in chosen else node.role,
            )
        links = [replace(link, source=copies[link.source], target=copies[link.target]) for link in self.links]
        return DraftGraph(self.name, list(copies.values()), links)

    def _stands_after(self, app: DraftNode, scatter: DraftNode) -> bool:
        """Return whether an application reads data in a scatter and data beside it that do not come from it."""
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
        nodes, links, names, undo = len(self.nodes), len(self.links), set(self._names), len(self.undo)
        try:
            yield
        except BaseException:
            while len(self.undo) > undo:
                self.undo.pop()()
            del self.nodes[nodes:]
            del self.links[links:]
            self._names = names
            raise


def refuse_other_text(text: str, graph: str) -> None:
    """Raise if a text is no Unicode, as the names of files may be, so that it cannot be in the file of a graph."""
    try:
        text.encode()
    except UnicodeEncodeError:
        hint = "rename the file, or leave out the character"
        raise UsageError(f"{text!a:.60} is no Unicode text", where=f"graph {graph}", hint=hint) from None


def stored(value: Any) -> Any:
    """Return a value as a field can have it: the text of a path, and a number of Python for one of numpy."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    is_number = type(value).__module__ == "numpy" and not getattr(value, "shape", True)
    return value.item() if is_number else value


def type_name(value: Any) -> str:
    """Return EAGLE's type of a parameter with this value."""
    names = {bool: "Boolean", int: "Integer", float: "Float", str: "String"}
    return names.get(type(value), "Json")


# Places the nodes of a drawing as EAGLE shows them: constructs are circles that enclose their nodes, and no others.
#
# The places that are given order the nodes in columns; the distances follow from the sizes of the circles. A node
# without children is a circle, too, with room for its name.


class WantedPlace(msgspec.Struct, frozen=True):
    """The place for a node: columns and rows of any unit, and the construct that contains it, if any."""

    column: float
    row: float
    inside: str = ""


class Circle(msgspec.Struct, frozen=True):
    """The place of a node in a drawing: the centre and the radius of its circle."""

    x: float
    y: float
    radius: float


def circles(wanted: Mapping[str, WantedPlace]) -> dict[str, Circle]:
    """Return the circle of each node.

    Circles of nodes in the same construct are disjoint, and inside that of the construct. The relation "inside" has no
    cycles.
    """
    children: dict[str, list[str]] = defaultdict(list)
    for name, place in wanted.items():
        children[place.inside].append(name)
    circle_of: dict[str, Circle] = {}
    _lay_out("", children, wanted, circle_of)
    return {name: _moved(name, wanted, circle_of) for name in wanted}


def _lay_out(
    parent: str, children: Mapping[str, Sequence[str]], wanted: Mapping[str, WantedPlace], circle_of: dict[str, Circle]
) -> float:
    """Put the circles of the children into `circle_of`, around the origin, and return the radius that encloses them."""
    names = children.get(parent, ())
    if not names:
        return NODE_RADIUS
    sizes = {name: _lay_out(name, children, wanted, circle_of) for name in names}
    columns: dict[float, list[str]] = defaultdict(list)
    for name in names:
        columns[wanted[name].column].append(name)
    x, placed = 0.0, {}
    for column in sorted(columns):
        rows = sorted(columns[column], key=lambda name: wanted[name].row)
        widest = max(sizes[name] for name in rows)
        height = sum(2 * sizes[name] for name in rows) + _GAP * (len(rows) - 1)
        y = -height / 2
        for name in rows:
            placed[name] = (x + widest, y + sizes[name])
            y += 2 * sizes[name] + _GAP
        x += 2 * widest + _GAP
    middle = (x - _GAP) / 2
    for name, (at, down) in placed.items():
        circle_of[name] = Circle(at - middle, down, sizes[name])
    return _PAD + max(hypot(circle_of[name].x, circle_of[name].y) + sizes[name] for name in names)


def _moved(name: str, wanted: Mapping[str, WantedPlace], circle_of: Mapping[str, Circle]) -> Circle:
    """Return the circle of a node, moved to the place of the constructs around it."""
    own, outer = circle_of[name], wanted[name].inside
    x, y = own.x, own.y
    while outer:
        x, y = x + circle_of[outer].x, y + circle_of[outer].y
        outer = wanted[outer].inside
    return Circle(round(x), round(y), own.radius)


# Where the nodes of a graph go: in columns from left to right, as data flow; constructs are circles around theirs.


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
    before: dict[str, set[str]] = defaultdict(set)
    for link in drawing.links:
        if link.closes_loop:
            continue
        source, target = map(_chain, (link.source, link.target))
        for first, second in zip(source, target, strict=False):
            if first != second:
                before[second].add(first)
                break
    return before


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
        column[node.id] = 1 + max(
            (column.get(earlier, -1) for earlier in before.get(node.id, ()) if earlier in here), default=-1
        )
    for _ in nodes:
        changed = False
        for node in nodes:
            least = 1 + max((column[earlier] for earlier in before.get(node.id, ()) if earlier in here), default=-1)
            if column[node.id] < least <= len(nodes):
                column[node.id], changed = least, True
        if not changed:
            break
    rows: dict[str, float] = {}
    places: dict[str, tuple[float, float]] = {}
    for number in sorted(set(column.values())):
        ids = [node.id for node in nodes if column[node.id] == number]
        near = {
            id_: [rows[earlier] for earlier in before.get(id_, ()) if earlier in rows] or [float(place)]
            for place, id_ in enumerate(ids)
        }
        ids.sort(key=lambda id_: sum(near[id_]) / len(near[id_]))
        for place, id_ in enumerate(ids):
            rows[id_] = place - (len(ids) - 1) / 2
            places[id_] = (float(number), rows[id_])
    return places


# A drawing as a logical graph, which `translator.formats.dump` writes in the schemas of EAGLE.


def logical_graph(drawing: DraftGraph, description: str) -> LogicalGraph:
    """Return a graph as the translator has it, with a layout.

    Raises
    ------
    UsageError
        A port reads data of different encodings, data are saved in another encoding than those that they are a copy
        of, or code has the placeholder of a parameter.
    """
    _refuse_placeholders(drawing)
    _refuse_other_encodings(drawing)
    drawing = drawing.with_output_applications()
    fields, drawn = _Fields(drawing), placed(drawing)
    left = min((circle.x - circle.radius for circle in drawn.values()), default=0.0) - _MARGIN
    top = min((circle.y - circle.radius for circle in drawn.values()), default=0.0) - _MARGIN
    nodes = [
        LogicalNode(
            id=node.id,
            name=node.name,
            category=node.category,
            kind=node.kind,
            parent=None if node.inside is None else node.inside.id,
            embedded_in=None if node.owner is None else node.owner.id,
            role=node.role,
            app_name="" if node.owner is None else node.name,
            fields=tuple(fields.of(node)),
            position=(drawn[node.id].x - left, drawn[node.id].y - top) if node.id in drawn else None,
            description=node.description,
        )
        for node in drawing.nodes
    ]
    links = [
        LogicalLink(
            source=link.source.id,
            source_port=link.source.fields[link.source_port].id,
            target=link.target.id,
            target_port=link.target.fields[link.target_port].id,
            loop_aware=link.loop_aware,
            closes_loop=link.closes_loop,
        )
        for link in drawing.links
    ]
    return LogicalGraph(
        name=drawing.name, family=Family.OJS_ID, nodes=tuple(nodes), links=tuple(links), description=description
    )


def _refuse_placeholders(drawing: DraftGraph) -> None:
    """Raise if code has the placeholder of a parameter, which would be replaced by its value."""
    names = [name for node in drawing.nodes if node.kind is NodeKind.GLOBALS for name in node.fields]
    for node in drawing.nodes:
        code = node.fields["func_code"].value if "func_code" in node.fields else ""
        for name in names:
            if f"{{{name}}}" in code:
                raise UsageError(
                    f"the code of {node.name!r} has {{{name}}}, which is a placeholder of the parameter {name!r}",
                    where=f"graph {drawing.name}",
                    hint=f"write {{{name}!s}} in the code, or rename the parameter",
                )


def _refuse_other_encodings(drawing: DraftGraph) -> None:
    """Raise if data that are passed on unchanged are to be written in another encoding."""
    for node in drawing.nodes:
        if node.passed_on is not None and node.encoding != node.passed_on.encoding:
            raise UsageError(
                f"{node.name!r} has the content of {node.passed_on.name!r}, which is written as "
                f"{node.passed_on.encoding} and not as {node.encoding}",
                where=f"graph {drawing.name}",
                hint=f"save {node.passed_on.name!r} in the same encoding, or save the result of a function of it",
            )


class _Fields:
    """The fields of all nodes: ports that are joined get the same encoding and, if they agree, the same type."""

    def __init__(self, drawing: DraftGraph) -> None:
        self._encodings: dict[tuple[str, str], str] = {}
        self._types: dict[tuple[str, str], str] = {}
        joined: dict[tuple[str, str], set[tuple[str, str]]] = {}
        types: dict[tuple[str, str], str] = {}
        for link in drawing.links:
            data, app = sorted((link.source, link.target), key=lambda node: node.kind is not NodeKind.DATA)
            port = link.source_port if link.source is app else link.target_port
            ends = {(data.id, "io"), (app.id, port)}
            if app.fields[port].type != "Object":
                types[app.id, port] = app.fields[port].type
            else:
                types.setdefault((app.id, port), "Object")
            group = set().union(ends, *(joined.get(end, set()) for end in ends))
            for end in group:
                joined[end] = group
            self._set_encoding(app, port, _encoding(data, app, link))
        for end, group in joined.items():
            votes = {types[member] for member in group if member in types}
            self._types[end] = votes.pop() if len(votes) == 1 else "Object"

    def _set_encoding(self, app: DraftNode, port: str, encoding: str) -> None:
        known = self._encodings.setdefault((app.id, port), encoding)
        if known != encoding:
            raise UsageError(
                f"the argument {port!r} of {app.name!r} gets data that are written as {known} and as {encoding}",
                hint="give both the same encoding, or use two arguments",
            )

    def of(self, node: DraftNode) -> Iterator[Field]:
        """Yield the fields of a node, with those that EAGLE demands."""
        filled = replace(node, fields=dict(node.fields))
        for name, type_ in _NEEDED.get(node.kind, {}).items():
            if name not in filled.fields:
                filled.set(name, 1, type_, kind="ConstraintParameter")
        for name, known_field in filled.fields.items():
            key = (node.id, name)
            is_data = node.kind is NodeKind.DATA and name == "io"
            yield msgspec.structs.replace(
                known_field,
                default=known_field.value,
                type=self._types.get(key, known_field.type),
                encoding=node.encoding if is_data else self._encodings.get(key, known_field.encoding),
            )


def _encoding(data: DraftNode, app: DraftNode, link: DraftLink) -> str:
    """Return the encoding of an application's port.

    Commands read files by their paths, and change copies of them; functions read as they say.
    """
    is_read = link.target is app or app.fields[link.source_port].usage == "InputOutput"
    if link.target is app and link.target_port in app.reads:
        return app.reads[link.target_port]
    by_path = data.category in _FILES or data.encoding != "pickle"
    return "path" if is_read and app.category in _COMMANDS and by_path else data.encoding
