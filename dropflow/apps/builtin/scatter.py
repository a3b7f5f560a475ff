"""Scatter of one array or list over the copies of a Scatter."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from dropflow.apps.api import App, Context, InputData
from dropflow.apps.port_values import give, group_by_port, usable, value_of
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError
from dropflow.graph.templates import Kind

__all__ = ["COPIES", "GenericScatterApp", "source_for"]

COPIES = Parameter(
    name="num_of_copies",
    type="Integer",
    default=1,
    minimum=1,
    aliases=("num_of_splits", "Number of copies"),
    description="Number of pieces in the palette; at run time there is one piece for each connected output.",
)


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
            Port(name="array_in", usage="InputPort", type="Object.array", description="What is split."),
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
                pieces = [self._chosen(piece, len(outputs)) for piece in _split(value, len(outputs), name)]
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


def _split(value: Any, count: int, name: str) -> list[Any]:
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
    return list(np.array_split(np.asarray(value), count))


def _is_uniform(values: list[Any]) -> bool:
    """Whether numpy can hold `values` without changing them: all numbers, or all text, or equal lists of numbers."""
    import numpy as np  # noqa: PLC0415 - see _split

    if all(isinstance(value, str) for value in values):
        return bool(values)
    if any(isinstance(value, str | bytes | dict) for value in values):
        return False
    try:
        return np.asarray(values).dtype.kind in "biufc"
    except ValueError:
        return False
