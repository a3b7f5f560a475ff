"""Decoders: from the bytes behind a port to values; `dropflow.apps.encodings` has the table."""

import ast
import base64
import binascii
import io
import json
import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from dropflow.apps.encode_value import URL, CannotHoldError
from dropflow.errors import MissingDependencyError, install_hint
from dropflow.exception_text import summary_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SEVERAL", "SINGLE", "EncodedSource", "holds_values"]

_PICKLE_START = b"\x80"
_PICKLE_PROTOCOLS = frozenset({2, 3, 4, 5})
_NPY_START = b"\x93NUMPY"
_LONGEST_NAME = 4096
_SHOWN = 16
_BUFFER = 1 << 16
_JSON = json.JSONDecoder()


class EncodedSource(Protocol):
    """A content to decode, such as an input of an attempt."""

    port: str
    name: str

    @property
    def is_text(self) -> bool:
        """Whether the content was declared or written as text."""
        ...

    @property
    def is_joint(self) -> bool:
        """Whether several producers write the content, so that it is a list of values."""
        ...

    @property
    def in_memory(self) -> bool:
        """Whether only this session wrote the content (a memory drop)."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def path(self) -> Path:
        """A file or directory with the content."""
        ...

    @property
    def url(self) -> str:
        """URL of the content."""
        ...

    def view(self) -> memoryview:
        """The whole content, without a copy."""
        ...

    def read(self) -> bytes:
        """The whole content."""
        ...

    def open(self) -> BinaryIO:
        """A stream over the content."""
        ...

    def warn(self, text: str) -> None:
        """Write a warning to the log of the drop."""
        ...


def _unpickled(source: EncodedSource) -> list[Any]:
    """Decode ``pickle``: pickles and npy arrays, or the text of a text drop."""
    if source.is_text:
        return [_text(source)]
    return _sequence(source)


def _sequence(source: EncodedSource) -> list[Any]:
    """Decode a sequence of pickles and npy arrays."""
    content = source.view()
    # Buffered, because `tell` is needed after each value; without a copy of the content, so large arrays are copied
    # once.
    stream = cast(BinaryIO, io.BufferedReader(_ViewReader(content), buffer_size=_BUFFER))
    values: list[Any] = []
    while (at := stream.tell()) < len(content):
        head = bytes(content[at : at + len(_NPY_START)])
        if head == _NPY_START:
            values.append(_next_array(stream))
        elif _looks_pickled(head):
            values.append(_next_pickle(stream, source))
        else:
            if not values:
                raise CannotHoldError("it is not a pickle")
            left = len(content) - at
            raise CannotHoldError(f"the {left} bytes after value {len(values)} are neither a pickle nor an array")
    return values


def _next_pickle(stream: BinaryIO, source: EncodedSource) -> Any:
    try:
        return pickle.Unpickler(stream).load()  # noqa: S301 - graphs are code, and the port has this encoding
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] != "dill":
            raise
        raise MissingDependencyError(
            f"input '{source.name}' was written by dill, which is not installed",
            hint=install_hint("dill"),
        ) from problem
    except Exception as problem:  # damaged pickles raise nearly anything, and so do the objects in them
        raise CannotHoldError(f"it cannot be unpickled ({summary_of(problem)})") from problem


def _next_array(stream: BinaryIO) -> "NDArray[Any]":
    import numpy as np  # noqa: PLC0415 - numpy is loaded only for arrays

    try:
        return np.lib.format.read_array(_Plain(stream), allow_pickle=False)
    except (ValueError, EOFError, SyntaxError) as problem:
        raise CannotHoldError(str(problem)) from problem


class _Plain:
    """A stream that numpy does not treat as a file with a descriptor."""

    def __init__(self, stream: BinaryIO) -> None:
        self.read = stream.read


class _ViewReader(io.RawIOBase):
    """A raw stream over a view."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._at = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def readinto(self, target: Any) -> int:
        block = self._content[self._at : self._at + len(target)]
        target[: len(block)] = block
        self._at += len(block)
        return len(block)


def _arrays(source: EncodedSource) -> list[Any]:
    import numpy as np  # noqa: PLC0415 - numpy is loaded only for arrays

    if _is_pickle_in_memory(source):
        return [np.asanyarray(value) for value in _sequence(source)]
    content = source.view()
    if not (len(content) == 0 and source.is_joint) and bytes(content[: len(_NPY_START)]) != _NPY_START:
        raise CannotHoldError("it is not an npy array")
    return _sequence(source)


def _unjson(source: EncodedSource) -> list[Any]:
    if _is_pickle_in_memory(source):
        return _sequence(source)
    text = _text(source)
    values: list[Any] = []
    at = _skip_blank(text, 0)
    try:
        while at < len(text) or not (values or source.is_joint):
            value, end = _JSON.raw_decode(text, at)
            values.append(value)
            at = _skip_blank(text, end)
            # Numbers must be on separate lines: "2024-11" is not a list of numbers.
            if at < len(text) and text[end - 1] not in ']}"' and "\n" not in text[end:at]:
                raise CannotHoldError(f"there is more after its first value: {text[end : end + _SHOWN]!r}")
    except (ValueError, RecursionError) as problem:
        raise CannotHoldError(str(problem)) from problem
    return values


def _skip_blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _unliteral(source: EncodedSource) -> list[Any]:
    if _is_pickle_in_memory(source):
        return _sequence(source)
    text = _text(source).strip()
    if not text:
        return []
    try:
        return [ast.literal_eval(text)]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        lines = text.splitlines()
    try:
        return [ast.literal_eval(line.strip()) for line in lines if line.strip()]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as problem:
        raise CannotHoldError("it is not a Python literal") from problem


def _text(source: EncodedSource) -> str:
    try:
        return source.read().decode()
    except UnicodeDecodeError as problem:
        if _is_pickle_in_memory(source):
            values = _sequence(source)
            return str(values[0] if len(values) == 1 and not source.is_joint else values)
        raise CannotHoldError("it is not UTF-8") from problem


def _unbase64(source: EncodedSource) -> bytes:
    lines = source.read().split()
    try:
        return base64.b64decode(b"".join(lines), validate=True)
    except binascii.Error:
        pass  # several producers may have written one line each
    try:
        return b"".join(base64.b64decode(line, validate=True) for line in lines)
    except binascii.Error as problem:
        raise CannotHoldError(str(problem)) from problem


def _where(source: EncodedSource) -> str:
    """Return the path in a text in memory, as DALiuGE does; for any other content the path of a file with it."""
    return _named(source) or str(source.path)


def _whence(source: EncodedSource) -> str:
    named = _named(source)
    return named if URL.fullmatch(named) else source.url


def _named(source: EncodedSource) -> str:
    """Return the single line of text in a memory drop; empty if it holds anything else."""
    if not source.in_memory or not 0 < source.size <= _LONGEST_NAME:
        return ""
    if source.is_text:
        text = _text(source)
    elif _is_pickle_in_memory(source):
        values = _sequence(source)
        text = os.fspath(values[0]) if len(values) == 1 and isinstance(values[0], str | os.PathLike) else ""
    else:
        return ""
    text = text.strip() if isinstance(text, str) else ""
    return text if text and "\n" not in text and "\0" not in text else ""


def holds_values(source: EncodedSource) -> bool:
    """Whether a content begins with a pickle or an npy array, and is no text."""
    head = bytes(source.view()[: len(_NPY_START)])
    return not source.is_text and (head == _NPY_START or _looks_pickled(head))


def _looks_pickled(head: bytes) -> bool:
    return len(head) > 1 and head[:1] == _PICKLE_START and head[1] in _PICKLE_PROTOCOLS


def _is_pickle_in_memory(source: EncodedSource) -> bool:
    return source.in_memory and not source.is_text and source.size > 1 and _looks_pickled(bytes(source.view()[:2]))


SEVERAL: Mapping[str, Callable[[EncodedSource], list[Any]]] = {
    "pickle": _unpickled,
    "dill": _unpickled,
    "npy": _arrays,
    "json": _unjson,
    "eval": _unliteral,
}
"""Decoders of encodings whose contents may hold several values, by name."""

SINGLE: Mapping[str, Callable[[EncodedSource], Any]] = {
    "utf-8": _text,
    "raw": lambda source: source.read(),
    "binary": lambda source: source.read(),
    "base64": _unbase64,
    "path": _where,
    "dataurl": _whence,
}
"""Decoders of encodings whose contents hold one value, by name."""
