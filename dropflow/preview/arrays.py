"""Arrays in numpy's ``.npy`` files, read by numpy, and in directories, read by zarr."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace
from numpy.lib import format as npy_format

from dropflow.errors import BadFileError
from dropflow.graph.nesting import too_deep
from dropflow.preview.image import Bands, RowBytes, Shown, as_floats, shape_text
from dropflow.preview.source import DirectorySource, Preview, PreviewQuery, Source, SourceStream, library, reading

_METADATA_BYTES = 1 << 20
"""Bytes of the metadata of an array that are read."""
_CHUNK_BYTES = 64 << 20
"""Bytes of the largest chunk of an array that is read."""
_PLANE_BYTES = 256 << 20
"""Bytes of all chunks that are read for one plane."""
_MOST_CHUNKS = 1 << 12
"""Files that are looked for, for one plane."""
_METADATA = ("zarr.json", ".zarray")
_CODECS = {
    "bytes", "crc32c", "transpose", "sharding_indexed", "gzip", "zlib", "bz2", "lzma", "blosc", "zstd", "lz4",
    "delta", "shuffle", "fixedscaleoffset", "bitround",
}  # fmt: skip
"""Codecs that chunks may be stored with: zarr also has codecs that unpickle."""


def show_npy(source: Source, query: PreviewQuery, base: Preview) -> Shown:
    """Return the array of a file of numpy, whose values numpy would perhaps unpickle, or map into memory."""
    stream = SourceStream(source)
    with reading("the header of the .npy file"):
        version = npy_format.read_magic(stream)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, is_transposed, dtype = read(stream)
    if dtype.hasobject or dtype.kind not in "biufc":
        kind = "objects, which only Python's pickle reads" if dtype.hasobject else "values that are not numbers"
        raise BadFileError(f"the .npy file has {kind}")
    at = stream.tell()
    end = at + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or end > source.size:
        raise BadFileError(f"the header of the .npy file wants {end:,} bytes, and the file has {source.size:,}")
    facts = (("Shape", shape_text(shape)), ("Type", f"{dtype.name}, {dtype.str}"))
    is_transposed &= len(shape) > 1
    lying = shape[::-1] if is_transposed else shape
    convert = partial(as_floats, number=query.number)
    array = RowBytes(read=source.read, at=at, dtype=dtype, shape=lying, convert=convert)
    preview = replace(base, facts=facts, is_complex=dtype.kind == "c")
    return Shown(array, preview, is_transposed=is_transposed)


_DEPTH, _MAX_AXES = 32, 32
_ENTRIES, _ARRAYS = 10_000, 100
_BLOSC_HEADER, _BLOSC_COPIED = 16, 2


def show_zarr(source: DirectorySource, query: PreviewQuery, base: Preview) -> Shown | None:
    """Return an array of a directory, or None if it has none."""
    folders = _folders(source)
    if not folders:
        return None
    part = min(max(query.part, 0), len(folders) - 1)
    with reading("the zarr array"):
        array = _opened(source, folders[part])
        shape, chunks = array.shape, array.shards or array.chunks
        if 0 in chunks:
            raise BadFileError("the zarr array has chunks of length 0")
        size = math.prod(chunks) * array.dtype.itemsize
        if size > _CHUNK_BYTES:
            raise BadFileError(f"its chunks have {size:,} bytes each; at most {_CHUNK_BYTES:,} are read")
        codecs = ", ".join(name for name in _codecs(array.metadata.to_dict()) if name != "bytes")
    shown = _window(shape, chunks, size)
    notes = ("Only the beginning of the array is shown: all of its chunks are too many.",) if shown != shape else ()
    preview = replace(
        base,
        format="Zarr array",
        facts=(
            ("Shape", shape_text(shape)),
            ("Type", array.dtype.name),
            ("Chunks", shape_text(chunks)),
            ("Compressed with", codecs or "nothing"),
        ),
        parts=tuple(folder.rstrip("/") for folder in folders) if len(folders) > 1 else (),
        part=part,
        notes=notes,
        is_complex=array.dtype.kind == "c",
    )
    rows = chunks[-2] if len(chunks) > 1 else 1
    return Shown(Bands(lambda where: array[where], shown, rows, "the zarr array", query.number), preview)


def _folders(source: DirectorySource) -> list[str]:
    """Return where arrays are: the directory itself, or what is listed below it."""
    if _metadata(source, "") is not None:
        return [""]
    listed = (name.rpartition("/") for name, _ in source.entries(_ENTRIES) if name.endswith(_METADATA))
    folders = [f"{folder}/" for folder, _, _ in listed if folder][:_ARRAYS]
    return [folder for folder in folders if _metadata(source, folder) is not None]


def _metadata(source: DirectorySource, folder: str) -> dict[str, Any] | None:
    """Return the metadata of an array; None if there is none."""
    for name in _METADATA:
        text = source.read(f"{folder}{name}", _METADATA_BYTES)
        if text is None:
            continue
        if too_deep(text, _DEPTH):
            raise BadFileError(f"{folder}{name} is nested more than {_DEPTH} levels deep")
        with reading(f"{folder}{name}"):
            document = json.loads(text)
            if isinstance(document, dict) and (name == ".zarray" or document.get("node_type") == "array"):
                return document
    return None


def _opened(source: DirectorySource, folder: str) -> Any:
    """Return an array of zarr, after its metadata are known to name nothing that executes code."""
    metadata = _metadata(source, folder) or {}
    names = _codecs(metadata)
    if unknown := set(names) - _CODECS:
        raise BadFileError(f"its chunks are stored with {min(unknown)[:80]!r}, which is not supported")
    if "blosc" in names and "sharding_indexed" in names:
        raise BadFileError("its shards have chunks compressed with blosc, which is not supported")
    if len(metadata["shape"]) > _MAX_AXES or min(metadata["shape"], default=0) < 0:
        raise BadFileError(f"its shape is {str(metadata['shape'])[:80]}")
    zarr = library("zarr", "zarr arrays")
    files = _Files(source, is_blosc="blosc" in names)
    array = zarr.open_array(
        zarr.storage.MemoryStore(files, read_only=True), path=folder, mode="r", zarr_format=metadata["zarr_format"]
    )
    if array.dtype.kind not in "biufc":
        raise BadFileError(f"its values are of the type {str(array.dtype)[:80]!r}, which is not one of numbers")
    return array


def _codecs(metadata: Any) -> list[str]:
    """Return the names of all codecs in the metadata of an array, in the order in which chunks are written."""
    version_3 = metadata.get("codecs") or ()
    names = [str(codec["name"]) for codec in version_3]
    for codec in version_3:
        inner = codec.get("configuration") or {}
        names += _codecs(inner) + [str(more["name"]) for more in inner.get("index_codecs") or ()]
    version_2 = [*(metadata.get("filters") or ()), metadata.get("compressor")]
    return names + [str(codec["id"]) for codec in version_2 if codec]


def _window(shape: tuple[int, ...], chunks: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the part of a shape that is shown: as chunks are read whole, a plane may cost more than its values."""
    most = min(max(_PLANE_BYTES // max(size, 1), 1), _MOST_CHUNKS)
    lengths = list(shape)
    for axis in range(max(len(shape) - 2, 0), len(shape)):
        fits = most if axis == len(shape) - 1 else max(int(most**0.5), 1)
        lengths[axis] = min(lengths[axis], fits * chunks[axis])
        most = max(most // max(-(-lengths[axis] // chunks[axis]), 1), 1)
    return tuple(lengths)


class _Files(Mapping[str, Any]):
    """The files of a directory as the dictionary of a store in memory of zarr, which then follows no links."""

    def __init__(self, source: DirectorySource, *, is_blosc: bool) -> None:
        self._source, self._is_blosc = source, is_blosc
        self._buffer = library("zarr.core.buffer.cpu", "zarr arrays").Buffer

    def __getitem__(self, name: str) -> Any:
        data = self._source.read(name, _CHUNK_BYTES)
        if data is None:
            raise KeyError(name)
        if self._is_blosc and not name.endswith((*_METADATA, ".zattrs")):
            _check_blosc(data)
        return self._buffer.from_bytes(data)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._source.entries(_ENTRIES))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _check_blosc(data: bytes) -> None:
    """Refuse a chunk whose header has other sizes than its content: the library reads on behind it.

    See README_CHUNK_FORMAT.rst of c-blosc: 4 bytes, the third with flags; sizes of the values, of a block and of the
    chunk. The library itself checks all else.
    """
    size, whole = (int.from_bytes(data[at : at + 4], "little") for at in (4, 12))
    if len(data) < _BLOSC_HEADER or whole != len(data):
        raise BadFileError(f"a chunk has {len(data):,} bytes, and should have {whole:,}")
    if data[2] & _BLOSC_COPIED and whole != _BLOSC_HEADER + size:
        raise BadFileError("the sizes in the header of a chunk compressed with blosc do not fit together")
