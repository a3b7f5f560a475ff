"""Encodings: how values that applications handle become the bytes behind a port, and back.

============  =====================================  ========================================================
encoding      value -> content                       content -> value
============  =====================================  ========================================================
``pickle``    any value that can be pickled          the value; nothing is None
``dill``      the same (default)                     the same
``npy``       an array, or what numpy converts       the array; never executes code
``json``      a JSON value                           the value
``eval``      a Python literal                       the value; nothing is None; never executes code
``utf-8``     text; of other values their ``str()``  the text
``raw``       bytes; text as UTF-8                   the bytes
``binary``    bytes                                  the bytes, all of them
``base64``    bytes                                  the bytes
``path``      a path, as text                        the path of a file with the content
``dataurl``   a URL, as text                         the URL of the content
============  =====================================  ========================================================

`dropflow.apps.formats` has more, for files and directories: ``fits``, ``hdf5``, ``zarr``, ``ms`` and others.

Each encoding reads back what it wrote. A value that it cannot hold is an error, and so is a content that it cannot
read.

A content may hold several values, one after the other, if several producers write one data drop or an application joins
its inputs. ``pickle``, ``dill``, ``npy``, ``json`` and ``eval`` then read a list of them, in their order; the other
encodings read the joined text or bytes. If the graph collects at the port, the value is always a list.

Real graphs mix encodings, so reading accepts some contents of another encoding: the content of a text drop at a
``pickle`` port is the text; a pickle in memory (which this session wrote) gives its value at ports of other encodings;
a ``pickle`` port reads an npy array. A file is unpickled only if the encoding of the port is ``pickle`` or ``dill``; a
``utf-8`` port gives the bytes of a pickle in a file, with a warning.

``pickle`` and ``dill`` write the same: a plain pickle if that is enough, else one by cloudpickle, which includes
functions and classes that another process cannot import. The package dill is needed only to read what dill itself
wrote.
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
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from dropflow.apps.app_interface import Context, InputData, OutputData
from dropflow.apps.formats import FORMATS, CannotHoldError, DamagedError, read_format, refuse_mask
from dropflow.apps.parameters import describe_missing
from dropflow.errors import AppError, BadParameterError, MissingDependencyError, UsageError, install_hint
from dropflow.failure import summary_of, text_of
from dropflow.files import NPY_START, PICKLE_PROTOCOL

if TYPE_CHECKING:
    from numpy.typing import NDArray

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
"""Pattern of the contents of ``dataurl``."""

_EXACT = 2**53
"""Integers below this one are exact as floats."""
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_PICKLE_START = b"\x80"
_PICKLE_PROTOCOLS = frozenset({2, 3, 4, 5})
_LONGEST_NAME_BYTES = 4096
"""Bytes of a path or URL that a memory drop holds."""
_SHOWN_REST = 16
"""Characters after the first value of a content, in a message."""
_BUFFER_BYTES = 1 << 16
"""Bytes that are read at once from a content with several values."""
_JSON = json.JSONDecoder()
DEFAULT = "dill"
"""Encoding of a port that names none."""
_SHOWN_START_BYTES = 16
"""Bytes at the beginning of a content, in a message."""
_ALIASES: Mapping[str, str] = {"utf8": "utf-8", "text": "utf-8", "numpy": "npy", "bytes": "binary", "url": "dataurl"}
_TEXTS = frozenset({"utf-8", "path", "dataurl"})
_LINES = frozenset({"json", "eval", "base64", "path", "dataurl"})
"""Encodings whose values need a separator when several follow each other."""
_HOLDS_VALUES = frozenset({"pickle", "dill", "npy", "json", "eval", "utf-8"})
_HOLDS_BYTES = frozenset({"raw", "binary", "base64"})
_SHOWN_INPUTS = 5
"""Names of lost inputs in a line of the log."""

# Encoders: from values to the bytes behind a port.


def _pickled(value: Any) -> bytes:
    try:
        if type(value) in _PLAIN or _is_plain_array(value):
            return pickle.dumps(value, protocol=PICKLE_PROTOCOL)
        import cloudpickle  # noqa: PLC0415 - not needed for plain values

        return cast(bytes, cloudpickle.dumps(value, protocol=PICKLE_PROTOCOL))
    except Exception as problem:
        raise CannotHoldError(f"it cannot be pickled: {text_of(problem)}") from problem


def _is_plain_array(value: Any) -> bool:
    """Return whether `value` is an array of numbers. Does not import numpy."""
    kind = type(value)
    return kind.__name__ == "ndarray" and kind.__module__ == "numpy" and not value.dtype.hasobject


def _encode_value_npy(value: Any) -> bytes:
    import numpy as np  # noqa: PLC0415 - numpy is loaded only for arrays

    try:
        array = np.asanyarray(value)
    except ValueError as problem:
        raise CannotHoldError(str(problem)) from problem
    if array.dtype.hasobject:
        raise CannotHoldError("it would be an array of Python objects, which npy cannot hold")
    refuse_mask(array)
    if not isinstance(value, np.ndarray | np.generic) and not keeps(array, value):
        raise CannotHoldError("an array would change it: numbers to text, large integers to floats, or NULs at the end")
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


def keeps(array: "NDArray[Any]", value: Any) -> bool:
    """Return whether the array that numpy made from `value`, which is not an array, has equal values."""
    import numpy as np  # noqa: PLC0415 - numpy is loaded only for arrays

    # Only text and large integers change; a loop over all values would take seconds.
    is_text = array.dtype.kind in "SU"
    doubtful = np.abs(array) >= _EXACT if array.dtype.kind in "fc" else np.full(array.shape, is_text)
    if not doubtful.any():
        return True
    given = np.array(value, dtype=object)
    return given.shape == array.shape and bool((array.astype(object)[doubtful] == given[doubtful]).all())


def _json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        same = json.loads(text) == value
    except (TypeError, ValueError, RecursionError) as problem:
        raise CannotHoldError(str(problem)) from problem
    if not same:
        raise CannotHoldError("JSON would change it (tuples become lists, keys become text)")
    return _encoded(text)


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
        return _encoded(_whole_text(value))
    try:
        bytes(value).decode()
    except UnicodeDecodeError as problem:
        raise CannotHoldError("they are not UTF-8") from problem
    return bytes(value)


def _whole_text(value: Any) -> str:
    """Return `str()` of a value, with all numbers of arrays: numpy leaves out those in the middle of 1,000 and more."""
    if isinstance(value, str) or "numpy" not in sys.modules:
        return str(value)
    import numpy as np  # noqa: PLC0415 - numpy is loaded only for arrays

    with np.printoptions(threshold=sys.maxsize):
        return str(value)


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
    "npy": _encode_value_npy,
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


# Decoders: from the bytes behind a port to values.


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
        """Return the whole content, without a copy."""
        ...

    def read(self) -> bytes:
        """Return the whole content."""
        ...

    def open(self) -> BinaryIO:
        """Return a stream over the content."""
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
    stream = cast(BinaryIO, io.BufferedReader(_ViewReader(content), buffer_size=_BUFFER_BYTES))
    values: list[Any] = []
    while (at := stream.tell()) < len(content):
        head = bytes(content[at : at + len(NPY_START)])
        if head == NPY_START:
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
    if not (len(content) == 0 and source.is_joint) and bytes(content[: len(NPY_START)]) != NPY_START:
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
                raise CannotHoldError(f"there is more after its first value: {text[end : end + _SHOWN_REST]!r}")
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


def _text_or_pickle(source: EncodedSource) -> str | bytes:
    """Decode ``utf-8``; a pickle in a file gives its bytes, which functions written for DALiuGE unpickle themselves."""
    try:
        return _text(source)
    except CannotHoldError:
        content = source.read()
        if source.is_text or not _looks_pickled(content[:2]):
            raise
    source.warn(
        f"input '{source.name}' at port '{source.port}' is a pickle and no text: the application gets its bytes; with "
        "the encoding 'pickle', the port would give the value"
    )
    return content


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
    if not source.in_memory or not 0 < source.size <= _LONGEST_NAME_BYTES:
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
    """Return whether a content begins with a pickle or an npy array, and is not text."""
    head = bytes(source.view()[: len(NPY_START)])
    return not source.is_text and (head == NPY_START or _looks_pickled(head))


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
    "utf-8": _text_or_pickle,
    "raw": lambda source: source.read(),
    "binary": lambda source: source.read(),
    "base64": _unbase64,
    "path": _where,
    "dataurl": _whence,
}
"""Decoders of encodings whose contents hold one value, by name."""


ENCODINGS: tuple[str, ...] = (*ENCODERS, *FORMATS)
"""All encodings, formats of files included."""


def canonical(encoding: str | None) -> str:
    """Return the name of an encoding as in `ENCODINGS`; `DEFAULT` for None and blank text.

    Raises
    ------
    BadParameterError
        There is no such encoding; the hint lists all.
    """
    name = (encoding or DEFAULT).strip().lower() or DEFAULT
    name = _ALIASES.get(name, name)
    if name not in ENCODINGS:
        raise BadParameterError(f"there is no encoding '{encoding}'", hint=f"a port can have: {', '.join(ENCODINGS)}")
    return name


def is_text(encoding: str) -> bool:
    """Return whether contents in `encoding` (a name in `ENCODINGS`) are text."""
    return encoding in _TEXTS


def encode(encoding: str | None, value: Any) -> bytes:
    """Encode a value.

    Parameters
    ----------
    encoding : str or None
        See the table; None is `DEFAULT`.
    value : Any
        The value; the table lists the types that each encoding can hold.

    Raises
    ------
    BadParameterError
        There is no such encoding.
    AppError
        The encoding cannot hold the value.
    """
    name = canonical(encoding)
    with cannot_hold(name, value):
        return ENCODERS[name](value)


@contextmanager
def cannot_hold(encoding: str, value: Any) -> Iterator[None]:
    """Turn a `CannotHoldError` of writing `value` into an `AppError`."""
    try:
        yield
    except CannotHoldError as problem:
        raise AppError(
            f"encoding '{encoding}' cannot hold {_describe(value)}: {problem}",
            hint="return another value, such as a list"
            if encoding == "pickle"
            else "change the encoding of the output port ('pickle' holds nearly any value), or the returned value",
        ) from problem.__cause__


def separator(encoding: str) -> bytes:
    """Return the separator after a value in `encoding` (a name in `ENCODINGS`) in a content with several producers."""
    return b"\n" if encoding in _LINES else b""


def decode(encoding: str | None, source: EncodedSource) -> Any:
    """Decode the content of `source`: its value, or a list if it holds several.

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
        The content is not in that encoding. The text has the port, the encoding, and the beginning of the content.
    MissingDependencyError
        A package is needed to read it.
    """
    name = canonical(encoding)
    values = decode_all(name, source)
    if name in SEVERAL and source.is_joint and not source.is_text:
        return values
    if len(values) > 1:
        source.warn(f"input '{source.name}' holds {len(values)} values, one after the other: they are read as a list")
        return values
    return values[0] if values else None


def decode_all(encoding: str | None, source: EncodedSource) -> list[Any]:
    """Decode all values in the content of `source`, in order. An empty content has none in some encodings.

    Raises
    ------
    BadParameterError, AppError, MissingDependencyError
        As `decode`.
    """
    name = canonical(encoding)
    try:
        if name in FORMATS:
            return [read_format(name, source.path)]
        return SEVERAL[name](source) if name in SEVERAL else [SINGLE[name](source)]
    except CannotHoldError as problem:
        where = f"port '{source.port}'" if source.port else "a port without name"
        begin = "" if name in FORMATS else f"; {_begin(source)}"
        hint = "give the port the encoding that the producer writes"
        if isinstance(problem, DamagedError):
            hint = "make or copy it again: it is cut off, or was changed"
        text = f"input '{source.name}' at {where} is not in encoding '{name}': {problem}{begin}"
        raise AppError(text, hint=hint) from problem.__cause__


def _begin(source: EncodedSource) -> str:
    head = bytes(source.view()[:_SHOWN_START_BYTES])
    return f"it begins with {head!r}" if head else "it is empty"


def _describe(value: Any) -> str:
    return f"{type(value).__name__} {reprlib.repr(value)}"


# Values at the ports of the built-in applications: reading them from inputs, writing them to outputs.
#
# Two rules hold for all of them. *Inputs without content are left out, with a warning in the log*: the error threshold
# of the application allowed that. *A value keeps its type*: it is written with the encoding of the port if that
# encoding can hold it, and pickled otherwise, as DALiuGE's generic applications always do.


def usable(context: Context) -> list[InputData]:
    """Return the inputs with content, in order. The others are counted and named in the log.

    Raises
    ------
    AppError
        There are inputs, but none has content.
    """
    inputs = context.inputs
    present = [data for data in inputs if data.ok]
    lost = [data for data in inputs if not data.ok]
    if lost:
        if not present:
            raise AppError(
                f"no input has content: {describe_missing(inputs)}",
                hint="lower input_error_threshold, or correct its producers",
            )
        names = ", ".join(data.name or data.oid for data in lost[:_SHOWN_INPUTS])
        more = f" and {len(lost) - _SHOWN_INPUTS} more" if len(lost) > _SHOWN_INPUTS else ""
        context.log(f"{describe_missing(inputs)}; working without {names}{more}", "WARNING")
    return present


def value_of(context: Context, data: InputData) -> Any:
    """Return the value of an input: decoded with the encoding of its port, else as text, else as bytes.

    Returns a list of values if several producers wrote the content.
    """
    try:
        return data.value(_value_encoding(context, data.port))
    except UsageError:
        return _undecoded(data)


def values_of(context: Context, data: InputData) -> list[Any]:
    """Return all values of an input, decoded as by `value_of`."""
    try:
        return data.values(_value_encoding(context, data.port)) or [None]
    except UsageError:
        return [_undecoded(data)]


def _value_encoding(context: Context, port: str) -> str:
    declared = _encoding(context, port)
    return declared if declared in _HOLDS_VALUES else "pickle"


def _undecoded(data: InputData) -> Any:
    body = data.read()
    if body.startswith(NPY_START):
        return _port_values_npy(data)
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def array_of(context: Context, data: InputData) -> "NDArray[Any]":
    """Return the array of an input that was written as ``npy`` or as a pickle.

    Several arrays of one shape in one content become one array with one more axis.

    Raises
    ------
    AppError
        The content is not an array of numbers.
    """
    import numpy as np  # noqa: PLC0415 - only applications that work with arrays pay for numpy

    value = _port_values_npy(data) if data.read().startswith(NPY_START) else value_of(context, data)
    try:
        refuse_mask(value)
        array = np.asarray(value)
    except ValueError as problem:
        raise AppError(f"input '{data.name or data.oid}' is not one array: {problem}") from problem
    if array.dtype.kind not in "biufc":
        held = f"{type(value).__name__} of {array.dtype}, not numbers" if data.size else "no numbers: it is empty"
        raise AppError(
            f"input '{data.name or data.oid}' holds {held}",
            hint="the producer must write an array of numbers with the encoding npy or pickle",
        )
    return array


def give(context: Context, outputs: Sequence[OutputData], value: Any) -> None:
    """Write `value` to each of `outputs`."""
    for output in outputs:
        declared = _encoding(context, output.port)
        fits = declared in _HOLDS_VALUES or (declared in _HOLDS_BYTES and isinstance(value, bytes))
        output.put(value, declared if fits else "pickle")


def group_by_port(outputs: Sequence[OutputData]) -> dict[str, list[OutputData]]:
    """`outputs` by their port, both in the order of the graph."""
    groups: dict[str, list[OutputData]] = {}
    for output in outputs:
        groups.setdefault(output.port, []).append(output)
    return groups


def _encoding(context: Context, port: str) -> str:
    argument = context.arguments.get(port)
    return argument.encoding.lower() if argument and argument.encoding else "pickle"


def _port_values_npy(data: InputData) -> Any:
    try:
        return data.value("npy")
    except AppError as problem:
        raise AppError(f"input '{data.name or data.oid}' is not a whole npy array: {problem.text}") from problem
