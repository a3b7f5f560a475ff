"""Sources and averages of arrays."""

from typing import Any

from dropflow.apps.api import App, Context
from dropflow.apps.port_values import array_of, give, usable
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError, BadParameterError
from dropflow.graph.templates import Kind

__all__ = ["AverageArraysApp", "RandomArrayApp"]


class RandomArrayApp(App):
    """Writes an array of random numbers."""

    component = Component(
        name="RandomArrayApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.RandomArrayApp",
        description="Writes an array of random numbers, drawn uniformly from low (included) to high (excluded).",
        parameters=(
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
            Port(name="array", usage="InputPort", type="Object.array", description="What is averaged."),
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
