"""How deep JSON text is nested, found without parsing it.

Parsers recurse once a level, so depth is what a hostile or broken document exhausts first. It is looked at beforehand,
in one linear pass that copies no more than a piece at a time and leaves most bytes to C.
"""

import numpy as np

__all__ = ["nesting", "too_deep"]

_CHUNK = 256 * 1024

_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
_STEP = np.zeros(256, dtype=np.int8)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1


def nesting(data: bytes | memoryview, *, enough: int | None = None) -> int:
    """How many levels deep lists and objects in the JSON text `data` are nested; 0 for a bare value.

    Brackets inside strings do not count. For text that is not JSON the answer is about the brackets that it has.

    Parameters
    ----------
    data : bytes or view of bytes
        The text, in UTF-8.
    enough : int, optional
        Look no further than the piece in which it becomes deeper than this; the answer is then that of the text so far.
    """
    depth, deepest, inside, start = 0, 0, False, 0
    while start < len(data):
        stop = min(start + _CHUNK, len(data))
        piece = bytes(data[start:stop])
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # an escape must not be torn apart
            stop = min(stop + 1, len(data))
            piece = bytes(data[start:stop])
        plain = piece.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_STRUCTURE)
        pieces = plain.split(b'"')
        outside = b"".join(pieces[1::2] if inside else pieces[::2])
        inside ^= len(pieces) % 2 == 0
        if outside:
            levels = np.cumsum(_STEP[np.frombuffer(outside, dtype=np.uint8)], dtype=np.int64)
            deepest = max(deepest, depth + int(levels.max()))
            depth += int(levels[-1])
            if enough is not None and deepest > enough:
                return deepest
        start = stop
    return deepest


def too_deep(data: bytes | memoryview, limit: int) -> bool:
    """Whether lists and objects in the JSON text `data` are nested more than `limit` levels deep."""
    return nesting(data, enough=limit) > limit
