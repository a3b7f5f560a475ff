"""Values as contents of drops, so that large arrays are not copied when they are read.

=====================  ====================================================================================
large plain array      npy, which other applications, previews and users read, too
with large buffers     a pickle (protocol 5), the buffers after it on multiples of 64 bytes, and a trailer with their
                       places
array that repeats     a pickle of the elements without their repetition
everything else        a pickle
=====================  ====================================================================================
"""

import io
import mmap
import os
import pickle
import struct
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, BinaryIO

import cloudpickle
import numpy as np
from numpy.lib import format as npy

from dropflow.files import PICKLE_PROTOCOL

_LARGE = 4096
"""Bytes from which a buffer is left outside of the pickle. Below, the header of npy costs more than the copy."""
_ALIGNMENT_BYTES = 64
"""Bytes: the position of each buffer is a multiple of it, so that arrays are aligned."""
_NPY_KINDS = frozenset("biufcmM")
_TRAILER = b"\0DFVAL1\0"
"""Ends a content with buffers. A pickle ends with a dot."""
_NUMBER = struct.Struct("<Q")
_NPY_START = b"\x93NUMPY"
_NPY_LENGTH = struct.Struct("<H")
"""Length of the rest of the header, in version 1.0, after the start and two bytes of the version."""
_HEADERS = 256
"""Headers that are kept. To write or parse one takes ten times as long as to copy an array of 16 KB."""


def encode_value(value: Any) -> list[bytes | memoryview]:
    """Return a value as bytes, in pieces; large buffers are not copied.

    Raises
    ------
    Exception
        It cannot be pickled.
    """
    if type(value) is np.ndarray and value.nbytes >= _LARGE and value.dtype.kind in _NPY_KINDS:
        if 0 not in value.strides:
            return _encode_array(value)
        value = _RepeatedArray(value)
    buffers: list[memoryview] = []

    def is_inside(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < _LARGE:
            return True
        buffers.append(view)
        return False

    try:
        head = pickle.dumps(value, protocol=PICKLE_PROTOCOL, buffer_callback=is_inside)
    except Exception:  # noqa: BLE001 - functions and classes that are not in a module; pickles raise nearly anything
        buffers.clear()
        stream = io.BytesIO()
        FilePickler(stream, protocol=PICKLE_PROTOCOL, buffer_callback=is_inside).dump(value)
        head = stream.getvalue()
    if not buffers:
        return [head]
    pieces: list[bytes | memoryview] = [head]
    end, places = len(head), []
    for buffer in buffers:
        gap = -end % _ALIGNMENT_BYTES
        places += [end + gap, buffer.nbytes]
        pieces += [bytes(gap), buffer]
        end += gap + buffer.nbytes
    pieces.append(struct.pack(f"<{len(places)}Q", *places) + _NUMBER.pack(len(buffers)) + _TRAILER)
    return pieces


class FilePickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no annotations
    """Pickles also functions and classes that are in no module, and open files of HDF5 and netCDF as their paths.

    Such a file, or an array or group of it, is opened again by the process that loads the pickle.
    """

    def reducer_override(self, item: Any) -> Any:
        """Return how an object is made again, or that its own way is used."""
        package = type(item).__module__.partition(".")[0]
        place = _place_in_file(package, item) if package in ("h5py", "netCDF4") else None
        return super().reducer_override(item) if place is None else (_opened_again, (package, *place))


def _place_in_file(package: str, item: Any) -> tuple[str, str] | None:
    """Return the file of an object of h5py or netCDF4, and its name there; None if it is in no file.

    Raises
    ------
    TypeError
        The file is open for writing.
    """
    if package == "netCDF4":
        if hasattr(item, "group"):  # a variable
            group = item.group()
            return os.path.abspath(group.filepath()), f"{group.path}/{item.name}"  # noqa: PTH100 - a string
        return (os.path.abspath(item.filepath()), item.path) if hasattr(item, "filepath") else None  # noqa: PTH100
    if not hasattr(item, "file"):
        return None
    if item.file.mode != "r":
        raise TypeError(f"{item.file.filename} is open for writing, and other processes could only read it")
    return os.path.abspath(item.file.filename), item.name  # noqa: PTH100 - a string


def _opened_again(package: str, path: str, name: str) -> Any:
    module = import_module(package)
    file = module.File(path, "r") if package == "h5py" else module.Dataset(path, "r")
    return file if name == "/" else file[name]


class _RepeatedArray:
    """An array that repeats its elements without a copy, such as a chunk of `dask.array.ones`; unpickled as such."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        once = array[tuple(slice(None) if stride else slice(1) for stride in array.strides)]
        self._arguments = np.ascontiguousarray(once), array.shape

    def __reduce__(self) -> tuple[Any, ...]:
        return np.broadcast_to, self._arguments


def _encode_array(array: np.ndarray[Any, Any]) -> list[bytes | memoryview]:
    is_fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    plain = array.T if is_fortran else np.ascontiguousarray(array)
    # Dates and times have no buffers of their own type.
    return [_npy_header(array.dtype, array.shape, is_fortran), plain.reshape(-1).view(np.uint8).data]


@lru_cache(_HEADERS)
def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...], is_fortran: bool) -> bytes:  # noqa: FBT001 - for the cache
    head = io.BytesIO()
    fields = {"descr": npy.dtype_to_descr(dtype), "fortran_order": is_fortran, "shape": shape}
    npy.write_array_header_1_0(head, fields)
    return head.getvalue()


def decode_value(content: Any) -> Any:
    """Return the value of a content; its large arrays are views of `content`, and writable if that is.

    Parameters
    ----------
    content : bytes-like
        The content, as a plain sequence of bytes.

    Raises
    ------
    Exception
        It cannot be unpickled.
    """
    view = memoryview(content)
    if bytes(view[: len(_NPY_START)]) == _NPY_START:
        return _decode_array(view)
    if bytes(view[-len(_TRAILER) :]) != _TRAILER:
        return pickle.loads(view)  # noqa: S301 - a value of a task of the same user
    end = len(view) - len(_TRAILER) - _NUMBER.size
    count = _NUMBER.unpack_from(view, end)[0]
    places: Sequence[int] = struct.unpack_from(f"<{2 * count}Q", view, end - 2 * count * _NUMBER.size)
    buffers = [view[start : start + size] for start, size in zip(places[::2], places[1::2], strict=True)]
    return pickle.loads(view[: places[0]], buffers=buffers)  # noqa: S301 - a value of a task of the same user


def read_value(stream: BinaryIO) -> Any:
    """Return the value of a content. Its large arrays can be written to, which does not change the content.

    Raises
    ------
    Exception
        It cannot be read or unpickled.
    """
    try:
        content: Any = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError):  # it is not in a file, or empty
        content = bytearray(stream.read())
    return decode_value(content)


def _decode_array(view: memoryview) -> np.ndarray[Any, Any]:
    start = len(_NPY_START) + 2
    end = start + _NPY_LENGTH.size + _NPY_LENGTH.unpack_from(view, start)[0]
    shape, is_fortran, dtype = _parsed_header(bytes(view[:end]))
    return np.ndarray(shape, dtype, buffer=view, offset=end, order="F" if is_fortran else "C")


@lru_cache(_HEADERS)
def _parsed_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    head = io.BytesIO(header)
    npy.read_magic(head)
    header_fields: tuple[tuple[int, ...], bool, np.dtype[Any]] = npy.read_array_header_1_0(head)
    return header_fields
