"""Values that calls of a graph return: data, which have values after a run, and values that constructs pass on."""

import inspect
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from dropflow.apps.formats import FORMATS, FormatPath
from dropflow.builder.draft import DraftLink, DraftNode
from dropflow.data.file import matching_files
from dropflow.data.registry import DATA_COMPONENTS
from dropflow.errors import UsageError
from dropflow.formatting import did_you_mean
from dropflow.graph.components import Component
from translator.logical import Role

if TYPE_CHECKING:
    from dropflow.builder.graph import Graph

ANY = inspect.Parameter.empty
"""No annotation."""

_TYPES: Mapping[Any, str] = {int: "Integer", float: "Float", str: "String", bool: "Boolean"}
_WIDER: Mapping[type, tuple[type, ...]] = {bool: (int, float, complex), int: (float, complex), float: (complex,)}
_BY_SUFFIX = {
    **dict.fromkeys((".txt", ".csv", ".md", ".log", ".dat", ".html", ".svg", ".xml"), "utf-8"),
    **dict.fromkeys((".png", ".jpg", ".pdf", ".gz", ".zip"), "binary"),
    **dict.fromkeys((".h5", ".hdf5"), "hdf5"),
    ".fits": "fits",
    ".ms": "ms",
    ".nc": "xarray",
    ".parquet": "parquet",
    ".zarr": "zarr",
    ".npy": "npy",
    ".json": "json",
    ".pkl": "pickle",
}
_COMPONENTS = {component.name: component for component in DATA_COMPONENTS} | {
    component.category: component for component in reversed(DATA_COMPONENTS)
}
"""Data components by name and category; the first of several with one category is the general one: File, not JSON."""
_BY_CLASS = {component.dropclass: component for component in DATA_COMPONENTS}

# Types of ports from annotations, and the check that a value of one annotation can be an argument of another.
#
# The check is made while a graph is written, so it only refuses what is certainly wrong: two classes without a common
# subclass that the annotations allow. Everything that is not a class, a union or a container of them fits.


def annotations_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the annotations of a function, evaluated as far as possible; the others are left out."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation may be any expression, and is not needed
        annotations = getattr(function, "__annotations__", {})
        return {name: value for name, value in annotations.items() if not isinstance(value, str)}


def format_path(annotation: Any) -> FormatPath | None:
    """Return the format path in an annotation such as `dropflow.OutputPath`; None for others."""
    marks = getattr(annotation, "__metadata__", ())
    return next((mark for mark in marks if isinstance(mark, FormatPath)), None)


def port_type(annotation: Any) -> str:
    """Return EAGLE's type for data of an annotation: that of a plain number or text, else ``Object``."""
    return _TYPES.get(annotation, "Object") if isinstance(annotation, type) else "Object"


def shown(annotation: Any) -> str:
    """Return an annotation as it is written in a program."""
    return annotation.__name__ if type(annotation) is type else str(annotation).replace("typing.", "")


def fits(given: Any, wanted: Any) -> bool:
    """Return whether a value annotated as `given` can be an argument annotated as `wanted`."""
    if isinstance(given, types.UnionType) or typing.get_origin(given) is typing.Union:
        return any(fits(argument, wanted) for argument in typing.get_args(given))
    if isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union:
        return any(fits(given, argument) for argument in typing.get_args(wanted))
    have, want = _class_of(given), _class_of(wanted)
    if have is None or want is None:
        return True
    if not (_is_a(have, want) or _is_a(want, have) or want in _WIDER.get(have, ())):
        return False
    inner = typing.get_args(given), typing.get_args(wanted)
    if have is list and want is list and all(len(arguments) == 1 for arguments in inner):
        return fits(inner[0][0], inner[1][0])
    return True


def list_of(annotation: Any) -> Any:
    """Return the annotation of a list of values with this annotation; no annotation if there is none."""
    return ANY if annotation is ANY else types.GenericAlias(list, (annotation,))


def _class_of(annotation: Any) -> type | None:
    """Return the class of an annotation; None if it has none, such as a type variable, or there is no annotation."""
    if annotation is None:
        return type(None)
    if hasattr(annotation, "__metadata__"):  # Annotated: a path of any content, or a plain type with a remark
        return None if format_path(annotation) else _class_of(annotation.__origin__)
    kind = typing.get_origin(annotation) or annotation
    if not isinstance(kind, type) or kind in (ANY, Any, object) or getattr(kind, "_is_protocol", False):
        return None
    return kind


def _is_a(kind: type, other: type) -> bool:
    try:
        return issubclass(kind, other)
    except TypeError:
        return True


class Formula:
    """A parameter of a graph, or an expression of parameters: ``2 * n + 1``.

    It has a value when the graph is filled in. In a text it is a placeholder: ``f"part-{n}.txt"``.
    """

    def __init__(self, text: str, type_: str) -> None:
        self.text = text
        self.type = type_

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"

    def _with(self, sign: str, other: "Formula | float", *, swapped: bool = False) -> "Formula":
        if self.type not in ("Integer", "Float"):
            raise UsageError(
                f"the parameter {self.text} is a {self.type}, which has no {sign!r}",
                hint="use it as it is, or in a text",
            )
        if not isinstance(other, Formula | int | float) or isinstance(other, bool):
            raise UsageError(
                f"{self.text} {sign} {other!r} is not a formula of numbers",
                hint="use numbers and parameters of numbers",
            )
        left, right = (_operand(other), _operand(self)) if swapped else (_operand(self), _operand(other))
        is_whole = (
            sign != "/"
            and self.type == "Integer"
            and getattr(other, "type", type(other).__name__) in ("Integer", "int")
        )
        return Formula(f"{left} {sign} {right}", "Integer" if is_whole else "Float")

    def __add__(self, other: "Formula | float") -> "Formula":
        return self._with("+", other)

    def __radd__(self, other: "Formula | float") -> "Formula":
        return self._with("+", other, swapped=True)

    def __sub__(self, other: "Formula | float") -> "Formula":
        return self._with("-", other)

    def __rsub__(self, other: "Formula | float") -> "Formula":
        return self._with("-", other, swapped=True)

    def __mul__(self, other: "Formula | float") -> "Formula":
        return self._with("*", other)

    def __rmul__(self, other: "Formula | float") -> "Formula":
        return self._with("*", other, swapped=True)

    def __truediv__(self, other: "Formula | float") -> "Formula":
        return self._with("/", other)

    def __rtruediv__(self, other: "Formula | float") -> "Formula":
        return self._with("/", other, swapped=True)

    def __floordiv__(self, other: "Formula | float") -> "Formula":
        return self._with("//", other)

    def __rfloordiv__(self, other: "Formula | float") -> "Formula":
        return self._with("//", other, swapped=True)

    def __mod__(self, other: "Formula | float") -> "Formula":
        return self._with("%", other)

    def __rmod__(self, other: "Formula | float") -> "Formula":
        return self._with("%", other, swapped=True)

    def __neg__(self) -> "Formula":
        return 0 - self

    def __bool__(self) -> NoReturn:
        raise UsageError(f"{self.text} has no value yet", hint="the number of nodes cannot depend on a parameter")


def _is_table(annotation: Any) -> bool:
    """Return whether a value with this annotation has columns or rows."""
    kind = _class_of(annotation)
    return kind is not None and (issubclass(kind, Mapping | list | tuple) or kind.__name__ in ("DataFrame", "ndarray"))


def _operand(value: "Formula | float") -> str:
    if not isinstance(value, Formula):
        return str(value)
    return f"({value.text})" if " " in value.text else value.text


def by_ending(path: str) -> str:
    """Return the encoding that follows from the ending of a path; empty if none does."""
    return _BY_SUFFIX.get(os.path.splitext(path)[1].lower(), "")  # noqa: PTH122 - may have a formula or pattern


class FilePattern(NamedTuple):
    """Files that exist: a pattern, and how many there were when the graph was made."""

    pattern: str
    copies: int


def glob(pattern: "str | os.PathLike[str]") -> FilePattern:
    """Return the files that match a pattern, for `dropflow.Graph.each`.

    Parameters
    ----------
    pattern : path
        Such as ``data/*.fits``; ``**`` stands for directories of any depth. A relative one is made absolute.

    Raises
    ------
    UsageError
        There is none.

    Examples
    --------
    >>> glob("no/such/*.fits")
    Traceback (most recent call last):
    dropflow.errors.UsageError: no file matches ...
    """
    absolute = str(Path(pattern).absolute())
    count = len(matching_files(absolute))
    if not count:
        raise UsageError(f"no file matches {absolute}", hint="correct the pattern, or put the files there")
    return FilePattern(absolute, count)


class Data:
    """The data that a node writes or has, in every copy of the constructs around it.

    Give it to calls of the graph. `dropflow.builder.results.GraphRun.value` returns its value after a run. Used outside
    the construct that it is in, it is the list of all copies.
    """

    def __init__(self, graph: "Graph", node: DraftNode, *, annotation: Any = ANY) -> None:
        self.graph = graph
        self.node = node
        self.annotation = annotation
        self.loop_aware = False

    @property
    def name(self) -> str:
        """The name of its node."""
        return self.node.name

    def save(self, path: "str | os.PathLike[str] | Formula", *, encoding: str = "") -> "Data":
        """Write it to a file, and return it.

        Parameters
        ----------
        path : path
            Below the files of the session, unless it is absolute. Inside constructs, ``{auto}`` in it is a different
            text for each copy.
        encoding : str
            How the value is written (`docs/reference/data.md`). By default it follows from the ending of the path; what
            a function writes itself stays a path, or in the format of its annotation. A table in a ``.csv`` is written
            with pandas, if the annotation of the value is a mapping, list, array or table.

        Raises
        ------
        UsageError
            The encoding does not follow from the path.
        """
        if not encoding and (self.node.encoding == "path" or self.node.encoding in FORMATS):
            encoding = self.node.encoding  # from the function that writes it
        chosen = encoding or by_ending(str(path))
        if not encoding and str(path).lower().endswith(".csv") and _is_table(self.annotation):
            chosen = "csv"
        if not chosen:
            raise UsageError(
                f"how to write {self.name!r} does not follow from the name {str(path)!r}",
                hint=f"give an encoding, such as utf-8, or one of the endings {', '.join(sorted(_BY_SUFFIX))}",
            )
        self.node.own_encoding = chosen
        return self.store("File", filepath=str(path))

    def store(self, category: str, **fields: Any) -> "Data":
        """Keep it in another kind of data drop (Memory, SharedMemory, Directory, URL, S3...), and return it.

        Parameters
        ----------
        category : str
            Name of a data class of the palette ``palettes/builtin.palette``.
        **fields
            Its parameters.

        Raises
        ------
        UsageError
            There is no such class, or it has no such parameter.
        """
        component = _COMPONENTS.get(category)
        if component is None:
            raise UsageError(
                f"there is no data class {category!r}",
                where=self.name,
                hint=did_you_mean(category, _COMPONENTS) or f"use one of {', '.join(_COMPONENTS)}",
            )
        self.node.category = component.category
        self.node.set("dropclass", component.dropclass)
        if category == "Directory" and self.node.encoding not in FORMATS:
            self.node.own_encoding = "path"
        return self.set(**fields)

    def set(self, **fields: Any) -> "Data":
        """Set parameters of its node, such as ``data_volume=100`` or ``persist=True``, and return it.

        Raises
        ------
        UsageError
            Its class has no such parameter.
        """
        chosen = self.node.fields.get("dropclass")
        component = _BY_CLASS.get(chosen.value) if chosen is not None else None
        set_parameters(self.node, component or _COMPONENTS[self.node.category], fields)
        return self

    def renamed(self, name: str) -> "Data":
        """Give its node another name, and return it.

        Raises
        ------
        UsageError
            Another node has this name.
        """
        if not self.graph.drawing.rename(self.node, name):
            raise UsageError(
                f"there is another node {name!r}", where=self.graph.name, hint="names are unique in a graph"
            )
        return self

    def __repr__(self) -> str:
        of = "" if self.annotation is ANY else f": {shown(self.annotation)}"
        return f"<Data {self.name!r}{of} of graph {self.graph.name!r}>"

    def __iter__(self) -> Iterator[Any]:
        self._has_no_value("its elements are", "open a scatter: with graph.each(data, copies=n) as element")

    def __getitem__(self, place: object) -> Any:
        self._has_no_value("its elements are", "give it to a function that returns the element")

    def __bool__(self) -> NoReturn:  # noqa: PLE0304 - it raises
        self._has_no_value("its value is", "choose in the graph: graph.branch(function, data)")

    def _has_no_value(self, what: str, hint: str) -> NoReturn:
        raise UsageError(f"{self.name!r} is data of a graph: {what} not known before it runs", hint=hint)


class CarriedValue:
    """A value that each iteration of a loop gets from the one before it. Made by `Loop.carry`."""

    def __init__(self, loop: DraftNode, first: Data) -> None:
        self.loop = loop
        self.first = first
        self.readers: list[tuple[DraftNode, str]] = []
        self.following: Data | None = None
        self.copy: Data | None = None
        """Data in the loop with its value, once something needs them."""
        self._is_closed = False

    def add_reader(self, node: DraftNode, port: str) -> None:
        """Connect an input of a node in the loop to the value of the iteration before."""
        self.readers.append((node, port))
        self.first.graph.drawing.undo.append(self.readers.pop)
        if self._is_closed:
            self._carry(node, port)

    def close(self) -> None:
        """Add the edges from each iteration to the next; the value that follows is known now."""
        self._is_closed = True
        for node, port in self.readers:
            self._carry(node, port)

    def _carry(self, node: DraftNode, port: str) -> None:
        assert self.following is not None  # see `Loop.close`
        link = DraftLink(self.following.node, "io", node, port, closes_loop=True)
        self.first.graph.drawing.links.append(link)

    def save(self, path: "str | os.PathLike[str] | Formula", *, encoding: str = "") -> Data:
        """Write what each iteration gets to a file, and return it; see `Data.save`."""
        copied: Data = self.first.graph.wiring.as_data(self)
        return copied.save(path, encoding=encoding)

    def __repr__(self) -> str:
        return f"<value that a loop carries, first {self.first.name!r}>"


class GroupedData:
    """The list of the data of a group, for the first argument of a function in a group-by."""

    def __init__(self, graph: "Graph", node: DraftNode, annotation: Any) -> None:
        self.graph = graph
        self.node = node
        self.annotation = annotation
        self.is_used = False

    def __repr__(self) -> str:
        return f"<data of a group of {self.node.name!r}>"


# What ``with`` statements of a graph open, where a plain handle is not enough: loops, MKNs and services.


class Loop:
    """A loop that is open: its nodes run in each iteration, one after the other."""

    def __init__(self, graph: "Graph", node: DraftNode) -> None:
        self._graph = graph
        self._node = node
        self._carried: list[CarriedValue] = []

    def carry(self, first: Any) -> CarriedValue:
        """Return a value that is `first` in the first iteration, and then what `again` gives.

        Raises
        ------
        UsageError
            `first` is inside the loop.
        """
        first = self._graph.wiring.as_data(first)
        if not isinstance(first, Data):
            first = self._graph.wiring.value_in(self._node.inside, first, f"{self._node.name} begins with")
        if self._node in self._graph.drawing.path(first.node):
            raise UsageError(
                f"{first.name!r} is made in the loop, which cannot begin with it",
                where=self._node.name,
                hint="make it before the loop",
            )
        made = CarriedValue(self._node, first)
        self._carried.append(made)
        return made

    def again(self, carried: CarriedValue, value: Data | CarriedValue) -> None:
        """Give `value` to the next iteration as its `carried`.

        Raises
        ------
        UsageError
            `value` is not made in this loop, or `carried` has a next value already, or is of another loop.
        """
        if carried not in self._carried or carried.following is not None:
            why = "already has a next value" if carried in self._carried else "belongs to another loop"
            raise UsageError(f"the {carried!r} {why}", where=self._node.name, hint="call again() once for each carry()")
        made = self._graph.wiring.as_data(value)
        if not isinstance(made, Data) or self._node not in self._graph.drawing.path(made.node):
            raise UsageError(
                f"{getattr(made, 'name', made)!r} is not made in the loop",
                where=self._node.name,
                hint="make it inside",
            )
        made.node.set("group_end", value=True)
        carried.following = made

    def last(self, value: Data | CarriedValue) -> Data:
        """Return what `value` is in the last iteration, for use after the loop; also the last of a loop around it."""
        made = self._made_inside(value)
        seen = Data(made.graph, made.node, annotation=made.annotation)
        seen.loop_aware = True
        return seen

    def exited(self, value: Data | CarriedValue) -> Data:
        """Return what `value` is in the iteration that was left through a branch, for use after the loop.

        A branch writes `value` in one iteration, and skips it in all others. A copy of it is added after the loop.
        """
        made = self._made_inside(value)
        return self._graph.wiring.copied(
            made, f"Leave {self._node.name}", inside=self._graph.wiring.around, settings={"block_skip": True}
        )

    def _made_inside(self, value: Data | CarriedValue) -> Data:
        """Return what is made in the loop as data; raise for anything else."""
        made: Data = self._graph.wiring.as_data(value)
        if self._node not in self._graph.drawing.path(made.node):
            raise UsageError(f"{made.name!r} is not made in the loop", where=self._node.name, hint="use it as it is")
        return made

    def close(self) -> None:
        """Add the edges from each iteration to the next.

        Raises
        ------
        UsageError
            Nothing is carried, a carried value has no next value, or no function uses it.
        """
        if not self._carried:
            raise UsageError(
                "nothing goes from one iteration of the loop to the next",
                where=self._node.name,
                hint="use carry() and again() in the loop; for independent copies open a scatter",
            )
        for carried in self._carried:
            if carried.following is None or not carried.readers:
                lacks = "no next value" if carried.following is None else "no function that uses it"
                hint = (
                    "call again(carried, value) in the loop" if carried.following is None else "give it to a function"
                )
                raise UsageError(f"the {carried!r} has {lacks}", where=self._node.name, hint=hint)
            carried.close()


class MknContent:
    """An MKN that is open: M inputs are joined, K copies of its nodes work, and N outputs are written for each."""

    def __init__(self, graph: "Graph", node: DraftNode) -> None:
        self._graph = graph
        self._node = node

    def enter(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Data:
        """Call a function on M inputs, and return its result, which all K copies get."""
        return self._graph.wiring.call_embedded(self._node, Role.INPUT, function, args, kwargs, inside=self._node)

    def leave(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Data:
        """Call a function on what the K copies wrote, and return its result, for use after the construct."""
        wiring, around = self._graph.wiring, self._node.inside
        return wiring.call_embedded(self._node, Role.OUTPUT, function, args, kwargs, inside=around)


def set_parameters(node: DraftNode, component: Component | None, fields: dict[str, Any]) -> None:
    """Set parameters that a component defines.

    Raises
    ------
    UsageError
        It does not define one of them.
    """
    known = {parameter.name: parameter for parameter in (() if component is None else component.parameters)}
    for name, value in fields.items():
        if name not in known:
            raise UsageError(
                f"{node.category} has no parameter {name!r}",
                where=node.name,
                hint=did_you_mean(name, known) or f"it has {', '.join(sorted(known))}",
            )
        node.set(name, plain(value), known[name].type, kind=known[name].parameter_type)


def plain(value: Any) -> Any:
    """Return a value as a field has it: a formula as its text."""
    return value.text if isinstance(value, Formula) else value
