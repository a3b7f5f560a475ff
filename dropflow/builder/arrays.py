"""Arrays of a graph and applications on them; `dropflow.builder.graph.Graph` has these methods."""

import json
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dropflow.apps.registry import app_class
from dropflow.builder.arguments import connect_inputs
from dropflow.builder.blocks import GraphBlocks
from dropflow.builder.draft import DraftLink, DraftNode
from dropflow.builder.functions import as_app
from dropflow.builder.handles import Data, Formula
from dropflow.builder.source import code_of
from dropflow.data.array import ARRAY
from dropflow.errors import UsageError
from dropflow.graph.templates import Kind, Template

__all__ = ["GraphArrays"]

_RESULT = "result"
_METHODS = ("sum", "prod", "min", "max", "mean", "any", "all")


class GraphArrays(GraphBlocks):
    """A graph that is being written, with arrays in chunks (``docs/howto/arrays-in-graphs.md``)."""

    def array(
        self,
        shape: Sequence[int],
        chunks: Any = -1,
        *,
        dtype: str = "float64",
        store: str | Formula = "",
        compressor: str | Mapping[str, Any] = "",
        name: str = "Array",
    ) -> Data:
        """Add an array. One that no application makes is read from its store.

        Parameters
        ----------
        shape : sequence of int
            Lengths of the axes.
        chunks : int or list
            Lengths of the chunks: one number, one for each axis, or a list of lengths for an axis; -1 for one chunk.
        dtype : str
            Type of the values, as numpy spells it.
        store : str
            Directory of a zarr array, below the files of the session unless it is absolute.
        compressor : str or mapping
            How chunks there are compressed: ``zlib``, ``gzip``, ``bz2``, or with numcodecs ``blosc``, ``zstd`` or
            ``lz4``; or a mapping as zarr has it, with the name under ``id`` and settings. Empty for no compression.
        name : str
            Name of the node.
        """
        node = self._node(name, ARRAY.category, "data")
        node.set("dropclass", ARRAY.dropclass)
        node.set("data_volume", 0.0, kind="ConstraintParameter")
        node.set("shape", list(shape), "Json")
        node.set("chunks", chunks, "Json")
        node.set("dtype", dtype)
        node.set("store", str(store), "String")
        if compressor:
            text = compressor if isinstance(compressor, str) else json.dumps(dict(compressor))
            node.set("compressor", text, "String")
        node.encoding = "path" if store else "npy"  # applications on arrays read chunks in any case
        return Data(self, node)

    def source(self, into: Data, function: Callable[..., Any], **values: Any) -> Data:
        """Add an application that makes an array: a function of `slices`, and perhaps of `shape` and `dtype`.

        Parameters
        ----------
        into : Data
            The array.
        function : callable
            Makes a chunk.
        **values
            Its other arguments.

        Returns
        -------
        Data
            The array.
        """
        return self._apply("ArraySource", into, [function], values, name="", labels="")

    def blockwise(self, labels: str, into: Data, function: Callable[..., Any], **inputs: Any) -> Data:
        """Add a function of chunks with the same indices.

        Parameters
        ----------
        labels : str
            Labels of the axes: ``vis: tcx, gains: tx -> tcx``, with the names of the arguments before the colons.
        into : Data
            The array that it makes.
        function : callable
            Makes a chunk of it.
        **inputs
            Its arguments: arrays, other data, and values.

        Returns
        -------
        Data
            The array.
        """
        return self._apply("ArrayBlockwise", into, [function], inputs, name="", labels=labels)

    def reduction(
        self,
        labels: str,
        into: Data,
        method: str | Callable[..., Any] = "sum",
        *,
        combine: Callable[[list[Any]], Any] | None = None,
        finish: Callable[[Any], Any] | None = None,
        split: int = 8,
        **inputs: Any,
    ) -> Data:
        """Add a reduction of an array, chunk by chunk and then in a tree.

        Parameters
        ----------
        labels : str
            Labels of the axes: ``x: tc -> c``.
        into : Data
            The array that it makes.
        method : str or callable
            ``sum``, ``prod``, ``min``, ``max``, ``mean``, ``any``, ``all``, or a function of a chunk.
        combine, finish : callable, optional
            With a function: makes one result of a list of results, and a chunk of `into` of the last result.
        split : int
            How many results are combined at a time, at most.
        **inputs
            The array by the name in the labels, and other arguments of the function.

        Returns
        -------
        Data
            The array.

        Raises
        ------
        UsageError
            There is no such method, or a function without `combine`.
        """
        if isinstance(method, str):
            if method not in _METHODS or combine is not None or finish is not None:
                raise UsageError(
                    f"the method {method!r} of a reduction is not one of {', '.join(_METHODS)}, or has functions",
                    where=self.name,
                    hint="give a function of a chunk, and combine=",
                )
            return self._apply(
                "ArrayReduction", into, [], inputs, name=method, labels=labels, method=method, split=split
            )
        if combine is None:
            raise UsageError(
                "a reduction with a function needs another one that combines its results",
                where=self.name,
                hint="give combine=, a function of a list of results",
            )
        named = {"combine_name": combine.__name__} | ({} if finish is None else {"finish_name": finish.__name__})
        functions = [method, combine, *([] if finish is None else [finish])]
        settings = {"labels": labels, "method": "function", "split": split, **named}
        return self._apply("ArrayReduction", into, functions, inputs, name="", **settings)

    def rechunk(self, array: Data, into: Data) -> Data:
        """Add an application that gives an array the chunks of another one, and return that."""
        return self._apply("ArrayRechunk", into, [], {"array": array}, name="Rechunk")

    def _apply(
        self,
        kind: str,
        into: Data,
        functions: Sequence[Callable[..., Any]],
        inputs: dict[str, Any],
        *,
        name: str,
        **settings: Any,
    ) -> Data:
        dropclass = f"dropflow.apps.{kind}"
        category = app_class(Template(key="", name=kind, kind=Kind.APP, component=dropclass)).component.category
        with self.drawing.undone_on_error():
            node = self._node(name or as_app(functions[0]).title, category, "app")
            if functions:
                self._fill_function(node, as_app(functions[0]))
                node.set("func_code", code_of(*(_plain(one, self.name) for one in functions)), "Python")
            node.set("dropclass", dropclass)
            for field, value in settings.items():
                if value not in ("", None):
                    node.set(field, value)
            connect_inputs(self, node, inputs)
            self._write(node, into)
        return into

    def _write(self, node: DraftNode, into: Data) -> None:
        """Add the edge from an application to the array that it makes."""
        self.refuse_unreadable(into, node)
        node.port(_RESULT, "OutputPort")
        into.node.port("io", "InputOutput")
        self.drawing.links.append(DraftLink(node, _RESULT, into.node, "io"))


def _plain(function: Callable[..., Any], where: str) -> types.FunctionType:
    plain = as_app(function).function
    if not isinstance(plain, types.FunctionType):
        raise UsageError(f"{plain!r} has no source", where=where, hint="write a function that calls it")
    return plain
