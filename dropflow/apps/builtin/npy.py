"""Scatter and gather of arrays in numpy's format, without pickling."""

from collections.abc import Sequence
from typing import Any

from dropflow.apps.api import App, Context
from dropflow.apps.builtin.gather import WIDTH
from dropflow.apps.builtin.scatter import COPIES
from dropflow.apps.port_values import array_of, usable
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError, BadParameterError
from dropflow.graph.templates import Kind

__all__ = ["GenericNpyGatherApp", "GenericNpyScatterApp"]

_REDUCTIONS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
"""Functions that first reduce each array, with the ufunc that then combines the results."""


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
            Port(name="array_in", usage="InputPort", type="Object.array", encoding="npy", description="What is split."),
            Port(name="array_out", usage="OutputPort", type="Object.array", encoding="npy", description="One piece."),
        ),
        construct="Scatter",
    )

    def run(self, context: Context) -> None:
        """Split."""
        import numpy as np  # noqa: PLC0415 - see GenericNpyGatherApp

        inputs, outputs = usable(context), context.outputs
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
