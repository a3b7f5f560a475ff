"""Arrays in numpy's ``.npy`` files, with simple types.

The header is read by patterns and never evaluated. See the documentation of `numpy.lib.format`.
"""

import math
import re

import numpy as np

from dropflow.errors import BadFileError
from dropflow.preview.planes import RowBytes, as_floats
from dropflow.preview.source import Source

__all__ = ["MAGIC", "NpyArray", "read_npy"]

MAGIC = b"\x93NUMPY"
_HEADER_LIMIT = 64 * 1024
_DESCR = re.compile(r"'descr':\s*'([<>|=]?([biufcSUVmMO?])(\d{0,9})[^']{0,40})'")
_FORTRAN = re.compile(r"'fortran_order':\s*(True|False)")
_SHAPE = re.compile(r"'shape':\s*\(([0-9,\sL]{0,400})\)")
_MAX_AXES = 64


class NpyArray(RowBytes, frozen=True):
    """The values of a file. `type` is that of the header, `is_transposed` whether the first axis is contiguous."""

    type: str = ""
    is_transposed: bool = False


def read_npy(source: Source) -> NpyArray:
    """Return the array of a file.

    Raises
    ------
    BadFileError
        The header is damaged, the type is not one of numbers, or the file is cut off.
    """
    start = source.start(12)
    if len(start) < 10:  # noqa: PLR2004 - magic, version and length of the header
        raise BadFileError("the header of the .npy file is cut off")
    wide = start[6] > 1
    length = int.from_bytes(start[8 : 12 if wide else 10], "little")
    at = (12 if wide else 10) + length
    if length > _HEADER_LIMIT:
        raise BadFileError(f"the header of the .npy file has {length:,} bytes, more than {_HEADER_LIMIT:,}")
    text = source.read(0, at)[12 if wide else 10 :].decode("latin-1")
    descr, fortran, shaped = _DESCR.search(text), _FORTRAN.search(text), _SHAPE.search(text)
    if fortran is None or shaped is None:
        raise BadFileError("the header of the .npy file has no 'fortran_order' and 'shape'")
    if descr is None or descr[2] not in "biufc?":
        is_pickled = descr is not None and descr[2] == "O"
        kind = "objects, which only Python's pickle reads" if is_pickled else "values that are not numbers"
        raise BadFileError(f"the .npy file has {kind}")
    try:
        dtype = np.dtype(descr[1])
        shape = tuple(int(one.strip().rstrip("L")) for one in shaped[1].split(",") if one.strip())
    except (TypeError, ValueError, SyntaxError) as error:
        raise BadFileError(f"the header of the .npy file is damaged: {error}") from error
    size = math.prod(shape) * dtype.itemsize
    if len(shape) > _MAX_AXES or at + size > source.size:
        wanted = f"{len(shape)} axes" if len(shape) > _MAX_AXES else f"{at + size:,} bytes"
        raise BadFileError(f"the header of the .npy file wants {wanted}, and the file has {source.size:,} bytes")
    is_transposed = fortran[1] == "True" and len(shape) > 1
    return NpyArray(
        read=source.read,
        at=at,
        dtype=dtype,
        shape=shape[::-1] if is_transposed else shape,
        convert=as_floats,
        type=descr[1],
        is_transposed=is_transposed,
    )
