"""Templates and links: what all instances of one logical node, or of one logical link, share."""

from enum import IntEnum
from functools import cached_property
from typing import Any

import msgspec

__all__ = ["Argument", "Axis", "Kind", "Link", "Template"]


class Kind(IntEnum):
    """What a drop is. Edges only ever join a data drop and an application drop."""

    DATA = 0
    APP = 1


class Axis(msgspec.Struct, frozen=True):
    """One level of the index space of a template, such as the copies of a scatter.

    Attributes
    ----------
    construct : str
        Id of the logical construct (or MPI node) that makes this level.
    name : str
        Its name, for people.
    kind : str
        ``scatter``, ``gather``, ``groupby``, ``loop``, ``subgraph``, ``mpi``, ...
    size : int
        Number of indices on this level.
    """

    construct: str
    name: str
    kind: str
    size: int


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a logical node, typed: a parameter, and a port if `usage` says so.

    Attributes
    ----------
    name : str
        Canonical name, for example ``num_of_copies``.
    value : Any
        Its final value, after defaults, configuration and ``--set``; JSON-like.
    type : str
        EAGLE's type: ``String``, ``Integer``, ``Float``, ``Boolean``, ``Select``, ``Json``, ``Object.x``, ``Event``...
    encoding : str
        How the data behind the port is written and read; empty when the graph says nothing.
    usage : str
        ``NoPort``, ``InputPort``, ``OutputPort`` or ``InputOutput``.
    parameter_type : str
        ``ComponentParameter``, ``ApplicationArgument``, ``ConstraintParameter`` or ``ConstructParameter``.
    id : str
        Id of the field in the logical graph.
    """

    name: str
    value: Any = None
    type: str = "String"
    encoding: str = ""
    usage: str = "NoPort"
    parameter_type: str = "ComponentParameter"
    positional: bool = False
    precious: bool = False
    id: str = ""
    default: Any = None
    options: tuple[str, ...] = ()
    description: str = ""

    @property
    def is_port(self) -> bool:
        """Whether data can come in or go out through this argument."""
        return self.usage != "NoPort"


class Template(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What all instances of one logical node share.

    Attributes
    ----------
    key : str
        Id of the logical node (`lg_key` in DALiuGE).
    name : str
        Name for people.
    kind : Kind
        Data or application.
    component : str
        Class name as the graph spells it (`dropclass`), for example ``dlg.apps.simple.CopyApp``.
    category : str
        Category in the logical graph, for example ``File`` or ``PyFuncApp``.
    axes : tuple of Axis
        Index space, outermost level first; the number of instances in a whole graph is the product of the sizes.
    arguments : tuple of Argument
        Every field of the node, in its order; names are unique.
    weight : float
        Execution time in seconds (application) or volume in the unit of the graph (data).
    cpus : int
        Cores that an application keeps busy.
    error_threshold : float
        Percentage of failed inputs that an application tolerates, 0 to 100.
    tries : int
        How often an application may be attempted.
    effective_inputs : int
        How many inputs must be finished before an application acts; -1 for all.
    block_skip : bool
        Whether a skip is passed on only when all inputs (producers) were skipped.
    persist : bool or None
        Whether a data drop outlives its last consumer; None leaves it to its store.
    artificial : bool
        Made by the translator (adapters, group-by data), with `origin` naming the logical link or node behind it.
    app_name : str
        Own name of an application embedded in a construct, whose `name` is then the construct's.
    collects : tuple of str
        Ports at which the graph collects, as a gather does: an instance may have several edges there. What comes in is
        then a list, also where it is one value because a scatter has one copy.
    """

    key: str
    name: str
    kind: Kind
    component: str = ""
    category: str = ""
    axes: tuple[Axis, ...] = ()
    arguments: tuple[Argument, ...] = ()
    weight: float = 1.0
    cpus: int = 1
    error_threshold: float = 0.0
    tries: int = 1
    effective_inputs: int = -1
    block_skip: bool = False
    persist: bool | None = None
    artificial: bool = False
    origin: str = ""
    app_name: str = ""
    collects: tuple[str, ...] = ()

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes, outermost first."""
        return tuple(axis.size for axis in self.axes)

    def argument(self, name: str) -> Argument | None:
        """The argument called `name`, or None."""
        return next((argument for argument in self.arguments if argument.name == name), None)


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What all edges expanded from one logical link share.

    Attributes
    ----------
    source, target : int
        Rows of the templates at its ends.
    source_port, target_port : str
        Names of the ports at its ends; empty when the graph names none.
    streaming : bool
        Whether the consumer wants the data while it is being written.
    carry : bool
        Whether the link carries data from one iteration of a loop to the next.
    """

    source: int
    target: int
    source_port: str = ""
    target_port: str = ""
    streaming: bool = False
    carry: bool = False
