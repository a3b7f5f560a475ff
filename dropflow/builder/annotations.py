"""Types of ports from annotations, and the check that a value of one annotation can be an argument of another.

The check is made while a graph is written, so it only refuses what is certainly wrong: two classes without a common
subclass that the annotations allow. Everything that is not a class, a union or a container of them fits.
"""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["ANY", "annotations_of", "fits", "list_of", "port_type", "shown"]

ANY = inspect.Parameter.empty
"""No annotation."""

_TYPES: Mapping[Any, str] = {int: "Integer", float: "Float", str: "String", bool: "Boolean"}
_WIDER: Mapping[type, tuple[type, ...]] = {bool: (int, float, complex), int: (float, complex), float: (complex,)}


def annotations_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the annotations of a function, evaluated as far as possible; the others are left out."""
    try:
        return typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - an annotation may be any expression, and is not needed
        found = getattr(function, "__annotations__", {})
        return {name: value for name, value in found.items() if not isinstance(value, str)}


def port_type(annotation: Any) -> str:
    """Return EAGLE's type for data of an annotation: that of a plain number or text, else ``Object``."""
    return _TYPES.get(annotation, "Object") if isinstance(annotation, type) else "Object"


def shown(annotation: Any) -> str:
    """Return an annotation as it is written in a program."""
    return annotation.__name__ if type(annotation) is type else str(annotation).replace("typing.", "")


def fits(given: Any, wanted: Any) -> bool:
    """Return whether a value annotated as `given` can be an argument annotated as `wanted`."""
    if isinstance(given, types.UnionType) or typing.get_origin(given) is typing.Union:
        return any(fits(one, wanted) for one in typing.get_args(given))
    if isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union:
        return any(fits(given, one) for one in typing.get_args(wanted))
    have, want = _class_of(given), _class_of(wanted)
    if have is None or want is None:
        return True
    if not (_is_a(have, want) or _is_a(want, have) or want in _WIDER.get(have, ())):
        return False
    inner = typing.get_args(given), typing.get_args(wanted)
    if have is list and want is list and all(len(one) == 1 for one in inner):
        return fits(inner[0][0], inner[1][0])
    return True


def list_of(annotation: Any) -> Any:
    """Return the annotation of a list of values with this annotation; no annotation if there is none."""
    return ANY if annotation is ANY else types.GenericAlias(list, (annotation,))


def _class_of(annotation: Any) -> type | None:
    """Return the class of an annotation; None if it has none, such as a type variable, or says nothing."""
    if annotation is None:
        return type(None)
    found = typing.get_origin(annotation) or annotation
    if not isinstance(found, type) or found in (ANY, object) or getattr(found, "_is_protocol", False):
        return None
    return found


def _is_a(one: type, other: type) -> bool:
    try:
        return issubclass(one, other)
    except TypeError:
        return True
