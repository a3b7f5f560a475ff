"""Templates and links: the shared description of all instances of one logical node or link."""

import math
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple, Self

import msgspec

from dropflow.formatting import MEMORY, quantity

ORDER_PORT = "(order)"
"""Port of edges that only order drops. Applications do not see them."""
TWO_PORTS = "InputPort and OutputPort"
"""Usage of an argument that stands for two ports of its name."""
MEMORY_FIELDS = ("memory", "mem_usage")
"""Fields of an application that declare the memory that it needs: a number of bytes, or a text such as ``2 GiB``.

Their kind does not matter: editors make new fields of an application its arguments. Ports do not count.
"""
RANKS_FIELD = "ranks_per_node"
GPU_FIELD = "num_gpus"
"""Field of an application that declares how many GPUs it needs."""
DEFAULT_TRIES = 1
"""Attempts of a drop that fail before it is in ERROR, if its node does not say how many."""
_LARGEST_NEED = 2**31 - 1
"""Most processors, or GPUs, that count: columns of plans have 32 bits for them."""


class Kind(IntEnum):
    """Kind of a drop. Every edge joins a data drop and an application drop."""

    DATA = 0
    APP = 1


class Axis(msgspec.Struct, frozen=True):
    """One level of the index space of a template, such as the copies of a scatter.

    Attributes
    ----------
    construct : str
        Id of the logical construct (or MPI node) that makes this level.
    name : str
        Its name for people.
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
    """One field of a logical node, typed: a parameter, and also a port, depending on `usage`.

    Attributes
    ----------
    name : str
        Canonical name, for example ``num_of_copies``.
    value : Any
        Its final value, after defaults, configuration and ``--set``; JSON-like.
    type : str
        EAGLE's type: ``String``, ``Integer``, ``Float``, ``Boolean``, ``Select``, ``Json``, ``Object.x``, ``Event``...
    encoding : str
        Encoding of the data behind the port; empty if the graph gives none.
    usage : str
        ``NoPort``, ``InputPort``, ``OutputPort``, ``InputOutput`` for a port whose input the application changes, or
        `TWO_PORTS`.
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
        """Whether this argument is an input or output port."""
        return self.usage != "NoPort"


class Template(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The shared description of all instances of one logical node.

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
        Number of cores that an application uses.
    error_threshold : float
        Percentage of failed inputs that an application tolerates, 0 to 100.
    tries : int
        Number of attempts that an application may have.
    effective_inputs : int
        Number of inputs that must be settled before an application runs; -1 for all.
    block_skip : bool
        Whether a skip is passed on only when all inputs (producers) were skipped.
    persist : bool or None
        Whether a data drop is kept after its last consumer; None for the default of its store.
    artificial : bool
        Whether the translator made it (adapters, group-by data); `origin` is its logical link or node.
    app_name : str
        Name of an application that is embedded in a construct; its `name` is that of the construct.
    collects : tuple of str
        Ports at which the graph collects, as a gather does: an instance may have several edges there. The value is then
        a list, also if it has one item because a scatter has one copy.
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
    tries: int = DEFAULT_TRIES
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
        """Return the argument called `name`, or None."""
        return next((argument for argument in self.arguments if argument.name == name), None)

    def value(self, name: str) -> Any:
        """Return the value of the argument called `name`; None if there is none."""
        argument = self.argument(name)
        return None if argument is None else argument.value

    def with_value(self, name: str, value: Any) -> Self:
        """Return the template with another value of an argument."""
        changed = (
            msgspec.structs.replace(argument, value=value) if argument.name == name else argument
            for argument in self.arguments
        )
        return msgspec.structs.replace(self, arguments=tuple(changed))


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The shared description of all edges of one logical link.

    Attributes
    ----------
    source, target : int
        Rows of the templates at its ends.
    source_port, target_port : str
        Names of the ports at its ends; empty if the graph gives none.
    streaming : bool
        Whether the consumer reads the data while it is being written.
    carry : bool
        Whether the link carries data from one iteration of a loop to the next, or from a gather back to the scatter
        that it gathers, to the copies after those that it has taken.
    """

    source: int
    target: int
    source_port: str = ""
    target_port: str = ""
    streaming: bool = False
    carry: bool = False


# The processors, the memory and the GPUs that an application declares.


class ResourceNeeds(NamedTuple):
    """The resources that one attempt takes while it runs.

    Attributes
    ----------
    cpus : int
        Processors, at least 1.
    memory : float
        Bytes; 0 if the application declares none.
    gpus : int
        GPUs that it has to itself.
    """

    cpus: int = 1
    memory: float = 0.0
    gpus: int = 0

    @property
    def are_plain(self) -> bool:
        """Whether this is one processor, no declared memory and no GPU."""
        return self.cpus == 1 and not self.memory and not self.gpus


def needs_of(template: Template) -> ResourceNeeds:
    """Return what an application declares; for data, one processor, which writes the initial content.

    A value that is not a size, or not a number of GPUs, counts as none.
    """
    if template.kind is not Kind.APP:
        return ResourceNeeds()
    return ResourceNeeds(min(max(template.cpus, 1), _LARGEST_NEED), _memory(template), _gpus(template))


def with_more_memory(needs: ResourceNeeds, faults: int, factor: float, most: float) -> ResourceNeeds:
    """Return what the next attempt needs of a drop whose attempts had too little memory.

    Parameters
    ----------
    faults : int
        How many had.
    factor : float
        By how much memory grows each time. What declares none gets all at once.
    most : float
        Bytes that attempts may use together.
    """
    if not (faults and factor):
        return needs
    return needs._replace(memory=min(needs.memory * factor**faults, most) if needs.memory else most)


def unreadable_memory(template: Template) -> str:
    """Return the value that declares memory, if it is not a size; otherwise an empty text."""
    field = _memory_field(template)
    return "" if field is None or _bytes(field) is not None else str(field.value)


def memory_fault(text: str) -> str:
    """Return what follows from a memory that is not a size, and how to write one."""
    return f"memory {text!r} is not a size, so no memory is kept free for it; write it as '2 GiB'"


def _memory(template: Template) -> float:
    field = _memory_field(template)
    return 0.0 if field is None else max(_bytes(field) or 0.0, 0.0)


def _bytes(field: Argument) -> float | None:
    """Return a size; None if the value is none, or is infinite: no node could keep that free."""
    size = quantity(field.value, MEMORY)
    return None if size is None or math.isinf(size) else size


def ranks_per_node(template: Template) -> int:
    """Return how many ranks of an MPI job are together on one node; 0 for all."""
    is_job = bool(template.axes) and template.axes[-1].kind == "mpi"
    count = _count(template, RANKS_FIELD) if is_job else 0
    return count if is_job and count < template.axes[-1].size else 0


def _gpus(template: Template) -> int:
    return _count(template, GPU_FIELD)


def _count(template: Template, name: str) -> int:
    field = template.argument(name)
    if field is None or field.is_port or field.value in (None, ""):
        return 0
    try:
        number = float(field.value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return int(number) if number.is_integer() and 0 <= number <= _LARGEST_NEED else 0


def _memory_field(template: Template) -> Argument | None:
    for name in MEMORY_FIELDS:
        field = template.argument(name)
        if field is not None and not field.is_port and field.value not in (None, ""):
            return field
    return None
