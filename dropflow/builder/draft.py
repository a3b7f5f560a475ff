"""The nodes and edges of a graph that is being written: records that calls add to, and that become a document.

An application of a construct is a node, too, as in `translator.logical`; its `owner` is the construct.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
