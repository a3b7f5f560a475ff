"""Functions on chunks of arrays: blockwise applications, and sources of arrays."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from dropflow.apps.api import Context, InputData
from dropflow.apps.array_chunks import ChunkGrid, JoinedInput, chunk_of
from dropflow.apps.function import FUNCTION_PARAMETERS, PyFuncApp
from dropflow.apps.function_arguments import Signature, bind, refuse_missing
from dropflow.apps.static_lookup import signature_of
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError
from dropflow.graph.templates import Kind

__all__ = ["CHUNK_PORTS", "ArrayBlockwise", "ArraySource", "ChunkContext"]

CHUNK_PORTS = (
    Port(name="array", usage="InputPort", type="Object.array", encoding="npy", description="An array."),
    Port(
        name="result", usage="OutputPort", type="Object.array", encoding="npy", description="The array that it makes."
    ),
)

LABELS = Parameter(
    name="labels",
    parameter_type="ComponentParameter",
    description="Labels of the axes of the arrays at its ports, as in einsum: vis: tcx, gains: tx -> tcx. A label is a "
    "letter, or there are blanks between them.",
)
_PLACE = ("slices", "shape", "dtype")
"""Arguments of functions that say which chunk is to be made."""


class ChunkContext:
    """The context of an attempt, with the chunks at a port as one input.

    Parameters
    ----------
    context : Context
        The attempt.
    counts : mapping
        For each port with an array, how many chunks are joined along each axis.
    """

    def __init__(self, context: Context, counts: Mapping[str, Sequence[int]]) -> None:
        self._context = context
        chunks: dict[str, list[InputData]] = {}
        self.inputs: list[InputData] = []
        for data in context.inputs:
            if data.port in counts:
                chunks.setdefault(data.port, []).append(data)
            else:
                self.inputs.append(data)
        joined = {port: JoinedInput(parts, counts[port]) for port, parts in chunks.items()}
        self.inputs += [cast(InputData, one) for one in joined.values()]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class ArrayBlockwise(PyFuncApp):
    """Calls a Python function for each chunk."""

    component = Component(
        name="ArrayBlockwise",
        kind=Kind.APP,
        category="PyFuncApp",
        dropclass="dropflow.apps.ArrayBlockwise",
        description="Calls a Python function for each chunk of the arrays at its outputs. Its arguments are the chunks "
        "of the arrays at its inputs that have the same indices at the labels; an axis whose label no output has is "
        "given whole. slices, shape and dtype, if it has such arguments, say which part of the result is to be made.",
        parameters=(*FUNCTION_PARAMETERS, LABELS),
        ports=CHUNK_PORTS,
    )

    @cached_property
    def grid(self) -> ChunkGrid:
        """What the translator has told about the arrays."""
        return ChunkGrid(self.template)

    def check_ports(self, inputs: Collection[str], outputs: Collection[str], *, is_certain: bool) -> None:
        """Raise if an encoding does not exist, or a required argument certainly gets no value."""
        self.refuse_encodings(inputs, outputs)
        source = str(self.parameters["func_code"])
        found = signature_of(source, self.function_name) if is_certain and source.strip() else None
        if found is not None:
            defaults = {*self.parameters["func_defaults"], *self.given}
            signature = Signature(found, title=self.function_name)
            refuse_missing(signature, self.template, self.values, defaults, inputs=inputs, outputs=outputs)

    @property
    def given(self) -> Collection[str]:
        """Names of the arguments that say which chunk is to be made."""
        return _PLACE

    def run(self, context: Context) -> None:
        """Call the function for one chunk, and write the result to each output."""
        ports, place = self.grid.outputs, self.grid.place(context)
        first = next(iter(ports.values()))
        told = {"slices": first.slices(place), "shape": first.tiling.shape, "dtype": first.dtype}
        around = cast(Context, ChunkContext(context, self.grid.record["inputs"]))
        bound = bind(self.signature, around, self.values, {**told, **self.defaults})
        self.write(context, self.function(*bound.args, **bound.kwargs), place)

    def write(self, context: Context, value: Any, place: Sequence[int]) -> None:
        """Write what the function returned: one array, or a dictionary with an array for each of several ports.

        Raises
        ------
        AppError
            A port has no array, or one of another shape or type.
        """
        ports = self.grid.outputs
        several = isinstance(value, dict) and len(ports) > 1
        if several and (lacking := [port for port in ports if port not in value]):
            raise AppError(f"{self.signature.title}() returned no array for the output {lacking[0]!r}")
        for output in context.outputs:
            port = ports.get(output.port)
            if port is None:
                continue  # an event
            what = f"the result of {self.signature.title}()" + (f" for {output.port!r}" if several else "")
            shape = [one.stop - one.start for one in port.slices(place)]
            output.put(chunk_of(value[output.port] if several else value, shape, port.dtype, what), "npy")


class ArraySource(ArrayBlockwise):
    """Calls a Python function for each chunk of an array, with its place."""

    component = Component(
        name="ArraySource",
        kind=Kind.APP,
        category="PyFuncApp",
        dropclass="dropflow.apps.ArraySource",
        description="Makes an array: calls a Python function for each chunk. Its argument slices says which part of "
        "the array is to be made, shape and dtype are those of the whole array. Other inputs are given whole.",
        parameters=FUNCTION_PARAMETERS,
        ports=CHUNK_PORTS[1:],
    )
