"""Changes of the chunks of arrays."""

from functools import cached_property
from typing import Any

from dropflow.apps.api import App, Context
from dropflow.apps.array_chunks import ArrayPort, ChunkGrid, chunk_of, joined, refuse_lost
from dropflow.apps.builtin.array_function import CHUNK_PORTS
from dropflow.engine.component import Component
from dropflow.errors import AppError
from dropflow.graph.templates import Kind

__all__ = ["ArrayRechunk"]


class ArrayRechunk(App):
    """Gives an array other chunks."""

    component = Component(
        name="ArrayRechunk",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dropflow.apps.ArrayRechunk",
        description="Gives an array other chunks: those of the array at its output. Chunks are cut or joined, or cut "
        "into pieces which are then joined.",
        ports=CHUNK_PORTS,
    )

    @cached_property
    def _grid(self) -> ChunkGrid:
        return ChunkGrid(self.template)

    @cached_property
    def _ends(self) -> tuple[ArrayPort, ArrayPort]:
        record = self._grid.record
        after = record["to"]
        return ArrayPort({**record["from"], "dtype": after["dtype"]}), ArrayPort(after)

    def run(self, context: Context) -> None:
        """Cut one chunk, or join the parts of one."""
        inputs = [data for data in context.inputs if data.port != "" or data.ok]
        refuse_lost(inputs)
        if self._grid.record["step"] == "cut":
            self._cut(context, inputs[0].value("npy"))
        else:
            self._join(context, [data.value("npy") for data in inputs])

    def _cut(self, context: Context, chunk: Any) -> None:
        before, after = self._ends
        place = self._grid.place(context)
        whole = before.slices(place)
        parts = _inside(whole, after)
        ports: dict[str, int] = {}
        for output in context.outputs:
            number = ports.get(output.port, 0)
            ports[output.port] = number + 1
            if number >= len(parts):
                raise AppError(f"the output {output.oid} is not a piece of the chunk", hint="translate the graph again")
            region = tuple(
                slice(part.start - one.start, part.stop - one.start)
                for part, one in zip(parts[number], whole, strict=True)
            )
            shape = [one.stop - one.start for one in region]
            output.put(chunk_of(chunk[region], shape, after.dtype, "the chunk"), "npy")

    def _join(self, context: Context, parts: list[Any]) -> None:
        before, after = self._ends
        whole = after.slices(self._grid.place(context))
        counts = [len(along) for along in _ranges(whole, before)]
        shape = [one.stop - one.start for one in whole]
        value = chunk_of(joined(parts, counts), shape, after.dtype, "the joined chunk")
        for output in context.outputs:
            output.put(value, "npy")


def _ranges(whole: tuple[slice, ...], port: ArrayPort) -> list[range]:
    """Return which chunks of an array make up a part of it, along each axis."""
    found = []
    for axis, one in enumerate(whole):
        bounds = port.tiling.bounds(axis)
        start, stop = bounds.searchsorted([one.start, one.stop]).tolist()
        found.append(range(start, stop))
    return found


def _inside(whole: tuple[slice, ...], port: ArrayPort) -> list[tuple[slice, ...]]:
    """Return the places of the chunks of an array that make up a part of it, in row-major order."""
    import itertools  # noqa: PLC0415

    return [port.tiling.slices(index) for index in itertools.product(*_ranges(whole, port))]
