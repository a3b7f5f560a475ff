"""Applications that scatter, gather and group arrays and lists, and make arrays to try them."""

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from dropflow.apps.app_interface import App, Context, InputData, OutputData
from dropflow.apps.builtin.copy import BUFSIZE, copy_all
from dropflow.apps.encodings import array_of, give, group_by_port, keeps, usable, value_of, values_of
from dropflow.apps.parameters import NOT_DETERMINISTIC
from dropflow.errors import AppError, BadParameterError
from dropflow.graph.components import Component, Parameter, Port, fold, is_empty
from dropflow.graph.templates import Argument, Kind, Template

COPIES = Parameter(
    name="num_of_copies",
    type="Integer",
    default=1,
    minimum=0,
    aliases=("num_of_splits", "Number of copies"),
    description="Number of pieces in the palette; at run time there is one piece for each connected output.",
)
WIDTH = Parameter(
    name="num_of_inputs",
    type="Integer",
    default=1,
    minimum=0,
    aliases=("Number of inputs",),
    description="Number of inputs in the palette; at run time all connected inputs are used.",
)
_REDUCTIONS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
"""Functions that first reduce each array, with the ufunc that then combines the results."""
_REST = "restarray"


class GenericScatterApp(App):
    """Splits its input into one piece for each output."""

    component = Component(
        name="GenericScatterApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.GenericScatterApp",
        description="Splits a list or array along its first axis into as many nearly equal pieces as there are "
        "outputs, in order. Text is split by its lines.",
        parameters=(
            COPIES,
            Parameter(
                name="element",
                type="Boolean",
                default=False,
                description="Give the first element of each piece instead of the piece.",
            ),
            Parameter(
                name="each",
                type="Boolean",
                default=False,
                description="Give each output one element; fails unless the input has as many as there are outputs.",
            ),
        ),
        ports=(
            Port(name="array_in", usage="InputPort", type="Object.array", description="Array to split."),
            Port(name="object_out", usage="OutputPort", type="Object", description="One piece."),
        ),
        construct="Scatter",
    )

    def run(self, context: Context) -> None:
        """Split the input of each output port into one piece for each output at it."""
        inputs = usable(context)
        for place, (port, outputs) in enumerate(group_by_port(context.outputs).items()):
            source = source_for(inputs, port, place)
            value, name = value_of(context, source), source.name or source.oid
            if self.parameters["each"]:
                pieces = _elements(value, len(outputs), name)
            else:
                pieces = [self._chosen(piece, len(outputs)) for piece in _scatter_split(value, len(outputs), name)]
            for output, piece in zip(outputs, pieces, strict=True):
                give(context, [output], piece)

    def _chosen(self, piece: Any, count: int) -> Any:
        if not self.parameters["element"]:
            return piece
        if not len(piece):
            raise AppError(
                f"the input has fewer elements than there are outputs ({count})",
                hint="lower num_of_copies of the Scatter, or switch 'element' off",
            )
        return piece[0]


def source_for(inputs: Sequence[InputData], port: str, place: int) -> InputData:
    """Return the input for the outputs at `port`: by name, else by place, else the first.

    Raises
    ------
    AppError
        There is no input, or several at the same port.
    """
    if not inputs:
        raise AppError("there is nothing to scatter: no input is connected", hint="connect an array to its input port")
    same = [data for data in inputs if data.port == port]
    chosen = same[0] if same else inputs[min(place, len(inputs) - 1)]
    twins = [data for data in inputs if chosen.port and data.port == chosen.port]
    if len(twins) > 1:
        raise AppError(
            f"{len(twins)} inputs come in at port '{chosen.port}', and one can be split",
            hint="gather them first, for example with an ArrayGatherApp",
        )
    return chosen


def _elements(value: Any, count: int, name: str) -> list[Any]:
    """Return the elements of a list, tuple or array, or the lines of a text, unchanged."""
    if isinstance(value, str):
        value = value.splitlines()
    if isinstance(value, bytes | dict) or not hasattr(value, "__len__"):
        raise AppError(
            f"input '{name}' holds {type(value).__name__}, which has no elements to scatter",
            hint="scatter a list, a tuple, an array or lines of text",
        )
    if len(value) != count:
        raise AppError(
            f"input '{name}' has {len(value)} elements, and there are {count} outputs",
            hint=f"set num_of_copies of the Scatter to {len(value)}, or switch 'each' off to scatter pieces",
        )
    return list(value)


def _scatter_split(value: Any, count: int, name: str) -> list[Any]:
    import numpy as np  # noqa: PLC0415 - only applications that work with arrays pay for numpy

    if isinstance(value, str):
        value = value.splitlines()
    if isinstance(value, tuple | range):
        value = list(value)
    if isinstance(value, bytes | dict) or not hasattr(value, "__len__"):
        raise AppError(
            f"input '{name}' holds {type(value).__name__}, which cannot be split",
            hint="scatter a list, a tuple, an array or lines of text",
        )
    if isinstance(value, list) and not _is_uniform(value):
        bounds = [part * (len(value) // count) + min(part, len(value) % count) for part in range(count + 1)]
        return [value[start:stop] for start, stop in pairwise(bounds)]
    return list(np.array_split(np.asanyarray(value), count))  # also of a masked array


def _is_uniform(values: list[Any]) -> bool:
    """Return whether numpy can hold `values` unchanged: all numbers, or all text, or equal lists of numbers."""
    import numpy as np  # noqa: PLC0415 - see _split

    if all(isinstance(value, str) for value in values):
        return bool(values) and not any(value.endswith("\0") for value in values)  # numpy cuts these off
    if any(isinstance(value, str | bytes | dict) for value in values):
        return False
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        return False
    if array.dtype.kind not in "biufc":
        return False
    types = set(map(type, _leaves(values)))
    if types <= {float} or not types <= {bool, int, float, complex}:
        return True  # one type of Python; or numbers and arrays of numpy
    # Among others, large whole numbers would become floats, and truth values numbers.
    are_kept = array.dtype.kind in "iu" if types == {int} else bool not in types or len(types) == 1
    return are_kept and keeps(array, values)


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the elements of nested lists and tuples, in order."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _leaves(value)
        else:
            yield value


# Gathering many inputs into one output.


class GenericGatherApp(App):
    """Joins the bytes of its inputs."""

    component = Component(
        name="GenericGatherApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.GenericGatherApp",
        description="Joins its inputs, in order, byte for byte; directories are merged into directories.",
        parameters=(WIDTH, BUFSIZE),
        ports=(
            Port(name="input", usage="InputPort", encoding="raw", description="Data to join."),
            Port(name="output", usage="OutputPort", encoding="raw", description="All inputs, one after the other."),
        ),
        construct="Gather",
    )

    def run(self, context: Context) -> None:
        """Join."""
        copy_all(context, usable(context), context.outputs, self.parameters["bufsize"])


class ArrayGatherApp(App):
    """Collects the values of its inputs in a list."""

    component = Component(
        name="ArrayGatherApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.ArrayGatherApp",
        description="Collects the values of its inputs, in order, into one list; content that is not a pickle "
        "becomes text or bytes.",
        ports=(
            Port(name="value", usage="InputPort", encoding="dill", description="Value to collect."),
            Port(name="list", usage="OutputPort", type="Object.list", encoding="dill", description="The list."),
        ),
    )

    def run(self, context: Context) -> None:
        """Collect."""
        lists = [values_of(context, data) for data in usable(context)]
        give(context, context.outputs, list(itertools.chain.from_iterable(lists)))


class DictGatherApp(App):
    """Collects the values of its inputs by name."""

    component = Component(
        name="DictGatherApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.DictGatherApp",
        description="Collects the values of its inputs into one dictionary, under the names of the data drops (with "
        "-0, -1... where several have one name), beside 'value_dict' and the node's other arguments.",
        parameters=(Parameter(name="value_dict", type="Json", default={}, description="Entries to begin with."),),
        ports=(
            Port(name="value", usage="InputPort", description="Value to collect."),
            Port(name="dict", usage="OutputPort", type="Object.dict", description="The dictionary."),
        ),
    )

    @classmethod
    def uses(cls, argument: Argument, template: Template) -> bool:  # noqa: ARG003 - as in App
        """Return True: all arguments become entries of the dictionary."""
        return True

    def run(self, context: Context) -> None:
        """Collect."""
        gathered: dict[str, Any] = dict(self.parameters["value_dict"])
        for argument in self.template.arguments:
            own = argument.name == "value_dict" or argument.parameter_type != "ApplicationArgument"
            if not (own or argument.is_port or is_empty(argument.value, argument.type)):
                gathered[argument.name] = argument.value
        inputs = usable(context)
        for name, data in zip(_names(inputs), inputs, strict=True):
            gathered[name] = value_of(context, data)
        give(context, context.outputs, gathered)


def _names(inputs: list[InputData]) -> list[str]:
    names = [data.name or data.port or data.oid for data in inputs]
    counts = Counter(names)
    numbered = {name: _numbered(name, counts) for name, count in counts.items() if count > 1}
    return [next(numbered[name]) if name in numbered else name for name in names]


def _numbered(name: str, taken: Container[str]) -> Iterator[str]:
    return (text for number in itertools.count() if (text := f"{name}-{number}") not in taken)


# The application of a GroupBy construct that has none of its own.


class GroupByApp(App):
    """Puts the data of one group into one list."""

    component = Component(
        name="GroupByApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dropflow.apps.GroupByApp",
        description="Collects its inputs into one list, in order. Every GroupBy that names no application uses it.",
        ports=(
            Port(name="input", usage="InputPort", description="The members of the group."),
            Port(name="output", usage="OutputPort", type="Object.list", description="The list of their values."),
        ),
    )

    def run(self, context: Context) -> None:
        """Collect."""
        give(context, context.outputs, [value_of(context, data) for data in usable(context)])


# Scatter and gather of arrays in numpy's format, without pickling.


class GenericNpyGatherApp(App):
    """Combines arrays into one."""

    component = Component(
        name="GenericNpyGatherApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.GenericNpyGatherApp",
        description="Combines arrays into one, written as npy. sum, prod, max and min first reduce each array along "
        "reduce_axes and then combine the results; add, multiply, maximum and minimum combine element by element.",
        parameters=(
            WIDTH,
            Parameter(
                name="function",
                type="Select",
                default="sum",
                options=(*_REDUCTIONS, *_REDUCTIONS.values()),
                description="How arrays are combined.",
            ),
            Parameter(
                name="reduce_axes",
                type="Json",
                default=None,
                description="Axis or list of axes that sum, prod, max and min reduce; all when empty.",
            ),
        ),
        ports=(
            Port(name="array_in", usage="InputPort", type="Object.array", encoding="npy", description="One array."),
            Port(name="array_out", usage="OutputPort", type="Object.array", encoding="npy", description="The result."),
        ),
        construct="Gather",
    )

    def run(self, context: Context) -> None:
        """Combine one array at a time: at most two are in memory."""
        import numpy as np  # noqa: PLC0415 - only applications that work with arrays pay for numpy

        function = self.parameters["function"]
        combine = getattr(np, _REDUCTIONS.get(function, function))
        axes = _axes(self.parameters["reduce_axes"], context.name)
        result: Any = None
        for data in usable(context):
            array: Any = array_of(context, data)
            try:
                if function in _REDUCTIONS:
                    array = getattr(np, function)(array, axis=axes)
                result = array if result is None else combine(result, array)
            except ValueError as problem:
                raise AppError(f"input '{data.name or data.oid}' does not fit the others: {problem}") from problem
        if result is None:
            raise AppError("there is nothing to gather: no input is connected", hint="connect arrays to its input port")
        for output in context.outputs:
            output.put(np.asarray(result), "npy")


class GenericNpyScatterApp(App):
    """Splits each input array along an axis of its own."""

    component = Component(
        name="GenericNpyScatterApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.GenericNpyScatterApp",
        description="Splits each of its input arrays along its axis of scatter_axes into num_of_copies pieces, written "
        "as npy. Piece k of input i goes to the k-th output of the i-th output port.",
        parameters=(
            COPIES,
            Parameter(
                name="scatter_axes",
                type="Json",
                default=(0,),
                description="One axis for each input, such as [0, 1]; a single number serves all inputs.",
            ),
        ),
        ports=(
            Port(
                name="array_in", usage="InputPort", type="Object.array", encoding="npy", description="Array to split."
            ),
            Port(name="array_out", usage="OutputPort", type="Object.array", encoding="npy", description="One piece."),
        ),
        construct="Scatter",
    )

    def run(self, context: Context) -> None:
        """Split."""
        import numpy as np  # noqa: PLC0415 - see GenericNpyGatherApp

        inputs, outputs = usable(context), context.outputs
        if not outputs:
            return  # a scatter of no copies
        axes = _axes(self.parameters["scatter_axes"], context.name)
        axes = [axes] * len(inputs) if isinstance(axes, int) else list(axes or ())
        if len(axes) != len(inputs):
            raise BadParameterError(
                f"scatter_axes has {len(axes)} axes for {len(inputs)} inputs", where=context.name, hint="one for each"
            )
        count, left = divmod(len(outputs), max(len(inputs), 1))
        if not inputs or left or not count:
            raise AppError(f"{len(outputs)} outputs cannot share {len(inputs)} inputs evenly")
        for place, (data, axis) in enumerate(zip(inputs, axes, strict=True)):
            array = array_of(context, data)
            if not -array.ndim <= axis < array.ndim:
                raise AppError(f"input '{data.name or data.oid}' has {array.ndim} axes, there is no axis {axis}")
            for output, piece in zip(_share(outputs, place, count), np.array_split(array, count, axis), strict=True):
                output.put(np.ascontiguousarray(piece), "npy")


def _share(outputs: Sequence[Any], place: int, count: int) -> Sequence[Any]:
    return outputs[place * count : (place + 1) * count]


def _axes(value: Any, where: str) -> Any:
    """Return `value` as axes for numpy: None, one number, or a tuple of numbers."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, list | tuple) and all(isinstance(axis, int) for axis in value):
        return tuple(value)
    raise BadParameterError(f"{value!r} is not an axis or a list of axes", where=where, hint="for example [0, 1]")


# An application that takes one element from an array: the body of an array loop.


class PickOne(App):
    """Splits an array into its first element and the rest."""

    component = Component(
        name="PickOne",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.PickOne",
        description="Gives the first element of a list or array to its outputs, and the rest to the output whose port "
        "or data drop is called 'rest_array'. With nothing left the element is None and the rest is empty.",
        ports=(
            Port(name="rest_array", usage="InputOutput", type="Object.array", description="The array; the rest of it."),
            Port(name="element", usage="OutputPort", type="Object.element", description="The first element."),
        ),
    )

    def run(self, context: Context) -> None:
        """Pick."""
        first, rest = _pick_split(value_of(context, _array(context)))
        give(context, [output for output in context.outputs if not _is_rest(output)], first)
        give(context, [output for output in context.outputs if _is_rest(output)], rest)


def _array(context: Context) -> InputData:
    """Return the input with the array: that at ``rest_array``, else the first that is not an event."""
    inputs = usable(context)
    named = [data for data in inputs if fold(data.port) == _REST]
    others = [data for data in inputs if not _is_event(context, data)]
    arrays = named or others
    if not arrays:
        raise AppError("no input has an array to pick from", hint="connect a list or array to an input port")
    if len(arrays) > 1:
        context.log(f"{len(arrays)} arrays are connected; picking from {arrays[0].name or arrays[0].oid}", "WARNING")
    return arrays[0]


def _is_event(context: Context, data: InputData) -> bool:
    argument = context.arguments.get(data.port)
    return argument is not None and argument.type == "Event"


def _is_rest(output: OutputData) -> bool:
    return _REST in (fold(output.port), fold(output.name))


def _pick_split(data: Any) -> tuple[Any, Any]:
    if data is None:
        return None, []
    if isinstance(data, str | bytes) or not hasattr(data, "__getitem__") or not getattr(data, "shape", (1,)):
        return data, []
    return (data[0] if len(data) else None), data[1:]


# Sources and averages of arrays.


class RandomArrayApp(App):
    """Writes an array of random numbers."""

    component = Component(
        name="RandomArrayApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.RandomArrayApp",
        description="Writes an array of random numbers, drawn uniformly from low (included) to high (excluded).",
        parameters=(
            NOT_DETERMINISTIC,
            Parameter(name="integer", type="Boolean", default=True, description="Whole numbers instead of floats."),
            Parameter(name="low", type="Float", default=0.0, description="Smallest number."),
            Parameter(name="high", type="Float", default=100.0, description="Upper bound; never reached."),
            Parameter(name="size", type="Integer", default=100, minimum=0, description="How many numbers."),
            Parameter(
                name="seed", type="Integer", default=None, minimum=0, description="Makes the numbers repeatable."
            ),
        ),
        ports=(Port(name="array", usage="OutputPort", type="Object.array", description="The numbers."),),
    )

    def run(self, context: Context) -> None:
        """Draw the numbers."""
        import numpy as np  # noqa: PLC0415 - only applications that work with arrays pay for numpy

        low, high, seed = (self.parameters[name] for name in ("low", "high", "seed"))
        if not high > low:
            raise BadParameterError(
                f"high ({high:g}) is not above low ({low:g})", where=context.name, hint="choose low < high"
            )
        # The index is part of the seed, so that instances of one node draw different numbers.
        generator = np.random.default_rng(None if seed is None else [seed, *context.index])
        size = self.parameters["size"]
        if self.parameters["integer"]:
            give(context, context.outputs, generator.integers(int(low), max(int(high), int(low) + 1), size))
        else:
            give(context, context.outputs, generator.uniform(low, high, size))


class AverageArraysApp(App):
    """Averages all its inputs together."""

    component = Component(
        name="AverageArraysApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.AverageArraysApp",
        description="Joins its arrays along their first axis and averages along it: of one-dimensional arrays and of "
        "numbers it gives the average of all numbers, of tables the average row.",
        parameters=(
            Parameter(
                name="method",
                type="Select",
                default="mean",
                options=("mean", "median"),
                description="Which kind of average.",
            ),
        ),
        ports=(
            Port(name="array", usage="InputPort", type="Object.array", description="Array to average."),
            Port(name="average", usage="OutputPort", type="Object", description="The average."),
        ),
    )

    def run(self, context: Context) -> None:
        """Average."""
        import numpy as np  # noqa: PLC0415 - see RandomArrayApp

        arrays = [np.atleast_1d(array_of(context, data)) for data in usable(context)]
        if not arrays:
            raise AppError("nothing to average: no input is connected", hint="connect arrays to its input port")
        try:
            together = np.concatenate(arrays)
        except ValueError as problem:
            shapes = ", ".join(str(shape) for shape in dict.fromkeys(array.shape for array in arrays))
            raise AppError(f"arrays of shapes {shapes} cannot be averaged together") from problem
        if not len(together):
            raise AppError("nothing to average: all arrays are empty")
        average: Any = np.median(together, axis=0) if self.parameters["method"] == "median" else together.mean(axis=0)
        give(context, context.outputs, average)
