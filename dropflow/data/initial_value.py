"""The initial content of a memory drop: its parameter `pydata`, read according to its type.

====================  ==============================================================================================
type                  content
====================  ==============================================================================================
String, Password      the text itself
Integer, Float, ...   the value, pickled, so that ports with ``pickle`` or ``dill`` receive it typed
Json, list, dict      the value of the JSON text or Python literal, pickled
Object, Object.x      base64 of a pickle (how EAGLE stores objects), else a Python literal, else the text itself
raw                   base64, else the text itself
eval                  a Python literal, pickled; never evaluated
====================  ==============================================================================================

No value, blank text and ``None`` are the empty content; for text types the empty text.
"""

import ast
import base64
import binascii
import pickle
from typing import Any

from dropflow.engine.parameters import Unset, Unusable, convert_field, expand
from dropflow.errors import BadParameterError
from dropflow.graph.templates import Argument, Template

__all__ = ["PICKLE_PROTOCOL", "initial_value"]

PICKLE_PROTOCOL = 5

_TEXTS = frozenset({"string", "str", "password", "select", ""})
_PICKLE_START = b"\x80"
_SHOWN = 60


def initial_value(template: Template) -> tuple[bytes, bool]:
    """Return the bytes of the initial content, and whether they are text.

    Parameters
    ----------
    template : Template
        Node of a memory drop without producers.

    Raises
    ------
    BadParameterError
        The value does not fit its type.
    """
    argument = template.argument("pydata")
    if argument is None:
        return b"", False
    kind = argument.type.strip().lower()
    try:
        value = expand(argument.value)
        if value is None or (isinstance(value, str) and value.strip() in ("", "None")):
            return b"", kind in _TEXTS
        return _content(value, kind)
    except Unusable as problem:
        raise BadParameterError(
            f"parameter 'pydata' is {argument.value!r:.{_SHOWN}}, expected {problem}",
            where=template.name,
            fields=("pydata",),
            hint=f"correct the value, or its type {_type(argument)}",
            of_host=isinstance(problem, Unset),
        ) from problem


def _content(value: Any, kind: str) -> tuple[bytes, bool]:
    if kind in _TEXTS:
        return str(value).encode(), True
    if kind == "raw" and isinstance(value, str):
        return _unbase64(value) or value.encode(), False
    if kind.startswith("object") and isinstance(value, str):
        return _object(value)
    if kind == "eval" and isinstance(value, str):
        return _pickled(_literal(value)), False
    found = convert_field(value, kind)
    return (found.encode(), True) if isinstance(found, str) else (_pickled(found), False)


def _object(text: str) -> tuple[bytes, bool]:
    body = _unbase64(text)
    if body.startswith(_PICKLE_START):
        return body, False
    try:
        return _pickled(_literal(text)), False
    except Unusable:
        return text.encode(), True


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise Unusable("a Python literal (code is not evaluated)") from None


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=PICKLE_PROTOCOL)


def _type(argument: Argument) -> str:
    return argument.type or "String"
