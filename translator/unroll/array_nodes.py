"""Array nodes of a logical graph: their shape, chunks, type and store, with findings for what cannot be used."""

import json
from math import prod
from typing import Any

import msgspec
import numpy as np

from dropflow.errors import BadParameterError
from dropflow.graph.compressors import compressor_record
from dropflow.graph.tilings import Tiling
from translator.logical import LogicalNode, NodeKind
from translator.problem_codes import problem
from translator.unroll.values import Findings, pointer

__all__ = [
    "ARRAY",
    "ARRAY_APPS",
    "BLOCKWISE",
    "RECHUNK",
    "REDUCTION",
    "SOURCE",
    "ArrayNode",
    "array_app",
    "is_array",
    "read_array",
]

ARRAY = "dropflow.data.Array"
BLOCKWISE, REDUCTION = "dropflow.apps.ArrayBlockwise", "dropflow.apps.ArrayReduction"
RECHUNK, SOURCE = "dropflow.apps.ArrayRechunk", "dropflow.apps.ArraySource"
ARRAY_APPS = frozenset({BLOCKWISE, REDUCTION, RECHUNK, SOURCE})

_KINDS = "biufc"
_SHOWN = 60


class ArrayNode(msgspec.Struct, frozen=True):
    """An array of a logical graph.

    Attributes
    ----------
    node : LogicalNode
        Its node.
    tiling : Tiling
        Shape and chunks.
    dtype : str
        Type of the values, as numpy spells it.
    store : str
        Where it is stored; empty for memory.
    compressor : dict or None
        How the chunks there are compressed, as zarr's metadata have it.
    """

    node: LogicalNode
    tiling: Tiling
    dtype: str
    store: str
    compressor: dict[str, Any] | None = None

    @property
    def record(self) -> dict[str, Any]:
        """Shape, chunks and type as JSON, for the applications that use the array."""
        return {**self.tiling.record(), "dtype": self.dtype}

    @property
    def chunk_bytes(self) -> float:
        """Mean size of a chunk."""
        return prod(self.tiling.shape) * np.dtype(self.dtype).itemsize / self.tiling.number


def is_array(node: LogicalNode) -> bool:
    """Whether a node is an array."""
    return node.kind is NodeKind.DATA and str(node.value("dropclass") or "").strip() == ARRAY


def array_app(node: LogicalNode) -> str:
    """Return the class of an application that works on arrays chunk by chunk; empty for others."""
    name = str(node.value("dropclass") or "").strip()
    return name if node.kind is NodeKind.APP and name in ARRAY_APPS else ""


def read_array(node: LogicalNode, largest: int, findings: Findings) -> ArrayNode | None:
    """Return an array; None if its fields cannot be used.

    Parameters
    ----------
    node : LogicalNode
        The node.
    largest : int
        Largest number of chunks.
    findings : list of Problem
        LG130 is added for shape, chunks, type and compressor, LG120 for too many chunks.
    """
    before = len(findings)
    tiling = None
    try:
        tiling = Tiling.parse(_plain(node.value("shape")), _plain(node.value("chunks")))
    except BadParameterError as error:
        where = pointer(node, error.fields[0])
        findings.append(problem("LG130", f"array {node.name!r}: {error.text}", where=where, hint=error.hint))
    if tiling is not None and tiling.number > largest:
        text = f"array {node.name!r} has {tiling.number:,} chunks, more than {largest:,}"
        findings.append(problem("LG120", text, where=pointer(node, "chunks"), hint="choose larger chunks"))
    dtype = _dtype(node, findings)
    compressor = None
    try:
        compressor = compressor_record(node.value("compressor"))
    except BadParameterError as error:
        where = pointer(node, "compressor")
        findings.append(problem("LG130", f"array {node.name!r}: {error.text}", where=where, hint=error.hint))
    if tiling is None or len(findings) > before:
        return None
    return ArrayNode(node, tiling, dtype, str(node.value("store") or "").strip(), compressor)


def _dtype(node: LogicalNode, findings: Findings) -> str:
    given = node.value("dtype", "float64")
    try:
        found = np.dtype(given) if isinstance(given, str) else None
    except (TypeError, ValueError, SyntaxError):
        found = None
    if found is not None and found.kind in _KINDS:
        return found.name
    text = f"array {node.name!r}: the type {str(given)[:_SHOWN]!r} is not one of numbers"
    hint = "for example float32, complex64 or int16"
    findings.append(problem("LG130", text, where=pointer(node, "dtype"), hint=hint))
    return ""


def _plain(value: Any) -> Any:
    """Return the value of a field that is JSON, or JSON as text, perhaps without brackets."""
    if not isinstance(value, str):
        return value
    for text in (value, f"[{value}]"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    return value
