"""Zarr arrays in directories: metadata once, then one file for each chunk, by any number of processes at a time.

Written are arrays of version 2: a page of JSON, and the values of each chunk, which may be compressed: with zlib, gzip
and bz2 by the standard library, otherwise by numcodecs. Read are those that `dropflow.preview.zarr_array` knows.
"""

import bz2
import contextlib
import gzip
import itertools
import json
import math
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.data.storage_errors import storage_errors
from dropflow.errors import BadFileError, MissingDependencyError
from dropflow.preview.source import DirectorySource
from dropflow.preview.zarr_array import ZarrHeader, read_chunk, read_header

__all__ = ["absent_chunks", "create_array", "encoder", "read_region", "write_chunk"]

_METADATA, _ATTRIBUTES = ".zarray", ".zattrs"
_MARKS = (_METADATA, "zarr.json", ".zgroup")
_MARK = "dropflow_session"
_PART = ".part-"
_MARGIN = 1 << 20
"""Bytes by which a compressed chunk may be larger than its values."""


Compressor = Mapping[str, Any] | None
"""As the metadata have it (`dropflow.graph.compressors`)."""


def create_array(
    path: Path,
    shape: Sequence[int],
    chunks: Sequence[int],
    dtype: str,
    session: str,
    *,
    compressor: Compressor = None,
) -> None:
    """Write the metadata of an array, in a new directory or in place of another zarr array.

    An array that the same session has begun there stays as it is, so that no chunk is lost if this is done again. Where
    several sessions may write, the array has an attribute that tells which one did.

    Parameters
    ----------
    path : Path
        The directory.
    shape, chunks : sequence of int
        Of the array, and of each chunk.
    dtype : str
        Type of the values, as numpy spells it.
    session : str
        Session id; empty if only one session writes there.
    compressor : mapping, optional
        Of the chunks.

    Raises
    ------
    BadFileError
        Something else than a zarr array is there.
    MissingDependencyError
        The compressor is not installed.
    StorageError
        It cannot be written.
    """
    encoder(compressor)
    metadata = {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(chunks),
        "dtype": _little(dtype).str,
        "compressor": None if compressor is None else dict(compressor),
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
    with storage_errors("make the array", path):
        if os.path.lexists(path):
            if not path.is_dir() or not _is_replaceable(path):
                raise BadFileError(
                    f"{path} is not a zarr array, and is not replaced by one", hint="choose another store"
                )
            if (not session or _json(path / _ATTRIBUTES) == {_MARK: session}) and _json(path / _METADATA) == metadata:
                return
            shutil.rmtree(path)
        path.mkdir(parents=True)
        if session:
            _replace(path / _ATTRIBUTES, json.dumps({_MARK: session}).encode())
        _replace(path / _METADATA, json.dumps(metadata, indent=1).encode())


def encoder(compressor: Compressor) -> Callable[[memoryview], bytes | memoryview]:
    """Return the function that compresses the bytes of a chunk.

    Raises
    ------
    MissingDependencyError
        The compressor is not installed.
    """
    settings = dict(compressor or {"id": ""})
    name = settings["id"]
    if not name:
        return lambda data: data
    if name == "zlib":
        return lambda data: zlib.compress(data, settings["level"])
    if name == "gzip":
        return lambda data: gzip.compress(data, settings["level"], mtime=0)
    if name == "bz2":
        return lambda data: bz2.compress(data, settings["level"])
    try:
        module = import_module("numcodecs")
    except ImportError as error:
        raise MissingDependencyError(
            f"the compressor {name} of a store needs numcodecs on the node that writes it: {error}",
            hint="pip install 'dropflow[zarr]', or choose zlib, gzip or bz2",
        ) from error
    codec = module.get_codec(settings)
    return lambda data: bytes(codec.encode(data))


def write_chunk(
    path: Path,
    index: Sequence[int],
    values: npt.NDArray[Any],
    chunks: Sequence[int],
    dtype: str,
    *,
    compressor: Compressor = None,
) -> None:
    """Write a chunk: whole or not at all, also if several processes do so.

    Parameters
    ----------
    path : Path
        The directory of the array.
    index : sequence of int
        Index of the chunk along each axis.
    values : array
        Its values; a chunk at the end of an axis may be smaller.
    chunks : sequence of int
        Shape of a whole chunk.
    dtype : str
        Type of the values.
    compressor : mapping, optional
        That of the array.

    Raises
    ------
    MissingDependencyError
        The compressor is not installed.
    StorageError
        It cannot be written.
    """
    compress = encoder(compressor)
    if values.shape != tuple(chunks):
        whole = np.zeros(tuple(chunks), dtype=values.dtype)
        whole[tuple(slice(0, size) for size in values.shape)] = values
        values = whole
    body = np.ascontiguousarray(values, dtype=_little(dtype)).reshape(-1).view(np.uint8)
    with storage_errors("write a chunk of", path):
        _replace(path / _name(index), compress(body.data))


def absent_chunks(path: Path, counts: Sequence[int]) -> list[str]:
    """Return the names of the chunks that an array does not have, and remove what interrupted writers left.

    Raises
    ------
    StorageError
        The directory cannot be read.
    """
    with storage_errors("look for the chunks of", path):
        found = set(os.listdir(path))  # noqa: PTH208 - names only
    for name in found:
        if name.startswith(_PART):
            with contextlib.suppress(OSError):
                (path / name).unlink()
    return [name for index in itertools.product(*map(range, counts)) if (name := _name(index)) not in found]


def read_region(path: Path, region: Sequence[slice]) -> npt.NDArray[Any]:
    """Return the values of a part of an array.

    Parameters
    ----------
    path : Path
        Directory of a zarr array.
    region : sequence of slice
        The part, with a beginning and an end along each axis.

    Raises
    ------
    BadFileError
        There is no array, it has other axes or is too small, or a chunk cannot be read.
    """
    if not path.is_dir():
        raise BadFileError(f"there is no zarr array at {path}: the directory does not exist")
    source = DirectorySource(path)
    header = read_header(source)
    if header is None:
        raise BadFileError(
            f"there is no zarr array at {path}", hint="a store is the directory of one array, not of a group"
        )
    _refuse_outside(path, header, region)
    values = np.empty([one.stop - one.start for one in region], dtype=header.dtype.newbyteorder("="))
    limit = math.prod(header.chunks) * header.dtype.itemsize + _MARGIN
    steps = [range(one.start // size, -(-one.stop // size)) for one, size in zip(region, header.chunks, strict=True)]
    for index in itertools.product(*steps):
        inside, place = [], []
        for position, size, one in zip(index, header.chunks, region, strict=True):
            start, stop = max(position * size, one.start), min((position + 1) * size, one.stop)
            inside.append(slice(start - position * size, stop - position * size))
            place.append(slice(start - one.start, stop - one.start))
        values[tuple(place)] = read_chunk(source, header, index, limit=limit)[tuple(inside)]
    return values


def _refuse_outside(path: Path, header: ZarrHeader, region: Sequence[slice]) -> None:
    if len(header.shape) == len(region) and all(
        one.stop <= length for one, length in zip(region, header.shape, strict=True)
    ):
        return
    ends = [one.stop for one in region]
    raise BadFileError(f"the array at {path} has the shape {list(header.shape)}, and values up to {ends} are needed")


def _is_replaceable(path: Path) -> bool:
    names = os.listdir(path)  # noqa: PTH208 - names only
    return not names or any(name in names for name in _MARKS)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _name(index: Sequence[int]) -> str:
    return ".".join(map(str, index)) or "0"


def _little(dtype: str) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("<")


def _replace(path: Path, body: bytes | memoryview) -> None:
    part = path.with_name(f"{_PART}{path.name}-{secrets.token_hex(4)}")
    try:
        part.write_bytes(body)
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
