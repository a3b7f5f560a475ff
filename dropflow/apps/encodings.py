"""Encodings: how the bytes behind a port and the values that applications handle become each other.

============  =====================================  ========================================================
encoding      value -> content                       content -> value
============  =====================================  ========================================================
``pickle``    any value that can be pickled          the value; nothing is None
``dill``      the same (default)                     the same
``npy``       an array, or what numpy makes one of   the array; never executes code
``json``      what JSON can say                      the value
``eval``      a Python literal                       the value; nothing is None; never executes code
``utf-8``     text; of other values their ``str()``  the text
``raw``       bytes; text as UTF-8                   the bytes
``binary``    bytes                                  the bytes, all of them
``base64``    bytes                                  the bytes
``path``      a path, as text                        a path where the content is
``dataurl``   a URL, as text                         the URL of the content
============  =====================================  ========================================================

Each one reads back what it wrote; a value it cannot hold is refused, and so is a content it cannot read.

A content may hold several values, one after the other: when several producers write one data drop, or an application
joins its inputs. ``pickle``, ``dill``, ``npy``, ``json`` and ``eval`` then read a list of them, in their order; the
other encodings read the joined text or bytes. Where the graph collects, it is a list also when it holds one value.

Real graphs mix encodings, so reading forgives what can only be meant one way: text drops answer ``pickle`` ports with
the text; pickles in memory (which this session wrote) answer the ports of other encodings with their value; an array
answers ``pickle`` ports. Content of files is never unpickled unless the port says so.

``pickle`` and ``dill`` write the same: a plain pickle where that is enough, else one by cloudpickle, which takes
functions and classes along that another process could not import. The package dill is needed only to read what dill
itself wrote.
"""

import ast
import base64
import binascii
import io
import json
import os
import pickle
import re
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from dropflow.errors import AppError, BadParameterError, MissingDependencyError
from dropflow.exception_text import summary_of, text_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DEFAULT",
    "ENCODINGS",
    "EncodedSource",
    "canonical",
    "decode",
    "decode_all",
    "encode",
    "is_text",
    "separator",
]

DEFAULT = "dill"
"""Encoding of a port that names none."""

_PROTOCOL = 5
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_PICKLE_START = b"\x80"
_PICKLE_PROTOCOLS = frozenset({2, 3, 4, 5})
_NPY_START = b"\x93NUMPY"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_LONGEST_NAME = 4096
_SHOWN = 16
_BUFFER = 1 << 16
_JSON = json.JSONDecoder()
_ALIASES: Mapping[str, str] = {"utf8": "utf-8", "text": "utf-8", "numpy": "npy", "bytes": "binary", "url": "dataurl"}


class EncodedSource(Protocol):
    """A content to decode, as an input of an attempt offers it."""

    port: str
    name: str

    @property
    def is_text(self) -> bool:
        """Whether the content is text by design."""
        ...

    @property
    def is_joint(self) -> bool:
        """Whether the graph has several producers write the content, so that it is a list of values."""
        ...

    @property
    def in_memory(self) -> bool:
        """Whether the content was written by this session and only it (a memory drop)."""
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
        """Tell the log of the drop."""
        ...


def canonical(encoding: str | None) -> str:
    """The name in `ENCODINGS` that is meant; `DEFAULT` for none.

    Raises
    ------
    BadParameterError
        There is no such encoding; lists those there are.
    """
    name = (encoding or DEFAULT).strip().lower() or DEFAULT
    name = _ALIASES.get(name, name)
    if name not in ENCODINGS:
        raise BadParameterError(f"there is no encoding '{encoding}'", hint=f"a port can have: {', '.join(ENCODINGS)}")
    return name


def is_text(encoding: str) -> bool:
    """Whether contents in `encoding` (a name in `ENCODINGS`) are text by design."""
    return encoding in _TEXTS


def encode(encoding: str | None, value: Any) -> bytes:
    """The content that stands for `value`.

    Parameters
    ----------
    encoding : str or None
        See the table; None is `DEFAULT`.
    value : Any
        See the table for what each encoding can hold.

    Raises
    ------
    BadParameterError
        There is no such encoding.
    AppError
        The encoding cannot hold the value; says what it can.
    """
    name = canonical(encoding)
    try:
        return _ENCODERS[name](value)
    except _CannotHoldError as problem:
        raise AppError(
            f"encoding '{name}' cannot hold {_describe(value)}: {problem}",
            hint="change the encoding of the output port ('pickle' holds any value), or what is returned",
        ) from problem.__cause__


def separator(encoding: str) -> bytes:
    """What a producer writes after its value in `encoding` (a name in `ENCODINGS`) where others add theirs."""
    return b"\n" if encoding in _LINES else b""


def decode(encoding: str | None, source: EncodedSource) -> Any:
    """The value that the content of `source` stands for; a list of values where it holds several.

    Parameters
    ----------
    encoding : str or None
        See the table; None is `DEFAULT`.
    source : EncodedSource
        An input of an attempt.

    Raises
    ------
    BadParameterError
        There is no such encoding.
    AppError
        The content is not of that encoding; says the port, the encoding, and how the content begins.
    MissingDependencyError
        A package is needed to read it.
    """
    name = canonical(encoding)
    values = decode_all(name, source)
    if name in _SEVERAL and source.is_joint and not source.is_text:
        return values
    if len(values) > 1:
        source.warn(f"input '{source.name}' holds {len(values)} values, one after the other: they are read as a list")
        return values
    return values[0] if values else None


def decode_all(encoding: str | None, source: EncodedSource) -> list[Any]:
    """Every value in the content of `source`, in order: none where it is empty and the encoding takes that for nothing.

    Raises
    ------
    BadParameterError, AppError, MissingDependencyError
        As `decode`.
    """
    name = canonical(encoding)
    try:
        return _SEVERAL[name](source) if name in _SEVERAL else [_SINGLE[name](source)]
    except _CannotHoldError as problem:
        where = f"port '{source.port}'" if source.port else "a port without name"
        raise AppError(
            f"input '{source.name}' at {where} is not in encoding '{name}': {problem}; {_begin(source)}",
            hint="give the port the encoding that the producer writes",
        ) from problem.__cause__


class _CannotHoldError(ValueError):
    """A value or a content that does not fit an encoding. Always becomes an `AppError`."""


def _pickled(value: Any) -> bytes:
    try:
        if type(value) in _PLAIN or _is_plain_array(value):
            return pickle.dumps(value, protocol=_PROTOCOL)
        import cloudpickle  # noqa: PLC0415 - plain values do without

        return cast(bytes, cloudpickle.dumps(value, protocol=_PROTOCOL))
    except Exception as problem:
        raise _CannotHoldError(f"it cannot be pickled: {text_of(problem)}") from problem


def _is_plain_array(value: Any) -> bool:
    """Whether it is an array of numbers, looked at without importing numpy."""
    kind = type(value)
    return kind.__name__ == "ndarray" and kind.__module__ == "numpy" and not value.dtype.hasobject


def _unpickled(source: EncodedSource) -> list[Any]:
    """The values behind a port with ``pickle``: pickles and npy arrays, or the text of a text drop."""
    if source.is_text:
        return [_text(source)]
    return _sequence(source)


def _sequence(source: EncodedSource) -> list[Any]:
    """The pickles and npy arrays that follow each other in a content."""
    content = source.view()
    # Buffered, for its position after a value, and over the content itself: large arrays are copied once.
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
                raise _CannotHoldError("it is no pickle")
            left = len(content) - at
            raise _CannotHoldError(f"the {left} bytes after value {len(values)} are neither a pickle nor an array")
    return values


def _next_pickle(stream: BinaryIO, source: EncodedSource) -> Any:
    try:
        return pickle.Unpickler(stream).load()  # noqa: S301 - the port asks for it: graphs are code
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] != "dill":
            raise
        raise MissingDependencyError(
            f"input '{source.name}' was written by dill, which is not installed",
            hint="install it: pip install 'dropflow[dill]'",
        ) from problem
    except Exception as problem:  # damaged pickles raise nearly anything, and so do the objects in them
        raise _CannotHoldError(f"it cannot be unpickled ({summary_of(problem)})") from problem


def _next_array(stream: BinaryIO) -> "NDArray[Any]":
    import numpy as np  # noqa: PLC0415 - see _npy

    try:
        return np.lib.format.read_array(_Plain(stream), allow_pickle=False)
    except (ValueError, EOFError, SyntaxError) as problem:
        raise _CannotHoldError(str(problem)) from problem


class _Plain:
    """A stream that numpy does not take for a file with a descriptor."""

    def __init__(self, stream: BinaryIO) -> None:
        self.read = stream.read


class _ViewReader(io.RawIOBase):
    """A view as a raw stream."""

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


def _npy(value: Any) -> bytes:
    import numpy as np  # noqa: PLC0415 - only who handles arrays pays for numpy

    try:
        array = np.asanyarray(value)
    except ValueError as problem:
        raise _CannotHoldError(str(problem)) from problem
    if array.dtype.hasobject:
        raise _CannotHoldError("it makes an array of Python objects, which would need a pickle")
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


def _arrays(source: EncodedSource) -> list[Any]:
    import numpy as np  # noqa: PLC0415 - see _npy

    if _is_pickle_in_memory(source):
        return [np.asanyarray(value) for value in _sequence(source)]
    content = source.view()
    if not (len(content) == 0 and source.is_joint) and bytes(content[: len(_NPY_START)]) != _NPY_START:
        raise _CannotHoldError("it is no npy array")
    return _sequence(source)


def _json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        same = json.loads(text) == value
    except (TypeError, ValueError, RecursionError) as problem:
        raise _CannotHoldError(str(problem)) from problem
    if not same:
        raise _CannotHoldError("JSON would change it (tuples become lists, keys become text)")
    return text.encode()


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
            # Numbers are told apart by lines only: "2024-11" is no list of numbers.
            if at < len(text) and text[end - 1] not in ']}"' and "\n" not in text[end:at]:
                raise _CannotHoldError(f"there is more after its first value: {text[end : end + _SHOWN]!r}")
    except (ValueError, RecursionError) as problem:
        raise _CannotHoldError(str(problem)) from problem
    return values


def _skip_blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _literal(value: Any) -> bytes:
    text = repr(value)
    try:
        same = ast.literal_eval(text) == value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as problem:
        raise _CannotHoldError("it is no Python literal") from problem
    if same is not True:
        raise _CannotHoldError("its repr() stands for another value")
    return text.encode()


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
        raise _CannotHoldError("it is no Python literal") from problem


def _utf8(value: Any) -> bytes:
    if not _is_bytes(value):
        return _encoded(str(value))
    try:
        bytes(value).decode()
    except UnicodeDecodeError as problem:
        raise _CannotHoldError("they are not UTF-8") from problem
    return bytes(value)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as problem:
        raise _CannotHoldError("it holds half a character, which no file can") from problem


def _text(source: EncodedSource) -> str:
    try:
        return source.read().decode()
    except UnicodeDecodeError as problem:
        if _is_pickle_in_memory(source):
            values = _sequence(source)
            return str(values[0] if len(values) == 1 and not source.is_joint else values)
        raise _CannotHoldError("it is not UTF-8") from problem


def _raw(value: Any) -> bytes:
    return _encoded(value) if isinstance(value, str) else _bytes(value)


def _bytes(value: Any) -> bytes:
    if not _is_bytes(value):
        raise _CannotHoldError("it is not bytes")
    return bytes(value)


def _unbase64(source: EncodedSource) -> bytes:
    lines = source.read().split()
    try:
        return base64.b64decode(b"".join(lines), validate=True)
    except binascii.Error:
        pass  # each of several producers may have written one line
    try:
        return b"".join(base64.b64decode(line, validate=True) for line in lines)
    except binascii.Error as problem:
        raise _CannotHoldError(str(problem)) from problem


def _path(value: Any) -> bytes:
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not isinstance(text, str) or not text or text != text.strip() or "\n" in text or "\0" in text:
        raise _CannotHoldError("it is no path on one line")
    return _encoded(text)


def _where(source: EncodedSource) -> str:
    """Text in memory names the path, as in DALiuGE; any other content is put where a program finds it."""
    return _named(source) or str(source.path)


def _url(value: Any) -> bytes:
    if not isinstance(value, str) or not _URL.fullmatch(value):
        raise _CannotHoldError("it is no URL (scheme://...)")
    return _encoded(value)


def _whence(source: EncodedSource) -> str:
    named = _named(source)
    return named if _URL.fullmatch(named) else source.url


def _named(source: EncodedSource) -> str:
    """The one line of text that a memory drop holds; empty when it holds something else."""
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


def _is_bytes(value: Any) -> bool:
    return isinstance(value, bytes | bytearray | memoryview)


def _looks_pickled(head: bytes) -> bool:
    return len(head) > 1 and head[:1] == _PICKLE_START and head[1] in _PICKLE_PROTOCOLS


def _is_pickle_in_memory(source: EncodedSource) -> bool:
    return source.in_memory and not source.is_text and source.size > 1 and _looks_pickled(bytes(source.view()[:2]))


def _begin(source: EncodedSource) -> str:
    head = bytes(source.view()[:_SHOWN])
    return f"it begins with {head!r}" if head else "it is empty"


def _describe(value: Any) -> str:
    return f"{type(value).__name__} {reprlib.repr(value)}"


_ENCODERS: Mapping[str, Callable[[Any], bytes]] = {
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
_SEVERAL: Mapping[str, Callable[[EncodedSource], list[Any]]] = {
    "pickle": _unpickled,
    "dill": _unpickled,
    "npy": _arrays,
    "json": _unjson,
    "eval": _unliteral,
}
"""Encodings of which a content may hold several values."""

_SINGLE: Mapping[str, Callable[[EncodedSource], Any]] = {
    "utf-8": _text,
    "raw": lambda source: source.read(),
    "binary": lambda source: source.read(),
    "base64": _unbase64,
    "path": _where,
    "dataurl": _whence,
}
ENCODINGS: tuple[str, ...] = tuple(_ENCODERS)
"""The encodings there are."""

_TEXTS = frozenset({"utf-8", "path", "dataurl"})
_LINES = frozenset({"json", "eval", "base64", "path", "dataurl"})
"""Encodings whose values cannot be told apart when they follow each other without a separator."""
