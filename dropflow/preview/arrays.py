"""Arrays in numpy's ``.npy`` files and in zarr directories.

The header is read by patterns and never evaluated. See the documentation of `numpy.lib.format`.
"""

import bz2
import lzma
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import BadFileError, install_hint
from dropflow.graph.nesting import too_deep
from dropflow.preview.image import Floats, RowBytes, as_floats
from dropflow.preview.source import DirectorySource, Source

__all__ = [
    "MAGIC",
    "NpyArray",
    "ZarrArray",
    "ZarrHeader",
    "read_chunk",
    "read_header",
    "read_npy",
]


MAGIC = b"\x93NUMPY"
_HEADER_LIMIT = 64 * 1024
_DESCR = re.compile(r"'descr':\s*'([<>|=]?([biufcSUVmMO?])(\d{0,9})[^']{0,40})'")
_FORTRAN = re.compile(r"'fortran_order':\s*(True|False)")
_SHAPE = re.compile(r"'shape':\s*\(([0-9,\sL]{0,400})\)")
_NPY_MAX_AXES = 64


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
    if len(shape) > _NPY_MAX_AXES or at + size > source.size:
        wanted = f"{len(shape)} axes" if len(shape) > _NPY_MAX_AXES else f"{at + size:,} bytes"
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


# Zarr arrays in directories, of versions 2 and 3: chunks in files, perhaps compressed.
#
# Chunks compressed with gzip, zlib, bz2 or lzma are read by the standard library, others by numcodecs
# if it is installed.

_METADATA_LIMIT = 1 << 20
_CHUNK_LIMIT = 64 << 20
_PLANE_LIMIT = 256 << 20
_MOST_CHUNKS = 1 << 14
"""Files that are looked for, for one plane."""
_DEPTH = 32
_SIMPLE = re.compile(r"[<>|][biufc]\d{1,2}")
_V3_TYPES = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128)")
_ZARR_ARRAY_MAX_AXES = 32
_BLOSC_HEADER, _BLOSC_COPIED = 16, 2
_DAMAGED = (msgspec.DecodeError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class ZarrHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of an array.

    Attributes
    ----------
    folder : str
        Where it is below the directory of the content; empty or with a slash at its end.
    shape, chunks : tuple of int
        Of the array, and of each chunk.
    dtype : numpy.dtype
        Of the values.
    codecs : tuple of str
        Compressors, in the order in which chunks are read.
    order : str
        ``C`` or ``F``: the order of values in a chunk.
    fill : float
        Value of chunks that do not exist.
    version : int
        Of the format.
    separator : str
        Between indices in the name of a chunk.
    prefix : str
        Of the names of chunks.
    """

    folder: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[np.generic]
    codecs: tuple[str, ...]
    order: str
    fill: float
    version: int
    separator: str
    prefix: str


def read_header(source: DirectorySource, folder: str = "") -> ZarrHeader | None:
    """Return the metadata of the array in a folder of a directory; None if there is none.

    Raises
    ------
    BadFileError
        The metadata are damaged, or use what is not supported.
    """
    for name, parse in (("zarr.json", _version_3), (".zarray", _version_2)):
        text = source.read(f"{folder}{name}", _METADATA_LIMIT)
        if text is None:
            continue
        try:
            if too_deep(text, _DEPTH):
                raise BadFileError(f"{folder}{name} is nested more than {_DEPTH} levels deep")
            found = msgspec.json.decode(text)
            header = parse(folder, found) if isinstance(found, dict) else None
        except _DAMAGED as error:
            raise BadFileError(f"{folder}{name} is damaged: {type(error).__name__}: {error}") from error
        if header is not None:
            return header
    return None


class ZarrArray:
    """The values of an array, read by rows of chunks. Rows must be asked for in order: the last chunks are kept.

    Parameters
    ----------
    source : DirectorySource
        The directory.
    header : ZarrHeader
        What is in it.
    """

    def __init__(self, source: DirectorySource, header: ZarrHeader) -> None:
        self.shape = header.shape
        self.is_windowed = False
        self._source, self._header = source, header
        self._rows: tuple[tuple[int, ...], Floats] | None = None
        bytes_each = math.prod(header.chunks) * header.dtype.itemsize
        if bytes_each > _CHUNK_LIMIT:
            raise BadFileError(f"its chunks have {bytes_each:,} bytes each; at most {_CHUNK_LIMIT:,} are read")
        # Chunks are read whole, so that a plane may cost more than its values: show a window of it then.
        most = min(max(_PLANE_LIMIT // max(bytes_each, 1), 1), _MOST_CHUNKS)
        lengths, chunks = list(self.shape[-2:]), header.chunks[-2:]
        for axis in range(len(lengths)):
            fits = most if axis == len(lengths) - 1 else max(int(most**0.5), 1)
            if -(-lengths[axis] // chunks[axis]) > fits:
                lengths[axis], self.is_windowed = fits * chunks[axis], True
            most //= max(-(-lengths[axis] // chunks[axis]), 1)
            most = max(most, 1)
        self.shape = (*self.shape[:-2], *lengths)

    def block(self, plane: int, row: int, column: int, columns: int) -> Floats:
        """Return values of one row of a plane."""
        if not self.shape:
            return as_floats(self._chunk(()).reshape(1))
        leading = np.unravel_index(plane, self.shape[:-2]) if len(self.shape) > 2 else ()  # noqa: PLR2004
        outer = (*(int(one) for one in leading), row) if len(self.shape) > 1 else ()
        chunks = self._header.chunks
        where = tuple(index // length for index, length in zip(outer, chunks, strict=False))
        if self._rows is None or self._rows[0] != (*where, *outer[:-1]):
            self._rows = ((*where, *outer[:-1]), self._load(where, outer))
        inside = row % chunks[-2] if len(self.shape) > 1 else 0
        return self._rows[1][inside, column : column + columns]

    def _load(self, where: tuple[int, ...], outer: tuple[int, ...]) -> Floats:
        """Return a row of chunks of one plane: as many rows as a chunk has, and all columns."""
        chunks, width = self._header.chunks, self.shape[-1]
        pieces = []
        for last in range(-(-width // chunks[-1])):
            values = self._chunk((*where, last))
            for index, length in zip(outer[:-1], chunks, strict=False):
                values = values[index % length]
            pieces.append(as_floats(values.reshape(-1, chunks[-1])))
        return np.concatenate(pieces, axis=1)[:, :width]

    def _chunk(self, where: tuple[int, ...]) -> npt.NDArray[np.generic]:
        return read_chunk(self._source, self._header, where)


def read_chunk(
    source: DirectorySource, header: ZarrHeader, where: Sequence[int], *, limit: int = _CHUNK_LIMIT
) -> npt.NDArray[np.generic]:
    """Return the values of a chunk, also those beyond the end of the array.

    Parameters
    ----------
    source : DirectorySource
        The directory of the array.
    header : ZarrHeader
        Its metadata.
    where : sequence of int
        Index of the chunk along each axis.
    limit : int
        Bytes of the largest file that is read.

    Raises
    ------
    BadFileError
        The chunk is damaged, too large, or compressed in a way that is not supported.
    """
    name = header.separator.join(map(str, where)) if where or header.version > 2 else "0"  # noqa: PLR2004
    name = (header.prefix + (header.separator if header.prefix and name else "") + name) or "c"
    data = source.read(header.folder + name, limit)
    size = math.prod(header.chunks) * header.dtype.itemsize
    if data is None:
        return np.full(header.chunks, header.fill).astype(np.float64)
    for codec in header.codecs:
        data = _decompressed(codec, data, size)
    if len(data) != size:
        raise BadFileError(f"chunk {name} has {len(data):,} bytes where {size:,} are needed")
    return np.frombuffer(data, header.dtype).reshape(header.chunks, order="F" if header.order == "F" else "C")


def _decompressed(codec: str, data: bytes, size: int) -> bytes:
    """Return what is compressed in `data`, and refuse more than `size` bytes before they are written."""
    try:
        if codec in ("zlib", "gzip"):
            return zlib.decompressobj(wbits=47).decompress(data, size + 1)
        if codec == "bz2":
            return bz2.BZ2Decompressor().decompress(data, size + 1)
        if codec == "lzma":
            return lzma.LZMADecompressor(memlimit=_CHUNK_LIMIT * 4).decompress(data, size + 1)
        if _announced(codec, data) != size:
            raise BadFileError(f"a chunk compressed with {codec} does not announce its {size:,} bytes")
        if codec == "blosc":
            _check_blosc(data)
        found = np.zeros(size, np.uint8)  # what the codec does not write is 0, and not old memory
        _numcodecs(codec)(data, found)
        return found.tobytes()
    except (OSError, EOFError, zlib.error, lzma.LZMAError, RuntimeError, ValueError) as error:
        raise BadFileError(f"a chunk cannot be decompressed with {codec}: {error}") from error


def _check_blosc(data: bytes) -> None:
    """Refuse a chunk whose header has other sizes than its content: the library believes the header.

    See README_CHUNK_FORMAT.rst of c-blosc: 4 bytes, the third with flags; sizes of the values, of a block and of the
    chunk; and unless the values are only copied, the offsets of all blocks.
    """
    size, block, whole = (int.from_bytes(data[at : at + 4], "little") for at in (4, 8, 12))
    if whole != len(data):
        raise BadFileError(f"a chunk has {len(data):,} bytes, and should have {whole:,}")
    blocks = -(-size // block) if block else 0
    offsets = _BLOSC_HEADER + 4 * blocks
    if data[2] & _BLOSC_COPIED:
        is_right = whole == _BLOSC_HEADER + size
    else:
        starts = np.frombuffer(data[_BLOSC_HEADER:offsets] if offsets <= whole else b"", "<u4")
        is_right = len(starts) == blocks and bool((starts >= offsets).all() and (starts < whole).all())
    if size and not (block and is_right):
        raise BadFileError("the sizes in the header of a chunk compressed with blosc do not fit together")


def _announced(codec: str, data: bytes) -> int:
    """Return how many bytes a compressed chunk says that it has; -1 if it does not."""
    if codec == "blosc" and len(data) >= _BLOSC_HEADER:
        return int.from_bytes(data[4:8], "little")
    if codec == "lz4":
        return int.from_bytes(data[:4], "little")
    if codec == "zstd" and data[:4] == _ZSTD_MAGIC:  # RFC 8878, section 3.1.1.1
        flags = data[4]
        single, code = flags >> 5 & 1, flags >> 6
        length = (1 if single else 0, 2, 4, 8)[code]
        at = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
        return int.from_bytes(data[at : at + length], "little") + (256 if code == 1 else 0) if length else -1
    return -1


def _numcodecs(codec: str) -> Any:
    try:
        module = import_module({"blosc": "numcodecs.blosc", "zstd": "numcodecs.zstd", "lz4": "numcodecs.lz4"}[codec])
    except ImportError as error:
        raise BadFileError(
            f"its chunks are compressed with {codec}, which needs numcodecs on the node that holds the content",
            hint=install_hint("zarr"),
        ) from error
    return module.decompress


def _version_2(folder: str, found: Mapping[str, Any]) -> ZarrHeader:
    if found.get("filters"):
        raise BadFileError("it has filters, which are not supported")
    kind = found["dtype"]
    if not isinstance(kind, str) or not _SIMPLE.fullmatch(kind):
        raise BadFileError(f"its values are of the type {str(kind)[:80]!r}, which is not one of numbers")
    compressor = found.get("compressor")
    return ZarrHeader(
        folder=folder,
        codecs=(_known_codec(compressor["id"]),) if compressor else (),
        order=found.get("order", "C"),
        version=2,
        separator=_separator(found.get("dimension_separator", ".")),
        prefix="",
        **_extent(found["shape"], found["chunks"], np.dtype(kind), found.get("fill_value")),
    )


def _version_3(folder: str, found: Mapping[str, Any]) -> ZarrHeader | None:
    if found.get("node_type") != "array":
        return None
    kind = found["data_type"]
    if not isinstance(kind, str) or not _V3_TYPES.fullmatch(kind):
        raise BadFileError(f"its values are of the type {str(kind)[:80]!r}, which is not one of numbers")
    dtype, codecs = np.dtype(kind), []
    for codec in found["codecs"]:
        if codec["name"] == "bytes":
            is_big = (codec.get("configuration") or {}).get("endian") == "big"
            dtype = dtype.newbyteorder(">" if is_big else "<")
        elif codec["name"] != "crc32c":
            codecs.append(_known_codec(codec["name"]))
    if any(codec["name"] == "crc32c" for codec in found["codecs"]):
        raise BadFileError("its chunks have the checksum crc32c, which is not supported")
    keys = found.get("chunk_key_encoding") or {"name": "default"}
    is_default = keys["name"] == "default"
    separator = (keys.get("configuration") or {}).get("separator", "/" if is_default else ".")
    return ZarrHeader(
        folder=folder,
        codecs=tuple(reversed(codecs)),
        order="C",
        version=3 if is_default else 2,
        separator=_separator(separator),
        prefix="c" if is_default else "",
        **_extent(found["shape"], found["chunk_grid"]["configuration"]["chunk_shape"], dtype, found.get("fill_value")),
    )


def _separator(given: object) -> str:
    if given not in ("/", "."):
        raise BadFileError("the names of its chunks have another separator than '/' and '.'")
    return str(given)


def _known_codec(name: object) -> str:
    if name not in ("gzip", "zlib", "bz2", "lzma", "blosc", "zstd", "lz4"):
        raise BadFileError(f"its chunks are stored with {str(name)[:80]!r}, which is not supported")
    return str(name)


def _extent(shape: Sequence[int], chunks: Sequence[int], dtype: np.dtype[np.generic], fill: object) -> dict[str, Any]:
    lengths, each = tuple(shape), tuple(chunks)
    is_right = len(lengths) == len(each) <= _ZARR_ARRAY_MAX_AXES and all(
        type(one) is int and 0 <= one <= 2**53 for one in (*lengths, *each)
    )
    if not is_right or not all(each):
        raise BadFileError(f"its shape {str(shape)[:80]} and its chunks {str(chunks)[:80]} do not fit")
    value = float(fill) if isinstance(fill, (int, float)) else math.nan if fill == "NaN" else 0.0
    return {"shape": lengths, "chunks": each, "dtype": dtype, "fill": value}
