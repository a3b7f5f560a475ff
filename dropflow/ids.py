"""Identifiers. Inside dropflow a drop is a small integer; its text id (`oid`) exists only at borders."""

import re
from typing import NewType

__all__ = ["DropId", "SessionId", "TemplateId", "safe_name"]

DropId = NewType("DropId", int)
"""Row of a drop in its physical graph, from 0."""

TemplateId = NewType("TemplateId", int)
"""Row of a template (one logical node) in its physical graph, from 0."""

SessionId = NewType("SessionId", str)
"""Name of a session: a single safe path segment."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def safe_name(text: str, *, fallback: str = "graph") -> str:
    """`text` as one safe path segment: letters, digits, dot, dash and underscore only.

    The answer never starts with a dot or a dash and has at most 100 characters, so that it can neither escape
    a directory nor look like an option.
    """
    return _UNSAFE.sub("_", text).lstrip(".-")[:100] or fallback
