"""Draws a grid of numbers as a PNG picture of 256 colours. What is not a number has a colour of its own."""

import struct
import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

from dropflow.preview.records import PreviewQuery

__all__ = ["draw"]

_COLOURS: Final = 255
# Dark blue to light yellow over violet and orange, each lighter than the one before: also readable in grey.
_ANCHORS: Final = np.array(
    [
        (10, 10, 38),
        (46, 20, 98),
        (105, 27, 122),
        (168, 44, 109),
        (222, 80, 73),
        (247, 142, 42),
        (250, 205, 78),
        (253, 250, 205),
    ],
    np.float64,
)
_NO_NUMBER: Final = {"grey": (58, 96, 150), "colour": (128, 128, 128)}
"""Colours that no number has. Where a picture is transparent, a light page would make it as bright as its maximum."""
_ASINH: Final = 10.0
_LOG: Final = 1000.0


def draw(values: npt.NDArray[np.float32], query: PreviewQuery) -> bytes:
    """Return a PNG picture of the values, the first row at the top."""
    index = np.zeros(values.shape, np.uint8)
    is_number = np.isfinite(values)
    if is_number.any():
        finite = values[is_number].astype(np.float64)
        side = (100.0 - query.keep) / 2
        low, high = np.percentile(finite, [side, 100.0 - side])
        with np.errstate(all="ignore"):
            share = np.clip((finite - low) / (high - low), 0.0, 1.0) if high > low else np.full(finite.shape, 0.5)
        index[is_number] = 1 + np.round(_stretched(np.nan_to_num(share, nan=0.5), query.stretch) * (_COLOURS - 1))
    return _png(index, _palette(query.colours))


def _stretched(share: npt.NDArray[np.float64], how: str) -> npt.NDArray[np.float64]:
    """Return values from 0 to 1 as brightness from 0 to 1."""
    stretched = share
    if how == "sqrt":
        stretched = np.sqrt(share)
    elif how == "log":
        stretched = np.log1p(_LOG * share) / np.log1p(_LOG)
    elif how == "asinh":
        stretched = np.arcsinh(_ASINH * share) / np.arcsinh(_ASINH)
    return stretched


def _palette(colours: str) -> npt.NDArray[np.uint8]:
    """Return 256 colours; the first is for what is not a number."""
    places = np.linspace(0.0, 1.0, _COLOURS)
    if colours == "grey":
        rows = np.repeat(np.round(places * 255)[:, None], 3, axis=1)
    else:
        anchors = np.linspace(0.0, 1.0, len(_ANCHORS))
        rows = np.stack([np.interp(places, anchors, _ANCHORS[:, channel]) for channel in range(3)], axis=1)
    none = _NO_NUMBER[colours]
    return np.vstack([np.array([none]), np.round(rows)]).astype(np.uint8)


def _png(index: npt.NDArray[np.uint8], palette: npt.NDArray[np.uint8]) -> bytes:
    """Return a PNG picture (ISO/IEC 15948) with a palette, 8 bits a pixel, no filter."""
    height, width = index.shape
    lines = np.zeros((height, width + 1), np.uint8)
    lines[:, 1:] = index
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 6)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
