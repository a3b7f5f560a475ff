"""Packs a head and columns of numbers for a browser: a JSON object, then the octets of each column.

The first four octets are the length of the JSON, little-endian. Its member ``columns`` has, for each column, its name,
its type (``u8``, ``u16``, ``u32`` or ``f32``), its first octet after the JSON and its length in items. Every column
begins at a multiple of four octets from the beginning, so that a browser views it without copying.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["narrowest", "pack_columns"]

_TYPES: dict[str, type[np.generic]] = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "f32": np.float32}
_NAMES = {np.dtype(kind).str: name for name, kind in _TYPES.items()}
_WORD = 4


def pack_columns(head: Mapping[str, Any], columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return the octets of a head and columns.

    Raises
    ------
    ValueError
        A column has another type than those above.
    """
    entries, pieces, at = [], [], 0
    for name, column in columns.items():
        kind = _NAMES.get(column.dtype.str)
        if kind is None:
            raise ValueError(f"column {name!r} has type {column.dtype}, which a browser does not read")
        octets = column.tobytes()
        entries.append({"name": name, "type": kind, "at": at, "length": len(column)})
        pieces += [octets, bytes(-len(octets) % _WORD)]
        at += len(octets) + len(pieces[-1])
    text = msgspec.json.encode({**head, "columns": entries})
    text += b" " * (-len(text) % _WORD)
    return b"".join((len(text).to_bytes(_WORD, "little"), text, *pieces))


def narrowest(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column of numbers that are not negative in the smallest of the unsigned types that holds them."""
    most = int(column.max(initial=0))
    return column.astype(np.uint8 if most < 1 << 8 else np.uint16 if most < 1 << 16 else np.uint32)
