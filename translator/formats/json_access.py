"""Tolerant access to foreign JSON. What is not as it should be is reported once, by the schema, and skipped here."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Json", "escape", "items", "objects", "text", "truth", "unescape"]

Json = Mapping[str, Any]
"""A JSON object of a file."""

_TRUE = frozenset({"true", "1", "yes"})
_FALSE = frozenset({"false", "0", "no", "", "none", "null"})


def escape(key: str) -> str:
    """A key as one step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def unescape(step: str) -> str:
    """The key that one step of a JSON pointer stands for."""
    return step.replace("~1", "/").replace("~0", "~")


def objects(holder: Json, name: str, pointer: str = "") -> Iterator[tuple[str, Json]]:
    """Pointer and content of each object in the list or object `name` of `holder`; anything else is passed over."""
    for key, item in items(holder, name):
        if isinstance(item, Mapping):
            yield f"{pointer}/{escape(name)}/{escape(key)}", item


def items(holder: Json, name: str) -> Iterator[tuple[str, Any]]:
    """Key and value of each item of the list or object `name` of `holder`; the keys of a list are its indices."""
    found = holder.get(name)
    if isinstance(found, Mapping):
        yield from ((str(key), value) for key, value in found.items())
    elif isinstance(found, list):
        yield from ((str(index), value) for index, value in enumerate(found))


def text(holder: Json, *names: str) -> str:
    """The first of the attributes `names` that is a text or a number and not empty, as text; else the empty text."""
    for name in names:
        value = holder.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            return str(value)
    return ""


def truth(value: Any) -> bool | None:
    """What a flag says, in every spelling that EAGLE and DALiuGE have used; None where it says neither."""
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return bool(value) if value in (0, 1) else None
    folded = value.strip().lower() if isinstance(value, str) else "?"
    return True if folded in _TRUE else False if folded in _FALSE else None
