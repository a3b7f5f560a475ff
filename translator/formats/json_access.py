"""Tolerant access to JSON of files. Invalid values are skipped here; `translator.formats.schema` reports them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dropflow.graph.drawing.drawn_places import FARTHEST

__all__ = ["Json", "escape", "items", "objects", "position", "text", "truth", "unescape"]

Json = Mapping[str, Any]
"""A JSON object of a file."""

_PAIR = re.compile(r"(-?[0-9]{1,6}(?:[.][0-9]{1,20})?) (-?[0-9]{1,6}(?:[.][0-9]{1,20})?)")
_TRUE = frozenset({"true", "1", "yes"})
_FALSE = frozenset({"false", "0", "no", "", "none", "null"})


def escape(key: str) -> str:
    """Return a key as one step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def unescape(step: str) -> str:
    """Return the key of one step of a JSON pointer."""
    return step.replace("~1", "/").replace("~0", "~")


def objects(holder: Json, name: str, pointer: str = "") -> Iterator[tuple[str, Json]]:
    """Yield pointer and content of each object in the list or object `name` of `holder`; skip other items."""
    for key, item in items(holder, name):
        if isinstance(item, Mapping):
            yield f"{pointer}/{escape(name)}/{escape(key)}", item


def items(holder: Json, name: str) -> Iterator[tuple[str, Any]]:
    """Yield key and value of each item of the list or object `name` of `holder`; keys of a list are its indices."""
    found = holder.get(name)
    if isinstance(found, Mapping):
        yield from ((str(key), value) for key, value in found.items())
    elif isinstance(found, list):
        yield from ((str(index), value) for index, value in enumerate(found))


def text(holder: Json, *names: str) -> str:
    """Return the first of the attributes `names` that is a non-empty text or a number, as text; else an empty text."""
    for name in names:
        value = holder.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            return str(value)
    return ""


def description_of(document: Json) -> str:
    """Return what a file says about its graph: the detailed description of EAGLE, or the short one."""
    about = document.get("modelData")
    return text(about, "detailedDescription", "shortDescription") if isinstance(about, Mapping) else ""


def position(node: Json) -> tuple[float, float] | None:
    """Return where a node was drawn: `x` and `y`, or `loc` ("x y") of old files; None if they are no usable numbers."""
    x, y = _coordinate(node.get("x")), _coordinate(node.get("y"))
    loc = node.get("loc")
    if isinstance(loc, str) and node.get("x") is None and node.get("y") is None:
        found = _PAIR.fullmatch(loc)
        x, y = (None, None) if found is None else (float(found[1]), float(found[2]))
    return None if x is None or y is None else (x, y)


def _coordinate(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= FARTHEST:
        return None
    return float(value)


def truth(value: Any) -> bool | None:
    """Return the value of a flag, in all forms that EAGLE and DALiuGE have used; None for other values."""
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return bool(value) if value in (0, 1) else None
    folded = value.strip().lower() if isinstance(value, str) else "?"
    return True if folded in _TRUE else False if folded in _FALSE else None
