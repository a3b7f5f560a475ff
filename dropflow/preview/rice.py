"""Decompression of integers by the algorithm of Rice, as FITS files have them (FITS standard 4.0, section 10.4.1).

All tiles of an image are decoded at the same time, one value of each at a step, since the bits of a tile have to be
read one after the other.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dropflow.errors import BadFileError

__all__ = ["decode_rice"]

_SETTINGS = {1: (3, 6, 8), 2: (4, 14, 16), 4: (5, 25, 32)}
"""Bits of the code of a block, its largest value, and bits of a difference, by the bytes of a value."""
_PAD = 16
_MOST_STEPS = 1 << 18
"""Values of a tile that are decoded one after the other: some seconds."""
_TYPES = {1: np.uint8, 2: np.int16, 4: np.int32}

_Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]


def decode_rice(tiles: Sequence[bytes], count: int, size: int, block: int) -> npt.NDArray[np.integer]:
    """Return `count` values of each tile, one tile a row.

    Parameters
    ----------
    tiles : sequence of bytes
        Compressed tiles.
    count : int
        Values of a tile.
    size : int
        Bytes of a value: 1, 2 or 4.
    block : int
        Values that share a code.

    Raises
    ------
    BadFileError
        A tile is damaged, or the settings are not those of the algorithm.
    """
    if size not in _SETTINGS or not 0 < block <= 1 << 16:
        raise BadFileError(
            f"values of {size} bytes in blocks of {block} cannot be decompressed by the algorithm of Rice"
        )
    code_bits, raw_code, bits = _SETTINGS[size]
    reader = _TileBits(tiles)
    found = np.zeros((len(tiles), count), _TYPES[size])
    everyone = np.arange(len(tiles))
    last = reader.take(everyone, bits)
    mask = np.uint64((1 << bits) - 1)
    steps = 0
    for begin in range(0, count, block):
        end = min(begin + block, count)
        code = reader.take(everyone, code_bits).astype(np.int64) - 1
        raw, coded = np.flatnonzero(code == raw_code), np.flatnonzero((code >= 0) & (code != raw_code))
        is_flat = not len(raw) and not len(coded)
        steps += 1 if is_flat else end - begin
        if steps > _MOST_STEPS:
            raise BadFileError(f"a compressed tile has more than {_MOST_STEPS:,} values to decode", hint="download it")
        if is_flat:  # no value differs from the one before
            found[:, begin:end] = last.astype(_TYPES[size])[:, None]
            reader.check()
            continue
        low = code[coded]
        for at in range(begin, end):
            if len(raw):
                last[raw] += _signed(reader.take(raw, bits))
            if len(coded):
                high = reader.zeros(coded).astype(np.uint64) << low.astype(np.uint64)
                last[coded] += _signed(high | reader.take(coded, low))
            last &= mask
            found[:, at] = last.astype(_TYPES[size])
        reader.check()
    return found


def _signed(folded: _Words) -> _Words:
    """Return differences modulo 2 to the 64: 0, -1, 1, -2, 2... are written as 0, 1, 2, 3, 4..."""
    half = folded >> np.uint64(1)
    return np.where(folded & np.uint64(1), ~half, half)


class _TileBits:
    """Reads the bits of several tiles, each from its own place on."""

    def __init__(self, tiles: Sequence[bytes]) -> None:
        lengths = np.array([len(tile) for tile in tiles], np.int64)
        ends = np.cumsum(lengths)
        self._data = np.frombuffer(b"".join(tiles) + b"\0" * _PAD, np.uint8)
        self._at = (ends - lengths) * 8
        self._end = ends * 8

    def take(self, tiles: _Ints, bits: "int | _Ints") -> _Words:
        """Return the next bits of each of these tiles, at most 32."""
        window = self._window(tiles)
        self._at[tiles] += bits
        wanted = np.broadcast_to(np.asarray(bits, np.uint64), window.shape)
        return np.where(wanted > 0, window >> (np.uint64(64) - np.maximum(wanted, np.uint64(1))), np.uint64(0))

    def zeros(self, tiles: _Ints) -> _Ints:
        """Return the number of zeros before the next one in each of these tiles, and go behind it."""
        found = np.zeros(len(tiles), np.int64)
        left = np.arange(len(tiles))
        while len(left):
            high = (self._window(tiles[left]) >> np.uint64(32)).astype(np.float64)
            zeros = 32 - np.frexp(high)[1]  # of the first 32 bits; exact, as a double has 53
            found[left] += zeros
            self._at[tiles[left]] += np.minimum(zeros + 1, 32)
            left = left[high == 0]
            if len(left):
                self.check()
        return found

    def check(self) -> None:
        """Raise if a tile was read behind its end."""
        if (self._at > self._end).any():
            raise BadFileError("a compressed tile is damaged: it ends too early")

    def _window(self, tiles: _Ints) -> _Words:
        """Return at least the next 57 bits of each tile, from the highest bit on."""
        at = self._at[tiles]
        octets = np.minimum(at >> 3, len(self._data) - 8)
        words: _Words = self._data[octets[:, None] + np.arange(8)].view(">u8")[:, 0].astype(np.uint64)
        return words << (at & 7).astype(np.uint64)
