"""Reductions of arrays in a tree: of each chunk, then of several results, until one is left for each output chunk."""

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any, NamedTuple, cast

from dropflow.apps.api import Context
from dropflow.apps.array_chunks import ArrayPort, refuse_lost
from dropflow.apps.builtin.array_function import CHUNK_PORTS, LABELS, ArrayBlockwise, ChunkContext
from dropflow.apps.function import FUNCTION_PARAMETERS
from dropflow.apps.function_arguments import Signature, bind
from dropflow.apps.load_function import import_object, object_from_source, refuse_name, refuse_source
from dropflow.engine.component import Component, Parameter
from dropflow.errors import BadParameterError
from dropflow.graph.templates import Kind, Template

__all__ = ["ArrayReduction"]

_OWN = "function"
_METHODS = ("sum", "prod", "min", "max", "mean", "any", "all", _OWN)


class _Steps(NamedTuple):
    """The three functions of a reduction that is built in."""

    chunk: Callable[[Any, tuple[int, ...], str], Any]
    combine: Callable[[Sequence[Any]], Any]
    finish: Callable[[Any], Any]


class ArrayReduction(ArrayBlockwise):
    """Reduces an array along the axes whose labels its output does not have."""

    component = Component(
        name="ArrayReduction",
        kind=Kind.APP,
        category="PyFuncApp",
        dropclass="dropflow.apps.ArrayReduction",
        description="Reduces an array along the axes whose labels its output does not have, as in tcx -> cx: each "
        "chunk by itself, then the results in a tree. With the method function, func_name gets a chunk (and axis, the "
        "reduced axes, slices and shape, if it has such arguments), combine_name a list of results, and finish_name "
        "the last result.",
        parameters=(
            LABELS,
            Parameter(
                name="method",
                type="Select",
                default="sum",
                options=_METHODS,
                parameter_type="ComponentParameter",
                description="What is computed.",
            ),
            Parameter(
                name="split",
                type="Integer",
                default=8,
                minimum=2,
                parameter_type="ComponentParameter",
                description="How many results are combined at a time, at most.",
            ),
            *FUNCTION_PARAMETERS,
            Parameter(
                name="combine_name",
                parameter_type="ComponentParameter",
                description="Function that makes one result of a list of results: a dotted name, or one of func_code. "
                "It must be associative.",
            ),
            Parameter(
                name="finish_name",
                parameter_type="ComponentParameter",
                description="Function that makes a chunk of the output of the last result; blank if it is the chunk.",
            ),
        ),
        ports=CHUNK_PORTS,
    )

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        self._combine_name, self._finish_name = (
            str(self.parameters[name]).strip() for name in ("combine_name", "finish_name")
        )
        if self.needs_function and not self._combine_name:
            raise BadParameterError(
                f"the reduction '{template.name}' has a function for chunks, and none that combines its results",
                fields=("combine_name",),
                where=template.name,
                hint="give the name of a function in combine_name, or choose another method",
            )

    @property
    def needs_function(self) -> bool:
        """Whether the node must name a function: the other methods are built in."""
        return bool(self.parameters["method"] == _OWN)

    @property
    def given(self) -> Collection[str]:
        """Names of the arguments that say which chunk is reduced, and how."""
        return ("axis", "slices", "shape", "dtype")

    def check(self) -> None:
        """Raise if a function certainly does not exist. Runs and imports nothing of the graph."""
        if not self.needs_function:
            return
        super().check()
        source = str(self.parameters["func_code"])
        for name in filter(None, (self._combine_name, self._finish_name)):
            if "." in name or not source.strip():
                refuse_name(name, self.template.name)
            else:
                refuse_source(source, name, self.template.name)

    def check_ports(self, inputs: Collection[str], outputs: Collection[str], *, is_certain: bool) -> None:
        """Raise if an encoding does not exist, or the function for chunks certainly gets no value for an argument."""
        is_first = self.template.argument("tiling") is None or self.grid.record.get("step") == "chunk"
        super().check_ports(inputs, outputs, is_certain=is_certain and self.needs_function and is_first)

    @cached_property
    def _steps(self) -> _Steps:
        return _built_in(str(self.parameters["method"]))

    def run(self, context: Context) -> None:
        """Reduce a chunk, or combine results; the last step writes a chunk of the output."""
        record = self.grid.record
        if record["step"] == "chunk":
            value = self._reduced(context, tuple(record["reduced"]))
        else:
            refuse_lost(context.inputs)
            parts = [data.value("pickle") for data in context.inputs]
            combine = self._named(self._combine_name) if self.needs_function else self._steps.combine
            value = combine(parts)
        if not record["last"]:
            for output in context.outputs:
                output.put(value, "pickle")
            return
        if not self.needs_function:
            value = self._steps.finish(value)
        elif self._finish_name:
            value = self._named(self._finish_name)(value)
        self.write(context, value, self.grid.place(context))

    def _reduced(self, context: Context, axes: tuple[int, ...]) -> Any:
        dtype, port = next(iter(self.grid.outputs.values())).dtype, str(self.grid.record["input"])
        if not self.needs_function:
            chunks = [data for data in context.inputs if data.port == port]
            refuse_lost(chunks)
            return self._steps.chunk(chunks[0].value("npy"), axes, dtype)
        around = cast(Context, ChunkContext(context, {port: ()}))
        array = ArrayPort(self.grid.record["array"])
        told: dict[str, Any] = {"axis": axes, "dtype": dtype, "shape": array.tiling.shape}
        told["slices"] = array.slices(self.grid.place(context))
        bound = bind(self.signature, around, self.values, {**told, **self.defaults})
        return self.function(*bound.args, **bound.kwargs)

    @cached_property
    def signature(self) -> Signature:
        """Parameters of the function; those of a method that is built in have none."""
        if self.needs_function:
            return super().signature
        return Signature(self._steps.chunk, title=str(self.parameters["method"]))

    def _named(self, name: str) -> Callable[..., Any]:
        """Return a function of ``func_code``, or one that is installed."""
        if self._code is not None and "." not in name:
            return object_from_source(self._code, self._source, name, self.template.name)
        return import_object(name, self.template.name)


def _built_in(method: str) -> _Steps:
    import numpy as np  # noqa: PLC0415 - only applications that work with arrays pay for numpy

    def same(value: Any) -> Any:
        return value

    def stacked(function: Any) -> Callable[[Sequence[Any]], Any]:
        return lambda parts: function(np.stack(parts), axis=0)

    if method == "mean":
        return _Steps(
            chunk=lambda chunk, axes, _dtype: (
                np.sum(chunk, axis=axes, dtype=np.result_type(chunk.dtype, np.float64)),
                _count(chunk.shape, axes),
            ),
            combine=lambda parts: (sum(total for total, _ in parts), sum(count for _, count in parts)),
            finish=lambda total: total[0] / total[1],
        )
    if method in ("sum", "prod"):
        function = getattr(np, method)
        return _Steps(
            chunk=lambda chunk, axes, dtype: function(chunk, axis=axes, dtype=np.result_type(chunk.dtype, dtype)),
            combine=stacked(function),
            finish=same,
        )
    function = getattr(np, method)
    return _Steps(chunk=lambda chunk, axes, _dtype: function(chunk, axis=axes), combine=stacked(function), finish=same)


def _count(shape: Sequence[int], axes: Sequence[int]) -> int:
    count = 1
    for axis in axes:
        count *= shape[axis]
    return count
