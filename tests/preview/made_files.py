"""Files of the formats that previews read, made by hand."""

import gzip
import io
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_BITS = {"uint8": 8, "int16": 16, "int32": 32, "int64": 64, "float32": -32, "float64": -64}
_RICE_BITS = {1: (3, 6, 8), 2: (4, 14, 16), 4: (5, 25, 32)}
_TYPES = {1: "u1", 2: ">i2", 4: ">i4"}


def npy(array: Array) -> bytes:
    """Return an array as numpy writes it."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def fits(*units: Array, cards: Sequence[tuple[str, object]] = ()) -> bytes:
    """Return a FITS file with an image in each unit; an empty array is a unit without data."""
    parts = []
    for number, array in enumerate(units):
        first = ("SIMPLE", True) if not number else ("XTENSION", "IMAGE")
        axes = array.shape[::-1] if array.size else ()
        header = [first, ("BITPIX", _BITS[array.dtype.name]), ("NAXIS", len(axes))]
        header += [(f"NAXIS{axis}", length) for axis, length in enumerate(axes, 1)]
        header += [("PCOUNT", 0), ("GCOUNT", 1)] if number else []
        header += list(cards) if array.size else []
        text = "".join(_card(name, value) for name, value in header) + f"{'END':<80}"
        parts.append(text.ljust(-(-len(text) // 2880) * 2880).encode())
        data = array.astype(array.dtype.newbyteorder(">")).tobytes()
        parts.append(data.ljust(-(-len(data) // 2880) * 2880, b"\0"))
    return b"".join(parts)


def extension(kind: str, width: int, rows: bytes, heap: bytes, **cards: object) -> bytes:
    """Return a unit of a FITS file with a table; TFIELDS is the number of TFORM."""
    count = sum(name.startswith("TFORM") for name in cards)
    header: list[tuple[str, object]] = [("XTENSION", kind), ("BITPIX", 8), ("NAXIS", 2), ("NAXIS1", width)]
    header += [("NAXIS2", len(rows) // width), ("PCOUNT", len(heap)), ("GCOUNT", 1), ("TFIELDS", count), *cards.items()]
    text = "".join(_card(name, value) for name, value in header) + f"{'END':<80}"
    data = rows + heap
    return text.ljust(-(-len(text) // 2880) * 2880).encode() + data.ljust(-(-len(data) // 2880) * 2880, b"\0")


def _card(name: str, value: object) -> str:
    if isinstance(value, bool):
        shown = f"{'T' if value else 'F':>20}"
    else:
        shown = f"'{value:<8}'" if isinstance(value, str) else f"{value:>20}"
    return f"{name:<8}= {shown} / made".ljust(80)


def zarr(folder: Path, array: Array, chunks: tuple[int, ...], *, version: int = 2, codec: str = "zlib") -> None:
    """Write an array as zarr, chunks that are all zero left out."""
    folder.mkdir(parents=True, exist_ok=True)
    if version == 2:
        compressor = {"id": codec} if codec else None
        metadata = {"shape": array.shape, "chunks": chunks, "dtype": array.dtype.str, "compressor": compressor}
        text = json.dumps({**metadata, "filters": None, "fill_value": 0, "order": "C", "zarr_format": 2})
        folder.joinpath(".zarray").write_text(text)
    else:
        names = [
            {"name": "bytes", "configuration": {"endian": "little"}},
            *([{"name": codec, "configuration": {"level": 5}}] if codec else []),
        ]
        grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
        metadata = {"zarr_format": 3, "node_type": "array", "shape": array.shape, "data_type": array.dtype.name}
        keys = {"name": "default", "configuration": {"separator": "/"}}
        rest = {"chunk_grid": grid, "chunk_key_encoding": keys, "codecs": names, "fill_value": 0}
        folder.joinpath("zarr.json").write_text(json.dumps(metadata | rest))
    for where in np.ndindex(*(-(-length // each) for length, each in zip(array.shape, chunks, strict=True))):
        part = array[tuple(slice(at * each, (at + 1) * each) for at, each in zip(where, chunks, strict=True))]
        if not part.any():
            continue
        whole = np.zeros(chunks, array.dtype)
        whole[tuple(slice(0, length) for length in part.shape)] = part
        name = ".".join(map(str, where)) if version == 2 else "/".join(map(str, ("c", *where)))
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_compressed(whole.tobytes(), codec))


def _compressed(data: bytes, codec: str) -> bytes:
    if not codec:
        return data
    if codec in ("zlib", "gzip"):
        stream = zlib.compressobj(wbits=15 if codec == "zlib" else 31)
        return stream.compress(data) + stream.flush()
    from numcodecs import blosc, lz4, zstd  # noqa: PLC0415 - optional

    return {
        "blosc": lambda: blosc.compress(data, b"lz4", 5),
        "zstd": lambda: zstd.compress(data),
        "lz4": lambda: lz4.compress(data),
    }[codec]()


def png(index: Array) -> bytes:
    """Return a grey picture."""
    height, width = index.shape
    lines = np.zeros((height, width + 1), np.uint8)
    lines[:, 1:] = index

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 0, 0, 0, 0))
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def rice(values: Sequence[int], size: int, block: int, codes: Sequence[int]) -> bytes:
    """Compress values by the text of the standard, bit by bit; `codes` are those of the blocks."""
    code_bits, most, bits = _RICE_BITS[size]
    span = 1 << bits
    out, last = format(values[0] % span, f"0{bits}b"), values[0]
    for number, begin in enumerate(range(0, len(values), block)):
        folded = []
        for value in values[begin : begin + block]:
            difference = (value - last + span // 2) % span - span // 2
            folded.append(2 * difference if difference >= 0 else -2 * difference - 1)
            last = value
        if not any(folded):
            out += "0" * code_bits
            continue
        low = codes[number % len(codes)] % most
        if max(folded) >> low > 200:  # too many zeros for a test: the differences as they are
            out += format(most + 1, f"0{code_bits}b") + "".join(format(one, f"0{bits}b") for one in folded)
            continue
        out += format(low + 1, f"0{code_bits}b")
        for one in folded:
            rest = format(one % (1 << low), f"0{low}b") if low else ""
            out += "0" * (one >> low) + "1" + rest
    out = out.ljust(-(-len(out) // 8) * 8, "0")
    return int(out, 2).to_bytes(len(out) // 8, "big")


def tiled(image: Array, algorithm: str, tile: tuple[int, int], **cards: object) -> bytes:
    """Return a FITS file with a compressed image of integers."""
    size, rows, heap = image.dtype.itemsize, bytearray(), bytearray()
    for top in range(0, image.shape[0], tile[0]):
        for left in range(0, image.shape[1], tile[1]):
            values = image[top : top + tile[0], left : left + tile[1]]
            raw = values.astype(_TYPES[size]).tobytes()
            if algorithm == "RICE_1":
                data = rice([int(one) for one in values.ravel()], size, 32, (3,))
            elif algorithm == "GZIP_2":
                data = gzip.compress(np.frombuffer(raw, np.uint8).reshape(-1, size).T.tobytes())
            else:
                data = gzip.compress(raw) if algorithm == "GZIP_1" else raw
            rows += np.array([len(data), len(heap)], ">i4").tobytes()
            heap += data
    about: dict[str, object] = {
        "TTYPE1": "COMPRESSED_DATA",
        "TFORM1": "1PB(1000)",
        "ZIMAGE": True,
        "ZBITPIX": 8 * size,
        "ZNAXIS": 2,
        "ZNAXIS1": image.shape[1],
        "ZNAXIS2": image.shape[0],
        "ZTILE1": tile[1],
        "ZTILE2": tile[0],
        "ZCMPTYPE": algorithm,
        "ZNAME1": "BLOCKSIZE",
        "ZVAL1": 32,
        "ZNAME2": "BYTEPIX",
        "ZVAL2": size,
    }
    return fits(np.zeros(0, np.uint8)) + extension("BINTABLE", 8, bytes(rows), bytes(heap), **about | cards)
