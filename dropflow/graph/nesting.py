"""Finds how deep JSON text is nested, without parsing it.

Parsers recurse once a level, so a hostile or broken document can exhaust the stack. The depth is checked before, in one
linear pass that copies one piece at a time and processes most bytes in C.
"""

import numpy as np

_CHUNK_BYTES = 256 * 1024
"""Bytes of a text that are looked at together."""

_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
_STEP = np.zeros(256, dtype=np.int8)
_STEP[list(b"[{")] = 1  # one level deeper
_STEP[list(b"]}")] = -1  # one level back


def nesting(data: bytes | memoryview, *, enough: int | None = None) -> int:
    """Return how many levels deep lists and objects in the JSON text `data` are nested; 0 for a bare value.

    Brackets inside strings do not count. In text that is not JSON, brackets are counted all the same.

    Parameters
    ----------
    data : bytes or view of bytes
        The text, in UTF-8.
    enough : int, optional
        Stop at the piece in which the text exceeds this depth, and return the depth so far.
    """
    depth, deepest, inside, start = 0, 0, False, 0
    while start < len(data):
        stop = min(start + _CHUNK_BYTES, len(data))
        piece = bytes(data[start:stop])
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # an escape sequence must be in one piece
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
    """Return whether lists and objects in the JSON text `data` are nested more than `limit` levels deep."""
    return nesting(data, enough=limit) > limit
