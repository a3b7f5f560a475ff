"""Identifiers. Inside dropflow a drop is a small integer; its text id (`oid`) exists only at borders."""

import re
import zlib
from typing import NewType

__all__ = ["DropId", "SessionId", "TemplateId", "drop_file_name", "safe_name"]

DropId = NewType("DropId", int)
"""Row of a drop in its physical graph, from 0."""

TemplateId = NewType("TemplateId", int)
"""Row of a template (one logical node) in its physical graph, from 0."""

SessionId = NewType("SessionId", str)
"""Name of a session: a single safe path segment."""

_LONG = 90
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def safe_name(text: str, *, fallback: str = "graph") -> str:
    """`text` as one safe path segment: letters, digits, dot, dash and underscore only.

    The answer never starts with a dot or a dash and has at most 100 characters, so that it can neither escape
    a directory nor look like an option.
    """
    return _UNSAFE.sub("_", text).lstrip(".-")[:100] or fallback


def drop_file_name(oid: str) -> str:
    """Name of the files that belong to the drop `oid`, such as its log: a safe path segment, different for each drop.

    An id that is no safe segment itself, or is too long for one, is told apart by eight digits of its CRC-32.
    """
    name = safe_name(oid, fallback="drop")
    if name == oid:
        return name
    # The index is at the end of an id, so a long one loses its middle.
    whole = _UNSAFE.sub("_", oid).lstrip(".-") or "drop"
    short = whole if len(whole) <= _LONG else f"{whole[:40]}~{whole[-49:]}"
    return f"{short}~{zlib.crc32(oid.encode()):08x}"
