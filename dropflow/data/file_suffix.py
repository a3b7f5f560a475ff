"""The file suffix of a content, from its first bytes."""

import json

__all__ = ["suffix_for"]

_HEAD = 4096
_LARGEST_JSON = 1 << 20
_PICKLE = b"\x80"
_PROTOCOLS = (2, 3, 4, 5)
_MAGICS = (
    (b"\x93NUMPY", ".npy"),
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"SIMPLE  =", ".fits"),
    (b"\x89HDF\r\n\x1a\n", ".h5"),
    (b"PK\x03\x04", ".zip"),
    (b"%PDF-", ".pdf"),
)


def suffix_for(content: memoryview, *, text: bool = False) -> str:
    """Return ``.npy``, ``.pkl``, ``.json``, ``.txt``, another well-known suffix, or ``.dat``.

    Parameters
    ----------
    content : memoryview
        The whole content.
    text : bool
        Whether it was declared or written as text.
    """
    head = bytes(content[:_HEAD])
    for magic, suffix in _MAGICS:
        if head.startswith(magic):
            return suffix
    if head[:1] == _PICKLE and len(head) > 1 and head[1] in _PROTOCOLS and bytes(content[-1:]) == b".":
        return ".pkl"
    if not text and not _is_text(head, whole=len(content) <= _HEAD):
        return ".dat"
    return ".json" if _is_json(content) else ".txt"


def _is_text(head: bytes, *, whole: bool) -> bool:
    try:
        decoded = head.decode()
    except UnicodeDecodeError as problem:
        # The head may end in the middle of a character of at most four bytes.
        if whole or problem.start < len(head) - 3:
            return False
        decoded = head[: problem.start].decode()
    return all(character.isprintable() or character.isspace() for character in decoded)


def _is_json(content: memoryview) -> bool:
    if bytes(content[:1]) not in (b"{", b"[") or len(content) > _LARGEST_JSON:
        return False
    try:
        json.loads(bytes(content))
    except (ValueError, RecursionError):
        return False
    return True
