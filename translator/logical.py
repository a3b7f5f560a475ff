"""The logical graph: one immutable model for all families of files.

Readers (`translator.formats`) make it; all later stages use it. Applications embedded in constructs are ordinary nodes,
with `embedded_in` naming their construct. Links end on them and never on the construct, except for a Gather or GroupBy
without application.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec


class NodeKind(StrEnum):
    """Kind of a logical node."""

    DATA = "data"
    APP = "app"
    CONSTRUCT = "construct"
    GLOBALS = "globals"
    NOTE = "note"


class Role(StrEnum):
    """Role of an embedded application in its construct."""

    NONE = ""
    INPUT = "input"
    OUTPUT = "output"


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a node: a parameter, or a port by its `usage`. See `dropflow.graph.templates.Argument`.

    `minimum` and `maximum` are the range of a parameter of a template, None for no limit.
    """

    id: str
    name: str
    value: Any = None
    default: Any = None
    type: str = "String"
    encoding: str = ""
    usage: str = "NoPort"
    parameter_type: str = "ComponentParameter"
    positional: bool = False
    precious: bool = False
    options: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    description: str = ""
    pointer: str = ""

    @property
    def is_port(self) -> bool:
        """Whether this field is an input or output port."""
        return self.usage != "NoPort"

    @property
    def effective(self) -> Any:
        """The value, or the default if the value is empty."""
        return self.default if self.value in (None, "") else self.value


def _rank(field: Field) -> tuple[bool, bool]:
    return field.is_port, field.effective in (None, "")


class LogicalNode(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One node of a logical graph.

    Attributes
    ----------
    id : str
        Identity in the file, as text (``k-4`` for the keys of old files).
    category : str
        Canonical category, such as ``Scatter`` or ``PyFuncApp``.
    parent : str or None
        Id of the construct around it. For an embedded application see `embedded_in`.
    embedded_in : str or None
        Id of the construct whose application this is.
    role : Role
        Input or output application of that construct.
    key : str
        Name of its drops in text ids. The first embedded application of a construct has the id of the construct.
    pointer : str
        JSON pointer of the node in its document.
    position : tuple of float or None
        Where EAGLE drew it, in its units; None if the file does not have it, and for embedded applications.
    description : str
        What it is for, from the file.
    """

    id: str
    name: str
    category: str
    kind: NodeKind
    parent: str | None = None
    embedded_in: str | None = None
    role: Role = Role.NONE
    key: str = ""
    app_name: str = ""
    fields: tuple[Field, ...] = ()
    pointer: str = ""
    position: tuple[float, float] | None = None
    description: str = ""

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        """Fields by name. Of several with one name, one that is not a port, then one with a value, then the first."""
        by_name: dict[str, Field] = {}
        for field in self.fields:
            known = by_name.get(field.name)
            if known is None or _rank(field) < _rank(known):
                by_name[field.name] = field
        return by_name

    @cached_property
    def by_id(self) -> Mapping[str, Field]:
        """Fields by id."""
        return {field.id: field for field in self.fields}

    def value(self, name: str, default: Any = None) -> Any:
        """Return the effective value of the field called `name`; `default` if there is none or it is empty."""
        field = self.by_name.get(name)
        value = None if field is None else field.effective
        return default if value in (None, "") else value


class LogicalLink(msgspec.Struct, frozen=True, kw_only=True):
    """One edge of a logical graph. Ends are ids of data or application nodes, or of a Gather or GroupBy construct."""

    source: str
    target: str
    source_port: str = ""
    target_port: str = ""
    loop_aware: bool = False
    closes_loop: bool = False
    streaming: bool = False
    pointer: str = ""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """A graph configuration: values for fields, by node id and field id."""

    id: str
    name: str
    values: tuple[tuple[str, str, Any, str], ...] = ()
    """(node id, field id, value, JSON pointer) of every setting."""


class LogicalGraph(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A logical graph, from a file of any family."""

    name: str
    family: str
    nodes: tuple[LogicalNode, ...] = ()
    links: tuple[LogicalLink, ...] = ()
    configurations: tuple[Configuration, ...] = ()
    active_configuration: str | None = None
    description: str = ""

    @cached_property
    def by_id(self) -> Mapping[str, LogicalNode]:
        """Nodes by id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def embedded(self) -> Mapping[str, tuple[LogicalNode, ...]]:
        """Embedded applications by the id of their construct, the input application first."""
        applications: dict[str, tuple[LogicalNode, ...]] = {}
        for node in self.nodes:
            if node.embedded_in is not None:
                applications[node.embedded_in] = (*applications.get(node.embedded_in, ()), node)
        return {key: tuple(sorted(apps, key=lambda app: app.role is Role.OUTPUT)) for key, apps in applications.items()}
