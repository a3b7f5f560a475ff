"""Encoders: from values to the bytes behind a port; `dropflow.apps.encodings` has the table."""

import ast
import base64
import io
import json
import os
import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from dropflow.exception_text import text_of

__all__ = ["ENCODERS", "URL", "CannotHoldError"]

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
"""Pattern of the contents of ``dataurl``."""

_PROTOCOL = 5
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


class CannotHoldError(ValueError):
    """A value or a content that does not fit an encoding. `dropflow.apps.encodings` turns it into an `AppError`."""


def _pickled(value: Any) -> bytes:
    try:
        if type(value) in _PLAIN or _is_plain_array(value):
            return pickle.dumps(value, protocol=_PROTOCOL)
        import cloudpickle  # noqa: PLC0415 - not needed for plain values

        return cast(bytes, cloudpickle.dumps(value, protocol=_PROTOCOL))
    except Exception as problem:
        raise CannotHoldError(f"it cannot be pickled: {text_of(problem)}") from problem


def _is_plain_array(value: Any) -> bool:
    """Whether `value` is an array of numbers. Does not import numpy."""
    kind = type(value)
    return kind.__name__ == "ndarray" and kind.__module__ == "numpy" and not value.dtype.hasobject


def _npy(value: Any) -> bytes:
    import numpy as np  # noqa: PLC0415 - numpy is loaded only for arrays

    try:
        array = np.asanyarray(value)
    except ValueError as problem:
        raise CannotHoldError(str(problem)) from problem
    if array.dtype.hasobject:
        raise CannotHoldError("it would be an array of Python objects, which npy cannot hold")
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


def _json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        same = json.loads(text) == value
    except (TypeError, ValueError, RecursionError) as problem:
        raise CannotHoldError(str(problem)) from problem
    if not same:
        raise CannotHoldError("JSON would change it (tuples become lists, keys become text)")
    return text.encode()


def _literal(value: Any) -> bytes:
    text = repr(value)
    try:
        same = ast.literal_eval(text) == value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as problem:
        raise CannotHoldError("it is not a Python literal") from problem
    if same is not True:
        raise CannotHoldError("its repr() is a literal of another value")
    return text.encode()


def _utf8(value: Any) -> bytes:
    if not _is_bytes(value):
        return _encoded(str(value))
    try:
        bytes(value).decode()
    except UnicodeDecodeError as problem:
        raise CannotHoldError("they are not UTF-8") from problem
    return bytes(value)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as problem:
        raise CannotHoldError("it has half of a surrogate pair, which cannot be written in UTF-8") from problem


def _raw(value: Any) -> bytes:
    return _encoded(value) if isinstance(value, str) else _bytes(value)


def _bytes(value: Any) -> bytes:
    if not _is_bytes(value):
        raise CannotHoldError("it is not bytes")
    return bytes(value)


def _path(value: Any) -> bytes:
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not isinstance(text, str) or not text or text != text.strip() or "\n" in text or "\0" in text:
        raise CannotHoldError("it is not a path on one line")
    return _encoded(text)


def _url(value: Any) -> bytes:
    if not isinstance(value, str) or not URL.fullmatch(value):
        raise CannotHoldError("it is not a URL (scheme://...)")
    return _encoded(value)


def _is_bytes(value: Any) -> bool:
    return isinstance(value, bytes | bytearray | memoryview)


ENCODERS: Mapping[str, Callable[[Any], bytes]] = {
    "pickle": _pickled,
    "dill": _pickled,
    "npy": _npy,
    "json": _json,
    "eval": _literal,
    "utf-8": _utf8,
    "raw": _raw,
    "binary": _bytes,
    "base64": lambda value: base64.b64encode(_bytes(value)),
    "path": _path,
    "dataurl": _url,
}
"""The encoder of each encoding, by its name."""
