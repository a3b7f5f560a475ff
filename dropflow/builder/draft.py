"""The nodes and edges of a graph that is being written: records that calls add to, and that become a document.

An application of a construct is a node, too, as in `translator.logical`; its `owner` is the construct.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from palettes.eagle_records import stable_id

__all__ = ["COLLECTING", "TRANSPARENT", "DraftField", "DraftGraph", "DraftLink", "DraftNode", "type_name"]

Kind = Literal["data", "app", "construct", "globals"]
TRANSPARENT = ("SubGraph", "ExclusiveForceNode", "Service")
"""Constructs that do not repeat their nodes."""
COLLECTING = ("Gather", "GroupBy", "MKN")
"""Constructs with an input application that exists once for each chunk or group, and not once beside the construct."""


@dataclass
class DraftField:
    """A parameter of a node, and a port if `usage` says so; see `palettes.eagle_records.EagleField`."""

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
